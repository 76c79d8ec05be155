"""Costs of renting: by the hour, reserved as a whole, storage, and spot instances with their interruptions.

Interruptions are a Poisson process, in training, checkpointing and restarting alike. Each loses the work since the last
checkpoint, and then a restart takes its time. All times are in one unit, whichever.

Young: J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (1974) 530-531. Daly: J. T.
Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer Systems
22 (2006) 303-312.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..formats import DAYS_A_YEAR, Interval, days_read, money_text, sum_read
from . import prices
from .days import TrainingDays
from .prices import Rate, Rental, worth


@dataclass(frozen=True)
class Interruptions:
    """The mean time `between` two interruptions, the time to write a `checkpoint`, and the time to `restart`."""

    between: float
    checkpoint: float
    restart: float


@dataclass(frozen=True)
class Expectation:
    """The expected time from start to end, and the expected number of interruptions in it."""

    time: float
    interruptions: float


def young(faced: Interruptions) -> float:
    """Return the optimum training time between two checkpoints, by Young's first-order formula."""
    return math.sqrt(2 * faced.checkpoint * faced.between)


def daly(faced: Interruptions) -> float:
    """Return the optimum training time between two checkpoints, by Daly's higher-order formula; the mean time between
    interruptions where checkpoints are too slow for the series."""
    ratio = faced.checkpoint / (2 * faced.between)
    if ratio >= 1:
        return faced.between
    return young(faced) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - faced.checkpoint


def expected(work: float, every: float, faced: Interruptions) -> Expectation:
    """Return the expectation for `work` of training with a checkpoint after `every` and at the end.

    A stretch of length s (training and its checkpoint) ends when s passes without an interruption: Daly's complete
    model, M exp(R/M) (exp(s/M) - 1), with the last stretch as short as it is. Infinite where that exceeds a float.
    """
    stretches = max(math.ceil(work / every - 1e-9), 1)
    last = work - (stretches - 1) * every
    try:
        failures = sum(
            times * math.expm1((length + faced.checkpoint) / faced.between)
            for times, length in ((stretches - 1, every), (1, last))
            if times
        )
        attempts = math.exp(faced.restart / faced.between)
        return Expectation(faced.between * attempts * failures, attempts * failures)
    except OverflowError:
        return Expectation(math.inf, math.inf)


HOURS_A_MONTH = DAYS_A_YEAR * 24 / 12


def serving(rentals: Iterable[Rental], gpu: str, gpus: int) -> list[Rental]:
    """Return the rentals of a machine with `gpus` of `gpu`: instances with so many, and instances with one GPU of
    providers with proportional prices, where the larger one has no price of its own. Other providers' instances with
    one GPU do not count: nothing says that they are in one node."""
    listed = [rental for rental in rentals if rental.gpu == gpu]
    whole = [rental for rental in listed if rental.gpus == gpus]
    own = {_quote(rental) for rental in whole}
    alone = [rental for rental in listed if rental.gpus == 1 < gpus and not committed(rental)]
    return whole + [one for one in alone if one.provider in prices.in_proportion() and _quote(one) not in own]


def _quote(rental: Rental) -> tuple[str, str, str]:
    return rental.provider, rental.terms, rental.currency


def in_proportion_remark(rental: Rental, gpus: int) -> str:
    """Return a remark where the machine's price is a multiple of one GPU's, else ""."""
    return "" if rental.gpus == gpus else ", in proportion"


def in_proportion_text() -> str:
    """Return a sentence on the providers whose price of one GPU is multiplied."""
    known = "; ".join(f"{row.provider} ({row.source})" for row in prices.in_proportion().values())
    return (
        f"In proportion: the price of one GPU, as often as the machine has GPUs, as is known of {known}. No other "
        "provider's price of one GPU stands for more: a [[rental]] in --prices brings that of a larger machine."
    )


def committed(rental: Rental) -> bool:
    """Return True where all its hours are paid for, used or not."""
    return rental.terms == "reserved"


def whole_text(rental: Rental, price: float, currency: str) -> str:
    """Describe a reservation, with its price in a currency."""
    return f"{money_text(price, currency)} for {rental.hours:,.15g} hours, used or not"


def per_gpu_hour(rental: Rental) -> float:
    """Return the price per GPU and hour, in its currency; for a reserved one if it is always used."""
    return rental.price / rental.hours / rental.gpus


def per_hour(rental: Rental, gpus: int) -> float:
    """Return the price of an hour on `gpus` GPUs, in its currency; for a reserved one if it is always used."""
    return per_gpu_hour(rental) * gpus


def rent(rental: Rental, gpus: int, hours: float) -> float:
    """Return the cost of `hours` on `gpus` GPUs, in its currency. A reserved one is paid for as a whole."""
    if committed(rental):
        return rental.price * max(math.ceil(hours / rental.hours - 1e-9), 1)
    return hours * per_hour(rental, gpus)


