"""The time of a training step: a roofline over a trace, launches, communication, offload traffic, and the update.

All times are true times, until the GPU has finished. repro/predict/launch_queue.py derives the authors' clock.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache, cached_property

from repro.machine.support import compiles
from repro.paper.settings import Settings

from ..models.recipe import Recipe
from .constants import ADAM_BYTES, FP8_PEAK, FUSED_ADAM_BYTES, MASTER_BYTES, Rates
from .hardware import Machine
from .memory import element_bytes
from .traces import PAPER_STACK, Block, Trace

_HOPPER = (9, 0)


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


@dataclass(frozen=True)
class Timed:
    """A stretch with its predicted seconds, by part."""

    stretch: Segment
    compute: float
    memory: float
    launches: float

    @property
    def seconds(self) -> float:
        return self.compute + self.memory + self.launches


@dataclass(frozen=True)
class MicroStep:
    """Seconds of a micro-step on one GPU: of its stretches in the order of execution, of exchanges with other GPUs, and
    of traffic with the host."""

    stretches: tuple[Timed, ...]
    communication: float
    offload: float

    @cached_property
    def seconds(self) -> float:
        return sum(each.seconds for each in self.stretches) + self.communication + self.offload


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
            sum(each.memory for each in micro.stretches) * times,
            sum(each.launches for each in micro.stretches) * times,
            micro.communication * times,
            micro.offload * times,
            self.update,
        )


def stretches(trace: Trace, settings: Settings, examples: float, compiled: bool) -> tuple[Segment, ...]:
    """Return a micro-step's stretches in order: the layers forward, the rest of the model forward and backward, the
    layers backward, each after its recomputation by checkpointing. FSDP supplies weights in half precision."""
    skipped = "memory" if compiled else "fused", "weight_cast" if settings.library == "fsdp" else ""
    keeps_products = "selective_checkpointing" in settings.parts
    return _stretches(trace, examples, skipped, settings.checkpointing, keeps_products)


@cache  # many settings share them
def _stretches(
    trace: Trace, examples: float, skipped: tuple[str, ...], checkpointing: bool, keeps_products: bool
) -> tuple[Segment, ...]:

    def stretch(part: Block, *phases: str) -> Segment:
        flops: dict[str, float] = defaultdict(float)
        moved: dict[str, float] = defaultdict(float)
        kernels = 0.0
        for phase, kind, unit, line in part.of_phases:
            if kind in skipped or phase not in phases:
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

    forward = ("forward",) if checkpointing else ("forward", "returned")
    found = [stretch(part, *forward) for part in trace.layers]
    found += [stretch(trace.rest, "forward", "returned"), stretch(trace.rest, "backward")]
    for part in reversed(trace.layers):
        if checkpointing:
            again = stretch(part, "forward")
            if keeps_products:  # results of products and of attention are kept
                again = replace(again, arithmetic=())
            found.append(again)
        found.append(stretch(part, "backward"))
    return tuple(found)


@dataclass(frozen=True)
class StepModel:
    """The time model of a recipe with these settings on a machine, in true seconds."""

    recipe: Recipe
    trace: Trace
    settings: Settings
    machine: Machine
    rates: Rates

    @property
    def compiled(self) -> bool:
        return compiles(self.recipe, self.settings)

    @property
    def tf32(self) -> bool:
        return self.settings.free_lunch

    def step(self, examples: int) -> TimedStep:
        """Return a training step of the replication batch, in micro-steps of `examples` on each GPU. Every micro-step
        reduces gradients, as in the authors' measurements."""
        times = self.recipe.batch_size / (self.machine.world * examples)
        return TimedStep(self.recipe, self.trace, self.settings, self.micro_step(examples), times, self.update())

    def micro_step(self, examples: float) -> MicroStep:
        """Return a micro-step that reduces gradients. A matrix product computes and moves bytes at the same time: the
        longer of the two decides, which fits the measured steps better than the root of the sum of their squares."""
        compiled = self.compiled
        rates, bandwidth, speed = self.rates, self._bandwidth, cache(self._speed)
        in_loops = self.machine.bandwidth * rates.fused if compiled else bandwidth
        timed = tuple(
            Timed(
                each,
                sum(
                    max(flops / speed(kind, each.backward), bytes_ / bandwidth)
                    for kind, flops, bytes_ in each.arithmetic
                ),
                each.moved / in_loops,
                each.kernels * rates.launch,
            )
            for each in stretches(self.trace, self.settings, examples, compiled)
        )
        return MicroStep(timed, self.exchange(), self._offloaded / self._host)

    def exchange(self) -> float:
        """Return the seconds of communication in a micro-step that reduces. The backward pass hides none of it."""
        if self.machine.world == 1:
            return 0.0
        return self._exchanged / _link(self.machine, self.rates) + self._collectives * self.machine.latency

    def update(self) -> float:
        """Return the seconds of Adam on this GPU's share, and of exchanging new weights where only states are sharded.
        With offloading only the copies of new weights count: the time of the host's own update changes no score."""
        share = self.trace.parameters / (self.machine.world if self.settings.stage else 1)
        if self.settings.offloading:
            seconds = element_bytes(self.recipe) * share / self._host
        else:
            seconds = share * self._adam_bytes / self._bandwidth
        return seconds + self.weight_exchange()

    def weight_exchange(self) -> float:
        """Return the seconds in which an update exchanges new weights, where ZeRO shards only what updates them."""
        if self.settings.library != "deepspeed" or self.settings.stage == 3:
            return 0.0
        exchanged = element_bytes(self.recipe) * self._ring * self.trace.parameters
        return exchanged / _link(self.machine, self.rates)

    def sharing(self, host: float, updating: float) -> tuple[float, float]:
        """Return the seconds by which a micro-step and an update of each GPU take longer where all offload at once to a
        host that moves `host` bytes a second, than on one that was measured alone and whose update took `updating`.

        Each GPU has its own link. So copies, and the update, take at least the time in which the host's memory moves
        what all GPUs need of it. Predictions have no such term: the rate of the host is fitted to cells of several
        GPUs, too.
        """
        world = self.machine.world
        updated = self.trace.parameters / world * (self._adam_bytes + element_bytes(self.recipe))
        copying = max(0.0, world * self._offloaded / host - self._offloaded / self._host)
        return copying, max(0.0, world * updated / host - updating)

    def _speed(self, kind: str, backward: bool) -> float:
        """Return the FLOP/s of an operator class."""
        name, _, arithmetic = kind.partition("/")
        rates, machine, in_half = self.rates, self.machine, arithmetic in ("half", "fp8")
        papers, hopper = self.trace.stack == PAPER_STACK, machine.capability == _HOPPER
        if name == "scan":
            return machine.lanes * rates.scan
        if name == "depthwise":
            slow = rates.depthwise if papers else rates.depthwise_last
            return machine.lanes * (slow if backward and not in_half else rates.depthwise_forward)
        if name == "attention" and not in_half:
            return machine.peak("fp32", False) * rates.attention_fp32
        peak = machine.peak(self.recipe.precision if in_half else "fp32", self.tf32)
        if name == "attention":
            return peak * (rates.cudnn if hopper and not papers else rates.attention)
        if arithmetic == "fp8":
            peak *= FP8_PEAK
        if in_half:
            return peak * (
                rates.matmul_half_geforce
                if machine.geforce
                else rates.matmul_half_hopper
                if hopper
                else rates.matmul_half
            )
        if self.tf32 and machine.has_tf32:
            return peak * rates.tf32
        return peak * (rates.matmul_fp32_gddr if machine.wide_lanes and not machine.stacked else rates.matmul_fp32)

    @property
    def _bandwidth(self) -> float:
        return self.machine.bandwidth * (self.rates.eager_hbm if self.machine.stacked else self.rates.eager_gddr)

    @property
    def _host(self) -> float:
        """Return the bytes a second between a GPU and the host."""
        return self.rates.host * self.machine.host_bytes

    @property
    def _ring(self) -> float:
        return (self.machine.world - 1) / self.machine.world

    @property
    def _exchanged(self) -> float:
        """Return the bytes that each GPU sends in a micro-step, by rings."""
        settings, trace = self.settings, self.trace
        if settings.library == "torch":
            return 2 * (2 if "bf16_weights" in settings.parts else 4) * self._ring * trace.parameters
        if settings.stage == 3:  # gathers, and reduces to owners
            return element_bytes(self.recipe) * self._ring * (self._gathered + trace.parameters)
        # FSDP's stage 2 gathers once; ZeRO all-reduces below stage 3.
        return 2 * element_bytes(self.recipe) * self._ring * trace.parameters

    @property
    def _gathered(self) -> float:
        """Return the weights that a micro-step of stage 3 gathers: each twice; FSDP gathers those outside layers
        once."""
        kept = self.trace.rest.cost("parameters").fixed if self.settings.library == "fsdp" else 0.0
        return 2 * self.trace.parameters - kept

    @property
    def _collectives(self) -> float:
        """Return the number of collectives in a micro-step: one for all gradients or, if units are sharded separately,
        one reduction and one or two gathers for each unit."""
        fsdp, layers = self.settings.library == "fsdp", sum(part.units for part in self.trace.layers)
        if self.settings.stage == 3:
            return 3.0 * layers + (2.0 if fsdp else 3.0)
        return 2.0 * (1 + layers) if fsdp else 1.0

    @property
    def _offloaded(self) -> float:
        """Return the bytes between a GPU and the host in a micro-step: gradients out, and weights kept on the host
        in."""
        settings, trace, world = self.settings, self.trace, self.machine.world
        if not settings.offloading:
            return 0.0
        gathered = self._gathered if settings.stage == 3 else trace.parameters
        if settings.library == "fsdp":
            return 4 * (gathered + trace.parameters) / world
        return element_bytes(self.recipe) * (trace.parameters + (gathered if settings.stage == 3 else 0.0)) / world

    @property
    def _adam_bytes(self) -> float:
        """Return the memory traffic of an update for each weight."""
        # On a CPU, DeepSpeed runs torch's Adam, as its own takes long to build.
        fused = self.settings.library == "deepspeed" and self.machine.capability is not None
        adam = FUSED_ADAM_BYTES if fused or "fused_adam" in self.settings.parts else ADAM_BYTES
        return adam + (MASTER_BYTES if "bf16_weights" in self.settings.parts else 0.0)


def _link(machine: Machine, rates: Rates) -> float:
    """Return the bytes a second that each GPU sends to the next."""
    if machine.link == "network":  # nothing to fit: the paper has no runs on several nodes
        # Nodes exchange no faster than the GPUs of one of them.
        return min(machine.link_bytes, _link(replace(machine, nodes=1), rates))
    if machine.link == "none":
        return machine.link_bytes
    return machine.link_bytes * (rates.pcie if machine.link == "pcie" else rates.nvlink)
