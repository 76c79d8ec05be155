"""Models of one's own in a command's words, and their registration at its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

from .. import formats, models
from ..console import UserError, say
from ..models import custom
from ..models import specification as specifications
from ..models.custom import CustomModel
from ..models.recipe import Text
from ..models.specification import KEYS, SPELLINGS, Specification, is_specification, left_out
from ..options import Options, argument, option

Asked = TypeVar("Asked", bound=Options)
_OWN = f"or your own, {SPELLINGS}, and its numbers, as @tokens=20B,batch=256: see docs/own-model.md"
_NOW = {f"--{field.replace('_', '-')}": key for key, (field, _) in KEYS.items()}


def models_option(help: str) -> Any:
    """Declare --models."""
    return option(f"{help}; {_OWN}", "ID,...")


def model_argument(help: str) -> Any:
    """Declare MODEL, which may be left out."""
    return argument(f"{help}; {_OWN}", "MODEL", lambda text, option: models.typed(text), nargs="?")


def refuse_old(words: Sequence[str]) -> None:
    """Raise UserError, which gives the word to write, for options of older versions on a model of one's own."""
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    asked = {option: value for option, value in pairwise([*parts, "N"]) if option in _NOW}
    if asked:
        old = " ".join(f"{option} {value}" for option, value in asked.items())
        it = "it" if len(asked) == 1 else "them"
        model = next((each for each in parts if "," not in each and is_specification(each)), "hf:llama.json")
        numbers = ",".join(f"{_NOW[option]}={value}" for option, value in asked.items())
        raise UserError(f"{old}: write {it} behind the model: {model}{',' if '@' in model else '@'}{numbers}")


def register(asked: Asked) -> Asked:
    """Register the models of one's own that --models or MODEL names, and return the options with their ids in place of
    their texts. Print a line on each to stderr. Raise UserError for the first thing that is wrong with them."""
    name = next((name for name in ("models", "model") if getattr(asked, name, None) is not None), None)
    if name is None:
        return asked
    return replace(asked, **{name: ",".join(map(_registered, specifications.split(getattr(asked, name))))})


def _registered(text: str) -> str:
    """Return the id of a model, which is registered if it is one's own."""
    place, numbers = specifications.divided(text)
    if not is_specification(text):
        if numbers:
            raise UserError(f"{text}: expected a model of your own before the @: {SPELLINGS}")
        return text
    from ..predict.descriptions import describe

    specification = specifications.specification(text)
    if specification.source != "python":
        specifications.missing(place, specification.fields)
    found = describe(specification)
    custom.register(found, partial(describe, specification, tiny=True))
    say(_summary(found, specification))
    return found.paper.id


def _summary(found: CustomModel, specification: Specification) -> str:
    """Return a line on a model, with the defaults that were taken and with what of it was left out."""
    recipe, described, given = found.recipe("paper"), found.paper, specification.fields
    inputs, frozen = recipe.inputs, described.frozen.weights
    ignored = left_out(specification.config) if specification.source == "transformers" else []
    sized = (
        f"sequence {inputs.sequence}{_default(given.sequence, 'its own')}"
        if isinstance(inputs, Text)
        else f"images of {inputs.size} x {inputs.size}{_default(given.image_size, 'its own')}"
    )
    optimizer = f"{recipe.optimizer.name}{_default(given.optimizer)}"
    return (
        f"{recipe.id}: {recipe.name}, {described.built + ', ' if described.built else ''}"
        f"{recipe.parameters / 1e9:.3g} B weights, {recipe.flops_per_example:.4g} FLOPs an "
        f"example; {optimizer}, {recipe.precision}{_default(given.precision)}, {sized}; shards "
        f"and checkpoints {' and '.join(recipe.layers)}; {recipe.training_steps:,} steps of "
        f"{recipe.batch_size:,}"
        + (f"; {_millions(frozen)} weights take no part, and are frozen" if frozen else "")
        + ("; its scan runs without mamba-ssm's kernel" if described.slow_scan else "")
        + (f"; left out of its configuration, as no part of the model: {', '.join(ignored)}" if ignored else "")
    )


def _millions(weights: int) -> str:
    return f"{formats.significant(weights / 1e6, 2)} M" if weights >= 5e4 else f"{weights:,}"


def _default(given: object, otherwise: str = "default") -> str:
    return "" if given else f" ({otherwise})"
