"""Which trials to take where there is no time for all: those that show the most of a stack for their time."""

from __future__ import annotations

from collections.abc import Mapping

from .. import rules
from ..trial import Trial


def features(trial: Trial) -> frozenset[str]:
    """What of a stack a trial runs: the model, its family's kernels, the compiler, wrappers, precision."""
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
    if rules.compiles(recipe, settings):
        found |= {"compiler", f"compiled {recipe.family}"}
    if settings.checkpointing:
        found.add("checkpointing")
    if settings.offloading:
        found.add("offloading")
    return frozenset(found)


def choose(seconds: Mapping[Trial, float], budget: float) -> list[Trial]:
    """The trials that fit in `budget` seconds: each time the one with the most features not yet seen for its time,
    until none shows anything new."""
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
