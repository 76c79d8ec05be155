"""Kernels that the GPU runs for a part of a training step: kernels, copies and memory sets, by torch's profiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from .clock import wait


class NotCountedError(RuntimeError):
    """The profiler saw no kernel, or failed."""


def launched(events: Iterable[Any]) -> list[Any]:
    """Select the profiler's events that the GPU ran: no calls of the host, no ranges that code marks and names."""
    return [event for event in events if event.device_type() == DeviceType.CUDA and not _is_range(event)]


def _is_range(event: Any) -> bool:
    known = getattr(event, "is_user_annotation", None)  # older torch has none
    return known is not None and known()


def profiled(device: torch.device, work: Callable[[], Any]) -> list[Any]:
    """Do this work once, and return the profiler's events of what the GPU ran for it.

    Raises NotCountedError after the work is done where the profiler is not available or fails; what the work raises
    passes through.
    """
    wait(device)
    torch.cuda.empty_cache()  # the profiler's buffers come from the GPU's memory, not from torch's share
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
    events = launched(inner.kineto_results.events())  # its own list, in Python, takes minutes for a million of them
    if not events:
        raise NotCountedError("torch's profiler saw no kernel: may this user read the GPU's performance counters?")
    return events
