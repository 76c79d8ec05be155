"""The time of a training step: a roofline over a trace, launches, communication, offload traffic, and the update.

All times are true times, until the GPU has finished. repro/predict/launch_queue.py derives the authors' clock.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache

from repro.machine.support import compiles
from repro.paper.settings import Settings

from ..models.recipe import Recipe
from .hardware import Machine
from .memory import width
from .traces import PAPER_STACK, Part, Trace

_ADAM_BYTES = 100.0  # memory traffic a weight: torch's unfused Adam makes several passes
_MASTER_BYTES = 2.0 + 4.0 + 4.0 + 2.0  # bf16 gradients become fp32 ones, fp32 weights are rounded to bf16
_FUSED_ADAM_BYTES = 30.0  # DeepSpeed's Adam, on a GPU, or on its host with offloading
_FP8_PEAK = 2.0  # over half precision, on every GPU that has it
_PCIE_COUNTS = (2, 4, 8)
_HOPPER = (9, 0)


@dataclass(frozen=True)
class Rates:
    """The fitted parameters of the time model. Most are shares, in 0 to 1, of what the hardware offers at most. A fit
    starts from the values here and is regularised towards them.

    The values of depthwise convolutions are from an H200 (results/h200/depthwise.csv); half precision was not measured.
    In fp32 their gradients are several times as slow as their forward pass.
    """

    half: float = 0.7  # of peak: half-precision products, except on GeForce cards
    half_geforce: float = 0.95  # of peak: the same on GeForce cards
    full: float = 0.75  # of peak: fp32 products, except on the next line's GPUs
    full_gddr: float = 0.5  # of peak: the same on GPUs with GDDR and 128 lanes per multiprocessor
    tf32: float = 0.5  # of peak: TF32 products
    attention: float = 0.4  # of peak: fused attention by torch's kernels
    cudnn: float = 0.6  # of peak: fused attention by cuDNN's kernels, which torch prefers on Hopper since 2.5
    hbm: float = 0.6  # of memory bandwidth: HBM
    hbm_fused: float = 0.85  # of memory bandwidth: HBM, in loops that torch.compile fused
    gddr: float = 0.7  # of memory bandwidth: GDDR
    gddr_fused: float = 0.85  # of memory bandwidth: GDDR, in loops that torch.compile fused
    depthwise_forward: float = 0.1  # of `Machine.lanes`: depthwise convolutions, except their gradients in fp32
    depthwise: float = 0.047  # of `Machine.lanes`: these gradients, channels first, as the paper ran them
    depthwise_last: float = 0.022  # of `Machine.lanes`: these gradients, channels last
    scan: float = 0.2  # of `Machine.lanes`: Mamba's scan
    launch: float = 5e-6  # seconds that a kernel adds
    switch: float = 0.5  # of the link: NVLink through switches
    bridge: float = 0.5  # of the link: an NVLink bridge
    pcie_2: float = 0.3  # of the link: PCIe, with 2 GPUs
    pcie_4: float = 0.5  # of the link: PCIe, with 4 GPUs
    pcie_8: float = 0.6  # of the link: PCIe, with 8 GPUs
    host: float = 0.4  # of PCIe between a GPU and the host
    host_memory: float = 7e9  # bytes a second at which the host updates offloaded weights, a GPU's share of it
    overlap: float = 0.3  # share of the backward pass that can hide communication
    fusion: float = 0.5  # share of torch.compile's savings that remains when FSDP cuts the graph at each layer
    handling: float = 16.0  # bytes a weight that stages 2 and 3 move per micro-step to pack, unpack and add shards


BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("half", "half_geforce", "full", "full_gddr", "tf32", "attention", "cudnn"), (0.1, 1.0)),
    **dict.fromkeys(("hbm", "hbm_fused", "gddr", "gddr_fused"), (0.1, 1.0)),
    **dict.fromkeys(("depthwise_forward", "depthwise", "depthwise_last", "scan"), (0.005, 1.0)),
    "launch": (1e-6, 2e-5),
    **dict.fromkeys(("switch", "bridge", "pcie_2", "pcie_4", "pcie_8", "host"), (0.02, 0.95)),
    "host_memory": (1e9, 1e11),
    "overlap": (0.0, 1.0),
    "fusion": (0.0, 1.0),
    "handling": (0.0, 48.0),
}


@dataclass(frozen=True)
class Step:
    """Seconds of a training step, by part: all its micro-steps and its update. Parts do not overlap."""

    compute: float
    memory: float
    launches: float
    communication: float
    offload: float
    update: float

    @property
    def total(self) -> float:
        return self.compute + self.memory + self.launches + self.communication + self.offload + self.update


@dataclass(frozen=True)
class Segment:
    """One segment of a micro-step on one GPU, such as a layer's forward pass. `arithmetic` is (operator class, FLOPs,
    bytes), `moved` the bytes of operators that only move memory, `tensors` the number of weight tensors whose gradients
    are ready."""

    arithmetic: tuple[tuple[str, float, float], ...]
    moved: float
    kernels: float
    tensors: float
    backward: bool

    @property
    def bytes(self) -> float:
        return self.moved + sum(moved for _, _, moved in self.arithmetic)


@dataclass(frozen=True)
class Workload:
    """All stretches of a micro-step added up. `backward` is the share of its bytes in the backward pass, which can hide
    communication; recomputation by checkpointing counts as forward."""

    arithmetic: tuple[tuple[str, float, float], ...]
    moved: float
    kernels: float
    backward: float


@dataclass(frozen=True)
class Timed:
    """A stretch with its predicted seconds, by part."""

    stretch: Segment
    compute: float
    memory: float
    launches: float
    kernels: float

    @property
    def seconds(self) -> float:
        return self.compute + self.memory + self.launches

    def scaled(self, factor: float) -> Timed:
        """Return a copy that is `factor` times as slow."""
        compute, memory, launches = (factor * each for each in (self.compute, self.memory, self.launches))
        return Timed(self.stretch, compute, memory, launches, self.kernels)


@dataclass(frozen=True)
class MicroStep:
    """Seconds of a micro-step on one GPU: of its stretches in the order of execution, and of what belongs to no single
    stretch."""

    stretches: tuple[Timed, ...]
    handling: float
    communication: float
    offload: float

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.stretches) + self.handling + self.communication + self.offload

    def scaled(self, factor: float) -> MicroStep:
        """Return a copy that is `factor` times as slow."""
        slower = tuple(each.scaled(factor) for each in self.stretches)
        return MicroStep(slower, factor * self.handling, factor * self.communication, factor * self.offload)


@dataclass(frozen=True)
class TimedStep:
    """A training step of `times` micro-steps and one update, in true seconds."""

    recipe: Recipe
    trace: Trace
    settings: Settings
    micro: MicroStep
    times: float
    update: float

    @property
    def compiled(self) -> bool:
        return compiles(self.recipe, self.settings)

    @property
    def seconds(self) -> float:
        return self.micro.seconds * self.times + self.update

    @property
    def parts(self) -> Step:
        """Return its seconds by part."""
        micro, times = self.micro, self.times
        return Step(
            sum(each.compute for each in micro.stretches) * times,
            (sum(each.memory for each in micro.stretches) + micro.handling) * times,
            sum(each.launches for each in micro.stretches) * times,
            micro.communication * times,
            micro.offload * times,
            self.update,
        )

    def scaled(self, factor: float) -> TimedStep:
        """Return a copy that is `factor` times as slow."""
        return replace(self, micro=self.micro.scaled(factor), update=factor * self.update)


@cache
def stretches(trace: Trace, settings: Settings, examples: int, compiled: bool) -> tuple[Segment, ...]:
    """Return a micro-step's stretches in order: the layers forward, the rest of the model forward and backward, the
    layers backward, each after its recomputation by checkpointing. FSDP supplies weights in half precision."""
    skipped = {"memory" if compiled else "fused", "weight_cast" if settings.library == "fsdp" else ""}

    def stretch(part: Part, *phases: str) -> Segment:
        flops: dict[str, float] = defaultdict(float)
        moved: dict[str, float] = defaultdict(float)
        kernels = 0.0
        for key, line in part.costs.items():
            phase, _, rest = key.partition("/")
            kind, _, unit = rest.rpartition("/")
            if not unit or kind in skipped or phase not in phases:
                continue
            amount = part.count * line.at(examples)
            if unit == "kernels":
                kernels += amount
            elif unit == "flops":
                flops[kind] += amount
            else:
                moved[kind] += amount
        only_moved = sum(moved[kind] for kind in ("memory", "fused", "weight_cast"))
        arithmetic = tuple((kind, flops[kind], moved[kind]) for kind in sorted(moved) if "/" in kind)
        backward = "backward" in phases
        tensors = part.count * part.cost("tensors").fixed if backward else 0.0
        return Segment(arithmetic, only_moved, kernels, tensors, backward)

    forward = ("forward",) if settings.checkpointing else ("forward", "returned")
    found = [stretch(part, *forward) for part in trace.layers]
    found += [stretch(trace.rest, "forward", "returned"), stretch(trace.rest, "backward")]
    for part in reversed(trace.layers):
        if settings.checkpointing:
            again = stretch(part, "forward")
            if "selective_checkpointing" in settings.parts:  # results of products and of attention are kept
                again = replace(again, arithmetic=())
            found.append(again)
        found.append(stretch(part, "backward"))
    return tuple(found)


@cache
def workload(trace: Trace, settings: Settings, examples: int, compiled: bool) -> Workload:
    """Return the total work of a micro-step."""
    found = stretches(trace, settings, examples, compiled)
    flops: dict[str, float] = defaultdict(float)
    moved: dict[str, float] = defaultdict(float)
    for each in found:
        for kind, done, bytes_ in each.arithmetic:
            flops[kind] += done
            moved[kind] += bytes_
    return Workload(
        tuple((kind, flops[kind], moved[kind]) for kind in sorted(moved)),
        sum(each.moved for each in found),
        sum(each.kernels for each in found),
        sum(each.bytes for each in found if each.backward) / sum(each.bytes for each in found),
    )


def timed_step(
    recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, examples: int, rates: Rates
) -> TimedStep:
    """Return a training step of the replication batch, in micro-steps of `examples` on each GPU. Every micro-step
    reduces gradients, as in the authors' measurements."""
    micro = micro_step(recipe, trace, settings, machine, examples, rates)
    times = recipe.batch_size / (machine.world * examples)
    return TimedStep(recipe, trace, settings, micro, times, _update(recipe, trace, settings, machine, rates))


