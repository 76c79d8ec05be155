"""A number known within bounds, so that what is computed from rounded figures says how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A positive number: `value` is what is printed, and the truth lies between `low` and `high`."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A number without any doubt."""
        return cls(value, value, value)

    @classmethod
    def rounded(cls, value: float, unit: float = 1.0) -> Interval:
        """A number printed to a multiple of `unit`: the truth lies within half of it."""
        return cls(value, value - unit / 2, value + unit / 2)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        """May be negative, and then it is not to be divided by."""
        return Interval(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval | float) -> Interval:
        by = other if isinstance(other, Interval) else Interval.exact(other)
        return Interval(self.value * by.value, self.low * by.low, self.high * by.high)

    def __truediv__(self, other: Interval | float) -> Interval:
        by = other if isinstance(other, Interval) else Interval.exact(other)
        return Interval(self.value / by.value, self.low / by.high, self.high / by.low)

    def __rtruediv__(self, other: float) -> Interval:
        return Interval.exact(other) / self

    def mapped(self, by: Callable[[float], float]) -> Interval:
        """What a function makes of it that falls nowhere, such as rounding."""
        return Interval(by(self.value), by(self.low), by(self.high))

    def overlaps(self, other: Interval) -> bool:
        """Whether both may be the same number."""
        return self.low <= other.high and other.low <= self.high


def mean(intervals: Iterable[Interval]) -> Interval:
    """The arithmetic mean, and its bounds. Raises ZeroDivisionError where there are none."""
    listed = list(intervals)
    return sum(listed, Interval.exact(0.0)) / len(listed)
