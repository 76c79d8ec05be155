"""What the authors' clock shows of a step: the host's time, without what still waits in the GPU's launch queue.

The host hands in launches ahead of the GPU until the queue is full, and then one for each that the GPU ends. Once it
has handed in a micro-step's last kernel it reads its clock, with the last ones still to run. results/h100 has both
clocks of 13 trials, by which this was found; results/h200 has the launches of 8, as a profiler counted them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.paper.settings import Settings

from .time import TimedStep
from .traces import PAPER_STACK

# torch's multi-tensor kernels, which are Adam's, take so many weights a launch: 320 blocks of 65,536 elements
# (MultiTensorApply.cuh). Adam and clipping pass over all weights about ten times: an update of Pythia-2.8B makes 1,359
# launches, ViT's 163 (results/h200).
_CHUNK, _PASSES = 320 * 65_536, 10


# Launches for each kernel that a trace counts, beside two copies a tensor: the medians of what a profiler counted of
# eager and of compiled code (results/h200). Libraries copy and fill, and traces do not see that.
_EAGER, _COMPILED = 1.32, 1.57
_TRIES = 20


@dataclass(frozen=True)
class Queue:
    """How many launches the host runs ahead of the GPU, and the seconds that it takes to hand one in: of eager code,
    and of what torch.compile made. What the paper's torch 2.3.1 compiled has another number."""

    eager: float = 970.0
    compiled: float = 820.0
    papers_compiled: float = 600.0
    launch: float = 20e-6
    launch_compiled: float = 20e-6


def waits(settings: Settings, papers: bool) -> bool:
    """Whether the host waits for the GPU by the end of every micro-step, so that its clock misses nothing.

    DeepSpeed (0.14.4 and 0.19.8) waits in stage 2, as communication overlaps (independent_gradient_partition_epilogue
    in stage_1_and_2.py), in stage 3 for its stream of reductions (the same in stage3.py), and with offloading as it
    looks for infinities in each gradient (update_overflow_tracker_for_param_grad). The paper's FSDP (torch 2.3.1)
    waits for the gathering before the last one (_runtime_utils.py, _unshard), with offloading also for the backward
    pass; fully_shard waits with offloading alone (_fsdp_param_group.py). DistributedDataParallel and ZeRO-1 wait for
    nothing.
    """
    if settings.library == "fsdp":
        return papers or settings.offloading
    return settings.offloading or settings.stage > 1


def authors_step(step: TimedStep, queue: Queue) -> float:
    """Seconds of a training step by the authors' clock."""
    seconds, papers = step.micro.seconds, step.trace.stack == PAPER_STACK
    if waits(step.settings, papers):
        return step.seconds
    room, launch = queue.eager, queue.launch
    if step.compiled:
        room, launch = queue.papers_compiled if papers else queue.compiled, queue.launch_compiled
    backwards = _backwards(step)
    shown = min(seconds, max(launch * launches(step), seconds - _last(backwards, room)))
    left = seconds - shown
    adam = _PASSES * step.trace.parameters / _CHUNK
    if step.settings.library != "torch":  # these wait for the GPU in an update, DeepSpeed by its timer
        updating = left + step.update
    elif step.recipe.precision == "fp16":  # the scaler waits for the gradients; Adam's launches are handed in
        updating = left + queue.launch * adam
    else:
        updating = max(queue.launch * adam, left + step.update - _last([(adam, step.update), *backwards], room))
    return shown * step.times + updating


def launches(step: TimedStep) -> float:
    """Launches of a micro-step, about as many as a profiler counts."""
    return sum(number for number, _ in _backwards(step))


def _backwards(step: TimedStep) -> list[tuple[float, float]]:
    """The stretches of a micro-step as launches and seconds, the last one first. DistributedDataParallel and DeepSpeed
    copy each gradient into a bucket, and in the end back; exchanges lie between the kernels."""
    a_kernel = _COMPILED if step.compiled else _EAGER
    copied = step.settings.library != "fsdp"
    share = step.micro.seconds / sum(each.seconds for each in step.micro.stretches)
    return [(step.trace.total("tensors").fixed * copied, 0.0)] + [
        (a_kernel * each.kernels + copied * each.stretch.tensors, each.seconds * share)
        for each in reversed(step.micro.stretches)
    ]


def true_over_predicted(step: TimedStep, queue: Queue, authors: float) -> float:
    """By which factor a predicted step is slower where the authors' clock shows `authors` seconds of it."""
    factor = 1.0
    for _ in range(_TRIES):  # what the clock shows is nearly in proportion to the true time
        ratio = authors / authors_step(step.scaled(factor), queue)
        factor *= ratio
        if abs(ratio - 1) < 1e-6:
            break
    return factor


def _last(backwards: Iterable[tuple[float, float]], room: float) -> float:
    """Seconds of the last `room` launches of stretches (launches, seconds), the last stretch first."""
    seconds = 0.0
    for launches, taken in backwards:
        if launches >= room:
            return seconds + taken * room / launches
        seconds, room = seconds + taken, room - launches
    return seconds
