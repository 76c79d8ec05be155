"""The calculator of `repro cost` without a model: when owning a machine beats renting it, from sums that the user
gives, and those of the rent-or-buy comment for the rest."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .. import formats
from ..console import UserError
from ..formats import DAYS_A_YEAR, Interval
from ..money.amounts import amount, check, interval, money_text
from ..money.breakeven import NOTHING, ONE, Case, Computed, comment_cases, first_run, its, its_rate, lifespan_years
from ..money.prices import PriceList, price_list, worth
from ..printout import Column, finite, screen

_MOST_KILOWATTS = 100  # larger values are probably meant in watts
_MOST_PUE = 10  # larger values are probably meant in percent
_INPUTS = ("machine", "rent", "hours", "power", "resale", "pue", "co2")
_HOURS_A_MONTH = DAYS_A_YEAR * 24 / 12


def add_options(parser: argparse.ArgumentParser) -> None:
    about = "what is not given is the rent-or-buy comment's, whose own sum it prints without any"
    add = parser.add_argument_group("without MODEL, when owning beats renting", about).add_argument
    add("--machine", metavar="SUM", help="price of the machine")
    add("--rent", metavar="SUM", help="rent of the same machine, per hour")
    add("--hours", metavar="H", help="hours of a run, or bounds such as 700..800")
    add("--power", metavar="KW", help="power of the machine while it trains, or bounds")
    add("--resale", metavar="SUM", help="what it sells for in the end (default: nothing)")
    add("--pue", metavar="X", help="power usage effectiveness, or bounds (default: 1)")
    add("--co2", metavar="G", help="grams of CO2 per kWh")


def refuse(given: argparse.Namespace) -> None:
    """Raise UserError for an input of the calculator beside a model."""
    for name in _INPUTS:
        if getattr(given, name) is not None:
            raise UserError(f"--{name} is an input of the calculator, which takes no MODEL: leave one of them out")


def read_currency(code: str | None) -> str:
    """Return the currency of all sums."""
    return "USD" if code is None else check(code, "--currency")


def read_sum(text: str, option: str, unit: str, prices: PriceList) -> Interval:
    """Return a sum of money in the currency of all sums."""
    value, currency = amount(text, option, unit)
    return value * _rate(f"{option} {text}", currency, unit, prices)


def read_storage(size: str | None, unit: str, prices: PriceList) -> float:
    """Return the cost of keeping so much data for an hour."""
    if size is None:
        return 0.0
    gigabytes, price = formats.bytes_(size, "--storage") / 1e9, prices.storage
    if price is None:
        raise UserError(
            f"--storage {size} needs the price of a GB and month: [[storage]] in --prices, docs/own-prices.toml"
        )
    return gigabytes * price.price * _rate(f"--storage {size}", price.currency, unit, prices) / _HOURS_A_MONTH


def _rate(place: str, currency: str, unit: str, prices: PriceList) -> float:
    """Return the worth of one unit of a currency in that of all sums. Raise UserError where no rate converts it."""
    each = worth(currency, unit, prices.rates)
    if each is None:
        raise UserError(f"{place}: no rate from {currency} to {unit}; give a [[rate]] in --prices")
    return each


def main(given: argparse.Namespace) -> int:
    """Print when owning beats renting: the comment's own sum, or that of the inputs given."""
    unit, prices = read_currency(given.currency), price_list(given.prices)
    grams = None if given.co2 is None else interval(given.co2, "--co2")
    inputs = [getattr(given, name) for name in _INPUTS if name != "co2"]
    if unit == "USD" and not any([*inputs, given.electricity, given.storage]):
        rows = comment_cases()
        sentence, notes = _of_comment(rows)
    else:
        rows = [_of_inputs(given, unit, prices)]
        sentence = _sentence(rows[0].case)
        notes = ["What was not given is the rent-or-buy comment's of 2021-01-14, with its GPU-hours computed right."]
    print(screen(sentence, _columns(unit, grams), rows, notes, given.format, currency=unit))
    return 0


def _of_comment(rows: list[Computed]) -> tuple[str, list[str]]:
    printed, electricity, both = (first_run(row.case.runs.value) for row in rows[:3])
    charged, minutes, gpus, power, euros = (
        f"{its(name).value:,g}" for name in ("hours_charged", "minutes", "gpus", "power", "electricity")
    )
    spent = rows[1].case.energy.value * its("electricity").value
    hours = rows[2].case.hours.value
    return (
        f"Owning pays from run {both}, where the comment counts {printed}; with its electricity alone corrected from "
        f"run {electricity}.",
        [
            f"Its {charged} h x {power} kW x {euros} EUR/kWh are {spent:.2f} EUR where it has "
            f"{its('electricity_a_run').value:g}.",
            f"Its {minutes} min on {gpus} GPUs are {hours:.0f} GPU-hours where it charges {charged}: {hours / 24:.0f} "
            "days of its card, which it holds to be as fast as a V100.",
            f"EUR become USD at its own rate, {its_rate():.3g}, and its sums are of 2021-01-14.",
        ],
    )


