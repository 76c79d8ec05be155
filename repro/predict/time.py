"""How long a training step takes: a roofline over a trace, launches, communication, offload traffic, the update."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from repro.recipe import Recipe
from repro.rules import compiles
from repro.settings import Settings

from .machine import Machine
from .memory import width
from .traces import Trace

_ADAM_BYTES = 100.0  # a weight: torch's unfused Adam reads or writes it, its gradient and moments so often
_FUSED_ADAM_BYTES = 30.0  # DeepSpeed's, on a GPU and for one on the host
_PCIE_COUNTS = (2, 4, 8)
_AGAIN = {"forward": 2, "returned": 0, "backward": 1}  # times that a checkpointed layer does so


@dataclass(frozen=True)
class Rates:
    """Shares of what the hardware offers at most, each in 0 to 1, and `launch`, seconds that a kernel adds.

    `half`, `full` and `attention` are of the peak: products in half precision and in fp32 or TF32, fused attention.
    `hbm` and `gddr` are of the memory's bandwidth. `depthwise` and `scan` are of `Machine.lanes`.
    `switch`, `bridge` and `pcie_2` to `pcie_8` are of the link, on so many GPUs; `host` of PCIe between a GPU and
    the host. `host_memory` is bytes a second at which the host updates offloaded weights, a GPU's share of it.
    `overlap` is the share of the backward pass behind which communication hides, `fusion` the share of what
    torch.compile saves that is left when FSDP cuts the graph at each layer, and `handling` the bytes a weight that
    stages 2 and 3 move in each micro-step to pack, unpack and add up shards.
    """

    half: float = 0.65
    full: float = 0.75
    attention: float = 0.4
    hbm: float = 0.7
    gddr: float = 0.9
    depthwise: float = 0.1
    scan: float = 0.2
    launch: float = 5e-6
    switch: float = 0.5
    bridge: float = 0.5
    pcie_2: float = 0.2
    pcie_4: float = 0.3
    pcie_8: float = 0.4
    host: float = 0.4
    host_memory: float = 1.5e10
    overlap: float = 0.7
    fusion: float = 0.5
    handling: float = 16.0


BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(("half", "full", "attention", "hbm", "gddr"), (0.1, 1.0)),
    **dict.fromkeys(("depthwise", "scan"), (0.01, 1.0)),
    "launch": (1e-6, 2e-5),
    **dict.fromkeys(("switch", "bridge", "pcie_2", "pcie_4", "pcie_8", "host"), (0.02, 0.95)),
    "host_memory": (2e9, 1e11),
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
class Workload:
    """A micro-step of `examples` on one GPU: FLOPs and bytes by operators' class, bytes of what only moves memory, and
    kernels. `backward` is the share of its bytes that falls into the backward pass, behind which communication can
    hide; what checkpointing computes again counts as forward."""

    arithmetic: tuple[tuple[str, float, float], ...]
    moved: float
    kernels: float
    backward: float
    parameters: float


@cache
def workload(trace: Trace, settings: Settings, examples: int, compiled: bool) -> Workload:
    """What a micro-step does. Checkpointed layers run forward once more; under FSDP weights come in half precision."""
    flops: dict[str, float] = defaultdict(float)
    moved: dict[str, float] = defaultdict(float)
    kernels = in_backward = 0.0
    skipped = {"memory" if compiled else "fused", "weight_cast" if settings.library == "fsdp" else ""}
    for part in trace.parts:
        again = settings.checkpointing and part is not trace.rest
        for key, line in part.costs.items():
            phase, _, rest = key.partition("/")
            kind, _, unit = rest.rpartition("/")
            if not unit or kind in skipped:
                continue
            times = part.count * (_AGAIN[phase] if again else 1)
            amount = times * line.at(examples)
            if unit == "kernels":
                kernels += amount
            elif unit == "flops":
                flops[kind] += amount
            else:
                moved[kind] += amount
                in_backward += amount if phase == "backward" else 0.0
    only_moved = sum(moved[kind] for kind in ("memory", "fused", "weight_cast"))
    arithmetic = tuple((kind, flops[kind], moved[kind]) for kind in sorted(moved) if "/" in kind)
    return Workload(arithmetic, only_moved, kernels, in_backward / sum(moved.values()), trace.parameters)


def step(recipe: Recipe, trace: Trace, settings: Settings, machine: Machine, examples: int, rates: Rates) -> Step:
    """A training step of the replication batch, in micro-steps of `examples` on each GPU. As the authors measured,
    every micro-step reduces gradients.

    A product computes and moves bytes at once, but not throughout: it takes the root of the sum of both times' squares,
    which fits the paper's cells better than the longer of the two, or their sum."""
    accumulation = recipe.batch_size / (machine.world * examples)
    compiled = compiles(recipe, settings)
    work = workload(trace, settings, examples, compiled)
    bandwidth = _bandwidth(machine, rates)
    compute = sum(
        math.hypot(flops / _speed(recipe, settings, machine, rates, kind), moved / bandwidth)
        for kind, flops, moved in work.arithmetic
    )
    moved, kernels = work.moved, work.kernels
    if compiled and settings.library == "fsdp":
        cut = workload(trace, settings, examples, False)
        moved += (1 - rates.fusion) * (cut.moved - moved)
        kernels += (1 - rates.fusion) * (cut.kernels - kernels)
    each, parameters = width(recipe), work.parameters
    if settings.stage > 1:
        moved += rates.handling * parameters
    memory, launches = moved / bandwidth, kernels * rates.launch
    exchanged, overlapped = _exchange(settings, each, trace, machine.world)
    communication = exchanged / _link(machine, rates) + _collectives(settings, trace, machine) * machine.latency
    if overlapped:
        communication = max(0.0, communication - rates.overlap * work.backward * (compute + memory + launches))
    offload = _offloaded(settings, each, trace, machine.world) / (rates.host * machine.host_bytes)
    return Step(
        compute * accumulation,
        memory * accumulation,
        launches * accumulation,
        communication * accumulation,
        offload * accumulation,
        _update(settings, each, parameters, machine, rates),
    )


def _bandwidth(machine: Machine, rates: Rates) -> float:
    return machine.bandwidth * (rates.hbm if machine.stacked else rates.gddr)


def _speed(recipe: Recipe, settings: Settings, machine: Machine, rates: Rates, kind: str) -> float:
    """FLOP/s of an operators' class."""
    name, _, arithmetic = kind.partition("/")
    if name in ("depthwise", "scan"):
        return machine.lanes * (rates.depthwise if name == "depthwise" else rates.scan)
    half = arithmetic == "half"
    peak = machine.peak(recipe.precision if half else "fp32", settings.free_lunch)
    if name == "attention":
        return peak * rates.attention
    return peak * (rates.half if half else rates.full)


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


def _update(settings: Settings, each: int, parameters: float, machine: Machine, rates: Rates) -> float:
    """Adam over this GPU's share, and, where weights are whole but states are not, the new weights' exchange."""
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
