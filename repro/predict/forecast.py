"""Predicted days of any settings on any machine, and of all cells of Tables 1 and 4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from repro import record
from repro.console import UserError
from repro.formats import SECONDS_A_DAY, Interval
from repro.machine.support import bf16_obstacle, compiles, fits_papers_hosts
from repro.paper.arithmetic import paper_gpu, recipe_of
from repro.paper.settings import NAIVE, Settings, search_space
from repro.paper.tables import Cell, published_settings

from .. import models
from ..models.recipe import Recipe
from . import own, traces
from .calibration import EVERYTHING, Calibration, calibrations
from .hardware import Machine
from .launch_queue import authors_step, true_over_predicted
from .memory import Memory, largest_micro_batch, peak_memory, variant_of
from .time import Step, StepModel, TimedStep
from .traces import PAPER_STACK, Trace, Traced


@dataclass(frozen=True)
class Forecast:
    """The prediction for a recipe with settings on a machine. `micro_batch` 0 means that it cannot train: `reason` says
    why, and the rest is None. `step` is in seconds of a whole training step, `memory` in bytes of one GPU. `days` are
    true, `authors_days` by the authors' clock."""

    recipe: str
    machine: Machine
    settings: Settings
    micro_batch: int
    reason: str = ""
    accumulation: int | None = None
    memory: Memory | None = None
    step: Step | None = None
    days: Interval | None = None
    authors_days: float | None = None
    utilisation: float | None = None

    @property
    def feasible(self) -> bool:
        return self.micro_batch > 0

    @property
    def authors_interval(self) -> Interval | None:
        """Return the days by the authors' clock, with the relative bounds of the true days."""
        if self.days is None or self.authors_days is None:
            return None
        return self.days * (self.authors_days / self.days.value)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the days between which 8 of 10 unseen measurements lie; None for a machine, or settings, unlike all
        that were measured."""
        known = self.days is not None and self.days.low < self.days.high
        return (self.days.low, self.days.high) if self.days and known else None


def forecast(
    recipe: Recipe,
    machine: Machine,
    settings: Settings,
    calibration: Calibration,
    stack: Traced = traces.PAPER_STACK,
    papers_hosts: bool = True,
    micro_batch: int | None = None,
) -> Forecast:
    """Predict settings at a micro batch, or at the largest that fits. With `papers_hosts`, a host has 64 GB per GPU for
    what is offloaded, as in the paper's jobs; without, the host is unknown, and everything is assumed to fit.

    Raise UserError for a batch that does not divide among the GPUs.
    """
    if recipe.batch_size % machine.world:
        apart = f" ({machine.nodes} nodes of {machine.gpus})" if machine.nodes > 1 else ""
        raise UserError(
            f"the replication batch of {recipe.name}, {recipe.batch_size}, does not divide by {machine.world} "
            f"GPUs{apart}: take a number that divides it, such as 1, 2, 4 or 8"
        )
    recipe = replace(recipe, precision=settings.precision_of(recipe.precision))
    obstacle = bf16_obstacle(recipe, machine.capability) if machine.capability else None
    if obstacle is not None:
        return Forecast(recipe.id, machine, settings, 0, obstacle.reason)
    if papers_hosts and not fits_papers_hosts(recipe, settings, machine.world):
        full = "a host of 64 GB a GPU does not hold what is offloaded"
        return Forecast(recipe.id, machine, settings, 0, full)
    trace = trace_of(recipe, machine, settings, stack)
    allowance = calibration.allowance
    if micro_batch is None:
        micro_batch = largest_micro_batch(recipe, trace, settings, machine.gpu, machine.world, allowance)
    if not micro_batch:
        return Forecast(recipe.id, machine, settings, 0, "not even a micro batch of 1 fits")
    step = StepModel(recipe, trace, settings, machine, calibration.rates).step(micro_batch)
    # A CPU has no queue.
    shown = authors_step(step, calibration.queue) if machine.capability else step.seconds
    days, authors_days = (record.days_of_steps(seconds, recipe.training_steps) for seconds in (step.seconds, shown))
    # Nothing was measured with the parts of modern training.
    low, high = (None if settings.parts else calibration.interval(machine)) or (1.0, 1.0)
    utilisation = None
    if machine.capability is not None:  # a CPU has no data-sheet peak, and its fp32 may be faster than fp16
        peak = machine.peak(recipe.precision, settings.free_lunch)
        flops = recipe.flops_per_example * recipe.batch_size
        utilisation = record.utilisation(flops, step.seconds, machine.world, peak)
    return Forecast(
        recipe.id,
        machine,
        settings,
        micro_batch,
        "",
        recipe.batch_size // (machine.world * micro_batch),
        peak_memory(recipe, trace, settings, machine.world, micro_batch, allowance),
        step.parts,
        Interval(days, days * low, days * high),
        authors_days,
        utilisation,
    )


def trace_of(recipe: Recipe, machine: Machine, settings: Settings, stack: Traced) -> Trace:
    """Return the trace of what would run there. Kernels of other packages, such as Mamba's, need a GPU."""
    if models.is_own(recipe.id):
        found = own.trace_of(recipe, variant_of(settings))
    else:
        on_cpu = recipe.kernels is not None and machine.capability is None
        found = traces.find(recipe.id, "naive" if on_cpu else variant_of(settings), stack, recipe.scale)
    if not settings.parts:
        return found
    from .parts import adapted

    return adapted(recipe, found, settings.parts, compiles(recipe, settings))


