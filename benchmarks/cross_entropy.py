"""How long output layer and cross entropy take in bf16, forward and backward, and how much memory: by whole logits,
and by Liger's kernel as the part `fused_cross_entropy`, on the tokens of eight sequences of Pythia."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from . import Ask, tell, warm_ranks

if TYPE_CHECKING:
    from repro.measure.rank import Rank

TOKENS = 8 * 2048
WORDS = 50_304
WIDTHS = (768, 2048)  # of Pythia-160M and Pythia-1B
WAYS = ("whole", "liger")
ROUNDS = 12


def measure(rank: Rank, way: str, width: int) -> dict[str, Any]:
    """Return the `seconds` of each round, the `peak` of allocated bytes above what stands before, and the `loss`."""
    import torch
    from torch.nn.functional import cross_entropy, linear

    from repro.measure.clock import synchronised
    from repro.measure.engine.modern import ligers_loss

    torch.manual_seed(0)
    hidden = torch.randn(TOKENS, width, device=rank.device, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.nn.Parameter(torch.randn(WORDS, width, device=rank.device, dtype=torch.bfloat16) / width**0.5)
    targets = torch.randint(WORDS, (TOKENS,), device=rank.device)

    def loss() -> torch.Tensor:
        if way == "whole":
            return cross_entropy(linear(hidden, weight).float(), targets)
        return ligers_loss()(weight, hidden, targets)

    value = loss()
    value.backward()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    seconds = [synchronised(rank.device, lambda: loss().backward()) for _ in range(ROUNDS)]
    return {"seconds": seconds, "peak": torch.cuda.max_memory_allocated() - before, "loss": value.item()}


def rows(ask: Ask) -> list[dict[str, Any]]:
    found = []
    for width in WIDTHS:
        for way in WAYS:
            [outcome] = ask("benchmarks.cross_entropy:measure", way=way, width=width)
            found.append(
                {
                    "width": width,
                    "way": way,
                    "both passes (ms)": median(outcome.value["seconds"][2:]) * 1e3,
                    "memory (GiB)": outcome.value["peak"] / 2**30,
                    "loss": outcome.value["loss"],
                }
            )
    return found


def run() -> list[dict[str, Any]]:
    with warm_ranks() as ask:
        return rows(ask)


if __name__ == "__main__":
    tell(__doc__, run)
