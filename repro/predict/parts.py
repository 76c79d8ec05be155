"""The parts of modern training in predictions: what each does to a trace's FLOPs, bytes, kernels and memory.

The numbers follow from the traces of the models' real code. Nothing was measured with these parts on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from repro.machine.support import Stack, part_obstacle
from repro.paper.settings import Settings
from repro.parts import BY_NAME, PARTS, in_order

from ..models.recipe import Recipe, Text
from .traces import NOTHING, Block, Linear, Trace

Changes = dict[str, Linear]

# Of Pythia-160M's layer: bytes a score of attention that its eager path moves, not compiled and compiled, and saves for
# the backward pass, over those of the fused kernel; and what dropout of the scores adds in RoBERTa.
_SCORE_FORWARD, _SCORE_BACKWARD = {"memory": 27.0, "fused": 7.0}, {"memory": 31.0, "fused": 9.0}
_SCORE_SAVED = 8.8
_HALF_MOVED = 0.5  # of these, in half precision throughout
_ATTENTION_BACKWARD = 2.5  # FLOPs of the fused kernel's backward pass over its forward pass
# Bytes a logit that Liger's cross entropy moves: it reads them twice and writes gradients once, in half precision.
# Whole logits are saved in fp32, twice at the peak. A chunk is the next power of two of tokens x width / vocabulary
# tokens: its logits, and what is cut from them, take at most 8 bytes a token and unit of width (measured 0.12 and 0.35
# GiB of 16,384 tokens on an H200, results/h200/cross-entropy.csv).
FUSED_LOGIT = 6.0
_LOGIT_SAVED, _LOGIT_PEAK, _CHUNK_PEAK = 4.0, 8.0, 8.0
# Of fp32 activations what autocast leaves: Pythia-160M saves 5 % more under autocast than in half precision throughout,
# and its other operators move twice as many bytes; norms and the residual stream stay in fp32.
_AUTOCAST_SAVED, _AUTOCAST_MOVED, _CAST_BYTES = 0.53, 0.75, 6.0
_SCALED = 1.25  # bytes that scaling to FP8 moves over those of the product: operands are read twice and written once
REPLAYED = 0.2  # of a kernel's launch in a CUDA graph
_WORTH = 0.998  # of the step: a part that is predicted to bring less is left out


@cache
def adapted(recipe: Recipe, trace: Trace, parts: tuple[str, ...], compiled: bool) -> Trace:
    """Return the trace as the parts change it."""
    rest, *layers = trace.parts
    in_fp32 = all("/half/" not in key for part in trace.parts for key in part.costs)
    if "bf16" in parts and in_fp32:
        rest, *layers = (in_half(part, "bf16_weights" in parts) for part in (rest, *layers))
    if "fused_attention" in parts and isinstance(recipe.inputs, Text):
        moved = _HALF_MOVED if trace.variant == "half" else 1.0
        layers = [_with_fused_attention(part, recipe.inputs.sequence, recipe.width, moved) for part in layers]
    if "fused_cross_entropy" in parts and isinstance(recipe.inputs, Text):
        rest = _with_fused_loss(rest, recipe.inputs, recipe.width)
    if "fp8" in parts:
        layers = [_in_fp8(part) for part in layers]
    if "cuda_graphs" in parts and compiled:
        rest, *layers = (
            _mapped(part, lambda key, line: line * REPLAYED if key.endswith("/kernels") else line)
            for part in (rest, *layers)
        )
    return replace(trace, parts=(rest, *layers))


def _mapped(part: Block, change: Callable[[str, Linear], Linear]) -> Block:
    return replace(part, costs={key: change(key, line) for key, line in part.costs.items()})


def _added(part: Block, more: Changes) -> Block:
    """Return the part with more, or less, of some costs, none below zero."""
    costs = dict(part.costs)
    for key, line in more.items():
        total = costs.get(key, NOTHING) + line
        signed = key in ("body", "head", "inputs")  # peaks over others: they may be below
        costs[key] = total if signed else Linear(max(0.0, total.fixed), max(0.0, total.per_example))
    return replace(part, costs=costs)


def in_half(part: Block, weights: bool) -> Block:
    """Return a part of an fp32 model in bf16: under autocast or, with its `weights`, throughout."""
    saved, moved = (0.5, 0.5) if weights else (_AUTOCAST_SAVED, _AUTOCAST_MOVED)
    costs: Changes = {}
    for key, line in part.costs.items():
        phase, _, rest = key.partition("/")
        if "/fp32/" in key:
            costs[key.replace("/fp32/", "/half/")] = line * 0.5 if key.endswith("/bytes") else line
        elif rest in ("memory/bytes", "fused/bytes") or key in ("saved", "body", "head"):
            share = moved if phase in ("forward", "backward", "returned") else saved
            costs[key] = Linear(line.fixed, share * line.per_example)
        else:
            costs[key] = line
    if weights:
        return replace(part, costs=costs)
    parameters = part.cost("parameters").fixed
    cast, copy = Linear(_CAST_BYTES * parameters, 0.0), Linear(2.0 * parameters, 0.0)
    casts = Linear(part.cost("tensors").fixed, 0.0)
    return _added(
        replace(part, costs=costs),
        {
            "forward/weight_cast/bytes": cast,
            "forward/weight_cast/kernels": casts,
            "backward/memory/bytes": cast,
            "backward/fused/bytes": cast,
            "saved": copy,
            "copies": copy,
        },
    )


def _with_fused_attention(part: Block, sequence: int, width: int, share: float) -> Block:
    """Return an eager layer with the fused kernel: products of scores become attention, and no scores are moved, of
    whose bytes under autocast the layer moved a `share`."""
    products = part.cost("forward/batched/half/flops")
    if not products.per_example:
        return part
    costs = {key: line for key, line in part.costs.items() if "/batched/" not in key}
    moved = Linear(0.0, 4 * 2.0 * sequence * width)  # queries, keys, values and results
    one = Linear(1.0, 0.0)
    scores = share * _scores(part, sequence)
    more: Changes = {
        "forward/attention/half/flops": products,
        "forward/attention/half/bytes": moved,
        "forward/attention/half/kernels": one,
        "backward/attention/half/flops": products * _ATTENTION_BACKWARD,
        "backward/attention/half/bytes": moved * 2,
        "backward/attention/half/kernels": one,
        "saved": Linear(0.0, -_SCORE_SAVED * scores),
        "body": Linear(0.0, -_SCORE_SAVED * scores),
    }
    for kind in ("memory", "fused"):
        more[f"forward/{kind}/bytes"] = Linear(0.0, -_SCORE_FORWARD[kind] * scores)
        more[f"backward/{kind}/bytes"] = Linear(0.0, -_SCORE_BACKWARD[kind] * scores)
        for phase in ("forward", "backward"):
            more[f"{phase}/{kind}/kernels"] = Linear(-4.0, 0.0)
    return _added(replace(part, costs=costs), more)


def _scores(part: Block, sequence: int) -> float:
    """Return the scores of an example in an eager layer: what its products of scores move, less the other operands."""
    moved = part.cost("forward/batched/half/bytes").per_example / 2
    others = part.cost("forward/batched/half/flops").per_example / sequence  # 4 x sequence x width
    return max(0.0, (moved - others) / 2)


def _with_fused_loss(rest: Block, inputs: Text, width: int) -> Block:
    """Return the rest of a language model with output layer and cross entropy in chunks."""
    logits = float(inputs.sequence * inputs.vocabulary)
    changed = dict(rest.costs)
    for kind in ("memory", "fused"):
        forward, backward = (f"{phase}/{kind}/bytes" for phase in ("forward", "backward"))
        changed[forward] = Linear(rest.cost(forward).fixed, min(rest.cost(forward).per_example, FUSED_LOGIT * logits))
        changed[backward] = Linear(rest.cost(backward).fixed, 0.2 * rest.cost(backward).per_example)
    more: Changes = {
        "saved": Linear(4.0 * inputs.vocabulary * width, -_LOGIT_SAVED * logits),
        "head": Linear(0.0, _CHUNK_PEAK * inputs.sequence * width - _LOGIT_PEAK * logits),
    }
    found = _added(replace(rest, costs=changed), more)
    head = found.cost("head")
    return replace(found, costs=found.costs | {"head": Linear(head.fixed, max(0.0, head.per_example))})


def _in_fp8(part: Block) -> Block:
    """Return a layer with FP8 products."""
    costs: Changes = {}
    more: Changes = {}
    for key, line in part.costs.items():
        if "/matmul/half/" not in key:
            costs[key] = line
            continue
        costs[key.replace("/half/", "/fp8/")] = line * 0.75 if key.endswith("/bytes") else line
        if key.endswith("/bytes"):
            phase = key.partition("/")[0]
            more |= {f"{phase}/{kind}/bytes": line * _SCALED for kind in ("memory", "fused")}
    return _added(replace(part, costs=costs), more)


def applicable(
    recipe: Recipe, settings: Settings, count: int, capability: tuple[int, int] | None
) -> list[tuple[str, ...]]:
    """Return the parts that can be added to settings, in the order of the table, on a stack that has all they need:
    each alone or, where it needs that, with bf16."""
    stack = Stack({"torch": "2.13.0"} | {part.package: "0" for part in PARTS if part.package}, capability)
    found: list[tuple[str, ...]] = []
    for name in BY_NAME:
        for added in ((name,), ("bf16", name)):
            grown = replace(settings, parts=in_order({*settings.parts, *added}))
            if name not in settings.parts and all(
                part_obstacle(part, recipe, grown, count, stack) is None for part in added
            ):
                found.append(added)
                break
    return found


def is_worth(with_part: float, without: float) -> bool:
    """Return whether a predicted step is shorter with a part."""
    return with_part < _WORTH * without
