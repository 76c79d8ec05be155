"""Sums and days as people read them. What reads the same is the same: no choice stands on digits that are not told."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

from ..units import SECONDS_A_DAY

_FIGURES = 3  # of a prediction


def rough(value: float) -> float:
    """The value in as many figures as a prediction is good for."""
    return float(f"{value:.{_FIGURES}g}")


def half_up(value: float, places: int) -> float:
    """The value to so many places, half a unit of the last one up, as people round: Python's own makes 4.12 of 4.125.
    It goes by the digits that a float is good for, and from 1e15 on, or of infinity, leaves it."""
    if not abs(value) < 1e15:
        return value
    return float(Decimal(f"{value:.15g}").quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def sum_read(sum_: float) -> float:
    """A sum of money to the digits in which it is told."""
    return half_up(sum_, _places(sum_))


def days_read(days: float) -> float:
    """Days to the digits in which they are told: whole ones, of less than 10 two figures."""
    return half_up(days, 0 if days >= 10 else 1 - math.floor(math.log10(days)))


def told(sum_: float, currency: str) -> str:
    """A sum of money as people read it."""
    return f"{sum_read(sum_):,.{_places(sum_)}f} {currency}"


def limit_told(sum_: float, currency: str) -> str:
    """A sum in all its digits: a limit, and what exceeds one, are not rounded onto the other side."""
    return told(sum_, currency) if sum_read(sum_) == sum_ else f"{sum_:,.15g} {currency}"


def days_told(days: float) -> str:
    """Days as people read them."""
    number = _number(days)
    return f"{number} day{'' if number == '1' else 's'}"


def limit_days_told(days: float) -> str:
    """Days in so many digits that a limit, and what exceeds it, are not rounded onto the other side."""
    return days_told(days) if days_read(days) == days else f"{days:,.6g} days"


def deadline_told(days: float) -> str:
    """A deadline, of less than a day in the unit that people have for it, such as 20 h."""
    if days >= 1 or days_read(days) == days:
        return limit_days_told(days)
    seconds = round(days * SECONDS_A_DAY, 6)
    unit, name = next((each for each in ((3600, "h"), (60, "min")) if seconds % each[0] == 0), (1, "s"))
    return f"{seconds / unit:,.15g} {name}"


def bounds_told(bounds: tuple[float, float] | None) -> str:
    """The bounds of predicted days, such as 172 to 294 days; nothing without."""
    return "" if bounds is None else f"{_number(bounds[0])} to {_number(bounds[1])} days"


def _places(sum_: float) -> int:
    return 0 if abs(sum_) >= 100 else 2


def _number(days: float) -> str:
    return f"{days_read(days):,.15g}"
