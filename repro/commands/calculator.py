"""The calculator of `repro cost` without a model: when owning a machine beats renting it, from sums that the user
gives, and those of the rent-or-buy comment for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import formats
from ..console import UserError
from ..formats import DAYS_A_YEAR, Interval, bytes_, path, size
from ..money.amounts import Sum, currency, interval, money_text
from ..money.breakeven import NOTHING, ONE, Case, Computed, comment_cases, first_run, its, its_rate, lifespan_years
from ..money.prices import PriceList, price_list, worth
from ..options import Output, declared, given, option
from ..printout import Column, finite, screen

_MOST_KILOWATTS = 100  # larger values are probably meant in watts
_MOST_PUE = 10  # larger values are probably meant in percent
_HOURS_A_MONTH = DAYS_A_YEAR * 24 / 12


def _hours(text: str, option: str) -> Interval:
    hours = interval(text, option)
    if hours.low == 0:
        raise UserError(f"{option} {text}: expected more than 0, such as 100 or 700..800")
    return hours


def _kilowatts(text: str, option: str) -> Interval:
    power = interval(text, option)
    if power.high > _MOST_KILOWATTS:
        raise UserError(f"{option} {text}: expected at most {_MOST_KILOWATTS} kW; 500 W are 0.5")
    return power


def _pue(text: str, option: str) -> Interval:
    pue = interval(text, option)
    if not 1 <= pue.low <= pue.high <= _MOST_PUE:
        raise UserError(
            f"{option} {text}: expected from 1, the machine itself, to {_MOST_PUE}, such as 1.2 or 1.1..1.5"
        )
    return pue


def currency_option() -> Any:
    """Declare the currency of all sums."""
    return option("currency of all sums, such as EUR (default: USD)", "CODE", currency, default="USD")


@dataclass(frozen=True, kw_only=True)
class CostOptions(Output):
    """The options that both answers on costs share."""

    prices: Path | None = option("TOML, or SkyPilot's CSV, of prices that replace ours", "FILE", path)
    currency: str = currency_option()
    electricity: Sum | None = option("price of a kWh, which the owner pays", "SUM", Sum.parse)
    storage: int | None = option("data that the renter keeps during a run: [[storage]] in --prices", "900GB", bytes_)


@dataclass(frozen=True, kw_only=True)
class Calculator(CostOptions):
    title = "without MODEL, when owning beats renting"
    about = "what is not given is the rent-or-buy comment's, whose own sum it prints without any"
    machine: Sum | None = option("price of the machine", "SUM", Sum.parse)
    rent: Sum | None = option("rent of the same machine, per hour", "SUM", Sum.parse)
    hours: Interval | None = option("hours of a run, or bounds such as 700..800", "H", _hours)
    power: Interval | None = option("power of the machine while it trains, or bounds", "KW", _kilowatts)
    resale: Sum | None = option("what it sells for in the end (default: nothing)", "SUM", Sum.parse)
    pue: Interval | None = option("power usage effectiveness, or bounds (default: 1)", "X", _pue)
    co2: Interval | None = option("grams of CO2 per kWh", "G", interval)


def in_currency(given: Sum | None, unit: str, prices: PriceList, otherwise: Interval) -> Interval:
    """Return a sum in the currency of all sums; without it what stands there `otherwise`."""
    return otherwise if given is None else given.value * _rate(given.place, given.currency or unit, unit, prices)


def stored(number: int | None, unit: str, prices: PriceList) -> float:
    """Return the cost of keeping so many bytes for an hour."""
    if number is None:
        return 0.0
    place, price = f"--storage {size(number)}", prices.storage
    if price is None:
        raise UserError(f"{place} needs the price of a GB and month: [[storage]] in --prices, docs/own-prices.toml")
    return number / 1e9 * price.price * _rate(place, price.currency, unit, prices) / _HOURS_A_MONTH


def _rate(place: str, currency: str, unit: str, prices: PriceList) -> float:
    """Return the worth of one unit of a currency in that of all sums. Raise UserError where no rate converts it."""
    each = worth(currency, unit, prices.rates)
    if each is None:
        raise UserError(f"{place}: no rate from {currency} to {unit}; give a [[rate]] in --prices")
    return each


def main(asked: Calculator) -> str:
    """Print when owning beats renting: the comment's own sum, or that of the inputs given."""
    unit, prices = asked.currency, price_list(asked.prices)
    if given(asked, ("currency", "electricity", "storage", *declared(Calculator))) in ([], ["--co2"]):
        rows = comment_cases()
        sentence, notes = _of_comment(rows)
    else:
        rows = [_of_inputs(asked, prices)]
        sentence = _sentence(rows[0].case)
        notes = ["What was not given is the rent-or-buy comment's of 2021-01-14, with its GPU-hours computed right."]
    return screen(sentence, _columns(unit, asked.co2), rows, notes, asked.format, currency=unit)


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


def _of_inputs(asked: Calculator, prices: PriceList) -> Computed:
    """Return the comment's corrected case with the inputs given in the place of its own."""
    unit, comment = asked.currency, comment_cases()[2]
    if unit != "USD" and None in (asked.machine, asked.rent):
        raise UserError(f"--currency {unit}: the comment's sums are in USD; give --machine and --rent")
    rent = in_currency(asked.rent, unit, prices, comment.case.rent)
    kwh = _electricity(unit, prices) if asked.electricity is None else NOTHING
    case = Case(
        machine=in_currency(asked.machine, unit, prices, comment.case.machine),
        rent=rent + Interval.exact(stored(asked.storage, unit, prices)),
        hours=asked.hours or comment.case.hours,
        kilowatts=asked.power or comment.case.kilowatts,
        kwh=in_currency(asked.electricity, unit, prices, kwh),
        pue=asked.pue or ONE,
        resale=in_currency(asked.resale, unit, prices, NOTHING),
    )
    if asked.resale is not None and case.resale.high > case.machine.low:
        most = money_text(case.machine.low, unit, exact=True)
        raise UserError(f"{asked.resale.place}: expected no more than the machine costs, {most}")
    what = "the comment's workstation" if asked.machine is None else "the machine"
    return Computed(what, comment.provider if asked.rent is None else "--rent", case)


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
