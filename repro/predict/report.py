"""Predictions as rows for programs, and as tables and sentences for people. All are marked `predicted`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass
from statistics import median
from typing import Any

from repro.datafile import columns
from repro.formats import by_machine, cell_text, days_cell, days_text, listing, rough, significant, size
from repro.paper.tables import Cell
from repro.record import Record
from repro.validity import fits, larger_may_fit

from .. import models
from ..models.recipe import Text
from .fits import EVERYTHING, Constants, fitted_constants, limited
from .forecast import Forecast, forecast
from .hardware import Machine
from .memory import Memory
from .time import Step
from .traces import PAPER_STACK, Traced

SIGNS = {"measured": "m", "projected": "p", "predicted": ""}  # behind days
_MEMORY, _SECONDS = columns(Memory), columns(Step)
_TRACED = tuple(f"traced_{package}" for package in columns(Traced))


def row(each: Forecast, stack: Traced) -> dict[str, Any]:
    """Return all predicted values as a row: memory in bytes of one GPU, times in seconds of a training step."""
    memory = asdict(each.memory) if each.memory else dict.fromkeys(_MEMORY)
    seconds = asdict(each.step) if each.step else dict.fromkeys(_SECONDS)
    return {
        "origin": "predicted",
        "recipe": each.recipe,
        "model": models.find(each.recipe).name,
        "gpu": each.machine.gpu.name,
        "gpus": each.machine.gpus,
        "nodes": each.machine.nodes,
        "settings": each.settings.id,
        "feasible": each.feasible,
        "reason": each.reason,
        "micro_batch": each.micro_batch or None,
        "accumulation": each.accumulation,
        "days": each.days and each.days.value,
        "days_low": each.bounds and each.bounds[0],
        "days_high": each.bounds and each.bounds[1],
        "authors_days": each.authors_days,
        "utilisation": each.utilisation,
        "peak_memory": each.memory and each.memory.peak,
        **{f"memory_{part}": value for part, value in memory.items()},
        "step_seconds": each.step and each.step.total,
        **{f"seconds_{part}": value for part, value in seconds.items()},
        **dict(zip(_TRACED, astuple(stack), strict=True)),
    }


def line(each: Forecast) -> dict[str, Any]:
    """Return the values of a prediction that a table shows to people."""
    memory, step = each.memory, each.step
    return {
        "model": each.recipe,
        "settings": each.settings.id,
        "MBS": each.micro_batch or None,
        "predicted": _days(each.days.value if each.days else None),
        "authors' days": _days(each.authors_days),
        "of peak": None if each.utilisation is None else f"{each.utilisation:.0%}",
        "GiB": memory and memory.peak / 2**30,
        "most time": step and _longest(step),
    }


def _days(days: float | None) -> float | str | None:
    return days if days is None or days >= 1 else days_cell(days)


def speed(each: Forecast) -> str | None:
    """Return what a predicted training reads in a second: 45,000 tokens/s; None where it does not train."""
    recipe = models.find(each.recipe)
    if each.step is None:
        return None
    examples = recipe.batch_size / each.step.total
    if isinstance(recipe.inputs, Text):
        return f"{rough(examples * recipe.inputs.sequence):,.15g} tokens/s"
    return f"{rough(examples):,.15g} images/s"


def _longest(step: Step) -> str:
    """Name the part of a step that takes most of it, with its share."""
    part = max(_SECONDS, key=lambda part: getattr(step, part))
    return f"{part} {getattr(step, part) / step.total:.0%}"


def sentence(ranked: Sequence[Forecast], stack: str, known: str = "") -> str:
    """Describe the first settings of a search on a stack, what is `known` besides the prediction, and its uncertainty;
    where nothing trains, why."""
    best = ranked[0]
    nodes = f"{best.machine.nodes} nodes of " if best.machine.nodes > 1 else ""
    cell = f"{models.find(best.recipe).name} on {nodes}{best.machine.gpus} x {best.machine.gpu.name}"
    if best.days is None:
        return f"{cell}: {known}predicted infeasible with every combination of settings: {reasons(ranked)}."
    days = f"predicted {days_text(best.days.value)} ({_sure(best)})"
    if best.days.value < 1:
        days += f", {speed(best)},"
    return f"{cell}: {known}{days} with {best.settings.id}, on {stack}."


def _sure(best: Forecast) -> str:
    """Describe the interval of predicted days, or say why there is none."""
    if best.bounds:
        low, high = map(significant if best.bounds[0] >= 1 else days_text, best.bounds)
        return f"{low} to {high}"
    if best.settings.parts:
        return "no interval is known: nothing was measured on a GPU with these parts"
    errors = fitted_constants()[EVERYTHING].errors
    if best.machine.kind in errors.intervals:
        return "no interval is known: the paper measured no such machine"
    worst = f"{errors.worst_gpu}, was off by a factor of {errors.worst_factor:.2f} in the median"
    return f"no GPU of this kind was measured: of those held out the worst, {worst}"


def reasons(ranked: Sequence[Forecast]) -> str:
    """Return why settings cannot train, with counts if there are several reasons: a larger host solves only one."""
    numbers = Counter(each.reason for each in ranked if not each.feasible)
    if len(numbers) < 2:
        return "".join(numbers)
    return "; ".join(f"{reason} ({number} settings)" for reason, number in numbers.items())


def cell_row(cell: Cell, best: Forecast) -> dict[str, Any]:
    """Return a row of a cell of Table 1 or 4, and its prediction."""
    return {
        "table": cell.table,
        "model": cell.model,
        "gpu": cell.gpu,
        "gpus": cell.gpus,
        "state": cell.state,
        "printed_days": cell.days,
        "predicted_days": best.days and best.days.value,
        "predicted_days_low": best.bounds and best.bounds[0],
        "predicted_days_high": best.bounds and best.bounds[1],
        "predicted_authors_days": best.authors_days,
        "predicted_settings": best.settings.id if best.feasible else None,
        "predicted_micro_batch": best.micro_batch or None,
        "source": cell.source,
    }


def signs(origins: Iterable[str]) -> str:
    """Return a text on the signs of these origins; empty where all is predicted."""
    there = set(origins)
    return listing([f"{sign} is {origin}" for origin, sign in SIGNS.items() if sign and origin in there])


def grid(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Lay out the predicted days of cells, or those that were measured, or projected, with a sign."""

    def shown(row: dict[str, Any]) -> str:
        return "-" if row["days"] is None else f"{cell_text(row['days'], 2)}{SIGNS[row['origin']]}"

    return by_machine({(row["model"], row["gpu"], row["gpus"]): shown(row) for row in rows})


