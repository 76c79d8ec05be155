"""How long a training step takes: a roofline over a trace, launches, communication, offload traffic, the update.

All of it is true time, what one waits for the GPU; repro/predict/queue.py says what the authors' clock shows of it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache

from repro.machine.rules import compiles
from repro.paper.settings import Settings

from ..models.recipe import Recipe
from .hardware import Machine
from .memory import width
from .traces import PAPER_STACK, Part, Trace

_ADAM_BYTES = 100.0  # a weight: torch's unfused Adam reads or writes it, its gradient and moments so often
_FUSED_ADAM_BYTES = 30.0  # DeepSpeed's, on a GPU and for one on the host
_PCIE_COUNTS = (2, 4, 8)
_HOPPER = (9, 0)


@dataclass(frozen=True)
class Rates:
    """Shares of what the hardware offers at most, each in 0 to 1, and `launch`, seconds that a kernel adds. The values
    here are what a fit starts from and is drawn towards.

    `half`, `half_geforce`, `full`, `full_gddr`, `tf32`, `attention` and `cudnn` are of the peak: products in half
    precision, on GeForce cards apart; in fp32, on GPUs with GDDR and 128 lanes apart; in TF32; fused attention by
    torch's kernels, and by cuDNN's, which torch prefers on Hopper since 2.5. `hbm` and `gddr` are of the memory's
    bandwidth, `hbm_fused` and `gddr_fused` in loops that torch.compile fused. `depthwise_forward`, `depthwise`,
    `depthwise_last` and `scan` are of `Machine.lanes`: depthwise convolutions, but for fp32's gradients of them, which
    are several times as slow, channels first, as the paper ran them, and channels last; and Mamba's scan. The
    convolutions start from what an H200 reached (results/h200/depthwise.csv); nobody has timed them in half precision.
    `switch`, `bridge` and `pcie_2` to `pcie_8` are of the link, on so many GPUs; `host` of PCIe between a GPU and
    the host. `host_memory` is bytes a second at which the host updates offloaded weights, a GPU's share of it.
    `overlap` is the share of the backward pass behind which communication hides, `fusion` the share of what
    torch.compile saves that is left when FSDP cuts the graph at each layer, and `handling` the bytes a weight that
    stages 2 and 3 move in each micro-step to pack, unpack and add up shards.
    """

    half: float = 0.7
    half_geforce: float = 0.95
    full: float = 0.75
    full_gddr: float = 0.5
    tf32: float = 0.5
    attention: float = 0.4
    cudnn: float = 0.6
    hbm: float = 0.6
    hbm_fused: float = 0.85
    gddr: float = 0.7
    gddr_fused: float = 0.85
    depthwise_forward: float = 0.1
    depthwise: float = 0.047
    depthwise_last: float = 0.022
    scan: float = 0.2
    launch: float = 5e-6
    switch: float = 0.5
    bridge: float = 0.5
    pcie_2: float = 0.3
    pcie_4: float = 0.5
    pcie_8: float = 0.6
    host: float = 0.4
    host_memory: float = 7e9
    overlap: float = 0.3
    fusion: float = 0.5
    handling: float = 16.0


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
    """Seconds of a training step: every micro-step of it, and its update. Parts do not overlap."""

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
class Stretch:
    """A stretch of a micro-step of `examples` on one GPU: FLOPs and bytes by operators' class, bytes of what only moves
    memory, kernels, and the weights' tensors whose gradients are ready there."""

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
    """A whole micro-step, its stretches added up. `backward` is the share of its bytes that falls into the backward
    pass, behind which communication can hide; what checkpointing computes again counts as forward."""

    arithmetic: tuple[tuple[str, float, float], ...]
    moved: float
    kernels: float
    backward: float


@dataclass(frozen=True)
class Timed:
    """A stretch that was given its seconds, and the seconds that each part of them takes."""

    stretch: Stretch
    compute: float
    memory: float
    launches: float
    kernels: float

    @property
    def seconds(self) -> float:
        return self.compute + self.memory + self.launches

    def scaled(self, factor: float) -> Timed:
        """The same, `factor` times as slow."""
        compute, memory, launches = (factor * each for each in (self.compute, self.memory, self.launches))
        return Timed(self.stretch, compute, memory, launches, self.kernels)


