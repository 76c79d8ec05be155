"""What ranks do in the tests of the fork server, of memory limits and of trials: answer, hang, fail, die, allocate."""

from __future__ import annotations

import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from repro import models
from repro.measure import engine, phases
from repro.measure.batches import random_batch
from repro.measure.memory import Peak, is_out_of_memory, limit_memory
from repro.measure.rank import STACK_STARTED, Rank
from repro.paper.settings import Settings

NEVER = 10_000.0  # seconds: longer than any test


def changed_engines(change: Callable[[Any], None]) -> None:
    """Have each engine that this rank builds from now on changed by `change`."""
    building = engine.build

    def build(*given: Any, **named: Any) -> engine.Engine:
        built = building(*given, **named)
        change(built)
        return built

    engine.build = build


def answer(rank: Rank, value: Any) -> Any:
    return value


def timed_beside_another(rank: Rank, building: float, timed: float) -> None:
    """Builds in silence, then times something while another process computes all the time."""
    time.sleep(building)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with rank.timed():
            time.sleep(timed)
    finally:
        busy.kill()
        busy.wait()


def who(rank: Rank) -> dict[str, Any]:
    return {
        "index": rank.index,
        "world": rank.world,
        "process": os.getpid(),
        "group": os.getpgrp(),
        "parent": os.getppid(),
        "started": rank.since_sent(),
        "stack_started": STACK_STARTED,
    }


def total(rank: Rank) -> int:
    """The sum of all ranks' indices, by a collective."""
    rank.join()
    mine = torch.tensor(rank.index)
    dist.all_reduce(mine)
    return int(mine)


def take_turns(rank: Rank) -> list[tuple[float, float]]:
    """Computes three times, when it is this job's turn: from when to when."""
    rank.join()
    computed = []
    for _ in range(3):
        rank.turn()
        began = time.monotonic()
        time.sleep(0.05)
        computed.append((began, time.monotonic()))
        dist.barrier()  # as the reduction of gradients does
    return computed


def hang(rank: Rank, pids: str) -> None:
    """Sleeps for good, after writing its process's number into the folder `pids`."""
    _write_pid(pids, os.getpid())
    time.sleep(NEVER)


def compile_for_good(rank: Rank) -> None:
    """Has a compiler, which makes a temporary file, wait for code that never comes."""
    subprocess.run(["cc", "-x", "c", "-c", "-o", os.devnull, "-"], stdin=os.pipe()[0], check=True)


def hang_with_a_family(rank: Rank, pids: str) -> None:
    """Also has a child in a session of its own, and a child that ignores polite signals."""
    _have_children(pids)
    hang(rank, pids)


def leave_a_family(rank: Rank, pids: str) -> None:
    _have_children(pids)


def report_then(rank: Rank, what: str) -> None:
    """Reports twice, then ends as told: a signal's name, `exit`, `raise`, `complain`, or `unsayable`."""
    rank.report(fitted={1: 10})
    rank.report(fitted={1: 10, 2: 20})
    if what == "raise":
        raise ValueError("the first line\nand a second one")
    if what == "complain":
        raise ValueError("first\n" + "and so on\n" * 10_000 + "last")
    if what == "exit":
        os._exit(3)
    if what == "unsayable":
        return threading.Lock()  # type: ignore[return-value]  # no process can send it to another
    os.kill(os.getpid(), signal.Signals[what])
    return None


def first_fails(rank: Rank, what: str) -> None:
    if rank.index == 0:
        report_then(rank, what)
    time.sleep(NEVER)


def die_before_its_child(rank: Rank, pids: str) -> None:
    """Forks a child that keeps all that the rank had open, then dies."""
    child = os.fork()
    if child == 0:
        time.sleep(NEVER)
    _write_pid(pids, child)
    os.kill(os.getpid(), signal.SIGKILL)


def spared(rank: Rank) -> int:
    """How readily the kernel kills this process where memory runs out, from -1000 to 1000."""
    return int(Path("/proc/self/oom_score_adj").read_text())


