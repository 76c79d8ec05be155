"""The trials and pairs of a check: those that show most of a stack within a budget of time, by estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..console import UserError
from ..formats import duration
from ..machine import support
from ..machine.devices import Device, gpu_of
from ..record import Trial
from ..run.estimate import estimate
from .decision import FEWEST

SIDES = ("before", "after")
FORKS = 4  # of each stack a start, on a CPU: a start causes little of a process's noise, and loading takes time
_PAIRS = (24, 18, 12)  # tried in this order until a trial fits the budget; the rest of it buys more pairs
_MOST_PAIRS = 200
_LOADING_SECONDS = 8.0  # estimate for both stacks at once; used to choose trials, never in a result
_SAMPLES_SHARE = 0.6  # of a trial's estimate: its micro batch is known, its compilation cached


def forks(devices: Sequence[Device]) -> int:
    """Return how many processes of each stack to fork from a start; on a GPU one takes longer than loading."""
    return 1 if devices else FORKS


def rounds(devices: Sequence[Device]) -> int:
    """Return how many rounds to time in a process. Interleaved, each round meets another moment of a noisy machine;
    where processes follow each other, more processes help more than more rounds."""
    return 5 if devices else 10


def search_of(arm: str) -> str:
    """Name the part of a check that finds the largest micro batches of a stack."""
    return f"largest micro batches, {arm}"


def pair_of(number: int) -> str:
    """Name a pair of a check."""
    return f"pair {number + 1}"


def seconds_of_parts(trials: Sequence[Trial], devices: Sequence[Device], pairs: int) -> dict[str, float]:
    """Estimate the seconds of each part of a check that needs all its pairs."""
    once = sum(estimate(trial, gpu_of(devices)) for trial in trials)
    found = {search_of(arm): _LOADING_SECONDS + once for arm in SIDES}
    pair = _LOADING_SECONDS + len(SIDES) * forks(devices) * _SAMPLES_SHARE * once
    return found | {pair_of(number): pair for number in range(pairs)}


def chosen_within(
    budget: float, candidates: Sequence[Trial], devices: Sequence[Device], asked: int | None
) -> tuple[list[Trial], int]:
    """Return the trials with the most features in the budget, and the pairs asked for, or else as many as it allows."""
    for each in (asked,) if asked else _PAIRS:
        loading, seconds = _costs(candidates, devices, each)
        chosen = choose(seconds, budget - loading)
        if chosen:
            return chosen, asked or _most_pairs(chosen, devices, each, budget)
    cheapest = min(seconds, key=lambda trial: seconds[trial])
    minutes = math.ceil((seconds[cheapest] + loading) / 60)
    fewer = ", or take fewer pairs" if each > FEWEST else ""
    raise UserError(
        f"--budget {duration(budget)}: {cheapest.recipe} {cheapest.settings} alone takes about {minutes}m with "
        f"--pairs {each}; raise the budget{fewer}"
    )


def _most_pairs(chosen: Sequence[Trial], devices: Sequence[Device], fewest: int, budget: float) -> int:
    """Return how many pairs the budget allows for these trials."""
    for pairs in range(_MOST_PAIRS, fewest, -1):
        loading, seconds = _costs(chosen, devices, pairs)
        if loading + sum(seconds.values()) <= budget:
            return pairs
    return fewest


def _costs(candidates: Sequence[Trial], devices: Sequence[Device], pairs: int) -> tuple[float, dict[Trial, float]]:
    """Estimate the seconds of loading, once for each part whatever it measures, and of each trial."""
    loading, seconds = len(seconds_of_parts((), devices, pairs)) * _LOADING_SECONDS, {}
    for trial in candidates:
        seconds[trial] = sum(seconds_of_parts([trial], devices, pairs).values()) - loading
    return loading, seconds


def features(trial: Trial) -> frozenset[str]:
    """Return the parts of a stack that a trial runs: model, its family's kernels, compiler, wrappers, precision."""
    recipe, settings = trial.recipe_and_settings
    found = {
        recipe.id,
        recipe.family,
        f"{recipe.family} {'custom' if settings.free_lunch else 'plain'} kernels",
        recipe.precision,
        settings.library,
        settings.sharding,
        "several devices" if trial.world > 1 else "one device",
    }
    if support.compiles(recipe, settings):
        found |= {"compiler", f"compiled {recipe.family}"}
    if settings.checkpointing:
        found.add("checkpointing")
    if settings.offloading:
        found.add("offloading")
    return frozenset(found)


def choose(seconds: Mapping[Trial, float], budget: float) -> list[Trial]:
    """Return trials that fit in `budget` seconds: each time the one with the most new features for its time, until none
    adds any."""
    chosen: list[Trial] = []
    seen: set[str] = set()
    while True:
        left = budget - sum(seconds[trial] for trial in chosen)
        fitting = [
            trial for trial in seconds if trial not in chosen and seconds[trial] <= left and features(trial) - seen
        ]
        if not fitting:
            return chosen
        best = max(fitting, key=lambda trial: len(features(trial) - seen) / seconds[trial])
        chosen.append(best)
        seen |= features(best)
