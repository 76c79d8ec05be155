"""The paper's sentences on training times: Tables 1 and 4, figures 2, 3 and 6."""

from __future__ import annotations

from ..datafile import absent
from ..expected import COUNTS, Table
from ..findings import PYTHIA, GpuDays, Speedup, by_place, days_at_peak, gpu_days, speedups
from ..gpus import paper_gpus
from ..interval import Interval
from ..originals import analytic_peaks, training_compute
from . import facts
from .registry import recomputes
from .working import Row, Working, count, mean, shown


@recomputes("title-100-days", gpu="RTX 3090", gpus=2)
@recomputes("two-rtx-3090-days", gpu="RTX 3090", gpus=2)
@recomputes("four-h100-days", gpu="H100", gpus=4)
@recomputes("pythia-1b-on-4-a100", gpu="A100", gpus=4)
@recomputes("naive-pythia-1b-on-4-a100", gpu="A100", gpus=4, table="4")
@recomputes("eight-a100-days", gpu="A100", gpus=8)
@recomputes("eight-h100-days", gpu="H100", gpus=8)
@recomputes("largest-model-days", gpu="H100", gpus=8, model="Pythia-6.9B")
@recomputes("review-pythia-1b-on-4-a100", gpu="A100", gpus=4)
@recomputes("review-four-h100-days", gpu="H100", gpus=4)
@recomputes("review-eight-a100-days", gpu="A100", gpus=8)
@recomputes("review-eight-rtx-3090-days", gpu="RTX 3090", gpus=8)
def days(gpu: str, gpus: int, table: Table = "1", model: str = "Pythia-1B") -> Working:
    return facts.days(table, model, gpu, gpus).called(f"days of {model} on {gpus} {gpu}, Table {table}")


@recomputes("two-h100-in-the-same-time")
def two_h100() -> Working:
    other = days("A100", 4).value.value
    return days("H100", 2).told(f"4 A100 take {shown(other)} days, so the advice stands all the more")


@recomputes("original-pythia-1b", model="Pythia-1B")
@recomputes("original-roberta", model="RoBERTa")
def original(model: str) -> Working:
    return facts.original(model)


@recomputes("pythia-1b-gpu-days")
def best_gpu_days() -> Working:
    return (days("A100", 4) * 4).called("GPU-days of Pythia-1B on 4 A100")


@recomputes("pythia-1b-fewer-gpu-days")
def fewer_gpu_days() -> Working:
    return facts.original("Pythia-1B") / best_gpu_days()


@recomputes("clip-lag")
def clip_lag() -> Working:
    """A year of publication is known to within a year: the work appeared somewhere in it."""
    lag = facts.quantity("paper/clip_study_year", rounded_to=1) - facts.quantity("paper/clip_year", rounded_to=1)
    return lag.told("from the years in the paper's own references, at whose two ends the works may have appeared")


@recomputes("less-compute-than-originals")
@recomputes("less-compute-on-8-a100")
@recomputes("review-less-compute")
def less_compute() -> Working:
    """The mean over the models whose original says what it took: all but Mamba."""
    ratios = {row.model: _gpu_days(row) for row in gpu_days()}
    data_center = mean([ratio for model, ratio in ratios.items() if model != "ViT"])
    without = f"without ViT, whose original ran on TPUs, the mean of 7 is {shown(data_center.value.value)}"
    return mean(list(ratios.values())).told(without)


def _gpu_days(row: GpuDays) -> Working:
    step = f"{row.model}: {shown(row.original)} / {shown(row.best.value)} = {shown(row.ratio.value)}"
    sources = facts.original(row.model).rows + facts.days("1", row.model, "A100", 8).rows
    return Working(row.ratio, sources, (step,))


@recomputes("mean-speedup")
def mean_speedup() -> Working:
    """Figure 2 is of the Pythia models, wherever the naive settings can train."""
    rows = speedups()
    pythia = mean([_speedup(row) for row in rows if row.model in PYTHIA])
    every = mean([_speedup(row) for row in rows])
    return pythia.told(f"over all {len(rows)} cells of all models it is {shown(every.value.value)}")


def _speedup(row: Speedup) -> Working:
    step = f"{row.model} on {row.machine}: {row.naive_days} / {row.best_days} = {shown(row.ratio.value)}"
    return Working(row.ratio, facts.days("4", *row.place).rows + facts.days("1", *row.place).rows, (step,))


