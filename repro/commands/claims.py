"""`repro claims`: the papers' sentences, each recomputed."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import asdict
from typing import Any

from .. import command
from ..claims import Checked, check, check_all, origins
from ..claims.facts import shown
from ..claims.measured import unsettling
from ..console import say
from ..formats import FOR_MACHINES, Format, add_format, path, prose, render
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
    counts = Counter(one.verdict.replace("_", " ") for one in checked)
    text = ", ".join(f"{verdict} {number}" for verdict, number in counts.most_common())
    answer = f"{len(checked)} claims: {text}. {origins(checked)} {command()} claims ID shows what a verdict stands on."
    print(answered(answer, [render([_people(one, given.format) for one in checked], given.format)], given.format))
    return 0


def _people(one: Checked, format: Format) -> dict[str, Any]:
    claim = one.claim
    row = {
        "id": claim.id,
        "verdict": one.verdict.replace("_", " "),
        "published": claim.text,
        "recomputed": shown(one.working.value.value) if one.working else None,
        "by true days": one.by_true_days.shown if one.by_true_days else None,
        "statement": claim.statement,
    }
    return row if format == "text" else row | {"source": claim.source, "reason": one.reason}


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
