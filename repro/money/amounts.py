"""Sums of money, days and uncertain numbers: as options have them, and rounded as people read them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from ..console import UserError
from ..formats import SECONDS_A_DAY, Interval, days_cell, half_up, number, parse_unit


def sum_read(sum_: float) -> float:
    """Round a sum of money to the digits that are printed."""
    return half_up(sum_, _places(sum_))


def days_read(days: float) -> float:
    """Round days to the digits that are printed: whole days, below 10 two figures."""
    return half_up(days, 0 if days >= 10 else 1 - math.floor(math.log10(days)))


def money_text(sum_: float, currency: str, exact: bool = False) -> str:
    """Format a sum of money; `exact` in all its digits, so that rounding moves neither a limit nor what exceeds it to
    the other side."""
    rounded = sum_read(sum_)
    return f"{sum_:,.15g} {currency}" if exact and rounded != sum_ else f"{rounded:,.{_places(sum_)}f} {currency}"


def short_days(days: float, exact: bool = False) -> str:
    """Format days, below one in hours and minutes; `exact` in days, like `money_text`."""
    if days < 1 and not exact:
        return days_cell(days)
    rounded = days_read(days)
    number = f"{days:,.6g}" if exact and rounded != days else f"{rounded:,.15g}"
    return f"{number} day{'' if number == '1' else 's'}"


def deadline_text(days: float) -> str:
    """Format a deadline; below a day in a smaller unit, such as 20 h."""
    if days >= 1 or days_read(days) == days:
        return short_days(days, exact=True)
    seconds = round(days * SECONDS_A_DAY, 6)
    unit, name = next((each for each in ((3600, "h"), (60, "min")) if seconds % each[0] == 0), (1, "s"))
    return f"{seconds / unit:,.15g} {name}"


def _places(sum_: float) -> int:
    return 0 if abs(sum_) >= 100 else 2


def budget(text: str, option: str) -> float:
    """Parse a sum above 0, also as `40,000` or `40k`. Not for sums that may be small, such as the rent per hour: 1,250
    may mean one and a quarter there."""
    expected = "a sum above 0 such as 40000, 40,000 or 40k, without a currency"
    grouped = re.fullmatch(r"\s*[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?\s*", text)
    return parse_unit(text.replace(",", "") if grouped else text, option, {"": 1, "k": 1000}, expected)


@dataclass(frozen=True)
class Sum:
    """A sum of money as an option has it, with bounds; its `currency` is None where it is that of all sums. `place` is
    the option as it is typed, for errors."""

    place: str
    value: Interval
    currency: str | None

    @classmethod
    def parse(cls, text: str, option: str) -> Sum:
        """Parse `0.69`, `0.13EUR` or `5000..6500 USD`."""
        found = re.fullmatch(r"(.*?)([A-Za-z]{3})?\s*", text, re.DOTALL)
        assert found is not None
        place = f"{option} {text}"
        value = _bounds(found[1], place, "a sum in plain digits such as 8000, 0.13EUR or, with bounds, 7000..9000")
        return cls(place, value, found[2] and currency(found[2], place))


def currency(code: str, place: str) -> str:
    """Return a currency's code. Raises UserError, naming the place, where it is not three capital letters."""
    if re.fullmatch("[A-Z]{3}", code):
        return code
    is_lower = re.fullmatch("[A-Za-z]{3}", code)
    hint = f"did you mean {code.upper()}?" if is_lower else "expected three capital letters such as USD or EUR"
    raise UserError(f"{place}: unknown currency {code!r}; {hint}")


def interval(text: str, option: str) -> Interval:
    """Parse `0.13`, or `0.10..0.16` for an uncertain number, whose value is the middle."""
    return _bounds(text, f"{option} {text}", "a number from 0 up in plain digits such as 0.13, or bounds as 0.10..0.16")


def _bounds(text: str, place: str, expected: str) -> Interval:
    """Parse like `interval`; `place` and `expected` are for the error, such as of a sum before its currency."""
    low, dots, high = text.strip().partition("..")
    least = number(low, place)
    most = number(high, place) if dots else least
    if least is None or most is None:
        raise UserError(f"{place}: expected {expected}")
    if least > most:
        raise UserError(f"{place}: expected the lower bound first, {high}..{low}")
    return Interval((least + most) / 2, least, most)
