"""Shape and counts shared by Pythia, RoBERTa and ViT: layers of full attention and a feed-forward of 4 x width."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextShape:
    """Layers, width, heads and embedding size of a language model."""

    layers: int
    width: int
    heads: int
    vocabulary: int


def layer_parameters(width: int) -> int:
    """Count one layer's weights: 12 width^2 in matrices, 9 width in their biases, 4 width in two layer norms."""
    return 12 * width**2 + 13 * width


def forward_flops(tokens: int, width: int) -> int:
    """Return one layer's forward FLOPs over one sequence: per token 12 width^2 weights (query, key, value, projection,
    feed-forward), and the scores and weighted sums over the whole sequence. A multiply-add is 2 FLOPs."""
    return 2 * tokens * 12 * width**2 + 2 * 2 * tokens**2 * width
