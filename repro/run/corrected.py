"""Tables 1 and 4 in true days: predicted for the paper's stack, with the printed days and measurements on other
stacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from ..formats import are, by_machine, cell_text, counted, first, from_to, listing
from ..paper.measured_days import measured
from ..paper.tables import AtPlace, Cell, State, Table, cells, printed
from ..predict.forecast import corrected
from .verdict import PROJECTED, Verdict

PAPER_STACK = "torch 2.3.1, transformers 4.42.3"  # as the authors' release v1.0.0 pins them; see locks/paper.lock
MEASURED_ELSEWHERE = "Measured on other stacks, by both clocks (a dash: out of memory)"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Corrected(AtPlace):
    """A cell of a corrected table. `days` and their bounds are predicted true days on `stack`, None where predicted
    infeasible, which `reason` explains; or, by their `origin`, measured or projected in the run that `stack` names,
    which have no bounds. `authors_days` is the prediction for the authors' clock. `measured_stack` is
    None for a cell that was not measured; the measured days are None where it ran out of memory. `modern_days` are
    predicted with the parts of modern training, by the newest traces; None where they were not asked for."""

    table: Table
    model: str
    gpu: str
    gpus: int
    settings: str | None
    micro_batch: int | None
    feasible: bool
    reason: str
    days: float | None
    days_low: float | None
    days_high: float | None
    origin: Literal["measured", "projected", "predicted"]
    stack: str
    authors_days: float | None
    printed_days: int | None
    printed_state: State
    measured_days: float | None
    measured_authors_days: float | None
    measured_settings: str | None
    measured_stack: str | None
    measured_source: str | None
    source: str
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
    def message(self) -> str:
        """Return the cell as a sentence."""
        where = f"Table {self.table}, {self.model} on {self.machine}"
        if self.days is None:
            return f"{where}: {self.origin} infeasible ({self.reason}); printed {self.printed}"
        if self.origin != "predicted":
            return f"{where}: {self.origin} {self.shown} days with {self.settings}; printed {self.printed}"
        text = f"{where}: predicted {self.shown} days ({self.interval}) with {self.settings}; printed {self.printed}"
        if self.modern_days is not None:
            text += f"; predicted {cell_text(self.modern_days, 2)} days today with {self.modern_settings}"
        return f"{text}; {self._measured}" if self.measured_stack else text

    @property
    def _measured(self) -> str:
        took = "out of memory" if self.measured_days is None else f"{cell_text(self.measured_days, 2)} days"
        return f"measured {took} on {self.measured_stack}"


def corrected_table(
    table: Table, verdicts: Sequence[Verdict] = (), stack: str = "", modern: bool = False
) -> list[Corrected]:
    """Return every cell of Table 1, with Appendix J's settings, or of Table 4, with naive ones. Where a run, whose
    `verdicts` and `stack` these are, measured a cell, it has those days, else projected ones, else predicted ones. With
    `modern`, cells of Table 1 also have the days of today's software, which takes seconds."""
    judged = {verdict.place: verdict for verdict in verdicts if verdict.table == table}
    rows = [_of_run(_cell(cell), judged.get(cell.place), stack) for cell in cells(table)]
    if not modern or table != "1":
        return rows
    from ..predict.modern import table_1

    best = {cell.place: found.all for cell, found in table_1({row.model for row in rows})}
    return [
        replace(row, modern_days=days.value, modern_settings=best[row.place].settings.id)
        if (days := best[row.place].days)
        else row
        for row in rows
    ]


def _of_run(row: Corrected, verdict: Verdict | None, stack: str) -> Corrected:
    """Return the row with a run's days, where it has some of the cell or found that nothing fits."""
    if verdict is None or (judged := verdict.true).verdict == "not_measured":
        return row
    return replace(
        row,
        settings=judged.settings,
        micro_batch=judged.micro_batch,
        feasible=judged.days is not None,
        reason=judged.reason,
        days=judged.days,
        days_low=None,
        days_high=None,
        origin="projected" if judged.verdict in PROJECTED else "measured",
        stack=stack,
        authors_days=verdict.authors.days,
    )


