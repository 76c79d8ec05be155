"""`repro audit`: check whether the published numbers can be true."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .. import command
from ..formats import FOR_MACHINES, add_format, counted, prose, render
from ..predict.audit import Audited, audit, audit_measured, queue_summary, summary, without_queue
from ..predict.traces import of_stack
from ..report.causes import Cause, causes
from ..run.reading import add_measured
from ..run.reading import measured as read_measured
from .day_options import add_stack


def options(parser: argparse.ArgumentParser) -> None:
    add_measured(parser, "audit this run's days as well")
    add_stack(parser, "paper")
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    runs = read_measured(given.measured) if given.measured else None
    records = runs.records if runs else ()
    rows = without_queue(audit(), of_stack(given.stack))
    measured = audit_measured(records)
    found = causes(rows, records)
    if given.format in FOR_MACHINES:
        print(render([_row(row, found) for row in (*rows, *measured)], given.format))
        return 0
    lines = [*summary((*rows, *measured)), *queue_summary(rows)]
    audited = sum(bool(audit_measured([record])) for record in records)
    if runs and audited < len(records):
        lines.append(
            f"Measured: {audited or 'none'} of the {counted(len(records), 'trial')} in {runs.name} can be "
            "audited, which takes days at the paper's scale on a GPU whose peak is known"
            + ("." if audited else f"; {command()} --gpus all measures them.")
        )
    shown = [row for row in rows if row.verdict != "plausible"] + measured
    shown.sort(key=lambda row: -row.utilisation.value)
    parts = [*(prose(line, given.format) for line in lines), render([_people(row) for row in shown], given.format)]
    parts.append(
        "Utilisation is of the dense peak on the data sheet, at the clock that it names; the bounds are those of the "
        "rounded days. MHz: the clock that the GPU would have had to hold with every unit busy. The cells that are "
        "left out are plausible; --format csv has them all. Without queue: the utilisation by the true days that the "
        "printed ones imply, as the authors' clock leaves out kernels that are launched and yet to run; "
        f"the queue is predicted for {given.stack if given.stack == 'today' else 'the paper'}'s stack."
    )
    parts += [prose(_cause(number, cause), given.format) for number, cause in enumerate(found, 1)]
    print("\n\n".join(parts))
    return 0


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


def _people(row: Audited) -> dict[str, Any]:
    share = row.utilisation
    return {
        "table": row.table,
        "model": row.model,
        "GPUs": f"{row.gpus} x {row.gpu}",
        "days": row.days,
        "clock": row.clock,
        "precision": row.precision,
        "TFLOP/s a GPU": row.tflops,
        "of peak": f"{share.value:.0%}",
        "bounds": "-" if row.table == "measured" else f"{share.low:.0%} to {share.high:.0%}",
        "MHz": row.clock_mhz,
        "verdict": row.verdict,
        "without queue": row.corrected_share,
        "verdict then": row.corrected_verdict,
    }


def _cause(number: int, cause: Cause) -> str:
    return (
        f"Candidate {number}: {cause.cause}.\n  For: {cause.evidence_for}.\n  Against: {cause.evidence_against}.\n"
        f"  {cause.state}: {cause.settled_by}."
    )
