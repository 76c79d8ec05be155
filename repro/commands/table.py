"""`repro table`: print a table of the paper, with measured values beside it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from ..console import UserError
from ..formats import FOR_MACHINES, FORMATS, add_format, prose, render, rough
from ..money.days import DaysAsked, ModelDays
from ..paper.arithmetic import paper_gpu, recipe_of
from ..paper.settings import Settings
from ..paper.tables import TABLES
from ..predict.hardware import Machine
from ..predict.traces import of_stack
from ..record import BY_DAYS, CLOCKS, DAYS, DEFAULT, Clock, other
from ..report.tables import NUMBERS, Number, Rows, layout, rows
from ..run.corrected import WORTH_SAYING, Corrected
from ..run.reading import Joined, add_measured, measured
from .day_options import add_by, add_stack

_USE_IT = "use it as in table 1 --by true"


def options(parser: argparse.ArgumentParser) -> None:
    metavar = f"{{{','.join(NUMBERS)}}}"  # an error shows it as the help does
    parser.add_argument(
        "number", choices=NUMBERS, metavar=metavar, type=str.lower, help="as in the paper; j is Appendix J"
    )
    add_measured(
        parser,
        "put this run's values beside the paper's; with --by true or authors, take its measured days, else those it "
        "projected, else predicted ones",
    )
    add_by(parser, default="printed")
    parser.add_argument("--corrected", dest="by", action="store_const", const="true", help="the same as --by true")
    add_stack(parser, "paper")
    parser.add_argument(
        "--methods",
        choices=("modern",),
        help="with --by true, Table 1 also by the days that today's software is predicted to take: docs/modern.md",
    )
    add_format(parser, (*FORMATS, "latex"))


def main(given: argparse.Namespace) -> int:
    by_clock, of_days = given.by in CLOCKS, given.number in TABLES
    if given.methods and (given.by, given.number) != ("true", "1"):
        raise UserError(f"--methods modern is a column of Table 1 alone: {_USE_IT}")
    if given.stack != "paper" and not (by_clock and of_days):
        raise UserError(f"--stack {given.stack} changes predicted days alone: {_USE_IT}")
    if by_clock and not of_days and given.measured is None:
        raise UserError(f"table {given.number} --by {given.by}: Tables 1 and 4 alone hold days; name one of them")
    clock: Clock = given.by if by_clock else DEFAULT
    runs = measured(given.measured, clock) if given.measured is not None else None
    if by_clock and of_days:
        return _by_clock(given, runs)
    found = rows(given.number, runs.records, runs.verdicts, clock) if runs else rows(given.number)
    if given.format in FOR_MACHINES:
        print(render(found, given.format))
        return 0
    print(render(layout(given.number, found), given.format))
    if given.format != "latex":
        print(f"\n{prose(_note(given.number, runs is not None, found), given.format)}")
    return 0


def _by_clock(given: argparse.Namespace, runs: Joined | None) -> int:
    """Print Table 1 or 4 by true days, or by those of the authors' clock."""
    from ..run import corrected

    stack, modern = of_stack(given.stack), given.methods is not None
    verdicts, ran = (runs.verdicts, f"{runs.stack} of {runs.name}") if runs else ((), "")
    found = corrected.corrected_table(given.number, given.by, stack, verdicts, ran, modern)
    if given.stack == "today":
        found = [_as_measured(row) for row in found]
    if given.format in FOR_MACHINES:
        print(render([asdict(row) for row in found], given.format))
        return 0
    tables = [render(corrected.layout(found), given.format)]
    if elsewhere := corrected.measured_elsewhere(found):
        tables.append(render(elsewhere, given.format))
    if given.format == "latex":
        print("\n\n".join(tables))
        return 0
    cells, *beside = tables
    beside = [f"{corrected.MEASURED_ELSEWHERE}:\n\n{table}" for table in beside]
    lines = [corrected.title(given.number, given.by), *corrected.summary(found)]
    if runs:
        lines.append(_judged(runs, given.number, given.by))
    basis = corrected.basis(given.number, given.by, stack)
    note = f"{basis} {corrected.MODERN}" if modern else basis
    print("\n\n".join([*(prose(line, given.format) for line in lines), cells, prose(note, given.format), *beside]))
    return 0


def _as_measured(row: Corrected) -> Corrected:
    """Return a cell on today's stack with the days that all commands have of its settings: measured there, else the
    prediction corrected by what was measured on another number of these GPUs."""
    if row.origin != "predicted" or row.settings is None or row.days is None:
        return row
    known, machine = ModelDays(recipe_of(row.model).id, DaysAsked(row.by)), Machine(paper_gpu(row.gpu), row.gpus)
    predicted = known.forecast(machine, Settings.parse(row.settings))
    mine = next(each for each in known.on_settings(machine, [predicted]) if each.settings == row.settings)
    foretold = predicted.days if row.by == "true" else predicted.authors_interval
    if mine.origin not in ("measured", "projected") or mine.days is None or foretold is None:
        return row
    exact = mine.days.value if mine.origin == "measured" else rough(row.days * mine.days.value / foretold.value)
    best = known.fastest(known.on_settings(machine)) if row.table == "1" else None
    faster = best is not None and best.days is not None and exact > WORTH_SAYING * best.days.value
    return replace(
        row,
        days=exact,
        days_low=None,
        days_high=None,
        origin=mine.origin,
        micro_batch=mine.micro_batch or row.micro_batch,
        stack=mine.measurement.stack if mine.measurement else row.stack,
        fastest_days=best.days.value if faster and best and best.days else None,
        fastest_settings=best.settings if faster and best else None,
        fastest_micro_batch=best.micro_batch if faster and best else None,
    )


def _note(number: Number, measured: bool, found: Rows) -> str:
    name = "Appendix J" if number == "j" else f"Table {number}"
    source = f"Source: paper, {name}; --format csv names each row's."
    if number not in TABLES:
        lost = "? is a mark that the copy at hand has lost. " if number == "j" else ""
        beside = "Columns that begin with measured are this run's, a dash was not measured. " if measured else ""
        return f"{lost}{beside}{source}"
    marks = "- infeasible with all settings tried, ? a mark that the copy at hand has lost"
    if not measured:
        return f"Days of training; {marks}. {source}"
    clock: Clock = found[0]["clock"]
    judged = {each: [row[f"{each}_verdict"] for row in found] for each in CLOCKS}
    return (
        f"Days of training; {marks}; in brackets, where a cell was measured, {DAYS[clock]}, after the slash "
        f"{DAYS[other(clock)]}, - where nothing fitted. {_counts(clock, judged)} {source}"
    )


def _judged(runs: Joined, table: Number, clock: Clock) -> str:
    there = [verdict for verdict in runs.verdicts if verdict.table == table]
    return _counts(clock, {each: [verdict.by(each).verdict for verdict in there] for each in CLOCKS})


def _counts(clock: Clock, judged: Mapping[Clock, Sequence[str]]) -> str:
    """Return a sentence that counts the verdicts by this clock, then by the other."""
    named = []
    for each in (clock, other(clock)):
        words = [f"{count} {word.replace('_', ' ')}" for word, count in Counter(judged[each]).items()]
        named.append(f"{BY_DAYS[each]} {', '.join(words)}")
    return f"Of {len(judged[clock])} cells {'; '.join(named)}."
