"""`repro scaling`: print days by number of GPUs, parallel efficiency, and where one more GPU stops paying."""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

from ..formats import listing, money_text
from ..money import choice
from ..money.choice import INSTEAD, Step, audit_warnings, audit_warnings_text, believed, stops
from ..money.days import days_on
from ..money.offers import lifespan_years, machine_paid_in, older_price
from ..money.prices import prices_text
from ..paper.gpus import OwnGpu
from .money import GPU_OR_FILE, add_shared, read_any_gpu, read_prices, unpriced, without_days
from .own_models import add_model
from .printout import bounds, finite, interval_text, printout


def options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "a recipe, see recipes", required=True)
    parser.add_argument("--gpu", metavar="NAME|FILE", help=GPU_OR_FILE)
    add_shared(parser)


def main(given: argparse.Namespace) -> int:
    unit, prices = read_prices(given)
    gpu, prices = read_any_gpu(given, prices)
    days = days_on(gpu, None, given.model, given.measured, given.predicted)
    by_gpu, warned = choice.steps_by_gpu(days, prices, unit), audit_warnings(given.model, days)
    by_believed = choice.steps_by_gpu(believed(days, warned), prices, unit)
    instead = choice.stops_instead(by_gpu, by_believed, warned)
    listed = [step for steps in by_gpu.values() for step in steps]
    notes = [
        "efficiency: the speed-up over the fewest GPUs, divided by how many times more GPUs; low and high are from the "
        "days' bounds: what rounding leaves of the paper's, the 80 % interval of predicted ones.",
        "A larger machine pays where it lowers the cost of an experiment, its price x days / "
        f"{lifespan_years():g} years, below that on every smaller one. Day saved: what each day less than on the "
        "machine before costs in price.",
    ]
    more = [f"{step.machine} ({step.efficiency.value:.2f})" for step in listed if step.efficiency.low > 1]
    if more:
        notes.append(f"More than proportional, whatever the days within their bounds: {', '.join(more)}.")
    notes += interval_text(step.bounds for step in listed)
    notes += audit_warnings_text(warned, days)
    notes += unpriced([step.machine for step in listed if step.cost is None], unit, "without costs")
    notes += [gpu.note] if isinstance(gpu, OwnGpu) else []
    if given.gpu is None:
        notes += without_days(days, given, prices.own_to_buy, prices.own_systems)
    priced = [step for step in listed if step.cost is not None]
    paid = {each for step in priced for each in machine_paid_in(step.gpu, step.gpus, prices)}
    quoted = [older_price(step.gpu, step.gpus, prices, step.gpu) for step in priced]
    notes += prices_text(quoted, paid, unit, prices.rates, date.today())
    print(
        printout(
            [_sentence(given.model, steps, unit, instead.get(name)) for name, steps in by_gpu.items()],
            [_row(step, unit) for step in listed],
            notes,
            given.format,
            currency=unit,
            cheapest_with_predicted_days=[_row(step, unit) for step in instead.values()],
        )
    )
    return 0


def _sentence(model: str, steps: list[Step], unit: str, instead: Step | None) -> str:
    gpu, origins = steps[0].gpu, {f"{step.origin}: {step.source}" for step in steps}
    if len(origins) > 1:  # the settings of each count are in the rows
        origins = {origin.partition(", ")[0] for origin in origins}
    days = ", ".join(sorted(origins))
    best = stops(steps)
    if best is None or best.experiment is None:
        return f"{model} on {gpu} ({days}): without a price in {unit} it is not known where one more stops paying."
    equals = [
        str(step.gpus)
        for step in steps
        if step is not best and step.experiment is not None and step.experiment.overlaps(best.experiment)
    ]
    undecided = f"; within the days' bounds {' and '.join(equals)} may cost no more" if equals else ""
    predicted = ""
    if instead is not None and instead.experiment is not None:
        predicted = f"; {INSTEAD} it is cheapest on {instead.gpus}, at {money_text(instead.experiment.value, unit)}"
    return (
        f"{model} on {gpu} ({days}): an experiment is cheapest on {best.gpus}, at "
        f"{money_text(best.experiment.value, unit)}; {_of_more(best, steps)}{undecided}{predicted}."
    )


def _of_more(best: Step, steps: list[Step]) -> str:
    """Return what is known of more GPUs than the number with the cheapest experiment."""
    more = [step for step in steps if step.gpus > best.gpus]
    unknown = [str(step.gpus) for step in more if step.experiment is None]
    if len(unknown) == len(more):
        return "what it costs on more is not known"
    return "more do not pay" + (f", and what it costs on {listing(unknown)} is not known" if unknown else "")


def _row(step: Step, unit: str) -> dict[str, Any]:
    suffix = unit.lower()
    of_one = step.experiment
    experiment, low, high = (None, None, None) if of_one is None else (of_one.value, of_one.low, of_one.high)
    return {
        "gpu": step.gpu,
        "gpus": step.gpus,
        "days": step.days.value,
        **bounds(step.bounds),
        "speedup": finite(step.speedup.value, 3),
        "efficiency": finite(step.efficiency.value, 3),
        "efficiency_low": finite(step.efficiency.low, 3),
        "efficiency_high": finite(step.efficiency.high, 3),
        f"cost_{suffix}": finite(step.cost, 2),
        f"cost_per_experiment_{suffix}": finite(experiment, 2),
        f"cost_per_experiment_low_{suffix}": finite(low, 2),
        f"cost_per_experiment_high_{suffix}": finite(high, 2),
        f"day_saved_{suffix}": finite(step.day_saved, 2),
        "pays": step.pays,
        "origin": step.origin,
        "source": step.source,
    }
