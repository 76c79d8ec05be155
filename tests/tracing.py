"""What ranks run for the tests of traces, called by name. What a function returns is JSON."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import models
from repro.errors import UserError
from repro.measure.engine.base import _checkpoint
from repro.measure.rank import Rank
from repro.predict import trace as tracing
from repro.predict import traces
from repro.predict.record import record


def extrapolated_and_whole(
    rank: Rank, recipe: str, variant: traces.Variant, depths: list[int], examples: int
) -> dict[str, list[float]]:
    """Every cost of a model, from two depths and two micro batches, and from a record of all its layers."""
    described = models.find(recipe)
    short = tracing.trace(described, variant, tuple(depths))
    whole = tracing.whole(described, variant, examples, tuple(depths))
    found = {key: [short.total(key).at(examples), value] for key, value in whole.items()}
    for side in ("head", "body"):
        found[side][0] = short.rest.cost(side).at(examples) + short.total("saved").at(examples)
    return found


def checkpointed_saved(rank: Rank, recipe: str, depth: int, examples: int) -> dict[str, float]:
    """Bytes saved for the backward pass by a model whose layers are really checkpointed."""
    described = models.find(recipe)
    model = tracing._meta(described, "custom")
    module = tracing._cut(model, described, (depth,))
    _checkpoint(module, described.layer)

    def build() -> tuple[nn.Module, dict[str, torch.Tensor]]:
        tracing._make_real(module, None)
        return module, tracing._batch(described, examples, None, None)

    with tracing.patched(*tracing._patches(described, "custom")):
        recording = record(build, described.layer, torch.float16)
    return {"saved": recording.saved, "peak": max(recording.head, recording.body)}


def traced_again(rank: Rank, recipe: str, variant: traces.Variant) -> list[dict[str, Any]]:
    """A trace made here, and the one that is shipped for these packages, None where there is none."""
    made = tracing.trace(models.find(recipe), variant)
    version = made.stack["transformers"]
    known = traces.load(version)[made.recipe, made.scale, made.variant] if version in traces.shipped() else None
    if known is not None and known.stack != made.stack:
        known = None
    return [traces._plain(made), traces._plain(known) if known else None]  # type: ignore[list-item]


def what_cannot_be_traced(rank: Rank) -> str:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (self.weight * x).sum() * x.sum().item()

    try:
        record(lambda: (Reads(), {"x": torch.empty(4)}), "Reads", None)
    except UserError as error:
        return str(error)
    return "traced"
