"""Tracing of one micro-step of a recipe without a device, as eager code and as torch.compile fuses it."""

from __future__ import annotations

import copy
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import product
from typing import Any, get_args

import torch
from torch import Tensor, nn

from repro.console import UserError
from repro.datafile import columns
from repro.machine.packages import without_build
from repro.machine.stack import load as load_stack
from repro.predict.traces import NOTHING, PAPER_STACK, VARIANTS, Block, Costs, Linear, Trace, Traced, Variant

from ... import models
from ...models.recipe import Recipe, Scale, Text
from . import fused_mamba
from .operators import Operator
from .record import Recording, patched, record

_BATCHES = (4, 8)
_DEPTHS = (2, 3)  # layers; a tiny model is traced with all of its layers, and with one fewer
_TOKENS = (8, 16)  # Mamba's slow scan starts kernels for each token: two short sequences give a token's cost
_HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}


def all_traces() -> Iterator[Trace]:
    """Yield a trace of every recipe that can be predicted, at both scales, in each variant that the search space and
    the naive settings need."""
    for scale, id in product(get_args(Scale), models.TRACED):
        recipe = models.find(id, scale)
        for variant in variants(recipe):
            yield trace(recipe, variant)


def variants(recipe: Recipe) -> list[Variant]:
    """Return the variants that differ: fp32 recipes have no `half`; some models run the same kernels in `naive`."""
    wanted = VARIANTS if recipe.precision in _HALF else VARIANTS[:2]
    return [variant for variant in wanted if recipe.custom_kernels or variant != "naive"]


def stack() -> Traced:
    """Return the installed versions of the packages that a trace depends on."""
    return Traced(**{package: without_build(version(package)) for package in columns(Traced)})


def trace(recipe: Recipe, variant: Variant) -> Trace:
    """Return a recipe's trace. Raise UserError, which names the operator that cannot be traced."""
    load_stack()
    slow = recipe.kernels is not None and variant == "naive"
    model = _meta(recipe, variant)
    full = tuple(len(group) for group in _groups(model, recipe))

    def measured(depth: tuple[int, ...], examples: int) -> Costs:
        run = partial(_measure, recipe, variant, model, depth, examples)
        if not slow:
            return run()
        assert isinstance(recipe.inputs, Text)
        low, high = (run(tokens=tokens) for tokens in _TOKENS)
        return _line(low, high, *_TOKENS, recipe.inputs.sequence)

    base = _base(full)
    bases = [measured(base, examples) for examples in _BATCHES]
    kinds = []
    for index in range(len(full)):
        deeper = tuple(depth + (place == index) for place, depth in enumerate(base))
        more = [measured(deeper, examples) for examples in _BATCHES]
        kinds.append([_minus(high, low) for high, low in zip(more, bases, strict=True)])
    rest = [
        _minus(whole, *(kind[place] for kind, depth in zip(kinds, base, strict=True) for _ in range(depth)))
        for place, whole in enumerate(bases)
    ]
    # The base's peaks include what its layers saved. Only the bytes above that belong to the peaks.
    for place, whole in enumerate(bases):
        for side in ("head", "body"):
            rest[place][side] = whole[side] - whole["saved"]
    stages = bool(recipe.block)
    parts = [Block("rest", 1, 1, _linear(*rest))] + [
        Block(f"layer{index}", layers, 1 if stages else layers, _linear(*kind))
        for index, (layers, kind) in enumerate(zip(full, kinds, strict=True))
    ]
    return Trace(recipe.id, recipe.scale, variant, stack(), tuple(parts))


def _measure(
    recipe: Recipe,
    variant: Variant,
    model: nn.Module,
    depths: tuple[int, ...],
    examples: int,
    tokens: int | None = None,
) -> Costs:
    half = _HALF.get(recipe.precision)
    pure = variant == "half"
    module = _cut(model, recipe, depths)
    weights = [*module.parameters()]
    trained = [weight.numel() for weight in weights if weight.requires_grad]
    frozen = sum(weight.numel() for weight in weights) - sum(trained)

    def build() -> tuple[nn.Module, dict[str, Tensor]]:
        make_real(module, half if pure else None)
        return module, batch(recipe, examples, tokens, half if pure else None)

    as_the_authors = stack().transformers == PAPER_STACK.transformers and recipe.id in models.TRACED
    if as_the_authors and recipe.keeps_cache:
        config: Any = module.get_submodule("model").config
        config.use_cache = True  # transformers' default, which the authors keep
    mixed = None if pure else half
    with patched(*_patches(recipe, variant)):
        recording = record(build, recipe.layer, mixed, accelerate=as_the_authors and mixed is not None)
    found = _counted(recording)
    found |= {"parameters": sum(trained), "frozen": frozen, "tensors": len(trained)}
    return found


