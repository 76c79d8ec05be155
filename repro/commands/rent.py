"""`repro rent`: compute the cost of renting, on demand, reserved and spot with its interruptions, and of storage."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from .. import formats, models
from ..console import UserError
from ..formats import are, bounds_text, money_text, short_days, significant
from ..money import renting
from ..money.days import UNKNOWN, Measurement, ModelDays, TrainingDays
from ..money.offers import machine_paid_in, machine_price, older_price
from ..money.prices import PriceList, old, prices_text
from ..money.renting import Interruptions, Rented, Spot, daly, young
from ..paper.tables import quantities
from ..train import kept
from ..train.kept import Kept
from .custom_models import add_model
from .money import (
    add_shared,
    check_run,
    compared_text,
    days_on,
    given_in,
    model_days,
    read_gpu,
    read_gpus,
    read_prices,
    read_sum,
    without_days,
)
from .printout import bounds, finite, interval_text, printout

Row = dict[str, Any]
Printed = tuple[list[str], list[Row], list[str]]  # sentences, rows, notes
_SPOT = ("interrupted_every", "checkpoint_time", "restart_time")
_CHECKPOINTS = ("checkpoint_every", "epochs")


def options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "a recipe, for its days on each GPU", epochs=False)
    parser.add_argument("--hours", metavar="H", help="hours of a run instead, on --gpus of --gpu")
    parser.add_argument("--gpu", metavar="NAME", help="only this GPU")
    parser.add_argument("--gpus", metavar="N", help="only this number of GPUs")
    spot = parser.add_argument_group("spot instances")
    spot.add_argument("--interrupted-every", metavar="12h", help="mean time between two interruptions")
    spot.add_argument(
        "--checkpoint-time",
        metavar="2m",
        help="time to write a checkpoint (default: that of train.py, in a --measured folder)",
    )
    spot.add_argument(
        "--restart-time", metavar="10m", help="time from an interruption to training again, which is paid for"
    )
    spot.add_argument(
        "--checkpoint-every",
        metavar="daly|young|epoch|1h",
        help="training between two checkpoints: an optimum (default: Daly's), an epoch, or a duration",
    )
    spot.add_argument(
        "--epochs", metavar="N", help="epochs of a run, for --checkpoint-every epoch, or of your own model"
    )
    storage = parser.add_argument_group("storage")
    storage.add_argument("--storage", metavar="900GB", help="data kept for as long as the run takes")
    storage.add_argument("--storage-price", metavar="SUM", help="per GB and month, such as 0.07 or 0.07EUR")
    add_shared(parser)


def main(given: argparse.Namespace) -> int:
    trained = _trained(given)
    unit, prices = read_prices(given)
    gpu = read_gpu(given)
    gpus = read_gpus(given)
    if given.model is None and given.hours is None:
        for option in (*_SPOT, *_CHECKPOINTS, "storage", "storage_price", "measured", "currency"):
            if getattr(given, option) is not None:
                raise UserError(f"--{option.replace('_', '-')} needs a run: --model ID, or --hours with --gpu")
        print(printout(*_prices(prices, gpu, gpus, unit), given.format))
    else:
        print(printout(*_runs(given, trained, prices, gpu, gpus, unit), given.format, currency=unit))
    return 0


def _prices(prices: PriceList, gpu: str | None, gpus: int | None, unit: str) -> Printed:
    """Return the rents per GPU and hour, each in its own currency, and the purchase price of a reserved machine."""
    today = date.today()
    listed = [
        row
        for row in prices.rentals
        if gpu in (None, row.gpu) and (gpus is None or row in renting.serving(prices.rentals, row.gpu, gpus))
    ]
    if not listed:
        raise _nobody_rents(f"{gpus or ''} {gpu or 'GPUs'}".strip())
    rows = [
        {
            "gpu": rental.gpu,
            "gpus": rental.gpus,
            "provider": rental.provider,
            "terms": rental.terms,
            "price_per_gpu_hour": finite(renting.per_gpu_hour(rental), 4),
            "price": rental.price,
            "hours": rental.hours,
            "currency": rental.currency,
            "quoted": rental.quoted.isoformat(),
            "old_price": old(rental.quoted, today),
            "source": rental.source,
        }
        for rental in listed
    ]
    notes = [renting.in_proportion_text()] if any(rental.gpus < (gpus or 1) for rental in listed) else []
    quoted, paid = [(f"{row.gpu} at {row.provider}", row.quoted) for row in listed], set[str]()
    for rental in filter(renting.committed, listed):
        paid_for = renting.whole_text(rental, rental.price, rental.currency)
        note = f"{rental.machine}, {rental.terms} at {rental.provider}: {paid_for}"
        price = machine_price(rental.gpu, rental.gpus, prices, unit)
        if price is not None:
            note += f"; to own the machine costs {money_text(price[0], unit)}"
            quoted.append(older_price(rental.gpu, rental.gpus, prices, f"{rental.machine} to buy"))
            paid |= machine_paid_in(rental.gpu, rental.gpus, prices)
        if (rental.gpu, rental.gpus) == ("A100", 8):
            ceiling = quantities()["paper/owned_8_a100"]
            note += f", at most {ceiling.value:,.0f} {ceiling.unit} ({ceiling.source})"
        notes.append(f"{note}.")
    notes += prices_text(quoted, paid, unit, prices.rates, today)
    return ["Prices per GPU and hour, each in its own currency; --model or --hours computes a run."], rows, notes


def _trained(given: argparse.Namespace) -> dict[Path, Kept]:
    """Take the folders of an exported train.py out of --measured, and return what it kept in each. Raise UserError for
    one of another model, and where the time of a checkpoint is given as well."""
    if given.model is None and given.hours is None:
        return {}
    found = {folder: one for folder in given.measured or () if folder and (one := kept.read(folder))}
    for folder, one in found.items():
        if given.model not in (None, one.recipe):
            raise UserError(f"--measured {folder} trained {one.recipe}, not {given.model}")
        if given.checkpoint_time is not None:
            raise UserError(
                f"--checkpoint-time {given.checkpoint_time}: --measured {folder} says how long one took, "
                f"{significant(one.checkpoint_seconds)} s; leave one of them out"
            )
    if len(found) > 1:
        raise UserError(f"--measured {' and '.join(map(str, found))}: expected one folder of train.py")
    if found:
        given.measured = [folder for folder in given.measured if folder not in found] or None
    if found and any(getattr(given, name) is not None for name in (*_SPOT, *_CHECKPOINTS)):
        given.checkpoint_time = f"{next(iter(found.values())).checkpoint_seconds:f}s"
    return found


def _measurements(trained: dict[Path, Kept]) -> list[Measurement]:
    """Return the days that train.py took."""
    return [
        Measurement(
            *(one.device, one.count, one.settings, one.days, None, one.micro_batch, UNKNOWN, f"{folder}, train.py")
        )
        for folder, one in trained.items()
    ]


def _runs(
    given: argparse.Namespace,
    trained: dict[Path, Kept],
    prices: PriceList,
    gpu: str | None,
    gpus: int | None,
    unit: str,
) -> Printed:
    """Return a run on every rental that serves it."""
    known = None if given.model is None else model_days(given, trained=_measurements(trained))
    runs, spot, storage = _asked(given, known, prices, gpu, gpus), _spot(given), _storage(given, prices, unit)
    found = renting.rented_runs(runs, prices.rentals, unit, prices.rates, spot, storage)
    lacking = renting.unrated(runs, prices.rentals, unit, prices.rates)
    if not found:
        raise UserError(lacking) if lacking else _nobody_rents(", ".join(run.machine for run in runs))
    today = date.today()
    notes = [known.asked.text, *compared_text(gpu)] if known is not None else []
    notes += renting.unrated_text(lacking)
    notes += _notes(found, spot)
    one = {rental.gpu for rental in prices.rentals if rental.gpus == 1}
    notes += [renting.in_proportion_text()] if any(run.gpus > 1 and run.gpu in one for run in runs) else []
    notes += interval_text(row.bounds for row in found)
    if known is not None and gpu is None and gpus is None:
        notes += without_days(known, runs, rentals=prices.own_rentals)
    paid = {row.rental.currency for row in found} | given_in(given, ["storage_price"], unit)
    quoted = [(f"{row.rental.gpu} at {row.rental.provider}", row.rental.quoted) for row in found]
    notes += prices_text(quoted, paid, unit, prices.rates, today)
    return [_cheapest(_best(found, spot), unit, spot)], [_row(row, unit, today) for row in found], notes


def _best(found: Sequence[Rented], spot: Spot | None) -> Rented:
    """Return the cheapest, without spot instances where their interruptions are not known."""
    steady = [row for row in found if row.rental.terms != "spot"]
    return (found if spot else steady or found)[0]


def _cheapest(best: Rented, unit: str, spot: Spot | None) -> str:
    if math.isinf(best.cost):
        return "None of these ends: interrupted so often, the run is not to be expected to finish on any."
    uninterrupted = "without interruptions" if best.rental.terms == "spot" and spot is None else ""
    days = [f"{best.run.origin}: {best.run.source}", bounds_text(best.bounds), uninterrupted]
    return (
        f"The cheapest is {best.run.machine} at {best.rental.provider}, {best.rental.terms}"
        f"{renting.in_proportion_remark(best.rental, best.run.gpus)}: {money_text(best.cost, unit)} in "
        f"{short_days(best.days)} ({', '.join(filter(None, days))})."
    )


def _asked(
    given: argparse.Namespace,
    known: ModelDays | None,
    prices: PriceList,
    gpu: str | None,
    gpus: int | None,
) -> list[TrainingDays]:
    check_run(given)
    if given.hours is not None:
        if gpu is None:
            raise UserError("--hours needs --gpu NAME: hours of a run on which GPU?")
        return [renting.given_hours(gpu, gpus or 1, formats.positive(given.hours, "--hours", "100"))]
    assert known is not None
    return days_on(known, gpu, gpus, prices)


def _spot(given: argparse.Namespace) -> Spot | None:
    """Return the spot conditions; None without any of the options. The three times have no defaults, so all are
    needed."""
    options = {name: f"--{name.replace('_', '-')}" for name in _SPOT}
    missing = [option for name, option in options.items() if getattr(given, name) is None]
    if len(missing) == len(options) and all(getattr(given, name) is None for name in _CHECKPOINTS):
        return None
    if missing:
        raise UserError(
            f"spot instances need {', '.join(options.values())}: {', '.join(missing)} {are(len(missing))} missing"
        )
    of_own = given.model is not None and models.is_own(given.model)
    if given.epochs is not None and given.checkpoint_every != "epoch" and not of_own:
        raise UserError(f"--epochs {given.epochs} needs --checkpoint-every epoch: nothing else asks how many there are")
    between, checkpoint, restart = (
        formats.seconds(getattr(given, name), option) / 3600 for name, option in options.items()
    )
    if checkpoint >= between:
        raise UserError(
            f"--checkpoint-time {given.checkpoint_time}: expected less than --interrupted-every "
            f"{given.interrupted_every}, as most checkpoints would be interrupted; leave these options out to see what "
            "spot instances cost uninterrupted, at the least"
        )
    faced = Interruptions(between, checkpoint, restart)
    if given.checkpoint_every == "epoch":
        if given.epochs is None:
            raise UserError("--checkpoint-every epoch needs --epochs N: how many has the run?")
        return Spot(faced, "epoch", formats.count(given.epochs, "--epochs"))
    if given.checkpoint_every in (None, "daly", "young"):
        return Spot(faced, given.checkpoint_every or "daly")
    try:
        return Spot(faced, formats.seconds(given.checkpoint_every, "--checkpoint-every") / 3600)
    except UserError as error:
        raise UserError(f"{error}; or daly, young or epoch") from None


def _storage(given: argparse.Namespace, prices: PriceList, unit: str) -> float:
    """Return the cost of the data per hour."""
    if (given.storage is None) != (given.storage_price is None):
        raise UserError("--storage SIZE and --storage-price SUM come together")
    if given.storage is None:
        return 0.0
    price = read_sum(given.storage_price, "--storage-price", unit, prices)
    if price.low < price.high:
        raise UserError(f"--storage-price {given.storage_price}: expected one sum such as 0.07, without bounds")
    return renting.storage_per_hour(formats.bytes_(given.storage, "--storage") / 1e9, price.value)


def _notes(found: Sequence[Rented], spot: Spot | None) -> list[str]:
    notes = []
    if any(row.rental.terms == "spot" for row in found):
        if spot is None:
            passed_over = ", and not taken for the cheapest" if _best(found, spot).rental.terms != "spot" else ""
            notes.append(
                f"Spot instances are computed as if never interrupted, a lower bound{passed_over}; "
                "--interrupted-every, --checkpoint-time and --restart-time count interruptions."
            )
        else:
            by_young, by_daly = (significant(optimum(spot.faced) * 60) for optimum in (young, daly))
            notes.append(
                "On spot instances days and sums are expected values. Best is a checkpoint every "
                f"{by_young} min by Young (1974), {by_daly} min by Daly (2006)."
            )
    elif spot is not None:
        notes.append(
            "No spot price serves the run: its interruptions and checkpoints change nothing; a [[rental]] in --prices, "
            "with terms spot, brings one."
        )
    if any(math.isinf(row.hours) for row in found):
        notes.append("No days and no cost: interrupted so often, the run is not to be expected to finish there.")
    if any(renting.committed(row.rental) for row in found):
        notes.append("A reserved instance costs its whole term, used or not.")
    return notes


def _row(row: Rented, unit: str, today: date) -> dict[str, Any]:
    suffix = unit.lower()
    return {
        "gpu": row.run.gpu,
        "gpus": row.run.gpus,
        "provider": row.rental.provider,
        "terms": row.rental.terms,
        "in_proportion": row.rental.gpus < row.run.gpus,
        f"price_per_gpu_hour_{suffix}": finite(row.price_per_gpu_hour, 4),
        "days": finite(row.days, 3),
        **bounds(row.bounds),
        **row.run.beside.columns(),
        f"rent_{suffix}": finite(row.rent, 2),
        f"storage_{suffix}": finite(row.storage, 2),
        f"cost_{suffix}": finite(row.cost, 2),
        "checkpoint_every_h": finite(row.every, 3),
        "interruptions": finite(row.interruptions, 2),
        "origin": row.run.origin,
        "source": row.run.source,
        "quoted": row.rental.quoted.isoformat(),
        "old_price": old(row.rental.quoted, today),
    }


def _nobody_rents(what: str) -> UserError:
    return UserError(f"no price for renting {what}; give one with --prices, as a [[rental]]")
