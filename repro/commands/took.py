"""`repro predict --took`: whether the speed that a user measured is normal, and what explains best that it is not."""

from __future__ import annotations

from ..formats import Format
from ..models.recipe import Recipe, Text
from ..money.days import ModelDays
from ..plan.causes import causes_of
from ..plan.took import Normal, Took, explain
from ..predict.fits import Constants
from ..predict.forecast import Forecast, step_model
from ..printout import output


def answer(
    text: str, recipe: Recipe, best: Forecast, fitted: Constants, known: ModelDays, format: Format, every: bool
) -> str:
    """Return the verdict on a text such as 13.8s, for a training that is predicted as `best`."""
    assert best.step is not None
    assert known.traced is not None
    machine, settings = best.machine, best.settings
    tokens = recipe.inputs.sequence if isinstance(recipe.inputs, Text) else None
    given = Took.parse(text)
    took = given.step(recipe.batch_size, tokens, recipe.training_steps)
    model = step_model(recipe, machine, settings, fitted, known.traced)
    normal = Normal.on(machine, fitted, not settings.parts)
    found = explain(took, best.step.total, causes_of(model, best.micro_batch, fitted), normal)
    low, high = found.bounds
    batch = f"micro batch {best.micro_batch} x {best.accumulation}"
    where = f"{machine.nodes} nodes of " if machine.nodes > 1 else ""
    what = f"{recipe.name} on {where}{machine.gpus} x {machine.gpu.name}"
    notes = [
        f"Predicted with {settings.id}, {batch}, on {known.stack}: --methods naive or free-lunch chooses others.",
        f"{normal.reason[0].upper()}{normal.reason[1:]}.",
        "Each cause is this step predicted again with one thing changed; how data is loaded is not computed.",
    ]
    return output(
        found.sentence(what if given.kind == "step" else f"{what}, {given.text}"),
        found.data(),
        found.shown(),
        notes,
        format,
        every,
        verdict=found.verdict,
        likely=found.likely,
        took_seconds=took,
        predicted_seconds=found.predicted,
        normal_low_seconds=low,
        normal_high_seconds=high,
        settings=settings.id,
        micro_batch=best.micro_batch,
    )