def storage_per_hour(gigabytes: float, price_per_gb_month: float) -> float:
    """Return the cost of keeping data for an hour; a GB is 1e9 bytes, a month a twelfth of 365 days."""
    return gigabytes * price_per_gb_month / HOURS_A_MONTH


def priced(rentals: Iterable[Rental], currency: str, rates: Sequence[Rate]) -> Iterator[tuple[Rental, float]]:
    """Yield the rentals whose currency has an exchange rate, each with the worth of one unit of it in `currency`."""
    for rental in rentals:
        each = worth(rental.currency, currency, rates)
        if each is not None:
            yield rental, each


def unrated(runs: Iterable[TrainingDays], rentals: Sequence[Rental], currency: str, rates: Sequence[Rate]) -> str:
    """Explain why rentals that serve these runs are left out, and how to include them; "" where none is."""
    foreign = sorted(
        {
            rental.currency
            for run in runs
            for rental in serving(rentals, run.gpu, run.gpus)
            if worth(rental.currency, currency, rates) is None
        }
    )
    return f"no rate from {', '.join(foreign)} to {currency}, a [[rate]] in --prices brings one" if foreign else ""


def unrated_text(lacking: str) -> list[str]:
    """Return that reason as a sentence; empty where no rental is left out."""
    return [f"Rentals left out: {lacking}."] if lacking else []


@dataclass(frozen=True)
class Rented:
    """A run on a rental: hours from start to end, rent and storage in the requested currency. On a spot instance the
    hours are expected ones, infinite where they exceed a float. `every` is the hours of training between checkpoints;
    it and `interruptions` are None on other instances, and where interruptions are unknown and so not counted. `bounds`
    are the days from start to end within those of predicted days."""

    run: TrainingDays
    rental: Rental
    hours: float
    price_per_gpu_hour: float
    rent: float
    storage: float
    every: float | None
    interruptions: float | None
    bounds: tuple[float, float] | None

    @property
    def days(self) -> float:
        return self.run.known(self.hours / 24)

    @property
    def cost(self) -> float:
        return self.rent + self.storage


def rented_runs(
    runs: Iterable[TrainingDays],
    rentals: Iterable[Rental],
    currency: str,
    rates: Sequence[Rate],
    spot: Spot | None = None,
    storage_per_hour: float = 0.0,
) -> list[Rented]:
    """Return each run on each rental that serves its machine and whose currency has a rate: the cheapest first; of
    those whose cost prints alike the fastest, and then the one with the fewest GPUs."""
    found = []
    listed = list(rentals)
    for run in runs:
        for rental, each in priced(serving(listed, run.gpu, run.gpus), currency, rates):
            faced = spot if rental.terms == "spot" else None
            training = run.days.value * 24
            hours = _taken(training, faced)
            paid = rent(rental, run.gpus, hours) * each
            stored = storage_per_hour * hours if storage_per_hour else 0.0  # 0 * inf is NaN
            found.append(
                Rented(
                    run=run,
                    rental=rental,
                    hours=hours,
                    price_per_gpu_hour=per_gpu_hour(rental) * each,
                    rent=paid if committed(rental) else run.known(paid),
                    storage=run.known(stored),
                    every=faced.every(training) if faced else None,
                    interruptions=run.known(faced.expected(training).interruptions) if faced else None,
                    bounds=_taken_between(run, faced),
                )
            )
    return sorted(found, key=_order)


def _taken(hours: float, faced: Spot | None) -> float:
    """Return the expected hours from start to end of so many hours of training."""
    return hours if faced is None else faced.expected(hours).time


def _taken_between(run: TrainingDays, faced: Spot | None) -> tuple[float, float] | None:
    if run.bounds is None:
        return None
    low, high = (run.known(_taken(bound * 24, faced) / 24) for bound in run.bounds)
    return low, high


def _order(row: Rented) -> tuple[float | str, ...]:
    run, rental = row.run, row.rental
    return sum_read(row.cost), days_read(row.days), run.gpus, run.gpu, rental.provider, rental.terms


def given_hours(gpu: str, gpus: int, hours: float) -> TrainingDays:
    """Return a run of so many hours on `gpus` of `gpu`, as the user gives it."""
    return TrainingDays(gpu, gpus, Interval.exact(hours / 24), "given", "--hours")


Plan = Literal["daly", "young", "epoch"]


@dataclass(frozen=True)
class Spot:
    """The interruptions of a run, and its checkpoints: at an optimum interval, after each of `epochs`, or every so many
    hours. All times are in hours."""

    faced: Interruptions
    plan: Plan | float
    epochs: int = 1

    def every(self, hours: float) -> float:
        """Return the training between two checkpoints of a run of that many hours."""
        if self.plan == "daly":
            return daly(self.faced)
        if self.plan == "young":
            return young(self.faced)
        return hours / self.epochs if self.plan == "epoch" else self.plan

    def expected(self, hours: float) -> Expectation:
        """Return the expected time and interruptions of a run of that many hours without interruptions."""
        return expected(hours, self.every(hours), self.faced)
