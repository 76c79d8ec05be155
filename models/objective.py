"""Modules that take a batch and return its mean loss, the interface by which engines run all recipes."""

import torch
from torch import nn


class LanguageModelling(nn.Module):
    """A transformers model that computes its own loss from `labels`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, a scalar; token ids and labels are both (examples, sequence)."""
        return self.model(input_ids=input_ids, labels=labels).loss


class ImageClassification(nn.Module):
    """A model of timm or transformers with a cross-entropy loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss, a scalar; pixels are (examples, 3, size, size), class labels (examples,)."""
        output = self.model(pixels)
        return nn.functional.cross_entropy(getattr(output, "logits", output), labels)