def _cell(cell: Cell) -> Corrected:
    found, trial = corrected(cell), measured(cell)
    days = found.days
    return Corrected(
        cell.table,
        *cell.place,
        settings=found.settings.id if found.feasible else None,
        micro_batch=found.micro_batch or None,
        feasible=found.feasible,
        reason=found.reason,
        days=days.value if days else None,
        days_low=days.low if days else None,
        days_high=days.high if days else None,
        origin="predicted",
        stack=PAPER_STACK,
        authors_days=found.authors_days,
        printed_days=cell.days,
        printed_state=cell.state,
        measured_days=trial.true_days if trial else None,
        measured_authors_days=trial.authors_days if trial else None,
        measured_settings=trial.settings if trial else None,
        measured_stack=trial.stack if trial else None,
        measured_source=trial.source if trial else None,
        source=cell.source,
    )


def title(table: Table) -> str:
    """Return a heading that distinguishes the table from the paper's."""
    return f"Table {table}, corrected: predicted days that one would really wait (not the paper's numbers)"


def layout(rows: Sequence[Corrected]) -> Rows:
    """Return a row for each model, with a column for each machine: days, their interval and the printed days."""
    return by_machine({row.place: _cell_text(row) for row in rows})


def _cell_text(row: Corrected) -> str:
    interval = f" [{row.interval}]" if row.interval else ""
    origin = "" if row.origin == "predicted" else f" {row.origin}"
    today = "" if row.modern_days is None else f"; today {cell_text(row.modern_days, 2)}"
    return f"{row.shown}{origin}{interval} ({row.printed}{today})"


def measured_elsewhere(rows: Sequence[Corrected]) -> Rows:
    """Return the cells measured on other stacks than the paper's: days by both clocks, None where out of memory."""
    return [
        {
            "model": row.model,
            "GPUs": f"{row.gpus} x {row.gpu}",
            "settings": row.measured_settings,
            "printed days": row.printed,
            "predicted days, the paper's stack": row.shown,
            "measured days": row.measured_days,
            "measured days, authors' clock": row.measured_authors_days,
            "measured on": row.measured_stack,
        }
        for row in rows
        if row.measured_stack
    ]


def summary(rows: Sequence[Corrected]) -> list[str]:
    """Return sentences that compare the days with the printed ones and list cells whose feasibility differs."""
    ratios = [
        row.days / row.printed_days for row in rows if row.origin == "predicted" and row.days and row.printed_days
    ]
    origins = Counter(row.origin for row in rows)
    lines = []
    if len(origins) > 1 or not origins["predicted"]:
        named = [f"{origins[origin]} {origin}" for origin in ("measured", "projected", "predicted")]
        lines.append(f"Of {len(rows)} cells the days of {listing(named)}.")
    if ratios:
        lines.append(
            f"Of {len(rows)} cells {len(ratios)} have predicted and printed days: one would wait {median(ratios):.2f} "
            f"times the printed days in the median ({from_to(ratios, '.2f')})."
        )
    for state, feasible, words in (
        ("days", False, "printed with days and predicted infeasible"),
        ("infeasible", True, "printed as infeasible and predicted to train"),
    ):
        found = [
            f"{row.model} on {row.machine}"
            for row in rows
            if row.origin == "predicted" and (row.printed_state, row.feasible) == (state, feasible)
        ]
        if found:
            lines.append(f"{counted(len(found), 'cell')} {are(len(found))} {words}: {first(found)}.")
    return lines


MODERN = (
    "today: true days that the parts of today's software are predicted to take, without an interval, as none were "
    "measured on a GPU (docs/modern.md). They are by the newest traces, unlike the days before them: compare them with "
    "free lunch's in `predict --methods modern`."
)


def basis(table: Table) -> str:
    """Return a note on how the days were predicted."""
    settings = "Appendix J's settings and micro batch" if table == "1" else "naive settings"
    return (
        f"True days, predicted for {PAPER_STACK} with {settings}, with the interval in which 8 of 10 unseen cells of "
        "the paper lie; in () the printed days. - is infeasible, ? a mark that the copy at hand has lost."
    )
