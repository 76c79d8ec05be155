"""The paper's figures, from measured records where there are any, from its printed numbers, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

import models

from ..findings import PYTHIA, analytic_days, gpu_days, paper_peak, recipe_of, speedups, training_flops
from ..formats import counted, from_to
from ..originals import analytic_peaks, training_compute
from ..search import Search
from ..settings import FREE_LUNCH, Settings
from .costs import costs
from .feasibility import feasibility, methods
from .panels import SEARCH, Figure, Panel, Point, Reference, measured_panels


def figures(searches: Sequence[Search]) -> list[Figure]:
    """All figures, in the paper's order; empty `searches` leave the published numbers alone."""
    return [
        _speedups(searches),
        feasibility(searches),
        _gains(searches),
        _spread(searches),
        _gpu_days(searches),
        *costs(searches),
        _compute(searches),
        methods(searches),
    ]


def _speedups(searches: Sequence[Search]) -> Figure:
    """Figure 2: speed-ups over naive settings."""
    published = [speedup for speedup in speedups() if speedup.model in PYTHIA]
    rows = []
    for speedup in published:
        note = f"{speedup.model}, {counted(speedup.gpus, 'GPU')}"
        analytic = speedup.naive_days / analytic_days(speedup.model, speedup.gpu, speedup.gpus)
        rows.append(Point(speedup.gpu, "best settings", speedup.ratio.value, note))
        rows.append(Point(speedup.gpu, "analytic estimate", analytic, note))
    measured = []
    for search in searches:
        for series, step in (("free lunch alone", search.free_lunch), ("best settings", search.best)):
            if search.naive is not None and step is not None:
                measured.append(Point(search.model, series, search.naive / step, search.machine))
    mean, optimistic = (
        fmean([row.value for row in rows if row.series == series]) for series in ("best settings", "analytic estimate")
    )
    says = (
        f"From the printed days: with the best settings a training step of Pythia is {mean:.1f} times as fast as with "
        f"naive ones, on average over the {len(published)} cells that have both; the analytic estimate promises "
        f"{optimistic:.1f} times."
    )
    here = [row.value for row in measured if row.series == "best settings" and row.group in PYTHIA]
    if here:
        says += f" Measured here, for Pythia: {_times(here)}."
    title = "Speed-ups over naive settings"
    x, naive = "times as fast as naive settings", Reference(1.0, "naive settings")
    return Figure(
        "2",
        title,
        says,
        [
            *measured_panels("Each recipe here", "strips", x, measured, searches, naive),
            Panel(
                "published",
                "Pythia on the paper's GPUs",
                "strips",
                x,
                rows,
                "Tables 1 and 4; section 3.1",
                naive,
                groups="GPU",
                notes="cell",
            ),
        ],
    )


def _times(ratios: Sequence[float]) -> str:
    """A ratio, or the mean of those of several places, and its ends."""
    told = f"{fmean(ratios):.2f} times"
    if len(ratios) == 1:
        return told
    return f"{told} (mean of {len(ratios)} pairs of model and machine, {from_to(ratios, '.2f')})"


def _gains(searches: Sequence[Search]) -> Figure:
    """Figures 4 and 11: what the best memory-saving settings gain over free lunch alone."""
    rows = [
        Point(f"{search.model}, {search.machine}", "faster" if search.gain > 0 else "slower", 100 * search.gain)
        for search in _whole(searches)
        if search.gain is not None
    ]
    says = (
        "What the best memory-saving settings take off the time of free lunch alone: 10 is a tenth less, -10 a tenth "
        "more, so that they are slower."
    )
    x = "% less training time (below 0: % more)"
    return Figure(
        "4, 11",
        "Gains of memory-saving settings",
        says,
        measured_panels("Where the whole space was searched", "bars", x, rows, searches, groups="place"),
        "The paper draws these gains and does not print the numbers behind them.",
        SEARCH,
    )


