"""Training steps and days, derived from the raw times of a record.

True days come from device time: the time that a user waits. The authors' clock is the paper's: host time without
synchronisation, which ends when the last kernel is launched.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median

from .formats import SECONDS_A_DAY
from .paper.gpus import Gpu, peak_flops
from .record import Derived, Record, Times


@dataclass(frozen=True)
class StepTimes:
    """Seconds of each round's parts on one rank: a micro-step `without` gradient reduction, which adds to existing
    gradients; one `with_` reduction, which starts from none; and an update."""

    no_reduce: tuple[float, ...]
    reduce: tuple[float, ...]
    update: tuple[float, ...]

    @classmethod
    def of(cls, times: Times) -> StepTimes:
        """Build from a record's raw times. `without` is empty where only the authors' sequence was timed."""
        return cls(tuple(times.get("without", ())), tuple(times["with"]), tuple(times["update"]))

    def plus(self, seconds: dict[str, float] | None) -> StepTimes:
        """Return a copy whose parts take so many seconds longer, by the names of the raw times."""
        if seconds is None:
            return self
        parts = (("without", self.no_reduce), ("with", self.reduce), ("update", self.update))
        return StepTimes(*(tuple(time + seconds[name] for time in times) for name, times in parts))


def authors_step(host: StepTimes, accumulation: int) -> float:
    """Return the seconds of a training step as the authors compute it: the mean time of micro-steps that all reduce, on
    the host's unsynchronised clock, times the accumulation steps, plus the mean update (their step_time.py, v1.0.0)."""
    return mean(host.reduce) * accumulation + mean(host.update)


def true_steps(device: list[StepTimes], accumulation: int) -> list[float]:
    """Return the seconds of a training step in each round, as a user would wait for it; the slowest rank counts.

    All but one of a step's micro-steps add to existing gradients and, where the settings allow it, all but one do not
    reduce. The sum counts both in the same way, whichever micro-step comes first.
    """
    return [
        max(
            (accumulation - 1) * parts.no_reduce[number] + parts.reduce[number] + parts.update[number]
            for parts in device
        )
        for number in range(len(device[0].update))
    ]


def true_step(device: list[StepTimes], accumulation: int) -> float:
    """Return the median round of `true_steps`, in seconds."""
    return median(true_steps(device, accumulation))


def days_of_steps(step_seconds: float, training_steps: int) -> float:
    """Return the days that all training steps take."""
    return step_seconds * training_steps / SECONDS_A_DAY


def utilisation(flops_per_step: float, step_seconds: float, count: int, peak: float) -> float:
    """Return the model FLOPs utilisation: FLOP/s that the model's mathematics needs, over the peak of `count` GPUs."""
    return flops_per_step / step_seconds / (count * peak)


def derive(record: Record, gpu: Gpu | None) -> Derived:
    """Return the derived values, steps in seconds. `gpu` is the device's catalogue entry; without one `utilisation` is
    None.

    The record must have an accumulation and the raw times of every rank. Raise KeyError, IndexError or ValueError where
    the raw times are incomplete.
    """
    accumulation, compared = record.batch.accumulation, record.batch.compared_accumulation
    assert accumulation is not None
    assert compared is not None
    (recipe, settings), raw = record.recipe_and_settings, record.times
    host, device, synchronised = (
        [StepTimes.of(times).plus(record.communication).plus(record.sharing) for times in clock]
        for clock in (raw.host, raw.device_times, raw.synchronised)
    )
    authors = authors_step(host[0], compared)
    true = true_step(device, accumulation)
    waited = true_step(synchronised, accumulation)
    peak = peak_flops(gpu, settings.precision_of(recipe.precision), record.as_run.in_tf32)
    flops, count = recipe.flops_per_example * recipe.batch_size, record.world
    watts = _step_watts(record, device, accumulation)
    return Derived(
        step_rounds=true_steps(device, accumulation),
        authors_step=authors,
        true_step=true,
        synchronised_step=waited,
        authors_days=days_of_steps(authors, recipe.training_steps),
        true_days=days_of_steps(true, recipe.training_steps),
        synchronised_days=days_of_steps(waited, recipe.training_steps),
        examples_per_second=recipe.batch_size / true,
        utilisation=utilisation(flops, true, count, peak) if peak else None,
        joules_per_step=sum(watts) * true if watts and len(watts) == count else None,
    )


def _step_watts(record: Record, device: list[StepTimes], accumulation: int) -> list[float]:
    """Return the mean power of each GPU whose power is known in a training step, which has other shares of the parts
    than the rounds have. A part whose own power is unknown takes that of all rounds."""
    parts_of_rank = record.observed.part_power or [{}] * len(device)
    found = []
    for all_rounds, own, times in zip(record.observed.mean_power or (), parts_of_rank, device, strict=False):
        if all_rounds is None:
            continue
        parts = {"without": times.no_reduce, "with": times.reduce, "update": times.update}
        seconds = {name: median(each) for name, each in parts.items()}
        seconds["without"] *= accumulation - 1
        joules = sum(own.get(name, all_rounds) * each for name, each in seconds.items())
        found.append(joules / sum(seconds.values()))
    return found