def micro_step(
    recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, examples: int, rates: Rates
) -> MicroStep:
    """Return a micro-step that reduces gradients.

    A matrix product computes and moves bytes at the same time, but not throughout. Its time is the root of the sum of
    both times' squares, which fits the paper's cells better than the longer of the two, or their sum.
    """
    compiled = compiles(recipe, settings)
    speeds = _Speeds(recipe, settings, machine, rates, trace.stack == PAPER_STACK)
    bandwidth = _bandwidth(machine, rates)
    in_loops = machine.bandwidth * (rates.hbm_fused if machine.stacked else rates.gddr_fused) if compiled else bandwidth
    cut = compiled and settings.library == "fsdp"
    eager = stretches(trace, settings, examples, False) if cut else ()
    timed = []
    for place, each in enumerate(stretches(trace, settings, examples, compiled)):
        moved, kernels = each.moved, each.kernels
        if cut:
            moved += (1 - rates.fusion) * (eager[place].moved - moved)
            kernels += (1 - rates.fusion) * (eager[place].kernels - kernels)
        compute = sum(
            math.hypot(flops / speeds.of(kind, each.backward), bytes_ / bandwidth)
            for kind, flops, bytes_ in each.arithmetic
        )
        timed.append(Timed(each, compute, moved / in_loops, kernels * rates.launch, kernels))
    handling = rates.handling * trace.parameters / bandwidth if settings.stage > 1 else 0.0
    busy = sum(each.seconds for each in timed) + handling
    communication = exchange_seconds(recipe, trace, settings, machine, examples, rates, busy)
    offload = _offloaded(settings, width(recipe), trace, machine.world) / (rates.host * machine.host_bytes)
    return MicroStep(tuple(timed), handling, communication, offload)


