"""The paper's tables and its clock as claims, checked on the records of a run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .. import command
from ..clocks import Clock, days_text
from ..expected import TOLERANCE, Table
from ..interval import Interval
from ..results import TRIALS
from ..trial import Record
from ..verdict import FAILED, Verdict, explain, judge_tables
from .registry import Missing, measures
from .searched import at_scale, nothing_counts, why_none_counts
from .working import Row, Working, count, shown

RUN = f"{command()} --gpus all"


@measures("table-1-cells", table="1")
@measures("table-4-cells", table="4")
def differing(records: Sequence[Record], clock: Clock, table: Table) -> Working | Missing:
    """Cells that a run was compared with and that differ, within the tolerance of `repro run`. One is enough to refute
    a table, and only a comparison of every cell confirms it."""
    if not at_scale(records):
        return Missing(nothing_counts(records, RUN))
    judged = judge_tables(records, TOLERANCE, clock)
    cells = [cell for cell in judged if cell.table == table and cell.expected != "lost"]
    compared = [cell for cell in cells if cell.compared]
    failed = [cell for cell in compared if cell.verdict in FAILED]
    found = count(len(failed), [_compared(cell) for cell in compared], "cells compared differ")
    if not failed and len(compared) < len(cells):
        reason = f"none of its {len(cells)} cells was compared"
        if compared:
            reason = f"{len(compared)} of its {len(cells)} cells were compared, and hold"
        return Missing(f"{reason}; {RUN} measures others, on the GPUs that there are", found)
    return found.told(f"{len(compared)} of its {len(cells)} cells were compared")


@measures("timed-passes")
def timed_passes(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """True days over those that the authors' clock gives, the median of all trials that ran. It is of both
    clocks, whichever judges."""
    ratios = [ratio for record in at_scale(records) if (ratio := _clocks(record)) is not None]
    if not ratios:
        return Missing(nothing_counts(records, RUN))
    ordered = sorted(ratios, key=lambda ratio: ratio.value.value)
    middle = median(ratio.value.value for ratio in ratios)
    low, high = (shown(ratio.value.value) for ratio in (ordered[0], ordered[-1]))
    found = Working(Interval.exact(middle)).after(*ordered)
    return found.saying(f"the median of the {len(ratios)} trials: {shown(middle)}").told(f"from {low} to {high}")


def unsettling(records: Sequence[Record]) -> str:
    """That these records settle no claim, why, and what would; nothing where one of them counts."""
    return "" if at_scale(records) else f"it settles no claim, as {why_none_counts(records)}; {RUN} measures what does"


def _compared(cell: Verdict) -> Working:
    days = "nothing fitted" if cell.chosen.days is None else days_text(cell.chosen.days, cell.clock)
    told = (explain(cell),) if cell.verdict in FAILED else ()
    return Working(Interval.exact(bool(told)), (Row(TRIALS, cell.cell, days, "this run"),), told)


def _clocks(record: Record) -> Working | None:
    """The inverse of the record's ratio, as the claim is of how much longer one waits; None where it has none."""
    if record.clocks_ratio is None or record.authors_days is None or record.true_days is None:
        return None
    true, authors = (
        Working.read(days, Row(TRIALS, record.id, f"{shown(days)} days by the {clock} clock", "this run"))
        for days, clock in ((record.true_days, "true"), (record.authors_days, "authors'"))
    )
    return (true / authors).called(record.id)