def beside_row(each: Comparison, stack: Traced) -> dict[str, Any]:
    """Return a row of a trial and its prediction."""
    forecast, record = each.forecast, each.record
    return {
        "origin": "predicted and measured",
        "recipe": record.recipe,
        "model": models.find(record.recipe).name,
        "scale": record.scale,
        "gpu": record.device,
        "gpus": forecast.machine.gpus,
        "memory_limit": record.memory_limit,
        "settings": record.settings,
        "status": record.status,
        "predicted_micro_batch": forecast.micro_batch or None,
        "measured_micro_batch": record.batch.compared_micro_batch,
        "predicted_step": forecast.step and forecast.step.total,
        "measured_step": record.derived.true_step,
        "predicted_over_measured": each.ratio,
        "predicted_authors_step": each.predicted_authors_step,
        "measured_authors_step": record.derived.authors_step,
        "inside_interval": each.inside,
        **dict(zip(_TRACED, astuple(stack), strict=True)),
    }


def beside_line(each: Comparison) -> dict[str, Any]:
    """Return the values of a trial and its prediction that a table shows to people."""
    forecast, record = each.forecast, each.record
    limit = f", {size(record.memory_limit)}" if record.memory_limit else ""
    return {
        "model": f"{record.recipe}{' (tiny)' if record.scale == 'tiny' else ''}{limit}",
        "settings": record.settings,
        "status": record.status.replace("_", " "),
        "MBS predicted": forecast.micro_batch or None,
        "MBS": record.batch.compared_micro_batch,
        "step predicted": forecast.step and forecast.step.total,
        "step measured": record.derived.true_step,
        "ratio": each.ratio,
        "inside interval": each.inside,
    }


