"""Claims about the paper's tables, its clock and its search, checked on the records of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from .. import command, models
from ..formats import Interval, are, counted, listing
from ..paper.gpus import paper_gpus
from ..paper.settings import search_space
from ..paper.tables import COUNTS, TOLERANCE, Table
from ..record import DAYS, Clock, Record, days_text
from ..run.results import TRIALS
from ..run.settings_search import Search, Spread, searches
from ..run.verdict import FAILED, Verdict, comparable_with_cell, explain, judge_tables
from .claim import Missing, measures
from .working import SourceRow, Working, count, mean, shown

RUN = f"{command()} --gpus all"


@measures("table-1-cells", table="1")
@measures("table-4-cells", table="4")
def differing(records: Sequence[Record], clock: Clock, table: Table) -> Working | Missing:
    """Count the compared cells that differ by more than the tolerance of `repro run`. One such cell refutes a table;
    only a comparison of every cell confirms it."""
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
    return found.with_note(f"{len(compared)} of its {len(cells)} cells were compared")


@measures("timed-passes")
def timed_passes(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Return the median ratio of true days to days by the authors' clock, over all trials that ran. The claim compares
    both clocks, so `clock` does not matter."""
    ratios = [ratio for record in at_scale(records) if (ratio := _clocks(record)) is not None]
    if not ratios:
        return Missing(nothing_counts(records, RUN))
    ordered = sorted(ratios, key=lambda ratio: ratio.value.value)
    middle = median(ratio.value.value for ratio in ratios)
    low, high = (shown(ratio.value.value) for ratio in (ordered[0], ordered[-1]))
    found = Working(Interval.exact(middle)).after(*ordered)
    return found.saying(f"the median of the {len(ratios)} trials: {shown(middle)}").with_note(f"from {low} to {high}")


def unsettling(records: Sequence[Record]) -> str:
    """Explain why these records settle no claim, and what would; empty where one of them counts."""
    return (
        "" if at_scale(records) else f"it settles no claim, as {none_counts_reason(records)}; {RUN} measures what does"
    )


def _compared(cell: Verdict) -> Working:
    days = "nothing fitted" if cell.chosen.days is None else days_text(cell.chosen.days, cell.clock)
    reasons = (explain(cell),) if cell.verdict in FAILED else ()
    return Working(Interval.exact(bool(reasons)), (SourceRow(TRIALS, cell.cell, days, "this run"),), reasons)


def _clocks(record: Record) -> Working | None:
    """Return true days over days by the authors' clock, the inverse of the record's ratio; None without both."""
    if record.clocks_ratio is None or record.derived.authors_days is None or record.derived.true_days is None:
        return None
    true, authors = (
        Working.read(days, SourceRow(TRIALS, record.id, f"{shown(days)} days by the {clock} clock", "this run"))
        for days, clock in ((record.derived.true_days, "true"), (record.derived.authors_days, "authors'"))
    )
    return (true / authors).called(record.id)


