"""What is shipped of the popular models, so that predicting them needs no torch: `python -m tools.popular` makes it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from repro.datafile import from_json, load

from . import popular
from .custom import CustomModel, Described
from .recipe import Recipe
from .specification import Fields, Specification, of_popular, training

DESCRIBED = popular.FOLDER / "described" / "models.json"  # without the configurations, which are beside them


@cache
def described() -> dict[str, Described]:
    found: dict[str, Any] = load(DESCRIBED)
    return {id: from_json(Described, each) for id, each in found.items()}


def name_of(asked: Specification) -> str | None:
    """Return the id of the popular model that a specification is, where what was shipped of it holds: its sequence,
    images and precision are the default ones."""
    known = popular.listed().get(asked.text)
    if known is None:
        return None
    changed = ("sequence", "image_size", "precision", "flops_per_example", "compiles")
    same = all(getattr(asked.fields, name) == known.given.get(name) for name in changed)
    return known.id if same else None


def description(asked: Specification) -> CustomModel | None:
    """Return the recipe of a popular model, from what was shipped of it; None where it is none, or other inputs or
    another precision were asked for."""
    id = name_of(asked)
    if id is None:
        return None
    known = described()[id]
    inputs = known.text or known.images
    assert inputs is not None
    size = {} if known.images is None else {"image_size": known.images.size}
    found = replace(known, id=asked.id, config=asked.config | size, **training(asked.text, asked.fields, inputs))
    return CustomModel(found, specification=asked)


def recipe(id: str) -> Recipe:
    """Return the recipe of a popular model with its default training."""
    found = description(of_popular(id, Fields()))
    assert found is not None
    return found.recipe("paper")
