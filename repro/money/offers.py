"""Offers: each machine that can train a model, what a run costs on it, owned and rented, and which one to take.

A run on a machine of one's own costs its share of the machine's price, price x days / lifespan, and its electricity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Literal

from ..console import UserError
from ..formats import DAYS_A_YEAR, Interval, half_up
from ..paper.gpus import CustomGpu, find
from .amounts import days_read, deadline_text, money_text, short_days, sum_read
from .breakeven import NOTHING, first_run, lifespan_years
from .days import TrainingDays
from .prices import PriceList, Rental, machine_price, serving, worth
from .spot import Interruptions, daly, expected


@dataclass(frozen=True)
class Costs:
    """What costs depend on: the prices, the currency of all sums, the number of trainings, one after the other, the
    price of a kWh, None if not counted, the cost of storage by the hour, and the interruptions of spot instances, in
    hours, None if not counted. `custom` is a GPU that the catalogue does not have."""

    prices: PriceList
    currency: str = "USD"
    runs: int = 1
    kwh: Interval | None = None
    storage: float = 0.0
    faced: Interruptions | None = None
    custom: CustomGpu | None = None


@dataclass(frozen=True)
class Rented:
    """All runs on a rental: their cost, storage included, and the days of one from start to end. On a spot instance
    both are expected values."""

    rental: Rental
    cost: float
    days: float

    @property
    def at(self) -> str:
        """Return the provider, with the terms where these are not by the hour, on demand."""
        return self.rental.provider + ("" if self.rental.terms == "on-demand" else f", {self.rental.terms}")


Pays = Literal["yes", "no", "unsure"]


@dataclass(frozen=True, eq=False)
class Offer:
    """One machine. `price` is None without one; `own` is the cost of a run on a machine of one's own, `electricity` the
    part of it that is paid for each run. `rented` are all runs on the cheapest rental. `pays_from` is the number of
    runs from which on owning costs less, infinite where that is later than the machine lasts.

    `efficiency` is the fewest GPU-days of any number of these GPUs over those of this one: at most 1, also where few
    GPUs lack the memory that more of them have together. `more_pay` says whether a run costs less on a machine with
    more of these GPUs; None where no such price is known.
    """

    run: TrainingDays
    price: float | None
    quoted: date | None
    electricity: Interval
    own: Interval | None
    rented: Rented | None
    pays_from: float | None
    efficiency: float
    more_pay: Pays | None = None

    @property
    def speedup(self) -> float:
        return self.efficiency * self.run.gpus


def offers(days: Sequence[TrainingDays], costs: Costs) -> list[Offer]:
    """Return an offer for each machine; the days must be of one model."""
    found = [_offer(run, [each for each in days if each.gpu == run.gpu], costs) for run in days]
    return [replace(each, more_pay=_more_pay(each, found)) for each in found]


def cheapest_to_own(found: Iterable[Offer]) -> Offer | None:
    """Return the offer with the cheapest run on a machine of one's own; None without prices."""
    return min(
        (each for each in found if each.own), key=lambda each: each.own.value if each.own else math.inf, default=None
    )


def cost_a_day(machine: float) -> float:
    """Return a machine's price over the days of its lifespan (section 4.1)."""
    return machine / (lifespan_years() * DAYS_A_YEAR)


def kilowatts(run: TrainingDays, custom: CustomGpu | None = None) -> float | None:
    """Return the power of a machine's GPUs: measured where the days were, else their board power; None without."""
    if run.watts is not None:
        return run.watts / 1000
    gpu = custom if custom is not None and custom.called == run.gpu else find(run.gpu)
    return None if gpu is None or gpu.board_power_w is None else run.gpus * gpu.board_power_w / 1000


