"""After how many runs, and at which use of it, a machine of one's own is cheaper than renting one."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..interval import Interval
from ..units import DAYS_A_YEAR


@dataclass(frozen=True)
class Case:
    """Owning a machine against renting it for the same hours, in one currency: its price and what it sells for in the
    end, which is no more, the rent of an hour, what an hour costs its owner, and the hours of a run."""

    machine: Interval
    resale: Interval
    rent: Interval
    running: Interval
    hours: Interval


@dataclass(frozen=True)
class BreakEven:
    """From here on owning is cheaper; infinite where renting stays cheaper. `utilisation` is the share of the machine's
    lifespan in use: above 1 it never pays."""

    hours: Interval
    runs: Interval
    utilisation: Interval

    @property
    def whole_runs(self) -> int | None:
        """The first run after which owning is no dearer; None where there is none."""
        return first_run(self.runs.value)


@dataclass(frozen=True)
class Spent:
    """What has been spent after so many runs, by an owner and by who rents."""

    runs: int
    owning: float
    renting: float


def first_run(runs: float) -> int | None:
    """The first whole run by which so many are done; None where they are infinite."""
    return None if math.isinf(runs) else max(math.ceil(runs - 1e-9), 1)


def break_even(case: Case, lifespan_years: float) -> BreakEven:
    """Where both have spent the same: (price - resale) / (rent - running cost) hours of use.

    Every input stands in the formula once, so the bounds are reached at the bounds of the inputs.
    """
    paid, saved = case.machine - case.resale, case.rent - case.running
    hours = Interval(_over(paid.value, saved.value), _over(paid.low, saved.high), _over(paid.high, saved.low))
    lifespan = lifespan_years * DAYS_A_YEAR * 24
    return BreakEven(hours, hours / case.hours, hours / lifespan)


def spending(case: Case, runs: Iterable[int]) -> list[Spent]:
    """The two lines that meet at the break-even, by the middle of the inputs."""
    bought = case.machine.value - case.resale.value
    return [
        Spent(
            number,
            bought + number * case.hours.value * case.running.value,
            number * case.hours.value * case.rent.value,
        )
        for number in runs
    ]


def _over(paid: float, saved: float) -> float:
    return paid / saved if saved > 0 else math.inf