def exchange_seconds(
    recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, examples: int, rates: Rates, busy: float
) -> float:
    """Return the seconds of communication in a micro-step that reduces, without those that the backward pass hides,
    where a GPU computes for `busy` seconds."""
    exchanged, overlapped = _exchange(settings, width(recipe), trace, machine.world)
    seconds = exchanged / _link(machine, rates) + _collectives(settings, trace, machine) * machine.latency
    if overlapped:
        behind = workload(trace, settings, examples, compiles(recipe, settings)).backward * busy
        seconds = max(0.0, seconds - rates.overlap * behind)
    return seconds


def _bandwidth(machine: Machine, rates: Rates) -> float:
    return machine.bandwidth * (rates.hbm if machine.stacked else rates.gddr)


@dataclass(frozen=True)
class _Speeds:
    """FLOP/s of each operator class. `papers` is true on the paper's stack."""

    recipe: Recipe
    settings: Settings
    machine: Machine
    rates: Rates
    papers: bool

    def of(self, kind: str, backward: bool) -> float:
        name, _, arithmetic = kind.partition("/")
        rates, machine, half = self.rates, self.machine, arithmetic in ("half", "fp8")
        if name == "scan":
            return machine.lanes * rates.scan
        if name == "depthwise":
            slow = rates.depthwise if self.papers else rates.depthwise_last
            return machine.lanes * (slow if backward and not half else rates.depthwise_forward)
        peak = machine.peak(self.recipe.precision if half else "fp32", self.settings.free_lunch)
        if name == "attention":
            by_cudnn = half and machine.capability == _HOPPER and not self.papers
            return peak * (rates.cudnn if by_cudnn else rates.attention)
        if arithmetic == "fp8":
            peak *= _FP8_PEAK
        if half:
            return peak * (rates.half_geforce if machine.geforce else rates.half)
        if self.settings.free_lunch and machine.has_tf32:
            return peak * rates.tf32
        return peak * (rates.full_gddr if machine.wide_lanes and not machine.stacked else rates.full)


