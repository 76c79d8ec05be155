"""The best of the search space, predicted: cell by cell of the paper's tables, and for any machine."""

from __future__ import annotations

from functools import cache

from repro.expected import Cell, published_settings
from repro.findings import paper_gpu, recipe_of
from repro.recipe import Recipe
from repro.settings import NAIVE, search_space
from repro.units import SECONDS_A_DAY

from .calibration import EVERYTHING, Calibration, load
from .forecast import Forecast, forecast, ranked, trace_of
from .machine import Machine
from .queue import true_over_predicted
from .time import TimedStep, timed_step
from .traces import PAPER_STACK, Traced


def search(cell: Cell, calibration: Calibration) -> list[Forecast]:
    """Every settings that the paper tried for a cell on its stack, the fastest first by the authors' clock, as theirs
    chose."""
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    space = [NAIVE] if cell.table == "4" else search_space(cell.gpus)
    return ranked((forecast(recipe, machine, settings, calibration) for settings in space), by_authors=True)


def predicted(cell: Cell, calibration: Calibration) -> Forecast:
    """The fastest settings of a cell."""
    return search(cell, calibration)[0]


def fastest(recipe: Recipe, machine: Machine, stack: Traced) -> Forecast:
    """The fastest settings on any machine, by one stack's traces."""
    fitted = load()[EVERYTHING]
    return ranked(forecast(recipe, machine, each, fitted, stack) for each in search_space(machine.world))[0]


@cache
def corrected(cell: Cell) -> Forecast:
    """A cell on the paper's stack with Appendix J's settings and micro batch, naive ones in Table 4. Of a row that has
    several readings the fastest by the authors' clock; of a cell that has no row the best of the search."""
    fitted = load()[EVERYTHING]
    row = {row.place: row for row in published_settings()}.get(cell.place)
    if cell.table == "4" or row is None:
        return predicted(cell, fitted)
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    readings = (forecast(recipe, machine, each, fitted, micro_batch=row.mbs) for each in row.readings())
    return ranked(readings, by_authors=True)[0]


def implied_true_days(cell: Cell, printed_days: float) -> float | None:
    """The true days that the printed ones imply, by what the launch queue hid of them from the authors' clock; None
    where nothing is predicted to train."""
    step = _corrected_step(cell)
    if step is None:
        return None
    authors = printed_days * SECONDS_A_DAY / step.recipe.training_steps
    factor = true_over_predicted(step, load()[EVERYTHING].queue, authors)
    return factor * step.seconds * step.recipe.training_steps / SECONDS_A_DAY


@cache
def _corrected_step(cell: Cell) -> TimedStep | None:
    """The training step of `corrected`; None where nothing is predicted to train."""
    found, rates = corrected(cell), load()[EVERYTHING].rates
    if not found.feasible:
        return None
    recipe = recipe_of(cell.model)
    trace = trace_of(recipe, found.machine, found.settings, PAPER_STACK)
    return timed_step(recipe, trace, found.settings, found.machine, found.micro_batch, rates)
