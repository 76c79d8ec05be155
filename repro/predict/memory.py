"""Peak memory of one GPU, part by part, and the largest micro batch that fits.

What engines hold follows from their sources: plain torch under autocast keeps fp32 weights, gradients and two moments
(16 bytes a weight; Adam's own temporaries make it 20 in the update), and DistributedDataParallel, which wraps it on one
GPU too, adds buckets of 4.
DeepSpeed computes in half precision and shards 12 bytes a weight of fp32 state. FSDP shards fp32 weights, gradients
and moments, and gathers layers in half precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from repro.paper.gpus import Gpu
from repro.paper.settings import Settings

from ..models.recipe import Recipe
from .traces import NOTHING, Linear, Trace, Variant

_DEEPSPEED_BUCKET = 5e8  # elements, stage 1: its default
_STAGE_2_BUCKETS = 2 * 2e8  # elements; two, as communication overlaps
_LIVE_WEIGHTS = 1e9  # elements that stage 3 keeps gathered


@dataclass(frozen=True)
class Allowance:
    """What of a GPU's memory training cannot have. `reserved` is the driver's share of the capacity; `context` bytes of
    CUDA and its libraries' workspaces, also of NCCL with nobody else, `group` of what it takes beyond that with others;
    `spread` is how much more than its tensors the allocator takes for activations."""

    reserved: float = 0.012
    context: float = 0.9e9
    group: float = 0.3e9
    spread: float = 1.05


# Of a limit, or a CPU's memory: no driver and no CUDA context take any of it.
ALL_OF_IT = Allowance(reserved=0.0, context=0.0, group=0.0, spread=1.0)
ALLOWANCE_BOUNDS = {"reserved": (0.0, 0.03), "context": (0.4e9, 1.6e9), "group": (0.0, 1.0e9), "spread": (1.0, 1.15)}


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU at the moment of its peak."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    buckets: float
    workspace: float

    @property
    def peak(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.buckets + self.workspace


@dataclass(frozen=True)
class Moment:
    """A moment of a training step that may be its peak: what tensors take then, in bytes."""

    weights: float
    gradients: float
    optimizer: float
    activations: Linear
    buckets: float
    temporaries: float

    def at(self, examples: int, workspace: float, spread: float) -> Memory:
        activations = spread * self.activations.at(examples)
        return Memory(
            self.weights, self.gradients, self.optimizer, activations, self.buckets, workspace + self.temporaries
        )

    def examples(self, room: float, spread: float) -> float:
        """The examples that fit in `room` bytes, as a real number, below 0 where nothing does."""
        fixed = self.weights + self.gradients + self.optimizer + self.buckets + self.temporaries
        left = room - fixed - spread * self.activations.fixed
        if self.activations.each <= 0:
            return float("inf") if left >= 0 else -1.0
        return left / (spread * self.activations.each)


def variant_of(settings: Settings) -> Variant:
    """The trace that settings need: DeepSpeed's is half precision throughout."""
    if settings.library == "deepspeed":
        return "half"
    return "custom" if settings.free_lunch else "naive"


def width(recipe: Recipe) -> int:
    """Bytes of a weight as it is computed with."""
    return 4 if recipe.precision == "fp32" else 2


def usable(gpu: Gpu, allowance: Allowance) -> float:
    """Bytes of a GPU beyond the driver's. Memory comes in powers of two: a data sheet's 24 GB are 24 GiB."""
    return gpu.memory_bytes * (1 - allowance.reserved)


def peak_memory(
    recipe: Recipe, trace: Trace, settings: Settings, gpus: int, examples: int, allowance: Allowance
) -> Memory:
    """The peak of a training step at a micro batch, on each of `gpus`."""
    aside = workspace(allowance, gpus)
    found = (moment.at(examples, aside, allowance.spread) for moment in moments(recipe, trace, settings, gpus))
    return max(found, key=lambda memory: memory.peak)


def most_examples(recipe: Recipe, trace: Trace, settings: Settings, gpu: Gpu, gpus: int, allowance: Allowance) -> float:
    """The micro batch, as a real number, that just fills this GPU; below 1 where nothing fits."""
    room = usable(gpu, allowance) - workspace(allowance, gpus)
    return min(moment.examples(room, allowance.spread) for moment in moments(recipe, trace, settings, gpus))


