"""The paper's sentences on its search (figures 4 and 5) and its clock, checked on the records of a run.

Only records at the paper's scale, on GPUs of one node, of the GPU's whole memory count. A cell, a Pythia model on some
GPUs, is searched if every settings of the search space ran there or ran out of memory, or if free lunch alone ran out:
the figures leave such cells out. The cells of one type of GPU settle a claim once all of them are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import models

from ..expected import COUNTS
from ..interval import Interval
from ..settings import FREE_LUNCH, search_space
from ..trial import Record
from .facts import PAPER_GPUS
from .registry import Missing, measures
from .working import Row, Working, mean, shown

_PYTHIA = tuple(id for id in models.IDS if models.find(id).family == "pythia")
_COMMAND = f"repro run --gpus all --models {','.join(_PYTHIA)} --methods all"
_NAMED = 3  # so many missing cells are named, the others counted


@dataclass(frozen=True)
class Cell:
    """A model on `count` of a GPU: days by the authors' clock of the settings that ran, and what was not tried."""

    model: str
    device: str
    count: int
    days: dict[str, float]
    untried: tuple[str, ...]
    free_lunch_fits: bool

    @property
    def name(self) -> str:
        return f"{self.model} on {self.count} {self.device}"

    @property
    def free_lunch(self) -> float:
        return self.days[FREE_LUNCH.id]

    @property
    def best(self) -> float:
        return min(self.days.values())

    @property
    def median(self) -> float:
        return median(self.days.values())

    @property
    def worst(self) -> float:
        return max(self.days.values())

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(
            Row("trials.jsonl", f"{self.name}, {settings}", f"{shown(days)} days by the authors' clock", "this run")
            for settings, days in self.days.items()
        )


@dataclass(frozen=True)
class Searched:
    """The searched cells of the GPUs that settle a claim, or, where `missing` says what is, of the one that comes
    nearest. Cells where free lunch alone does not fit are left out."""

    cells: tuple[Cell, ...]
    devices: tuple[str, ...]
    missing: str


@measures("best-over-median")
@measures("twice-as-long")
def best_over_median(records: Sequence[Record]) -> Working | Missing:
    """Figure 5: the mean, over cells with several GPUs, of the median settings' days over the best's."""
    return _mean(records, "median / best", lambda cell: (cell.median, cell.best))


@measures("best-over-worst")
def best_over_worst(records: Sequence[Record]) -> Working | Missing:
    """Figure 5: the mean of the worst settings' days over the best's."""
    return _mean(records, "worst / best", lambda cell: (cell.worst, cell.best))


@measures("median-slower-than-free-lunch")
def median_over_free_lunch(records: Sequence[Record]) -> Working | Missing:
    """Figure 5: the mean of the median settings' days over those of free lunch alone."""
    return _mean(records, "median / free lunch alone", lambda cell: (cell.median, cell.free_lunch))


@measures("memory-saving-gain")
@measures("review-memory-saving-gain")
def memory_saving_gain(records: Sequence[Record]) -> Working | Missing:
    """Figure 4: the largest of its bars, in per cent of the days of free lunch alone that memory saving saves. A bar is
    the mean over the models on so many of a GPU, or over 2, 4 and 8 of a GPU with one model."""
    searched = _searched(records, COUNTS)
    bars = _bars(searched.cells)
    if not bars:
        return Missing(searched.missing or "free lunch alone ran out of memory everywhere")
    largest = max(bars, key=lambda bar: bar.value.value).after(*bars)
    found = largest.saying(f"the largest of the {len(bars)} means: {shown(largest.value.value)} %")
    if searched.missing:
        return Missing(searched.missing, found)
    others = [gpu for gpu in PAPER_GPUS if gpu not in searched.devices]
    if round(found.value.value) < 71 and others:
        return Missing(f"on {_and(searched.devices)} the largest is {shown(found.value.value)} %; it may be on others: "
                       f"{_and(others)}; on those {_COMMAND} measures it", found)  # fmt: skip
    return found.told(_where(searched))


@measures("one-gpu-memory-saving")
def one_gpu_memory_saving(records: Sequence[Record]) -> Working | Missing:
    """Figure 4: the largest gain of any cell with one GPU, in per cent; none is above zero if memory saving hurts."""
    searched = _searched(records, (1,))
    gains = [gain for cell in searched.cells if (gain := _gain(cell)) is not None]
    if not gains:
        return Missing(searched.missing or "free lunch alone ran out of memory everywhere")
    largest = max(gains, key=lambda gain: gain.value.value).after(*gains)
    found = largest.saying(f"the largest of the {len(gains)}: {shown(largest.value.value)} %")
    return Missing(searched.missing, found) if searched.missing else found.told(_where(searched))


@measures("timed-passes")
def timed_passes(records: Sequence[Record]) -> Working | Missing:
    """True days over those that the authors' clock gives, the median of all trials that ran."""
    ran = [record for record in _at_scale(records) if record.status == "ok"]
    ratios = [
        (record, record.true_days / record.authors_days) for record in ran if record.true_days and record.authors_days
    ]
    if not ratios:
        return Missing(_nothing(records, "repro run --gpus all"))
    low, *_, high = sorted([ratio for _, ratio in ratios] * 2)
    found = Working(
        Interval.exact(median(ratio for _, ratio in ratios)),
        tuple(
            Row("trials.jsonl", record.id, f"{shown(record.true_days)} true days", "this run")
            for record, _ in ratios
            if record.true_days
        ),
        tuple(
            f"{record.id}: {shown(record.true_days)} / {shown(record.authors_days)} = {shown(ratio)}"
            for record, ratio in ratios
            if record.true_days and record.authors_days
        ),
    )
    devices = tuple(dict.fromkeys(record.device for record, _ in ratios))
    return found.saying(f"the median of the {len(ratios)} trials: {shown(found.value.value)}").told(
        f"from {shown(low)} to {shown(high)}, on {_and(devices)}"
    )