@dataclass(frozen=True)
class MicroStep:
    """Seconds of a micro-step on one GPU: of its stretches in the order that they run, then what does not belong to
    one of them."""

    stretches: tuple[Timed, ...]
    handling: float
    communication: float
    offload: float

    @property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.stretches) + self.handling + self.communication + self.offload

    def scaled(self, factor: float) -> MicroStep:
        """The same, `factor` times as slow."""
        slower = tuple(each.scaled(factor) for each in self.stretches)
        return MicroStep(slower, factor * self.handling, factor * self.communication, factor * self.offload)


@dataclass(frozen=True)
class TimedStep:
    """A training step: `times` a micro-step, and an update, in true seconds."""

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
        """Its seconds, by what takes them."""
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
        """The same, `factor` times as slow."""
        return replace(self, micro=self.micro.scaled(factor), update=factor * self.update)


@cache
def stretches(trace: Trace, settings: Settings, examples: int, compiled: bool) -> tuple[Stretch, ...]:
    """What a micro-step does, in order: the layers forward, the head forward and backward, and the layers backward,
    each after what checkpointing computes again. Under FSDP weights come in half precision."""
    skipped = {"memory" if compiled else "fused", "weight_cast" if settings.library == "fsdp" else ""}

    def stretch(part: Part, *phases: str) -> Stretch:
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
        return Stretch(arithmetic, only_moved, kernels, tensors, backward)

    forward = ("forward",) if settings.checkpointing else ("forward", "returned")
    found = [stretch(part, *forward) for part in trace.layers]
    found += [stretch(trace.rest, "forward", "returned"), stretch(trace.rest, "backward")]
    for part in reversed(trace.layers):
        if settings.checkpointing:
            found.append(stretch(part, "forward"))
        found.append(stretch(part, "backward"))
    return tuple(found)


@cache
def workload(trace: Trace, settings: Settings, examples: int, compiled: bool) -> Workload:
    """What a micro-step does in all."""
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


def step(recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, examples: int, rates: Rates) -> Step:
    """The seconds of `timed_step`, part by part."""
    return timed_step(recipe, trace, settings, machine, examples, rates).parts


def timed_step(
    recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, examples: int, rates: Rates
) -> TimedStep:
    """A training step of the replication batch, in micro-steps of `examples` on each GPU. As the authors measured,
    every micro-step reduces gradients."""
    micro = micro_step(recipe, trace, settings, machine, examples, rates)
    times = recipe.batch_size / (machine.world * examples)
    return TimedStep(recipe, trace, settings, micro, times, _update(recipe, trace, settings, machine, rates))


def micro_step(
    recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, examples: int, rates: Rates
) -> MicroStep:
    """A micro-step that reduces gradients.

    A product computes and moves bytes at once, but not throughout: it takes the root of the sum of both times' squares,
    which fits the paper's cells better than the longer of the two, or their sum."""
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
    exchanged, overlapped = _exchange(settings, width(recipe), trace, machine.world)
    communication = exchanged / _link(machine, rates) + _collectives(settings, trace, machine) * machine.latency
    if overlapped:
        busy = sum(each.seconds for each in timed) + handling
        behind = workload(trace, settings, examples, compiled).backward * busy
        communication = max(0.0, communication - rates.overlap * behind)
    offload = _offloaded(settings, width(recipe), trace, machine.world) / (rates.host * machine.host_bytes)
    return MicroStep(tuple(timed), handling, communication, offload)


def _bandwidth(machine: Machine, rates: Rates) -> float:
    return machine.bandwidth * (rates.hbm if machine.stacked else rates.gddr)


