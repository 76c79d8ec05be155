"""Predictions beside what a run measured on the same machine: trial by trial, and how good they are in all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from repro.fairness import stands
from repro.trial import Record

from .calibration import Calibration
from .forecast import Forecast, forecast
from .here import limited
from .machine import Machine
from .traces import Traced


@dataclass(frozen=True)
class Beside:
    """A trial that was measured, and what was predicted of it, at the micro batch that was predicted."""

    forecast: Forecast
    record: Record

    @property
    def ratio(self) -> float | None:
        """Predicted over measured seconds of a true training step."""
        if self.forecast.step is None or self.record.true_step is None:
            return None
        return self.forecast.step.total / self.record.true_step

    @property
    def predicted_authors_step(self) -> float | None:
        """Seconds of the training step that the authors' clock would show."""
        forecast = self.forecast
        if forecast.step is None or forecast.days is None or forecast.authors_days is None:
            return None
        return forecast.step.total * forecast.authors_days / forecast.days.value

    @property
    def inside(self) -> bool | None:
        """Whether the measured true days lie in the prediction's interval, where it has one."""
        bounds, measured = self.forecast.bounds, self.record.true_days
        return None if bounds is None or measured is None else bounds[0] <= measured <= bounds[1]

    @property
    def feasible_as_predicted(self) -> bool:
        return self.forecast.feasible == (self.record.status == "ok")


def beside(
    records: Iterable[Record], device: str, machine: Machine, calibration: Calibration, stack: Traced
) -> list[Beside]:
    """Of all records of the device on as many nodes that ran, or ran out of memory that was all theirs, each with its
    memory limit."""

    def predicted(record: Record) -> Forecast:
        recipe, settings = record.recipe_and_settings
        there, fitted = limited(machine, calibration, record.memory_limit)
        return forecast(recipe, there, settings, fitted, stack, papers_hosts=False)

    return [
        Beside(predicted(record), record)
        for record in records
        if (record.device, record.count, record.nodes) == (device, machine.gpus, machine.nodes)
        and (record.status == "ok" or stands(record))
    ]


def told(found: Sequence[Beside]) -> str:
    """How good they are, in a sentence."""
    ratios = [each.ratio for each in found if each.ratio is not None]
    feasible = sum(each.feasible_as_predicted for each in found)
    words = f"Feasible or not as predicted: {feasible} of {len(found)}."
    if not ratios:
        return words
    ran = [each for each in found if each.record.status == "ok" and stands(each.record)]
    sizes = [each.forecast.micro_batch == each.record.compared_micro_batch for each in ran]
    errors = [abs(ratio - 1) for ratio in ratios]
    near, within = sum(error <= 0.25 for error in errors), sum(0.5 <= ratio <= 2 for ratio in ratios)
    told = [each.inside for each in found if each.inside is not None]
    step = f"The predicted step is off by {median(errors):.0%} in the median; of {len(ratios)} it is within 25 %"
    parts = [f"{step} in {near}", f"within 2x in {within}"]
    if told:
        parts.append(f"the measured days are within the interval in {sum(told)} of {len(told)}")
    if sizes:
        parts.append(f"the micro batch is as predicted in {sum(sizes)} of {len(sizes)}")
    return f"{', '.join(parts)}. {words}"
