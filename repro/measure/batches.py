"""Random batches for a recipe's model, and their way to the device."""

from __future__ import annotations

import torch

from ..models.recipe import Generation, Recipe, Text
from .jobs import SEED
from .rank import Rank


def random_batch(recipe: Recipe, examples: int, seed: int = SEED) -> dict[str, torch.Tensor]:
    """Return `examples` examples for the recipe's model: token ids (examples, sequence) that are their own labels, or
    pixels (examples, 3, size, size) and class labels (examples,) or latents (examples, latents). On the host, in
    pageable memory."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(recipe.inputs, Text):
        ids = torch.randint(
            recipe.inputs.vocabulary,
            (examples, recipe.inputs.sequence),
            generator=generator,
            dtype=torch.long,
        )
        return {"input_ids": ids, "labels": ids.clone()}
    size = recipe.inputs.size
    pixels = torch.rand(examples, 3, size, size, generator=generator)
    if isinstance(recipe.inputs, Generation):
        return {"pixels": 2 * pixels - 1, "latents": torch.randn(examples, recipe.inputs.latents, generator=generator)}
    return {
        "pixels": pixels,
        "labels": torch.randint(recipe.inputs.classes, (examples,), generator=generator),
    }


def to_device(batch: dict[str, torch.Tensor], rank: Rank) -> dict[str, torch.Tensor]:
    """Copy a batch, blocking as the authors' loader does: it waits until the device has finished its earlier work."""
    return {name: value.to(rank.device) for name, value in batch.items()}