def _offer(run: TrainingDays, same: Sequence[TrainingDays], costs: Costs) -> Offer:
    best = min(same, key=lambda each: each.gpus * each.days.value)
    efficiency = best.gpus * best.days.value / (run.gpus * run.days.value)
    power = kilowatts(run, costs.custom) if costs.kwh else 0.0
    electricity = run.days * (24 * (power or 0.0)) * (costs.kwh or NOTHING)
    price, quoted = machine_price(run.gpu, run.gpus, costs.prices, costs.currency) or (None, None)
    rented = _cheapest(run, costs)
    own = pays_from = None
    if price is not None and power is not None:
        own = (run.days * cost_a_day(price) + electricity).mapped(run.known)
    if price is not None and own is not None and rented is not None:
        pays_from = _pays_from(price, electricity.value, run.days.value, rented, costs.runs)
    return Offer(run, price, quoted, electricity.mapped(run.known), own, rented, pays_from, efficiency)


def _more_pay(offer: Offer, found: Sequence[Offer]) -> Pays | None:
    larger = cheapest_to_own(each for each in found if each.run.gpu == offer.run.gpu and each.run.gpus > offer.run.gpus)
    if offer.own is None or larger is None or larger.own is None:
        return None
    if larger.own.overlaps(offer.own):
        return "unsure"
    return "yes" if larger.own.value < offer.own.value else "no"


def rent(rental: Rental, gpus: int, hours: float) -> float:
    """Return the cost of `hours` on `gpus` GPUs, in its currency. A reserved one is paid for as a whole."""
    if rental.terms == "reserved":
        return rental.price * max(math.ceil(hours / rental.hours - 1e-9), 1)
    return hours * rental.price / rental.gpus * gpus


def _cheapest(run: TrainingDays, costs: Costs) -> Rented | None:
    """Return all runs on the cheapest rental of the machine; of those whose cost prints alike on the fastest. Spot
    instances count only where their interruptions are known; None where nothing is for rent."""
    found = []
    for rental in serving(costs.prices.rentals, run.gpu, run.gpus):
        each = worth(rental.currency, costs.currency, costs.prices.rates)
        hours = run.days.value * 24
        if rental.terms == "spot":
            hours = expected(hours, daly(costs.faced), costs.faced) if costs.faced else math.inf
        if each is None or math.isinf(hours):
            continue
        paid = rent(rental, run.gpus, hours * costs.runs) * each
        stored = run.known(costs.storage * hours * costs.runs)
        paid = paid if rental.terms == "reserved" else run.known(paid)
        # Rounded as printed: digits that are not shown must not exceed a budget.
        found.append(Rented(rental, half_up(paid + stored, 2), run.known(hours / 24)))
    return min(found, key=lambda each: (sum_read(each.cost), days_read(each.days), each.rental.provider), default=None)


def _pays_from(price: float, electricity: float, days: float, rented: Rented, runs: int) -> float:
    """Return the number of runs from which on owning costs less. A reserved instance, one sum for its whole term, has
    no cost of a run: owning pays from the first one if the machine costs no more, or never."""
    if rented.rental.terms == "reserved":
        return 1.0 if price <= rented.cost else math.inf
    saved = rented.cost / runs - electricity
    first = price / saved if saved > 0 else math.inf
    return first if first * days <= lifespan_years() * DAYS_A_YEAR else math.inf


@dataclass(frozen=True, eq=False)
class Option:
    """A machine to buy or to rent, for all runs: `cost` is that of all of them, with a machine of one's own its price
    and the electricity, `a_run` the cost of one, `days` those until the last one ends."""

    offer: Offer
    bought: bool
    cost: float
    a_run: float
    days: float
    currency: str

    @property
    def wears_out(self) -> bool:
        """Return True where it is bought and its lifespan is shorter than the runs."""
        return self.bought and self.days > lifespan_years() * DAYS_A_YEAR

    @property
    def text(self) -> str:
        rented = self.offer.rented
        return f"{self.offer.run.machine}{f' at {rented.at}' if rented and not self.bought else ''}"

    @property
    def full(self) -> str:
        """Return it with days and cost, in all digits: none that exceeds a limit is rounded to what would meet it."""
        cost = money_text(self.cost, self.currency, exact=True)
        return f"{self.text} in {short_days(self.days, exact=True)} for {cost}"


