"""Fits the few rates and allowances to what the paper prints, and to a run if asked, by coordinate descent: no library,
the same each time.

Cells whose days the audit calls impossible or implausible are left out of the rates: a model that obeys the hardware
cannot meet them. The allowance of memory takes every cell, as it goes by what fits and by no days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import models
from repro.audit import plausible_cells
from repro.expected import Cell, all_cells, cells, published_settings
from repro.fairness import unfair
from repro.findings import paper_gpu, recipe_of
from repro.gpus import find
from repro.recipe import Recipe
from repro.settings import NAIVE, Settings, search_space
from repro.trial import Record
from repro.units import SECONDS_A_DAY

from . import traces
from .calibration import EVERYTHING, Calibration, Factors
from .forecast import forecast
from .machine import Machine
from .memory import ALLOWANCE_BOUNDS, Allowance, largest_micro_batch, most_examples, variant_of
from .tables import predicted
from .time import BOUNDS, Rates, step

_NEAR = 1.5  # times the winner's seconds, with rates that nothing was fitted to
_INSIDE = 0.8  # of unseen cells within the interval
T = TypeVar("T", Rates, Allowance)


@dataclass(frozen=True)
class Observation:
    """A cell with days, and the settings it may have had: naive for Table 4, Appendix J's readings for Table 1, with
    its micro batch. A trial that was measured, on `stack`, stands for no cell, which is None then, and has its own
    settings and micro batch."""

    cell: Cell | None
    days: float
    recipe: Recipe
    machine: Machine
    readings: tuple[Settings, ...]
    micro_batch: int | None
    plausible: bool
    stack: traces.Traced = traces.PAPER_STACK

    @property
    def gpu(self) -> str:
        """The GPU's name, the paper's if it has one."""
        return self.machine.gpu.called

    def trace(self, settings: Settings) -> traces.Trace:
        """That of its recipe and stack with these settings."""
        return traces.find(self.recipe.id, variant_of(settings), self.stack)

    def belongs(self, held_out: str) -> bool:
        """Whether it is of the recipe or the GPU that a fit holds out."""
        return held_out in (self.recipe.id, self.gpu)


def observations() -> list[Observation]:
    """Every cell of Tables 1 and 4 that has days."""
    plausible = plausible_cells()
    rows = {row.place: row for row in published_settings()}
    found = []
    for cell in all_cells():
        if cell.days is None:
            continue
        row = rows[cell.place]
        naive = cell.table == "4"
        found.append(
            Observation(
                cell,
                cell.days,
                recipe_of(cell.model),
                Machine(paper_gpu(cell.gpu), cell.gpus),
                (NAIVE,) if naive else tuple(row.readings()),
                None if naive else row.mbs,
                cell in plausible,
            )
        )
    return found


def measured_observations(records: Iterable[Record], stack: traces.Traced) -> list[Observation]:
    """Every trial of the paper's recipes that ran on one node of GPUs of the catalogue, with all of their memory, and
    that is a fair sample of their speed."""
    found = []
    for record in (record for record in records if record.recipe in models.IDS):
        gpu, size = find(record.device), record.compared_micro_batch
        if gpu is None or not record.stands_for_paper or record.authors_days is None or size is None:
            continue
        if unfair(record) is not None:
            continue
        recipe, settings = record.recipe_and_settings
        machine = Machine(gpu, record.count)
        found.append(Observation(None, record.authors_days, recipe, machine, (settings,), size, True, stack))
    return found


def folds(seen: Iterable[Observation]) -> list[str]:
    """What is held out, one at a time: each recipe, then each GPU."""
    listed = list(seen)
    return [*dict.fromkeys(each.recipe.id for each in listed), *dict.fromkeys(each.gpu for each in listed)]


def fit_all(seen: list[Observation], progress: Callable[[str], None]) -> dict[str, Calibration]:
    """The fit to everything, and one for each fold, which has not seen its recipe or GPU. About 4 minutes.

    The intervals come from the folds: how far unseen cells lay from their predictions.
    """
    names = [EVERYTHING, *folds(seen)]
    fits = {}
    for name in names:
        progress(name)
        kept = [each for each in seen if not each.belongs(name)]
        fits[name] = Calibration(*_fit(kept), (1.0, 1.0), (1.0, 1.0))
    return {
        name: replace(fit, hbm=_factors(fits, seen, name, True), gddr=_factors(fits, seen, name, False))
        for name, fit in fits.items()
    }


def _fit(seen: list[Observation]) -> tuple[Rates, Allowance]:
    allowance = descend(Allowance(), ALLOWANCE_BOUNDS, lambda candidate: _misfit(seen, candidate))
    plausible = [each for each in seen if each.plausible]
    sizes = {id(each): each.micro_batch or _size(each, NAIVE, allowance) or 1 for each in plausible}
    rivals = {id(each): _rivals(each, allowance) for each in plausible}

    def loss(rates: Rates) -> float:
        return sum(_error(each, rates, sizes[id(each)], rivals[id(each)]) for each in plausible)

    # From one place alone a descent may end in a local minimum.
    middle = Rates(**{name: (low + high) / 2 for name, (low, high) in BOUNDS.items()})
    return min((descend(start, BOUNDS, loss) for start in (Rates(), middle)), key=loss), allowance


def _misfit(seen: list[Observation], allowance: Allowance) -> float:
    """How far the memory model is from Appendix J's micro batches and from what was feasible in Table 4."""
    wrong = 0.0
    for each in seen:
        if each.micro_batch is None:
            most = _most(each, NAIVE, allowance)
            wrong += 4.0 * max(0.0, -math.log2(max(most, 0.25)))
            continue
        cap = each.recipe.batch_size // each.machine.gpus
        wrong += min(_distance(each.micro_batch, cap, _most(each, reading, allowance)) for reading in each.readings)
    for cell, recipe, machine in _infeasible(seen):
        trace = traces.find(recipe.id, "naive")
        most = most_examples(recipe, trace, NAIVE, machine.gpu, cell.gpus, allowance)
        wrong += 4.0 * max(0.0, math.log2(max(most, 1.0)))
    return wrong


