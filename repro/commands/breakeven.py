"""`repro breakeven`: compute when owning beats renting, with electricity, resale and uncertain inputs; energy and
CO2."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from datetime import date
from typing import Any

from .. import formats
from ..console import UserError
from ..formats import Interval, counted, money_text
from ..money import breakeven
from ..money.breakeven import Case, Computed, Given, Tariff, first_run
from ..money.days import ALONE, TrainingDays
from ..money.prices import PriceList, amount, prices_text, rates_used, worth
from ..money.renting import given_hours
from ..paper.tables import quantities
from .custom_models import add_model
from .money import (
    add_shared,
    check_run,
    days_on,
    given_in,
    model_days,
    read_gpu,
    read_gpus,
    read_prices,
    read_sum,
)
from .printout import finite, printout

_MOST_KILOWATTS, _MOST_KILOWATTS_A_GPU = 100, 10  # of a machine: larger values are probably meant in watts
_MOST_PUE = 10  # larger values are probably meant in percent
_SUMS = ("machine", "resale", "rent", "electricity")
_INPUTS = (*_SUMS, "hours", "power", "pue")


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Without options: the rent-or-buy comment's 6 runs, and what its own inputs give. An option replaces one of "
        "its inputs or, with --gpu, of that machine's. SUM is 8000, 0.13EUR, or 7000..9000 where it is uncertain."
    )
    add_model(parser, "a recipe, trained on --gpus of --gpu")
    parser.add_argument("--gpu", metavar="NAME", help="GPU of the machine to own or to rent")
    parser.add_argument("--gpus", metavar="N", help="GPUs in it (default: 1)")
    parser.add_argument("--machine", metavar="SUM", help="price of the machine")
    parser.add_argument("--resale", metavar="SUM", help="what it sells for in the end (default: nothing)")
    parser.add_argument("--rent", metavar="SUM", help="rent of the same machine, per hour")
    parser.add_argument("--hours", metavar="H", help="hours of a run, or bounds such as 700..800")
    parser.add_argument(
        "--power", metavar="KW", help="power of the machine while it trains, or bounds such as 0.4..0.6"
    )
    parser.add_argument("--pue", metavar="X", help="power usage effectiveness, or bounds (default: 1, no overhead)")
    parser.add_argument("--electricity", metavar="SUM", help="price per kWh")
    parser.add_argument("--co2", metavar="G|REGION", help="grams of CO2 per kWh, or a region: world, US")
    add_shared(parser)


@dataclass(frozen=True)
class _Answer:
    """The comparisons, one for each rent, with sentences and notes, and the days of the run, where it has some."""

    rows: list[Computed]
    sentences: list[str]
    notes: list[str]
    run: TrainingDays | None = None


def main(given: argparse.Namespace) -> int:
    unit, prices = read_prices(given)
    grams, grams_source = (None, None) if given.co2 is None else breakeven.intensity(given.co2, "--co2")
    run, about = _run(given)
    if run is None and unit == "USD" and all(getattr(given, name) is None for name in _INPUTS):
        answer = _of_the_comment(given, grams)
    else:
        answer = _of_inputs(given, run, prices, unit, grams)
    print(
        printout(
            answer.sentences,
            [_row(row, answer.run, unit) for row in answer.rows],
            [*about, *answer.notes, *([f"CO2: {grams_source}."] if grams_source is not None else [])],
            given.format,
            currency=unit,
        )
    )
    return 0


def _of_the_comment(given: argparse.Namespace, grams: Interval | None) -> _Answer:
    """Return the comment's own calculation. Raise UserError where prices were given, as it uses none."""
    if given.prices is not None:
        raise UserError(
            f"--prices {given.prices} changes nothing of the comment's own sum: give an input of your own too, "
            "such as --machine SUM, or --gpu NAME"
        )
    rows = breakeven.comment_cases(grams)
    printed, electricity, both = rows[:3]
    sentence = (
        f"As the comment computes, owning pays from run {printed.answer.whole_runs} on; with the electricity of its "
        f"own inputs from run {electricity.answer.whole_runs}; with its GPU-hours too from run "
        f"{both.answer.whole_runs}."
    )
    hours = both.case.hours.value
    euros = electricity.electricity
    assert euros is not None

    def its(name: str) -> str:
        return f"{quantities()[f'comment/{name}'].value:,g}"

    notes = [
        f"Its {its('hours_charged')} h x {its('power')} kW x {its('electricity')} EUR/kWh are {euros.value:.2f} EUR "
        f"where it has {its('electricity_a_run')}; its {its('minutes')} min on {its('gpus')} GPUs are {hours:.0f} "
        f"GPU-hours where it charges {its('hours_charged')}.",
        f"{breakeven.comment_rate()}, and its sums are of 2021-01-14. It holds its card to be as fast as a V100: "
        f"a run then takes the machine {hours / 24:.0f} days.",
    ]
    return _Answer(rows, [sentence], notes)


