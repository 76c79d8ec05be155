"""`repro recommend`: which machine to buy or rent for a model, a budget and a deadline."""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

import models

from .. import command, units
from ..economics import choice, offers, pricelist
from ..economics.days import TrainingDays, training_days
from ..economics.doubts import INSTEAD, believed, doubts, told_doubts, told_traces
from ..economics.offers import Offer
from ..economics.renting import told_in_proportion
from ..errors import UserError
from .money import add_shared, read_prices, unpriced, way_out, without_days
from .printout import bounds, printout, told_bounds

_SPOT = f"Spot instances are left to {command()} rent, which reckons with their interruptions."


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=models.typed, required=True, metavar="ID", help="a recipe, see recipes")
    parser.add_argument("--budget", metavar="SUM", help="for all runs, in --currency; alone: the fastest within it")
    parser.add_argument("--deadline", metavar="30d", help="for all runs; the cheapest that meets it")
    parser.add_argument("--runs", default="1", metavar="N", help="trainings, one after the other (default: 1)")
    terms = parser.add_mutually_exclusive_group()
    terms.add_argument("--own", action="store_const", dest="terms", const="own", help="machines to buy (the default)")
    terms.add_argument("--rent", action="store_const", dest="terms", const="rent", help="machines to rent")
    terms.add_argument("--either", action="store_const", dest="terms", const="either", help="both")
    parser.set_defaults(terms="own")
    add_shared(parser)


def main(given: argparse.Namespace) -> int:
    budget = None if given.budget is None else units.budget(given.budget, "--budget")
    deadline = None if given.deadline is None else units.days(given.deadline, "--deadline")
    runs = units.count(given.runs, "--runs")
    unit, prices = read_prices(given)
    days = training_days(given.model, given.measured, given.predicted)

    def offered(days: list[TrainingDays]) -> tuple[list[Offer], list[Offer]]:
        own = offers.owned(days, prices, unit, runs) if given.terms != "rent" else []
        return own, offers.rented(days, prices, unit, runs) if given.terms != "own" else []

    own, rent = offered(days)
    found = own + rent
    without = offers.unpriced(days, rent if given.terms == "rent" else own)
    if not found:
        raise UserError(f"no machine that trains {given.model} has a price in {unit}; {way_out(unit)}")
    chosen = choice.choose(found, budget, deadline)
    best, doubted = chosen.ranked[0], doubts(given.model, chosen.ranked)
    predicted = [offer for listed in offered(believed(days, doubted)) for offer in listed]
    doubt = doubted.get(best.machine)
    same = next((offer.days for offer in predicted if offer.how == best.how and offer.origin == "predicted"), None)
    sentences = [choice.answer(chosen, given.model, doubt.told(same) if doubt else None)]
    today = date.today()
    instead = None
    if doubted:
        try:
            other = choice.choose(predicted, budget, deadline)
        except UserError as error:
            sentences.append(f"{INSTEAD.capitalize()}: {error}.")
        else:
            if doubt or other.ranked[0].how != best.how:
                sentences.append(f"{INSTEAD.capitalize()}: {choice.brief(other)}.")
                instead = _row(1, other.ranked[0], predicted, True, today)
    paid = offers.paid_in(found, prices)
    rows = [_row(rank, offer, found, rank <= chosen.fitting, today) for rank, offer in enumerate(chosen.ranked, 1)]
    notes = [
        f"Cost and days are for {runs} run{'s, one after the other' if runs > 1 else ''}; cost per experiment is one "
        f"run's share of a machine's {offers.lifespan_years():g} years, or its rent. "
        f"Electricity is not counted ({command()} breakeven --electricity SUM counts it).",
        *(["Ranked by cost per experiment, what no other offer beats first."] if budget is deadline is None else []),
        *told_bounds(offer.bounds for offer in found),
        *told_doubts(doubted),
        *told_traces(found, doubted),
        *([told_in_proportion(), _SPOT] if given.terms != "own" else []),
        *(offers.rentals_left_out(days, prices, unit) if given.terms != "own" else []),
        *unpriced(without, unit, "not here to buy" if given.terms == "either" else "not here"),
        *without_days(
            days,
            given,
            prices.own_to_buy if given.terms != "rent" else (),
            prices.own_systems if given.terms != "rent" else (),
            prices.own_rentals if given.terms != "own" else (),
        ),
        *pricelist.told_rates(paid, unit, prices.rates),
        *pricelist.old_prices(
            [(offer.gpu, offer.quoted) for offer in found] + pricelist.old_rates(paid, unit, prices.rates), today
        ),
    ]
    print(
        printout(
            sentences,
            rows,
            notes,
            given.format,
            rule=chosen.rule,
            currency=unit,
            best=rows[0],
            best_with_predicted_days=instead,
            pareto_front=[row for row in rows if row["pareto"]],
        )
    )
    return 0


def _row(rank: int, offer: Offer, found: list[Offer], fits: bool, today: date) -> dict[str, Any]:
    better = choice.beaten_by(offer, found)
    unit = offer.currency.lower()
    return {
        "rank": rank,
        "gpu": offer.gpu,
        "gpus": offer.gpus,
        "tier": offer.tier,
        "terms": offer.terms,
        f"cost_{unit}": round(offer.cost, 2),
        "days": round(offer.days, 3),
        **bounds(offer.bounds),
        f"cost_per_experiment_{unit}": round(offer.cost_per_experiment, 2),
        "fits": fits,
        "pareto": better is None,
        "beaten_by": None if better is None else f"{better.machine}{'' if better.owned else ', ' + better.terms}",
        "origin": offer.origin,
        "source": offer.source,
        "quoted": offer.quoted.isoformat(),
        "old_price": pricelist.old(offer.quoted, today),
    }
