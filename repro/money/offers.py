"""Offers: every machine that can train a model, to buy or to rent, with what it costs and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from ..datafile import read_csv, read_once
from ..formats import DAYS_A_YEAR, days_read, half_up, sum_read
from ..paper.gpus import OfGpus, known_gpu
from ..paper.tables import quantities
from .days import ALONE, Beside, Origin, TrainingDays
from .prices import PriceList, Rental, worth
from .renting import committed, in_proportion_remark, rented_runs, serving, unrated, unrated_text


@dataclass(frozen=True)
class Tier:
    """The kind of machine that a GPU is meant for, in the paper's words."""

    gpu: str
    tier: str
    source: str


@dataclass(frozen=True)
class Offer(OfGpus):
    """One machine for `runs` trainings, one after the other.

    `terms` is "own", or how and where it is rented. `cost` and `days` are for all runs. `cost_per_experiment` is for
    one run; an owned machine's is its share of the lifespan. Sums are in `currency`; `quoted` is the day of the oldest
    price; `bounds` are those of predicted days, for all runs, and `beside` the days of other origins.
    """

    gpu: str
    gpus: int
    tier: str | None
    terms: str
    cost: float
    days: float
    runs: int
    cost_per_experiment: float
    currency: str
    origin: Origin
    source: str
    quoted: date
    bounds: tuple[float, float] | None
    beside: Beside = ALONE

    @property
    def owned(self) -> bool:
        return self.terms == "own"

    @property
    def aims(self) -> tuple[float, ...]:
        """Return the numbers to minimise, rounded as printed. Cost per experiment is one of them, as a bought machine
        outlasts the runs and a rented one does not."""
        return sum_read(self.cost), days_read(self.days), sum_read(self.cost_per_experiment)

    @property
    def wears_out(self) -> bool:
        """Return True where it is bought and its lifespan is shorter than the runs."""
        return self.owned and self.days > lifespan_years() * DAYS_A_YEAR


def lifespan_years() -> float:
    """Return the years that the paper expects a machine to last."""
    return quantities()["paper/lifespan"].value


def cost_a_day(machine: float) -> float:
    """Return a machine's price over the days of its lifespan (section 4.1)."""
    return machine / (lifespan_years() * DAYS_A_YEAR)


def machine_price(gpu: str, gpus: int, prices: PriceList, currency: str) -> tuple[float, date] | None:
    """Return the price of a machine, GPUs and the system around them, and the day of its older price; None without a
    price or an exchange rate."""
    each, system = prices.gpus.get(gpu), prices.systems.get(gpus)
    if each is None or system is None:
        return None
    gpu_worth, system_worth = (worth(price.currency, currency, prices.rates) for price in (each, system))
    if gpu_worth is None or system_worth is None:
        return None
    return gpus * each.price * gpu_worth + system.price * system_worth, min(each.quoted, system.quoted)


def older_price(gpu: str, gpus: int, prices: PriceList, called: str) -> tuple[str, date]:
    """Return the older of a machine's two prices, GPU and system: its name and its day. The machine must have both.
    `called` is the name of the machine, or of its GPU."""
    each, system = prices.gpus[gpu].quoted, prices.systems[gpus].quoted
    return (f"the system around {called}", system) if system < each else (called, each)


def owned(days: Iterable[TrainingDays], prices: PriceList, currency: str, runs: int) -> list[Offer]:
    """Return a machine to buy for each of the days whose GPUs and system have a price. One serves all runs."""
    found = []
    for row in days:
        price = machine_price(row.gpu, row.gpus, prices, currency)
        if price is not None:
            share = row.known(cost_a_day(price[0]) * row.days.value)
            found.append(_offer(row.times(runs), "own", price[0], share, currency, runs, price[1]))
    return found


def rented(days: Iterable[TrainingDays], prices: PriceList, currency: str, runs: int) -> list[Offer]:
    """Return every rental that serves one of the days, at the cost of all runs. Spot prices are left out, as their cost
    depends on interruptions."""
    return [
        _offer(
            row.run,
            f"rent, {row.rental.provider} {row.rental.terms}"
            + (f" for {row.rental.hours:,.15g} h" if committed(row.rental) else "")
            + in_proportion_remark(row.rental, row.run.gpus),
            row.rent,
            row.run.known(row.price_per_gpu_hour * row.run.gpus * row.hours / runs),
            currency,
            runs,
            row.rental.quoted,
        )
        for row in rented_runs((row.times(runs) for row in days), _steady(prices), currency, prices.rates)
    ]


def rentals_left_out(days: Iterable[TrainingDays], prices: PriceList, currency: str) -> list[str]:
    """Return a sentence on the rentals without an exchange rate to the currency; empty where there are none."""
    return unrated_text(unrated(days, _steady(prices), currency, prices.rates))


def _steady(prices: PriceList) -> list[Rental]:
    return [rental for rental in prices.rentals if rental.terms != "spot"]


def paid_in(found: Iterable[Offer], prices: PriceList) -> set[str]:
    """Return the currencies of the prices that these offers are computed from."""
    paid = set()
    for offer in found:
        if offer.owned:
            paid |= machine_paid_in(offer.gpu, offer.gpus, prices)
        else:
            paid |= {rental.currency for rental in serving(_steady(prices), offer.gpu, offer.gpus)}
    return paid


def machine_paid_in(gpu: str, gpus: int, prices: PriceList) -> set[str]:
    """Return the currencies of a machine's prices. It must have both."""
    return {prices.gpus[gpu].currency, prices.systems[gpus].currency}


def unpriced(days: Iterable[TrainingDays], offers: Iterable[Offer]) -> list[str]:
    """Return the machines of these days without an offer, as they lack a price, or a rate to the currency."""
    offered = {(offer.gpu, offer.gpus) for offer in offers}
    return [row.machine for row in days if (row.gpu, row.gpus) not in offered]


def _offer(row: TrainingDays, terms: str, cost: float, share: float, currency: str, runs: int, quoted: date) -> Offer:
    return Offer(
        gpu=row.gpu,
        gpus=row.gpus,
        tier=_tiers().get(row.gpu),
        terms=terms,
        cost=half_up(cost, 2),  # as printed: digits that are not shown must not exceed a budget
        days=row.days.value,
        runs=runs,
        cost_per_experiment=share,
        currency=currency,
        origin=row.origin,
        source=row.source,
        quoted=quoted,
        bounds=row.bounds,
        beside=row.beside,
    )


@read_once
def _tiers() -> dict[str, str]:
    return {row.gpu: row.tier for row in read_csv(Tier, "tiers.csv", ("gpu",), known_gpu).values()}
