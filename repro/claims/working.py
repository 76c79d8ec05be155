"""Arithmetic that shows its working: a number, the rows that it came from and the steps that led to it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .. import interval
from ..interval import Interval


@dataclass(frozen=True)
class Row:
    """A row that a number was read from: the file, which row, the value with its unit, and who says so."""

    file: str
    row: str
    value: str
    source: str


@dataclass(frozen=True)
class Working:
    """A number with its rows and its arithmetic, in words; `note` says what a reader should know of it.

    Sums, differences, products and quotients carry rows and steps on, so that none of them can be left out.
    """

    value: Interval
    rows: tuple[Row, ...] = ()
    steps: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def read(cls, value: float, row: Row, rounded_to: float = 0.0) -> Working:
        """A number read from a row, printed there to a multiple of `rounded_to`; 0 is exact."""
        return cls(Interval.rounded(value, rounded_to), (row,))

    def __add__(self, other: Working | float) -> Working:
        return self._with("+", other, self.value + _of(other).value)

    def __sub__(self, other: Working | float) -> Working:
        return self._with("-", other, self.value - _of(other).value)

    def __mul__(self, other: Working | float) -> Working:
        return self._with("x", other, self.value * _of(other).value)

    def __truediv__(self, other: Working | float) -> Working:
        return self._with("/", other, self.value / _of(other).value)

    def called(self, name: str) -> Working:
        """The same with a name: its last step says what the number is."""
        last = self.steps[-1] if self.steps else shown(self.value.value)
        return replace(self, steps=(*self.steps[:-1], f"{name}: {last}"))

    def saying(self, step: str) -> Working:
        """The same with one more step, in words."""
        return replace(self, steps=(*self.steps, step))

    def told(self, note: str) -> Working:
        """The same with a note."""
        return replace(self, note=note)

    def after(self, *others: Working) -> Working:
        """The same, with the rows and steps of others, which it was found among, before its own."""
        rows, steps = _together([*others, self])
        return replace(self, rows=rows, steps=steps)

    def _with(self, sign: str, other: Working | float, value: Interval) -> Working:
        rows, steps = _together([self, _of(other)])
        step = f"{shown(self.value.value)} {sign} {shown(_of(other).value.value)} = {shown(value.value)}"
        return Working(value, rows, (*steps, step))


def total(workings: Sequence[Working]) -> Working:
    """The sum, in one step."""
    value = sum((working.value for working in workings), Interval.exact(0.0))
    rows, steps = _together(workings)
    terms = " + ".join(shown(working.value.value) for working in workings)
    return Working(value, rows, (*steps, f"{terms} = {shown(value.value)}"))


def mean(workings: Sequence[Working]) -> Working:
    """The arithmetic mean, in one step."""
    value = interval.mean(working.value for working in workings)
    rows, steps = _together(workings)
    return Working(value, rows, (*steps, f"mean of the {len(workings)}: {shown(value.value)}"))


def count(number: int, of: Sequence[Working], what: str) -> Working:
    """How many of some there are: "9 of 20 are infeasible"."""
    rows, steps = _together(of)
    return Working(Interval.exact(number), rows, (*steps, f"{number} of {len(of)} {what}"))


def shown(value: float) -> str:
    """A number as people write it, five figures or more."""
    size = abs(value)
    if size and not 1e-3 <= size < 1e12:
        return f"{value:.5g}".replace("e+", "e")
    if size >= 1e4:
        return f"{value:,.2f}".rstrip("0").rstrip(".")
    if size >= 100:
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{value:.5g}"


def _of(number: Working | float) -> Working:
    return number if isinstance(number, Working) else Working(Interval.exact(number))


def _together(workings: Iterable[Working]) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """Rows and steps of all, each once, in their order."""
    rows: dict[Row, None] = {}
    steps: dict[str, None] = {}
    for working in workings:
        rows.update(dict.fromkeys(working.rows))
        steps.update(dict.fromkeys(working.steps))
    return tuple(rows), tuple(steps)
