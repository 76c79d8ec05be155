"""The paper's sentences on its search, figures 4 and 5, checked on the records of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..clocks import Clock
from ..expected import COUNTS
from ..formats import listing
from ..interval import Interval
from ..search import Search, Spread
from ..trial import Record
from .registry import Missing, measures
from .searched import Searched, name, rows, searched
from .working import Working, mean, shown


@measures("best-over-median")
@measures("twice-as-long")
def best_over_median(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Figure 5: the mean, over cells with several GPUs, of the median memory-saving settings' days over the best's."""
    return _mean(records, clock, "median / best", lambda spread, _: (spread.median, spread.best))


@measures("best-over-worst")
def best_over_worst(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Figure 5: the mean of the worst settings' days over the best's."""
    return _mean(records, clock, "worst / best", lambda spread, _: (spread.worst, spread.best))


@measures("median-slower-than-free-lunch")
def median_over_free_lunch(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Figure 5: the mean of the median settings' days over those of free lunch alone."""
    return _mean(records, clock, "median / free lunch alone", lambda spread, free_lunch: (spread.median, free_lunch))


@measures("memory-saving-gain")
@measures("review-memory-saving-gain")
def memory_saving_gain(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Figure 4: the largest of its bars, in per cent of the days of free lunch alone that memory saving saves. A bar is
    the mean over the models on so many of a GPU, or over 2, 4 and 8 of a GPU with one model."""
    found = searched(records, clock, COUNTS)
    # A bar is a mean, which the cells that are not searched may lower.
    return _largest(found, _bars(found.cells), settled=not found.untried)


@measures("one-gpu-memory-saving")
def one_gpu_memory_saving(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Figure 4: the largest gain of any cell with one GPU, in per cent; none is above zero if memory saving hurts."""
    found = searched(records, clock, (1,))
    return _largest(found, [gain for cell in found.cells if (gain := _gain(cell)) is not None], settled=True)


def _mean(
    records: Sequence[Record], clock: Clock, what: str, pair: Callable[[Spread, float], tuple[float, float]]
) -> Working | Missing:
    """The mean over the cells of a ratio of two steps, which `pair` takes from a cell's spread and its free lunch.

    Cells where no memory-saving settings ran have no spread, and are left out.
    """
    found = searched(records, clock, COUNTS[1:])
    ratios = []
    for cell in found.cells:
        assert cell.free_lunch is not None
        if cell.spread is None:
            continue
        over, under = map(cell.days, pair(cell.spread, cell.free_lunch))
        step = f"{name(cell)}, {cell.spread.count} memory-saving settings ran: {what} = {shown(over)} / {shown(under)}"
        ratios.append(Working(Interval.exact(over / under), rows(cell), (f"{step} = {shown(over / under)}",)))
    if not ratios:
        return _none(found)
    average = mean(ratios).told(found.where)
    return Missing(_so_far(found, average, "x"), average) if found.missing else average


def _largest(found: Searched, numbers: list[Working], settled: bool) -> Working | Missing:
    """The largest of these per cents; `settled` says that more records change none of them."""
    if not numbers:
        return _none(found)
    largest = max(numbers, key=lambda number: number.value.value)
    told = largest.after(*numbers).saying(f"the largest of the {len(numbers)}: {shown(largest.value.value)} %")
    told = told.told(found.where)
    if not found.missing:
        return told
    return Missing(_so_far(found, told, "%"), told, largest_so_far=settled and found.of_paper)


def _so_far(found: Searched, number: Working, unit: str) -> str:
    return f"{shown(number.value.value)} {unit}, {found.where}; {found.missing}"


def _none(found: Searched) -> Missing:
    if found.untried:
        return Missing(found.untried)
    full = "every memory-saving settings" if found.cells else "free lunch alone"
    told = f"on {listing(found.devices)} {full} ran out of memory in every cell"
    return Missing("; ".join(filter(None, [told, found.missing])))


def _bars(cells: Iterable[Search]) -> list[Working]:
    """Figure 4's bars of the searched cells."""
    groups: dict[str, list[Working]] = {}
    for cell in cells:
        gain = _gain(cell)
        if gain is None:
            continue
        groups.setdefault(f"all models on {cell.count} {cell.device}", []).append(gain)
        if cell.count > 1:
            groups.setdefault(f"{cell.model} on several {cell.device}", []).append(gain)
    return [mean(gains).called(name) for name, gains in groups.items()]


def _gain(cell: Search) -> Working | None:
    """Per cent of free lunch's days that the best memory-saving settings save; None where none of them ran."""
    if cell.gain is None or cell.fastest_saving is None or cell.free_lunch is None:
        return None
    gain = 100 * cell.gain
    best, alone = (shown(cell.days(step)) for step in (cell.steps[cell.fastest_saving], cell.free_lunch))
    step = f"{name(cell)}, {cell.fastest_saving}: 1 - {best} / {alone} = {shown(gain)} %"
    return Working(Interval.exact(gain), rows(cell), (step,))
