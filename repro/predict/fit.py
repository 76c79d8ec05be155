"""Fits of the rates, the launch queue and the memory allowance to the paper's numbers and to measurements. The results
are deterministic.

Rates are fitted by least squares to the logarithms of all printed days, as the authors' clock would show them, and of
measured true days. The queue is fitted to trials with both clocks; the allowance to what fits in memory, not to days.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from repro.formats import SECONDS_A_DAY
from repro.paper.arithmetic import paper_gpu, recipe_of
from repro.paper.gpus import find
from repro.paper.measured_days import measured_days
from repro.paper.settings import NAIVE, Settings
from repro.paper.tables import Cell, all_cells, cells, published_settings
from repro.record import Record
from repro.validity import Answer

from .. import models
from ..models.recipe import Recipe
from . import traces
from .calibration import EVERYTHING, Calibration, Factors
from .forecast import forecast, predicted
from .hardware import Machine
from .launch_queue import Queue, authors_step
from .memory import ALLOWANCE_BOUNDS, Allowance, largest_micro_batch, most_examples, variant_of
from .time import BOUNDS, Rates, TimedStep, timed_step

if TYPE_CHECKING:
    from numpy import ndarray

_INSIDE = 0.8  # share of unseen cells inside the interval
_TRIAL = 2.0  # weight of a measured trial relative to a cell, whose days are rounded and whose run is unknown
_DRAWN = 0.2  # weight of each rate's distance from its start, relative to the start
_SOFT = 0.1  # larger errors, in logarithms, count linearly, smaller ones by their squares
_ROOMS = [float(room) for room in range(400, 1101, 10)]
_LAUNCHES = (20e-6, 25e-6, 30e-6, 35e-6, 40e-6, 15e-6, 10e-6)  # the first of equally good ones is used
_ROOM_BOUNDS = (100.0, 1100.0)
_ROUNDS = 40


@dataclass(frozen=True)
class Observation:
    """Days that a fit uses: of a cell or of a trial. A cell's `readings` are the settings it may have had, naive for
    Table 4 and Appendix J's for Table 1, with its micro batch. A trial has `cell` None, its own settings and micro
    batch, and was measured on `stack`. Its `days` are true; `authors_days` are by the authors' clock, None if at
    another micro batch."""

    cell: Cell | None
    days: float
    recipe: Recipe
    machine: Machine
    readings: tuple[Settings, ...]
    micro_batch: int | None
    stack: traces.Traced = traces.PAPER_STACK
    authors_days: float | None = None

    @property
    def gpu(self) -> str:
        """Return the GPU's name, the paper's if it has one."""
        return self.machine.gpu.called

    def trace(self, settings: Settings) -> traces.Trace:
        """Return the trace of its recipe and stack for these settings."""
        return traces.find(self.recipe.id, variant_of(settings), self.stack)

    def step(self, settings: Settings, micro_batch: int, rates: Rates) -> TimedStep:
        """Return its predicted training step with these settings, at a micro batch."""
        return timed_step(self.recipe, self.trace(settings), settings, self.machine, micro_batch, rates)

    def belongs(self, held_out: str) -> bool:
        """Return whether it is of the recipe or the GPU that a fit holds out."""
        return held_out in (self.recipe.id, self.gpu)


def observations() -> list[Observation]:
    """Return every cell of Tables 1 and 4 that has days."""
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
            )
        )
    return found


def kept_observations() -> list[Observation]:
    """Return every trial of expected/measured.csv that ran. Raise UserError if the file is broken."""
    found = []
    for row in measured_days().values():
        if row.true_days is None:
            continue
        versions = dict(one.rsplit(" ", 1) for one in row.stack.split(", "))
        stack, machine = traces.nearest(versions), Machine(paper_gpu(row.gpu), row.gpus)
        settings = (Settings.parse(row.settings),)
        recipe, size = recipe_of(row.model), row.micro_batch
        found.append(Observation(None, row.true_days, recipe, machine, settings, size, stack, row.authors_days))
    return found


def measured_observations(records: Iterable[Record], stack: traces.Traced) -> list[Observation]:
    """Return every undisturbed trial of a paper's recipe on one node of GPUs of the catalogue, with all of their
    memory. Skip trials without days."""
    found = []
    of_paper = (each for each in records if each.recipe in models.IDS and each.comparable_with_paper)
    for record in (each for each in of_paper if Answer.of(each) is Answer.RAN):
        gpu, size, days = find(record.device), record.batch.micro_batch, record.derived.true_days
        if gpu is None or days is None or size is None:
            continue
        recipe, settings = record.recipe_and_settings
        authors = None if record.batch.authors_micro_batch else record.derived.authors_days
        machine = Machine(gpu, record.count)
        found.append(Observation(None, days, recipe, machine, (settings,), size, stack, authors))
    return found


def folds(seen: Iterable[Observation]) -> list[str]:
    """Return the names that are held out, one at a time: each recipe, then each GPU."""
    listed = list(seen)
    return [*dict.fromkeys(each.recipe.id for each in listed), *dict.fromkeys(each.gpu for each in listed)]


def fit_all(seen: list[Observation], progress: Callable[[str], None]) -> dict[str, Calibration]:
    """Return the fit to everything, and one for each fold, without the fold's recipe or GPU. Takes about 4 minutes.

    The intervals come from the folds, from the errors of their predictions for unseen cells and trials.
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
    """Fit rates, queue and allowance to the observations. The seconds of a micro-step's stretches decide what waits in
    the launch queue; the queue decides what printed days imply for the rates. So both are fitted twice."""
    allowance = descend(Allowance(), ALLOWANCE_BOUNDS, lambda candidate: _misfit(seen, candidate))
    steps = [(each, each.micro_batch or _size(each, NAIVE, allowance) or 1) for each in seen]
    rates, queue = Rates(), Queue()
    for _ in range(2):
        queue = _fit_queue(seen, rates, queue)
        rates, queue = _fit_rates(steps, rates, queue)
    return rates, queue, allowance