def _distance(micro_batch: int, cap: int, most: float) -> float:
    """Doublings by which the real-valued limit misses what the row shows: at least its size, less than twice it.
    A miss counts 1 more, so that exact rows decide."""
    limit = math.log2(max(most, 0.01))
    below, above = math.log2(micro_batch) - limit, limit - math.log2(2 * micro_batch)
    if micro_batch == cap:
        above = -1.0
    miss = max(below, above, 0.0)
    return 1.0 + min(miss, 2.0) if below > 0 or above >= 0 else 0.0


def _infeasible(seen: list[Observation]) -> Iterable[tuple[Cell, Recipe, Machine]]:
    recipes, gpus = {each.recipe.name for each in seen}, {each.gpu for each in seen}
    for cell in cells("4"):
        if cell.state == "infeasible" and cell.model in recipes and cell.gpu in gpus:
            yield cell, recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)


def _most(each: Observation, settings: Settings, allowance: Allowance) -> float:
    return most_examples(each.recipe, each.trace(settings), settings, each.machine.gpu, each.machine.gpus, allowance)


def _size(each: Observation, settings: Settings, allowance: Allowance) -> int:
    return largest_micro_batch(
        each.recipe, each.trace(settings), settings, each.machine.gpu, each.machine.gpus, allowance
    )


