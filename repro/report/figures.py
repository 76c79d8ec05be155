"""The paper's figures as rows of data: from measured records where there are any, from its printed numbers, or both.

Every figure is a list of panels, and each says which it is. Drawing them is charts.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import models

from .. import command
from ..economics.choice import beaten_by
from ..economics.offers import cost_a_day, machine_price
from ..economics.pricelist import price_list
from ..expected import COUNTS, Cell, PublishedSettings, cells, published_settings
from ..findings import (
    Place,
    analytic_days,
    by_place,
    gpu_days,
    paper_peak,
    recipe_of,
    speedups,
    training_flops,
)
from ..originals import analytic_peaks, training_compute
from ..prices import gpu_prices
from ..search import Search
from ..settings import FREE_LUNCH, NAIVE, Settings

Origin = Literal["measured", "published", "measured and published"]
Draw = Literal["strips", "bars", "pairs", "grid", "trades", "lines"]
State = Literal["feasible", "infeasible", "naive", "free lunch", "memory saving", "lost", "not known"]
MODELS = tuple(models.find(id).name for id in models.IDS)
PYTHIA = tuple(recipe.name for recipe in models.PYTHIAS)
_SEARCH = f"{command()} --gpus all --methods all"


@dataclass(frozen=True)
class Point:
    """A dot: a value of a series in a group. `note` names what it stands for."""

    group: str
    series: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Mark:
    """A field of a grid of models by machines."""

    model: str
    machine: str
    state: State


@dataclass(frozen=True)
class Trade:
    """A machine: what it costs in US dollars, and the days that it takes. `kind` says whether another of the paper's
    is both cheaper and faster, or that the days were measured here."""

    gpu: str
    gpus: int
    cost: float
    days: float
    kind: Literal["best", "beaten", "here"]


@dataclass(frozen=True)
class Curve:
    """A point of a line: `y` at `x` in a series."""

    series: str
    x: float
    y: float


Row = Point | Mark | Trade | Curve


@dataclass(frozen=True)
class Panel:
    """One chart. `draw` names its kind in charts.py; `x` titles its value axis, with the unit, and `reference` is a
    value that a line marks on it, on the upright axis of lines, which `y` titles."""

    origin: Origin
    title: str
    draw: Draw
    x: str
    rows: Sequence[Row]
    source: str
    reference: float | None = None
    y: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure: `number` is the paper's, empty where the paper has no such figure, `says` what is to be seen, with its
    numbers, `lacking` what the paper does not print, and `measured_by` the command that measures it."""

    number: str
    title: str
    says: str
    panels: Sequence[Panel]
    lacking: str = ""
    measured_by: str = ""


def figures(searches: Sequence[Search]) -> list[Figure]:
    """All figures, in the paper's order; empty `searches` leave the published numbers alone."""
    return [
        _speedups(searches),
        _feasibility(searches),
        _gains(searches),
        _spread(searches),
        _gpu_days(searches),
        *_costs(searches),
        _compute(searches),
        _methods(searches),
    ]


# Speed-ups over naive settings, figure 2


def _speedups(searches: Sequence[Search]) -> Figure:
    published = [speedup for speedup in speedups() if speedup.model in PYTHIA]
    rows = []
    for speedup in published:
        note = f"{speedup.model}, {speedup.gpus} GPUs"
        analytic = speedup.naive_days / analytic_days(speedup.model, speedup.gpu, speedup.gpus)
        rows.append(Point(speedup.gpu, "best settings", speedup.ratio.value, note))
        rows.append(Point(speedup.gpu, "analytic estimate", analytic, note))
    measured = []
    for search in searches:
        for series, step in (("free lunch alone", search.free_lunch), ("best settings", search.best)):
            if search.naive is not None and step is not None:
                measured.append(Point(search.model, series, search.naive / step, search.machine))
    mean, optimistic = (
        _mean([row.value for row in rows if row.series == series]) for series in ("best settings", "analytic estimate")
    )
    says = (
        f"Published: with the best settings a training step of Pythia is {mean:.1f} times as fast as with naive ones, "
        f"on average of the {len(published)} cells that have both; the analytic estimate promises {optimistic:.1f} "
        "times."
    )
    here = [row.value for row in measured if row.series == "best settings"]
    if here:
        says += (
            f" Measured here: {_mean(here):.2f} times on average over {len(here)} places, {min(here):.2f} to "
            f"{max(here):.2f}."
        )
    title = "Speed-ups over naive settings"
    x = "times as fast as naive settings"
    return Figure(
        "2",
        title,
        says,
        [
            *_measured("Each recipe here", "strips", x, measured, searches, 1.0),
            Panel("published", "Pythia on the paper's GPUs", "strips", x, rows, "Tables 1 and 4; section 3.1", 1.0),
        ],
    )


