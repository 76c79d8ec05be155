"""`repro recommend`: choose the machine to buy or rent for a model, a budget and a deadline."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from .. import command, formats
from ..console import UserError
from ..formats import counted
from ..money import choice, offers
from ..money.days import ModelDays, TrainingDays
from ..money.offers import Offer
from ..money.prices import PriceList, old, prices_text
from ..money.renting import in_proportion_text
from ..paper.gpus import CustomGpu
from .custom_models import add_model
from .money import (
    GPU_OR_FILE,
    add_shared,
    compared_text,
    days_on,
    model_days,
    read_any_gpu,
    read_prices,
    unpriced,
    way_out,
    without_days,
)
from .printout import bounds, finite, interval_text, printout

_RANKED = "Ranked by cost per experiment: first what lasts until the runs end, of it first what no other offer beats."
_MODERN = (
    "Days are with the parts of today's software (docs/modern.md); those that are predicted have no interval, as "
    "nothing was measured with parts on a GPU."
)
_SPOT = f"Spot instances are left to {command()} rent, which counts their interruptions."


def options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "a recipe, see recipes", required=True)
    parser.add_argument("--gpu", metavar="NAME|FILE", help=GPU_OR_FILE)
    parser.add_argument(
        "--budget", metavar="SUM", help="for all runs, in --currency; without --deadline: the fastest within it"
    )
    parser.add_argument("--deadline", metavar="30d", help="for all runs: the cheapest that meets it")
    parser.add_argument("--runs", default="1", metavar="N", help="trainings, one after the other (default: 1)")
    parser.add_argument(
        "--methods",
        choices=("modern", "modern:exact"),
        help="days with the parts of today's software, kept in a run (--measured) or predicted: docs/modern.md",
    )
    terms = parser.add_mutually_exclusive_group()
    terms.add_argument("--own", action="store_const", dest="terms", const="own", help="machines to buy (the default)")
    terms.add_argument("--rent", action="store_const", dest="terms", const="rent", help="machines to rent")
    terms.add_argument("--either", action="store_const", dest="terms", const="either", help="both")
    parser.set_defaults(terms="own")
    add_shared(parser)


@dataclass(frozen=True)
class _Asked:
    """The requirements and terms. The budget in `unit` and the deadline in days are for all runs, None if not given."""

    budget: float | None
    deadline: float | None
    runs: int
    unit: str
    gpu: str | CustomGpu | None
    prices: PriceList
    buys: bool
    rents: bool


def main(given: argparse.Namespace) -> int:
    asked, today = _asked(given), date.today()
    known = model_days(given, given.methods)
    days = days_on(known, asked.gpu, None, asked.prices)
    found = _offered(days, asked)
    if not found and isinstance(asked.gpu, CustomGpu) and asked.gpu.price is None:
        raise UserError(f'{asked.gpu.file}: price is missing, such as price = "1300 USD" and its day, quoted = {today}')
    if not found:
        raise UserError(f"no machine that trains {given.model} has a price in {asked.unit}; {way_out(asked.unit)}")
    chosen = choice.choose(found, asked.budget, asked.deadline)
    rows = [_row(rank, offer, found, rank <= chosen.fitting, today) for rank, offer in enumerate(chosen.ranked, 1)]
    print(
        printout(
            [choice.answer(chosen, given.model)],
            rows,
            _notes(known, asked, days, found, today),
            given.format,
            rule=chosen.rule,
            currency=asked.unit,
            best=rows[0],
            pareto_front=[row for row in rows if row["pareto"]],
        )
    )
    return 0


def _asked(given: argparse.Namespace) -> _Asked:
    budget = None if given.budget is None else formats.budget(given.budget, "--budget")
    deadline = None if given.deadline is None else formats.parse_days(given.deadline, "--deadline")
    runs = formats.count(given.runs, "--runs")
    unit, prices = read_prices(given)
    gpu, prices = read_any_gpu(given, prices)
    if isinstance(gpu, CustomGpu) and given.terms != "own":
        raise UserError(f"--{given.terms} needs a GPU with known rents: {gpu.file} has what it costs to buy")
    return _Asked(budget, deadline, runs, unit, gpu, prices, given.terms != "rent", given.terms != "own")


def _offered(days: Sequence[TrainingDays], asked: _Asked) -> list[Offer]:
    """Return the offers on the requested terms, machines to buy first."""
    own = offers.owned(days, asked.prices, asked.unit, asked.runs) if asked.buys else []
    return own + (offers.rented(days, asked.prices, asked.unit, asked.runs) if asked.rents else [])


def _notes(
    known: ModelDays,
    asked: _Asked,
    days: Sequence[TrainingDays],
    found: Sequence[Offer],
    today: date,
) -> list[str]:
    unit, prices, runs = asked.unit, asked.prices, asked.runs
    without = offers.unpriced(days, [offer for offer in found if offer.owned or not asked.buys])
    paid = offers.paid_in(found, prices)
    return [
        f"Cost and days are for {counted(runs, 'run')}{', one after the other' if runs > 1 else ''}; cost per "
        f"experiment is one run's share of a machine's {offers.lifespan_years():g} years, or its rent, of a reserved "
        f"instance its share of the term. Electricity is not counted ({command()} breakeven --electricity SUM counts "
        "it).",
        known.asked.text,
        *compared_text(asked.gpu),
        *([_MODERN] if known.asked.methods is not None else []),
        *([_RANKED] if asked.budget is asked.deadline is None else []),
        *interval_text(offer.bounds for offer in found),
        *([in_proportion_text(), _SPOT] if asked.rents else []),
        *(offers.rentals_left_out(days, prices, unit) if asked.rents else []),
        *unpriced(without, unit, "not here to buy" if asked.buys and asked.rents else "not here"),
        *([asked.gpu.note] if isinstance(asked.gpu, CustomGpu) else []),
        *(
            without_days(
                known,
                days,
                prices.own_to_buy if asked.buys else (),
                prices.own_systems if asked.buys else (),
                prices.own_rentals if asked.rents else (),
            )
            if asked.gpu is None
            else []
        ),
        *prices_text((_oldest(offer, prices) for offer in found), paid, unit, prices.rates, today),
    ]


def _oldest(offer: Offer, prices: PriceList) -> tuple[str, date]:
    """Return the oldest price of an offer, and its date."""
    return offers.older_price(offer.gpu, offer.gpus, prices, offer.gpu) if offer.owned else (offer.gpu, offer.quoted)


def _row(rank: int, offer: Offer, found: list[Offer], fits: bool, today: date) -> dict[str, Any]:
    better = choice.beaten_by(offer, found)
    unit = offer.currency.lower()
    return {
        "rank": rank,
        "gpu": offer.gpu,
        "gpus": offer.gpus,
        "tier": offer.tier,
        "terms": offer.terms,
        f"cost_{unit}": finite(offer.cost, 2),
        "days": finite(offer.days, 3),
        **bounds(offer.bounds),
        **offer.beside.columns(),
        f"cost_per_experiment_{unit}": finite(offer.cost_per_experiment, 2),
        "fits": fits,
        "lasts": not offer.wears_out,
        "pareto": better is None,
        "beaten_by": None if better is None else f"{better.machine}{'' if better.owned else ', ' + better.terms}",
        "origin": offer.origin,
        "source": offer.source,
        "quoted": offer.quoted.isoformat(),
        "old_price": old(offer.quoted, today),
    }
