"""Fits the few rates, the launch queue and the allowance of memory to what the paper prints and to what was measured,
the same each time.

Rates are fitted by least squares to the logarithms of all printed days, as the authors' clock would show them, and of
measured true days. The queue is fitted to trials that have both clocks. The allowance goes by what fits and by no days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from repro.answer import unfair
from repro.paper.findings import paper_gpu, recipe_of
from repro.paper.gpus import find
from repro.paper.measured_days import measured_days
from repro.paper.settings import NAIVE, Settings
from repro.paper.tables import Cell, all_cells, cells, published_settings
from repro.predict.audit import plausible_cells
from repro.record import Record
from repro.text import SECONDS_A_DAY

from .. import models
from ..models.recipe import Recipe
from . import traces
from .calibration import EVERYTHING, Calibration, Factors
from .forecast import forecast, predicted
from .hardware import Machine
from .memory import ALLOWANCE_BOUNDS, Allowance, largest_micro_batch, most_examples, variant_of
from .queue import Queue, authors_step
from .time import BOUNDS, Rates, TimedStep, timed_step

if TYPE_CHECKING:
    from numpy import ndarray

_INSIDE = 0.8  # of unseen cells within the interval
_TRIAL = 2.0  # how much a measured trial weighs beside a cell, whose days are rounded, and of an unknown run
_DRAWN = 0.2  # the same of each rate's distance from where it starts, relative to that
_SOFT = 0.1  # beyond this much, in logarithms, what is missed counts by its size and no longer by its square
_ROOMS = [float(room) for room in range(400, 1101, 10)]
_LAUNCHES = (20e-6, 25e-6, 30e-6, 35e-6, 40e-6, 15e-6, 10e-6)  # of those that explain as much the first
_ROOM_BOUNDS = (100.0, 1100.0)
_ROUNDS = 40


@dataclass(frozen=True)
class Observation:
    """A cell with days, and the settings it may have had: naive for Table 4, Appendix J's readings for Table 1, with
    its micro batch. A trial that was measured, on `stack`, stands for no cell, which is None then, and has its own
    settings and micro batch; its `days` are true ones, and `authors_days` those by the authors' clock, None where that
    is of another micro batch."""

    cell: Cell | None
    days: float
    recipe: Recipe
    machine: Machine
    readings: tuple[Settings, ...]
    micro_batch: int | None
    plausible: bool
    stack: traces.Traced = traces.PAPER_STACK
    authors_days: float | None = None

    @property
    def gpu(self) -> str:
        """The GPU's name, the paper's if it has one."""
        return self.machine.gpu.called

    def trace(self, settings: Settings) -> traces.Trace:
        """That of its recipe and stack with these settings."""
        return traces.find(self.recipe.id, variant_of(settings), self.stack)

    def step(self, settings: Settings, micro_batch: int, rates: Rates) -> TimedStep:
        """Its training step with these settings at a micro batch, as predicted."""
        return timed_step(self.recipe, self.trace(settings), settings, self.machine, micro_batch, rates)

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


def kept_observations() -> list[Observation]:
    """Every trial of expected/measured.csv that ran. Raises UserError where the file is broken."""
    found = []
    for row in measured_days().values():
        if row.true_days is None:
            continue
        versions = dict(one.rsplit(" ", 1) for one in row.stack.split(", "))
        stack, machine = traces.nearest(versions), Machine(paper_gpu(row.gpu), row.gpus)
        settings = (Settings.parse(row.settings),)
        recipe, size = recipe_of(row.model), row.micro_batch
        found.append(Observation(None, row.true_days, recipe, machine, settings, size, True, stack, row.authors_days))
    return found


def measured_observations(records: Iterable[Record], stack: traces.Traced) -> list[Observation]:
    """Every trial of the paper's recipes that ran on one node of GPUs of the catalogue, with all of their memory, and
    that is a fair sample of their speed."""
    found = []
    for record in (record for record in records if record.recipe in models.IDS):
        gpu, size, days = find(record.device), record.micro_batch, record.true_days
        if gpu is None or not record.stands_for_paper or days is None or size is None or unfair(record) is not None:
            continue
        recipe, settings = record.recipe_and_settings
        authors = None if record.authors_micro_batch else record.authors_days
        machine = Machine(gpu, record.count)
        found.append(Observation(None, days, recipe, machine, (settings,), size, True, stack, authors))
    return found


def folds(seen: Iterable[Observation]) -> list[str]:
    """What is held out, one at a time: each recipe, then each GPU."""
    listed = list(seen)
    return [*dict.fromkeys(each.recipe.id for each in listed), *dict.fromkeys(each.gpu for each in listed)]


def fit_all(seen: list[Observation], progress: Callable[[str], None]) -> dict[str, Calibration]:
    """The fit to everything, and one for each fold, which has not seen its recipe or GPU. About 4 minutes.

    The intervals come from the folds: how far unseen cells and trials lay from their predictions.
    """
    fits = {}
    for name in (EVERYTHING, *folds(seen)):
        progress(name)
        fits[name] = Calibration(*fit([each for each in seen if not each.belongs(name)]), (1.0, 1.0), (1.0, 1.0))
    return {
        name: replace(found, hbm=_factors(fits, seen, name, True), gddr=_factors(fits, seen, name, False))
        for name, found in fits.items()
    }


def fit(seen: list[Observation]) -> tuple[Rates, Queue, Allowance]:
    """Rates, queue and allowance for what was seen. How long a micro-step's stretches take decides what lies in the
    queue, and what lies there what printed days say of rates: so each is fitted twice."""
    allowance = descend(Allowance(), ALLOWANCE_BOUNDS, lambda candidate: _misfit(seen, candidate))
    steps = [(each, each.micro_batch or _size(each, NAIVE, allowance) or 1) for each in seen]
    rates, queue = Rates(), Queue()
    for _ in range(2):
        queue = _fit_queue(seen, rates, queue)
        rates, queue = _fit_rates(steps, rates, queue)
    return rates, queue, allowance


def _fit_queue(seen: Iterable[Observation], rates: Rates, queue: Queue) -> Queue:
    """The queue and the seconds of a launch for which the authors' clock is nearest to what it showed of true steps, of
    eager and of compiled trials. Of trials that nothing is known of they stay as they are."""
    known = [(each, each.step(each.readings[0], each.micro_batch or 1, rates)) for each in seen if each.authors_days]
    for names, compiled in ((("eager", "launch"), False), (("compiled", "launch_compiled"), True)):
        alike = [(each, step) for each, step in known if step.compiled == compiled]
        candidates = (replace(queue, **dict(zip(names, pair, strict=True))) for pair in product(_ROOMS, _LAUNCHES))
        if alike:
            queue = min(candidates, key=partial(_clock_missed, alike))
    return queue


def _clock_missed(trials: Iterable[tuple[Observation, TimedStep]], queue: Queue) -> float:
    return sum(abs(math.log(clock_ratio(each, step, queue))) for each, step in trials)


def clock_ratio(trial: Observation, step: TimedStep, queue: Queue) -> float:
    """The authors' days of a measured trial as the queue has them from its true days, over those measured."""
    assert trial.authors_days is not None
    true = trial.days * SECONDS_A_DAY / trial.recipe.training_steps
    shown = authors_step(step.scaled(true / step.seconds), queue)
    return shown * trial.recipe.training_steps / SECONDS_A_DAY / trial.authors_days