def options(found: Iterable[Offer], costs: Costs, buys: bool, rents: bool) -> list[Option]:
    """Return what may be taken: machines to buy, or to rent, or both."""
    listed, runs, unit = [], costs.runs, costs.currency
    for offer in found:
        if buys and offer.price is not None and offer.own is not None:
            cost, days = offer.price + runs * offer.electricity.value, offer.run.days.value * runs
            listed.append(Option(offer, True, half_up(cost, 2), offer.own.value, offer.run.known(days), unit))
        if rents and (rented := offer.rented) is not None:
            days = offer.run.known(rented.days * runs)
            listed.append(Option(offer, False, rented.cost, rented.cost / runs, days, unit))
    return listed


@dataclass(frozen=True)
class Choice:
    """The rule that chose, and all options in its order: first the `fitting` ones that fit, with the best on top."""

    rule: str
    ranked: tuple[Option, ...]
    fitting: int


def choose(listed: Sequence[Option], budget: float | None, deadline: float | None) -> Choice:
    """Choose with a budget alone the fastest within it, as section 4.1 does; with a deadline the cheapest that meets
    it, within the budget too where there is one; with neither the least cost of a run. Machines that wear out before
    the runs end come last. Ties in the numbers as printed are resolved by days or cost, and then by fewer GPUs.

    Budget and deadline, in days, are for all runs together. Raises UserError where nothing fits, naming the nearest.
    """
    limits = [] if deadline is None else [deadline_text(deadline)]
    limits += [] if budget is None else [money_text(budget, listed[0].currency, exact=True)]
    within = " and ".join(limits)
    affordable = [each for each in listed if budget is None or each.cost <= budget]
    timely = [each for each in listed if deadline is None or each.days <= deadline]
    fits = [each for each in affordable if each in timely]

    def order(option: Option) -> tuple[float, ...]:
        """Return the sort key: the best comes first."""
        cost, days, a_run = sum_read(option.cost), days_read(option.days), sum_read(option.a_run)
        if deadline is not None:
            return cost, days, a_run
        return (days, cost) if budget is not None else (a_run, days, cost)

    if not fits:
        nearest = []
        if deadline is not None:
            fastest = min(affordable or listed, key=lambda each: (each.days, each.cost))
            nearest.append(f"the fastest{' within the budget' if budget and affordable else ''} is {fastest.full}")
        if budget is not None:
            cheapest = min(timely or listed, key=lambda each: (each.cost, each.days))
            nearest.append(f"the cheapest{' in time' if deadline and timely else ''} is {cheapest.full}")
        raise UserError(f"no machine trains it within {within}; {', '.join(nearest)}")
    ranked = sorted(
        listed,
        key=lambda each: (
            each not in fits,
            each.wears_out,
            *order(each),
            each.offer.run.gpus,
            each.offer.run.gpu,
            each.bought,
        ),
    )
    rule = "the least cost of a run"
    if within:
        rule = f"the {'fastest' if deadline is None else 'cheapest'} within {within}"
    lasts = f"the {lifespan_years():g} years that a machine lasts"
    if ranked[0].wears_out:
        rule += f", but it takes longer than {lasts}"
    elif min(fits, key=order).wears_out:
        rule += f", of those that end within {lasts}"
    return Choice(rule, tuple(ranked), len(fits))


def answer(choice: Choice, model: str, costs: Costs) -> str:
    """Return the choice in one sentence, with its rule."""
    best = choice.ranked[0]
    runs = "" if costs.runs == 1 else f"{costs.runs:,} runs of "
    days = short_days(best.days)
    if best.bought:
        price = money_text(best.offer.price or 0.0, costs.currency)
        return f"Buy {best.text} for {price}: {runs}{model} in {days}, {choice.rule}."
    cost = money_text(best.cost, costs.currency)
    first = first_run(best.offer.pays_from) if best.offer.pays_from else None
    owning = "" if first is None else f"; owning pays from run {first:,}"
    return f"Rent {best.text}: {runs}{model} for {cost} in {days}, {choice.rule}{owning}."
