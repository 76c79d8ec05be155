"""Scores of predictions: their errors against the paper's tables, our trials, and measurements by others."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median
from typing import Any

from repro.formats import SECONDS_A_DAY, Format, figures, render
from repro.paper.arithmetic import analytic_days, by_place, corrected_days, paper_gpu, recipe_of
from repro.paper.settings import Settings
from repro.paper.tables import Cell, PublishedSettings, Table, all_cells, cells, published_settings
from repro.predict.audit import plausible_cells
from repro.record import days_of_steps

from .. import models
from . import traces
from .calibration import EVERYTHING, Calibration
from .fit import Observation, clock_ratio, kept_observations
from .forecast import Forecast, predicted, search, trace_of
from .launch_queue import authors_step
from .memory import largest_micro_batch, variant_of
from .published import held_out
from .time import TimedStep, timed_step, update_exchange_seconds

SPLITS = ("in sample", "leave one recipe out", "leave one GPU out")
TABLES: tuple[Table, ...] = ("4", "1")
SECONDS = "seconds to predict both tables"
ERRORS = ("median error", "within 25 %", "within 2x")
COVERAGE = "inside the 80 % interval"
COUNTED = ("feasibility right", "micro batch exact", "micro batch within 2x")  # the rest: shares, seconds
BASELINE = ": baseline, "  # between a subset and the name of a baseline whose errors they are


@dataclass(frozen=True)
class Score:
    """One metric of one table. `value` is a share or a relative error, or a number for a metric that counts; `target`
    is None if none was set."""

    metric: str
    table: str
    split: str
    subset: str
    cells: int
    value: float
    target: float | None
    met: bool | None


CLOCK = "authors' clock from true times"
WORST = "worst factor"
INSIDE = "inside the interval"  # of published measurements by others
_AT_MOST = (ERRORS[0], SECONDS, CLOCK, f"{CLOCK}, {WORST}", WORST)  # metrics where lower is better
_BOTH = "1 and 4"
_IMPLAUSIBLE = "impossible or implausible"
_HARD = ("convnext", "vit")  # recipes with the largest errors before any trial was measured
_TARGETS = {
    (SECONDS, _BOTH, "in sample", "all"): 1.0,
    **{("median error", "4", split, "all"): 0.12 for split in SPLITS[1:]},
    **{("median error", "1", split, "all"): 0.14 for split in SPLITS[1:]},
    **{("median error", _BOTH, split, _IMPLAUSIBLE): 0.25 for split in SPLITS[1:]},
    ("median error", "measured", "leave one recipe out", "all"): 0.09,
    (WORST, "measured", "leave one recipe out", " and ".join(_HARD)): 1.5,
    (CLOCK, "measured", "leave one recipe out", "all"): 0.06,
    (f"{CLOCK}, {WORST}", "measured", "leave one recipe out", "all"): 1.4,
    (INSIDE, "elsewhere", "in sample", "trainings"): 0.9,
    ("micro batch exact", "j", "in sample", "all"): 132.0,
    ("micro batch within 2x", "j", "in sample", "all"): 140.0,
    ("feasibility right", "1", "in sample", "all"): 144.0,
    ("winner first", "j", "in sample", "legible"): 0.40,
    ("winner among first three", "j", "in sample", "legible"): 0.70,
}


def validate(fits: Mapping[str, Calibration]) -> list[Score]:
    """Return every score. In a split, a cell's calibration is the fit without its recipe, or without its GPU."""
    started = time.perf_counter()
    for cell in all_cells():
        predicted(cell, fits[EVERYTHING])
    seconds = time.perf_counter() - started
    plausible = plausible_cells()
    found = [_scored(SECONDS, _BOTH, "in sample", "all", len(all_cells()), seconds)]
    found += _trials(fits)
    found += _elsewhere(fits[EVERYTHING])
    for split in SPLITS:
        chosen = _chooser(fits, split)
        ratios = {table: _ratios(table, chosen) for table in TABLES}
        for table in TABLES:
            found += _errors(table, split, ratios[table], plausible)
            found += _projections(table, split, chosen)
            found += _feasibility(table, split, chosen)
        implausible = [ratio for there in ratios.values() for cell, ratio in there.items() if cell not in plausible]
        found += _summary(_BOTH, split, _IMPLAUSIBLE, implausible)
        found += _micro_batches(split, chosen)
        found += _winners(split, chosen)
    found += _coverage(fits, plausible)
    return found + [score for table in TABLES for score in _baselines(table, plausible)]


