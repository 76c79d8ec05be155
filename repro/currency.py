"""Currencies, by their ISO 4217 code; they meet only through a rate that somebody gives, with date and source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from itertools import product

from .datafile import ContradictionError, read_once, records
from .errors import UserError
from .interval import Interval
from .units import bounds


@dataclass(frozen=True)
class Currency:
    """A currency of ISO 4217."""

    code: str
    name: str
    source: str


@dataclass(frozen=True)
class Rate:
    """One unit of `from_` is worth `rate` of `to`."""

    from_: str
    to: str
    rate: float
    quoted: date
    source: str

    def __post_init__(self) -> None:
        if self.from_ == self.to:
            raise ContradictionError("to", "another currency than from")


@read_once
def codes() -> frozenset[str]:
    """The codes of all currencies. Raises UserError where their file is broken."""
    return frozenset(records(Currency, "currencies.csv", ("code",)))


def check(code: str, place: str) -> str:
    """The code. Raises UserError, naming the place, where no currency has it."""
    if code not in codes():
        meant = code.upper()
        hint = f"did you mean {meant}?" if meant in codes() else "expected a code of ISO 4217 such as USD or EUR"
        raise UserError(f"{place}: unknown currency {code!r}; {hint}")
    return code


def worth(currency: str, to: str, rates: Iterable[Rate]) -> float | None:
    """What one unit of `currency` is in `to`; None where no rate says."""
    if currency == to:
        return 1.0
    for rate in rates:
        if (rate.from_, rate.to) == (currency, to):
            return rate.rate
        if (rate.from_, rate.to) == (to, currency):
            return 1 / rate.rate
    return None


def used(currencies: Iterable[str], to: str, rates: Iterable[Rate]) -> list[tuple[str, float, Rate]]:
    """Those of the currencies that a rate brings to another, with what one unit is worth there, and that rate."""
    found = []
    for each, rate in product(sorted(set(currencies)), rates):
        value = worth(each, to, [rate])
        if each != to and value is not None:
            found.append((each, value, rate))
    return found


def amount(text: str, option: str, currency: str) -> tuple[Interval, str]:
    """`0.69`, `0.13EUR`, `5000..6500 USD`: a sum, or bounds of one, and its currency, by default `currency`."""
    found = re.fullmatch(r"(.*?)([A-Za-z]{3})?\s*", text, re.DOTALL)
    assert found is not None
    place = f"{option} {text}"
    sum_ = bounds(found[1], place, "a sum in plain digits such as 8000, 0.13EUR or, with bounds, 7000..9000")
    return sum_, check(found[2] or currency, place)
