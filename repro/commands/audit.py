"""`repro audit`: check whether the published numbers can be true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .. import command
from ..formats import FOR_MACHINES, counted, prose, render
from ..money.measurements import WHOSE
from ..options import Output
from ..predict.audit import Audited, audit, audit_measured, queue_summary, summary, without_queue
from ..predict.released import steps
from ..predict.traces import Stack, of_stack
from ..printout import people
from ..report import released
from ..report.causes import Cause, causes
from ..run.reading import measured as read_measured
from .day_options import measured_runs, stack_option


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    measured: tuple[Path, ...] = measured_runs("audit this run's days as well")
    stack: Stack = stack_option("paper")


def main(asked: Asked) -> str:
    runs = read_measured(asked.measured) if asked.measured else None
    if runs and runs.released:
        return released.audited(steps(runs.released.records), asked.format, asked.all)
    records = runs.records if runs else ()
    rows = without_queue(audit(), of_stack(asked.stack))
    measured = audit_measured(records)
    found = causes(rows, records)
    if asked.format in FOR_MACHINES:
        return render([_row(row, found) for row in (*rows, *measured)], asked.format)
    questioned = [row for row in rows if row.verdict != "plausible"]
    shown = [*sorted(measured, key=_share), *sorted(questioned, key=_share)]
    notes = [_explained(rows, asked.stack)]
    audited = sum(bool(audit_measured([record])) for record in records)
    if runs and audited < len(records):
        notes.append(
            f"{audited or 'None'} of the {counted(len(records), 'trial')} in {runs.name} can be audited, which takes "
            f"days at the paper's scale on a GPU whose peak is known{'' if audited else f': {command()} --gpus all'}."
        )
    if not asked.all:
        notes.append(f"--all also has {counted(len(found), 'possible cause')}.")
    parts = [people(summary(rows), _columns(shown), notes, asked.format, asked.all)]
    if asked.all:
        more = (*queue_summary(rows), *(_cause(number, cause) for number, cause in enumerate(found, 1)))
        parts += [prose(part, asked.format) for part in more]
    return "\n\n".join(parts)


def _share(row: Audited) -> float:
    return -row.utilisation.value


def _explained(rows: Sequence[Audited], stack: Stack) -> str:
    """Return a note on how many impossible cells the launch queue explains."""
    found = [row for row in rows if row.verdict == "impossible"]
    explained = sum(row.explained for row in found)
    return (
        f"The authors' clock leaves out kernels that are launched and yet to run: with these, as predicted for "
        f"{WHOSE[stack]} stack, {explained} of the {len(found)} are possible."
    )


def _row(row: Audited, causes: Sequence[Cause]) -> dict[str, Any]:
    """Return the row, with the settled cause of days that the launch queue explains, and the folders of its records."""
    share = row.utilisation
    cause = next((cause for cause in causes if cause.decided), None) if row.explained else None
    return asdict(row) | {
        "utilisation": share.value,
        "utilisation_low": share.low,
        "utilisation_high": share.high,
        "settled_cause": cause.cause if cause else None,
        "settled_by": ", ".join(cause.records) if cause else None,
    }


def _columns(rows: Sequence[Audited]) -> list[dict[str, Any]]:
    return [
        {
            "table": row.table,
            "model": row.model,
            "GPUs": row.machine,
            "days": row.days,
            "clock": row.clock,
            "precision": row.precision,
            "of peak": f"{row.utilisation.value:.0%}",
            "verdict": row.verdict,
            "with the queue": row.corrected_share,
        }
        for row in rows
    ]


def _cause(number: int, cause: Cause) -> str:
    return (
        f"Candidate {number}: {cause.cause}.\n  For: {cause.evidence_for}.\n  Against: {cause.evidence_against}.\n"
        f"  {cause.state}: {cause.settled_by}."
    )
