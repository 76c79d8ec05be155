"""Tables 1 and 4 by true days or by the authors' clock: predicted for one stack, beside the printed days and those
measured on other stacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from ..formats import are, cell_text, counted, first, from_to
from ..paper.measured_days import measured
from ..paper.tables import AtPlace, Cell, State, Table, cells, printed
from ..predict.forecast import Forecast, best_of_search, corrected
from ..predict.traces import PAPER_STACK, Traced
from ..record import BY_DAYS, DAYS, DEFAULT, Clock
from .verdict import Verdict, Word

PAPER_VERSIONS = "torch 2.3.1, transformers 4.42.3"  # as the authors' release v1.0.0 pins them; see locks/paper.lock
MEASURED_ELSEWHERE = "Measured on other stacks, by both clocks (a dash: out of memory)"
WORTH_SAYING = 1.01  # a search whose best is less faster than the paper's own choice found nothing better
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Corrected(AtPlace):
    """A cell of a table by the clock `by`. `days` and their bounds are predicted on `stack` for the paper's own choice
    of settings, None where predicted infeasible, which `reason` explains; or, by their `origin`, measured or projected
    in the run whose stack this is, which have no bounds. `verdict` is that run's by the same clock, None without one.

    `printed_micro_batch` is Appendix J's; `micro_batch` is smaller where that one is predicted not to fit. The
    `fastest` settings of the whole search are there where they take less true days than the paper's choice by more than
    1 %.

    `measured_stack` is None for a cell that was not measured; the measured days are None where it ran out of memory.
    `modern_days` are predicted with the parts of modern training, by the newest traces; None where they were not asked
    for."""

    table: Table
    model: str
    gpu: str
    gpus: int
    settings: str | None
    micro_batch: int | None
    printed_micro_batch: int | None
    feasible: bool
    reason: str
    by: Clock
    days: float | None
    days_low: float | None
    days_high: float | None
    origin: Literal["measured", "projected", "predicted"]
    stack: str
    true_days: float | None
    authors_days: float | None
    fastest_days: float | None
    fastest_settings: str | None
    fastest_micro_batch: int | None
    printed_days: int | None
    printed_state: State
    measured_days: float | None
    measured_authors_days: float | None
    measured_settings: str | None
    measured_stack: str | None
    measured_source: str | None
    source: str
    verdict: Word | None = None
    modern_days: float | None = None
    modern_settings: str | None = None

    @property
    def printed(self) -> str:
        """Return the cell as the paper prints it."""
        return printed(self.printed_state, self.printed_days)

    @property
    def shown(self) -> str:
        """Return the days as text, with no more digits than their interval allows; a dash where infeasible."""
        return cell_text(self.days, 2)

    @property
    def interval(self) -> str:
        """Return the bounds of the days as text, empty where infeasible or not predicted."""
        return "" if self.days_low is None else f"{cell_text(self.days_low, 2)}-{cell_text(self.days_high, 2)}"

    @property
    def refused(self) -> bool:
        """Return whether a smaller micro batch stands in for Appendix J's, which is predicted not to fit."""
        smaller = self.micro_batch is not None and self.micro_batch < (self.printed_micro_batch or 0)
        return self.origin == "predicted" and smaller

    @property
    def at_micro_batch(self) -> str:
        """Return the micro batches as text: MBS 2, as 4 does not fit."""
        return f"MBS {self.micro_batch}, as {self.printed_micro_batch} does not fit"

    @property
    def message(self) -> str:
        """Return a predicted cell as a sentence."""
        where = f"Table {self.table}, {self.model} on {self.machine}"
        if self.days is None:
            return f"{where}: predicted infeasible ({self.reason}); printed {self.printed}{self._fastest}"
        days = f"{self.shown} {DAYS[self.by]} ({self.interval})"
        at = f" ({self.at_micro_batch})" if self.refused else ""
        text = f"{where}: predicted {days} with {self.settings}{at} on {self.stack}; printed {self.printed}"
        return f"{text}{self._fastest}{self._measured}"

    @property
    def _fastest(self) -> str:
        if self.fastest_days is None:
            return ""
        found = f"{cell_text(self.fastest_days, 2)} with {self.fastest_settings}, MBS {self.fastest_micro_batch}"
        return f"; the fastest of the search {found}"

    @property
    def _measured(self) -> str:
        if not self.measured_stack:
            return ""
        took = "out of memory" if self.measured_days is None else f"{cell_text(self.measured_days, 2)} days"
        return f"; measured {took} on {self.measured_stack}"