def chatter(rank: Rank, lines: int) -> str:
    for number in range(lines):
        print(f"rank {rank.index} says line {number}")
    return "done"


def allocate(rank: Rank, megabytes: int, by: str, hungry: int | None = None) -> int:
    """Allocates that much, on the rank `hungry` or on all of them, then meets the others."""
    if hungry in (None, rank.index):
        held: Any = torch.ones(megabytes << 20, dtype=torch.uint8) if by == "torch" else bytearray(megabytes << 20)
        del held
    return total(rank) if rank.world > 1 else megabytes


def peaks(rank: Rank, megabytes: int) -> list[float]:
    """Peak memory in MiB, beyond the start, before and after an allocation that is gone when it is read."""
    torch.ones(2 * megabytes << 20, dtype=torch.uint8)  # before the start: none of it counts
    peak = Peak(rank.cuda)
    before = peak.bytes()
    torch.ones(megabytes << 20, dtype=torch.uint8)
    return [before / 2**20, peak.bytes() / 2**20]


def on_a_gpu(rank: Rank, limits: list[int | None]) -> dict[str, Any]:
    """What limits and peaks ask of the allocator of a GPU, the fourth of some that stand in for it."""
    shares: list[float] = []
    begun: list[bool] = []
    cuda: Any = torch.cuda
    cuda.current_device = lambda: 3
    cuda.get_device_properties = lambda device: SimpleNamespace(total_memory=2**32 if device == 3 else 2**31)
    cuda.set_per_process_memory_fraction = shares.append
    cuda.reset_peak_memory_stats = lambda: begun.append(True)
    cuda.max_memory_reserved, cuda.max_memory_allocated = lambda: "reserved", lambda: "allocated"
    before = resource.getrlimit(resource.RLIMIT_DATA)
    for limit in limits:
        limit_memory(limit, cuda=True)
    peak = Peak(cuda=True)
    return {
        "shares": shares,
        "host_limited": resource.getrlimit(resource.RLIMIT_DATA) != before,
        "peaks_begin": len(begun),
        "limited": peak.limited(),
        "bytes": peak.bytes(),
    }


def goes_back(rank: Rank) -> bool:
    """A backward pass of next to nothing, where there are fake tensors."""
    with FakeTensorMode():
        torch.ones(1)
    weight = torch.ones(1, requires_grad=True)
    weight.sum().backward()
    return weight.grad is not None


def beside_another(rank: Rank, phase: str, megabytes: int, hungry: int, **arguments: Any) -> dict[str, Any]:
    """A trial's phase, where something else holds memory on the rank `hungry`."""
    held = bytearray(megabytes << 20 if rank.index == hungry else 0)
    result = getattr(phases, phase)(rank, **arguments)
    del held
    return result


def greedy(rank: Rank, phase: str, megabytes: int, micro_batch: int, **arguments: Any) -> dict[str, Any]:
    """A trial's timing, taking so much more memory an example than the search did."""
    held = bytearray(megabytes * micro_batch << 20)
    result = getattr(phases, phase)(rank, micro_batch=micro_batch, **arguments)
    del held
    return result


def hoarding(rank: Rank, phase: str, micro_batch: int, starting: int, adding: int, **arguments: Any) -> dict[str, Any]:
    """A trial's timing, with the memory to start at no more than a micro batch of `starting`, and to add to gradients
    at no more than `adding`."""
    if micro_batch > starting:
        raise MemoryError

    def change(built: Any) -> None:
        micro_step, update = built.micro_step, built.update
        updates: list[None] = []

        def adds(batch: dict[str, Any], reduce: bool) -> Any:
            if updates and not reduce and micro_batch > adding:
                raise MemoryError
            return micro_step(batch, reduce)

        built.micro_step, built.update = adds, lambda: updates.append(update())

    changed_engines(change)
    return getattr(phases, phase)(rank, micro_batch=micro_batch, **arguments)