Chooser = Callable[[str, str], Calibration]


def _chooser(fits: Mapping[str, Calibration], split: str) -> Chooser:
    def chosen(model: str, gpu: str) -> Calibration:
        name = {SPLITS[0]: EVERYTHING, SPLITS[1]: recipe_of(model).id, SPLITS[2]: gpu}[split]
        return fits[name]

    return chosen


@cache
def _best(cell: Cell, calibration: Calibration) -> Forecast:
    return predicted(cell, calibration, by_authors=True)


def _ratios(table: Table, chosen: Chooser) -> dict[Cell, float]:
    """Return predicted days by the authors' clock over printed days."""
    ratios: dict[Cell, float] = {}
    for cell in cells(table):
        days = _best(cell, chosen(cell.model, cell.gpu)).authors_days
        if cell.days is not None and days is not None:
            ratios[cell] = days / cell.days
    return ratios


def _errors(table: Table, split: str, ratios: Mapping[Cell, float], plausible: set[Cell]) -> list[Score]:
    found = []
    for subset, members in _subsets(ratios, plausible):
        found += _summary(table, split, subset, [ratios[cell] for cell in members])
    return found


def _projections(table: Table, split: str, chosen: Chooser) -> Iterator[Score]:
    """Yield scores of days by the authors' clock as a run projects them, from predicted parts of one rank. True days
    would be those predicted; a projection's clock shows all of the modelled communication."""
    ratios = defaultdict[int, list[float]](list)
    for cell in cells(table):
        if cell.gpus > 1 and cell.days is not None:
            calibration = chosen(cell.model, cell.gpu)
            found = _best(cell, calibration)
            if found.feasible:
                ratios[cell.gpus].append(_projected_days(found, calibration) / cell.days)
    for count, there in ratios.items():
        yield from _summary(table, split, f"projected to {count} GPUs", there)


def _projected_days(found: Forecast, calibration: Calibration) -> float:
    """Return the days of a forecast by the authors' clock of its first rank alone, and of its communication."""
    recipe, machine, rates = models.find(found.recipe), found.machine, calibration.rates
    trace = trace_of(recipe, machine, found.settings, traces.PAPER_STACK)
    step = timed_step(recipe, trace, found.settings, machine, found.micro_batch, rates)
    updating = update_exchange_seconds(recipe, trace, found.settings, machine, rates)
    alone = replace(step, micro=replace(step.micro, communication=0.0), update=step.update - updating)
    seconds = authors_step(alone, calibration.queue) + step.micro.communication * step.times + updating
    return days_of_steps(seconds, recipe.training_steps)


def _trials(fits: Mapping[str, Calibration]) -> Iterator[Score]:
    """Yield, per split, scores of the trials in expected/measured.csv: their predicted over measured true steps, and
    the authors' clock that the queue derives from measured true times."""
    trials = kept_observations()

    def step(trial: Observation, name: str) -> TimedStep:
        return trial.step(trial.readings[0], trial.micro_batch or 1, fits[name].rates)

    for split in SPLITS:
        names = {
            id(one): {SPLITS[0]: EVERYTHING, SPLITS[1]: one.recipe.id, SPLITS[2]: one.gpu}[split] for one in trials
        }
        steps = [(one, step(one, names[id(one)])) for one in trials]
        ratios = {one: taken.seconds * one.recipe.training_steps / SECONDS_A_DAY / one.days for one, taken in steps}
        yield from _summary("measured", split, "all", list(ratios.values()))
        factors = [max(ratio, 1 / ratio) for one, ratio in ratios.items() if one.recipe.id in _HARD]
        yield _scored(WORST, "measured", split, " and ".join(_HARD), len(factors), max(factors))
        known = [(one, taken) for one, taken in steps if one.authors_days]
        shown = [clock_ratio(one, taken, fits[names[id(one)]].queue) for one, taken in known]
        errors = median(abs(ratio - 1) for ratio in shown)
        yield _scored(CLOCK, "measured", split, "all", len(shown), errors)
        worst = max(max(ratio, 1 / ratio) for ratio in shown)
        yield _scored(f"{CLOCK}, {WORST}", "measured", split, "all", len(shown), worst)