def _of_inputs(
    given: argparse.Namespace, run: TrainingDays | None, prices: PriceList, unit: str, grams: Interval | None
) -> _Answer:
    """Return the comparison for the named machine, or for the comment's machine with the user's inputs."""
    inputs = _inputs(given, prices, unit, grams)
    asked = breakeven.of_machine(run, inputs, prices, unit) if run else breakeven.of_comment(inputs, unit, prices.rates)
    _check_resale(given, asked.computed[0].case, unit)
    rows, notes = asked.computed, asked.notes
    paid = asked.paid_in | given_in(given, _SUMS, unit)
    if given.prices is not None and run is None and not rates_used(paid, unit, prices.rates):
        raise UserError(
            f"--prices {given.prices} changes nothing of the comment's workstation, as no [[rate]] of it is "
            "needed; --gpu NAME takes the prices of that machine"
        )
    notes += _apart(rows[0], unit)
    notes += prices_text(asked.quoted, paid, unit, prices.rates, date.today())
    if any(math.isinf(row.answer.runs.high) for row in rows):
        notes.append("No number of runs: there owning never pays, as its electricity costs no less than the rent.")
    return _Answer(rows, [_sentence(rows, run, unit)], notes, run)


def _run(given: argparse.Namespace) -> tuple[TrainingDays | None, list[str]]:
    """Return the run on the named machine, None where none was named, and a note on its days."""
    gpu = read_gpu(given)
    if gpu is None:
        for option in ("model", "gpus", "measured"):
            if getattr(given, option) is not None:
                raise UserError(f"--{option} needs --gpu NAME: the machine to own or to rent")
        return None, []
    gpus = read_gpus(given) or 1
    check_run(given)
    if given.hours is not None:
        return given_hours(gpu, gpus, formats.interval(given.hours, "--hours").value), []
    if given.model is None:
        raise UserError("--gpu needs --model ID, or --hours H: how long is a run?")
    known = model_days(given)
    return days_on(known, gpu, gpus)[0], [known.asked.text]


def _inputs(given: argparse.Namespace, prices: PriceList, unit: str, grams: Interval | None) -> Given:
    def sum_(name: str) -> Interval | None:
        written = getattr(given, name)
        return None if written is None else read_sum(written, f"--{name}", unit, prices)

    def number(name: str) -> Interval | None:
        written = getattr(given, name)
        return None if written is None else formats.interval(written, f"--{name}")

    tariff = None
    if given.electricity is not None:
        price, currency = amount(given.electricity, "--electricity", unit)
        tariff = Tariff(price, currency, worth(currency, unit, prices.rates))
    found = Given(
        machine=sum_("machine"),
        resale=sum_("resale"),
        rent=sum_("rent"),
        hours=number("hours"),
        kilowatts=number("power"),
        pue=number("pue"),
        tariff=tariff,
        grams=grams,
    )
    if found.hours is not None and found.hours.low == 0:
        raise UserError(f"--hours {given.hours}: expected more than 0, such as 100 or 700..800")
    if found.pue is not None and not 1 <= found.pue.low <= found.pue.high <= _MOST_PUE:
        bounds = f"1, the machine itself, to {_MOST_PUE}"
        raise UserError(f"--pue {given.pue}: expected from {bounds}; such as 1.2 or 1.1..1.5")
    gpus = read_gpus(given) or 1
    most = max(_MOST_KILOWATTS, gpus * _MOST_KILOWATTS_A_GPU)
    if found.kilowatts is not None and found.kilowatts.high > most:
        raise UserError(f"--power {given.power}: expected at most {most:,} kW; 500 W are 0.5")
    return found


