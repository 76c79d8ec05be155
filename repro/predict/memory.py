"""Peak memory of one GPU, by part, and the largest micro batch that fits.

What engines allocate follows from their source code. Plain torch under autocast keeps fp32 weights, gradients and two
moments: 16 bytes a weight, and 20 in the update with Adam's temporaries. DistributedDataParallel, which wraps it on one
GPU too, adds buckets of 4 bytes a weight. DeepSpeed computes in half precision and shards 12 bytes a weight of fp32
state. FSDP shards fp32 weights, gradients and moments, and gathers layers in half precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from repro.paper.gpus import Gpu
from repro.paper.settings import Settings

from .. import models
from ..models.recipe import Recipe, divisors
from .traces import NOTHING, Block, Linear, Trace, Variant

_DEEPSPEED_BUCKET = 5e8  # elements, in stage 1: DeepSpeed's default
_STAGE_2_BUCKETS = 2 * 2e8  # elements; two buckets, as communication overlaps
_RESULTS = 0.6  # of the bytes that a layer's products move: in Pythia's 9 of 16, and attention's
_LIVE_WEIGHTS = 1e9  # elements that stage 3 keeps gathered


@dataclass(frozen=True)
class Allowance:
    """GPU memory that training cannot use. `reserved` is the driver's share of the capacity; `context` are bytes of
    CUDA and of libraries' workspaces, including NCCL's for one GPU; `group` are NCCL's further bytes for several.
    `spread` is what the allocator takes for activations, over their tensors' bytes. With these values 132 of Appendix
    J's 140 micro batches are exact."""

    reserved: float = 0.02
    context: float = 0.95e9
    group: float = 1.0e9
    spread: float = 1.05


# For a memory limit, or a CPU's memory: no driver or CUDA context takes a part of it.
ALL_OF_IT = Allowance(reserved=0.0, context=0.0, group=0.0, spread=1.0)


@dataclass(frozen=True)
class Memory:
    """Bytes on one GPU at its peak, by part."""

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
    """A moment of a training step that may be its peak, with the bytes that tensors take then."""

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
        """Return the examples that fit in `room` bytes, as a real number; below 0 if not even 0 fit."""
        fixed = self.weights + self.gradients + self.optimizer + self.buckets + self.temporaries
        left = room - fixed - spread * self.activations.fixed
        if self.activations.per_example <= 0:
            return float("inf") if left >= 0 else -1.0
        return left / (spread * self.activations.per_example)


def variant_of(settings: Settings) -> Variant:
    """Return the variant of a trace that settings need: DeepSpeed, and the part, have half precision throughout."""
    if settings.library == "deepspeed" or "bf16_weights" in settings.parts:
        return "half"
    return "custom" if settings.free_lunch else "naive"


def element_bytes(recipe: Recipe) -> int:
    """Return the bytes of a weight in computation."""
    return 4 if recipe.precision == "fp32" else 2


def usable(gpu: Gpu, allowance: Allowance) -> float:
    """Return a GPU's bytes without the driver's. Memory comes in powers of two: a data sheet's 24 GB are 24 GiB."""
    return gpu.memory_bytes * (1 - allowance.reserved)


def peak_memory(
    recipe: Recipe, trace: Trace, settings: Settings, gpus: int, examples: int, allowance: Allowance
) -> Memory:
    """Return the peak of a training step at a micro batch, on each of `gpus`."""
    aside = workspace(allowance, gpus)
    found = (moment.at(examples, aside, allowance.spread) for moment in moments(recipe, trace, settings, gpus))
    return max(found, key=lambda memory: memory.peak)


def most_examples(recipe: Recipe, trace: Trace, settings: Settings, gpu: Gpu, gpus: int, allowance: Allowance) -> float:
    """Return the micro batch, as a real number, that just fills this GPU; below 1 if nothing fits."""
    room = usable(gpu, allowance) - workspace(allowance, gpus)
    return min(moment.examples(room, allowance.spread) for moment in moments(recipe, trace, settings, gpus))


