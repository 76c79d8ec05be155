"""Decoders that are described by their dimensions: what their traces say, computed without torch.

Each cost of a decoder's layer, and of what is around its layers, is a polynomial of its dimensions, which
`python -m tools.decoders` fits to traces of small decoders of the same family.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from repro import files
from repro.console import UserError

from ..models import shipped
from ..models.custom import CustomModel
from ..models.decoders import FAMILIES, Dimensions, recognised
from ..models.recipe import Text
from ..models.specification import Fields, Specification, of_popular, training
from .traces import FOLDER, Block, Linear, Trace, Traced, Variant

FILE = FOLDER / "decoders.json"


# Products of a decoder's dimensions; q and k are the widths of all queries, and of all keys.
_OF_WEIGHTS: dict[str, Callable[[Dimensions], float]] = {
    "1": lambda d: 1,
    "h": lambda d: d.width,
    "q": lambda d: d.heads * d.head,
    "k": lambda d: d.keys * d.head,
    "f": lambda d: d.feedforward,
    "v": lambda d: d.vocabulary,
    "a": lambda d: d.heads,
    "d": lambda d: d.head,
    "hq": lambda d: d.width * d.heads * d.head,
    "hk": lambda d: d.width * d.keys * d.head,
    "hf": lambda d: d.width * d.feedforward,
    "hv": lambda d: d.width * d.vocabulary,
}
_OF_SQUARES = ("1", "a", "q")
MONOMIALS = (*_OF_WEIGHTS, *(f"s{name}" for name in _OF_WEIGHTS), *(f"ss{name}" for name in _OF_SQUARES))


def monomials(asked: Dimensions) -> list[float]:
    """Return the values of MONOMIALS."""
    alone = [value(asked) for value in _OF_WEIGHTS.values()]
    squares = [_OF_WEIGHTS[name](asked) for name in _OF_SQUARES]
    tokens = asked.sequence
    return [*alone, *(tokens * value for value in alone), *(tokens**2 * value for value in squares)]


@cache
def _fitted() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files.read(FILE))
    return found


def stack() -> Traced:
    """Return the stack of the traces that the polynomials were fitted to."""
    return Traced(**_fitted()["stack"])


@dataclass(frozen=True)
class Decoder:
    """A decoder of a family, whose output shares the weights of the embedding if it is `tied`."""

    family: str
    tied: bool
    dimensions: Dimensions

    def _costs(self, variant: Variant, part: str) -> dict[str, Linear]:
        values = dict(zip(MONOMIALS, monomials(self.dimensions), strict=True))
        fitted = _fitted()["families"][self.family]["tied" if self.tied else "untied"][variant][part]
        found = {}
        for key, coefficients in fitted.items():
            fixed, each = (sum(values[name] * pair[at] for name, pair in coefficients.items()) for at in (0, 1))
            found[key] = Linear(fixed, each)
        return found

    def trace(self, recipe: str, variant: Variant) -> Trace:
        """Return the costs of a micro-step as a trace has them."""
        layers = self.dimensions.layers
        parts = (
            Block("rest", 1, 1, self._costs(variant, "rest")),
            Block("layer0", layers, layers, self._costs(variant, "layer")),
        )
        return Trace(recipe, "paper", variant, stack(), parts)

    @property
    def parameters(self) -> int:
        """Return the number of weights."""
        return round(self.trace("", "custom").parameters)

    @property
    def flops(self) -> int:
        """Return the FLOPs of an example, forward and backward: those of matrix products, of attention over the whole
        square."""
        d = self.dimensions
        queries, keys = d.heads * d.head, d.keys * d.head
        products = 2 if self.family == "gpt2" else 3  # of the feed-forward part
        layer = d.width * (2 * queries + 2 * keys + products * d.feedforward)
        tokens = 2 * d.sequence * (d.layers * layer + d.width * d.vocabulary)
        return 3 * (tokens + 4 * d.layers * d.sequence**2 * queries)


def description(asked: Specification) -> CustomModel | None:
    """Return the recipe of a decoder that a specification describes, computed; None where no family has it."""
    config, given = asked.config, asked.fields
    most = config.get("max_position_embeddings") or config.get("n_positions")
    sequence = given.sequence or most
    if not isinstance(sequence, int) or given.flops_per_example is not None or given.precision == "fp32":
        return None
    found = recognised(config, sequence)
    if found is None:
        return None
    if isinstance(most, int) and sequence > most:
        raise UserError(f"{asked.text}: sequence={sequence}: the model has {most} positions; name at most these")
    decoder = Decoder(*found)
    like = shipped.description(of_popular(FAMILIES[decoder.family].like, Fields()))
    assert like is not None
    inputs = Text(sequence, decoder.dimensions.vocabulary)
    return CustomModel(
        replace(
            like.paper,
            id=asked.id,
            name=asked.stem,
            text=inputs,
            width=decoder.dimensions.width,
            parameters=decoder.parameters,
            flops_per_example=decoder.flops,
            config=config,
            compiles=True if given.compiles is None else given.compiles,
            **training(asked.text, given, inputs),
        ),
        specification=asked,
    )


def decoder_of(model: CustomModel | None) -> Decoder | None:
    """Return the decoder that a model is; None for a model that no family has, or one that runs in fp32."""
    if model is None or model.paper.config is None or model.paper.text is None or model.paper.precision == "fp32":
        return None
    found = recognised(model.paper.config, model.paper.text.sequence)
    return None if found is None else Decoder(*found)