# Feasibility, figures 3 and 10


def _feasibility(searches: Sequence[Search]) -> Figure:
    panels, infeasible = [], {}
    for title, table, naive in (("Naive settings", "4", True), ("Best settings", "1", False)):
        measured = []
        for search in searches:
            statuses = [t.status for t in search.trials if (t.settings == NAIVE.id) == naive]
            if statuses:
                measured.append(Mark(search.model, search.machine, _outcome(statuses)))
        panels += _measured(f"{title}, here", "grid", "", measured, searches)
        there = by_place(table)  # type: ignore[arg-type]
        rows = [
            Mark(model, gpu, _any_feasible(there[model, gpu, count] for count in COUNTS if count > 1))
            for model in PYTHIA
            for gpu in _gpus()
        ]
        infeasible[table] = sum(row.state == "infeasible" for row in rows)
        panels.append(Panel("published", f"{title}, 2 or more GPUs", "grid", "", rows, f"Table {table}"))
    says = (
        f"Published, Pythia on 2 or more GPUs: naive settings cannot train {infeasible['4']} of the {len(rows)} pairs "
        f"of model and GPU, the best settings {infeasible['1'] or 'none'}."
    )
    return Figure("3", "What can be trained at all", says, sorted(panels, key=lambda panel: panel.origin))


def _methods(searches: Sequence[Search]) -> Figure:
    naive, best = by_place("4"), by_place("1")
    settings = {(row.model, row.gpu, row.gpus): row for row in published_settings()}
    measured = [
        Mark(search.model, search.machine, _least_measured(search))
        for search in searches
        if any(trial.status in ("ok", "out_of_memory") for trial in search.trials)
    ]
    panels = _measured("Each recipe here", "grid", "", measured, searches)
    for title, counts in (("1 GPU", COUNTS[:1]), ("2 or more GPUs", COUNTS[1:])):
        rows = [
            Mark(model, gpu, _least_published([(model, gpu, count) for count in counts], naive, best, settings))
            for model in MODELS
            for gpu in _gpus()
        ]
        panels.append(Panel("published", title, "grid", "", rows, "Tables 1 and 4, Appendix J"))
    return Figure(
        "10",
        "Which methods a model needs",
        "The least that is known to be enough: naive settings, free lunch alone, or memory-saving methods beside it.",
        panels,
        "The paper prints the fastest settings alone. Where those save memory it does not say whether free lunch would "
        "have been enough.",
        _SEARCH,
    )


def _least_published(
    places: Sequence[Place],
    naive: Mapping[Place, Cell],
    best: Mapping[Place, Cell],
    settings: dict[Place, PublishedSettings],
) -> State:
    if any(naive[place].state == "days" for place in places):
        return "naive"
    if any(place in settings and settings[place].readings() == [FREE_LUNCH] for place in places):
        return "free lunch"
    if any(best[place].state == "days" for place in places):
        return "memory saving"
    return "lost" if any(naive[place].state == "lost" for place in places) else "infeasible"


def _least_measured(search: Search) -> State:
    if search.naive is not None:
        return "naive"
    if search.free_lunch is not None:
        return "free lunch"
    return "memory saving" if search.best is not None else "infeasible"


def _any_feasible(there: Iterable[Cell]) -> State:
    states = {cell.state for cell in there}
    if "days" in states:
        return "feasible"
    return "lost" if "lost" in states else "infeasible"


def _outcome(statuses: Sequence[str]) -> State:
    if "ok" in statuses:
        return "feasible"
    return "infeasible" if set(statuses) == {"out_of_memory"} else "not known"


# Gains and spread of memory-saving settings, figures 4, 11 and 5


def _gains(searches: Sequence[Search]) -> Figure:
    rows = [
        Point(f"{search.model}, {search.machine}", "faster" if search.gain > 0 else "slower", 100 * search.gain)
        for search in _whole(searches)
        if search.gain is not None
    ]
    says = "What the best memory-saving settings take off the time of free lunch alone; below zero they are slower."
    return Figure(
        "4, 11",
        "Gains of memory-saving settings",
        says,
        _measured("Where the whole space was searched", "bars", "% less training time", rows, searches),
        "The paper draws these gains and does not print the numbers behind them.",
        _SEARCH,
    )


