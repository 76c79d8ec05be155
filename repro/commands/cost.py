"""`repro cost`: print what training a model costs on each machine, owned and rented, and which machine to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from .. import command
from ..console import UserError, say
from ..formats import DAYS_A_YEAR, SECONDS_A_DAY, count, days_cell, listing, seconds, significant
from ..money import offers
from ..money.amounts import budget as parse_budget
from ..money.amounts import sum_read
from ..money.breakeven import NOTHING, first_run, lifespan_years
from ..money.days import DaysAsked, ModelDays, TrainingDays
from ..money.measurements import UNKNOWN, Measurement
from ..money.offers import Costs, Offer, kilowatts
from ..money.prices import GpuPrice, PriceList, canonical_gpu, old, price_list, worth
from ..money.spot import Interruptions
from ..options import declared, given, option
from ..paper.custom_gpu import custom_gpu
from ..paper.gpus import CustomGpu, Gpu, by_name, paper_gpus
from ..predict.traces import Stack
from ..printout import Column, finite, screen
from ..record import By
from ..run.plan import ModernMethods
from ..train import kept
from . import calculator
from .calculator import Calculator, in_currency, stored
from .custom_models import model_argument
from .day_options import by_option, measured_days, more_days, stack_option

_MOST_GPUS = 100_000  # as many as the largest clusters have


def _gpu(text: str, option: str) -> CustomGpu | str:
    return custom_gpu(text) or canonical_gpu(text, option)


@dataclass(frozen=True, kw_only=True)
class Asked(Calculator):
    usage = "%(prog)s [MODEL] [OPTIONS]"
    epilog = "SUM is 8000, 0.13EUR, or 7000..9000 where uncertain. Prices of your own: docs/own-prices.toml."
    model: str | None = model_argument("a recipe, see recipes")
    terms: Literal["own", "rent", "either"] = option(
        "machines to buy (the default), to rent, or both", choices=("own", "rent", "either"), default="own"
    )
    gpu: CustomGpu | str | None = option(
        "only this GPU: a name, or a TOML file that describes one of your own", "NAME|FILE", _gpu
    )
    gpus: int | None = option("only this number of GPUs", "N", partial(count, most=_MOST_GPUS))
    budget: float | None = option("for all runs; without --deadline: the fastest within it", "SUM", parse_budget)
    deadline: float | None = option("for all runs: the cheapest that meets it", "30d", seconds)
    runs: int = option("trainings, one after the other (default: 1)", "N", count, default=1)
    measured: tuple[Path | None, ...] = more_days()
    by: By = by_option()
    stack: Stack = stack_option("today")
    methods: ModernMethods | None = option(
        "days with parts of today's software: docs/own-model.md", choices=get_args(ModernMethods)
    )
    interrupted_every: float | None = option(
        "count spot instances, interrupted so often: [[spot]] in --prices", "12h", seconds
    )

    @property
    def custom(self) -> CustomGpu | None:
        """Return the GPU that a file of the user's describes."""
        return self.gpu if isinstance(self.gpu, CustomGpu) else None

    @property
    def gpu_name(self) -> str | None:
        return self.gpu.name if isinstance(self.gpu, CustomGpu) else self.gpu


def main(asked: Asked) -> str:
    if asked.model is None:
        if found := given(asked, declared(Asked)):
            raise UserError(f"{found[0]} needs a MODEL, such as {command()} cost vit")
        return calculator.main(asked)
    if found := given(asked, declared(Calculator)):
        raise UserError(f"{found[0]} is an input of the calculator, which takes no MODEL: leave one of them out")
    known, costs = _known(asked, asked.model)
    machines = offers.offers(_days(asked, known, costs.prices), costs)
    machines = [offer for offer in machines if asked.gpus in (None, offer.run.gpus)]
    listed = offers.options(machines, costs, asked.terms != "rent", asked.terms != "own")
    if not listed:
        raise _without_price(known, costs)
    deadline = None if asked.deadline is None else asked.deadline / SECONDS_A_DAY
    chosen = offers.choose(listed, asked.budget, deadline)
    fitting = {option.offer for option in chosen.ranked[: chosen.fitting]}
    ranked = dict.fromkeys([*(option.offer for option in chosen.ranked), *machines])
    for line in _warnings(machines, costs):
        say(line)
    return screen(
        offers.answer(chosen, known.recipe.name, costs),
        _columns(asked.by, costs, fitting),
        list(ranked),
        _notes(asked, known, costs, len(fitting), len(machines)),
        asked.format,
        asked.all,
        rule=chosen.rule,
        terms="own" if chosen.ranked[0].bought else "rent",
        currency=costs.currency,
    )


def _known(asked: Asked, model: str) -> tuple[ModelDays, Costs]:
    """Return what is known of the model's days, and what costs depend on."""
    unit, prices, custom = asked.currency, price_list(asked.prices), asked.custom
    if custom and asked.terms != "own":
        raise UserError(f"--terms {asked.terms} needs a GPU with known rents: {custom.file} has what it costs to buy")
    if custom and any(asked.measured):
        raise UserError(f"--measured changes nothing of --gpu {custom.file}, whose days are predicted: leave it out")
    if custom and custom.price and custom.quoted:
        price = GpuPrice(custom.name, *custom.price, custom.quoted, custom.source)
        prices = replace(prices, gpus=prices.gpus | {custom.name: price})
    trained = _trained(asked.measured, model)
    faced = _interruptions(asked.interrupted_every, prices, trained)
    kwh = None if asked.electricity is None else in_currency(asked.electricity, unit, prices, NOTHING)
    costs = Costs(prices, unit, asked.runs, kwh, stored(asked.storage, unit, prices), faced, custom)
    folders, shipped = measured_days([each for each in asked.measured if each not in trained], asked.by)
    measurements = tuple(
        Measurement(
            *(one.device, one.count, one.settings, one.days, None, one.micro_batch, UNKNOWN),
            f"{folder}, train.py",
        )
        for folder, one in trained.items()
    )
    known = ModelDays(model, DaysAsked(asked.by, asked.stack, folders, shipped, asked.methods, measurements))
    known.check_runs()
    return known, costs


