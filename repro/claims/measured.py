"""Claims about the paper's tables, its clock and its search, checked on the records of a run.

Each function takes what was measured, and raises Missing where the records do not settle it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median

from .. import command, models
from ..formats import Interval, are, counted, listing
from ..paper.gpus import paper_gpus
from ..paper.settings import search_space
from ..paper.tables import COUNTS, TOLERANCE, Table
from ..record import DAYS, Clock, Origin, Record, days_text
from ..run.results import TRIALS
from ..run.settings_search import Search, searches
from ..run.verdict import Verdict, comparable_with_cell, explain, judge_tables
from .working import Missing, SourceRow, Working, count, fact, mean, shown

RUN = f"{command()} --gpus all"
_SEARCH = f"{RUN} --models {','.join(models.PYTHIAS)} --methods all"


@dataclass(frozen=True)
class Measurements:
    """Records, and the clock that judges them."""

    records: Sequence[Record]
    clock: Clock

    @cached_property
    def comparable(self) -> list[Record]:
        """Return the valid records that can be compared with the paper's cells."""
        return _at_scale(self.records)

    @property
    def origin(self) -> Origin:
        """Return "released" where all records are of the authors' raw results."""
        return "released" if all(record.origin == "released" for record in self.records) else "measured"

    @cached_property
    def searches(self) -> list[Search]:
        """Return the searches in the comparable records. The authors' raw results are searched where all are theirs."""
        return searches(self.comparable, self.clock, self.origin)


def unsettling(records: Sequence[Record]) -> str:
    """Explain why these records settle no claim, and what would; empty where one of them counts."""
    return "" if _at_scale(records) else f"it settles no claim, as {_none_counts(records)}; {RUN} measures what does"


def _at_scale(records: Sequence[Record]) -> list[Record]:
    """Return the valid records that can be compared with the paper's cells."""
    return [record for record in records if comparable_with_cell(record) and record.status != "not_measured"]


def _nothing_counts(records: Sequence[Record], run: str) -> Missing:
    """Return why no record settles a claim, with the command that measures records that do."""
    measures = f"{run} measures it, and {command()} claims --measured DIR checks it"
    return Missing(f"{_none_counts(records)}; {measures}" if records else measures)


def _none_counts(records: Sequence[Record]) -> str:
    """Explain why none of these records can be compared with the paper's cells, with a count of each kind."""
    kinds = {
        "not believed": sum(record.status == "not_measured" for record in records),
        "of tiny recipes": sum(record.scale != "paper" for record in records),
        "of the CPU": sum(record.device == "cpu" for record in records),
        "under a memory limit": sum(record.memory_limit is not None for record in records),
        "on several nodes": sum(record.nodes > 1 for record in records),
        "released by the authors": sum(record.origin == "released" for record in records),
    }
    text = ", ".join(f"{number} are {kind}" for kind, number in kinds.items() if number)
    others = "they are of other models or settings, or did not run"
    return f"none of the {len(records)} records counts: {text or others}"


# --- The tables and the clock ---


def _differing(measured: Measurements, table: Table) -> Working:
    """Count the compared cells that differ by more than the tolerance of `repro run`. One such cell refutes a table;
    only a comparison of every cell confirms it."""
    if not measured.comparable:
        raise _nothing_counts(measured.records, RUN)
    judged = judge_tables(measured.records, TOLERANCE, measured.clock)
    cells = [cell for cell in judged if cell.table == table and cell.expected != "lost"]
    compared = [cell for cell in cells if cell.compared]
    found = count([_compared(cell) for cell in compared], "cells compared differ")
    if not found.value.value and len(compared) < len(cells):
        reason = f"none of its {len(cells)} cells was compared"
        if compared:
            reason = f"{len(compared)} of its {len(cells)} cells were compared, and hold"
        raise Missing(f"{reason}; {RUN} measures others, on the GPUs that there are", found)
    return found.with_note(f"{len(compared)} of its {len(cells)} cells were compared")


def _compared(cell: Verdict) -> Working:
    days = "nothing fitted" if cell.chosen.days is None else days_text(cell.chosen.days, cell.clock)
    row = SourceRow(TRIALS, cell.cell, days, "this run")
    return fact(cell.differs, row, step=explain(cell) if cell.differs else "")


