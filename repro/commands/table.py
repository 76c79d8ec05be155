"""`repro table`: print a table of the paper, with measured values beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ..console import UserError
from ..formats import (
    FOR_MACHINES,
    FORMATS,
    Format,
    by_machine,
    cell_text,
    counted,
    listing,
    render,
    rough,
    significant,
)
from ..options import Output, argument, format_option, option
from ..paper.arithmetic import paper_gpu, recipe_of
from ..paper.tables import TABLES, Table, cells, printed
from ..predict.audit import audit
from ..predict.traces import Stack, of_stack
from ..printout import people
from ..record import BY_DAYS, CLOCKS, DEFAULT, By, Clock
from ..report import released
from ..report.grids import KINDS, kind_of
from ..report.tables import NUMBERS, TITLES, Number, layout, rows
from ..run.corrected import WORTH_SAYING, Corrected
from ..run.reading import Joined, measured
from ..run.verdict import Verdict
from .day_options import by_option, measured_runs, stack_option

_USE_IT = "use it as in table 1 --by true"
_LOST = "? is a mark that is illegible in our copy of the paper."


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    number: Number = argument(
        "as in the paper; j is Appendix J",
        f"{{{','.join(NUMBERS)}}}",  # an error shows it as the help does
        choices=NUMBERS,
        type=str.lower,
    )
    measured: tuple[Path, ...] = measured_runs(
        "put this run's values beside the paper's; with --by true or authors, take its measured days, else those it "
        "projected, else predicted ones"
    )
    by: By = by_option(default="printed")
    stack: Stack = stack_option("paper")
    methods: str | None = option(
        "with --by true, Table 1 by the days that today's software is predicted to take: docs/own-model.md",
        choices=("modern",),
    )
    format: Format = format_option((*FORMATS, "latex"))


def main(asked: Asked) -> str:
    by_clock, table = asked.by in CLOCKS, next((each for each in TABLES if each == asked.number), None)
    if asked.methods and (asked.by, asked.number) != ("true", "1"):
        raise UserError(f"--methods modern is of Table 1 alone: {_USE_IT}")
    if asked.stack != "paper" and not (by_clock and table):
        raise UserError(f"--stack {asked.stack} changes predicted days alone: {_USE_IT}")
    if by_clock and not table and not asked.measured:
        raise UserError(f"table {asked.number} --by {asked.by}: Tables 1 and 4 alone hold days; name one of them")
    clock = next((each for each in CLOCKS if each == asked.by), DEFAULT)
    runs = measured(asked.measured, clock) if asked.measured else None
    archive = runs.released if runs else None
    if archive and asked.by == "printed" and asked.number in (*TABLES, "j"):
        return released.table(archive, asked.number, asked.format, asked.all)
    if by_clock and table:
        return _by_clock(asked, table, clock, runs)
    found = rows(asked.number, runs.records, runs.verdicts, clock) if runs else rows(asked.number)
    if asked.format in FOR_MACHINES:
        return render(found, asked.format)
    if table is None:
        notes = [_LOST] if asked.number == "j" else []
        if runs:
            notes.append("Columns that begin with measured are this run's; a dash was not measured.")
        return people(TITLES[asked.number], layout(found), notes, asked.format, asked.all)
    if runs:
        there = [verdict for verdict in runs.verdicts if verdict.table == asked.number]
        shown = {verdict.place: _of_verdict(verdict, clock) for verdict in there}
        answer = f"Table {asked.number} as measured: {_counts(clock, there)}"
        return people(answer, by_machine(shown), _signs(there), asked.format)
    return _printed(table, asked.format)


def _printed(table: Table, format: Format) -> str:
    there = cells(table)
    impossible = {row.place for row in audit() if (row.table, row.verdict) == (table, "impossible")}
    shown = {cell.place: f"{printed(cell.state, cell.days)}{'!' * (cell.place in impossible)}" for cell in there}
    days = sum(cell.days is not None for cell in there)
    notes = ["A dash is infeasible with all settings tried."]
    if any(cell.state == "lost" for cell in there):
        notes.append(_LOST)
    notes.append("--by true has the days that one would wait.")
    answer = (
        f"Table {table} as printed, in days: {len(impossible)} of {days} numbers are impossible (!), as they "
        "imply more FLOP/s than the GPU has."
    )
    return people(answer, by_machine(shown), notes, format)


def _by_clock(asked: Asked, table: Table, clock: Clock, runs: Joined | None) -> str:
    """Return Table 1 or 4 by true days, or by those of the authors' clock."""
    from ..run import corrected

    stack, modern = of_stack(asked.stack), asked.methods is not None
    verdicts, ran = (runs.verdicts, f"{runs.stack} of {runs.name}") if runs else ((), "")
    fastest = asked.format in FOR_MACHINES  # people see no search
    found = corrected.corrected_table(table, clock, stack, verdicts, ran, modern, fastest)
    if asked.stack == "today":
        found = [_as_measured(row) for row in found]
    if asked.format in FOR_MACHINES:
        further = released.beside(runs.released if runs else None, table)
        return render([asdict(row) | further.get(row.place, {}) for row in found], asked.format)
    judged = {verdict.place: verdict for verdict in verdicts if verdict.table == table}
    shown = {row.place: _of_row(row, judged.get(row.place), modern) for row in found}
    origins = Counter(row.origin for row in found)
    settings = "Appendix J's settings" if table == "1" else "naive settings"
    words = [f"{count} {origin}" for origin, count in origins.most_common()]
    notes = [f"{listing(words)}; predicted is for {corrected.versions(stack)} with {settings}; a dash is infeasible."]
    if modern:
        notes.append("Days are of the parts of today's software, which were not measured on most of these GPUs.")
    elif refused := sum(row.refused for row in found):
        cells_ = counted(refused, "cell")
        notes.append(f"* is at the largest micro batch that fits, as Appendix J's does not in {cells_}.")
    if there := [verdict for verdict in judged.values() if verdict.by(clock).verdict != "not_measured"]:
        notes += _signs(there)
    return people(corrected.headline(table, clock, found, modern), by_machine(shown), notes, asked.format)


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