def brittle(rank: Rank, phase: str, **arguments: Any) -> dict[str, Any]:
    """A trial's phase, with a library in it that dies where memory runs out, as native ones do."""
    try:
        return getattr(phases, phase)(rank, **arguments)
    except BaseException as error:
        if is_out_of_memory(error):
            os.kill(os.getpid(), signal.SIGSEGV)
        raise


def in_environment(rank: Rank, phase: str, variables: dict[str, str], **arguments: Any) -> Any:
    """A trial's phase on a machine that has these environment variables."""
    os.environ.update(variables)
    return getattr(phases, phase)(rank, **arguments)


def broken(rank: Rank, phase: str, **arguments: Any) -> None:
    """A trial's phase, with a library in it that dies in any case."""
    os.kill(os.getpid(), signal.SIGSEGV)


def broken_second(rank: Rank, phase: str, killed: bool, **arguments: Any) -> Any:
    """A trial's phase, of which the second rank dies once it has joined the first, which then fails at that."""
    if rank.index == 1:
        rank.join()
        if killed:
            os.kill(os.getpid(), signal.SIGSEGV)
        raise ValueError("broken")
    return getattr(phases, phase)(rank, **arguments)


def _have_children(pids: str) -> None:
    for _ in range(2):
        _write_pid(pids, subprocess.Popen(["sleep", str(NEVER)], start_new_session=True).pid)
    deaf = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({NEVER})"
    _write_pid(pids, subprocess.Popen([sys.executable, "-c", deaf]).pid)


def _write_pid(folder: str, pid: int) -> None:
    Path(folder, str(pid)).touch()


def exchanged(rank: Rank) -> dict[str, Any]:
    """What collectives return in a projected rank."""
    rank.join()
    scattered, gathered = torch.full((2,), math.nan), torch.full((2 * rank.world,), math.nan)
    dist.reduce_scatter_tensor(scattered, torch.arange(2.0 * rank.world))
    dist.all_gather_into_tensor(gathered, torch.tensor([1.0, 2.0]))
    reduced = torch.tensor([3.0])
    dist.all_reduce(reduced)
    return {"scattered": scattered.tolist(), "gathered": gathered.tolist(), "reduced": reduced.item()}


def sized(rank: Rank, **arguments: Any) -> int:
    """A trial's search, and the peak of resident memory that it reached beyond the start, in bytes."""
    peak = Peak(rank.cuda)
    phases.fit(rank, **arguments)
    return peak.bytes()


def computed(rank: Rank, recipe: str, settings: str, micro_batch: int, steps: int) -> dict[str, Any]:
    """Training steps of one micro-step: the CPU seconds of the operators that compute, each at its fastest; the
    losses, how many updates were skipped, and the operators of a step."""
    model = models.find(recipe, "tiny")
    built = engine.build(model, Settings.parse(settings), rank, 1, compiled=False, tf32=False)
    batch = random_batch(model, micro_batch, rank.index)
    timed, losses = [], []
    for _ in range(steps):
        with Timing() as timing:
            losses.append(built.micro_step(batch, reduce=True))
            built.update()
        timed.append(timing)
    warm = timed[2:]  # the first makes moments, the second DDP's buckets in the order of gradients
    return {
        "seconds": sum(map(min, zip(*(timing.seconds for timing in warm), strict=True))),
        "losses": [float(loss) for loss in losses],
        "skipped": built.skipped_updates(),
        "operators": Counter(warm[-1].called),
    }


class Timing(TorchDispatchMode):
    """Times the operators that are called, but those by which ranks exchange: the CPU seconds of the thread, which are
    none while others have the CPU; with the names and the sizes of results."""

    exchange = ("c10d::", "aten::copy_", "aten::split.", "aten::mul.out")  # the last divides gradients in DDP's buckets

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []
        self.seconds: list[float] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began = time.thread_time()
        found = func(*args, **(kwargs or {}))
        seconds = time.thread_time() - began
        if not func.name().startswith(self.exchange):
            sizes = [tuple(each.shape) for each in tree_leaves(found) if isinstance(each, torch.Tensor)]
            self.called.append(f"{func.name()} {sizes}")
            self.seconds.append(seconds)
        return found