def _patches(recipe: Recipe, variant: Variant) -> list[tuple[Any, str, Any]]:
    """Return patches: transformers' padding check, as fake tensors have no values; Mamba's kernels, which need a
    GPU."""
    patches = padding_checks()
    if recipe.kernels is not None and variant != "naive":
        module = sys.modules["transformers.models.mamba.modeling_mamba"]
        patches += [(module, "mamba_inner_fn", fused_mamba.mamba_inner_fn)]
        mixer = module.MambaMixer
        if hasattr(mixer, "cuda_kernels_forward"):  # transformers before 5 takes this path on a GPU only
            patches.append((mixer, "forward", mixer.cuda_kernels_forward))
    return patches


def padding_checks() -> list[tuple[Any, str, Any]]:
    """Return patches of transformers' check for padding ids, as fake tensors have no values."""
    if "transformers.modeling_utils" not in sys.modules:
        return []
    from transformers import PreTrainedModel

    return [(PreTrainedModel, "warn_if_padding_and_no_attention_mask", lambda *given: None)]


def _meta(recipe: Recipe, variant: Variant) -> nn.Module:
    """Return the model on the meta device: shapes without weights."""
    slow = recipe.kernels is not None  # both of Mamba's paths start from transformers' slow one, see _patches
    with torch.device("meta"):
        module = recipe.build(variant != "naive" and not slow, "sdpa")
    module.train()
    return module


def _groups(model: nn.Module, recipe: Recipe) -> list[nn.ModuleList | nn.Sequential]:
    """Return the containers of repeated layers."""
    block = recipe.block or recipe.layer
    least = 1 if recipe.id in models.TRACED else 2  # blocks of one's own may change the shape where they come alone
    found = [
        module
        for module in model.modules()
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module) and type(module[0]).__name__ == block
    ]
    if kept := [module for module in found if len(module) >= least]:
        return kept
    raise UserError(f"{recipe.id}: no list of the model repeats {block}; name another block with --layer")


def _cut(model: nn.Module, recipe: Recipe, depths: tuple[int, ...]) -> nn.Module:
    """Return a copy of the model with `depths` layers in its groups."""
    kept = [
        (group, "_modules", dict(list(group._modules.items())[:depth]))
        for group, depth in zip(_groups(model, recipe), depths, strict=True)
    ]
    with patched(*kept):
        module = copy.deepcopy(model)
    config = getattr(getattr(module, "model", None), "config", None)
    if config is not None:
        config.num_hidden_layers = depths[0]
    return module


def shortened(model: nn.Module, recipe: Recipe) -> nn.Module:
    """Return a copy of the model with as many layers as the shortest that is traced. Raise UserError without any."""
    return _cut(model, recipe, _base(len(group) for group in _groups(model, recipe)))


def _base(layers: Iterable[int]) -> tuple[int, ...]:
    return tuple(min(_DEPTHS[0], number - 1) for number in layers)


def make_real(module: nn.Module, half: torch.dtype | None) -> None:
    """Move a module from the meta device to the (fake) CPU, weights in `half` if given. Shared weights stay shared."""
    moved: dict[int, Any] = {}
    for child in module.modules():
        for store in (child._parameters, child._buffers):
            for name, value in store.items():
                if value is None:
                    continue
                if id(value) not in moved:
                    dtype = half if half and value.is_floating_point() else value.dtype
                    real = torch.empty(value.shape, dtype=dtype)
                    is_weight = isinstance(value, nn.Parameter)
                    moved[id(value)] = nn.Parameter(real, value.requires_grad) if is_weight else real
                store[name] = moved[id(value)]


def batch(recipe: Recipe, examples: int, tokens: int | None, half: torch.dtype | None) -> dict[str, Tensor]:
    if isinstance(recipe.inputs, Text):
        shape = (examples, tokens or recipe.inputs.sequence)
        return {name: torch.empty(shape, dtype=torch.long) for name in ("input_ids", "labels")}
    size = recipe.inputs.size
    return {
        "pixels": torch.empty(examples, 3, size, size, dtype=half),
        "labels": torch.empty(examples, dtype=torch.long),
    }


