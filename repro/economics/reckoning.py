"""One comparison of owning with renting, from prices, hours and power: break-even, energy, electricity, CO2."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..interval import Interval
from .breakeven import BreakEven, Case, break_even
from .offers import lifespan_years


@dataclass(frozen=True)
class Tariff:
    """What a kWh costs, in a currency of its own; `worth` is one unit of that in the currency of the comparison, None
    where nobody gave a rate: then the electricity stands apart, and is not counted."""

    price: Interval
    currency: str
    worth: float | None


@dataclass(frozen=True)
class Use:
    """What a machine takes while it trains: kilowatts, what the room takes on top (power usage effectiveness), the
    price of a kWh, and the grams of CO2 that one brings. None is unknown."""

    kilowatts: Interval | None = None
    pue: Interval = field(default_factory=lambda: Interval.exact(1.0))
    tariff: Tariff | None = None
    grams: Interval | None = None

    def energy(self, hours: Interval) -> Interval | None:
        """kWh of so many hours."""
        return None if self.kilowatts is None else self.kilowatts * hours * self.pue


@dataclass(frozen=True)
class Reckoned:
    """The case and its answer, by who rents out. Of one run: `energy` in kWh, `electricity` in its own currency and,
    where a rate is known, `converted` to the case's; `co2` in kg. `origin` says whose hours a run takes."""

    what: str
    provider: str
    case: Case
    answer: BreakEven
    energy: Interval | None
    electricity: Interval | None
    electricity_currency: str | None
    converted: Interval | None
    co2: Interval | None
    origin: str


def reckon(
    what: str,
    provider: str,
    origin: str,
    machine: Interval,
    rent: Interval,
    hours: Interval,
    use: Use,
    resale: Interval | None = None,
) -> Reckoned:
    """`machine` and `resale` are prices, `rent` one per hour, all in one currency; `hours` are those of a run."""
    tariff = use.tariff
    energy = use.energy(hours)
    running = None
    if tariff is not None and tariff.worth is not None and use.kilowatts is not None:
        # Per hour, so that the hours of a run stand in the break-even's formula only once.
        running = use.kilowatts * use.pue * tariff.price * tariff.worth
    case = Case(machine, resale or Interval.exact(0.0), rent, running or Interval.exact(0.0), hours)
    return Reckoned(
        what=what,
        provider=provider,
        case=case,
        answer=break_even(case, lifespan_years()),
        energy=energy,
        electricity=energy * tariff.price if energy is not None and tariff is not None else None,
        electricity_currency=tariff.currency if tariff is not None else None,
        converted=running * hours if running is not None else None,
        co2=energy * use.grams / 1000 if energy is not None and use.grams is not None else None,
        origin=origin,
    )