def largest_micro_batch(
    recipe: Recipe, trace: Trace, settings: Settings, gpu: Gpu, gpus: int, allowance: Allowance
) -> int:
    """The largest power of two that fits, as the authors search: by doubling, up to a GPU's share of the batch.
    0 where not even one example fits."""
    most = min(most_examples(recipe, trace, settings, gpu, gpus, allowance), recipe.batch_size // gpus)
    return 0 if most < 1 else 1 << (int(most).bit_length() - 1)


def workspace(allowance: Allowance, gpus: int) -> float:
    """Bytes of a GPU that CUDA, its libraries and a process group take."""
    return allowance.context + (allowance.group if gpus > 1 else 0.0)


@cache
def moments(recipe: Recipe, trace: Trace, settings: Settings, gpus: int) -> tuple[Moment, ...]:
    """Where a step may peak: as the backward pass starts, as the model returned what it does, in the layers of the
    backward pass, at its end, and in the update. No gradients are left of the step before: the authors' code drops them
    (v1.0.0, src/benchmarking/utils.py), as does a search here."""
    state = _state(recipe, trace, settings, gpus)
    saved, body = trace.total("saved"), trace.rest.cost("body")
    # A checkpointed model returns no keys and values.
    returned = trace.rest.cost("returned") if settings.checkpointing else trace.total("returned")
    gathered = settings.library == "fsdp"
    if gathered:
        saved += trace.rest.cost("copies") * -1  # its weights are gathered in half precision
    if gathered and not settings.checkpointing:
        saved += sum((part.cost("copies") * -part.count for part in trace.layers), NOTHING)
    if settings.checkpointing:
        for part in trace.layers:
            saved += part.cost("saved") * -part.count
        saved += trace.total("inputs")
        body += max(
            (part.cost("saved") * (part.count / part.units) for part in trace.layers), key=lambda line: line.at(1)
        )
    of_rest = state.gradients * trace.rest.cost("parameters").fixed / trace.parameters
    backward = (
        (saved + trace.rest.cost("head"), 0.0),
        (saved + returned, 0.0),
        (saved + body, of_rest),
        (trace.rest.cost("saved"), state.gradients),
    )
    update = Moment(state.kept, state.gradients, state.optimizer, NOTHING, state.kept_buckets, state.temporaries)
    return (
        *(
            Moment(state.weights, gradients, state.optimizer, activations, state.buckets, 0.0)
            for activations, gradients in backward
        ),
        update,
    )


@dataclass(frozen=True)
class _State:
    """Bytes whatever the micro batch: weights, and what is left of them between steps, `kept`; buckets likewise;
    and the update's temporaries."""

    weights: float
    kept: float
    gradients: float
    optimizer: float
    buckets: float
    kept_buckets: float
    temporaries: float


def _state(recipe: Recipe, trace: Trace, settings: Settings, gpus: int) -> _State:
    each, parameters, share = width(recipe), trace.parameters, trace.parameters / gpus
    if settings.library == "torch":
        fp32 = 4 * parameters
        return _State(fp32, fp32, fp32, 2 * fp32, buckets=fp32, kept_buckets=fp32, temporaries=fp32)
    if settings.library == "fsdp":
        layer = max(part.cost("parameters").fixed * part.count / part.units for part in trace.layers)
        rest = trace.rest.cost("parameters").fixed
        gathered = each * (parameters if settings.stage == 2 else rest + 2 * layer)
        shard = 0.0 if settings.offloading else 4 * share
        return _State(shard + gathered, shard, shard, 2 * shard, each * (rest + layer), 0.0, shard)
    optimizer, copies = (0.0, 0.0) if settings.offloading else (12 * share, 4 * share)
    if settings.stage == 3:
        kept = 0.0 if settings.offloading else each * share
        return _State(kept + each * min(_LIVE_WEIGHTS, parameters), kept, kept, optimizer, 0.0, 0.0, copies)
    bucket = each * (_STAGE_2_BUCKETS if settings.stage == 2 else _DEEPSPEED_BUCKET)
    gradients = each * parameters
    if settings.stage == 2:
        gradients = 0.0 if settings.offloading else each * share
    return _State(each * parameters, each * parameters, gradients, optimizer, bucket, 0.0, copies)
