"""What may be otherwise in a training than predicted: the same step, predicted again with one thing changed.

What cannot be predicted again, such as waiting for data, is not computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..machine.host import usable_cpus
from ..machine.support import compiles
from ..paper.gpus import AMPERE
from ..predict.constants import Rates
from ..predict.fits import Constants, Probes
from ..predict.hardware import Machine, Probed
from ..predict.parts import adapted
from ..predict.time import StepModel
from ..predict.traces import Block, Linear, Trace
from .took import Cause

# The CPUs that people train on by mistake: 2 cores (results/searches-2-cores), and what is taken for two sockets of a
# server with matrix units.
_CPUS = (
    Probed(9e10, None, 9e10, 2e11, copy=2e10, host=2e10, launch=3e-6, ring=None, latency=None),
    Probed(3e12, None, 1e13, 1e13, copy=3e11, host=3e11, launch=3e-6, ring=None, latency=None),
)
_AUTOCAST_MOVED = 0.75  # of fp32's bytes, by other operators than products: repro/predict/parts.py


def causes_of(model: StepModel, micro_batch: int, fitted: Constants) -> Iterator[Cause]:
    """Yield what may be otherwise in a training than its time model has it, with the seconds of a step then."""
    recipe, settings, machine = model.recipe, model.settings, model.machine

    def at(text: str, *changed: StepModel) -> Cause:
        seconds = [each.step(micro_batch).seconds for each in changed]
        return Cause(text, min(seconds), max(seconds))

    for text, others in other_machines(machine, fitted):
        yield at(text, *(replace(model, machine=each, rates=constants.rates) for each, constants in others))
    if compiles(recipe, settings):
        yield at("it is not compiled", replace(model, recipe=replace(recipe, compiles=False)))
    elif recipe.compiles and settings.library != "deepspeed":
        text = f"it is compiled{', with TF32' if machine.has_tf32 else ''}"
        yield at(text, replace(model, settings=replace(settings, free_lunch=True)))
    if machine.capability is not None and (settings.free_lunch or recipe.precision != "fp32"):
        slow = replace(model, recipe=replace(recipe, precision="fp32"), trace=in_fp32(model.trace))
        yield at("it computes in fp32 without TF32", replace(slow, rates=without_tf32(model)))
        if recipe.precision == "fp16" and machine.capability < AMPERE:
            slow = replace(model, rates=emulating_bf16(model))
            yield at("it computes in bf16, which this GPU does at fp32's speed", slow)
    if machine.capability is not None and machine.capability >= AMPERE and recipe.precision == "fp32":
        trace = adapted(recipe, model.trace, ("bf16",), compiles(recipe, settings))
        half = replace(model, recipe=replace(recipe, precision="bf16"), trace=trace)
        yield at("it computes in bf16 (autocast)", half)
    if micro_batch > 1:
        few, one_ = (model.step(examples).seconds for examples in (max(1, micro_batch // 2), 1))
        yield Cause("its micro batch is small, and launches take the time", min(few, one_), max(few, one_))
    if not settings.offloading:
        sharding = settings.sharding if settings.stage else "zero_1"
        offloading = replace(settings, sharding=sharding, offloading=True)
        yield at("states are offloaded to the host", replace(model, settings=offloading))
    again = replace(model, settings=replace(settings, checkpointing=not settings.checkpointing))
    yield at("activations are " + ("kept" if settings.checkpointing else "computed again (checkpointing)"), again)
    if (times := model.step(micro_batch).times) > 1:
        seconds = model.micro_step(micro_batch).seconds
        yield Cause(f"it is the time of a micro-step, of which {times:.0f} make a step", seconds, seconds)


def other_machines(machine: Machine, fitted: Constants) -> Iterator[tuple[str, list[tuple[Machine, Constants]]]]:
    """Yield on what a training may run in place of a machine: a sentence, and machines that bound it with their
    constants."""
    if machine.capability is not None:
        probed = [Probes("cpu", 2**37, None, {1: each}, 0.0) for each in _CPUS]
        on_cpus = [(each.machine(1), each.constants(fitted, 1)) for each in probed]
        yield "it does not run on the GPU at all, but on a CPU", on_cpus
    elif machine.probed is not None and (cores := usable_cpus()) > 1:
        all_, bf16 = machine.probed, machine.probed.bf16
        one = replace(all_, fp32=all_.fp32 / cores, fp16=all_.fp16 / cores, bf16=bf16 and bf16 / cores)
        slowest = replace(one, copy=one.copy / cores)
        yield "one thread computes", [(replace(machine, probed=each), fitted) for each in (one, slowest)]
    if machine.link == "nvlink":
        without = re.sub(r"(NVLink|Infinity Fabric)[^;]*; ", "", machine.gpu.link)
        pcie = replace(machine, gpu=replace(machine.gpu, link=without))
        yield "its GPUs exchange over PCIe alone", [(pcie, fitted)]
    if machine.nodes > 1:
        yield "its network has 1 Gb/s", [(replace(machine, network=1e9 / 8), fitted)]


def without_tf32(model: StepModel) -> Rates:
    """Return rates by which products in fp32 take as long as without TF32."""
    machine, rates = model.machine, model.rates
    if not machine.has_tf32:
        return rates
    full = rates.matmul_fp32_gddr if machine.wide_lanes and not machine.stacked else rates.matmul_fp32
    return replace(rates, tf32=full * machine.peak("fp32", False) / machine.peak("fp32", True))


def emulating_bf16(model: StepModel) -> Rates:
    """Return rates by which products in half precision take as long as in fp32."""
    machine, rates = model.machine, model.rates
    slow = machine.peak("fp32", False) / machine.peak("fp16", False)
    full = rates.matmul_fp32 * slow
    return replace(rates, matmul_half=full, matmul_half_geforce=full, attention=rates.attention_fp32 * slow)


def in_fp32(trace: Trace) -> Trace:
    """Return a trace under autocast as it is without."""

    def whole(part: Block) -> Block:
        costs: dict[str, Linear] = {}
        for key, line in part.costs.items():
            if "/half/" in key:
                costs[key.replace("/half/", "/fp32/")] = line * 2.0 if key.endswith("/bytes") else line
            elif key.endswith(("/memory/bytes", "/fused/bytes")):
                costs[key] = Linear(line.fixed, line.per_example / _AUTOCAST_MOVED)
            elif "/weight_cast/" not in key:
                costs[key] = line
        return replace(part, costs=costs)

    return replace(trace, parts=tuple(map(whole, trace.parts)))
