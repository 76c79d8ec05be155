"""The work of each rank of a trial: find the largest micro batch that fits, then measure with it."""

from __future__ import annotations

import contextlib
import re
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import mean, median
from typing import Any

import torch

from repro.console import cut, one_line
from repro.machine import nvml
from repro.machine.build_cache import disk_full
from repro.machine.support import compiles
from repro.paper.settings import Settings
from repro.record import AsRun

from .. import models
from ..models.recipe import Recipe, Scale, divisors
from . import engine
from .batches import random_batch, to_device
from .clock import Clock, Watch, kernel_path, optimizer_path, synchronised, wait
from .jobs import PARTS, SEED, Measured
from .memory import Peak
from .probes import NotCountedError, profiled
from .rank import STACK_STARTED, Rank

_LOSSES = 4  # of the first micro-steps: enough to distinguish other numerics from rounding
_LEAST_SECONDS = 1.0  # of work for an energy counter that moves every 0.1 s
_SCALE_TRIES = 24  # the scale starts at 2^16 and halves with every skipped update
# Error lines of compilers and linkers, whose last line only says that they failed.
_COMPLAINT = re.compile(r"^.*(?:\b(?:error|fatal)\s*:|\bld: cannot find |undefined reference to ).*$", re.MULTILINE)


def fit(rank: Rank, recipe: str, scale: Scale, settings: str, tf32: bool, start: int, largest: int) -> None:
    """Run one training step at each divisor of `largest` from micro batch `start` on, and report each that fits and the
    bytes it took. Nothing is compiled: compiling changes speed, not memory (Appendix F). It ends at `largest`, or out
    of memory. At a `start` above 1 it runs two steps, as Adam has no moments at the first one yet."""
    peak = Peak(rank.cuda)
    model = models.find(recipe, scale)
    wanted = Settings.parse(settings)
    built = engine.build(model, wanted, rank, 1, compiled=False, tf32=tf32)
    _refuse_slow_scan(rank, model, wanted)
    watch, fitted = Watch(), dict[int, int]()
    for size in (start, *(each for each in divisors(largest) if each > start)):
        batch = to_device(random_batch(model, size, SEED + rank.index), rank)
        first = size == start
        if first:
            rank.report(started=rank.since_sent())
        with watch if first else contextlib.nullcontext():
            built.micro_step(batch, reduce=True)
            built.update()
            if first:
                _until_applied(built, batch)
        if first and start > 1:
            built.micro_step(batch, reduce=True)
            built.update()
        wait(rank.device)
        taken = peak.limited()
        if first:
            _report_what_ran(rank, built, model, wanted, tf32, watch)
        fitted[size] = taken
        rank.report(fitted=fitted)  # after the check above: what ran in another way does not fit
        del batch
        if rank.cuda:
            torch.cuda.empty_cache()


def _refuse_slow_scan(rank: Rank, model: Recipe, wanted: Settings) -> None:
    """Raise WrongWrapperError where a slow path would run in place of the model's kernels, before that can run out of
    memory."""
    if rank.cuda and wanted.free_lunch and (kernels := model.kernels) is not None and not kernels.run():
        errors = kernels.import_errors()
        raise engine.WrongWrapperError(
            f"asked for {model.name}'s custom kernels, its slow reference path runs ({errors})"
        )


def _report_what_ran(
    rank: Rank, built: engine.Engine, model: Recipe, wanted: Settings, tf32: bool, watch: Watch
) -> None:
    """Check the wrapper, its shards, the kernels and TF32 against what was asked for; report them and the optimizer
    that updates."""
    built.check()
    held = built.held()
    ran_tf32 = engine.runs_tf32(rank.device)
    if ran_tf32 and not tf32:
        raise engine.WrongWrapperError("fp32 products ran in TF32 unasked: is NVIDIA_TF32_OVERRIDE set?")
    ran = replace(
        AsRun.asked(model, wanted, compiles(model, wanted), tf32),
        precision=built.precision,
        wrapper=built.wrapper,
        optimizer=optimizer_path(built.adam, watch),
        kernel_path=kernel_path(model, watch),
        tf32=ran_tf32,
        weights=built.total,
        weights_held=held.weights,
        moments_held=held.moments,
    )
    rank.report(as_run=ran, stack_started=STACK_STARTED)