def corrected_table(
    table: Table,
    by: Clock = DEFAULT,
    stack: Traced = PAPER_STACK,
    verdicts: Sequence[Verdict] = (),
    ran: str = "",
    modern: bool = False,
    fastest: bool = True,
) -> list[Corrected]:
    """Return every cell of Table 1, with Appendix J's settings, or of Table 4, with naive ones, by a clock. Where a run
    measured a cell, whose `verdicts` these are and which `ran` on that stack, it has those days, else projected ones,
    else predicted ones. With `modern`, cells of Table 1 also have the days of today's software, which takes seconds.
    Without `fastest`, which takes most of the time, no cell has the fastest settings of the search."""
    judged = {verdict.place: verdict for verdict in verdicts if verdict.table == table}
    rows = [_of_run(_cell(cell, by, stack, fastest), judged.get(cell.place), ran) for cell in cells(table)]
    if not modern or table != "1":
        return rows
    from ..predict.today import table_1

    best = {cell.place: found.all for cell, found in table_1({row.model for row in rows})}
    return [
        replace(row, modern_days=days.value, modern_settings=best[row.place].settings.id)
        if (days := best[row.place].days)
        else row
        for row in rows
    ]


def _of_run(row: Corrected, verdict: Verdict | None, ran: str) -> Corrected:
    """Return the row with a run's verdict, and with its days where it has some or found that nothing fits."""
    if verdict is None:
        return row
    judged = verdict.by(row.by)
    if judged.verdict == "not_measured":
        return replace(row, verdict=judged.verdict)
    return replace(
        row,
        settings=judged.settings,
        micro_batch=judged.micro_batch,
        feasible=judged.days is not None,
        reason=judged.reason,
        days=judged.days,
        days_low=None,
        days_high=None,
        origin="projected" if judged.projected else "measured",
        stack=ran,
        true_days=verdict.true.days,
        authors_days=verdict.authors.days,
        fastest_days=None,
        fastest_settings=None,
        fastest_micro_batch=None,
        verdict=judged.verdict,
    )


def _cell(cell: Cell, by: Clock, stack: Traced, fastest: bool) -> Corrected:
    found, row, trial = corrected(cell, stack), cell.row, measured(cell)
    days = found.days if by == "true" else found.authors_interval
    best = _faster(cell, found, stack, by) if fastest else None
    return Corrected(
        cell.table,
        *cell.place,
        settings=found.settings.id if found.feasible else None,
        micro_batch=found.micro_batch or None,
        printed_micro_batch=row.mbs if row else None,
        feasible=found.feasible,
        reason=found.reason,
        by=by,
        days=days.value if days else None,
        days_low=days.low if days else None,
        days_high=days.high if days else None,
        origin="predicted",
        stack=versions(stack),
        true_days=found.days.value if found.days else None,
        authors_days=found.authors_days,
        fastest_days=best.days.value if best and best.days else None,
        fastest_settings=best.settings.id if best else None,
        fastest_micro_batch=best.micro_batch if best else None,
        printed_days=cell.days,
        printed_state=cell.state,
        measured_days=trial.true_days if trial else None,
        measured_authors_days=trial.authors_days if trial else None,
        measured_settings=trial.settings if trial else None,
        measured_stack=trial.stack if trial else None,
        measured_source=trial.source if trial else None,
        source=cell.source,
    )


