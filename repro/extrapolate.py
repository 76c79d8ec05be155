"""From measured parts of a step to training steps and days, by the authors' clock and by the true one."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median

from .units import SECONDS_A_DAY


@dataclass(frozen=True)
class Parts:
    """Seconds of each round's parts on one rank: a micro-step without gradient reduction, which adds to gradients that
    are there, one with it, which finds none, and an update."""

    without: tuple[float, ...]
    with_: tuple[float, ...]
    update: tuple[float, ...]

    @classmethod
    def of(cls, times: dict[str, list[float]]) -> Parts:
        """From a record's raw times. Of the authors' sequence alone nothing is `without`."""
        return cls(tuple(times.get("without", ())), tuple(times["with"]), tuple(times["update"]))


def authors_step(host: Parts, accumulation: int) -> float:
    """Seconds of a training step as the authors reckoned it: the mean of micro-steps that all reduce, on the host's
    unsynchronised clock, times the accumulation steps, plus the mean update (their step_time.py, v1.0.0)."""
    return mean(host.with_) * accumulation + mean(host.update)


def true_steps(device: list[Parts], accumulation: int) -> list[float]:
    """Seconds of a training step, round by round, as a person would wait for it; the slowest rank decides.

    Of a step's micro-steps all but one add to gradients and, where the settings allow it, all but one do not reduce:
    these are two ways to count the same parts, whichever micro-step comes first.
    """
    return [
        max((accumulation - 1) * parts.without[number] + parts.with_[number] + parts.update[number] for parts in device)
        for number in range(len(device[0].update))
    ]


def true_step(device: list[Parts], accumulation: int) -> float:
    """The median round of `true_steps`, in seconds."""
    return median(true_steps(device, accumulation))


def days(step_seconds: float, training_steps: int) -> float:
    """Days that all training steps take."""
    return step_seconds * training_steps / SECONDS_A_DAY


def utilisation(flops_per_step: float, step_seconds: float, count: int, peak: float) -> float:
    """Model FLOPs utilisation: the FLOP/s that the model's mathematics needs over the peak of `count` GPUs."""
    return flops_per_step / step_seconds / (count * peak)