def _check_resale(given: argparse.Namespace, case: Case, unit: str) -> None:
    """Raise UserError where the machine may sell for more than it costs: it would pay without a run."""
    if case.resale.high > case.machine.low:
        least = money_text(case.machine.low, unit)
        raise UserError(f"--resale {given.resale}: expected no more than the machine costs, {least}")


def _sentence(rows: list[Computed], run: TrainingDays | None, unit: str) -> str:
    row = min(rows, key=lambda row: row.case.rent.value)
    runs, whole, use = row.answer.runs, row.answer.whole_runs, row.answer.utilisation.value
    owning = f"Owning {row.what} for {money_text(row.case.machine.value, unit)}"
    rent = f"{'the rent' if len(rows) == 1 else 'the least rent'} ({row.provider})"
    if whole is None:
        return f"{owning} never pays against {rent}: {_why_never(row.case)}."
    if use > 1:
        return f"{owning} does not pay against {rent} within its lifespan: it would take {counted(whole, 'run')}."
    low, high = _bound(runs.low), _bound(runs.high)
    bounds = "" if low == high else f" ({low} to {high})"
    apart = ", before electricity," if row.electricity_currency is not None and row.converted is None else ""
    return (
        f"{owning} pays{apart} against {rent} from run {whole:,} on{bounds}: both have cost the same after "
        f"{_share(use)} of its lifespan in use; hours of a run: {row.origin}{f', {run.source}' if run else ''}."
    )


def _why_never(case: Case) -> str:
    if case.running.value > case.rent.value:
        return "its electricity costs more"
    return "its electricity costs as much" if case.rent.value else "neither an hour of it nor one rented costs anything"


def _bound(runs: float) -> str:
    whole = first_run(runs)
    return "never" if whole is None else f"{whole:,}"


def _share(use: float) -> str:
    return "less than 1%" if use < 0.01 else f"{use:.0%}"


def _apart(row: Computed, unit: str) -> list[str]:
    if row.electricity is None or row.converted is not None:
        return []
    return [
        f"Electricity stands apart, {row.electricity.value:,.2f} {row.electricity_currency} a run, and is not in the "
        f"break-even: no rate from {row.electricity_currency} to {unit}; a [[rate]] in --prices brings one."
    ]


def _row(row: Computed, run: TrainingDays | None, unit: str) -> dict[str, Any]:
    runs, suffix = row.answer.runs, unit.lower()
    case = row.case
    return {
        "what": row.what,
        "provider": row.provider,
        "hours_a_run": finite(case.hours.value, 2),
        **(run.beside if run is not None else ALONE).columns(),
        f"machine_{suffix}": finite(case.machine.value, 2),
        f"resale_{suffix}": finite(case.resale.value, 2),
        f"rent_per_hour_{suffix}": finite(case.rent.value, 4),
        f"rent_a_run_{suffix}": finite((case.rent * case.hours).value, 2),
        "kwh_a_run": _rounded(row.energy),
        "electricity_a_run": _rounded(row.electricity),
        "electricity_currency": row.electricity_currency,
        f"electricity_a_run_{suffix}": _rounded(row.converted),
        "co2_kg_a_run": _rounded(row.co2),
        "runs": finite(runs.value, 3),
        "runs_low": finite(runs.low, 3),
        "runs_high": finite(runs.high, 3),
        "whole_runs": row.answer.whole_runs,
        "utilisation": finite(row.answer.utilisation.value, 3),
        "origin": row.origin,
    }


def _rounded(interval: Interval | None) -> float | None:
    return None if interval is None else finite(interval.value, 2)
