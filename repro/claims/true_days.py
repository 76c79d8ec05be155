"""The numbers of claims by true days, in place of the printed ones that their sentences rest on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..formats import Interval, significant
from ..paper.tables import TOLERANCE, Cell
from ..predict.forecast import corrected
from ..predict.traces import Traced
from ..record import Record
from ..run.corrected import versions
from ..run.verdict import judge_tables
from . import numbers
from .working import Missing, SourceRow, Working, shown

_FILE = "true days"


@dataclass(frozen=True)
class ByTrueDays:
    """A claim's number by true days, and their origins: measured, projected, or predicted for a stack."""

    value: float
    origin: str

    @property
    def shown(self) -> str:
        """Return the number as text, with no more digits than a prediction has."""
        return significant(self.value)


def true_days(records: Sequence[Record], stack: Traced) -> Callable[[Cell], Working]:
    """Return a function that gives the true days of a cell of the paper: those that the records measured, else those
    they projected, else those predicted for a stack. It raises Missing where nothing is known to train there."""
    verdicts = judge_tables(records, TOLERANCE) if records else ()
    judged = {(verdict.table, verdict.place): verdict for verdict in verdicts}

    def of_cell(cell: Cell) -> Working:
        verdict = judged.get((cell.table, cell.place))
        if verdict is not None and verdict.true.verdict != "not_measured":
            days, origin = verdict.true.days, "projected" if verdict.projected else "measured"
        else:
            found = corrected(cell, stack).days
            days, origin = found.value if found else None, f"predicted for {versions(stack)}"
        if days is None:
            raise Missing(f"{cell.model} does not train on {cell.machine}")
        row = f"Table {cell.table}, {cell.model} on {cell.machine}"
        return Working(Interval.exact(days), (SourceRow(_FILE, row, f"{shown(days)} true days", origin),))

    return of_cell


def by_true_days(working: Working, number: Callable[[], Working], days: Callable[[Cell], Working]) -> ByTrueDays | None:
    """Recompute the number of a claim's working; None for one that rests on no days, and where a cell that it rests on
    cannot be trained."""
    if not any(row.file in ("table1.csv", "table4.csv") for row in working.rows):
        return None
    try:
        with numbers.days_read_by(days):
            found = number()
    except Missing:
        return None
    origins = dict.fromkeys(row.source for row in found.rows if row.file == _FILE)
    return ByTrueDays(found.value.value, "; ".join(origins)) if origins else None
