"""A clock that replays a measurement."""

from __future__ import annotations

from collections.abc import Iterator


class ReplayClock:
    """A timer for pytest-benchmark that shows what a trial measured, whenever it was: every round is one step."""

    def __init__(self) -> None:
        self._now = 0.0
        self._steps: Iterator[float] = iter(())

    def load(self, steps: list[float]) -> None:
        self._steps = iter(steps)

    def __call__(self) -> float:
        return self._now

    def step(self) -> None:
        """Stands for a training step: the clock moves on by its measured time."""
        self._now += next(self._steps)

    def __repr__(self) -> str:
        return "a replay of measured steps"