def _mean(records: Sequence[Record], what: str, ratio: Callable[[Cell], tuple[float, float]]) -> Working | Missing:
    searched = _searched(records, COUNTS[1:])
    ratios = []
    for cell in searched.cells:
        over, under = ratio(cell)
        step = f"{cell.name}, {len(cell.days)} settings ran: {what} = {shown(over)} / {shown(under)}"
        ratios.append(Working(Interval.exact(over / under), cell.rows, (f"{step} = {shown(over / under)}",)))
    if not ratios:
        return Missing(searched.missing or "free lunch alone ran out of memory everywhere")
    found = mean(ratios)
    return Missing(searched.missing, found) if searched.missing else found.told(_where(searched))


def _bars(cells: Iterable[Cell]) -> list[Working]:
    """Figure 4's bars of the searched cells."""
    groups: dict[str, list[Working]] = {}
    for cell in cells:
        gain = _gain(cell)
        if gain is None:
            continue
        groups.setdefault(f"{cell.count} {cell.device}, all models", []).append(gain)
        if cell.count > 1:
            groups.setdefault(f"{cell.model} on several {cell.device}", []).append(gain)
    return [mean(gains).called(name) for name, gains in groups.items()]


def _gain(cell: Cell) -> Working | None:
    """Per cent of free lunch's days that the best memory-saving settings save; None where none of them ran."""
    saving = {settings: days for settings, days in cell.days.items() if settings != FREE_LUNCH.id}
    if not saving:
        return None
    best = min(saving, key=lambda settings: saving[settings])
    gain = 100 * (1 - saving[best] / cell.free_lunch)
    step = f"{cell.name}, {best}: 1 - {shown(saving[best])} / {shown(cell.free_lunch)} = {shown(gain)} %"
    return Working(Interval.exact(gain), cell.rows, (step,))


def _searched(records: Sequence[Record], counts: Sequence[int]) -> Searched:
    """The cells of every paper GPU whose cells are all searched, else of every such GPU, else of the nearest one."""
    devices = {record.device: None for record in _at_scale(records) if record.recipe in _PYTHIA}
    if not devices:
        return Searched((), (), _nothing(records, _COMMAND))
    cells = {device: _cells(records, device, counts) for device in devices}
    whole = [device for device in devices if not any(cell.untried for cell in cells[device])]
    settling = [device for device in whole if device in PAPER_GPUS] or whole
    missing = ""
    if not settling:
        settling = [max(devices, key=lambda device: sum(not cell.untried for cell in cells[device]))]
        missing = _untried(cells[settling[0]])
    fit = (cell for device in settling for cell in cells[device] if not cell.untried and cell.free_lunch_fits)
    return Searched(tuple(fit), tuple(settling), missing)


def _cells(records: Sequence[Record], device: str, counts: Sequence[int]) -> list[Cell]:
    found = []
    for model in _PYTHIA:
        for count in counts:
            there = [r for r in _at_scale(records) if (r.recipe, r.device, r.count) == (model, device, count)]
            wanted = [settings.id for settings in search_space(count)]
            days = {r.settings: r.authors_days for r in there if r.status == "ok" and r.settings in wanted}
            full = {r.settings for r in there if r.status == "out_of_memory"}
            fits = FREE_LUNCH.id not in full
            untried = tuple(id for id in wanted if fits and id not in full and id not in days)
            known = {id: number for id, number in days.items() if number is not None}
            found.append(Cell(models.find(model).name, device, count, known, untried, fits))
    return found


def _at_scale(records: Sequence[Record]) -> list[Record]:
    return [r for r in records if r.scale == "paper" and r.device != "cpu" and r.nodes == 1 and r.memory_limit is None]


def _nothing(records: Sequence[Record], command: str) -> str:
    if not records:
        return f"{command} measures it"
    return (
        f"none of the {len(records)} records counts: they are of tiny recipes, of CPUs, under a memory limit, on "
        f"several nodes, or of other models; {command} measures it"
    )


def _untried(cells: Sequence[Cell]) -> str:
    lacking = [cell for cell in cells if cell.untried]
    named = [
        f"{cell.name} ({len(cell.untried)} of {len(search_space(cell.count))} settings, first {cell.untried[0]})"
        for cell in lacking[:_NAMED]
    ]
    more = f" and {len(lacking) - _NAMED} more" if len(lacking) > _NAMED else ""
    searched = len(cells) - len(lacking)
    return (
        f"{searched} of the {len(cells)} cells of {cells[0].device} are searched, not {', '.join(named)}{more}; "
        f"{_COMMAND} measures them"
    )


def _where(searched: Searched) -> str:
    told = f"measured in {len(searched.cells)} cells of {_and(searched.devices)}"
    if not set(searched.devices) <= set(PAPER_GPUS):
        return f"{told}, none of the paper's GPUs"
    if set(searched.devices) != set(PAPER_GPUS):
        return f"{told}, of the paper's four GPUs"
    return told


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
