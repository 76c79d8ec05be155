"""Holds traces against what CUDA's torch allocates and launches: `run.sh GPU python traced.py [RECIPE ...]`.

Of each of these recipes, or else of all that fit an H200 and need no kernels but torch's, in each variant that is
traced: bytes that the forward pass saves, their peak in forward and backward beside weights, and kernels launched
beside the trace's operators. Prints them as CSV.
"""

from __future__ import annotations

import csv
import ctypes
import gc
import sys
from dataclasses import asdict, dataclass, fields

import torch

from repro import models
from repro.machine.stack import load as load_stack
from repro.measure.batches import random_batch
from repro.measure.engine.base import HALF
from repro.models.recipe import Recipe
from repro.predict import traces

_EXAMPLES = {
    "pythia-160m": 8,
    "pythia-410m": 4,
    "pythia-1b": 4,
    "pythia-2.8b": 2,
    "roberta": 16,
    "convnext": 64,
    "vit": 64,
    "mamba": 2,  # where its kernels are installed
}


@dataclass(frozen=True)
class Held:
    """Of a micro-step of so many examples: bytes that the allocator and the trace say, launches and operators."""

    recipe: str
    variant: str
    examples: int
    saved: int
    traced_saved: int
    peak: int
    traced_peak: int
    forward_launches: int
    forward_operators: int
    backward_launches: int
    backward_operators: int


def hold(recipe: Recipe, trace: traces.Trace, examples: int) -> Held:
    """A micro-step on the GPU, after one that allocates what libraries keep, beside its trace."""
    half = HALF.get(recipe.precision)
    pure = trace.variant == "half"
    with torch.device("meta"):
        module = recipe.build(trace.variant != "naive", "sdpa")
    module = (module.to(half) if pure else module).to_empty(device="cuda").train()
    batch = {name: value.cuda() for name, value in random_batch(recipe, examples).items()}
    for _ in range(2):
        module.zero_grad()
        gc.collect()
        _launches()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", dtype=half, enabled=half is not None and not pure):
            loss = module(**batch)
        forward, saved = _launches(), torch.cuda.memory_allocated() - before
        loss.backward()
        backward, peak = _launches(), torch.cuda.max_memory_allocated() - before
        del loss
    traced = trace.total("saved").at(examples)
    gradients = sum(weight.numel() * weight.element_size() for weight in module.parameters())
    above = max(trace.rest.cost("head").at(examples), trace.rest.cost("body").at(examples))
    traced_peak = max(traced + above, trace.rest.cost("saved").at(examples) + gradients)
    return Held(
        *(recipe.id, trace.variant, examples, saved, round(traced), peak, round(traced_peak)),
        *(forward, _operators(trace, "forward"), backward, _operators(trace, "backward")),
    )


def _launches() -> int:
    """Kernels launched since the last call."""
    torch.cuda.synchronize()
    return ctypes.CDLL(None).stand_in_launches()


def _operators(trace: traces.Trace, phase: str) -> int:
    keys = {key for part in trace.parts for key in part.costs}
    kept = [key for key in keys if key.startswith(phase) and key.endswith("/kernels") and "/fused/" not in key]
    return round(sum(trace.total(key).fixed for key in kept))


def main() -> None:
    load_stack()
    wanted = sys.argv[1:] or [id for id in _EXAMPLES if id != "mamba"]
    found = []
    for (id, scale, _), trace in traces.load(traces.shipped()[-1]).items():
        # Mamba's slow scan launches a kernel for each of 2048 tokens.
        if scale == "paper" and id in wanted and (id, trace.variant) != ("mamba", "naive"):
            held = hold(models.find(id, scale), trace, _EXAMPLES[id])
            output = str(held)
            assert abs(held.traced_saved / held.saved - 1) < 0.01, output
            assert abs(held.traced_peak / held.peak - 1) < 0.03, output
            # Not all of ConvNeXt's: cuDNN adds a bias in a kernel of its own.
            assert 0.85 < held.forward_operators / held.forward_launches <= 1.0, output
            found.append(asdict(held))
    writer = csv.DictWriter(sys.stdout, [field.name for field in fields(Held)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)


if __name__ == "__main__":
    main()
