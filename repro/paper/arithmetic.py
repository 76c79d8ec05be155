"""Values computed from the paper's tables by arithmetic alone: speed-ups, feasibility, compute, analytic days.

Claims compare these with the paper's sentences, and the report's figures plot them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .. import models
from ..datafile import Keyed, absent, read_once
from ..formats import SECONDS_A_DAY, Interval
from ..models.recipe import Precision, Recipe
from .gpus import Gpu, by_name, peak_flops
from .tables import AtPlace, Cell, Place, Table, analytic_peaks, cells, original_trainings, training_compute

PYTHIA = tuple(models.find(id).name for id in models.PYTHIAS)  # as the paper spells them


@dataclass(frozen=True)
class Speedup(AtPlace):
    """Naive days divided by the days with the best settings, for a cell that has days in both tables."""

    model: str
    gpu: str
    gpus: int
    naive_days: int
    best_days: int
    ratio: Interval


@dataclass(frozen=True)
class GpuDays:
    """GPU-days of the original training, and of the best settings on 8 A100."""

    model: str
    original: float
    best: Interval
    ratio: Interval


@read_once
def by_place(table: Table) -> Mapping[Place, Cell]:
    """Return the cells of Table 1 or 4 by model, GPU and number of GPUs."""
    return Keyed(f"table{table}.csv", {cell.place: cell for cell in cells(table)})


def recipe_of(model: str) -> Recipe:
    """Return the recipe at the paper's scale for the paper's name of a model. Raise KeyError for another name."""
    return models.find(dict(zip(models.names(), models.IDS, strict=True))[model])


def training_flops(recipe: Recipe) -> float:
    """Return the FLOPs of the whole training, from the closed forms in models/."""
    return float(recipe.flops_per_example) * recipe.batch_size * recipe.training_steps


def rounded_days(cell: Cell) -> Interval:
    """Return the interval of days that the paper rounds to a cell's whole number. The cell must have days."""
    assert cell.days is not None
    return Interval.rounded(cell.days)


def speedups() -> list[Speedup]:
    """Return Table 4's days over Table 1's for every cell that has days in both (figure 2). Raise UserError if no such
    cell is a Pythia model's."""
    naive, best = by_place("4"), by_place("1")
    found = [
        Speedup(*place, cell.days, best[place].days, rounded_days(cell) / rounded_days(best[place]))  # type: ignore[arg-type]
        for place, cell in naive.items()
        if cell.days is not None and best[place].days is not None
    ]
    if not any(speedup.model in PYTHIA for speedup in found):
        absent("table4.csv", "days that Table 1 has too", "any Pythia model")
    return found


def gpu_days() -> list[GpuDays]:
    """Return the original GPU-days over those of Table 1 on 8 A100, for models with both (figure 6(b))."""
    found = []
    for original in original_trainings().values():
        cell = by_place("1")[original.model, "A100", 8]
        if original.gpus is None or original.days is None or cell.days is None:
            continue
        days = rounded_days(cell) * 8
        spent = float(original.gpus * original.days)
        found.append(GpuDays(original.model, spent, days, spent / days))
    return found


def analytic_days(model: str, gpu: str, gpus: int) -> float:
    """Return the paper's analytic estimate of days: figure 9's FLOPs at 100 % of the peak that the paper uses."""
    flops, peaks = training_compute()[model].training_flops, analytic_peaks()[gpu]
    tflops = peaks.tf32_tflops if recipe_of(model).precision == "fp32" else peaks.fp16_tflops
    return days_at_peak(flops, tflops * 1e12, gpus)


def days_at_peak(flops: float, peak: float, gpus: int) -> float:
    """Return the days that this many FLOPs take on GPUs that always run at their peak, in FLOP/s."""
    return flops / (peak * gpus) / SECONDS_A_DAY


def paper_gpu(name: str) -> Gpu:
    """Return the catalogue's entry for one of the paper's GPUs. Raise UserError for another name."""
    return by_name()[name]


def paper_peak(name: str, precision: Precision, tf32: bool = True) -> float:
    """Return the data sheet's dense peak of one of the paper's GPUs, in FLOP/s. Raise UserError if it has none."""
    peak = peak_flops(paper_gpu(name), precision, tf32)
    if peak is None:
        absent("gpus.csv", f"peak in {'TF32' if precision == 'fp32' and tf32 else precision}", name)
    return peak
