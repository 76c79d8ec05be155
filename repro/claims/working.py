"""Arithmetic that keeps the rows its numbers come from, records its steps, and carries the rounding of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add, mul, sub, truediv
from random import Random
from typing import Any

from ..formats import Interval


@dataclass(frozen=True)
class SourceRow:
    """The row that a number was read from: file, row, value with unit, and source."""

    file: str
    row: str
    value: str
    source: str


DRAWS = 20_000  # of what the rounded inputs of a number may have been
_TAIL = DRAWS // 40  # draws below the central 95 %, and as many above
Draws = Sequence[float]


@dataclass(frozen=True)
class Working:
    """A number with the rows that it comes from and its calculation, in words; `note` is a remark for the reader.

    Sums, differences, products and quotients keep the rows and steps of their operands, so that none is lost. The
    bounds of `value` are those of all inputs rounded the worst way at once; `central` has the likely ones. `draw`
    makes the draws of a number that is computed from others.
    """

    value: Interval
    rows: tuple[SourceRow, ...] = ()
    steps: tuple[str, ...] = ()
    note: str = ""
    draw: Callable[[], Draws] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def read(cls, value: float, row: SourceRow, rounded_to: float = 0.0) -> Working:
        """Return a number read from a row, printed there to a multiple of `rounded_to`; 0 means exact."""
        return cls(Interval.rounded(value, rounded_to), (row,))

    def __add__(self, other: Working | float) -> Working:
        return self._with("+", add, other)

    def __sub__(self, other: Working | float) -> Working:
        return self._with("-", sub, other)

    def __mul__(self, other: Working | float) -> Working:
        return self._with("x", mul, other)

    def __truediv__(self, other: Working | float) -> Working:
        return self._with("/", truediv, other)

    def draws(self) -> Draws:
        """Return what the number would be for each draw of its inputs. The same row is the same draw everywhere."""
        if self.value.low == self.value.high:
            return [self.value.low] * DRAWS
        return self.draw() if self.draw else _rounding(self.value, self.rows)

    def central(self) -> Interval:
        """Return the number with the bounds of the central 95 % of its draws."""
        ordered = sorted(self.draws())
        return Interval(self.value.value, ordered[_TAIL], ordered[-1 - _TAIL])

    def called(self, name: str) -> Working:
        """Return a copy whose last step starts with a name for the number."""
        last = self.steps[-1] if self.steps else shown(self.value.value)
        return self.with_steps(*self.steps[:-1], f"{name}: {last}")

    def with_steps(self, *steps: str) -> Working:
        """Return a copy with these steps in place of its own."""
        return replace(self, steps=steps)

    def saying(self, step: str) -> Working:
        """Return a copy with one more step, in words."""
        return self.with_steps(*self.steps, step)

    def marked(self, true: bool) -> Working:
        """Return a copy that is 1 for what is true of it and 0 for what is not, for `count`."""
        return replace(self, value=Interval.exact(true))

    def with_note(self, note: str) -> Working:
        """Return a copy with a note."""
        return replace(self, note=note)

    def after(self, *others: Working) -> Working:
        """Return a copy that starts with the rows and steps of others, such as those that it was selected from."""
        rows, steps = _together([*others, self])
        return replace(self, rows=rows, steps=steps)

    def _with(self, sign: str, by: Callable[[Any, Any], Any], other: Working | float) -> Working:
        second = other if isinstance(other, Working) else Working(Interval.exact(other))
        value = by(self.value, second.value)
        rows, steps = _together([self, second])
        step = f"{shown(self.value.value)} {sign} {shown(second.value.value)} = {shown(value.value)}"
        return Working(value, rows, (*steps, step), draw=lambda: list(map(by, self.draws(), second.draws())))


def _rounding(value: Interval, rows: tuple[SourceRow, ...]) -> Draws:
    """Draw evenly what a number may have been before it was rounded, seeded by its rows."""
    step = (value.high - value.low) / 256
    steps = [value.low + (place + 0.5) * step for place in range(256)]  # a byte a draw: a quarter of the time of floats
    return list(map(steps.__getitem__, Random(repr(rows)).randbytes(DRAWS)))


def applied(by: Callable[..., float], of: Sequence[Working], step: str) -> Working:
    """Return a function of numbers that never decreases in any of them, such as their sum, as a step that begins with
    `step`."""
    bounds = zip(*((each.value.value, each.value.low, each.value.high) for each in of), strict=True)
    value = Interval(*(by(*each) for each in bounds))
    rows, steps = _together(of)
    return Working(
        value,
        rows,
        (*steps, f"{step} {shown(value.value)}"),
        draw=lambda: list(map(by, *(each.draws() for each in of))),
    )


def added(*numbers: float) -> float:
    """Return the sum, rounded after each addition: Python's own sum rounds once from version 3.12 on."""
    return reduce(add, numbers)


def mean(of: Sequence[Working]) -> Working:
    """Return the arithmetic mean, as one step."""
    found = applied(lambda *numbers: added(*numbers) / len(numbers), of, f"mean of the {len(of)}:")

    def draw() -> Draws:
        sums = reduce(lambda total, more: list(map(add, total, more)), (each.draws() for each in of))
        return [each / len(of) for each in sums]

    return replace(found, draw=draw)  # all draws of a number at once: a third of the time


def fact(true: bool, *rows: SourceRow, step: str = "") -> Working:
    """Return 1 for what is true of these rows and 0 for what is not, for `count`."""
    return Working(Interval.exact(true), rows, (step,) if step else ())


def count(of: Sequence[Working], what: str) -> Working:
    """Return how many of these numbers are not 0 as one step, such as "9 of 20 are infeasible"."""
    rows, steps = _together(of)
    number = sum(each.value.value != 0 for each in of)
    return Working(Interval.exact(number), rows, (*steps, f"{number} of {len(of)} {what}"))


def shown(value: float) -> str:
    """Format a number for display, with at least five significant figures."""
    size = abs(value)
    if size and not 1e-3 <= size < 1e12:
        return f"{value:.5g}".replace("e+", "e")
    if size >= 1e4:
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    if size >= 100:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.5g}"


def _together(workings: Iterable[Working]) -> tuple[tuple[SourceRow, ...], tuple[str, ...]]:
    """Return the rows and steps of all, each once, in order."""
    rows: dict[SourceRow, None] = {}
    steps: dict[str, None] = {}
    for working in workings:
        rows.update(dict.fromkeys(working.rows))
        steps.update(dict.fromkeys(working.steps))
    return tuple(rows), tuple(steps)


class Missing(Exception):  # noqa: N818  # no error: what is known does not settle a claim
    """The reason why a claim is not settled, and the number that there is so far. With `largest_so_far`, more records
    can only raise it, so it refutes the claim once it exceeds the published one."""

    def __init__(self, reason: str, so_far: Working | None = None, largest_so_far: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.so_far, self.largest_so_far = reason, so_far, largest_so_far


@dataclass(frozen=True)
class Settled:
    """The verdict that a claim's own function gives, with its reason: where the published is no single number, or the
    answers are those of other people than the paper's."""

    holds: bool
    reason: str
    working: Working