def largest_micro_batch(
    recipe: Recipe, trace: Trace, settings: Settings, gpu: Gpu, gpus: int, allowance: Allowance
) -> int:
    """Return the largest of the micro batches that are tried which fits; 0 if not even one example does."""
    most = most_examples(recipe, trace, settings, gpu, gpus, allowance)
    return max((each for each in divisors(models.micro_batch_limit(recipe, gpus)) if each <= most), default=0)


def workspace(allowance: Allowance, gpus: int) -> float:
    """Return the bytes of a GPU that CUDA, its libraries and a process group take."""
    return allowance.context + (allowance.group if gpus > 1 else 0.0)


@cache
def moments(recipe: Recipe, trace: Trace, settings: Settings, gpus: int) -> tuple[Moment, ...]:
    """Return the moments at which a step may peak: the start of the backward pass, the return of the model's outputs,
    the backward pass of the layers, its end, and the update. No gradients remain from the step before: the authors'
    code drops them (v1.0.0, src/benchmarking/utils.py), and so does a search here."""
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
            kept = _kept_results(part) if "selective_checkpointing" in settings.parts else NOTHING
            saved += (part.cost("saved") + kept * -1) * -part.count
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


def _kept_results(part: Block) -> Linear:
    """Return the bytes that selective checkpointing keeps of a layer: results of products and of attention."""
    kinds = ("matmul", "batched", "convolution", "depthwise")
    found = (part.cost(f"forward/{kind}/{bits}/bytes") for kind in kinds for bits in ("half", "fp32", "fp8"))
    return Linear(0.0, _RESULTS * sum(line.per_example for line in found))


@dataclass(frozen=True)
class _State:
    """Bytes that do not depend on the micro batch. `kept` and `kept_buckets` are what remains of weights and buckets
    between steps; `temporaries` are the update's."""

    weights: float
    kept: float
    gradients: float
    optimizer: float
    buckets: float
    kept_buckets: float
    temporaries: float


def _state(recipe: Recipe, trace: Trace, settings: Settings, gpus: int) -> _State:
    element, parameters, share = element_bytes(recipe), trace.parameters, trace.parameters / gpus
    frozen = trace.total("frozen").fixed
    if settings.library == "torch":
        fp32, pure = 4 * parameters, "bf16_weights" in settings.parts
        size = 2 if pure else 4
        weights, gradients = size * (parameters + frozen), size * parameters
        buckets = 0.0 if "no_wrapper" in settings.parts else gradients
        temporaries = (0.0 if "fused_adam" in settings.parts else fp32) + (fp32 if pure else 0.0)  # fp32 gradients
        optimizer = (3 if pure else 2) * fp32
        return _State(weights, weights, gradients, optimizer, buckets, buckets, temporaries)
    if settings.library == "fsdp":
        layer = max(part.cost("parameters").fixed * part.count / part.units for part in trace.layers)
        rest = trace.rest.cost("parameters").fixed
        gathered = element * (parameters if settings.stage == 2 else rest + 2 * layer)
        shard = 0.0 if settings.offloading else 4 * share
        temporaries = 0.0 if "fused_adam" in settings.parts else shard
        kept = shard + (0.0 if settings.offloading else 4 * frozen / gpus)
        return _State(kept + gathered, kept, shard, 2 * shard, element * (rest + layer), 0.0, temporaries)
    optimizer, copies = (0.0, 0.0) if settings.offloading else (12 * share, 4 * share)
    if settings.stage == 3:
        kept = 0.0 if settings.offloading else element * (share + frozen / gpus)
        return _State(kept + element * min(_LIVE_WEIGHTS, parameters), kept, kept, optimizer, 0.0, 0.0, copies)
    bucket = element * (_STAGE_2_BUCKETS if settings.stage == 2 else _DEEPSPEED_BUCKET)
    gradients = element * parameters
    if settings.stage == 2:
        gradients = 0.0 if settings.offloading else element * share
    weights = element * (parameters + frozen)
    return _State(weights, weights, gradients, optimizer, bucket, 0.0, copies)
