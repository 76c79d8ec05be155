"""Training methods to measure or to start from, on a CPU or a GPU:

python -m repro run --models pythia-1b --with examples/methods.py:chunked_loss --with examples/methods.py:fused_adamw
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from repro import Method

PIECES = 8  # of a sequence


def _chunked_loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Return the loss of a causal language model from transformers, whose logits never exist as a whole.

    They are computed for a piece of the sequence at a time, and again in the backward pass. Of a vocabulary of 50,304,
    they would else take more memory than the layers' activations of a small model.
    """
    language_model = model.model
    if "ForCausalLM" not in type(language_model).__name__:
        raise TypeError(f"expected a causal language model of transformers, this is {type(language_model).__name__}")
    body, head = language_model.base_model, language_model.get_output_embeddings()
    hidden = body(input_ids=batch["input_ids"])[0][:, :-1]  # the last position predicts nothing
    targets = batch["labels"][:, 1:]

    def summed(hidden: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(head(hidden).float().flatten(0, 1), targets.flatten(), reduction="sum")

    pieces = zip(hidden.chunk(PIECES, dim=1), targets.chunk(PIECES, dim=1), strict=True)
    losses = [checkpoint(summed, *piece, use_reentrant=False) for piece in pieces]
    return torch.stack(losses).sum() / (targets != -100).sum()  # transformers leaves such targets out


def _fused_adamw(parameters: Iterable[nn.Parameter], given: Any) -> torch.optim.Optimizer:
    """Return torch's AdamW that updates all weights in one kernel. Without weight decay it is Adam as well."""
    return torch.optim.AdamW(parameters, lr=given.rate, betas=given.betas, eps=given.eps, weight_decay=0.0, fused=True)


chunked_loss = Method(loss=_chunked_loss)
fused_adamw = Method(optimizer=_fused_adamw)
