"""What Pythia, RoBERTa and ViT have in common: layers of full attention and a feed-forward four times their width."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextShape:
    """A language model's layers, their width and heads, and the size of its embedding."""

    layers: int
    width: int
    heads: int
    vocabulary: int


def layer_parameters(width: int) -> int:
    """One layer's: 12 width^2 weights, the nine biases' widths of its linear layers, two layer norms."""
    return 12 * width**2 + 13 * width


def forward_flops(tokens: int, width: int) -> int:
    """One layer over one sequence, forward: 12 width^2 weights (query, key, value, projection, and the feed-forward)
    a token, and the scores and weighted sums over the whole sequence. 2 FLOPs per multiply-add."""
    return 2 * tokens * 12 * width**2 + 2 * 2 * tokens**2 * width