def _error(each: Observation, rates: Rates, micro_batch: int, rivals: list[tuple[Settings, int]]) -> float:
    """The distance of predicted from printed days, in logarithms, smooth near nothing, and by how much rivals that
    lost seem faster."""
    seconds = min(_seconds(each, reading, micro_batch, rates) for reading in each.readings)
    missed = math.hypot(math.log(seconds * each.recipe.training_steps / SECONDS_A_DAY / each.days), 0.05)
    if rivals:
        missed += max(0.0, math.log(seconds / min(_seconds(each, *rival, rates) for rival in rivals)))
    return missed


def _seconds(each: Observation, settings: Settings, micro_batch: int, rates: Rates) -> float:
    return step(each.recipe, each.trace(settings), settings, each.machine, micro_batch, rates).total


def _rivals(each: Observation, allowance: Allowance) -> list[tuple[Settings, int]]:
    """The settings that lost to those of Appendix J and come near them, with their predicted micro batches."""
    if each.cell is None or each.cell.table == "4" or len(each.readings) > 1:
        return []
    assert each.micro_batch is not None
    winner = _seconds(each, each.readings[0], each.micro_batch, Rates())
    found = []
    for settings in search_space(each.machine.gpus):
        size = _size(each, settings, allowance)
        if size and settings not in each.readings and _seconds(each, settings, size, Rates()) < _NEAR * winner:
            found.append((settings, size))
    return found


def descend(start: T, bounds: Mapping[str, tuple[float, float]], loss: Callable[[T], float]) -> T:
    """The parameters, within their bounds, at which the loss is least of those that searches along each in turn find:
    each search starts where the one before ended, as one alone stops in the first dent, until one finds nothing."""
    best, least = start, loss(start)
    while True:
        found, lower = _search(best, least, bounds, loss)
        if lower >= least:
            return best
        best, least = found, lower


def _search(
    start: T, least: float, bounds: Mapping[str, tuple[float, float]], loss: Callable[[T], float]
) -> tuple[T, float]:
    """Steps of two fifths of the value, halved where none helps, down to a fiftieth: its end, and the loss there."""
    best = start
    steps = dict.fromkeys(bounds, 0.4)
    while max(steps.values()) > 0.02:
        for name, (low, high) in bounds.items():
            if steps[name] <= 0.02:
                continue
            for sign in (1, -1):
                value = getattr(best, name)
                moved = max(value, (high - low) * 0.05) * sign * steps[name]
                candidate = replace(best, **{name: min(high, max(low, value + moved))})
                found = loss(candidate)
                if found < least - 1e-9:
                    best, least = candidate, found
                    break
            else:
                steps[name] /= 2
    return best, least


def _factors(fits: Mapping[str, Calibration], seen: list[Observation], held_out: str, stacked: bool) -> Factors:
    """Between which factors on predicted days the printed ones lie, for the inner 8 of 10 plausible cells of Table 4
    and, over the whole search, Table 1, of GPUs whose memory is stacked, or is not: once predicted by the fits that had
    not seen the recipe, once by those that had not seen the GPU, and of both the farther. What `held_out` names takes
    no part."""
    kept = [each for each in seen if each.plausible and not each.belongs(held_out) and each.machine.stacked == stacked]
    recipes = _inner(_off(each, fits[each.recipe.id]) for each in kept)
    gpus = _inner(_off(each, fits[each.gpu]) for each in kept)
    return min(recipes[0], gpus[0]), max(recipes[1], gpus[1])


def _off(each: Observation, fit: Calibration) -> float | None:
    """Printed or measured days over predicted ones; None where it is predicted not to fit."""
    if each.cell is not None:
        best = predicted(each.cell, fit)
    else:
        best = forecast(each.recipe, each.machine, each.readings[0], fit, each.stack, papers_hosts=False)
    return None if best.days is None else each.days / best.days.value


def _inner(ratios: Iterable[float | None]) -> Factors:
    """The ends of the inner 8 of 10."""
    known = sorted(ratio for ratio in ratios if ratio is not None)
    outside = (1 - _INSIDE) / 2
    return known[int(outside * len(known))], known[int((1 - outside) * len(known))]
