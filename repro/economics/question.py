"""Own or rent? What is asked: the comment's workstation or a machine with GPUs of ours, and inputs of one's own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date

from ..currency import Rate, worth
from ..errors import UserError
from ..formats import are, listing
from ..interval import Interval
from ..prices import Rental, Terms
from . import comment
from .days import TrainingDays
from .energy import gpu_power
from .offers import machine_paid_in, machine_price, older_price, rentals_left_out
from .pricelist import PriceList
from .reckoning import Reckoned, Tariff, Use, reckon
from .renting import per_hour, priced, reckoned_from_one, serving, told_in_proportion, told_whole
from .told import told


@dataclass(frozen=True)
class Given:
    """Inputs of one's own, None where there is none: sums in the currency of the comparison, `rent` per hour of the
    machine, `hours` of a run, `kilowatts` of the machine."""

    machine: Interval | None
    resale: Interval | None
    rent: Interval | None
    hours: Interval | None
    kilowatts: Interval | None
    pue: Interval | None
    tariff: Tariff | None
    grams: Interval | None


@dataclass(frozen=True)
class Asked:
    """The comparisons, one for each rent, what is to be said of their inputs, what prices of ours they took, each with
    its day, and the currencies of what was not given."""

    reckoned: list[Reckoned]
    notes: list[str]
    quoted: list[tuple[str, date]]
    paid_in: set[str]


def of_comment(given: Given, currency: str, rates: Iterable[Rate]) -> Asked:
    """The comment's own inputs, as they are right, with the given ones in their place."""
    if currency != "USD" and None in (given.machine, given.rent):
        raise UserError(f"--currency {currency}: the comment's sums are in USD; give --machine and --rent, or --gpu")
    mended = comment.use()
    use = Use(given.kilowatts or mended.kilowatts, given.pue or mended.pue, given.tariff or mended.tariff, given.grams)
    its, tariff, notes = mended.tariff, use.tariff, list[str]()
    assert its is not None
    assert tariff is not None
    if tariff.currency != currency:
        rate = worth(tariff.currency, currency, rates)
        if rate is None and (tariff.currency, currency) == (its.currency, "USD"):
            rate = its.worth  # its own rate is one of its inputs
            notes.append(f"{comment.rate_told()}.")
        use = replace(use, tariff=replace(tariff, worth=rate))
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
    notes.insert(0, "What was not given is the comment's of 2021-01-14, with its GPU-hours reckoned right.")
    return Asked([row], notes, [], {tariff.currency})


def of_machine(run: TrainingDays, given: Given, prices: PriceList, currency: str) -> Asked:
    """A machine of our price list against every rental of it by the hour, or against a given rent."""
    name = run.machine
    price = machine_price(run.gpu, run.gpus, prices, currency)
    if given.machine is None and price is None:
        raise UserError(f"no price for a machine with {name} in {currency}; give --machine SUM, or --prices FILE")
    machine = given.machine or Interval.exact(price[0] if price else 0.0)
    rentals = [] if given.rent is not None else _rentals(run, prices, currency, "on-demand")
    rents = [
        (
            f"{rental.provider}, {rental.terms}{reckoned_from_one(rental, run.gpus)}",
            Interval.exact(per_hour(rental, run.gpus) * each),
        )
        for rental, each in rentals
    ]
    rents = rents if given.rent is None else [("--rent", given.rent)]
    left_out = rentals_left_out([run], prices, currency) if given.rent is None else []
    if not rents:
        why = " ".join(each.rstrip(".") + "; " for each in left_out)
        raise UserError(
            f"no price in {currency} for renting {name} by the hour; {why}give --rent SUM, or --prices FILE"
        )
    power = gpu_power(run)
    use = Use(
        given.kilowatts or (power.kilowatts if power else None), given.pue or Use().pue, given.tariff, given.grams
    )
    hours = given.hours or run.days * 24
    rows = [reckon(name, who, run.origin, machine, rent, hours, use, given.resale) for who, rent in rents]
    notes = [f"Days: {run.source}."] if given.hours is None else []
    if given.kilowatts is None:
        notes.append(f"Power: {power.source}." if power else _without_power(run.gpu, given))
    if given.tariff is None:
        notes.append("Electricity is not counted; --electricity SUM, the price of a kWh, counts it.")
    notes += [told_in_proportion()] if any(rental.gpus < run.gpus for rental, _ in rentals) else []
    notes += left_out
    reserved = _rentals(run, prices, currency, "reserved")
    notes += [_against(rental, rental.price * each, machine, currency) for rental, each in reserved]
    bought = given.machine is None and price is not None
    quoted = [older_price(run.gpu, run.gpus, prices, f"{name} to buy")] if bought else []
    quoted += [(f"{rental.gpu} at {rental.provider}", rental.quoted) for rental, _ in (*rentals, *reserved)]
    paid_in = machine_paid_in(run.gpu, run.gpus, prices) if given.machine is None else set()
    paid_in |= {rental.currency for rental, _ in (*rentals, *reserved)}
    return Asked(rows, notes, quoted, paid_in)


def _without_power(gpu: str, given: Given) -> str:
    asked = {"electricity": given.tariff, "CO2": given.grams}
    lost = [what for what, each in asked.items() if each is not None] or ["energy"]
    return f"The power of {gpu} is unknown, and so {listing(lost)} {are(len(lost))} not counted; give --power KW."


def _rentals(run: TrainingDays, prices: PriceList, currency: str, terms: Terms) -> list[tuple[Rental, float]]:
    """Those of the machine on these terms, with what one unit of theirs is in the currency."""
    return [
        (rental, each)
        for rental, each in priced(serving(prices.rentals, run.gpu, run.gpus), currency, prices.rates)
        if rental.terms == terms
    ]


def _against(rental: Rental, price: float, machine: Interval, currency: str) -> str:
    """What is paid for as a whole has no break-even: either sum is the lesser from the first hour on."""
    less = "Owning costs less from the first hour" if machine.high < price else "It may cost less than owning"
    return (
        f"{rental.provider}, {rental.terms}: {told_whole(rental, price, currency)}, against "
        f"{told(machine.value, currency)} for the machine. {less}, before electricity."
    )
