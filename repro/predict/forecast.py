"""Predicted days of any settings on any machine, and of all cells of Tables 1 and 4."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache

from repro import steps
from repro.console import UserError
from repro.formats import SECONDS_A_DAY, Interval
from repro.machine.support import bf16_obstacle, compiles, fits_papers_hosts
from repro.paper.arithmetic import paper_gpu, recipe_of
from repro.paper.settings import NAIVE, Settings, search_space
from repro.paper.tables import Cell

from .. import models
from ..models.recipe import Recipe, sharing
from . import descriptions, traces
from .fits import EVERYTHING, Constants, fitted_constants
from .hardware import Machine
from .launch_queue import authors_step, true_over_predicted
from .memory import Memory, largest_micro_batch, peak_memory, variant_of
from .time import Step, StepModel, TimedStep
from .traces import PAPER_STACK, Trace, Traced

NO_BF16 = "bf16 is slow or unsupported here: fp16"  # on Volta and Turing


@dataclass(frozen=True)
class Forecast:
    """The prediction for a recipe with settings on a machine. `micro_batch` 0 means that it cannot train: `reason` says
    why, and the rest is None; otherwise it says what differs from what was asked for. `step` is in seconds of a whole
    training step, `memory` in bytes of one GPU. `days` are true, `authors_days` by the authors' clock."""

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
    constants: Constants,
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
            f"GPUs{apart}: take a number that divides it, such as {sharing([recipe.batch_size], machine.world)}"
        )
    recipe, instead = _as_run(recipe, machine, settings)
    if papers_hosts and not fits_papers_hosts(recipe, settings, machine.world):
        reason = "a host of 64 GB a GPU does not hold what is offloaded"
        return Forecast(recipe.id, machine, settings, 0, reason)
    trace = trace_of(recipe, machine, settings, stack)
    allowance = constants.allowance
    if micro_batch is None:
        micro_batch = largest_micro_batch(recipe, trace, settings, machine.gpu, machine.world, allowance)
    if not micro_batch:
        return Forecast(recipe.id, machine, settings, 0, "not even a micro batch of 1 fits")
    step = StepModel(recipe, trace, settings, machine, constants.rates).step(micro_batch)
    # A CPU has no queue.
    shown = authors_step(step, constants.queue) if machine.capability else step.seconds
    days, authors_days = (steps.days_of_steps(seconds, recipe.training_steps) for seconds in (step.seconds, shown))
    # Nothing was measured with the parts of modern training.
    low, high = (None if settings.parts else constants.interval(machine)) or (1.0, 1.0)
    utilisation = None
    if machine.capability is not None:  # a CPU has no data-sheet peak, and its fp32 may be faster than fp16
        peak = machine.peak(recipe.precision, settings.free_lunch)
        flops = recipe.flops_per_example * recipe.batch_size
        utilisation = steps.utilisation(flops, step.seconds, machine.world, peak)
    return Forecast(
        recipe.id,
        machine,
        settings,
        micro_batch,
        instead,
        recipe.batch_size // (machine.world * micro_batch),
        peak_memory(recipe, trace, settings, machine.world, micro_batch, allowance),
        step.parts,
        Interval(days, days * low, days * high),
        authors_days,
        utilisation,
    )


def _as_run(recipe: Recipe, machine: Machine, settings: Settings) -> tuple[Recipe, str]:
    """Return a recipe in the precision that settings have on a machine, and what that does otherwise than asked."""
    if (precision := settings.precision_of(recipe.precision)) != recipe.precision:
        recipe = replace(recipe, precision=precision)
    if machine.capability and bf16_obstacle(recipe, machine.capability):  # what people do there
        return replace(recipe, precision="fp16"), NO_BF16
    return recipe, ""


def step_model(recipe: Recipe, machine: Machine, settings: Settings, constants: Constants, stack: Traced) -> StepModel:
    """Return the time model of a training's steps."""
    recipe, _ = _as_run(recipe, machine, settings)
    return StepModel(recipe, trace_of(recipe, machine, settings, stack), settings, machine, constants.rates)


def trace_of(recipe: Recipe, machine: Machine, settings: Settings, stack: Traced) -> Trace:
    """Return the trace of what would run there. Kernels of other packages, such as Mamba's, need a GPU."""
    if models.is_own(recipe.id):
        found = descriptions.trace_of(recipe, variant_of(settings))
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


def search(cell: Cell, constants: Constants, by_authors: bool = False) -> list[Forecast]:
    """Predict all settings that the paper tried for a cell, on its stack, the fastest first: by true days, or by the
    authors' clock, by which they chose."""
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    space = [NAIVE] if cell.table == "4" else search_space(cell.gpus)
    return ranked((forecast(recipe, machine, settings, constants) for settings in space), by_authors)


@cache
def corrected(cell: Cell, stack: Traced = PAPER_STACK) -> Forecast:
    """Predict what the paper's own choice takes on a stack: naive settings for Table 4, else Appendix J's settings and
    micro batch, or the largest micro batch that fits where that one does not. For a cell without a row in Appendix J,
    predict the best of the search.

    Of a row's readings that fit, else of all, return the fastest by the authors' clock: the paper chose by it, so that
    one ran. Where it is another than the fastest by true days, its days by that clock are 14 % off the printed ones on
    average, the other's 46 %.
    """
    row, space = cell.row, cell.readings or search_space(cell.gpus)
    found = [_at(cell, stack, settings) for settings in space]
    fitting = [each for each in found if row is None or each.micro_batch >= row.mbs]
    if row is None or not fitting:
        return ranked(found, by_authors=True)[0]
    printed = (each if each.micro_batch == row.mbs else _at(cell, stack, each.settings, row.mbs) for each in fitting)
    return ranked(printed, by_authors=True)[0]


def best_of_search(cell: Cell, stack: Traced) -> Forecast:
    """Predict the fastest settings of the whole search for a cell of Table 1, by true days."""
    return ranked(_at(cell, stack, settings) for settings in search_space(cell.gpus))[0]


@cache  # the search has the readings' settings too
def _at(cell: Cell, stack: Traced, settings: Settings, micro_batch: int | None = None) -> Forecast:
    machine, fitted = Machine(paper_gpu(cell.gpu), cell.gpus), fitted_constants()[EVERYTHING]
    return forecast(recipe_of(cell.model), machine, settings, fitted, stack, micro_batch=micro_batch)


def implied_true_days(cell: Cell, printed_days: float, stack: Traced = PAPER_STACK) -> float | None:
    """Return the true days that the printed ones imply, including what the launch queue hid from the authors' clock on
    a stack; None if nothing is predicted to train."""
    step = _printed_step(cell, stack)
    if step is None:
        return None
    authors = printed_days * SECONDS_A_DAY / step.recipe.training_steps
    factor = true_over_predicted(step, fitted_constants()[EVERYTHING].queue, authors)
    return factor * step.seconds * step.recipe.training_steps / SECONDS_A_DAY


@cache
def _printed_step(cell: Cell, stack: Traced) -> TimedStep | None:
    """Return the training step of the paper's own choice, with Appendix J's micro batch even where it does not fit
    here: the printed days are of it. None if nothing is predicted to train."""
    found, row, fitted = corrected(cell, stack), cell.row, fitted_constants()[EVERYTHING]
    if row is not None and found.micro_batch != row.mbs:
        found = ranked((_at(cell, stack, settings, row.mbs) for settings in row.readings()), by_authors=True)[0]
    if not found.feasible:
        return None
    return step_model(recipe_of(cell.model), found.machine, found.settings, fitted, stack).step(found.micro_batch)
