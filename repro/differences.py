"""Why a cell's days differ from the printed ones although its settings ran, as in the paper."""

from __future__ import annotations

from collections.abc import Callable

from .clocks import Clock, days, days_text, other
from .trial import Record


def explain(record: Record, printed_micro_batch: int | None, clock: Clock, agree: Callable[[float], bool]) -> str:
    """Say what explains days by this clock that differ from the printed ones.

    `printed_micro_batch` is Appendix J's for these settings, None where it prints none; `agree` says whether days are
    within the tolerance of the printed ones.
    """
    if printed_micro_batch not in (None, record.compared_micro_batch):
        return f"Appendix J has MBS {printed_micro_batch}"
    if record.authors_micro_batch:  # the two clocks timed different micro batches
        return f"the true days are of MBS {record.micro_batch}: accumulated gradients leave no room for more"
    beside = days(record, other(clock))
    if beside is not None and agree(beside):
        shows = "the authors' clock shows when kernels were launched, not when they ended"
        return f"the launch queue explains it: {days_text(beside, other(clock))} agree, and {shows}"
    return "nothing known explains it"