@recomputes("analytic-optimism")
def analytic_optimism() -> Working:
    """Naive days over analytic ones, for the Pythia models that figure 2 shows."""
    return _optimism({}).told("H100 at 756 TFLOP/s, the peak of the PCIe part; the nodes had the SXM part")


@recomputes("analytic-optimism-with-sxm-peak")
def analytic_optimism_sxm() -> Working:
    sxm = facts.figure("H100", "fp16_tflops", "TFLOP/s")
    pcie = analytic_peaks()["H100"].fp16_tflops
    found = _optimism({"H100": sxm})
    return found.told(
        f"H100 at {shown(sxm.value.value)} TFLOP/s in place of {shown(pcie)}: its analytic days are fewer"
    )


def _optimism(others: dict[str, Working]) -> Working:
    """The mean factor, with other peaks in TFLOP/s than the paper's for some GPUs."""
    ratios = []
    for (model, gpu, gpus), cell in by_place("4").items():
        if model not in PYTHIA or cell.days is None:
            continue
        printed, theirs = training_compute()[model], analytic_peaks()[gpu]
        flops = Interval.rounded(printed.training_flops, 10 ** (len(str(int(printed.training_flops))) - 2))
        peak = others.get(gpu) or Working.read(
            theirs.fp16_tflops, Row("analytic_peaks.csv", gpu, f"{theirs.fp16_tflops:g} TFLOP/s", theirs.source)
        )
        estimate = flops * days_at_peak(1.0, peak.value.value * 1e12, gpus)
        naive = facts.days("4", model, gpu, gpus)
        ratio = naive.value / estimate
        row = Row("figure9.csv", model, f"{shown(printed.training_flops)} FLOPs", printed.source)
        step = f"{model} on {gpus} {gpu}: {cell.days} / {shown(estimate.value)} analytic = {shown(ratio.value)}"
        ratios.append(Working(ratio, (*naive.rows, row, *peak.rows), (step,)))
    if not ratios:
        absent("table4.csv", "days", "any Pythia model")
    return mean(ratios)


@recomputes("naive-infeasible", table="4")
@recomputes("optimised-infeasible", table="1")
def infeasible(table: Table) -> Working:
    """Figure 3: a Pythia model on a GPU is infeasible if it is so on 2, on 4 and on 8 of them."""
    places, lacking = [], 0
    for model in PYTHIA:
        for gpu in paper_gpus():
            found = [by_place(table)[model, gpu, gpus] for gpus in COUNTS[1:]]
            never = all(cell.state == "infeasible" for cell in found)
            lacking += never
            verdict = "infeasible" if never else "feasible"
            step = f"{model} on {gpu}, 2, 4 and 8 GPUs: {verdict}"
            places.append(Working(Interval.exact(never), tuple(facts.cell_row(cell) for cell in found), (step,)))
    return count(lacking, places, "are infeasible")


@recomputes("largest-model-on-1-gpu")
def largest_model_on_1_gpu() -> Working:
    """Figure 10: GPUs of which one alone can train Pythia-6.9B."""
    found = [by_place("1")["Pythia-6.9B", gpu, 1] for gpu in paper_gpus()]
    rows = [Working(Interval.exact(0), (facts.cell_row(cell),)) for cell in found]
    return count(sum(cell.state == "days" for cell in found), rows, "GPUs can train it alone")


@recomputes("feasible-on-more-gpus")
def feasible_on_more_gpus() -> Working:
    """Figure 10: cells with several GPUs that no settings can train."""
    found = [cell for cell in by_place("1").values() if cell.gpus > 1]
    rows = [Working(Interval.exact(0), (facts.cell_row(cell),)) for cell in found]
    return count(sum(cell.state != "days" for cell in found), rows, "cells with 2, 4 or 8 GPUs are infeasible")


@recomputes("eight-h100-fastest")
def eight_h100_fastest() -> Working:
    """Other machines that train Pythia-1B as fast."""
    best = facts.days("1", "Pythia-1B", "H100", 8)
    others = [found for machine, (_, found) in facts.machines().items() if machine != ("H100", 8)]
    as_fast = sum(found.value.value <= best.value.value for found in others)
    return count(as_fast, [best, *others], "machines are as fast as 8 H100")