def _faster(cell: Cell, choice: Forecast, stack: Traced, by: Clock) -> Forecast | None:
    """Return the fastest of the whole search by true days; None where it is hardly faster than the paper's choice, and
    for Table 4, which is of no search."""
    if cell.table == "4" or by == "authors":
        return None
    best = best_of_search(cell, stack)
    if best.days is None or (choice.days and choice.days.value <= WORTH_SAYING * best.days.value):
        return None
    return best


def versions(stack: Traced) -> str:
    """Return the versions of a stack as text."""
    return PAPER_VERSIONS if stack == PAPER_STACK else str(stack)


def title(table: Table) -> str:
    """Return a heading that distinguishes the table from the paper's."""
    return f"Table {table}, corrected: predicted days that one would really wait (not the paper's numbers)"


def headline(table: Table, by: Clock, rows: Sequence[Corrected], modern: bool = False) -> str:
    """Return a sentence that compares the days with the printed ones; with `modern` those of today's software."""
    pairs = [(row.modern_days if modern else row.days, row.printed_days) for row in rows]
    ratios = [days / printed_days for days, printed_days in pairs if days and printed_days]
    what = "one waits" if by == "true" else "the authors' clock shows"
    with_ = "with today's software " if modern else ""
    middle = f"{with_}{what} {median(ratios):.2f} times the printed days" if ratios else "no cell has printed days"
    return f"Table {table} {BY_DAYS[by]}: {middle} in the median ({from_to(ratios, '.2f')})."


def measured_elsewhere(rows: Sequence[Corrected]) -> Rows:
    """Return the cells measured on other stacks than the paper's: days by both clocks, None where out of memory."""
    return [
        {
            "model": row.model,
            "GPUs": f"{row.gpus} x {row.gpu}",
            "settings": row.measured_settings,
            "printed days": row.printed,
            "days in the table": row.shown,
            "measured days": row.measured_days,
            "measured days, authors' clock": row.measured_authors_days,
            "measured on": row.measured_stack,
        }
        for row in rows
        if row.measured_stack
    ]


def summary(rows: Sequence[Corrected]) -> list[str]:
    """Return sentences that compare predicted true days with the printed ones and list cells whose feasibility differs,
    or whose micro batch is smaller than Appendix J's."""
    lines = []
    if ratios := [row.days / row.printed_days for row in rows if row.days and row.printed_days]:
        lines.append(
            f"Of {len(rows)} cells {len(ratios)} have predicted and printed days: one would wait {median(ratios):.2f} "
            f"times the printed days in the median ({from_to(ratios, '.2f')})."
        )
    for state, feasible, words in (
        ("days", False, "printed with days and predicted infeasible"),
        ("infeasible", True, "printed as infeasible and predicted to train"),
    ):
        there = [row for row in rows if (row.printed_state, row.feasible) == (state, feasible)]
        if found := [f"{row.model} on {row.machine}" for row in there]:
            lines.append(f"{counted(len(found), 'cell')} {are(len(found))} {words}: {first(found)}.")
    if refused := [f"{row.model} on {row.machine} at {row.at_micro_batch}" for row in rows if row.refused]:
        lines.append(
            f"Appendix J's micro batch is predicted not to fit in {counted(len(refused), 'cell')}, which have the "
            f"largest that fits: {first(refused)}."
        )
    return lines


def basis(table: Table) -> str:
    """Return a note on how the true days were predicted for the paper's stack."""
    settings = "Appendix J's settings and micro batch" if table == "1" else "naive settings"
    days = DAYS["true"]
    text = (
        f"{days[0].upper()}{days[1:]}, predicted for the paper's stack, {PAPER_VERSIONS} with {settings}, with the "
        "interval in which 8 of 10 unseen cells of the paper lie; in () the printed days. - is infeasible, ? a mark "
        "that is illegible in our copy of the paper."
    )
    if table == "4":
        return text
    return (
        f"{text} * is at the largest micro batch that fits, as Appendix J's does not. fastest: the fastest settings of "
        "the whole search on the same stack, where they take less by more than 1 %."
    )
