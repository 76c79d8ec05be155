"""Clocks for the parts of a step, on the host and on the device, and the detection of the kernels that ran."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..models.recipe import Recipe
from ..record import SLOW_SCAN


class Clock:
    """A clock that times the same parts on the host and by device events, without synchronisation between them."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._host: list[float] = []
        self._events: list[tuple[Any, Any]] = []

    def part(self, work: Callable[[], Any]) -> None:
        """Run and time one part."""
        begin, end = self._event(), self._event()
        started = time.perf_counter()
        if begin is not None:
            begin.record()
        work()
        if end is not None:
            end.record()
        self._host.append(time.perf_counter() - started)
        self._events.append((begin, end))

    def read(self) -> tuple[list[float], list[float]]:
        """Return the seconds of every part, on the host and on the device, and wait for it. Both are equal on a CPU."""
        if not self._cuda:
            return self._host, list(self._host)
        torch.cuda.synchronize()
        return self._host, [begin.elapsed_time(end) / 1e3 for begin, end in self._events]

    def _event(self) -> Any:
        return torch.cuda.Event(enable_timing=True) if self._cuda else None


def synchronised(device: torch.device, work: Callable[[], Any]) -> float:
    """Return the seconds of one part, from an idle device to an idle device."""
    wait(device)
    started = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - started


def wait(device: torch.device) -> None:
    """Wait until the device has finished all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()


# Implementations of torch's Adam, by an operator that nothing else in a training step calls. DeepSpeed's calls none.
_ADAMS_WAYS = {
    "_fused_adam_": "fused",
    "_fused_adamw_": "fused",
    "_foreach_addcdiv_": "foreach",
    "addcdiv_": "tensor by tensor",
}


class Watch(TorchDispatchMode):
    """A recorder of the operators that are called."""

    supports_higher_order_operators = True  # FlexAttention is one

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.name().removeprefix("aten::").partition(".")[0])
        return func(*args, **(kwargs or {}))


def kernel_path(recipe: Recipe, watch: Watch) -> str:
    """Return the names of the model's kernels: those of other packages, attention operators, "eager attention" where
    none was called, or "none"."""
    if (kernels := recipe.kernels) is not None:
        return ", ".join(f"{k}: {v}" for k, v in sorted(kernels.bound().items())) if kernels.run() else SLOW_SCAN
    if not recipe.attends:
        return "none (no custom kernel exists)"
    seen = (name.lstrip("_") for name in watch.seen if "attention" in name or "flash_attn" in name)
    return ", ".join(sorted(seen)) or "eager attention"


def optimizer_path(optimizer: torch.optim.Optimizer, watch: Watch) -> str:
    """Return the optimizer's package and class, and for torch's Adam which of its implementations ran."""
    kind = type(optimizer)
    ways = [way for operator, way in _ADAMS_WAYS.items() if operator in watch.seen]
    return " ".join([kind.__module__.partition(".")[0], kind.__name__, *(f"({way})" for way in ways)])