def _elsewhere(everything: Calibration) -> list[Score]:
    """Return how often measurements by others are inside the interval: of trainings, and of these and forward passes.
    No rate is fitted to them."""
    found = held_out(everything)
    trainings = [each for each in found if each.published.what == "step"]
    return [
        _scored(INSIDE, "elsewhere", "in sample", subset, len(rows), _share(each.inside for each in rows))
        for subset, rows in (("trainings", trainings), ("all", found))
    ]


def _subsets(there: Iterable[Cell], plausible: set[Cell]) -> Iterator[tuple[str, list[Cell]]]:
    listed = list(there)
    yield "all", listed
    yield "plausible", [cell for cell in listed if cell in plausible]
    for pair in (("A100", "H100"), ("RTX 3090", "A6000")):
        yield f"plausible, {' and '.join(pair)}", [cell for cell in listed if cell in plausible and cell.gpu in pair]
    for gpu in dict.fromkeys(cell.gpu for cell in listed):
        yield gpu, [cell for cell in listed if cell.gpu == gpu]
    for model in dict.fromkeys(cell.model for cell in listed):
        yield model, [cell for cell in listed if cell.model == model]


def _summary(table: str, split: str, subset: str, ratios: Sequence[float]) -> list[Score]:
    """Return the scores of ratios, which are predicted over printed or measured days."""
    if not ratios:
        return []
    errors = [abs(ratio - 1) for ratio in ratios]
    near, far = (_share(error <= 0.25 for error in errors), _share(0.5 <= ratio <= 2 for ratio in ratios))
    values = zip(ERRORS, (median(errors), near, far), strict=True)
    return [_scored(metric, table, split, subset, len(ratios), value) for metric, value in values]


def _scored(metric: str, table: str, split: str, subset: str, number: int, value: float) -> Score:
    target, met = _TARGETS.get((metric, table, split, subset)), None
    if target is not None:
        met = value <= target if metric in _AT_MOST else value >= target
    return Score(metric, table, split, subset, number, value, target, met)


def _share(marks: Iterable[bool]) -> float:
    listed = list(marks)
    return sum(listed) / len(listed)


def _feasibility(table: Table, split: str, chosen: Chooser) -> list[Score]:
    known = [cell for cell in cells(table) if cell.state != "lost"]
    right = sum(_best(cell, chosen(cell.model, cell.gpu)).feasible == (cell.state == "days") for cell in known)
    return [_scored("feasibility right", table, split, "all", len(known), float(right))]


def _micro_batches(split: str, chosen: Chooser) -> list[Score]:
    """Return scores of Appendix J's rows, each at its own settings; if marks are lost, at the reading closest to it."""
    rows = published_settings()
    sizes = {row: [_micro_batch(row, each, chosen(row.model, row.gpu)) for each in row.readings()] for row in rows}
    subsets = {"all": rows, "legible": [row for row in rows if len(sizes[row]) == 1]}
    subsets |= {gpu: [row for row in rows if row.gpu == gpu] for gpu in dict.fromkeys(row.gpu for row in rows)}
    subsets |= {
        model: [row for row in rows if row.model == model] for model in dict.fromkeys(row.model for row in rows)
    }
    found = []
    for subset, members in subsets.items():
        exact = sum(row.mbs in sizes[row] for row in members)
        near = sum(any(row.mbs / 2 <= size <= row.mbs * 2 for size in sizes[row]) for row in members)
        found += [
            _scored("micro batch exact", "j", split, subset, len(members), float(exact)),
            _scored("micro batch within 2x", "j", split, subset, len(members), float(near)),
        ]
    return found


