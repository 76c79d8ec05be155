"""Why a cell's days differ from the printed ones although its settings ran, as in the paper."""

from __future__ import annotations

from collections.abc import Callable

from .clocks import Clock, days_text, other
from .expected import Cell
from .formats import figures
from .interval import Interval
from .trial import Record


def explain(
    record: Record, cell: Cell, printed_micro_batch: int | None, clock: Clock, agree: Callable[[float], bool]
) -> str:
    """Say what explains days by this clock that differ from the printed ones of a cell.

    `printed_micro_batch` is Appendix J's for these settings, None where it prints none; `agree` says whether days are
    within the tolerance of the printed ones.
    """
    if printed_micro_batch not in (None, record.compared_micro_batch):
        return f"Appendix J has MBS {printed_micro_batch}"
    if record.authors_micro_batch:  # the two clocks timed different micro batches
        return f"the true days are of MBS {record.micro_batch}: accumulated gradients leave no room for more"
    beside = record.days_by(other(clock))
    if beside is not None and agree(beside):
        shows = "the authors' clock shows when kernels were launched, not when they ended"
        return f"the launch queue explains it: {days_text(beside, other(clock))} agree, and {shows}"
    explained = _predicted(record, cell) if clock == "true" else ""
    return explained or "nothing known explains it"


def _predicted(record: Record, cell: Cell) -> str:
    """Say what explains true days where the printed ones are as predicted of the authors' clock on the paper's stack:
    the launch queue where the true ones are as predicted of that stack too, or this stack where they are as predicted
    of it. Nothing where predictions are of no help."""
    # Only a cell that differs needs predictions, which take their time to load.
    from .predict.calibration import EVERYTHING, load
    from .predict.forecast import forecast
    from .predict.tables import corrected
    from .predict.traces import shipped

    paper, measured = corrected(cell), record.true_days
    if measured is None or not _has(paper.authors_interval, cell.days) or not paper.days or not paper.authors_days:
        return ""
    predicted = f"{figures(paper.days.value)} true days are predicted of the paper's stack"
    if _has(paper.days, measured):
        return f"the launch queue explains it: {predicted}, {figures(paper.authors_days)} by the authors' clock"
    recipe, settings = record.recipe_and_settings
    ours = forecast(recipe, paper.machine, settings, load()[EVERYTHING], shipped()[-1], micro_batch=record.micro_batch)
    if ours.days and _has(ours.days, measured):
        return f"the stack explains it: {predicted}, {figures(ours.days.value)} of this one"
    return ""


def _has(interval: Interval | None, days: float | None) -> bool:
    return interval is not None and days is not None and interval.overlaps(Interval.exact(days))