def _fit_rates(steps: list[tuple[Observation, int]], rates: Rates, queue: Queue) -> tuple[Rates, Queue]:
    """The rates, and what the paper's stack hides of compiled code in the queue, by least squares from these on."""
    start = asdict(Rates()) | {"papers_compiled": Queue().papers_compiled}
    bounds = BOUNDS | {"papers_compiled": _ROOM_BOUNDS}

    def named(x: Iterable[float]) -> tuple[Rates, Queue]:
        values = {name: value * start[name] for name, value in zip(start, x, strict=True)}
        waiting = values.pop("papers_compiled")
        return Rates(**values), replace(queue, papers_compiled=waiting)

    def residuals(x: ndarray) -> list[float]:
        candidate = named(x)
        return [*(_missed(each, size, *candidate) for each, size in steps), *(_DRAWN * (x - 1.0))]

    now = asdict(rates) | {"papers_compiled": queue.papers_compiled}
    begin = [now[name] / start[name] for name in start]
    low, high = ([bounds[name][end] / start[name] for name in start] for end in (0, 1))
    return named(least_squares(residuals, begin, low, high))


def _missed(each: Observation, size: int, rates: Rates, queue: Queue) -> float:
    """How far days are predicted off, in logarithms: a cell's by the authors' clock, at the reading that is fastest by
    it, and a trial's true ones."""
    steps = [each.step(reading, size, rates) for reading in each.readings]
    seconds = min(authors_step(step, queue) for step in steps) if each.cell else steps[0].seconds
    missed = math.log(seconds * each.recipe.training_steps / SECONDS_A_DAY / each.days)
    return missed if each.cell else _TRIAL * missed


