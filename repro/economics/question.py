"""Own or rent? What is asked: the comment's workstation or a machine with GPUs of ours, and inputs of one's own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..currency import worth
from ..errors import UserError
from ..interval import Interval
from . import comment
from .days import TrainingDays
from .energy import gpu_power
from .offers import machine_price
from .pricelist import PriceList
from .reckoning import Reckoned, Tariff, Use, reckon
from .renting import committed, per_hour, serves


@dataclass(frozen=True)
class Given:
    """Inputs of one's own, None where there is none: sums in the currency of the comparison, `rent` per hour of the
    machine, `hours` of a run, `kilowatts` of the machine."""

    machine: Interval | None = None
    resale: Interval | None = None
    rent: Interval | None = None
    hours: Interval | None = None
    kilowatts: Interval | None = None
    pue: Interval | None = None
    tariff: Tariff | None = None
    grams: Interval | None = None


@dataclass(frozen=True)
class Asked:
    """The comparisons, one for each rent, and what is to be said of their inputs."""

    reckoned: list[Reckoned]
    notes: list[str]


def of_comment(given: Given, currency: str) -> Asked:
    """The comment's own inputs, as they are right, with the given ones in their place."""
    if currency != "USD" and None in (given.machine, given.rent):
        raise UserError(f"--currency {currency}: the comment's sums are in USD; give --machine and --rent, or --gpu")
    mended = comment.use()
    use = Use(given.kilowatts or mended.kilowatts, given.pue or mended.pue, given.tariff or mended.tariff, given.grams)
    if given.tariff is None and currency != "USD" and mended.tariff is not None:
        use = replace(use, tariff=replace(mended.tariff, worth=1.0 if currency == "EUR" else None))
    provider, rent = next(iter(comment.rents().items()))
    row = reckon(
        "the comment's workstation",
        provider if given.rent is None else "--rent",
        "comment" if given.hours is None else "given",
        given.machine or comment.machine(),
        given.rent or rent,
        given.hours or comment.gpu_hours(),
        use,
        given.resale,
    )
    return Asked([row], ["What was not given is the comment's of 2021-01-14, with its GPU-hours reckoned right."])


def of_machine(run: TrainingDays, given: Given, prices: PriceList, currency: str) -> Asked:
    """A machine of our price list against every rental of it by the hour, or against a given rent."""
    name = f"{run.gpus} {run.gpu}"
    price = machine_price(run.gpu, run.gpus, prices, currency)
    if given.machine is None and price is None:
        raise UserError(f"no price for a machine with {name} in {currency}; give --machine SUM, or --prices FILE")
    machine = given.machine or Interval.exact(price[0] if price else 0.0)
    rents = {"--rent": given.rent} if given.rent is not None else _rents(run, prices, currency)
    if not rents:
        raise UserError(f"no price in {currency} for renting {name} by the hour; give --rent SUM, or --prices FILE")
    power = gpu_power(run)
    use = Use(
        given.kilowatts or (power.kilowatts if power else None), given.pue or Use().pue, given.tariff, given.grams
    )
    hours = given.hours or run.days * 24
    rows = [reckon(name, who, run.origin, machine, rent, hours, use, given.resale) for who, rent in rents.items()]
    notes = [f"Days: {run.source}."] if given.hours is None else []
    if given.kilowatts is None:
        notes.append(f"Power: {power.source}." if power else f"The power of {run.gpu} is unknown; give --power KW.")
    if given.tariff is None:
        notes.append("Electricity is not counted; --electricity SUM, the price of a kWh, counts it.")
    return Asked(rows, notes + _reserved(run, machine, prices, currency))


def _rents(run: TrainingDays, prices: PriceList, currency: str) -> dict[str, Interval]:
    found = {}
    for rental in prices.rentals:
        each = worth(rental.currency, currency, prices.rates)
        if each is None or committed(rental) or rental.terms == "spot" or not serves(rental, run.gpu, run.gpus):
            continue
        found[f"{rental.provider}, {rental.terms}"] = Interval.exact(per_hour(rental, run.gpus) * each)
    return found


def _reserved(run: TrainingDays, machine: Interval, prices: PriceList, currency: str) -> list[str]:
    """What is paid for as a whole has no break-even: either sum is the lesser from the first hour on."""
    notes = []
    for rental in prices.rentals:
        each = worth(rental.currency, currency, prices.rates)
        if each is None or not committed(rental) or (rental.gpu, rental.gpus) != (run.gpu, run.gpus):
            continue
        price = rental.price * each
        less = "Owning costs less from the first hour" if machine.high < price else "It may cost less than owning"
        notes.append(
            f"{rental.provider}, {rental.terms}: {price:,.0f} {currency} for {rental.hours:,.0f} hours, used or not, "
            f"against {machine.value:,.0f} {currency} for the machine. {less}, before electricity."
        )
    return notes
