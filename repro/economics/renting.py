"""What renting costs: instances by the hour, reserved ones as a whole, and storage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..currency import Rate, worth
from ..interval import Interval
from ..prices import Rental
from ..units import DAYS_A_YEAR
from .days import TrainingDays
from .spot import Spot

HOURS_A_MONTH = DAYS_A_YEAR * 24 / 12


def serves(rental: Rental, gpu: str, gpus: int) -> bool:
    """Whether one can rent a machine of `gpus` of `gpu` so. An instance with one GPU also stands for larger ones of the
    provider, whose price rises in proportion (the thesis says so of RunPod)."""
    return rental.gpu == gpu and (rental.gpus == gpus or (rental.gpus == 1 and not committed(rental)))


def instances(rental: Rental, gpus: int) -> str:
    """What to say of a machine that several instances make; nothing where one does."""
    return "" if rental.gpus == gpus else f", {gpus} x {rental.gpus} GPU"


def committed(rental: Rental) -> bool:
    """Whether all its hours are paid for, used or not."""
    return rental.terms == "reserved"


def per_gpu_hour(rental: Rental) -> float:
    """Its price per GPU and hour, in its currency; of a reserved one if it is always used."""
    return rental.price / rental.hours / rental.gpus


def per_hour(rental: Rental, gpus: int) -> float:
    """The price of an hour on `gpus` GPUs, in its currency; of a reserved one if it is always used."""
    return per_gpu_hour(rental) * gpus


def rent(rental: Rental, gpus: int, hours: float) -> float:
    """What `hours` on `gpus` GPUs cost, in its currency. A reserved one is paid for as a whole."""
    if committed(rental):
        return rental.price * math.ceil(hours / rental.hours)
    return hours * per_hour(rental, gpus)


def storage_per_hour(gigabytes: float, price_per_gb_month: float) -> float:
    """What keeping data costs an hour; a GB is 1e9 bytes, a month a twelfth of 365 days."""
    return gigabytes * price_per_gb_month / HOURS_A_MONTH


def priced(rentals: Iterable[Rental], currency: str, rates: Iterable[Rate]) -> Iterator[tuple[Rental, float]]:
    """Those whose currency has a rate, with what one unit of theirs is in `currency`."""
    known = list(rates)
    for rental in rentals:
        each = worth(rental.currency, currency, known)
        if each is not None:
            yield rental, each


@dataclass(frozen=True)
class Rented:
    """A run on a rental: hours from start to end, rent and storage in the currency that was asked for. On a spot
    instance the hours are expected ones, infinite where they exceed a float; without knowing its interruptions they
    are as if there were none, and `every`, hours of training between checkpoints, and `interruptions` are None, as
    they are on any other."""

    run: TrainingDays
    rental: Rental
    hours: float
    price_per_gpu_hour: float
    rent: float
    storage: float
    every: float | None
    interruptions: float | None

    @property
    def cost(self) -> float:
        return self.rent + self.storage


def rented_runs(
    runs: Iterable[TrainingDays],
    rentals: Iterable[Rental],
    currency: str,
    rates: Iterable[Rate],
    spot: Spot | None = None,
    storage_per_hour: float = 0.0,
) -> list[Rented]:
    """Each run on each rental that serves its machine and whose currency has a rate: the cheapest first, of equals the
    fastest."""
    found = []
    listed = list(priced(rentals, currency, rates))
    for run in runs:
        for rental, each in listed:
            if not serves(rental, run.gpu, run.gpus):
                continue
            hours, every, interruptions = run.days.value * 24, None, None
            if rental.terms == "spot" and spot is not None:
                every = spot.every(hours)
                whole = spot.expected(hours)
                hours, interruptions = whole.time, whole.interruptions
            found.append(
                Rented(
                    run=run,
                    rental=rental,
                    hours=hours,
                    price_per_gpu_hour=per_gpu_hour(rental) * each,
                    rent=rent(rental, run.gpus, hours) * each,
                    storage=storage_per_hour * hours if storage_per_hour else 0.0,  # 0 * inf is no number
                    every=every,
                    interruptions=interruptions,
                )
            )
    return sorted(found, key=lambda row: (row.cost, row.hours))


def given_hours(gpu: str, gpus: int, hours: float) -> TrainingDays:
    """A run of so many hours on `gpus` of `gpu`, as whoever asks says."""
    return TrainingDays(gpu, gpus, Interval.exact(hours / 24), "given", "--hours")