def least_squares(
    residuals: Callable[[ndarray], Iterable[float]], begin: Iterable[float], low: Iterable[float], high: Iterable[float]
) -> list[float]:
    """Where the sum of softened squares is least within bounds, by Levenberg and Marquardt's steps with differences for
    derivatives."""
    import numpy as np

    def loss(missed: ndarray) -> float:
        return float((np.sqrt(1 + (missed / _SOFT) ** 2) - 1).sum())

    least, most = np.array(list(low)), np.array(list(high))
    x = np.clip(np.array(list(begin)), least, most)
    missed = np.array(list(residuals(x)))
    damping = 1e-2
    for _ in range(_ROUNDS):
        slopes = np.empty((len(missed), len(x)))
        for place, value in enumerate(x):
            aside = x.copy()
            move = 1e-3 * max(abs(value), 0.1)
            aside[place] += move if value + move <= most[place] else -move
            slopes[:, place] = (np.array(list(residuals(aside))) - missed) / (aside[place] - value)
        weights = 1 / np.sqrt(1 + (missed / _SOFT) ** 2)
        square, slope = slopes.T @ (slopes * weights[:, None]), slopes.T @ (missed * weights)
        free = ~(((x <= least) & (slope > 0)) | ((x >= most) & (slope < 0)))
        before = loss(missed)
        for _ in range(8):
            damped = square[np.ix_(free, free)] + damping * np.diag(np.diag(square)[free] + 1e-12)
            moved = x.copy()
            moved[free] -= np.linalg.solve(damped, slope[free])
            moved = np.clip(moved, least, most)
            found = np.array(list(residuals(moved)))
            if loss(found) < before:
                break
            damping *= 4
        else:
            break
        x, missed, damping = moved, found, max(damping / 3, 1e-6)
        if before - loss(missed) < 1e-5 * before:
            break
    return [float(value) for value in x]


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


def descend(
    start: Allowance, bounds: Mapping[str, tuple[float, float]], loss: Callable[[Allowance], float]
) -> Allowance:
    """The parameters, within their bounds, at which the loss is least of those that searches along each in turn find:
    each search starts where the one before ended, as one alone stops in the first dent, until one finds nothing."""
    best, least = start, loss(start)
    while True:
        found, lower = _search(best, least, bounds, loss)
        if lower >= least:
            return best
        best, least = found, lower


def _search(
    start: Allowance, least: float, bounds: Mapping[str, tuple[float, float]], loss: Callable[[Allowance], float]
) -> tuple[Allowance, float]:
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
    """Between which factors on predicted days the printed and measured ones lie, for the inner 8 of 10 cells of Table 4
    and, over the whole search, Table 1, and trials, of GPUs whose memory is stacked, or is not: once predicted by the
    fits that had not seen the recipe, once by those that had not seen the GPU, and of both the farther. What
    `held_out` names takes no part."""
    kept = [each for each in seen if not each.belongs(held_out) and each.machine.stacked == stacked]
    recipes = _inner(_off(each, fits[each.recipe.id]) for each in kept)
    gpus = _inner(_off(each, fits[each.gpu]) for each in kept)
    return min(recipes[0], gpus[0]), max(recipes[1], gpus[1])


def _off(each: Observation, fit: Calibration) -> float | None:
    """Printed days over those by the authors' clock, or measured ones over true days; None where it is predicted not to
    fit."""
    if each.cell is not None:
        shown = predicted(each.cell, fit).authors_days
        return None if shown is None else each.days / shown
    best = forecast(
        each.recipe, each.machine, each.readings[0], fit, each.stack, papers_hosts=False, micro_batch=each.micro_batch
    )
    return None if best.days is None else each.days / best.days.value


def _inner(ratios: Iterable[float | None]) -> Factors:
    """The ends of the inner 8 of 10."""
    known = sorted(ratio for ratio in ratios if ratio is not None)
    outside = (1 - _INSIDE) / 2
    return known[int(outside * len(known))], known[int((1 - outside) * len(known))]