def _spread(searches: Sequence[Search]) -> Figure:
    """Figure 5: the best memory-saving settings against the median and the worst of them."""
    panels: list[Panel] = []
    over_median, over_worst, over_free_lunch = list[float](), list[float](), list[float]()
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
        x = "time, best saving memory = 1"
        panels += measured_panels(title, "bars", x, rows, [search], groups="settings")
        over_median.append(spread.median / spread.best)
        over_worst.append(spread.worst / spread.best)
        if search.free_lunch is not None:
            over_free_lunch.append(spread.median / search.free_lunch)
    says = "How much the choice of settings matters."
    if panels:
        says = (
            f"The best memory-saving settings are {_times(over_median)} as fast as the median of them and "
            f"{_times(over_worst)} as fast as the worst"
        )
        if over_free_lunch:
            says += f"; the median takes {_times(over_free_lunch)} as long as free lunch alone"
        says += "."
    return Figure(
        "5",
        "Best memory-saving settings against median and worst",
        says,
        panels,
        # The claims average over the same; ours are over every search here, of whatever model on however many GPUs.
        "The paper draws averages over its searches, of Pythia on several GPUs, and does not print the searches.",
        SEARCH,
    )


def _beside_free_lunch(settings: str) -> str:
    """What the settings have besides free lunch, which all of a search have."""
    return settings.removeprefix(f"{FREE_LUNCH.id}+").replace("+", ", ").replace(FREE_LUNCH.id, "free lunch alone")


def _kind(settings: str) -> str:
    parsed = Settings.parse(settings)
    if not parsed.saves_memory:
        return "free lunch alone"
    return {"torch": "no sharding", "deepspeed": "ZeRO", "fsdp": "FSDP"}[parsed.library]


def _whole(searches: Iterable[Search]) -> list[Search]:
    return [search for search in searches if search.whole]


def _gpu_days(searches: Sequence[Search]) -> Figure:
    """Figure 6: GPU-days against the original trainings."""
    rows = []
    for row in gpu_days():
        note = f"{row.ratio.value:.1f} x less" if row.ratio.value > 1 else f"{1 / row.ratio.value:.1f} x more"
        rows.append(Point(row.model, "original training", row.original, ""))
        rows.append(Point(row.model, "best settings, 8 A100", row.best.value, note))
    measured = [
        Point(search.model, search.machine, search.best_days * search.world)
        for search in searches
        if search.scale == "paper" and search.device != "cpu" and search.best_days is not None
    ]
    ratios = [row.ratio.value for row in gpu_days()]
    return Figure(
        "6",
        "GPU-days against the original trainings",
        f"From the printed days: between {min(ratios):.1f} and {max(ratios):.1f} times fewer GPU-days than the "
        "original trainings, which ran on other hardware: RoBERTa and ConvNeXt on V100, ViT on TPUv3 cores, Pythia on "
        "A100 of 40 GB.",
        [
            *measured_panels("Best settings here", "strips", "GPU-days", measured, searches),
            Panel("published", "Original and 8 A100", "pairs", "GPU-days", rows, "figure 6(a); Table 1"),
        ],
    )


def _compute(searches: Sequence[Search]) -> Figure:
    """Figure 9: FLOPs of a training, and throughput."""
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
            *measured_panels(
                "Fastest settings here", "strips", f"model {name} a device", measured, searches, clock="true"
            ),
            Panel("computed", "FLOPs of a training", "pairs", "FLOPs", flops, "figure 9(a); closed forms in models/"),
            Panel(
                "computed",
                "16-bit throughput of a GPU",
                "pairs",
                "TFLOP/s, dense",
                peaks,
                "authors' release v1.0.0; data sheets, see expected/gpus.csv",
                groups="GPU",
            ),
        ],
    )


def _ratio(ratio: float) -> str:
    """The paper's figure over ours, where they differ by more than its rounding."""
    return "" if 0.9 < ratio < 1.1 else f"paper {ratio:.2g} x"


def _rate(search: Search) -> float | None:
    """Model FLOP/s of each device with the fastest settings, by the true clock."""
    rates = [trial.examples_per_second for trial in search.standing.values() if trial.examples_per_second]
    flops = models.find(search.recipe, search.scale).flops_per_example
    return max(rates) * flops / search.world if rates else None