@measures("best-over-median")
@measures("twice-as-long")
def best_over_median(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Return Figure 5's mean, over cells with several GPUs, of median over best days of memory-saving settings."""
    return _mean(records, clock, "median / best", lambda spread, _: (spread.median, spread.best))


@measures("best-over-worst")
def best_over_worst(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Return Figure 5's mean of worst over best days of memory-saving settings."""
    return _mean(records, clock, "worst / best", lambda spread, _: (spread.worst, spread.best))


@measures("median-slower-than-free-lunch")
def median_over_free_lunch(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Return Figure 5's mean of the median memory-saving settings' days over those of free lunch alone."""
    return _mean(records, clock, "median / free lunch alone", lambda spread, free_lunch: (spread.median, free_lunch))


@measures("memory-saving-gain")
@measures("review-memory-saving-gain")
def memory_saving_gain(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Return Figure 4's largest bar, in per cent of the days of free lunch alone that memory saving saves. A bar is the
    mean over the models on one number of a GPU, or over 2, 4 and 8 of a GPU with one model."""
    found = searched(records, clock, COUNTS)
    # A bar is a mean, so cells that are not searched yet may lower it.
    return _largest(found, _bars(found.cells), settled=not found.untried)


@measures("one-gpu-memory-saving")
def one_gpu_memory_saving(records: Sequence[Record], clock: Clock) -> Working | Missing:
    """Return Figure 4's largest gain of a cell with one GPU, in per cent; not above 0 if memory saving hurts."""
    found = searched(records, clock, (1,))
    return _largest(found, [gain for cell in found.cells if (gain := _gain(cell)) is not None], settled=True)


def _mean(
    records: Sequence[Record], clock: Clock, what: str, pair: Callable[[Spread, float], tuple[float, float]]
) -> Working | Missing:
    """Return the mean over cells of a ratio of two steps, which `pair` takes from a cell's spread and its free lunch.

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
    average = mean(ratios).with_note(found.where)
    return Missing(_so_far(found, average, "x"), average) if found.missing else average


def _largest(found: Searched, numbers: list[Working], settled: bool) -> Working | Missing:
    """Return the largest of these per cents; `settled` means that more records change none of them."""
    if not numbers:
        return _none(found)
    largest = max(numbers, key=lambda number: number.value.value)
    worked = largest.after(*numbers).saying(f"the largest of the {len(numbers)}: {shown(largest.value.value)} %")
    worked = worked.with_note(found.where)
    if not found.missing:
        return worked
    return Missing(_so_far(found, worked, "%"), worked, largest_so_far=settled and found.of_paper)


def _so_far(found: Searched, number: Working, unit: str) -> str:
    return f"{shown(number.value.value)} {unit}, {found.where}; {found.missing}"


def _none(found: Searched) -> Missing:
    if found.untried:
        return Missing(found.untried)
    full = "every memory-saving settings" if found.cells else "free lunch alone"
    text = f"on {listing(found.devices)} {full} ran out of memory in every cell"
    return Missing("; ".join(filter(None, [text, found.missing])))


def _bars(cells: Iterable[Search]) -> list[Working]:
    """Return Figure 4's bars, from the searched cells."""
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
    """Return the per cent of free lunch's days that the best memory-saving settings save; None without both."""
    if cell.gain is None or cell.fastest_saving is None or cell.free_lunch is None:
        return None
    gain = 100 * cell.gain
    best, alone = (shown(cell.days(step)) for step in (cell.steps[cell.fastest_saving], cell.free_lunch))
    step = f"{name(cell)}, {cell.fastest_saving}: 1 - {best} / {alone} = {shown(gain)} %"
    return Working(Interval.exact(gain), rows(cell), (step,))


_PYTHIA = tuple(recipe.id for recipe in models.PYTHIAS)
COMMAND = f"{command()} --gpus all --models {','.join(_PYTHIA)} --methods all"
_NAMED = 3  # cells still to be searched that a message names; it counts the others


@dataclass(frozen=True)
class Searched:
    """The searched cells: of all GPUs whose cells are all searched, or, where there is none, of the GPU with the most
    searched cells; then `untried` names what is missing. Cells where free lunch alone does not fit are left out."""

    cells: tuple[Search, ...]
    devices: tuple[str, ...]
    untried: str

    @property
    def of_paper(self) -> bool:
        return set(self.devices) <= set(paper_gpus())

    @property
    def where(self) -> str:
        """Describe how many cells were measured, and on which GPUs."""
        text = f"measured in {counted(len(self.cells), 'cell')} of {listing(self.devices)}"
        return text if self.of_paper else f"{text}, none of the paper's GPUs"

    @property
    def missing(self) -> str:
        """Describe what the paper's numbers cover and the records do not; empty where nothing is missing."""
        others = [gpu for gpu in paper_gpus() if gpu not in self.devices]
        if self.untried or not others:
            return self.untried
        return f"the paper's {listing(others)} {are(len(others))} missing, where {COMMAND} measures it"


def searched(records: Sequence[Record], clock: Clock, counts: Sequence[int]) -> Searched:
    """Return the cells with these numbers of GPUs, by this clock: of the paper's GPUs whose cells are all searched,
    else of other such GPUs, else of the GPU with the most searched cells, one of the paper's where any was measured."""
    there = {(each.recipe, each.device, each.count): each for each in searches(at_scale(records), clock)}
    devices = tuple(dict.fromkeys(device for recipe, device, _ in there if recipe in _PYTHIA))
    if not devices:
        return Searched((), (), nothing_counts(records, COMMAND))
    cells = {
        device: [
            there.get((id, device, count)) or Search(id, "paper", device, count, 1, None, (), clock)
            for id in _PYTHIA
            for count in counts
        ]
        for device in devices
    }
    whole = [device for device in devices if not any(map(_lacks, cells[device]))]
    taken = _of_paper(whole)
    untried = ""
    if not taken:
        taken = [max(_of_paper(devices), key=lambda device: sum(not _lacks(cell) for cell in cells[device]))]
        untried = _untried(cells[taken[0]])
    fit = (cell for device in taken for cell in cells[device] if cell.free_lunch_fits and cell.whole)
    return Searched(tuple(fit), tuple(taken), untried)


def _of_paper(devices: Sequence[str]) -> Sequence[str]:
    """Return the paper's GPUs among the devices; all devices where there are none."""
    return [device for device in devices if device in paper_gpus()] or devices


def at_scale(records: Sequence[Record]) -> list[Record]:
    """Return the valid records that can be compared with the paper's cells."""
    return [record for record in records if comparable_with_cell(record) and record.status != "not_measured"]


def nothing_counts(records: Sequence[Record], run: str) -> str:
    """Explain why no record settles a claim, and name the command that measures records that do."""
    measures = f"{run} measures it, and {command()} claims --measured DIR checks it"
    return f"{none_counts_reason(records)}; {measures}" if records else measures


def none_counts_reason(records: Sequence[Record]) -> str:
    """Explain why none of these records can be compared with the paper's cells, with a count of each kind."""
    kinds = {
        "not believed": sum(record.status == "not_measured" for record in records),
        "of tiny recipes": sum(record.scale != "paper" for record in records),
        "of the CPU": sum(record.device == "cpu" for record in records),
        "under a memory limit": sum(record.memory_limit is not None for record in records),
        "on several nodes": sum(record.nodes > 1 for record in records),
    }
    text = (
        ", ".join(f"{number} are {kind}" for kind, number in kinds.items() if number)
        or "they are of other models or settings, or did not run"
    )
    return f"none of the {len(records)} records counts: {text}"


def name(cell: Search) -> str:
    """Return the cell's name in the form of the paper's cells."""
    return f"{cell.model} on {cell.count} {cell.device}"


def rows(cell: Search) -> tuple[SourceRow, ...]:
    """Return the days of all settings that ran in the cell, by the cell's clock."""
    return tuple(
        SourceRow(TRIALS, f"{name(cell)}, {id}", f"{shown(cell.days(step))} {DAYS[cell.clock]}", "this run")
        for id, step in cell.steps.items()
    )


def _lacks(cell: Search) -> bool:
    """Return True where settings that the figures would show are still to be tried."""
    return cell.free_lunch_fits and not cell.whole


def _untried(cells: Sequence[Search]) -> str:
    lacking = [cell for cell in cells if _lacks(cell)]
    named = [
        f"{name(cell)} lacks {len(cell.untried)} of {len(search_space(cell.count))} settings, first {cell.untried[0]}"
        for cell in lacking[:_NAMED]
    ]
    if len(lacking) > _NAMED:
        named.append(f"{counted(len(lacking) - _NAMED, 'other')} likewise")
    searched = len(cells) - len(lacking)
    text = f"{searched} of the {len(cells)} cells of {cells[0].device} {are(searched)} searched"
    return f"{text}: {', '.join(named)}; {COMMAND} measures them"