def _trained(folders: Sequence[Path | None], model: str) -> dict[Path, kept.Kept]:
    """Return which folder of --measured is of an exported train.py. Raise UserError for one of another model, and for
    several."""
    found = {folder: one for folder in folders if folder and (one := kept.read(folder))}
    if len(found) > 1:
        raise UserError(f"--measured {' and '.join(map(str, found))}: expected one folder of train.py")
    for folder, one in found.items():
        if one.recipe != model:
            raise UserError(f"--measured {folder} trained {one.recipe}, not {model}")
    return found


def _interruptions(every: float | None, prices: PriceList, trained: Mapping[Path, kept.Kept]) -> Interruptions | None:
    """Return the interruptions of spot instances, in hours; None where they are not to be counted."""
    if every is None:
        return None
    option = "--interrupted-every"
    if prices.spot is None:
        raise UserError(
            f"{option} needs the times of a restart and a checkpoint: [[spot]] in --prices, docs/own-prices.toml"
        )
    measured = [one.checkpoint_seconds / 3600 for one in trained.values() if one.checkpoint_seconds]
    checkpoint = measured[0] if measured else prices.spot.checkpoint
    if checkpoint is None:
        raise UserError(f"{option} needs checkpoint in [[spot]] of --prices, or --measured with a folder of train.py")
    if checkpoint * 3600 >= every:
        raise UserError(
            f"{option}: expected more than a checkpoint takes, {significant(checkpoint * 60)} min, as most would be "
            "interrupted; leave it out"
        )
    return Interruptions(every / 3600, checkpoint, prices.spot.restart)


def _days(asked: Asked, known: ModelDays, prices: PriceList) -> list[TrainingDays]:
    """Return the days on any number of the GPUs asked for: where none is named, the paper's, those that the user's file
    has prices of, and measured ones. Raise UserError where the number asked for has none, naming those that have."""
    gpu, gpus, compared = asked.gpu_name, asked.gpus, _compared(asked.gpu, prices)
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


def _compared(gpu: CustomGpu | str | None, prices: PriceList) -> list[Gpu]:
    if isinstance(gpu, CustomGpu):
        return [gpu]
    names = [gpu] if gpu else dict.fromkeys([*paper_gpus(), *sorted(prices.own)])
    return [by_name()[name] for name in names if name in by_name()]


def _without_price(known: ModelDays, costs: Costs) -> UserError:
    if (custom := costs.custom) is not None and custom.price is None:
        day = date.today()
        return UserError(f'{custom.file}: price is missing, such as price = "1300 USD" and its day, quoted = {day}')
    unit, reasons = costs.currency, "".join(f"; {line}" for line in _unrated(costs))
    without = f"no machine that trains {known.recipe.name} has a price in {unit}{reasons}"
    return UserError(f"{without}; give prices, or a [[rate]] to {unit}, with --prices")


def _notes(asked: Asked, known: ModelDays, costs: Costs, fitting: int, machines: int) -> list[str]:
    notes = [known.asked.text]
    counted = "with" if costs.kwh else "without"
    way = "" if costs.kwh else " (--electricity SUM counts it)"
    notes.append(
        f"A run of one's own costs its share of a machine's {lifespan_years():g} years, {counted} electricity{way}."
    )
    if costs.custom is not None:
        notes.append(costs.custom.note)
    elif asked.budget is not None or asked.deadline is not None:
        notes.append(f"The first {fitting} of {machines} machines fit.")
    elif asked.terms != "own" and costs.faced is None:
        notes.append("Spot instances count with --interrupted-every.")
    return notes


def _unrated(costs: Costs) -> list[str]:
    """Return a line on the rentals without an exchange rate; none where there are none."""
    unit, prices = costs.currency, costs.prices
    lacking = sorted({row.currency for row in prices.rentals if worth(row.currency, unit, prices.rates) is None})
    line = f"rentals left out: no rate from {', '.join(lacking)} to {unit}, a [[rate]] in --prices brings one"
    return [line] if lacking else []


def _warnings(found: Sequence[Offer], costs: Costs) -> list[str]:
    """Return lines on prices that are left out or old, and on power that is not known."""
    lines, prices = _unrated(costs), costs.prices
    if costs.kwh is not None:
        dark = dict.fromkeys(each.run.gpu for each in found if kilowatts(each.run, costs.custom) is None)
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


def _columns(by: By, costs: Costs, fitting: set[Offer]) -> list[Column]:
    """Return the columns: what people see, in the order of their table, and what CSV and JSON have besides."""
    unit, runs, lifespan = costs.currency, costs.runs, lifespan_years() * DAYS_A_YEAR
    suffix, days = unit.lower(), "true days" if by == "true" else "days"
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