def _fit_queue(seen: Iterable[Observation], rates: Rates, queue: Queue) -> Queue:
    """Return the queue length and seconds of a launch that best reproduce the authors' clock from true steps, for eager
    and for compiled trials. Without trials of a kind, its values do not change."""
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
    """Return a trial's authors' days, derived from its true days by the queue, over the measured authors' days."""
    assert trial.authors_days is not None
    true = trial.days * SECONDS_A_DAY / trial.recipe.training_steps
    shown = authors_step(step.scaled(true / step.seconds), queue)
    return shown * trial.recipe.training_steps / SECONDS_A_DAY / trial.authors_days


def _fit_rates(steps: list[tuple[Observation, int]], rates: Rates, queue: Queue) -> tuple[Rates, Queue]:
    """Fit the rates, and the queue length of code compiled by the paper's stack, by least squares, from these on."""
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
    """Return the error of predicted days, in logarithms: for a cell by the authors' clock, at the reading that is
    fastest by it; for a trial that of true days, weighted."""
    steps = [each.step(reading, size, rates) for reading in each.readings]
    seconds = min(authors_step(step, queue) for step in steps) if each.cell else steps[0].seconds
    missed = math.log(seconds * each.recipe.training_steps / SECONDS_A_DAY / each.days)
    return missed if each.cell else _TRIAL * missed


def least_squares(
    residuals: Callable[[ndarray], Iterable[float]], begin: Iterable[float], low: Iterable[float], high: Iterable[float]
) -> list[float]:
    """Minimise the sum of softened squares within bounds, by Levenberg-Marquardt with finite differences; return the
    minimum."""
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
    """Return how far the memory model is from Appendix J's micro batches and from which cells of Table 4 fit."""
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
    """Return the doublings by which the real-valued limit misses the row's range, from its micro batch to less than
    twice it. A miss counts 1 more, so that the number of exact rows decides."""
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
    """Return the parameters within bounds with the lowest loss found by coordinate searches. Each starts where the last
    one ended, until one finds nothing lower: a single search stops in the first local minimum."""
    best, least = start, loss(start)
    while True:
        found, lower = _search(best, least, bounds, loss)
        if lower >= least:
            return best
        best, least = found, lower


def _search(
    start: Allowance, least: float, bounds: Mapping[str, tuple[float, float]], loss: Callable[[Allowance], float]
) -> tuple[Allowance, float]:
    """Return the end of a search by steps of 0.4 of a value, halved down to 0.02 if none helps, and its loss."""
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
    """Return the factors on predicted days between which the inner 8 of 10 printed or measured days lie: cells of Table
    4, of Table 1 over the whole search, and trials, on GPUs with HBM (`stacked`) or without. Each is predicted by the
    fit without its recipe and by the fit without its GPU; the wider bounds of the two are used. Observations of
    `held_out` are left out."""
    kept = [each for each in seen if not each.belongs(held_out) and each.machine.stacked == stacked]
    recipes = _inner(_off(each, fits[each.recipe.id]) for each in kept)
    gpus = _inner(_off(each, fits[each.gpu]) for each in kept)
    return min(recipes[0], gpus[0]), max(recipes[1], gpus[1])


def _off(each: Observation, fit: Calibration) -> float | None:
    """Return a cell's printed days over the predicted ones by the authors' clock, or a trial's measured days over the
    predicted true ones; None if it is predicted not to fit."""
    if each.cell is not None:
        shown = predicted(each.cell, fit, by_authors=True).authors_days
        return None if shown is None else each.days / shown
    best = forecast(
        each.recipe, each.machine, each.readings[0], fit, each.stack, papers_hosts=False, micro_batch=each.micro_batch
    )
    return None if best.days is None else each.days / best.days.value


def _inner(ratios: Iterable[float | None]) -> Factors:
    """Return the ends of the inner 8 of 10 ratios."""
    known = sorted(ratio for ratio in ratios if ratio is not None)
    outside = (1 - _INSIDE) / 2
    return known[int(outside * len(known))], known[int((1 - outside) * len(known))]