def _timed_passes(measured: Measurements) -> Working:
    """Return the median ratio of true days to days by the authors' clock, over all trials that ran. The claim compares
    both clocks, so the clock does not matter."""
    ratios = []
    for record in measured.comparable:
        true, authors = record.derived.true_days, record.derived.authors_days
        if record.clocks_ratio is not None and true is not None and authors is not None:
            by_true, by_authors = (
                Working.read(
                    days, SourceRow(TRIALS, record.id, f"{shown(days)} days by the {clock_} clock", "this run")
                )
                for days, clock_ in ((true, "true"), (authors, "authors'"))
            )
            ratios.append((by_true / by_authors).called(record.id))
    if not ratios:
        raise _nothing_counts(measured.records, RUN)
    ratios.sort(key=lambda ratio: ratio.value.value)
    middle = median(ratio.value.value for ratio in ratios)
    low, high = (shown(ratio.value.value) for ratio in (ratios[0], ratios[-1]))
    found = Working(Interval.exact(middle)).after(*ratios)
    return found.saying(f"the median of the {len(ratios)} trials: {shown(middle)}").with_note(f"from {low} to {high}")


# --- The search: figures 4 and 5 ---


@dataclass(frozen=True)
class _Searched:
    """The searched cells: of all GPUs whose cells are all searched, or, where there is none, of the GPU with the most
    searched cells; then `untried` names what is missing. Cells where free lunch alone does not fit are left out."""

    cells: Sequence[Search]
    devices: Sequence[str]
    untried: str
    origin: Origin = "measured"

    @property
    def of_paper(self) -> bool:
        return set(self.devices) <= set(paper_gpus())

    @property
    def where(self) -> str:
        """Describe how many cells were measured, and on which GPUs."""
        text = f"{self.origin} in {counted(len(self.cells), 'cell')} of {listing(self.devices)}"
        return text if self.of_paper else f"{text}, none of the paper's GPUs"

    @property
    def missing(self) -> str:
        """Describe what the paper's numbers cover and the records do not; empty where nothing is missing."""
        others = [gpu for gpu in paper_gpus() if gpu not in self.devices]
        if self.untried or not others:
            return self.untried
        return f"the paper's {listing(others)} {are(len(others))} missing, where {_SEARCH} measures it"

    def settled(self, number: Working, unit: str, largest_so_far: bool = False) -> Working:
        """Return the number where nothing is missing, else raise Missing with what there is so far."""
        number = number.with_note(self.where)
        if self.missing:
            reason = f"{shown(number.value.value)} {unit}, {self.where}; {self.missing}"
            raise Missing(reason, number, largest_so_far and self.of_paper)
        return number

    def none(self) -> Missing:
        """Return the reason why no cell gives a number."""
        out_of_memory = "every memory-saving settings" if self.cells else "free lunch alone"
        text = f"on {listing(self.devices)} {out_of_memory} ran out of memory in every cell"
        return Missing(self.untried or "; ".join(filter(None, [text, self.missing])))


def _searched(measured: Measurements, counts: Sequence[int]) -> _Searched:
    """Return the cells with these numbers of GPUs: of the paper's GPUs whose cells are all searched, else of other such
    GPUs, else of the GPU with the most searched cells, one of the paper's where any was measured."""
    if measured.origin == "released" and measured.clock == "true" and measured.records:
        raise Missing("the authors' raw results have no true days")
    there = {(search.recipe, search.device, search.count): search for search in measured.searches}
    devices = tuple(dict.fromkeys(device for recipe, device, _ in there if recipe in models.PYTHIAS))
    if not devices:
        raise _nothing_counts(measured.records, _SEARCH)
    cells = {
        device: [
            there.get((id, device, count)) or Search(id, "paper", device, count, 1, None, (), measured.clock)
            for id in models.PYTHIAS
            for count in counts
        ]
        for device in devices
    }
    lacking = {device: [cell for cell in of if cell.free_lunch_fits and not cell.whole] for device, of in cells.items()}
    taken, untried = _of_paper([device for device in devices if not lacking[device]]), ""
    if not taken:
        most = min(_of_paper(devices), key=lambda device: len(lacking[device]))
        taken, first, searched = [most], lacking[most][0], len(cells[most]) - len(lacking[most])
        untried = (
            f"{searched} of the {len(cells[most])} cells of {most} {are(searched)} searched: {_name(first)} lacks "
            f"{len(first.untried)} of {len(search_space(first.count))} settings, first {first.untried[0]}; {_SEARCH} "
            "measures them"
        )
    fit = [cell for device in taken for cell in cells[device] if cell.free_lunch_fits and cell.whole]
    return _Searched(fit, taken, untried, measured.origin)