def _micro_batch(row: PublishedSettings, settings: Settings, calibration: Calibration) -> int:
    recipe = recipe_of(row.model)
    trace = traces.find(recipe.id, variant_of(settings))
    return largest_micro_batch(recipe, trace, settings, paper_gpu(row.gpu), row.gpus, calibration.allowance)


def _winners(split: str, chosen: Chooser) -> list[Score]:
    """Return how Appendix J's settings rank in the predicted order, for rows with one reading, and how often the low
    end of their interval is at most the predicted best, so that a guided search measures them (repro.predict.guide)."""
    table = by_place("1")
    places, measured = [], []
    for row in published_settings():
        readings, calibration = row.readings(), chosen(row.model, row.gpu)
        if len(readings) == 1:
            order = search(table[row.place], calibration, by_authors=True)
            place = [each.settings for each in order].index(readings[0])
            places.append(place)
            best, printed = order[0].authors_interval, order[place].authors_interval
            measured.append(bool(best and printed and printed.low <= best.value))
    return [
        _scored("winner not skipped", "j", split, "legible", len(measured), _share(measured)),
        _scored("winner first", "j", split, "legible", len(places), _share(place == 0 for place in places)),
        _scored("winner among first three", "j", split, "legible", len(places), _share(place < 3 for place in places)),
    ]


def _coverage(fits: Mapping[str, Calibration], plausible: set[Cell]) -> list[Score]:
    """Return how often printed days are inside the interval of a fit without the cell's recipe (or GPU)."""
    found = []
    for split in SPLITS[1:]:
        chosen = _chooser(fits, split)
        inside: dict[Cell, bool] = {}
        for cell in all_cells():
            best = _best(cell, chosen(cell.model, cell.gpu))
            days = best.authors_interval
            if cell.days is not None and days is not None:
                inside[cell] = days.low <= cell.days <= days.high
        for subset, members in _subsets(inside, plausible):
            share = _share(inside[cell] for cell in members)
            found.append(_scored(COVERAGE, _BOTH, split, subset, len(members), share))
    return found


def _baselines(table: Table, plausible: set[Cell]) -> Iterator[Score]:
    """Yield scores of baselines: FLOPs over peak as in the paper; the closed forms' FLOPs over the data sheet's peak;
    and the latter with one utilisation per GPU, the median of the other recipes' (or of the other GPUs')."""
    known = [cell for cell in cells(table) if cell.days is not None]
    corrected = {cell: corrected_days(*cell.place, table == "1") for cell in known}
    shares = {cell: corrected[cell] / cell.days for cell in known if cell.days}

    def scaled(cell: Cell, of: Callable[[Cell], bool]) -> float:
        return corrected[cell] / median(share for other, share in shares.items() if of(other))

    baselines: dict[tuple[str, str], Callable[[Cell], float]] = {
        ("FLOPs over peak, as in the paper", "none"): lambda cell: analytic_days(*cell.place),
        ("corrected FLOPs over peak", "none"): corrected.__getitem__,
        ("a utilisation for each GPU", SPLITS[0]): lambda cell: scaled(cell, lambda o: o.gpu == cell.gpu),
        ("a utilisation for each GPU", SPLITS[1]): lambda cell: scaled(
            cell, lambda o: o.gpu == cell.gpu and o.model != cell.model
        ),
        ("a utilisation for each GPU", SPLITS[2]): lambda cell: scaled(cell, lambda o: o.gpu != cell.gpu),
    }
    for (name, split), days in baselines.items():
        for subset, members in _subsets(known, plausible):
            ratios = [days(cell) / cell.days for cell in members if cell.days]
            yield from _summary(table, split, f"{subset}{BASELINE}{name}", ratios)


_FOR_ALL = ("all", "plausible", "legible")  # subsets shown to people, besides those with targets, and of baselines
_Place = tuple[str, str, str, str]  # metric, table, split, subset


