"""A training step slowed down by a known share, which benchmarks inject to test whether it is found."""

from __future__ import annotations

import importlib.machinery
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repro.measure.jobs import Measured
    from repro.measure.rank import Rank

_TARGET = "repro.measure.engine.plain"


def slowed(work: Callable[..., Any], share: float) -> Callable[..., Any]:
    """Return an engine's micro-step or update that repeats part of its work, products of the model's own weights, until
    `share` of the time that it took has passed once more."""

    def longer(engine: Any, *arguments: Any, **named: Any) -> Any:
        import torch

        from repro.measure.clock import wait

        started = time.perf_counter()
        result = work(engine, *arguments, **named)
        wait(engine.rank.device)
        end = started + (1 + share) * (time.perf_counter() - started)
        weight = next(weight for weight in engine.module.parameters() if weight.dim() == 2)[:64].detach()
        with torch.no_grad():
            while time.perf_counter() < end:
                weight @ weight.T
                wait(engine.rank.device)
        return result

    return longer


def slow_down(engines: ModuleType, share: float) -> None:
    """Slow down the engine that trains without sharding."""
    engine: Any = engines.PlainEngine
    engine.micro_step, engine.update = slowed(engine.micro_step, share), slowed(engine.update, share)


def when_measuring(share: float) -> None:
    """Slow down a whole environment from its first line on: a .pth file of it calls this. Python runs the .pth files of
    a virtual environment twice, so a second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(share))


class _Finder:
    """A finder that slows the engine down once it is imported."""

    def __init__(self, share: float) -> None:
        self._share = share

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _TARGET:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def then_slow_down(module: ModuleType) -> None:
            execute(module)
            slow_down(module, self._share)

        loader.exec_module = then_slow_down
        return spec


def measure(rank: Rank, share: float, **arguments: Any) -> Measured:
    """Run phases.measure for a trial that is slowed down by `share`."""
    from repro.measure import phases
    from repro.measure.engine import plain

    if share:
        slow_down(plain, share)
    return phases.measure(rank, **arguments)
