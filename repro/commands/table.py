"""`repro table`: print a table of the paper, with measured values beside it."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace

from ..console import UserError
from ..formats import (
    FOR_MACHINES,
    FORMATS,
    by_machine,
    cell_text,
    counted,
    listing,
    render,
    rough,
    significant,
)
from ..paper.arithmetic import paper_gpu, recipe_of
from ..paper.tables import TABLES, cells, printed
from ..predict.audit import audit
from ..predict.traces import of_stack
from ..printout import add_output, people
from ..record import BY_DAYS, CLOCKS, DEFAULT, Clock
from ..report import released
from ..report.grids import KINDS, kind_of
from ..report.tables import NUMBERS, TITLES, layout, rows
from ..run.corrected import WORTH_SAYING, Corrected
from ..run.reading import Joined, add_measured, measured
from ..run.verdict import Verdict
from .day_options import add_by, add_stack

_USE_IT = "use it as in table 1 --by true"
_LOST = "? is a mark that is illegible in our copy of the paper."


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
    add_stack(parser, "paper")
    parser.add_argument(
        "--methods",
        choices=("modern",),
        help="with --by true, Table 1 by the days that today's software is predicted to take: docs/own-model.md",
    )
    add_output(parser, (*FORMATS, "latex"))


def main(given: argparse.Namespace) -> int:
    by_clock, of_days = given.by in CLOCKS, given.number in TABLES
    if given.methods and (given.by, given.number) != ("true", "1"):
        raise UserError(f"--methods modern is of Table 1 alone: {_USE_IT}")
    if given.stack != "paper" and not (by_clock and of_days):
        raise UserError(f"--stack {given.stack} changes predicted days alone: {_USE_IT}")
    if by_clock and not of_days and given.measured is None:
        raise UserError(f"table {given.number} --by {given.by}: Tables 1 and 4 alone hold days; name one of them")
    clock: Clock = given.by if by_clock else DEFAULT
    runs = measured(given.measured, clock) if given.measured is not None else None
    archive = runs.released if runs else None
    if archive and given.by == "printed" and given.number in (*TABLES, "j"):
        print(released.table(archive, given.number, given.format, given.all))
        return 0
    if by_clock and of_days:
        return _by_clock(given, runs)
    found = rows(given.number, runs.records, runs.verdicts, clock) if runs else rows(given.number)
    if given.format in FOR_MACHINES:
        print(render(found, given.format))
    elif given.number not in TABLES:
        notes = [_LOST] if given.number == "j" else []
        if runs:
            notes.append("Columns that begin with measured are this run's; a dash was not measured.")
        print(people(TITLES[given.number], layout(found), notes, given.format, given.all))
    elif runs:
        there = [verdict for verdict in runs.verdicts if verdict.table == given.number]
        shown = {verdict.place: _of_verdict(verdict, clock) for verdict in there}
        answer = f"Table {given.number} as measured: {_counts(clock, there)}"
        print(people(answer, by_machine(shown), _signs(there), given.format))
    else:
        _printed(given)
    return 0


def _printed(given: argparse.Namespace) -> None:
    there = cells(given.number)
    impossible = {row.place for row in audit() if (row.table, row.verdict) == (given.number, "impossible")}
    shown = {cell.place: f"{printed(cell.state, cell.days)}{'!' * (cell.place in impossible)}" for cell in there}
    days = sum(cell.days is not None for cell in there)
    notes = ["A dash is infeasible with all settings tried."]
    if any(cell.state == "lost" for cell in there):
        notes.append(_LOST)
    notes.append("--by true has the days that one would wait.")
    answer = (
        f"Table {given.number} as printed, in days: {len(impossible)} of {days} numbers are impossible (!), as they "
        "imply more FLOP/s than the GPU has."
    )
    print(people(answer, by_machine(shown), notes, given.format))


def _by_clock(given: argparse.Namespace, runs: Joined | None) -> int:
    """Print Table 1 or 4 by true days, or by those of the authors' clock."""
    from ..run import corrected

    stack, modern = of_stack(given.stack), given.methods is not None
    verdicts, ran = (runs.verdicts, f"{runs.stack} of {runs.name}") if runs else ((), "")
    fastest = given.format in FOR_MACHINES  # people see no search
    found = corrected.corrected_table(given.number, given.by, stack, verdicts, ran, modern, fastest)
    if given.stack == "today":
        found = [_as_measured(row) for row in found]
    if given.format in FOR_MACHINES:
        further = released.beside(runs.released if runs else None, given.number)
        print(render([asdict(row) | further.get(row.place, {}) for row in found], given.format))
        return 0
    judged = {verdict.place: verdict for verdict in verdicts if verdict.table == given.number}
    shown = {row.place: _of_row(row, judged.get(row.place), modern) for row in found}
    origins = Counter(row.origin for row in found)
    settings = "Appendix J's settings" if given.number == "1" else "naive settings"
    words = [f"{count} {origin}" for origin, count in origins.most_common()]
    notes = [f"{listing(words)}; predicted is for {corrected.versions(stack)} with {settings}; a dash is infeasible."]
    if modern:
        notes.append("Days are of the parts of today's software, which were not measured on most of these GPUs.")
    elif refused := sum(row.refused for row in found):
        cells_ = counted(refused, "cell")
        notes.append(f"* is at the largest micro batch that fits, as Appendix J's does not in {cells_}.")
    if there := [verdict for verdict in judged.values() if verdict.by(given.by).verdict != "not_measured"]:
        notes += _signs(there)
    print(people(corrected.headline(given.number, given.by, found, modern), by_machine(shown), notes, given.format))
    return 0


def _of_row(row: Corrected, verdict: Verdict | None, modern: bool) -> str:
    if modern and row.modern_days is not None:
        return cell_text(row.modern_days, 2)
    sign = KINDS[kind_of(verdict.by(row.by))][0] if verdict else ""
    return f"{row.shown}{'*' * row.refused}{sign}"


def _of_verdict(verdict: Verdict, clock: Clock) -> str:
    """Return the days that were measured with the verdict's sign, a dash where nothing fitted; a dot where the cell was
    not measured."""
    judged = verdict.by(clock)
    days = "-" if judged.days is None else significant(judged.days)
    return "." if judged.verdict == "not_measured" else f"{days}{KINDS[kind_of(judged)][0]}"


def _signs(there: Sequence[Verdict]) -> list[str]:
    """Return a note on the signs of these verdicts."""
    words = dict.fromkeys(kind_of(verdict.chosen) for verdict in there)
    named = [f"{sign} {meaning}" for word in words for sign, meaning in [KINDS[word]] if sign]
    return [f"{'; '.join(named)}."] if named else []


def _as_measured(row: Corrected) -> Corrected:
    """Return a cell on today's stack with the days that all commands have of its settings: measured there, else the
    prediction corrected by what was measured on another number of these GPUs."""
    from ..money.days import DaysAsked, ModelDays
    from ..paper.settings import Settings
    from ..predict.hardware import Machine

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


def _counts(clock: Clock, there: Sequence[Verdict]) -> str:
    """Return a sentence that counts the verdicts by this clock."""
    counts = Counter(kind_of(verdict.by(clock)) for verdict in there)
    words = [f"{count} {word.replace('_', ' ')}" for word, count in counts.most_common()]
    return f"{BY_DAYS[clock]} {listing(words)} of {len(there)} cells."
