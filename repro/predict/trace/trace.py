"""Tracing of one micro-step of a recipe without a device, as eager code and as torch.compile fuses it."""

from __future__ import annotations

import copy
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from itertools import product
from math import prod
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

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
TOKENS = (8, 16, 24)  # a slow scan starts kernels for each token: short sequences tell what a long one costs
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
    """Return a recipe's trace, of all its layers. Raise UserError, which names the operator that cannot be traced, and
    where the trace's weights are not the model's."""
    load_stack()
    model = _meta(recipe, variant)
    (kinds, low), (_, high) = (_measured(recipe, variant, model, examples) for examples in _BATCHES)
    alike: dict[Any, list[int]] = {}
    for unit, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(unit)
    parts = []
    for index, units in enumerate(alike.values()):
        costs = _linear(*(_mean([found[unit] for unit in units]) for found in (low, high)))
        parts.append(Block(f"layer{index - 1}" if index else "rest", len(units), len(units), costs))
    found = Trace(recipe.id, recipe.scale, variant, stack(), tuple(parts))
    traced, there = found.parameters + found.total("frozen").fixed, sum(weight.numel() for weight in model.parameters())
    if round(traced) != there:
        raise UserError(f"{recipe.id}: its trace has {traced:,.0f} weights, its model {there:,}; please report this")
    return found


def _measured(recipe: Recipe, variant: Variant, model: nn.Module, examples: int) -> tuple[list[Any], list[Costs]]:
    """Return the kinds and the costs of a model's units, the rest first. Layers are of one kind if they have the same
    class, shapes of weights and FLOPs."""
    lengths: tuple[int | None, ...] = (None,)
    if recipe.kernels is not None:
        lengths = TOKENS[:2] if variant == "naive" else lengths  # costs of its slow scan are linear
    elif is_sequential(recipe, model):
        lengths = TOKENS
    recordings = [_recorded(recipe, variant, model, examples, tokens) for tokens in lengths]
    found = [_counted(recording) for recording in recordings]
    costs = found[0]
    if lengths[0] is not None:
        assert isinstance(recipe.inputs, Text)
        weights = interpolation(lengths, recipe.inputs.sequence)
        costs = [_sum(weights, units) for units in zip(*found, strict=True)]
    return [(kind, _forward_flops(each)) for kind, each in zip(recordings[0].kinds, costs, strict=True)], costs


def is_sequential(recipe: Recipe, model: nn.Module) -> bool:
    """Return whether a text model computes token by token, and its sequence is longer than those that tell its cost."""
    if not isinstance(recipe.inputs, Text) or recipe.inputs.sequence <= TOKENS[-1]:
        return False
    try:
        few, more = (_calls(recipe, model, tokens) for tokens in TOKENS[:2])
    except Exception:  # it takes no shorter sequence, or fails at its own length as well, where the reason is reported
        return False
    return few != more


def _calls(recipe: Recipe, model: nn.Module, tokens: int) -> int:
    """Return how many operators a forward pass over so many tokens calls."""
    module = copy.deepcopy(model)
    with FakeTensorMode(), patched(*data_checks()), torch.no_grad():
        make_real(module, None)
        with _Calls() as counter:
            module(**batch(recipe, 1, tokens, None))
    return counter.calls


class _Calls(TorchDispatchMode):
    """A counter of operators."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def interpolation(lengths: Sequence[int | None], at: int) -> list[float]:
    """Return the factors by which to add values at these lengths for the one at `at`, of the polynomial through them:
    with attention costs grow with the square of the length."""
    known = [float(each or 0) for each in lengths]
    return [prod((at - other) / (each - other) for other in known if other != each) for each in known]


def _forward_flops(costs: Costs) -> float:
    return sum(each for key, each in costs.items() if key.startswith("forward/") and key.endswith("/flops"))


def _recorded(
    recipe: Recipe, variant: Variant, model: nn.Module, examples: int, tokens: int | None = None
) -> Recording:
    dtype = _HALF.get(recipe.precision)
    pure = variant == "half"
    module = copy.deepcopy(model)

    def build() -> tuple[nn.Module, dict[str, Tensor]]:
        make_real(module, dtype if pure else None)
        return module, batch(recipe, examples, tokens, dtype if pure else None)

    as_the_authors = stack().transformers == PAPER_STACK.transformers and recipe.id in models.TRACED
    if as_the_authors and recipe.keeps_cache:
        config: Any = module.get_submodule("model").config
        config.use_cache = True  # transformers' default, which the authors keep
    mixed = None if pure else dtype
    with patched(*_patches(recipe, variant)):
        return record(build, recipe.layers, mixed, accelerate=as_the_authors and mixed is not None)


def _patches(recipe: Recipe, variant: Variant) -> list[tuple[Any, str, Any]]:
    """Return patches of what reads values, and of Mamba's kernels, which need a GPU."""
    patches = data_checks()
    if recipe.kernels is not None and variant != "naive":
        module = sys.modules["transformers.models.mamba.modeling_mamba"]
        patches += [(module, "mamba_inner_fn", fused_mamba.mamba_inner_fn)]
        mixer = module.MambaMixer
        if hasattr(mixer, "cuda_kernels_forward"):  # transformers before 5 takes this path on a GPU only
            patches.append((mixer, "forward", mixer.cuda_kernels_forward))
    return patches


