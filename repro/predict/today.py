"""Predictions of modern settings: the parts that are predicted to make a step shorter, added to the fastest settings
without them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from repro.console import UserError
from repro.paper.arithmetic import paper_gpu, recipe_of
from repro.paper.settings import Settings, search_space
from repro.paper.tables import Cell, cells
from repro.parts import exact, in_order

from ..models.recipe import Recipe
from ..paper.gpus import find
from ..record import Record
from .fits import EVERYTHING, Constants, fitted_constants
from .forecast import Forecast, forecast, ranked
from .hardware import Machine
from .memory import workspace
from .parts import applicable, is_worth
from .traces import Traced, shipped

_STARTS = 3  # settings without parts, the fastest first, that parts are added to: with parts another may be faster


@dataclass(frozen=True)
class Today:
    """The fastest settings that are predicted with free lunch alone, with exact parts, and with all of them."""

    free_lunch: Forecast
    exact: Forecast
    all: Forecast

    @property
    def speed(self) -> float | None:
        """Return how many times faster all parts are predicted to be."""
        slow, fast = self.free_lunch.days, self.all.days
        return slow.value / fast.value if slow and fast else None


def today(recipe: Recipe, machine: Machine, constants: Constants, stack: Traced) -> Today:
    """Predict the fastest settings with and without parts on a machine."""

    @cache  # parts are added to several starts, and twice, so that many settings come again
    def predicted(settings: Settings) -> Forecast:
        return forecast(recipe, machine, settings, constants, stack)

    @cache
    def more(settings: Settings) -> list[tuple[str, ...]]:
        return applicable(recipe, settings, machine.world, machine.capability)

    def grown(start: Forecast, exact_only: bool) -> Forecast:
        """Add what is predicted to bring most, again and again, as long as one brings something."""
        best = start
        while best.days is not None:
            settings = best.settings
            tried = [
                predicted(replace(settings, parts=in_order([*settings.parts, *added])))
                for added in more(settings)
                if not exact_only or exact(added)
            ]
            found = ranked(tried)[0] if tried else best
            if found.days is None or not is_worth(found.days.value, best.days.value):
                break
            best = found
        return best

    usual = ranked(map(predicted, search_space(machine.world)))
    starts = [each for each in usual if each.feasible][:_STARTS] or usual[:1]
    same, every = (ranked(grown(each, only) for each in starts)[0] for only in (True, False))
    return Today(usual[0], same, every)


def peak_bytes(record: Record, micro_batch: int) -> float | None:
    """Return the bytes of tensors that a record's settings are predicted to have at their peak at a micro batch; None
    of a tiny recipe, on a CPU or an unknown GPU, and without traces of the recipe."""
    gpu = find(record.device)
    if gpu is None or record.scale != "paper":
        return None
    machine, fitted, stack = Machine(gpu, record.count), fitted_constants()[EVERYTHING], shipped()[-1]
    try:
        recipe, settings = record.recipe_and_settings
        found = forecast(recipe, machine, settings, fitted, stack, papers_hosts=False, micro_batch=micro_batch)
    except UserError:  # no trace of the recipe
        return None
    return found.memory.peak - workspace(fitted.allowance, record.count) if found.memory else None


def table_1(names: set[str]) -> list[tuple[Cell, Today]]:
    """Predict the cells of Table 1 of these models, by the newest traces, with and without parts."""
    fitted, stack = fitted_constants()[EVERYTHING], shipped()[-1]
    return [
        (cell, today(recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus), fitted, stack))
        for cell in cells("1")
        if cell.model in names
    ]


def row(found: Today) -> dict[str, Any]:
    """Return the predicted days with free lunch, with exact parts and with all, and the settings."""
    return {
        "free_lunch_days": found.free_lunch.days and found.free_lunch.days.value,
        "exact_days": found.exact.days and found.exact.days.value,
        "modern_days": found.all.days and found.all.days.value,
        "times_faster": found.speed,
        "micro_batch": found.free_lunch.micro_batch or None,
        "modern_micro_batch": found.all.micro_batch or None,
        "free_lunch_settings": found.free_lunch.settings.id if found.free_lunch.feasible else None,
        "modern_settings": found.all.settings.id if found.all.feasible else None,
    }