def _spread(searches: Sequence[Search]) -> Figure:
    panels, told = [], []
    for search in _whole(searches):
        spread = search.spread
        if spread is None:
            continue
        rows = [
            Point(_beside_free_lunch(settings), _kind(settings), step / spread.best)
            for settings, step in sorted(search.steps.items(), key=lambda item: item[1])
        ]
        place = f"{search.model} on {search.machine}"
        title = f"{place}: {len(rows)} settings"
        panels += _measured(title, "bars", "training time, best settings = 1", rows, [search])
        line = (
            f"{place}: the best settings are {spread.median / spread.best:.1f} times as fast as the median and "
            f"{spread.worst / spread.best:.1f} times as fast as the worst"
        )
        if search.free_lunch is not None:
            line += f"; the median takes {spread.median / search.free_lunch:.1f} times as long as free lunch alone"
        told.append(line + ".")
    return Figure(
        "5",
        "Best settings against median and worst",
        " ".join(told) or "How much the choice of settings matters.",
        panels,
        "The paper draws averages over its searches and does not print the searches.",
        _SEARCH,
    )


def _beside_free_lunch(settings: str) -> str:
    """What the settings have besides free lunch, which all of a search have."""
    return settings.removeprefix(f"{FREE_LUNCH.id}+").replace("+", ", ").replace(FREE_LUNCH.id, "free lunch alone")


def _kind(settings: str) -> str:
    return {"torch": "no sharding", "deepspeed": "ZeRO", "fsdp": "FSDP"}[Settings.parse(settings).library]


def _whole(searches: Iterable[Search]) -> list[Search]:
    return [search for search in searches if search.whole]


# GPU-days against the original trainings, figure 6


def _gpu_days(searches: Sequence[Search]) -> Figure:
    rows = []
    for row in gpu_days():
        note = f"{row.ratio.value:.1f} x less" if row.ratio.value > 1 else f"{1 / row.ratio.value:.1f} x more"
        rows.append(Point(row.model, "original training", row.original, ""))
        rows.append(Point(row.model, "best settings, 8 A100", row.best.value, note))
    measured = [
        Point(search.model, search.machine, search.best_days * search.world)
        for search in searches
        if search.scale == "paper" and search.best_days is not None
    ]
    ratios = [row.ratio.value for row in gpu_days()]
    return Figure(
        "6",
        "GPU-days against the original trainings",
        f"Published: between {min(ratios):.1f} and {max(ratios):.1f} times fewer GPU-days than the original trainings, "
        "which ran on other hardware: RoBERTa and ConvNeXt on V100, ViT on TPUv3 cores, Pythia on A100 of 40 GB.",
        [
            *_measured("Best settings here", "strips", "GPU-days", measured, searches),
            Panel("published", "Original and 8 A100", "pairs", "GPU-days", rows, "figure 6(a); Table 1"),
        ],
    )


# Cost against days, figures 7, 12 and 13


def _costs(searches: Sequence[Search]) -> list[Figure]:
    published = {
        model: {(cell.gpu, cell.gpus): float(cell.days) for cell in cells("1") if cell.model == model and cell.days}
        for model in MODELS
    }
    measured: dict[str, dict[tuple[str, int], float]] = {}
    priced = gpu_prices().keys()
    for search in searches:
        if search.best_days is None or not search.stands_for_paper or search.device not in priced:
            continue
        measured.setdefault(search.model, {})[search.device, search.count] = search.best_days
    one = "Pythia-1B"
    source = "Table 1; section 4.1 and Table 5 for prices"

    def panel(model: str, title: str, each: bool) -> Panel:
        rows = [*_trades(published[model], each), *_here(measured.get(model, {}), each)]
        x = "US dollars of an experiment" if each else "US dollars of the machine"
        if model not in measured:
            return Panel("published", title, "trades", x, rows, source)
        return Panel("measured and published", title, "trades", x, rows, f"{source}; trials.jsonl, authors' clock")

    trades = {(trade.gpu, trade.gpus): trade for trade in _trades(published[one], each=False)}
    fastest = min(trades.values(), key=lambda trade: trade.days)
    says = (
        f"Cost of the machine, and of the days of its five years that one training takes. The fastest for {one}, "
        f"{fastest.gpus} {fastest.gpu}, costs ${fastest.cost:,.0f} and takes {fastest.days:.0f} days; filled marks "
        "have no rival that is both cheaper and faster."
    )
    return [
        Figure(
            "7",
            f"Cost against days, {one}",
            says,
            [panel(one, "Cost of the machine", False), panel(one, "Cost of an experiment", True)],
        ),
        Figure(
            "12",
            "Cost of the machine against days, all models",
            "Both axes are logarithmic. Filled marks have no rival that is both cheaper and faster.",
            [panel(model, model, False) for model in MODELS],
        ),
        Figure(
            "13",
            "Cost of an experiment against days, all models",
            "The machine's cost, spread evenly over five years, times the days of the training.",
            [panel(model, model, True) for model in MODELS],
        ),
    ]


