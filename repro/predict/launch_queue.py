"""The authors' clock of a step: the host's time, without the work that still waits in the GPU's launch queue.

The host submits launches ahead of the GPU until the queue is full, and then one for each that the GPU ends. After it
submits a micro-step's last kernel it reads its clock, while the last kernels have yet to run. This was found from 13
trials with both clocks in results/h100; results/h200 has the launches of 8 trials, as a profiler counted them.
"""

from __future__ import annotations

from collections.abc import Iterable

from repro.paper.settings import Settings

from .constants import ADAM_CHUNK, ADAM_PASSES, COMPILED_LAUNCHES, EAGER_LAUNCHES, Queue
from .time import TimedStep
from .traces import PAPER_STACK

_TRIES = 20


def waits(settings: Settings, papers: bool) -> bool:
    """Return whether the host waits for the GPU by the end of every micro-step, so that its clock misses nothing.

    DeepSpeed (0.14.4 and 0.19.8) waits in stage 2, as communication overlaps (independent_gradient_partition_epilogue
    in stage_1_and_2.py), in stage 3 for its reduction stream (the same function in stage3.py), and with offloading as
    it checks each gradient for infinities (update_overflow_tracker_for_param_grad). The paper's FSDP (torch 2.3.1)
    waits for the gather before the last one (_runtime_utils.py, _unshard), and with offloading also for the backward
    pass. fully_shard waits only with offloading (_fsdp_param_group.py). DistributedDataParallel and ZeRO-1 do not wait.
    """
    if settings.library == "fsdp":
        return papers or settings.offloading
    return settings.offloading or settings.stage > 1


def authors_step(step: TimedStep, queue: Queue, slower: float = 1.0) -> float:
    """Return the seconds of a training step that is so many times `slower` by the authors' clock."""
    seconds, papers = slower * step.micro.seconds, step.trace.stack == PAPER_STACK
    if waits(step.settings, papers):
        return slower * step.seconds
    room, launch = queue.eager, queue.launch
    if step.compiled:
        room, launch = queue.papers_compiled if papers else queue.compiled, queue.launch_compiled
    backwards, update = _backwards(step, slower), slower * step.update
    shown = min(seconds, max(launch * launches(step), seconds - _last(backwards, room)))
    left = seconds - shown
    adam = ADAM_PASSES * step.trace.parameters / ADAM_CHUNK
    if step.settings.library != "torch":  # FSDP and DeepSpeed (by its timer) wait for the GPU in an update
        updating = left + update
    elif step.recipe.precision == "fp16":  # the scaler waits for the gradients; Adam's launches are only submitted
        updating = left + queue.launch * adam
    else:
        updating = max(queue.launch * adam, left + update - _last([(adam, update), *backwards], room))
    return shown * step.times + updating


def launches(step: TimedStep) -> float:
    """Return the launches of a micro-step, about as many as a profiler counts."""
    return sum(number for number, _ in _backwards(step, 1.0))


def _backwards(step: TimedStep, slower: float) -> list[tuple[float, float]]:
    """Return a micro-step's stretches as (launches, seconds), last one first. DistributedDataParallel and DeepSpeed
    copy each gradient into a bucket and finally back. The time of communication is spread over the stretches."""
    a_kernel = COMPILED_LAUNCHES if step.compiled else EAGER_LAUNCHES
    copied = step.settings.library != "fsdp"
    share = slower * step.micro.seconds / sum(each.seconds for each in step.micro.stretches)
    return [(step.trace.total("tensors").fixed * copied, 0.0)] + [
        (a_kernel * each.stretch.kernels + copied * each.stretch.tensors, each.seconds * share)
        for each in reversed(step.micro.stretches)
    ]


def true_over_predicted(step: TimedStep, queue: Queue, authors: float) -> float:
    """Return the factor by which a predicted step is slower if the authors' clock shows `authors` seconds of it."""
    factor = 1.0
    for _ in range(_TRIES):  # the clock is nearly proportional to the true time
        ratio = authors / authors_step(step, queue, factor)
        factor *= ratio
        if abs(ratio - 1) < 1e-6:
            break
    return factor


def _last(backwards: Iterable[tuple[float, float]], room: float) -> float:
    """Return the seconds of the last `room` launches of stretches (launches, seconds), given last stretch first."""
    seconds = 0.0
    for launches, taken in backwards:
        if launches >= room:
            return seconds + taken * room / launches
        seconds, room = seconds + taken, room - launches
    return seconds
