"""What may be otherwise in the training of a script than planned: its step, predicted again with one thing changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from repro.predict.constants import Rates
from repro.predict.traces import Block

from ..paper.gpus import AMPERE
from .answer import Plan
from .causes import emulating_bf16, in_fp32, other_machines, without_tf32
from .took import Cause


def causes_of(plan: Plan) -> Iterator[Cause]:
    """Yield what may be otherwise than planned, with the seconds of a step then."""

    def at(text: str, *changed: Plan) -> Cause:
        seconds = [each.seconds for each in changed]
        return Cause(text, min(seconds), max(seconds))

    machine = plan.machine
    for text, others in other_machines(machine, plan.constants):
        yield at(text, *(replace(plan, machine=each, constants=constants) for each, constants in others))
    if plan.compiled:
        yield at("it is not compiled", replace(plan, compiled=False))
    if machine.capability is not None:
        if plan.precision != "fp32" or plan.tf32:
            full = _with(replace(plan, precision="fp32", micro=_in_fp32(plan)), without_tf32(plan.model))
            yield at("it computes in fp32 without TF32", replace(full, tf32=False))
        if plan.precision == "fp16" and machine.capability < AMPERE:
            emulated = _with(plan, emulating_bf16(plan.model))
            yield at("it computes in bf16, which this GPU does at fp32's speed", emulated)
        if plan.examples > 1:
            few = (plan.with_micro_batch(size) for size in (max(1.0, plan.examples // 2), 1.0))
            yield at("its micro batch is small, and launches take the time", *few)
        offloaded = plan.seconds + plan.offloading
        yield Cause("states are offloaded to the host", offloaded, offloaded)
    if plan.micro_steps > 1:
        micro = plan.seconds / plan.micro_steps
        yield Cause(f"it is the time of a micro-step, of which {plan.micro_steps:.0f} make a step", micro, micro)
    if waiting := plan.waiting(0):
        loading = plan.seconds + waiting
        yield Cause("it waits for its data, as a loader without workers would, timed here", loading, loading)


def _with(plan: Plan, rates: Rates) -> Plan:
    return replace(plan, constants=replace(plan.constants, rates=rates))


def _in_fp32(plan: Plan) -> Block:
    [full, _] = in_fp32(plan.model.trace).parts
    return replace(full, costs=full.costs | {"parameters": plan.micro.cost("parameters")})