def from_traces(stack: Traced) -> str:
    """Name the traced stack."""
    whose = ", the paper's" if stack == PAPER_STACK else ""
    versions = f"timm {stack.timm}, torch {stack.torch}"
    return f"from traces of the models of transformers {stack.transformers}{whose} ({versions})"


@dataclass(frozen=True)
class Comparison:
    """A measured trial and its prediction, at the predicted micro batch."""

    forecast: Forecast
    record: Record

    @property
    def ratio(self) -> float | None:
        """Return predicted over measured seconds of a true training step."""
        if self.forecast.step is None or self.record.derived.true_step is None:
            return None
        return self.forecast.step.total / self.record.derived.true_step

    @property
    def predicted_authors_step(self) -> float | None:
        """Return the predicted seconds of the training step by the authors' clock."""
        forecast = self.forecast
        if forecast.step is None or forecast.days is None or forecast.authors_days is None:
            return None
        return forecast.step.total * forecast.authors_days / forecast.days.value

    @property
    def inside(self) -> bool | None:
        """Return whether the measured true days are inside the predicted interval; None without days or interval."""
        bounds, measured = self.forecast.bounds, self.record.derived.true_days
        return None if bounds is None or measured is None else bounds[0] <= measured <= bounds[1]

    @property
    def feasible_as_predicted(self) -> bool:
        return self.forecast.feasible == self.record.timed


def compared_trials(
    records: Iterable[Record], device: str, machine: Machine, constants: Constants, stack: Traced
) -> list[Comparison]:
    """Predict all of the device's records on as many GPUs and nodes that ran, or ran out of memory that no other
    process used, each with its memory limit."""

    def predicted(record: Record) -> Forecast:
        recipe, settings = record.recipe_and_settings
        there, fitted = limited(machine, constants, record.memory_limit)
        return forecast(recipe, there, settings, fitted, stack, papers_hosts=False)

    return [
        Comparison(predicted(record), record)
        for record in records
        if (record.device, record.count, record.nodes) == (device, machine.gpus, machine.nodes)
        and fits(record) is not None  # no host's memory is predicted
    ]


def accuracy_text(found: Sequence[Comparison]) -> str:
    """Summarise in a sentence how accurate the predictions are."""
    ratios = [each.ratio for each in found if each.ratio is not None]
    feasible = sum(each.feasible_as_predicted for each in found)
    words = f"{feasible} of {len(found)} are feasible or not as predicted"
    if not ratios:
        return f"{words}."
    ran = [each for each in found if each.record.timed and not larger_may_fit(each.record)]
    sizes = [each.forecast.micro_batch == each.record.batch.compared_micro_batch for each in ran]
    errors = [abs(ratio - 1) for ratio in ratios]
    near, within = sum(error <= 0.25 for error in errors), sum(0.5 <= ratio <= 2 for ratio in ratios)
    inside = [each.inside for each in found if each.inside is not None]
    step = f"The predicted step is off by {median(errors):.0%} in the median; of {len(ratios)} it is within 25 %"
    parts = [f"{step} in {near}", f"within 2x in {within}"]
    if inside:
        parts.append(f"the measured days are within the interval in {sum(inside)} of {len(inside)}")
    if sizes:
        parts.append(f"the micro batch is as predicted in {sum(sizes)} of {len(sizes)}")
    return f"{', '.join([*parts, words])}."