def _counted(recording: Recording) -> Costs:
    """Return sums by `phase/kind/unit` (unit flops, bytes or kernels), and the recording's peaks by name."""
    found: Costs = defaultdict(float)
    for operator in recording.operators:
        kind = operator.kind
        if kind not in ("memory", "weight_cast"):
            kind += "/half" if operator.half else "/fp32"
        found[f"{operator.phase}/{kind}/flops"] += operator.flops
        found[f"{operator.phase}/{kind}/bytes"] += sum(operator.reads.values()) + sum(operator.writes.values())
        found[f"{operator.phase}/{kind}/kernels"] += 1
    for run, moved in fused(recording):
        found[f"{run[0].phase}/fused/bytes"] += moved
        found[f"{run[0].phase}/fused/kernels"] += max(1, sum(operator.reduces for operator in run))
    for name in ("saved", "head", "body", "copies", "inputs"):
        found[name] = getattr(recording, name)
    found["returned"] = max(0.0, recording.returned - recording.saved)
    return found


def _minus(whole: Costs, *parts: Costs) -> Costs:
    keys = whole.keys() | set().union(*parts)
    return {key: whole.get(key, 0.0) - sum(part.get(key, 0.0) for part in parts) for key in keys}


def _line(low: Costs, high: Costs, at_low: float, at_high: float, at: float) -> Costs:
    """Return the costs at `at`, on the line through those at `at_low` and `at_high`."""
    slope = {key: each / (at_high - at_low) for key, each in _minus(high, low).items()}
    return {key: low.get(key, 0.0) + each * (at - at_low) for key, each in slope.items()}


def _linear(low: Costs, high: Costs) -> dict[str, Linear]:
    found = {}
    for key, more in sorted(_minus(high, low).items()):
        each = more / (_BATCHES[1] - _BATCHES[0])
        found[key] = Linear(low.get(key, 0.0) - each * _BATCHES[0], each)
    return {key: line for key, line in found.items() if line != NOTHING}


def fused(recording: Recording) -> Iterator[tuple[list[Operator], float]]:
    """Yield each maximal run of operators that torch.compile fuses into one loop, with the bytes it moves: what it
    reads from other runs and writes for them. A memory operator that cannot be fused is a run of its own.

    A value that only loops of the backward pass need is not stored but recomputed there, if that moves fewer bytes.
    """
    recomputed: dict[int, dict[int, float]] = {}
    readers = _readers(recording.operators)
    for start, end in _runs(recording.operators):
        run = recording.operators[start:end]
        sources = _sources(run)
        reads: dict[int, float] = {}
        writes: dict[int, float] = {}
        for operator in run:
            for storage, size in operator.reads.items():
                if storage not in writes:
                    for source, taken in recomputed.get(storage, {storage: size}).items():
                        reads[source] = max(taken, reads.get(source, 0.0))
            for storage, size in operator.writes.items():
                writes[storage] = max(size, writes.get(storage, 0.0))
        moved = sum(reads.values())
        for storage, size in writes.items():
            later = [operator for place, operator in readers[storage] if place >= end]
            needed = storage in recording.kept or any(not (each.phase == "backward" and each.fusable) for each in later)
            again = storage in sources and run[0].phase != "backward" and sum(sources[storage].values()) < 2 * size
            if needed or (later and not again):
                moved += size
            elif later:
                recomputed[storage] = sources[storage]
        yield run, moved


def _readers(operators: list[Operator]) -> dict[int, list[tuple[int, Operator]]]:
    """Return the operators that read each storage, with their indices."""
    found: dict[int, list[tuple[int, Operator]]] = defaultdict(list)
    for place, operator in enumerate(operators):
        for storage in operator.reads:
            found[storage].append((place, operator))
    return found


def _runs(operators: list[Operator]) -> Iterator[tuple[int, int]]:
    """Yield the start and end indices of runs of memory operators."""
    start = 0
    while start < len(operators):
        first, end = operators[start], start + 1
        if first.kind == "memory":
            while first.fusable and end < len(operators) and operators[end].fusable:
                if operators[end].phase != first.phase:
                    break
                end += 1
            yield start, end
        start = end


def _sources(run: list[Operator]) -> dict[int, dict[int, float]]:
    """Return, for each storage that a run writes, the bytes of the storages it can be recomputed from: what the run
    reads from others, and dropout masks, which cannot be recomputed."""
    found: dict[int, dict[int, float]] = {}
    for operator in run:
        sources: dict[int, float] = {}
        for storage, size in operator.reads.items():
            sources |= found.get(storage, {storage: size})
        mask = min(operator.writes, key=operator.writes.__getitem__) if operator.name == "native_dropout" else None
        if mask is not None:
            sources[mask] = operator.writes[mask]
        found |= {storage: sources for storage in operator.writes if storage != mask}
    return found