def _of_paper(devices: Sequence[str]) -> Sequence[str]:
    """Return the paper's GPUs among the devices; all devices where there are none."""
    return [device for device in devices if device in paper_gpus()] or devices


def _spread(measured: Measurements, over: str, under: str) -> Working:
    """Return Figure 5's mean, over cells with several GPUs, of the ratio of two steps of memory-saving settings: the
    best, the median and the worst, or free lunch alone. Cells where none of these settings ran are left out."""
    found = _searched(measured, COUNTS[1:])
    ratios = []
    for cell in found.cells:
        if cell.spread is None:
            continue
        steps = {"free lunch alone": cell.free_lunch, **vars(cell.spread)}
        one, other = (cell.days(steps[name]) for name in (over, under))
        ratio = f"{over} / {under} = {shown(one)} / {shown(other)} = {shown(one / other)}"
        step = f"{_name(cell)}, {cell.spread.count} memory-saving settings ran: {ratio}"
        ratios.append(Working(Interval.exact(one / other), _rows(cell), (step,)))
    if not ratios:
        raise found.none()
    return found.settled(mean(ratios), "x")


def _memory_saving_gain(measured: Measurements) -> Working:
    """Return Figure 4's largest bar, in per cent of the days of free lunch alone that memory saving saves. A bar is the
    mean over the models on one number of a GPU, or over 2, 4 and 8 of a GPU with one model."""
    found = _searched(measured, COUNTS)
    bars: dict[str, list[Working]] = {}
    for cell in found.cells:
        for gain in _gains([cell]):
            bars.setdefault(f"all models on {cell.count} {cell.device}", []).append(gain)
            if cell.count > 1:
                bars.setdefault(f"{cell.model} on several {cell.device}", []).append(gain)
    # A bar is a mean, so cells that are not searched yet may lower it.
    return _largest(found, [mean(gains).called(name) for name, gains in bars.items()], not found.untried)


def _one_gpu_memory_saving(measured: Measurements) -> Working:
    """Return Figure 4's largest gain of a cell with one GPU, in per cent; not above 0 if memory saving hurts."""
    found = _searched(measured, (1,))
    return _largest(found, _gains(found.cells), True)


def _gains(cells: Sequence[Search]) -> list[Working]:
    """Return the per cent of free lunch's days that the best memory-saving settings save, where both ran."""
    gains = []
    for cell in cells:
        if cell.gain is None or cell.fastest_saving is None or cell.free_lunch is None:
            continue
        best, alone = (shown(cell.days(step)) for step in (cell.steps[cell.fastest_saving], cell.free_lunch))
        step = f"{_name(cell)}, {cell.fastest_saving}: 1 - {best} / {alone} = {shown(100 * cell.gain)} %"
        gains.append(Working(Interval.exact(100 * cell.gain), _rows(cell), (step,)))
    return gains


def _largest(found: _Searched, numbers: Sequence[Working], settled: bool) -> Working:
    """Return the largest of these per cents; `settled` means that more records change none of them."""
    if not numbers:
        raise found.none()
    largest = max(numbers, key=lambda number: number.value.value).after(*numbers)
    largest = largest.saying(f"the largest of the {len(numbers)}: {shown(largest.value.value)} %")
    return found.settled(largest, "%", largest_so_far=settled)


def _name(cell: Search) -> str:
    """Return the cell's name in the form of the paper's cells."""
    return f"{cell.model} on {cell.count} {cell.device}"


def _rows(cell: Search) -> tuple[SourceRow, ...]:
    """Return the days of all settings that ran in the cell, by the cell's clock."""
    file, source = ("artifacts.tar", "the authors") if cell.origin == "released" else (TRIALS, "this run")
    return tuple(
        SourceRow(file, f"{_name(cell)}, {id}", f"{shown(cell.days(step))} {DAYS[cell.clock]}", source)
        for id, step in cell.steps.items()
    )


MEASURED: dict[str, Callable[[Measurements], Working]] = {
    "table-1-cells": partial(_differing, table="1"),
    "table-4-cells": partial(_differing, table="4"),
    "timed-passes": _timed_passes,
    "best-over-median": partial(_spread, over="median", under="best"),
    "twice-as-long": partial(_spread, over="median", under="best"),
    "best-over-worst": partial(_spread, over="worst", under="best"),
    "median-slower-than-free-lunch": partial(_spread, over="median", under="free lunch alone"),
    "memory-saving-gain": _memory_saving_gain,
    "review-memory-saving-gain": _memory_saving_gain,
    "one-gpu-memory-saving": _one_gpu_memory_saving,
}
