"""`repro cost`: print what training a model costs on each machine, owned and rented, and which machine to take."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

from .. import command, formats
from ..console import UserError, say
from ..formats import DAYS_A_YEAR, SECONDS_A_DAY, add_format, count_if_given, days_cell, listing, significant
from ..money import offers
from ..money.amounts import budget as parse_budget
from ..money.amounts import sum_read
from ..money.breakeven import first_run, lifespan_years
from ..money.days import DaysAsked, ModelDays, TrainingDays
from ..money.measurements import UNKNOWN, Measurement
from ..money.offers import Costs, Offer, kilowatts
from ..money.prices import GpuPrice, PriceList, canonical_gpu, old, price_list, worth
from ..money.spot import Interruptions
from ..paper.custom_gpu import custom_gpu
from ..paper.gpus import Gpu, by_name, paper_gpus
from ..printout import Column, finite, screen
from ..train import kept
from . import calculator
from .calculator import read_currency, read_storage, read_sum
from .custom_models import add_model
from .day_options import add_by, add_measured_days, add_stack, measured_days

_MOST_GPUS = 100_000  # as many as the largest clusters have
_OF_A_MODEL: dict[str, str | None] = dict.fromkeys(
    ("terms", "gpu", "gpus", "budget", "deadline", "runs", "measured", "methods", "interrupted_every")
) | {"by": "true", "stack": "today"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [MODEL] [OPTIONS]"
    parser.epilog = "SUM is 8000, 0.13EUR, or 7000..9000 where uncertain. Prices of your own: docs/own-prices.toml."
    add_model(parser, "a recipe, see recipes")
    add = parser.add_argument
    add("--terms", choices=("own", "rent", "either"), help="machines to buy (the default), to rent, or both")
    add("--gpu", metavar="NAME|FILE", help="only this GPU: a name, or a TOML file that describes one of your own")
    add("--gpus", metavar="N", help="only this number of GPUs")
    add("--budget", metavar="SUM", help="for all runs; without --deadline: the fastest within it")
    add("--deadline", metavar="30d", help="for all runs: the cheapest that meets it")
    add("--runs", metavar="N", help="trainings, one after the other (default: 1)")
    add_measured_days(parser)
    add_by(parser)
    add_stack(parser, "today")
    add("--methods", choices=("modern", "modern:exact"), help="days with parts of today's software: docs/own-model.md")
    add(
        "--prices",
        type=formats.path,
        metavar="FILE",
        help="TOML, or SkyPilot's CSV, of prices that replace ours",
    )
    add("--currency", metavar="CODE", help="currency of all sums, such as EUR (default: USD)")
    add("--interrupted-every", metavar="12h", help="count spot instances, interrupted so often: [[spot]] in --prices")
    add("--electricity", metavar="SUM", help="price of a kWh, which the owner pays")
    add("--storage", metavar="900GB", help="data that the renter keeps during a run: [[storage]] in --prices")
    add("--all", action="store_true", help="show all rows")
    add_format(parser)
    calculator.add_options(parser)


@dataclass(frozen=True)
class _Asked:
    """What is asked for: limits, None where not given, and the terms of what may be taken."""

    known: ModelDays
    costs: Costs
    gpu: str | None
    gpus: int | None
    budget: float | None
    deadline: float | None
    buys: bool
    rents: bool


def main(given: argparse.Namespace) -> int:
    if given.model is None:
        for name, default in _OF_A_MODEL.items():
            if getattr(given, name) != default:
                raise UserError(f"--{name.replace('_', '-')} needs a MODEL, such as {command()} cost vit")
        return calculator.main(given)
    calculator.refuse(given)
    asked = _asked(given)
    found = offers.offers(_days(asked), asked.costs)
    found = [offer for offer in found if asked.gpus in (None, offer.run.gpus)]
    listed = offers.options(found, asked.costs, asked.buys, asked.rents)
    if not listed:
        raise _without_price(asked)
    chosen = offers.choose(listed, asked.budget, asked.deadline)
    fitting = {option.offer for option in chosen.ranked[: chosen.fitting]}
    ranked = dict.fromkeys([*(option.offer for option in chosen.ranked), *found])
    for line in _warnings(found, asked):
        say(line)
    print(
        screen(
            offers.answer(chosen, asked.known.recipe.name, asked.costs),
            _columns(asked, fitting),
            list(ranked),
            _notes(asked, len(fitting), len(found)),
            given.format,
            given.all,
            rule=chosen.rule,
            terms="own" if chosen.ranked[0].bought else "rent",
            currency=asked.costs.currency,
        )
    )
    return 0


def _asked(given: argparse.Namespace) -> _Asked:
    terms = given.terms or "own"
    budget = None if given.budget is None else parse_budget(given.budget, "--budget")
    deadline = None if given.deadline is None else formats.seconds(given.deadline, "--deadline") / SECONDS_A_DAY
    runs = 1 if given.runs is None else formats.count(given.runs, "--runs")
    gpus = count_if_given(given.gpus, "--gpus", most=_MOST_GPUS)
    unit, prices = read_currency(given.currency), price_list(given.prices)
    custom = custom_gpu(given.gpu)
    if custom and terms != "own":
        raise UserError(f"--terms {terms} needs a GPU with known rents: {custom.file} has what it costs to buy")
    if custom and any(given.measured or ()):
        raise UserError(f"--measured changes nothing of --gpu {custom.file}, whose days are predicted: leave it out")
    if custom and custom.price and custom.quoted:
        price = GpuPrice(custom.name, *custom.price, custom.quoted, custom.source)
        prices = replace(prices, gpus=prices.gpus | {custom.name: price})
    gpu = custom.name if custom else given.gpu and canonical_gpu(given.gpu, "--gpu")
    measurements, checkpoint = _of_training(given)
    faced = _interruptions(given.interrupted_every, prices, checkpoint)
    kwh = None if given.electricity is None else read_sum(given.electricity, "--electricity", unit, prices)
    costs = Costs(prices, unit, runs, kwh, read_storage(given.storage, unit, prices), faced, custom)
    folders, shipped = measured_days(given)
    asked = DaysAsked(given.by, given.stack, folders, shipped, given.methods, tuple(measurements))
    known = ModelDays(given.model, asked)
    known.check_runs()
    return _Asked(known, costs, gpu, gpus, budget, deadline, terms != "rent", terms != "own")


def _of_training(given: argparse.Namespace) -> tuple[list[Measurement], float | None]:
    """Take the folder of an exported train.py out of --measured; return the days that it took, and the hours of its
    checkpoint. Raise UserError for one of another model, and for several."""
    found = {folder: one for folder in given.measured or () if folder and (one := kept.read(folder))}
    if len(found) > 1:
        raise UserError(f"--measured {' and '.join(map(str, found))}: expected one folder of train.py")
    for folder, one in found.items():
        if one.recipe != given.model:
            raise UserError(f"--measured {folder} trained {one.recipe}, not {given.model}")
        given.measured = [each for each in given.measured if each != folder] or None
        of = (one.device, one.count, one.settings, one.days, None, one.micro_batch, UNKNOWN, f"{folder}, train.py")
        return [Measurement(*of)], one.checkpoint_seconds / 3600
    return [], None


def _interruptions(every: str | None, prices: PriceList, measured: float | None) -> Interruptions | None:
    """Return the interruptions of spot instances; None where they are not to be counted."""
    if every is None:
        return None
    option = f"--interrupted-every {every}"
    between = formats.seconds(every, "--interrupted-every") / 3600
    if prices.spot is None:
        raise UserError(
            f"{option} needs the times of a restart and a checkpoint: [[spot]] in --prices, docs/own-prices.toml"
        )
    checkpoint = measured or prices.spot.checkpoint
    if checkpoint is None:
        raise UserError(f"{option} needs checkpoint in [[spot]] of --prices, or --measured with a folder of train.py")
    if checkpoint >= between:
        raise UserError(
            f"{option}: expected more than a checkpoint takes, {significant(checkpoint * 60)} min, as most would be "
            "interrupted; leave it out"
        )
    return Interruptions(between, checkpoint, prices.spot.restart)


def _days(asked: _Asked) -> list[TrainingDays]:
    """Return the days on any number of the GPUs asked for: where none is named, the paper's, those that the user's file
    has prices of, and measured ones. Raise UserError where the number asked for has none, naming those that have."""
    known, gpu, gpus, compared = asked.known, asked.gpu, asked.gpus, _compared(asked)
    there = [row for row in known.everywhere(compared) if gpu in (None, row.gpu)]
    if gpu and gpus and compared and gpus not in [row.gpus for row in there]:
        there += filter(None, [known.on(compared[0], gpus)])
    if not any(gpus in (None, row.gpus) for row in there):
        what = f"nobody knows how long {known.recipe.id} takes"
        if known.asked.by == "printed":
            what = f"the paper prints no days of {known.recipe.id}"
        elif known.foretells(gpus):
            what = f"{known.recipe.id} does not train"
        machine = " ".join(map(str, filter(None, (gpus, gpu or "GPUs"))))
        others = [row.machine for row in there or known.everywhere(compared)][:8]
        raise UserError(f"{what} on {machine}{f'; known: {listing(others)}' if others else ''}")
    return there


def _compared(asked: _Asked) -> list[Gpu]:
    if asked.costs.custom is not None:
        return [asked.costs.custom]
    names = [asked.gpu] if asked.gpu else dict.fromkeys([*paper_gpus(), *sorted(asked.costs.prices.own)])
    return [by_name()[name] for name in names if name in by_name()]


def _without_price(asked: _Asked) -> UserError:
    if (custom := asked.costs.custom) is not None and custom.price is None:
        day = date.today()
        return UserError(f'{custom.file}: price is missing, such as price = "1300 USD" and its day, quoted = {day}')
    unit, reasons = asked.costs.currency, "".join(f"; {line}" for line in _unrated(asked))
    without = f"no machine that trains {asked.known.recipe.name} has a price in {unit}{reasons}"
    return UserError(f"{without}; give prices, or a [[rate]] to {unit}, with --prices")


def _notes(asked: _Asked, fitting: int, machines: int) -> list[str]:
    notes = [asked.known.asked.text]
    counted = "with" if asked.costs.kwh else "without"
    way = "" if asked.costs.kwh else " (--electricity SUM counts it)"
    notes.append(
        f"A run of one's own costs its share of a machine's {lifespan_years():g} years, {counted} electricity{way}."
    )
    if asked.costs.custom is not None:
        notes.append(asked.costs.custom.note)
    elif asked.budget is not None or asked.deadline is not None:
        notes.append(f"The first {fitting} of {machines} machines fit.")
    elif asked.rents and asked.costs.faced is None:
        notes.append("Spot instances count with --interrupted-every.")
    return notes


def _unrated(asked: _Asked) -> list[str]:
    """Return a line on the rentals without an exchange rate; none where there are none."""
    unit, prices = asked.costs.currency, asked.costs.prices
    lacking = sorted({row.currency for row in prices.rentals if worth(row.currency, unit, prices.rates) is None})
    line = f"rentals left out: no rate from {', '.join(lacking)} to {unit}, a [[rate]] in --prices brings one"
    return [line] if lacking else []


def _warnings(found: Sequence[Offer], asked: _Asked) -> list[str]:
    """Return lines on prices that are left out or old, and on power that is not known."""
    lines, prices = _unrated(asked), asked.costs.prices
    if asked.costs.kwh is not None:
        dark = dict.fromkeys(each.run.gpu for each in found if kilowatts(each.run, asked.costs.custom) is None)
        lines += [
            f"the power of {gpu} is unknown, and so what a run costs on one's own with electricity" for gpu in dark
        ]
    quoted: dict[str, date] = {}
    for offer in found:
        if offer.price is not None:
            quoted[offer.run.gpu] = prices.gpus[offer.run.gpu].quoted
            quoted["systems"] = min(prices.systems[offer.run.gpus].quoted, quoted.get("systems", date.max))
        if offer.rented is not None:
            quoted[f"{offer.run.gpu} at {offer.rented.rental.provider}"] = offer.rented.rental.quoted
    quoted |= {f"the rate of {row.from_} to {row.to}": row.quoted for row in prices.rates}
    late = [name for name, day in quoted.items() if old(day, date.today())]
    if late:
        oldest = min(quoted[name] for name in late)
        lines.append(f"older than a year, since {oldest}: prices of {listing(late)}; --prices FILE brings newer ones")
    return lines


def _columns(asked: _Asked, fitting: set[Offer]) -> list[Column]:
    """Return the columns: what people see, in the order of their table, and what CSV and JSON have besides."""
    unit, runs, lifespan = asked.costs.currency, asked.costs.runs, lifespan_years() * DAYS_A_YEAR
    suffix, days = unit.lower(), "true days" if asked.known.asked.by == "true" else "days"
    return [
        Column("machine", lambda offer: offer.run.machine, "machine"),
        Column(
            "days",
            lambda offer: finite(offer.run.days.value, 3),
            days,
            lambda _, offer: f"{days_cell(offer.run.days.value)} {offer.run.origin}",
        ),
        Column("printed_days", lambda offer: offer.run.printed, "printed days"),
        Column(f"price_{suffix}", lambda offer: finite(offer.price, 2), f"price {unit}", _sum),
        Column(
            f"own_a_run_{suffix}", lambda offer: offer.own and finite(offer.own.value, 2), f"own {unit} a run", _sum
        ),
        Column(
            f"rent_a_run_{suffix}",
            lambda offer: offer.rented and finite(offer.rented.cost / runs, 2),
            f"rent {unit} a run",
            _sum,
        ),
        Column("rent_at", lambda offer: offer.rented and offer.rented.at, "at"),
        Column(
            "owning_pays_from_run",
            lambda offer: offer.pays_from and first_run(offer.pays_from),
            "owning pays from run",
            lambda run, offer: run or ("never" if offer.pays_from else None),
        ),
        Column("more_gpus_pay", lambda offer: offer.more_pay, "more GPUs pay"),
        Column("gpu", lambda offer: offer.run.gpu),
        Column("gpus", lambda offer: offer.run.gpus),
        Column("origin", lambda offer: offer.run.origin),
        Column("source", lambda offer: offer.run.source),
        Column("days_low", lambda offer: offer.run.bounds and finite(offer.run.bounds[0], 3)),
        Column("days_high", lambda offer: offer.run.bounds and finite(offer.run.bounds[1], 3)),
        Column("predicted_days", lambda offer: offer.run.predicted),
        Column("measured_days", lambda offer: offer.run.measured),
        Column("measured_on", lambda offer: offer.run.measured_on),
        Column(f"own_low_a_run_{suffix}", lambda offer: offer.own and finite(offer.own.low, 2)),
        Column(f"own_high_a_run_{suffix}", lambda offer: offer.own and finite(offer.own.high, 2)),
        Column(f"electricity_a_run_{suffix}", lambda offer: finite(offer.electricity.value, 2)),
        Column(f"rent_{suffix}", lambda offer: offer.rented and offer.rented.cost),
        Column("rent_days", lambda offer: offer.rented and finite(offer.rented.days, 3)),
        Column("provider", lambda offer: offer.rented and offer.rented.rental.provider),
        Column("rent_terms", lambda offer: offer.rented and offer.rented.rental.terms),
        Column("speedup", lambda offer: finite(offer.speedup, 3)),
        Column("efficiency", lambda offer: finite(offer.efficiency, 3)),
        Column("fits", lambda offer: offer in fitting),
        Column("lasts", lambda offer: offer.run.days.value * runs <= lifespan),
        Column("quoted", lambda offer: offer.quoted and offer.quoted.isoformat()),
        Column("rent_quoted", lambda offer: offer.rented and offer.rented.rental.quoted.isoformat()),
    ]


def _sum(value: float | None, _: Offer) -> str | None:
    return None if value is None else f"{sum_read(value):,.15g}"
