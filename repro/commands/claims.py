"""`repro claims`: the papers' sentences, each recomputed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from .. import command
from ..claims import CLAIMS, Checked, check, check_all, counts_text, origins
from ..claims.measured import unsettling
from ..claims.working import shown
from ..console import folded, say
from ..formats import FOR_MACHINES, Format, add_format, counted, path, prose, render
from ..predict.traces import of_stack
from ..run.reading import add_measured, measured
from .day_options import add_by, add_stack
from .printout import answered


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", type=str.lower, nargs="?", metavar="ID", help="show the rows and the arithmetic behind this claim"
    )
    add_measured(parser, "check what needs measurements on this run")
    parser.add_argument(
        "--survey",
        action="append",
        type=path,
        metavar="ANSWERS.csv",
        help="check what is about the survey on these answers: the authors' artifacts/survey.csv, or others'; several "
        "times for several files",
    )
    add_by(parser, printed=False)
    add_stack(parser, "paper")
    parser.add_argument("--all", action="store_true", help="show every claim, not only those that differ most")
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    runs = measured(given.measured) if given.measured else None
    records = runs.records if runs else None
    answers = None
    if given.survey:
        from .survey import read_answers  # with predictions, which nothing else here needs

        answers = read_answers(given.survey)
    stack = of_stack(given.stack)
    if given.id is not None:
        print(_traced(check(given.id, records, given.by, answers, stack), given.format))
        return 0
    checked = check_all(records, given.by, answers, stack)
    if runs and (reason := unsettling(runs.records)):
        say(f"{runs.name}: {reason}")
    if given.format in FOR_MACHINES:
        print(render([one.row() for one in checked], given.format))
        return 0
    print(_screen(checked, given.all, given.format))
    return 0


_ROWS, _COLUMNS = 20, 100  # of a screen


def _screen(checked: Sequence[Checked], every: bool, format: Format) -> str:
    """Return the answer, the claims that differ most, or `every` claim, and notes, as text or Markdown."""
    differing = sorted((one for one in checked if one.verdict == "differs"), key=lambda one: -abs(one.off or 0))
    rows = [_row(one, every) for one in (checked if every else differing[:_ROWS])]
    notes = [f"{command()} claims ID shows a claim's sentence, its formula and the arithmetic.", origins(checked)]
    if every:
        notes.insert(0, ", ".join(f"{symbol} {words}" for symbol, words in CLAIMS.values()))
    elif len(differing) > _ROWS:
        notes.insert(0, f"{counted(len(differing) - _ROWS, 'other')} differ by less; --all shows every claim.")
    table = render(rows, format, most=_COLUMNS)
    text = answered(counts_text(checked), [table, "\n".join(f"- {prose(note, format)}" for note in notes)], format)
    return folded(text, _COLUMNS) if format == "text" else text


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


def _traced(one: Checked, format: Format) -> str:
    """Return a claim with the rows and steps that its verdict is based on."""
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
    claim, mark = one.claim, "- " if format == "markdown" else "  "
    lines = [f"{claim.id}: {claim.statement} ({claim.source})"]
    lines.append(f"{mark}published: {claim.text}{_place(one)}")
    lines.append(f"{mark}verdict: {one.verdict.replace('_', ' ')}; {one.reason}")
    if claim.formula:
        lines.append(f"{mark}formula: {claim.formula.text}")
    if one.by_true_days:
        number = claim.with_unit(one.by_true_days.shown)
        lines.append(f"{mark}by true days: {number}, {one.by_true_days.origin}")
    parts = [prose(line, format) for line in lines]
    if rows:
        parts += ["", "Rows:", "", render([asdict(row) for row in rows], format)]
    if steps:
        parts += ["", "Arithmetic:", "", *(prose(f"{number}. {step}", format) for number, step in enumerate(steps, 1))]
    return "\n".join(parts)


def _place(one: Checked) -> str:
    return f", its last printed place {shown(one.claim.precision)}" if one.claim.precision else ""
