"""Break-even of owning and renting: the number of runs from which on owning is cheaper; and the rent-or-buy comment,
BERT on a workstation with one card against V100s by the hour, as it computes and with its inputs corrected."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..formats import DAYS_A_YEAR, Interval
from ..paper.tables import quantities
from .prices import known_rentals

NOTHING, ONE = Interval.exact(0.0), Interval.exact(1.0)


@dataclass(frozen=True)
class Case:
    """Owning a machine against renting it for the same hours, in one currency: its price and its resale value, which is
    at most the price; the rent of an hour; the hours of a run; the kilowatts of the machine, the power usage
    effectiveness of its room, and the price of a kWh."""

    machine: Interval
    rent: Interval
    hours: Interval
    kilowatts: Interval = NOTHING
    kwh: Interval = NOTHING
    pue: Interval = ONE
    resale: Interval = NOTHING

    @property
    def running(self) -> Interval:
        """Return the owner's cost of an hour."""
        return self.kilowatts * self.pue * self.kwh

    @property
    def energy(self) -> Interval:
        """Return the kWh of a run."""
        return self.kilowatts * self.pue * self.hours

    @property
    def runs(self) -> Interval:
        """Return the runs after which owner and renter have spent the same; infinite where renting stays cheaper. Every
        input occurs once in the formula, so the bounds are reached at the bounds of the inputs."""
        paid, saved = self.machine - self.resale, self.rent - self.running
        hours = Interval(_over(paid.value, saved.value), _over(paid.low, saved.high), _over(paid.high, saved.low))
        return hours / self.hours

    @property
    def utilisation(self) -> float:
        """Return the share of the machine's lifespan that is in use by then: above 1 owning never pays."""
        return self.runs.value * self.hours.value / (lifespan_years() * DAYS_A_YEAR * 24)


def lifespan_years() -> float:
    """Return the years that the paper expects a machine to last."""
    return quantities()["paper/lifespan"].value


def first_run(runs: float) -> int | None:
    """Round a number of runs up, to at least 1; None where it is infinite."""
    return None if math.isinf(runs) else max(math.ceil(runs - 1e-9), 1)


def _over(paid: float, saved: float) -> float:
    return paid / saved if saved > 0 else math.inf


@dataclass(frozen=True)
class Computed:
    """A case with what it is, and the provider of the rental."""

    what: str
    provider: str
    case: Case


def its(name: str) -> Interval:
    """Return one of the comment's numbers."""
    return Interval.exact(quantities()[f"comment/{name}"].value)


def its_rate() -> float:
    """Return the dollars of a euro by which the comment converts its electricity."""
    return its("electricity_a_run_usd").value / its("electricity_a_run").value


def comment_cases() -> list[Computed]:
    """Return the comment's sum in USD as it computes it, then with its electricity and its GPU-hours corrected, and the
    same at its dearer rent."""
    cited = [known_rentals()["V100", 1, provider, "on-demand"] for provider in ("Exoscale", "Google Cloud")]
    cheap, dear = sorted(cited, key=lambda row: row.price)
    charged, power = its("hours_charged"), its("power")
    printed = Case(
        machine=its("card") + its("workstation"),
        rent=Interval.exact(cheap.price),
        hours=charged,
        kilowatts=power,
        kwh=its("electricity_a_run_usd") / (charged * power),
    )
    electricity = replace(printed, kwh=its("electricity") * its_rate())
    both = replace(electricity, hours=its("gpus") * its("minutes") / 60)
    return [
        Computed("the comment's own sum", cheap.provider, printed),
        Computed("electricity corrected", cheap.provider, electricity),
        Computed("GPU-hours corrected too", cheap.provider, both),
        Computed("at its dearer rent", dear.provider, replace(both, rent=Interval.exact(dear.price))),
    ]
