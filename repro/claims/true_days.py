"""The numbers of claims by true days, in place of the printed ones that their sentences rest on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..console import UserError
from ..formats import Interval, significant
from ..paper.tables import TOLERANCE, Cell, Place
from ..predict.forecast import corrected
from ..predict.traces import Traced
from ..record import Record
from ..run.corrected import versions
from ..run.verdict import Verdict, judge_tables
from . import numbers
from .claim import Claim
from .working import SourceRow, Working, shown


@dataclass(frozen=True)
class ByTrueDays:
    """A claim's number by true days, and their origins: measured, projected, or predicted for a stack."""

    value: float
    origin: str

    @property
    def shown(self) -> str:
        """Return the number as text, with no more digits than a prediction has."""
        return significant(self.value)


@dataclass(frozen=True)
class TrueDays:
    """True days of the paper's cells: those that a run measured, else those it projected, by its `verdicts`, else those
    predicted for a `stack`."""

    stack: Traced
    verdicts: Mapping[tuple[str, Place], Verdict]

    @classmethod
    def of(cls, records: Sequence[Record], stack: Traced) -> TrueDays:
        """Return the days of these records, beside predictions for a stack."""
        judged = judge_tables(records, TOLERANCE) if records else ()
        return cls(stack, {(verdict.table, verdict.place): verdict for verdict in judged})

    def of_claim(self, claim: Claim) -> ByTrueDays | None:
        """Recompute a claim; None for one that rests on no days, and where a cell that it rests on cannot be
        trained."""
        try:
            with numbers.days_read_by(self._of_cell):
                found = claim.number()
        except _UnknownDaysError:
            return None
        origins = dict.fromkeys(row.source for row in found.rows if row.file == _FILE)
        return ByTrueDays(found.value.value, "; ".join(origins)) if origins else None

    def _of_cell(self, cell: Cell) -> Working:
        judged = self.verdicts.get((cell.table, cell.place))
        if judged is not None and judged.true.verdict != "not_measured":
            days, origin = judged.true.days, "projected" if judged.projected else "measured"
        else:
            found = corrected(cell, self.stack).days
            days, origin = found.value if found else None, f"predicted for {versions(self.stack)}"
        if days is None:
            raise _UnknownDaysError(f"{cell.model} does not train on {cell.machine}")
        row = SourceRow(
            _FILE, f"Table {cell.table}, {cell.model} on {cell.machine}", f"{shown(days)} true days", origin
        )
        return Working(Interval.exact(days), (row,))


_FILE = "true days"


class _UnknownDaysError(UserError):
    """A cell has no true days, as nothing is known to train there."""
