"""Fit the time model, and write what was fitted to repro/predict/fits.json. Takes some minutes.

    python -m tools.fit [artifacts.tar]

Fitted are the length of the launch queue of what the paper's torch compiled, and at most six rates: to the logarithms
of all printed days, as the authors' clock would show them, and of the true days of our own trials. Which rates is
chosen anew for each fit, by a leave-one-out within what it sees: of the paper's recipes, and of its GPUs. Nothing of
what a fold holds out decides anything of it, but the values that all rates start from, which were set in sight of all.
With the authors' archive, their raw step times take the place of the printed days.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy import ndarray
from scipy.optimize import least_squares

from repro import datafile
from repro.formats import SECONDS_A_DAY
from repro.paper.settings import NAIVE
from repro.predict.constants import CANDIDATES, PAPERS, Queue, Rates
from repro.predict.fits import EVERYTHING, FILE, Errors, Fits, constants
from repro.predict.launch_queue import authors_step
from repro.predict.memory import Allowance, largest_micro_batch
from repro.predict.observations import Observation, folds, observations, released, trials
from repro.predict.scores import errors_of, unseen
from repro.released.results import read

_MOST = 6  # rates
_TRIAL = 2.0  # weight of a measured trial relative to a cell, whose days are rounded and whose run is unknown
_DRAWN = 0.2  # weight of a number's distance from its start, relative to the start
_SOFT = 0.1  # larger errors, in logarithms, count linearly, smaller ones by their squares
_FAR = 0.7  # of its start, up or down: the farthest that a number may move; no rate exceeds 1
_ROUNDS = 4  # of reweighting, in the linearised model
_START = {name: getattr(Rates(), name) for name in CANDIDATES} | {PAPERS: Queue().papers_compiled}

Numbers = dict[str, float]


class Misses:
    """The errors of observations, in logarithms of days, as functions of the numbers that are fitted."""

    def __init__(self, seen: Sequence[Observation]) -> None:
        self.seen = list(seen)
        self._sizes = [each.micro_batch or _naive_size(each) for each in seen]

    def of(self, numbers: Numbers) -> ndarray:
        """Return each observation's error: for a cell by the authors' clock, at the reading that is fastest by it; for
        a trial that of true days, weighted."""
        queue = replace(Queue(), papers_compiled=numbers[PAPERS])
        rates = replace(Rates(), **{name: value for name, value in numbers.items() if name != PAPERS})
        return np.array([_missed(*each, rates, queue) for each in zip(self.seen, self._sizes, strict=True)])

    @cached_property
    def start(self) -> ndarray:
        return self.of(_START)

    @cached_property
    def slopes(self) -> ndarray:
        """Return the change of each error (row) with each number (column), relative to its start."""
        nudged = ({**_START, name: 1.01 * start} for name, start in _START.items())
        return np.array([(self.of(numbers) - self.start) / 0.01 for numbers in nudged]).T


def _naive_size(each: Observation) -> int:
    gpu, world = each.machine.gpu, each.machine.gpus
    return largest_micro_batch(each.recipe, each.trace(NAIVE), NAIVE, gpu, world, Allowance()) or 1


def _missed(each: Observation, size: int, rates: Rates, queue: Queue) -> float:
    steps = [each.step(reading, size, rates) for reading in each.readings]
    seconds = min(authors_step(step, queue) for step in steps) if each.cell else steps[0].seconds
    missed = float(np.log(seconds * each.recipe.training_steps / SECONDS_A_DAY / each.days))
    return missed if each.cell else _TRIAL * missed


def fit(misses: Misses, held_out: str) -> Numbers:
    """Return the numbers fitted to what does not belong to `held_out`, for which at most `_MOST` rates are chosen."""
    kept = np.array([not each.belongs(held_out) for each in misses.seen])
    names = [PAPERS, *chosen(misses, kept)]
    start = np.array([_START[name] for name in names])
    seen = Misses([each for each, keep in zip(misses.seen, kept, strict=True) if keep])

    def residuals(x: ndarray) -> ndarray:
        missed = seen.of(_START | dict(zip(names, x * start, strict=True)))
        return np.concatenate([missed, _DRAWN * (x - 1)])

    most = [1 + _FAR if name == PAPERS else min(1 + _FAR, 1 / _START[name]) for name in names]
    bounds = ([1 - _FAR] * len(names), most)
    found = least_squares(residuals, np.ones(len(names)), bounds=bounds, loss="soft_l1", f_scale=_SOFT, diff_step=1e-3)
    return {name: float(f"{value:.6g}") for name, value in zip(names, found.x * start, strict=True)}


def chosen(misses: Misses, kept: ndarray) -> list[str]:
    """Return the rates whose fit predicts best what an inner leave-one-out holds out. One rate after the other is
    added, up to `_MOST`, and as many are kept as do best. Errors are taken as linear in the numbers."""
    seen = [each for each, keep in zip(misses.seen, kept, strict=True) if keep]
    groups = [np.array([each.belongs(name) for each in seen]) for name in folds(seen)]
    start, slopes = misses.start[kept], misses.slopes[kept]
    order = list(_START)

    def loss(names: Sequence[str]) -> float:
        return _held_out_loss(start, slopes[:, [order.index(name) for name in names]], groups)

    paths = [[PAPERS]]
    while len(paths) <= _MOST:
        _, name = min((loss([*paths[-1], name]), name) for name in CANDIDATES if name not in paths[-1])
        paths.append([*paths[-1], name])
    return min(paths, key=loss)[1:]


def _held_out_loss(start: ndarray, slopes: ndarray, groups: Iterable[ndarray]) -> float:
    total = 0.0
    for out in groups:
        moved = np.zeros(slopes.shape[1])
        for _ in range(_ROUNDS):
            missed = start[~out] + slopes[~out] @ moved
            weighted = slopes[~out] / np.sqrt(1 + (missed / _SOFT) ** 2)[:, None]
            square = slopes[~out].T @ weighted + _DRAWN**2 * np.eye(len(moved))
            slope = weighted.T @ missed + _DRAWN**2 * moved
            moved = np.clip(moved - np.linalg.solve(square, slope), -_FAR, _FAR)
        total += float((np.sqrt(1 + ((start[out] + slopes[out] @ moved) / _SOFT) ** 2) - 1).sum())
    return total


def fit_all(
    progress: Callable[[str], None], names: Sequence[str] | None = None, archive: Path | None = None
) -> dict[str, Numbers]:
    """Return the fit to everything and that of each fold, or the named ones, by what they hold out."""
    misses = Misses([*(released(read(archive).records) if archive else observations()), *trials()])
    found = {}
    for name in names or (EVERYTHING, *folds(misses.seen)):
        found[name] = fit(misses, name)
        progress(f"{name}: {', '.join(f'{key} {value:.4g}' for key, value in found[name].items())}")
    return found


def main() -> None:
    archive = Path(sys.argv[1]) if sys.argv[1:] else None
    fitted = fit_all(lambda line: print(line, file=sys.stderr), archive=archive)
    fits = {name: constants(numbers, Errors({}, "", 1.0)) for name, numbers in fitted.items()}
    print(datafile.write(FILE, asdict(Fits(fitted, errors_of(unseen(fits))))))


if __name__ == "__main__":
    main()