def _trades(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    found = _priced(days, each)
    return [replace(trade, kind="beaten") if beaten_by(trade, found) else trade for trade in found]


def _here(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    return [replace(trade, gpu=f"{trade.gpu}, here", kind="here") for trade in _priced(days, each)]


def _priced(days: dict[tuple[str, int], float], each: bool) -> list[Trade]:
    """The machines that have a price, each with that or with its share of an experiment."""
    prices, found = price_list(), []
    for (gpu, gpus), spent in days.items():
        price = machine_price(gpu, gpus, prices, "USD")
        if price is not None:
            cost = cost_a_day(price[0]) * spent if each else price[0]
            found.append(Trade(gpu, gpus, cost, spent, "best"))
    return found


# FLOPs and throughput, figure 9


def _compute(searches: Sequence[Search]) -> Figure:
    flops = []
    for row in training_compute().values():
        ours = training_flops(recipe_of(row.model))
        ratio = row.training_flops / ours
        flops.append(Point(row.model, "paper, figure 9", row.training_flops))
        flops.append(Point(row.model, "closed form", ours, _ratio(ratio)))
    peaks = []
    for peak in analytic_peaks().values():
        sheet = paper_peak(peak.gpu, "fp16") / 1e12
        ratio = peak.fp16_tflops / sheet
        peaks.append(Point(peak.gpu, "paper", peak.fp16_tflops))
        peaks.append(Point(peak.gpu, "data sheet", sheet, _ratio(ratio)))
    rates = [(search, rate) for search in searches if (rate := _rate(search)) is not None]
    unit, name = (1e12, "TFLOP/s") if any(rate >= 1e12 for _, rate in rates) else (1e9, "GFLOP/s")
    measured = [Point(search.model, search.machine, rate / unit) for search, rate in rates]
    return Figure(
        "9",
        "FLOPs and throughput",
        "FLOPs of each training, by the paper and by our closed forms, which a counted run confirms; the dense 16-bit "
        "peaks that the paper's analytic estimate takes, and the data sheets'.",
        [
            *_measured("Fastest settings here", "strips", f"model {name} a device", measured, searches, clock="true"),
            Panel("published", "FLOPs of a training", "pairs", "FLOPs", flops, "figure 9(a); closed forms in models/"),
            Panel(
                "published",
                "16-bit throughput of a GPU",
                "pairs",
                "TFLOP/s, dense",
                peaks,
                "authors' release v1.0.0; data sheets, see expected/gpus.csv",
            ),
        ],
    )


def _ratio(ratio: float) -> str:
    """The paper's figure over ours, where they differ by more than its rounding."""
    return "" if 0.9 < ratio < 1.1 else f"paper {ratio:.2g} x"


def _rate(search: Search) -> float | None:
    """Model FLOP/s of each device with the fastest settings, by the true clock."""
    rates = [trial.examples_per_second for trial in search.trials if trial.examples_per_second is not None]
    flops = models.find(search.recipe, search.scale).flops_per_example
    return max(rates) * flops / search.world if rates else None


def _measured(
    title: str,
    draw: Draw,
    x: str,
    rows: Sequence[Row],
    searches: Sequence[Search],
    reference: float | None = None,
    clock: Literal["authors'", "true"] = "authors'",
) -> list[Panel]:
    """A panel of measured rows, or none where there are none."""
    if not rows:
        return []
    scales = {search.scale for search in searches}
    source = f"trials.jsonl, {clock} clock"
    if scales == {"tiny"}:
        source += "; tiny twins of the recipes, which say nothing of the paper's"
    elif len(scales) > 1:
        source += "; some of the recipes are tiny twins"
    return [Panel("measured", title, draw, x, rows, source, reference)]


def _gpus() -> list[str]:
    """The paper's GPUs, as Table 1 orders them."""
    return list(dict.fromkeys(cell.gpu for cell in cells("1")))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
