"""Benchmarks of this machine: matrix products, copies, kernel launches, and communication among the ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any

import torch
import torch.distributed as dist
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from repro.paper.gpus import AMPERE

from .clock import synchronised, wait
from .rank import Rank

_SIDE = {"cuda": 8192, "cpu": 512}  # of square matrices: large enough for a GPU's peak, small enough for a CPU core
_BYTES = {"cuda": 1 << 30, "cpu": 1 << 26}
_BEYOND_CACHES = 1 << 30
_EXCHANGED = {"cuda": 1 << 28, "cpu": 1 << 24}
_KERNELS = 200
_TIMES, _SECONDS = 7, 0.1  # of each probe, at least, to outlast short use of a core by another process
_SMALL_TIMES = 50
_ARITHMETICS = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def probe(rank: Rank) -> dict[str, float | None]:
    """Return measured speeds of this machine, and report how its CPUs were used meanwhile."""
    with rank.timed():
        return _speeds(rank)


def _speeds(rank: Rank) -> dict[str, float | None]:
    """Return measured speeds of this machine, None for what the device lacks. By arithmetic: FLOP/s of matrix products.
    `copy`: bytes/s that a copy reads and writes. `launch`: seconds that a kernel adds to an eager forward and backward
    pass. `host`: bytes/s between device and host. `memory`: bytes that torch can use of a GPU. With several ranks,
    `ring`: bytes/s that each sends in a ring's all-reduce; `latency`: seconds of the smallest all-gather or
    reduce-scatter."""
    found: dict[str, float | None] = {name: _product(rank, name) for name in _ARITHMETICS}
    size = _BYTES[rank.device.type]
    source = torch.ones(size, dtype=torch.uint8, device=rank.device)
    target = torch.empty_like(source)
    found["copy"] = 2 * size / _best(rank, lambda: target.copy_(source))
    found["host"], found["memory"] = found["copy"], None
    if rank.cuda:
        pinned = torch.ones(size, dtype=torch.uint8, pin_memory=True)
        found["host"] = size / _best(rank, lambda: target.copy_(pinned, non_blocking=True))
        found["memory"] = float(torch.cuda.get_device_properties(rank.device).total_memory)
    found["launch"] = _launch(rank)
    found["ring"] = found["latency"] = None
    if rank.world > 1:
        rank.join()
        many = torch.ones(_EXCHANGED[rank.device.type] // 4, device=rank.device)
        one, gathered = torch.ones(1, device=rank.device), torch.ones(rank.world, device=rank.device)
        sent = 2 * (rank.world - 1) / rank.world * many.nbytes
        found["ring"] = sent / _best(rank, lambda: dist.all_reduce(many), exchanges=True)
        exchanges = (
            lambda: dist.all_gather_into_tensor(gathered, one),
            lambda: dist.reduce_scatter_tensor(one, gathered),
        )
        found["latency"] = fmean(
            median(synchronised(rank.device, each) for _ in range(_SMALL_TIMES)) for each in exchanges
        )
    return found


def host(rank: Rank) -> float:
    """Return the bytes a second that this host's CPUs together read and write, copying far more than their caches
    hold."""
    source = torch.ones(_BEYOND_CACHES, dtype=torch.uint8)
    target = torch.empty_like(source)
    return 2 * source.nbytes / _best(rank, lambda: target.copy_(source))


def _product(rank: Rank, arithmetic: str) -> float | None:
    """Return the FLOP/s of a square matrix product. TF32 needs CUDA; there TF32 and bf16 need Ampere or newer."""
    side, dtype = _SIDE[rank.device.type], _ARITHMETICS[arithmetic]
    if rank.cuda:
        if arithmetic in ("tf32", "bf16") and torch.cuda.get_device_capability() < AMPERE:
            return None
        torch.backends.cuda.matmul.allow_tf32 = arithmetic == "tf32"
    elif arithmetic == "tf32":
        return None
    left = torch.randn(side, side, device=rank.device).to(dtype)
    out = torch.empty_like(left)
    return 2 * side**3 / _best(rank, lambda: torch.mm(left, left, out=out))


def _launch(rank: Rank) -> float:
    """Return the seconds per kernel where kernels do almost nothing: a chain of products forward and backward."""
    weight = torch.ones(16, device=rank.device, requires_grad=True)

    def chain() -> None:
        x = weight
        for _ in range(_KERNELS):
            x = x * weight
        x.sum().backward()

    return _best(rank, chain) / (4 * _KERNELS)  # per product: one kernel forward; backward two, and their sum


def _best(rank: Rank, work: Callable[[], object], exchanges: bool = False) -> float:
    """Return the seconds of the fastest run after a warm-up of two: what the machine can do. With `exchanges` the
    number of runs is fixed, as it has to be equal on all ranks."""
    for _ in range(2):
        work()
    times = [synchronised(rank.device, work) for _ in range(_TIMES)]
    if not exchanges:
        ending = time.perf_counter() + _SECONDS
        while time.perf_counter() < ending:
            times.append(synchronised(rank.device, work))
    return min(times)


class NotCountedError(RuntimeError):
    """An error of the profiler, which failed or saw no kernel."""


def launched(events: Iterable[Any]) -> list[Any]:
    """Return the profiler's events that the GPU ran: no host calls, and no ranges that code marks and names."""
    return [event for event in events if event.device_type() == DeviceType.CUDA and not _is_range(event)]


def _is_range(event: Any) -> bool:
    known = getattr(event, "is_user_annotation", None)  # older torch has none
    return known is not None and known()


def profiled(device: torch.device, work: Callable[[], Any]) -> list[Any]:
    """Run `work` once, and return the profiler's events of what the GPU ran for it.

    Raises NotCountedError after the work is done where the profiler is not available or fails. Errors of the work are
    passed on.
    """
    wait(device)
    torch.cuda.empty_cache()  # the profiler's buffers need GPU memory outside of torch's allocator
    profiler = torch.profiler.profile(activities=[ProfilerActivity.CUDA])
    failure: Exception | None = None
    try:
        profiler.start()
    except Exception as error:
        failure = error
    try:
        work()
        wait(device)
    finally:
        if failure is None:
            try:
                profiler.stop()
            except Exception as error:
                failure = error
    if failure is not None:
        raise NotCountedError(f"torch's profiler failed: {failure}") from failure
    inner: Any = profiler.profiler
    events = launched(inner.kineto_results.events())  # the profiler's own list takes minutes for a million
    if not events:
        raise NotCountedError("torch's profiler saw no kernel: may this user read the GPU's performance counters?")
    return events