def measure(
    rank: Rank,
    recipe: str,
    scale: Scale,
    settings: str,
    tf32: bool,
    compiled: bool,
    micro_batch: int,
    accumulation: int,
    steps: int,
    check_extrapolation: bool,
    trained: int = 0,
) -> Measured:
    """Time micro-steps without and with gradient reduction, and updates: a warm-up and `steps` rounds of each.

    The authors' sequence comes first and undisturbed, as their clock depends on what is still queued: a blocking copy
    of the inputs, a micro-step with reduction, an update. All times in seconds, one per round, warm-ups apart. At the
    end come `trained` training steps of one micro-step, whose losses are returned.
    """
    model = models.find(recipe, scale)
    peak = Peak(rank.cuda)
    built = engine.build(model, Settings.parse(settings), rank, accumulation, compiled=compiled, tf32=tf32)
    timed = _Timed(rank, built, random_batch(model, micro_batch, SEED + rank.index), steps)
    rank.report(started=rank.since_sent())
    warm_up = timed.warm_up()
    if compiled:
        _end_compiler()
    clocks = {name: Clock(rank.device) for name in PARTS}
    counters = _Counters(rank)

    def tell_authors() -> None:
        """Report the authors' times: they stay valid if what follows, which keeps gradients, lacks memory."""
        rank.report(authors={name: clocks[name].read()[0] for name in ("with", "update")})

    synced: dict[str, list[float]] = {name: [] for name in PARTS}
    watts: dict[str, list[float]] = {name: [] for name in PARTS}

    def synchronise(name: str, work: Callable[[], Any]) -> None:
        """Time a part. Take the power of a long one: to ask between short ones would let the GPU rest."""
        counted = _Counters(rank) if rank.cuda and median(read[name][1]) >= _LEAST_SECONDS else None
        synced[name].append(synchronised(rank.device, work))
        if counted is not None and (power := counted.rates().get("joules")) is not None:
            watts[name].append(power)

    with rank.timed():
        timed.rounds(lambda name, work: clocks[name].part(work), tell_authors)
        read = {name: clock.read() for name, clock in clocks.items()}
        timed.rounds(synchronise)
    rates = counters.rates()
    peak_bytes = peak.bytes()
    state = _state_at_work(rank, timed.micro_step(reduce=True), median(synced["with"]))
    built.update()

    graphs = _graphs(built) if compiled else None
    if compiled and "cuda_graphs" in built.parts and (skipped := _skipped_graphs()):
        raise engine.WrongWrapperError(f"asked for cuda_graphs, and torch left out {skipped} of them")
    losses = _numbers(timed.losses[:_LOSSES])
    whole_steps = [
        synchronised(rank.device, lambda: timed.whole_step(accumulation))
        for _ in range(steps if check_extrapolation else 0)
    ]
    trained_losses = timed.train(trained)
    launches, uncounted = _launches(rank, timed)  # last: the profiler slows what follows
    return Measured(
        host={name: host for name, (host, _) in read.items()},
        device={name: device for name, (_, device) in read.items()},
        synchronised=synced,
        warm_up=warm_up,
        peak_memory=peak_bytes,
        mean_power=rates.pop("joules", None),
        part_power={name: mean(rounds) for name, rounds in watts.items() if rounds},
        graphs=graphs,
        gpu_state=state and {**state, **rates},
        skipped_updates=timed.skipped,
        losses=losses,
        trained_losses=trained_losses,
        launches=launches,
        uncounted=uncounted,
        whole_steps=whole_steps,
    )


class _Timed:
    """The parts of a training step on one batch, in `steps` rounds: `losses` of the micro-steps so far, and how many of
    the timed updates the fp16 loss scale `skipped`."""

    def __init__(self, rank: Rank, built: engine.Engine, batch: dict[str, torch.Tensor], steps: int) -> None:
        self._rank, self._built, self._batch, self._steps = rank, built, batch, steps
        self.losses: list[torch.Tensor] = []  # left on the device: reading one would wait for it
        self.skipped = 0

    def micro_step(self, reduce: bool) -> Callable[[], Any]:
        """Return a micro-step to be timed; the blocking copy of its inputs is not timed."""
        batch, built, losses = to_device(self._batch, self._rank), self._built, self.losses
        return lambda: losses.append(built.micro_step(batch, reduce))

    def update(self) -> None:
        self._built.update()

    def warm_up(self) -> float:
        """Run one warm-up round, as the authors did, and return its seconds. DDP rebuilds its buckets once, after the
        first reduction: in the first timed round."""
        started = time.perf_counter()
        self.micro_step(reduce=False)()
        self.micro_step(reduce=True)()
        self._built.update()
        _until_applied(self._built, to_device(self._batch, self._rank))
        wait(self._rank.device)
        return time.perf_counter() - started

    def rounds(
        self, part: Callable[[str, Callable[[], Any]], None], before_adding: Callable[[], None] = lambda: None
    ) -> None:
        """Have `part` time each part by its name: those of the authors' sequence first, then, after `before_adding`,
        micro-steps that add to gradients."""
        self.skipped -= self._built.skipped_updates()
        for _ in range(self._steps):
            self._rank.turn()
            part("with", self.micro_step(reduce=True))
            part("update", self.update)
        before_adding()
        self.micro_step(reduce=False)()  # so that the timed ones add to gradients, as all but one of a training step do
        for _ in range(self._steps):
            self._rank.turn()
            part("without", self.micro_step(reduce=False))
        self.skipped += self._built.skipped_updates()  # timed ones only: the next one may be skipped, too
        self.micro_step(reduce=True)()
        self._built.update()  # clears the gradients

    def whole_step(self, accumulation: int) -> None:
        """Run a training step as in training, with all its micro-steps; the copies of the inputs are in its time."""
        for step in range(accumulation):
            self.micro_step(step == accumulation - 1)()
        self._built.update()

    def train(self, steps: int) -> list[float | None]:
        """Run training steps of one micro-step at the peak learning rate, where the schedule would still warm up, and
        return their losses."""
        before = len(self.losses)
        for _ in range(steps):
            self.micro_step(reduce=True)()
            self._built.peak_rate()
            self._built.update()
        return _numbers(self.losses[before:])


