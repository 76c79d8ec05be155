"""What a budget buys of a check: how long one takes, which trials it then holds, and how many pairs of each."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .. import units
from ..devices import Device, gpu_of
from ..errors import UserError
from ..estimate import estimate
from ..trial import Trial
from .coverage import choose
from .interleave import ARMS, forks, parts
from .rule import PAIRS_A_ROUND

_PAIRS = (12, 9, 6)  # a round, for as many trials as fit the budget; what they leave of it buys more for each
_MOST_PAIRS = 100
_LOADING_SECONDS = 8.0  # about, of all arms' stacks at once; for the choice of trials, never for a result
_SAMPLES_SHARE = 0.6  # of a trial's estimate: its micro batch is known, what it compiles is cached


def seconds_of_parts(trials: Sequence[Trial], devices: Sequence[Device], pairs: int) -> dict[str, float]:
    """About how many seconds each part of a check takes."""
    once = sum(estimate(trial, gpu_of(devices)) for trial in trials)
    searches, starts = parts(pairs)
    found = dict.fromkeys(searches, _LOADING_SECONDS + once)
    return found | dict.fromkeys(starts, _LOADING_SECONDS + len(ARMS) * forks(devices) * _SAMPLES_SHARE * once)


def chosen_within(
    budget: str, candidates: Sequence[Trial], devices: Sequence[Device], asked: int | None
) -> tuple[list[Trial], int]:
    """The trials that show most in the budget, and the pairs asked for, or else as many as it allows."""
    available = units.seconds(budget, "--budget")
    for each in (asked,) if asked else _PAIRS:
        loading, seconds = _costs(candidates, devices, each)
        chosen = choose(seconds, available - loading)
        if chosen:
            return chosen, asked or _most_pairs(chosen, devices, each, available)
    cheapest = min(seconds, key=lambda trial: seconds[trial])
    minutes = math.ceil((seconds[cheapest] + loading) / 60)
    fewer = ", or take fewer pairs" if each > PAIRS_A_ROUND else ""
    raise UserError(
        f"--budget {budget}: {cheapest.recipe} {cheapest.settings} alone takes about {minutes}m with "
        f"--pairs {each}; raise the budget{fewer}"
    )


def _most_pairs(chosen: Sequence[Trial], devices: Sequence[Device], fewest: int, budget: float) -> int:
    """How many pairs the budget buys for these trials."""
    for pairs in range(_MOST_PAIRS, fewest, -1):
        loading, seconds = _costs(chosen, devices, pairs)
        if loading + sum(seconds.values()) <= budget:
            return pairs
    return fewest


def _costs(candidates: Sequence[Trial], devices: Sequence[Device], pairs: int) -> tuple[float, dict[Trial, float]]:
    """About how many seconds loading takes, once for each part whatever it measures, and each trial."""
    loading, seconds = len(seconds_of_parts((), devices, pairs)) * _LOADING_SECONDS, {}
    for trial in candidates:
        seconds[trial] = sum(seconds_of_parts([trial], devices, pairs).values()) - loading
    return loading, seconds