def ranked(forecasts: Iterable[Forecast], by_authors: bool = False) -> list[Forecast]:
    """Sort by true days or by the authors' clock, the fastest first, those that do not fit last."""

    def days(found: Forecast) -> float:
        if found.days is None or found.authors_days is None:
            return float("inf")
        return found.authors_days if by_authors else found.days.value

    return sorted(forecasts, key=days)


def search(cell: Cell, calibration: Calibration) -> list[Forecast]:
    """Predict all settings that the paper tried for a cell, on its stack, the fastest first by the authors' clock, by
    which they chose."""
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    space = [NAIVE] if cell.table == "4" else search_space(cell.gpus)
    return ranked((forecast(recipe, machine, settings, calibration) for settings in space), by_authors=True)


def predicted(cell: Cell, calibration: Calibration) -> Forecast:
    """Predict the fastest settings of a cell."""
    return search(cell, calibration)[0]


def fastest(recipe: Recipe, machine: Machine, stack: Traced) -> Forecast:
    """Predict the fastest settings on any machine, by one stack's traces."""
    fitted = calibrations()[EVERYTHING]
    return ranked(forecast(recipe, machine, each, fitted, stack) for each in search_space(machine.world))[0]


@cache
def corrected(cell: Cell) -> Forecast:
    """Predict a cell on the paper's stack with Appendix J's settings and micro batch; naive ones for Table 4. Return
    the fastest reading of a row by the authors' clock; for a cell without a row, the best of the search."""
    fitted = calibrations()[EVERYTHING]
    row = {row.place: row for row in published_settings()}.get(cell.place)
    if cell.table == "4" or row is None:
        return predicted(cell, fitted)
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    readings = (forecast(recipe, machine, each, fitted, micro_batch=row.mbs) for each in row.readings())
    return ranked(readings, by_authors=True)[0]


def implied_true_days(cell: Cell, printed_days: float) -> float | None:
    """Return the true days that the printed ones imply, including what the launch queue hid from the authors' clock;
    None if nothing is predicted to train."""
    step = _corrected_step(cell)
    if step is None:
        return None
    authors = printed_days * SECONDS_A_DAY / step.recipe.training_steps
    factor = true_over_predicted(step, calibrations()[EVERYTHING].queue, authors)
    return factor * step.seconds * step.recipe.training_steps / SECONDS_A_DAY


@cache
def _corrected_step(cell: Cell) -> TimedStep | None:
    """Return the training step of `corrected`; None if nothing is predicted to train."""
    found, rates = corrected(cell), calibrations()[EVERYTHING].rates
    if not found.feasible:
        return None
    recipe = recipe_of(cell.model)
    trace = trace_of(recipe, found.machine, found.settings, PAPER_STACK)
    return StepModel(recipe, trace, found.settings, found.machine, rates).step(found.micro_batch)