def _exchange(settings: Settings, each: int, trace: Trace, world: int) -> tuple[float, bool]:
    """Return the bytes that each GPU sends in a micro-step, by rings, and whether the backward pass hides them."""
    ring = (world - 1) / world
    if settings.library == "torch":
        return 2 * (2 if "bf16_weights" in settings.parts else 4) * ring * trace.parameters, True
    if settings.stage == 3:  # gathers, and reduces to owners
        return each * ring * (_gathered(settings, trace) + trace.parameters), True
    # FSDP's stage 2 gathers once; ZeRO all-reduces below stage 3.
    return 2 * each * ring * trace.parameters, settings.stage > 1


def _gathered(settings: Settings, trace: Trace) -> float:
    """Return the weights that a micro-step of stage 3 gathers: each twice; FSDP gathers those outside layers once."""
    kept = trace.rest.cost("parameters").fixed if settings.library == "fsdp" else 0.0
    return 2 * trace.parameters - kept


def _collectives(settings: Settings, trace: Trace, machine: Machine) -> float:
    """Return the number of collectives in a micro-step: one for all gradients or, if units are sharded separately, one
    reduction and one or two gathers for each unit."""
    if machine.world == 1:
        return 0.0
    layers = sum(part.units for part in trace.layers)
    if settings.stage == 3:
        return 3.0 * layers + (2.0 if settings.library == "fsdp" else 3.0)
    return 2.0 * (1 + layers) if settings.library == "fsdp" else 1.0


