"""Modules that take a batch and return its mean loss, the interface by which engines run all recipes."""

from inspect import signature

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves


class LanguageModelling(nn.Module):
    """A transformers model that computes its own loss from `labels`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss, a scalar; token ids and labels are both (examples, sequence)."""
        return self.model(input_ids=input_ids, labels=labels).loss


class ImageClassification(nn.Module):
    """A model of timm or transformers with a cross-entropy loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss, a scalar; pixels are (examples, 3, size, size), class labels (examples,)."""
        output = self.model(pixels)
        return nn.functional.cross_entropy(getattr(output, "logits", output), labels)


class MeanOutput(nn.Module):
    """A model without a loss that is known here: the mean of its outputs stands in, which costs nothing beside them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.decodes = "decoder_input_ids" in signature(model.forward).parameters

    def forward(self, labels: Tensor, input_ids: Tensor | None = None, pixels: Tensor | None = None) -> Tensor:
        """Return the sum of the means of all outputs; the inputs are those of the two classes above."""
        decoded = {"decoder_input_ids": input_ids} if self.decodes else {}
        output = self.model(pixels) if input_ids is None else self.model(input_ids=input_ids, **decoded)
        leaves = [leaf for leaf in tree_leaves(dict(output)) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        return sum((leaf.float().mean() for leaf in leaves), labels.new_zeros((), dtype=torch.float32))
