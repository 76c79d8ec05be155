"""What follows from the paper's tables by arithmetic alone: speed-ups, feasibility, compute, analytic days.

Claims check these against the paper's sentences, and the report's figures draw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import models

from .expected import Cell, cells
from .hardware import Gpu, catalogue, peak_flops
from .interval import Interval
from .originals import analytic_peaks, originals, training_compute
from .recipe import Recipe
from .units import SECONDS_A_DAY

Place = tuple[str, str, int]  # model, GPU and number of GPUs, as the paper names them


@dataclass(frozen=True)
class Speedup:
    """Naive days over the days with the best settings, for a cell that both tables have."""

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


def by_place(table: Sequence[Cell]) -> dict[Place, Cell]:
    """Cells by model, GPU and number of GPUs."""
    return {(cell.model, cell.gpu, cell.gpus): cell for cell in table}


def recipe_of(model: str) -> Recipe:
    """The recipe at the paper's scale that the paper calls `model`. Raises KeyError for another name."""
    return {models.find(id).name: models.find(id) for id in models.IDS}[model]


def training_flops(recipe: Recipe) -> float:
    """FLOPs of the whole training, from the closed forms."""
    return float(recipe.flops_per_example) * recipe.batch_size * recipe.training_steps


def rounded_days(cell: Cell) -> Interval:
    """A cell's days, which are printed whole. The cell must have days."""
    assert cell.days is not None
    return Interval.rounded(cell.days)


def speedups() -> list[Speedup]:
    """Table 4 over Table 1, for every cell where both have days (figure 2)."""
    naive, best = by_place(cells("4")), by_place(cells("1"))
    return [
        Speedup(*place, cell.days, best[place].days, rounded_days(cell) / rounded_days(best[place]))  # type: ignore[arg-type]
        for place, cell in naive.items()
        if cell.days is not None and best[place].days is not None
    ]


def gpu_days() -> list[GpuDays]:
    """Figure 6(b): the original GPU-days over those of Table 1 on 8 A100, where the original is known."""
    best = by_place(cells("1"))
    found = []
    for original in originals():
        if original.gpus is None or original.days is None:
            continue
        days = rounded_days(best[original.model, "A100", 8]) * 8
        spent = float(original.gpus * original.days)
        found.append(GpuDays(original.model, spent, days, spent / days))
    return found


def analytic_days(model: str, gpu: str, gpus: int) -> float:
    """Days by the paper's analytic estimate: figure 9's FLOPs over the peak that it took, at full utilisation."""
    flops = {row.model: row.training_flops for row in training_compute()}[model]
    peaks = {row.gpu: row for row in analytic_peaks()}[gpu]
    tflops = peaks.tf32_tflops if recipe_of(model).precision == "fp32" else peaks.fp16_tflops
    return days_at_peak(flops, tflops * 1e12, gpus)


def corrected_days(model: str, gpu: str, gpus: int, tf32: bool = True) -> float:
    """The same with the closed forms' FLOPs and the data sheet's dense peak: no machine can be faster."""
    recipe = recipe_of(model)
    peak = peak_flops(paper_gpu(gpu), recipe.precision, tf32)
    assert peak is not None
    return days_at_peak(training_flops(recipe), peak, gpus)


def days_at_peak(flops: float, peak: float, gpus: int) -> float:
    """Days that so many FLOPs take on GPUs that reach their peak, in FLOP/s, all the time."""
    return flops / (peak * gpus) / SECONDS_A_DAY


def paper_gpu(name: str) -> Gpu:
    """The catalogue's entry of one of the paper's four GPUs. Raises KeyError for another name."""
    return {gpu.paper_name: gpu for gpu in catalogue() if gpu.paper_name}[name]