class _Counters:
    """What this rank's GPU counts, see `nvml.counters`, from here to `rates`."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._before, self._started = self._read(), time.perf_counter()

    def _read(self) -> dict[str, float]:
        if not self._rank.cuda or self._rank.interleaved:  # the GPU then works for others as well
            return {}
        wait(self._rank.device)
        return nvml.counters(self._rank.local)

    def rates(self) -> dict[str, float]:
        """Return how fast each counter rose, in one per second, once all work is done: of joules the watts. Empty for
        less time than the counters resolve."""
        now, seconds = self._read(), time.perf_counter() - self._started
        if seconds < _LEAST_SECONDS:
            return {}
        return {name: (now[name] - before) / seconds for name, before in self._before.items() if name in now}


def _numbers(losses: list[torch.Tensor]) -> list[float | None]:
    return [float(loss) if loss.isfinite() else None for loss in losses]


def _state_at_work(rank: Rank, work: Callable[[], Any], seconds: float) -> dict[str, float | None] | None:
    """Run work that takes so many seconds, and return the GPU's state halfway, in a thread: some engines return only
    when the device is done. None on a CPU."""
    if not rank.cuda:
        work()
        return None

    def halfway() -> dict[str, float | None] | None:
        time.sleep(seconds / 2)
        return nvml.state(rank.local)

    with ThreadPoolExecutor(1) as beside:
        state = beside.submit(halfway)
        work()
        return state.result()


def _launches(rank: Rank, timed: _Timed) -> tuple[dict[str, int] | None, str | None]:
    """Count what the first rank's GPU runs in a micro-step with reduction and in an update, which every rank takes part
    in. Return the counts (None on a CPU, on other ranks and after an error) and the error, if any. Raises nothing."""
    if not rank.cuda:
        return None, None
    found: dict[str, int] = {}
    try:
        parts = {"with": timed.micro_step(reduce=True), "update": timed.update}
        for name, work in parts.items():
            if rank.index == 0:
                found[name] = len(profiled(rank.device, work))
            else:
                work()
                wait(rank.device)
    except Exception as error:  # all is measured: an error here must not lose it
        reason = error if isinstance(error, NotCountedError) else f"{type(error).__name__}: {error}"
        return None, str(reason).partition("\n")[0]
    return found or None, None


def _end_compiler() -> None:
    """End the compiler's processes, which would share the device and the cores with what is timed. The paper's torch
    starts none here, see repro/machine/stack.py."""
    module = sys.modules.get("torch._inductor.async_compile")
    if module is not None:
        module.shutdown_compile_workers()


def _until_applied(built: engine.Engine, batch: dict[str, torch.Tensor]) -> None:
    """Repeat a first step that the fp16 loss scale skipped: until one is applied, Adam has no moments and no cost."""
    for tries in range(1, _SCALE_TRIES):
        if built.skipped_updates() < tries:
            return
        built.micro_step(batch, reduce=True)
        built.update()


def _skipped_graphs() -> int:
    """Return how many graphs torch did not run as CUDA graphs, of which it only logs why."""
    from torch._dynamo.utils import counters

    return counters["inductor"]["cudagraph_skips"]


def _graphs(built: engine.Engine) -> dict[str, int]:
    """Count what torch.compile made of the model: compiled graphs, breaks between them, recompilations, and with FSDP
    the layers that were compiled, each by itself."""
    from torch._dynamo.convert_frame import FRAME_COMPILE_COUNTER
    from torch._dynamo.utils import counters

    found = {
        "compiled": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
        "recompilations": sum(times - 1 for times in FRAME_COMPILE_COUNTER.values()),
    }
    if isinstance(built, engine.FullyShardedEngine):
        found["layers"] = sum(_calls_a_graph(type(unit).forward) for unit in built.units)
    return found


def _calls_a_graph(function: Any) -> bool:
    """Return whether a function, once compiled, calls a graph. One that breaks at once is compiled without one."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    return any(
        "__compiled_fn" in name
        for entry in _debug_get_cache_entry_list(function.__code__)
        for name in entry.code.co_names
    )


def compile_anything(rank: Rank) -> None:
    """Compile two operators. Where that fails, it is not the model's fault."""
    torch.compile(lambda x: (x.sin() * x).sum())(torch.ones(64, device=rank.device))


def build_adam(rank: Rank, host: bool) -> str | None:
    """Compile DeepSpeed's Adam, for the GPU or for the `host`; return why that failed, else None."""
    from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder

    try:
        (CPUAdamBuilder if host else FusedAdamBuilder)().load()
    except Exception as error:
        traceback.print_exc()
        # torch passes on all output of its compilers, whole command lines first.
        if disk_full(str(error)):
            raise
        complaint = _COMPLAINT.search(str(error))
        return cut(complaint[0].strip()) if complaint else one_line(error)
    return None