def _of_inputs(given: argparse.Namespace, unit: str, prices: PriceList) -> Computed:
    """Return the comment's corrected case with the inputs given in the place of its own."""
    if unit != "USD" and None in (given.machine, given.rent):
        raise UserError(f"--currency {unit}: the comment's sums are in USD; give --machine and --rent")
    comment = comment_cases()[2]

    def sum_(name: str, otherwise: Interval) -> Interval:
        text = getattr(given, name)
        return otherwise if text is None else read_sum(text, f"--{name}", unit, prices)

    def number(name: str, otherwise: Interval) -> Interval:
        text = getattr(given, name)
        return otherwise if text is None else interval(text, f"--{name}")

    case = Case(
        machine=sum_("machine", comment.case.machine),
        rent=sum_("rent", comment.case.rent) + Interval.exact(read_storage(given.storage, unit, prices)),
        hours=number("hours", comment.case.hours),
        kilowatts=number("power", comment.case.kilowatts),
        kwh=_electricity(unit, prices) if given.electricity is None else sum_("electricity", NOTHING),
        pue=number("pue", ONE),
        resale=sum_("resale", NOTHING),
    )
    if case.hours.low == 0:
        raise UserError(f"--hours {given.hours}: expected more than 0, such as 100 or 700..800")
    if not 1 <= case.pue.low <= case.pue.high <= _MOST_PUE:
        raise UserError(
            f"--pue {given.pue}: expected from 1, the machine itself, to {_MOST_PUE}, such as 1.2 or 1.1..1.5"
        )
    if case.kilowatts.high > _MOST_KILOWATTS:
        raise UserError(f"--power {given.power}: expected at most {_MOST_KILOWATTS} kW; 500 W are 0.5")
    if case.resale.high > case.machine.low:
        most = money_text(case.machine.low, unit, exact=True)
        raise UserError(f"--resale {given.resale}: expected no more than the machine costs, {most}")
    what = "the comment's workstation" if given.machine is None else "the machine"
    return Computed(what, comment.provider if given.rent is None else "--rent", case)


def _electricity(unit: str, prices: PriceList) -> Interval:
    """Return the comment's price of a kWh, by its own rate where the user gives none."""
    rate = worth("EUR", unit, prices.rates) or (its_rate() if unit == "USD" else None)
    if rate is None:
        raise UserError(f"--currency {unit}: the comment's electricity is in EUR; give --electricity, or a [[rate]]")
    return its("electricity") * rate


def _sentence(case: Case) -> str:
    first, lifespan = first_run(case.runs.value), f"the {lifespan_years():g} years that a machine lasts"
    if first is None:
        return "Owning never pays: its electricity costs no less than the rent."
    if case.utilisation > 1:
        return f"Owning does not pay within {lifespan}: it would take {formats.counted(first, 'run')}."
    low, high = (
        "never" if (run := first_run(runs)) is None else f"{run:,}" for runs in (case.runs.low, case.runs.high)
    )
    bounds = "" if low == high else f" ({low} to {high})"
    return f"Owning pays from run {first:,}{bounds}, after {case.utilisation:.0%} of {lifespan}."


def _columns(unit: str, grams: Interval | None) -> list[Column]:
    suffix = unit.lower()

    def number(key: str, of: Callable[[Case], Interval], heading: str = "", digits: int = 2) -> Column:
        return Column(key, lambda row: finite(of(row.case).value, digits), heading)

    return [
        Column("what", lambda row: row.what, "what"),
        Column("provider", lambda row: row.provider, "rent of"),
        number(f"machine_{suffix}", lambda case: case.machine),
        number(f"resale_{suffix}", lambda case: case.resale),
        number(f"rent_per_hour_{suffix}", lambda case: case.rent, f"rent {unit} an hour", 4),
        number("hours_a_run", lambda case: case.hours, "hours a run"),
        number(f"rent_a_run_{suffix}", lambda case: case.rent * case.hours),
        number("kwh_a_run", lambda case: case.energy, "kWh a run"),
        number(f"electricity_a_run_{suffix}", lambda case: case.running * case.hours, f"electricity {unit} a run"),
        Column("co2_kg_a_run", lambda row: grams and finite((row.case.energy * grams / 1000).value, 2), "CO2 kg a run"),
        number("runs", lambda case: case.runs, digits=3),
        Column("runs_low", lambda row: finite(row.case.runs.low, 3)),
        Column("runs_high", lambda row: finite(row.case.runs.high, 3)),
        Column("owning_pays_from_run", lambda row: first_run(row.case.runs.value), "owning pays from run"),
        Column("utilisation", lambda row: finite(row.case.utilisation, 3)),
    ]