def for_people(scores: Sequence[Score], format: Format) -> str:
    """Return all metrics and baselines, and each subset's errors; other scores of subsets are in CSV and JSON only."""
    found = {(each.metric, each.table, each.split, each.subset): each for each in scores}
    covered = [each for each in scores if each.metric in (COVERAGE, INSIDE) and each.subset in _FOR_ALL]
    aimed = [each for each in scores if each.target is not None]
    parts = ["What was to be reached, and how many printed days lie in the interval:"]
    parts += [render([_aimed(each) for each in (*aimed, *covered)], format), _met(aimed)]
    parts += ["What is counted:", render(_counts(found), format)]
    for split in SPLITS:
        parts += [f"Errors of days, {split}:", render(_error_rows(found, split), format)]
    parts += ["Errors of days that baselines predict:", render(_baseline_rows(found), format)]
    parts += [
        "4 and 1: of Tables 4 and 1, whose printed days are held against the authors' clock; measured: true steps of "
        "the trials in expected/measured.csv; elsewhere: what others measured, expected/elsewhere.csv. --format csv "
        "and json have a row for each metric of each subset."
    ]
    return "\n\n".join(parts)


def _met(aimed: Sequence[Score]) -> str:
    """Return how many targets are met, and the value and target of each missed one."""
    missed = [
        f"; {each.metric} of table {each.table}, {each.split}: {_shown(each)}, target {_target(each)}"
        for each in aimed
        if not each.met
    ]
    return f"{len(aimed) - len(missed)} of {len(aimed)} targets are met{''.join(missed)}."


def _aimed(each: Score) -> dict[str, Any]:
    return {
        "metric": each.metric,
        "table": each.table,
        "split": each.split,
        "subset": each.subset,
        "value": _shown(each),
        "target": _target(each),
        "met": each.met,
    }


def _counts(found: Mapping[_Place, Score]) -> list[dict[str, Any]]:
    """Return the metrics that are not errors of a subset, one column per split."""
    places = dict.fromkeys(
        (metric, table, subset)
        for metric, table, _, subset in found
        if metric not in (*ERRORS, COVERAGE, SECONDS, CLOCK, INSIDE) and WORST not in metric and subset in _FOR_ALL
    )
    return [
        {
            "metric": metric,
            "table": table,
            "subset": subset,
            **{split: _shown(found.get((metric, table, split, subset))) for split in SPLITS},
        }
        for metric, table, subset in places
    ]


def _error_rows(found: Mapping[_Place, Score], split: str) -> list[dict[str, Any]]:
    subsets = dict.fromkeys(subset for metric, _, _, subset in found if metric in ERRORS and BASELINE not in subset)
    return [{"subset": subset, **_metrics(found, split, subset)} for subset in subsets]


def _baseline_rows(found: Mapping[_Place, Score]) -> list[dict[str, Any]]:
    places = dict.fromkeys((subset, split) for _, _, split, subset in found if BASELINE in subset)
    rows = []
    for place, split in places:
        subset, _, name = place.partition(BASELINE)
        if subset in _FOR_ALL:
            known = {"baseline": name, "split": split, "subset": subset}
            rows.append(known | _metrics(found, split, place))
    return rows


def _metrics(found: Mapping[_Place, Score], split: str, subset: str) -> dict[str, Any]:
    """Return both tables' errors, one column per table and metric."""
    there = {(table, metric): found.get((metric, table, split, subset)) for table in TABLES for metric in ERRORS}
    cells = (there[table, ERRORS[0]] for table in TABLES)
    return {
        "4, 1: cells": ", ".join(str(each.cells) if each else "-" for each in cells),
        **{f"{table}: {metric}": _shown(each) for (table, metric), each in there.items()},
    }


def _shown(each: Score | None) -> str | None:
    if each is None:
        return None
    value = _number(each.metric, each.value)
    return f"{value} of {each.cells}" if each.metric in COUNTED else value


def _target(each: Score) -> str | None:
    return None if each.target is None else _number(each.metric, each.target)


def _number(metric: str, value: float) -> str:
    if metric in COUNTED:
        return f"{value:.0f}"
    if WORST in metric:
        return f"{value:.2f}x"
    return f"{figures(value)} s" if metric == SECONDS else f"{100 * value:.1f} %"
