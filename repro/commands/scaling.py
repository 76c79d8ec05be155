"""`repro scaling`: print days by number of GPUs, parallel efficiency, and where one more GPU stops paying."""

from __future__ import annotations

import argparse
from datetime import date
from typing import Any

from ..formats import listing, money_text
from ..money import choice
from ..money.choice import Step, stops
from ..money.days import ModelDays
from ..money.offers import lifespan_years, machine_paid_in, older_price
from ..money.prices import prices_text
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
    without_days,
)
from .printout import bounds, finite, interval_text, printout


def options(parser: argparse.ArgumentParser) -> None:
    add_model(parser, "a recipe, see recipes", required=True)
    parser.add_argument("--gpu", metavar="NAME|FILE", help=GPU_OR_FILE)
    add_shared(parser)


def main(given: argparse.Namespace) -> int:
    unit, prices = read_prices(given)
    gpu, prices = read_any_gpu(given, prices)
    known = model_days(given)
    days = days_on(known, gpu, None, prices)
    by_gpu = choice.steps_by_gpu(days, prices, unit)
    listed = [step for steps in by_gpu.values() for step in steps]
    notes = [
        known.asked.text,
        *compared_text(gpu),
        "efficiency: the fewest GPU-days of any number of these GPUs over those of this one; speedup is that of as "
        "many GPUs. low and high are from the days' bounds: what rounding leaves of the paper's, the 80 % interval of "
        "predicted ones.",
        "A larger machine pays where it lowers the cost of an experiment, its price x days / "
        f"{lifespan_years():g} years, below that on every smaller one. Day saved: what each day less than on the "
        "machine before costs in price.",
    ]
    more = [step.run.machine for steps in by_gpu.values() for step in _better(steps)]
    if more:
        notes.append(
            f"Each GPU does more than on fewer GPUs, whatever the days within their bounds: {', '.join(more)}."
        )
    notes += interval_text(step.run.bounds for step in listed)
    notes += unpriced([step.run.machine for step in listed if step.cost is None], unit, "without costs")
    notes += [gpu.note] if isinstance(gpu, CustomGpu) else []
    if given.gpu is None:
        notes += without_days(known, days, prices.own_to_buy, prices.own_systems)
    priced = [step for step in listed if step.cost is not None]
    paid = {each for step in priced for each in machine_paid_in(step.run.gpu, step.run.gpus, prices)}
    quoted = [older_price(step.run.gpu, step.run.gpus, prices, step.run.gpu) for step in priced]
    notes += prices_text(quoted, paid, unit, prices.rates, date.today())
    print(
        printout(
            [_sentence(known, steps, unit) for steps in by_gpu.values()],
            [_row(step, unit) for step in listed],
            notes,
            given.format,
            currency=unit,
        )
    )
    return 0


def _better(steps: list[Step]) -> list[Step]:
    """Return the steps that take fewer GPU-days than the smallest machine, whatever the days within their bounds."""
    first = steps[0].run
    return [step for step in steps if (first.days / step.run.days * (first.gpus / step.run.gpus)).low > 1]


def _sentence(known: ModelDays, steps: list[Step], unit: str) -> str:
    model, gpu = known.recipe.id, steps[0].run.gpu
    sources = {f"{step.run.origin}: {step.run.source}" for step in steps}
    origins = f"{listing(list(dict.fromkeys(step.run.origin for step in steps)))}, on {known.whose} stack"
    days = sources.pop() if len(sources) == 1 else origins  # what each count is from is in the rows
    best = stops(steps)
    if best is None or best.experiment is None:
        return f"{model} on {gpu} ({days}): without a price in {unit} it is not known where one more stops paying."
    equals = [
        str(step.run.gpus)
        for step in steps
        if step is not best and step.experiment is not None and step.experiment.overlaps(best.experiment)
    ]
    undecided = f"; within the days' bounds {' and '.join(equals)} may cost no more" if equals else ""
    return (
        f"{model} on {gpu} ({days}): an experiment is cheapest on {best.run.gpus}, at "
        f"{money_text(best.experiment.value, unit)}; {_of_more(best, steps)}{undecided}."
    )


def _of_more(best: Step, steps: list[Step]) -> str:
    """Return what is known of more GPUs than the number with the cheapest experiment."""
    more = [step for step in steps if step.run.gpus > best.run.gpus]
    unknown = [str(step.run.gpus) for step in more if step.experiment is None]
    if len(unknown) == len(more):
        return "what it costs on more is not known"
    return "more do not pay" + (f", and what it costs on {listing(unknown)} is not known" if unknown else "")


def _row(step: Step, unit: str) -> dict[str, Any]:
    suffix = unit.lower()
    of_one = step.experiment
    experiment, low, high = (None, None, None) if of_one is None else (of_one.value, of_one.low, of_one.high)
    return {
        "gpu": step.run.gpu,
        "gpus": step.run.gpus,
        "days": finite(step.run.days.value, 3),
        **bounds(step.run.bounds),
        **step.run.beside.columns(),
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
        "origin": step.run.origin,
        "source": step.run.source,
    }