def _link(machine: Machine, rates: Rates) -> float:
    """Return the bytes a second that each GPU sends to the next."""
    if machine.link == "network":  # nothing to fit: the paper has no runs on several nodes
        # Nodes exchange no faster than the GPUs of one of them.
        return min(machine.link_bytes, _link(replace(machine, nodes=1), rates))
    if machine.link == "none":
        return machine.link_bytes
    if machine.link == "pcie":
        nearest = min(_PCIE_COUNTS, key=lambda count: abs(count - machine.gpus))
        return machine.link_bytes * getattr(rates, f"pcie_{nearest}")
    return machine.link_bytes * getattr(rates, machine.link)


def _offloaded(settings: Settings, each: int, trace: Trace, world: int) -> float:
    """Return the bytes between a GPU and the host in a micro-step: gradients out, and weights kept on the host in."""
    if not settings.offloading:
        return 0.0
    gathered = _gathered(settings, trace) if settings.stage == 3 else trace.parameters
    if settings.library == "fsdp":
        return 4 * (gathered + trace.parameters) / world
    return each * (trace.parameters + (gathered if settings.stage == 3 else 0.0)) / world


def sharing_seconds(
    recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, rates: Rates, host: float, updating: float
) -> tuple[float, float]:
    """Return the seconds by which a micro-step and an update of each GPU take longer where all offload at once to a
    host that moves `host` bytes a second, than on one that was measured alone and whose update took `updating` seconds.

    Each GPU has its own link. So copies, and the update, take at least the time in which the host's memory moves what
    all GPUs need of it. Predictions have no such term: their rate of the host is fitted to cells of several GPUs, too.
    """
    each, world = width(recipe), machine.world
    copied = _offloaded(settings, each, trace, world)
    updated = trace.parameters / world * (_adam_bytes(settings, machine) + each)
    copying = copied / (rates.host * machine.host_bytes)
    return max(0.0, world * copied / host - copying), max(0.0, world * updated / host - updating)


def _update(recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, rates: Rates) -> float:
    """Return the seconds of Adam on this GPU's share, and of exchanging new weights where only states are sharded."""
    each, parameters = width(recipe), trace.parameters
    share = parameters / (machine.world if settings.stage else 1)
    bandwidth = _bandwidth(machine, rates)
    adam = _adam_bytes(settings, machine)
    if settings.offloading:
        back = each * share / (rates.host * machine.host_bytes)
        seconds = share * adam / rates.host_memory + back
    else:
        seconds = share * adam / bandwidth
    return seconds + update_exchange_seconds(recipe, trace, settings, machine, rates)


def _adam_bytes(settings: Settings, machine: Machine) -> float:
    """Return the memory traffic of an update for each weight."""
    # On a CPU, DeepSpeed runs torch's Adam, as its own takes long to build.
    own = settings.library == "deepspeed" and machine.capability is not None
    adam = _FUSED_ADAM_BYTES if own or "fused_adam" in settings.parts else _ADAM_BYTES
    return adam + (_MASTER_BYTES if "bf16_weights" in settings.parts else 0.0)


def update_exchange_seconds(recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, rates: Rates) -> float:
    """Return the seconds of communication in an update: of new weights, where ZeRO shards only what updates them."""
    if settings.library != "deepspeed" or settings.stage == 3:
        return 0.0
    return width(recipe) * (machine.world - 1) / machine.world * trace.parameters / _link(machine, rates)