def data_checks() -> list[tuple[Any, str, Any]]:
    """Return patches of transformers where it reads values, which fake tensors lack: the check for padding ids, and the
    choice of a grouped product of experts, of which one operator has a rule for shapes in every precision."""
    if "transformers.modeling_utils" not in sys.modules:
        return []
    from transformers import PreTrainedModel

    patches: list[tuple[Any, str, Any]] = [
        (PreTrainedModel, "warn_if_padding_and_no_attention_mask", lambda *given: None)
    ]
    if (experts := sys.modules.get("transformers.integrations.moe")) and hasattr(experts, "_can_use_grouped_mm"):
        patches.append((experts, "_can_use_grouped_mm", lambda *given: False))
    return patches


def _meta(recipe: Recipe, variant: Variant) -> nn.Module:
    """Return the model on the meta device: shapes without weights."""
    slow = recipe.kernels is not None  # both of Mamba's paths start from transformers' slow one, see _patches
    with torch.device("meta"):
        module = recipe.build(variant != "naive" and not slow, "sdpa")
    module.train()
    return module


def make_real(module: nn.Module, dtype: torch.dtype | None) -> None:
    """Move a module from the meta device to the (fake) CPU, weights in `dtype` if given. Shared weights stay shared."""
    moved: dict[int, Any] = {}
    for child in module.modules():
        for store in (child._parameters, child._buffers):
            for name, value in store.items():
                if value is None:
                    continue
                if id(value) not in moved:
                    kept = dtype if dtype and value.is_floating_point() else value.dtype
                    real = torch.empty(value.shape, dtype=kept)
                    is_weight = isinstance(value, nn.Parameter)
                    moved[id(value)] = nn.Parameter(real, value.requires_grad) if is_weight else real
                store[name] = moved[id(value)]


def batch(recipe: Recipe, examples: int, tokens: int | None, dtype: torch.dtype | None) -> dict[str, Tensor]:
    if isinstance(recipe.inputs, Text):
        shape = (examples, tokens or recipe.inputs.sequence)
        return {name: torch.empty(shape, dtype=torch.long) for name in ("input_ids", "labels")}
    size = recipe.inputs.size
    return {
        "pixels": torch.empty(examples, 3, size, size, dtype=dtype),
        "labels": torch.empty(examples, dtype=torch.long),
    }


def _counted(recording: Recording) -> list[Costs]:
    """Return the costs of each unit: sums by `phase/kind/unit` (unit flops, bytes or kernels), and bytes by name. The
    peaks, above what is saved, are the rest's."""
    found: list[Costs] = [defaultdict(float, unit) for unit in recording.units]
    for operator in recording.operators:
        costs, kind = found[operator.unit], operator.kind
        if kind not in ("memory", "weight_cast"):
            kind += "/half" if operator.in_half else "/fp32"
        costs[f"{operator.phase}/{kind}/flops"] += operator.flops
        costs[f"{operator.phase}/{kind}/bytes"] += sum(operator.reads.values()) + sum(operator.writes.values())
        costs[f"{operator.phase}/{kind}/kernels"] += 1
    for run, moved in fused(recording):
        costs = found[run[0].unit]
        costs[f"{run[0].phase}/fused/bytes"] += moved
        costs[f"{run[0].phase}/fused/kernels"] += max(1, sum(operator.reduces for operator in run))
    rest, saved = found[0], recording.saved
    rest["head"], rest["body"] = recording.head - saved, recording.body - saved
    rest["returned"] = max(0.0, recording.returned - saved) - sum(each["returned"] for each in found[1:])
    return found


def _mean(costs: Sequence[Costs]) -> Costs:
    return {key: total / len(costs) for key, total in _sum([1] * len(costs), costs).items()}


def _sum(factors: Sequence[float], costs: Sequence[Costs]) -> Costs:
    keys = set().union(*costs)
    return {key: sum(factor * each.get(key, 0.0) for factor, each in zip(factors, costs, strict=True)) for key in keys}


def _linear(low: Costs, high: Costs) -> dict[str, Linear]:
    found = {}
    for key, more in sorted(_sum((1, -1), (high, low)).items()):
        per_example = more / (_BATCHES[1] - _BATCHES[0])
        found[key] = Linear(low.get(key, 0.0) - per_example * _BATCHES[0], per_example)
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
