"""The best of the search space, predicted: cell by cell of the paper's tables, and for any machine."""

from __future__ import annotations

from dataclasses import replace

from repro.expected import Cell, published_settings
from repro.findings import paper_gpu, recipe_of
from repro.recipe import Recipe
from repro.settings import NAIVE, search_space

from .calibration import EVERYTHING, Calibration, load
from .forecast import Forecast, forecast, ranked
from .machine import Machine
from .queue import implied_true_days
from .traces import Traced


def search(cell: Cell, calibration: Calibration) -> list[Forecast]:
    """Every settings that the paper tried for a cell, fastest first, as predicted on the paper's stack."""
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    space = [NAIVE] if cell.table == "4" else search_space(cell.gpus)
    return ranked(forecast(recipe, machine, settings, calibration) for settings in space)


def predicted(cell: Cell, calibration: Calibration) -> Forecast:
    """The fastest settings of a cell."""
    return search(cell, calibration)[0]


def fastest(recipe: Recipe, machine: Machine, stack: Traced) -> Forecast:
    """The fastest settings on any machine, by one stack's traces."""
    fitted = load()[EVERYTHING]
    return ranked(forecast(recipe, machine, each, fitted, stack) for each in search_space(machine.world))[0]


def corrected(cell: Cell) -> Forecast:
    """A placeholder: Appendix J's settings at its micro batch, by a model of what is printed, without the queue."""
    fitted = load()[EVERYTHING]
    rows = {row.place: row for row in published_settings()}
    if cell.table == "4" or cell.place not in rows:
        found = predicted(cell, fitted)
    else:
        machine = Machine(paper_gpu(cell.gpu), cell.gpus)
        readings = rows[cell.place].readings()
        found = ranked(forecast(recipe_of(cell.model), machine, each, fitted) for each in readings)[0]
    if found.days is None:
        return found
    printed = found.days.value
    factor = (implied_true_days(cell, printed) or printed) / printed if cell.table == "4" or cell.place in rows else 1.0
    return replace(found, days=found.days * factor, authors_days=printed)
