"""The order in which a report has recipes, machines and settings, whichever ran first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import models

from ..search import Search
from ..settings import NAIVE, Settings, search_space
from ..trial import OnMachine, Record


def in_order(found: Iterable[Search]) -> list[Search]:
    """Recipes as the paper has them, each on its machines, and there naive settings before the search's."""
    recipes = [*models.IDS, *models.OTHERS]
    ordered = [replace(search, trials=tuple(sorted(search.trials, key=_by_settings))) for search in found]
    return sorted(ordered, key=lambda search: (recipes.index(search.recipe), search.scale, _by_size(search)))


def machines(found: Iterable[OnMachine]) -> list[str]:
    """The names of the machines, counts ascending; those of several nodes, or of limited memory, come last."""
    return list(dict.fromkeys(one.machine for one in sorted(found, key=_by_size)))


def _by_size(one: OnMachine) -> tuple[str, int, int, int]:
    return one.device, one.nodes, one.memory_limit or 0, one.count


def _by_settings(trial: Record) -> tuple[int, bool]:
    """What is none of the search's comes last, and of the same settings flash attention."""
    settings = Settings.parse(trial.settings)
    space = [NAIVE, *search_space(trial.world)]
    return space.index(settings.base) if settings.base in space else len(space), settings.attention != "sdpa"