@dataclass(frozen=True)
class _Speeds:
    """FLOP/s of each of the operators' classes, on the paper's stack or another."""

    recipe: Recipe
    settings: Settings
    machine: Machine
    rates: Rates
    papers: bool

    def of(self, kind: str, backward: bool) -> float:
        name, _, arithmetic = kind.partition("/")
        rates, machine, half = self.rates, self.machine, arithmetic == "half"
        if name == "scan":
            return machine.lanes * rates.scan
        if name == "depthwise":
            slow = rates.depthwise if self.papers else rates.depthwise_last
            return machine.lanes * (slow if backward and not half else rates.depthwise_forward)
        peak = machine.peak(self.recipe.precision if half else "fp32", self.settings.free_lunch)
        if name == "attention":
            by_cudnn = half and machine.capability == _HOPPER and not self.papers
            return peak * (rates.cudnn if by_cudnn else rates.attention)
        if half:
            return peak * (rates.half_geforce if machine.geforce else rates.half)
        if self.settings.free_lunch and machine.has_tf32:
            return peak * rates.tf32
        return peak * (rates.full_gddr if machine.wide_lanes and not machine.stacked else rates.full)


def _exchange(settings: Settings, each: int, trace: Trace, world: int) -> tuple[float, bool]:
    """Bytes that each GPU sends in a micro-step, by rings, and whether the backward pass hides them."""
    ring = (world - 1) / world
    if settings.library == "torch":
        return 2 * 4 * ring * trace.parameters, True
    if settings.stage == 3:  # gathers, and reduces to owners
        return each * ring * (_gathered(settings, trace) + trace.parameters), True
    # FSDP's stage 2 gathers once; ZeRO reduces to all below stage 3.
    return 2 * each * ring * trace.parameters, settings.stage > 1


def _gathered(settings: Settings, trace: Trace) -> float:
    """Weights that a micro-step of stage 3 gathers: each twice, but FSDP keeps what is around the layers gathered."""
    kept = trace.rest.cost("parameters").fixed if settings.library == "fsdp" else 0.0
    return 2 * trace.parameters - kept


def _collectives(settings: Settings, trace: Trace, machine: Machine) -> float:
    """Exchanges in a micro-step: one of all gradients, or, where a unit is sharded on its own, a reduction and one or
    two gatherings of each."""
    if machine.world == 1:
        return 0.0
    layers = sum(part.units for part in trace.layers)
    if settings.stage == 3:
        return 3.0 * layers + (2.0 if settings.library == "fsdp" else 3.0)
    return 2.0 * (1 + layers) if settings.library == "fsdp" else 1.0


def _link(machine: Machine, rates: Rates) -> float:
    """Bytes a second that each GPU sends to the next."""
    if machine.link in ("none", "network"):  # the paper measured no several nodes: nothing to fit
        return machine.link_bytes
    if machine.link == "pcie":
        nearest = min(_PCIE_COUNTS, key=lambda count: abs(count - machine.gpus))
        return machine.link_bytes * getattr(rates, f"pcie_{nearest}")
    return machine.link_bytes * getattr(rates, machine.link)


def _offloaded(settings: Settings, each: int, trace: Trace, world: int) -> float:
    """Bytes between a GPU and the host in a micro-step: gradients out, and what has its weights there, in."""
    if not settings.offloading:
        return 0.0
    gathered = _gathered(settings, trace) if settings.stage == 3 else trace.parameters
    if settings.library == "fsdp":
        return 4 * (gathered + trace.parameters) / world
    return each * (trace.parameters + (gathered if settings.stage == 3 else 0.0)) / world


def _update(recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, rates: Rates) -> float:
    """Adam over this GPU's share, and, where weights are whole but states are not, the new weights' exchange."""
    each, parameters = width(recipe), trace.parameters
    share = parameters / (machine.world if settings.stage else 1)
    bandwidth = _bandwidth(machine, rates)
    # On a CPU, whose own takes long to build, DeepSpeed runs torch's.
    own = settings.library == "deepspeed" and machine.capability is not None
    adam = _FUSED_ADAM_BYTES if own else _ADAM_BYTES
    if settings.offloading:
        back = each * share / (rates.host * machine.host_bytes)
        seconds = share * adam / rates.host_memory + back
    else:
        seconds = share * adam / bandwidth
    if settings.library == "deepspeed" and settings.stage < 3:
        seconds += each * (machine.world - 1) / machine.world * parameters / _link(machine, rates)
    return seconds
