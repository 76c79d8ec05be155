"""`repro claims`: the papers' sentences, each recomputed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from .. import command
from ..claims import CLAIMS, Checked, check_all, counts_text, origins
from ..claims.measured import unsettling
from ..claims.working import shown
from ..console import say
from ..formats import FOR_MACHINES, Format, path, prose, render
from ..options import Output, argument, several
from ..predict.traces import Stack, of_stack
from ..printout import people
from ..record import Clock
from ..run.reading import measured
from .day_options import by_option, measured_runs, stack_option


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    id: str | None = argument(
        "show the rows and the arithmetic behind this claim", "ID", lambda text, option: text.lower(), nargs="?"
    )
    measured: tuple[Path, ...] = measured_runs("check what needs measurements on this run")
    survey: tuple[Path, ...] = several(
        "check what is about the survey on these answers: the authors' artifacts/survey.csv, or others'; several "
        "times for several files",
        "ANSWERS.csv",
        path,
    )
    by: Clock = by_option(printed=False)
    stack: Stack = stack_option("paper")


def main(asked: Asked) -> str:
    runs = measured(asked.measured) if asked.measured else None
    records, by = runs.records if runs else None, asked.by
    if runs and runs.released:
        records, by = runs.released.records, "authors"
    answers = None
    if asked.survey:
        from .survey import read_answers  # with predictions, which nothing else here needs

        answers = read_answers(asked.survey)
    checked = check_all(records, by, answers, of_stack(asked.stack), asked.id and [asked.id])
    if asked.id is not None:
        return _traced(checked[0], asked.format, asked.all)
    if runs and (reason := unsettling(records or ())):
        say(f"{runs.name}: {reason}")
    if asked.format in FOR_MACHINES:
        return render([one.row() for one in checked], asked.format)
    differing = sorted((one for one in checked if one.verdict == "differs"), key=lambda one: -abs(one.off or 0))
    rows = [_row(one, asked.all) for one in (checked if asked.all else differing)]
    notes = [f"{command()} claims ID shows a claim's sentence, its formula and the arithmetic.", origins(checked)]
    if runs and runs.released:
        notes[0] = "Of searches, the authors' raw results were taken, by their clock; they verify no cell."
    if asked.all:
        notes.insert(0, f"{', '.join(f'{symbol} {words}' for symbol, words in CLAIMS.values())}.")
    else:
        notes.insert(0, "Here are the claims that differ: --all shows every claim.")
    return people(counts_text(checked), rows, notes, asked.format, asked.all)


def _row(one: Checked, every: bool) -> dict[str, Any]:
    """Return a claim's row: with its verdict where `every` claim is there, else with how far off it is."""
    off = f"{one.off:+.1%}" if one.off and isfinite(one.off) else None
    return {
        "claim": one.claim.id,
        "published": one.claim.text,
        "recomputed": shown(one.working.value.value) if one.working else None,
        **({"verdict": CLAIMS[one.verdict][0]} if every else {"off by": off}),
        "by true days": one.by_true_days.shown if one.by_true_days else None,
    }


def _traced(one: Checked, format: Format, every: bool) -> str:
    """Return a claim with the rows that its verdict is based on and, for `every`, the steps of its arithmetic."""
    rows, steps = (one.working.rows, one.working.steps) if one.working else ((), ())
    if format == "json":
        return render([one.row() | {"rows": [asdict(row) for row in rows], "steps": list(steps)}], format)
    if format == "csv":
        read = [
            {"part": "row", "what": f"{row.file}: {row.row}", "value": row.value, "source": row.source} for row in rows
        ]
        did = [{"part": "step", "what": step, "value": None, "source": None} for step in steps]
        verdict = {"part": "verdict", "what": one.reason, "value": one.verdict, "source": one.claim.source}
        return render([*read, *did, verdict], format)
    claim = one.claim
    answer = f"{claim.id} {one.verdict.replace('_', ' ')}: {claim.statement} ({claim.source}); {one.reason}."
    place = f", its last printed place {shown(claim.precision)}" if claim.precision else ""
    notes = [f"Published: {claim.text}{place}."]
    if one.how:
        formula = f"{claim.formula.text}, in numbers " if claim.formula else ""
        notes.append(f"Arithmetic: {formula}{one.how}.")
    if one.by_true_days:
        number = claim.with_unit(one.by_true_days.shown)
        notes.append(f"By true days: {number}, {one.by_true_days.origin}.")
    parts = [people(answer, [asdict(row) for row in rows], notes, format, every)]
    if every and steps:
        parts += ["Each step:", "\n".join(prose(f"{number}. {step}", format) for number, step in enumerate(steps, 1))]
    return "\n\n".join(parts)
