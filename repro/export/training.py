"""A training to export: a recipe with the best settings on a machine, measured or predicted; and what it recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..console import UserError, fits, say
from ..formats import SECONDS_A_DAY, counted, listing
from ..machine import support
from ..models.recipe import Recipe
from ..money.days import DaysAsked, ModelDays, Origin
from ..paper.settings import NAIVE, Settings
from ..predict.hardware import Machine
from ..record import OnMachine, Record
from ..run.plan import ModernMethods
from ..run.reading import Joined
from ..steps import days_of_steps
from ..validity import disturbance

SCRIPT = "train.py"


@dataclass(frozen=True)
class Training(OnMachine):
    """A recipe with settings on a machine, and how its step runs there. `step_seconds` are of a training step, true
    seconds; `source` is where they are from."""

    recipe: Recipe
    settings: Settings
    device: str
    count: int
    nodes: int
    micro_batch: int
    accumulation: int
    compiled: bool
    tf32: bool
    step_seconds: float
    origin: Origin
    source: str
    memory_limit: int | None = None

    @property
    def true_days(self) -> float:
        return days_of_steps(self.step_seconds, self.recipe.training_steps)


def measured(
    runs: Joined, model: str | None, gpu: str | None, gpus: int | None, methods: ModernMethods | None = None
) -> Training:
    """Return the fastest settings that were measured: of this model, on this GPU and number of them, None for any; with
    parts of modern training only where these are asked for. Raise UserError where there are none, or of several
    models."""
    timed = [each for each in runs.records if each.timed and each.derived.true_step and each.origin == "measured"]
    ran = [each for each in timed if not Settings.parse(each.settings).methods]
    if len(ran) < len(timed):
        say(
            f"left out {counted(len(timed) - len(ran), 'trial')} with methods of your own, which {SCRIPT} does not have"
        )
    ran = [each for each in ran if _as_asked(each, methods)]
    if methods is not None and not ran:
        raise UserError(f"{runs.name} has no trial with parts that were kept: run --methods {methods} measures them")
    found = [
        each
        for each in ran
        if model in (None, each.recipe)
        and (gpu is None or each.device == gpu or fits(gpu, each.device))
        and gpus in (None, each.world)
    ]
    if not found:
        raise UserError(f"{runs.name} has no trial of {_asked(model, gpu, gpus)} that was timed: {_had(ran, model)}")
    recipes = list(dict.fromkeys(each.recipe for each in found))
    if len(recipes) > 1:
        raise UserError(f"{runs.name} has trials of {listing(recipes)}: name one with --models")
    best = min(found, key=_preference)
    recipe, settings = best.recipe_and_settings
    return Training(
        replace(recipe, precision=settings.precision_of(recipe.precision)),
        settings,
        best.device,
        best.count,
        best.nodes,
        best.batch.micro_batch or 1,
        best.batch.accumulation or 1,
        best.as_run.compiled,
        best.as_run.in_tf32,
        best.derived.true_step or 0.0,
        "measured",
        str(runs.run_of(best).folder),
        best.memory_limit,
    )


def _as_asked(record: Record, methods: ModernMethods | None) -> bool:
    """Return whether a record has no parts or, where modern settings are asked for, parts that were kept."""
    if methods is None:
        return not Settings.parse(record.settings).parts
    return record.modern is not None and record.modern.stands(methods == "modern:exact")


def _preference(record: Record) -> tuple[bool, bool, bool, float]:
    """Order records: the paper's scale, undisturbed, with the whole memory, and the fastest first."""
    disturbed = disturbance(record) is not None
    return record.scale != "paper", disturbed, record.memory_limit is not None, record.derived.true_step or 0.0


def _asked(model: str | None, gpu: str | None, gpus: int | None) -> str:
    machine = f"{gpus or ''} {gpu or ('GPUs' if gpus else '')}".strip()
    return f"{model or 'any model'}{f' on {machine}' if machine else ''}"


def _had(records: Sequence[Record], model: str | None) -> str:
    records = [each for each in records if each.recipe == model] or records
    there = dict.fromkeys(f"{each.recipe} on {each.machine}" for each in records)
    return f"it has {listing([*there]) if there else 'none at all'}"


def fastest(recipe: Recipe, machine: Machine, asked: DaysAsked) -> Training:
    """Return the settings with the fewest days on a machine, as every answer about it has them: measured, projected or
    predicted. Raise UserError where none fit."""
    known = ModelDays(recipe.id, asked)
    known.check_runs()
    known.forecast(machine, NAIVE)  # refuses a number of GPUs that does not divide the batch
    rows = known.on_settings(machine)
    best = known.fastest(rows)
    if best is None or best.days is None or best.micro_batch is None:
        reason = next((row.forecast.reason for row in rows if row.forecast is not None), "nothing fits")
        raise UserError(f"{recipe.id} does not train on {machine.world} x {machine.gpu.called}: {reason}")
    settings = Settings.parse(best.settings)
    return Training(
        replace(recipe, precision=settings.precision_of(recipe.precision)),
        settings,
        machine.gpu.called,
        machine.gpus,
        machine.nodes,
        best.micro_batch,
        recipe.batch_size // (machine.world * best.micro_batch),
        support.compiles(recipe, settings),
        settings.free_lunch and machine.capability is not None and machine.capability >= support.SINCE,
        best.days.value * SECONDS_A_DAY / recipe.training_steps,
        best.origin,
        best.source,
    )
