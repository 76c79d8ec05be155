"""A prediction: settings on a machine, the largest micro batch, peak memory, step time, days, and how sure they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro import extrapolate
from repro.errors import UserError
from repro.interval import Interval
from repro.recipe import Recipe
from repro.rules import bf16_obstacle, fits_papers_hosts
from repro.settings import Settings

from . import traces
from .calibration import Calibration
from .machine import Machine
from .memory import Memory, largest_micro_batch, peak_memory, variant_of
from .time import Step, step
from .traces import Trace, Traced


@dataclass(frozen=True)
class Forecast:
    """Predicted for a recipe under settings on a machine. `micro_batch` 0 means that it cannot train, which `reason`
    explains, and leaves the rest None. Step in seconds of a whole training step, memory in bytes of one GPU."""

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
    def bounds(self) -> tuple[float, float] | None:
        """Days between which 8 of 10 unseen cells of the paper lay; None where it has no such machine."""
        return (self.days.low, self.days.high) if self.days and self.machine.held_out else None


def forecast(
    recipe: Recipe,
    machine: Machine,
    settings: Settings,
    calibration: Calibration,
    stack: Traced = traces.PAPER_STACK,
    papers_hosts: bool = True,
) -> Forecast:
    """Predicts settings, at the largest micro batch that fits. With `papers_hosts` a host holds 64 GB a GPU of what is
    offloaded, as the paper's jobs had; of others nothing is known, and all fits.

    Raises UserError for a batch that does not divide among the GPUs.
    """
    if recipe.batch_size % machine.world:
        apart = f" ({machine.nodes} nodes of {machine.gpus})" if machine.nodes > 1 else ""
        raise UserError(
            f"the replication batch of {recipe.name}, {recipe.batch_size}, does not divide by {machine.world} "
            f"GPUs{apart}: take a number that divides it, such as 1, 2, 4 or 8"
        )
    obstacle = bf16_obstacle(recipe, machine.capability) if machine.capability else None
    if obstacle is not None:
        return Forecast(recipe.id, machine, settings, 0, obstacle.reason)
    if papers_hosts and not fits_papers_hosts(recipe, settings, machine.world):
        full = "a host of 64 GB a GPU does not hold what is offloaded"
        return Forecast(recipe.id, machine, settings, 0, full)
    trace = trace_of(recipe, machine, settings, stack)
    allowance = calibration.allowance
    micro_batch = largest_micro_batch(recipe, trace, settings, machine.gpu, machine.world, allowance)
    if not micro_batch:
        return Forecast(recipe.id, machine, settings, 0, "not even a micro batch of 1 fits")
    taken = step(recipe, trace, settings, machine, micro_batch, calibration.rates)
    days = extrapolate.days(taken.total, recipe.training_steps)
    low, high = calibration.interval(machine)
    utilisation = None
    if machine.capability is not None:  # a CPU has no peak of a data sheet, and its fp32 may outrun its fp16
        peak = machine.peak(recipe.precision, settings.free_lunch)
        flops = recipe.flops_per_example * recipe.batch_size
        utilisation = extrapolate.utilisation(flops, taken.total, machine.world, peak)
    return Forecast(
        recipe.id,
        machine,
        settings,
        micro_batch,
        "",
        recipe.batch_size // (machine.world * micro_batch),
        peak_memory(recipe, trace, settings, machine.world, micro_batch, allowance),
        taken,
        Interval(days, days * low, days * high),
        utilisation=utilisation,
    )


def trace_of(recipe: Recipe, machine: Machine, settings: Settings, stack: Traced) -> Trace:
    """The trace of what would run there. Mamba's custom kernels need a GPU."""
    on_cpu = recipe.family == "mamba" and machine.capability is None
    return traces.find(recipe.id, "naive" if on_cpu else variant_of(settings), stack, recipe.scale)


def ranked(forecasts: Iterable[Forecast]) -> list[Forecast]:
    """Fastest first, what does not fit last."""
    return sorted(forecasts, key=lambda found: found.days.value if found.days else float("inf"))
