"""Claims that no formula states: means over cells, counts of rows, and choices among machines."""

from __future__ import annotations

from dataclasses import replace

from ..datafile import absent
from ..formats import Interval, counted
from ..lab.specification import T4, T4_2_CPUS, T4_16_CPUS, V100
from ..models.recipe import Images, Recipe, Text
from ..paper.arithmetic import PYTHIA, GpuDays, Speedup, by_place, days_at_peak, gpu_days, recipe_of, speedups
from ..paper.gpus import paper_gpus
from ..paper.tables import COUNTS, Table, analytic_peaks, printed_recipes, published_settings, training_compute
from . import numbers
from .claim import recomputes
from .working import SourceRow, Working, count, mean, shown


@recomputes("less-compute-than-originals")
@recomputes("less-compute-on-8-a100")
@recomputes("review-less-compute")
def less_compute() -> Working:
    """Return the mean of original GPU-days over those on 8 A100, where the original is known: all but Mamba."""
    ratios = {row.model: _gpu_days(row) for row in gpu_days()}
    data_center = mean([ratio for model, ratio in ratios.items() if model != "ViT"])
    without = f"without ViT, whose original ran on TPUs, the mean of 7 is {shown(data_center.value.value)}"
    return mean(list(ratios.values())).with_note(without)


def _gpu_days(row: GpuDays) -> Working:
    ratio = numbers.original(row.model) / (numbers.printed_days("1", row.model, "A100", 8) * 8)
    return replace(ratio.called(row.model), steps=ratio.called(row.model).steps[-1:])


@recomputes("mean-speedup")
def mean_speedup() -> Working:
    """Return Figure 2's mean speed-up, over the Pythia models, wherever the naive settings can train."""
    rows = speedups()
    pythia = mean([_speedup(row) for row in rows if row.model in PYTHIA])
    every = mean([_speedup(row) for row in rows])
    return pythia.with_note(f"over all {len(rows)} cells of all models it is {shown(every.value.value)}")


def _speedup(row: Speedup) -> Working:
    ratio = numbers.printed_days("4", *row.place) / numbers.printed_days("1", *row.place)
    return ratio.called(f"{row.model} on {row.machine}")


@recomputes("analytic-optimism")
def analytic_optimism() -> Working:
    """Return the mean of naive days over analytic ones, for the Pythia models of Figure 2."""
    return _optimism({}).with_note("H100 at 756 TFLOP/s, the peak of the PCIe part; the nodes had the SXM part")


@recomputes("analytic-optimism-with-sxm-peak")
def analytic_optimism_sxm() -> Working:
    sxm = numbers.datasheet("H100", "fp16_tflops", "TFLOP/s")
    pcie = analytic_peaks()["H100"].fp16_tflops
    found = _optimism({"H100": sxm})
    return found.with_note(
        f"H100 at {shown(sxm.value.value)} TFLOP/s in place of {shown(pcie)}: its analytic days are fewer"
    )


def _optimism(others: dict[str, Working]) -> Working:
    """Return that mean with other peaks than the paper's for some GPUs, in TFLOP/s."""
    ratios = []
    for (model, gpu, gpus), cell in by_place("4").items():
        if model not in PYTHIA or cell.days is None:
            continue
        printed, theirs = training_compute()[model], analytic_peaks()[gpu]
        compute = Working.read(
            printed.training_flops,
            SourceRow("figure9.csv", model, f"{shown(printed.training_flops)} FLOPs", printed.source),
            rounded_to=10 ** (len(str(int(printed.training_flops))) - 2),
        )
        peak = others.get(gpu) or Working.read(
            theirs.fp16_tflops, SourceRow("analytic_peaks.csv", gpu, f"{theirs.fp16_tflops:g} TFLOP/s", theirs.source)
        )
        estimate = compute * days_at_peak(1.0, peak.value.value * 1e12, gpus)
        ratio = numbers.printed_days("4", model, gpu, gpus) / estimate
        took = f"{cell.days} / {shown(estimate.value.value)} analytic = {shown(ratio.value.value)}"
        step = f"{model} on {gpus} {gpu}: {took}"
        ratios.append(replace(ratio.after(peak), steps=(step,)))
    if not ratios:
        absent("table4.csv", "days", "any Pythia model")
    return mean(ratios)


@recomputes("naive-infeasible", table="4")
@recomputes("optimised-infeasible", table="1")
def infeasible(table: Table) -> Working:
    """Count Figure 3's infeasible pairs of Pythia model and GPU: those that are infeasible on 2, on 4 and on 8 GPUs."""
    places, lacking = [], 0
    for model in PYTHIA:
        for gpu in paper_gpus():
            found = [by_place(table)[model, gpu, gpus] for gpus in COUNTS[1:]]
            never = all(cell.state == "infeasible" for cell in found)
            lacking += never
            verdict = "infeasible" if never else "feasible"
            step = f"{model} on {gpu}, 2, 4 and 8 GPUs: {verdict}"
            places.append(Working(Interval.exact(never), tuple(numbers.cell_row(cell) for cell in found), (step,)))
    return count(lacking, places, "are infeasible")


@recomputes("largest-model-on-1-gpu")
def largest_model_on_1_gpu() -> Working:
    """Count Figure 10's GPUs of which one alone can train Pythia-6.9B."""
    found = [by_place("1")["Pythia-6.9B", gpu, 1] for gpu in paper_gpus()]
    rows = [Working(Interval.exact(0), (numbers.cell_row(cell),)) for cell in found]
    return count(sum(cell.state == "days" for cell in found), rows, "GPUs can train it alone")


@recomputes("feasible-on-more-gpus")
def feasible_on_more_gpus() -> Working:
    """Count Figure 10's cells with several GPUs that no settings can train."""
    found = [cell for cell in by_place("1").values() if cell.gpus > 1]
    rows = [Working(Interval.exact(0), (numbers.cell_row(cell),)) for cell in found]
    return count(sum(cell.state != "days" for cell in found), rows, "cells with 2, 4 or 8 GPUs are infeasible")


@recomputes("eight-h100-fastest")
def eight_h100_fastest() -> Working:
    """Count the other machines that train Pythia-1B at least as fast as 8 H100."""
    best = numbers.printed_days("1", "Pythia-1B", "H100", 8)
    others = [found for machine, (_, found) in numbers.machines().items() if machine != ("H100", 8)]
    as_fast = sum(found.value.value <= best.value.value for found in others)
    return count(as_fast, [best, *others], "machines are as fast as 8 H100")


@recomputes("budget-40k-days", budget=40_000)
@recomputes("review-budget-40k", budget=40_000)
@recomputes("review-budget-130k", budget=130_000)
def fastest_within(budget: float) -> Working:
    """Return the fewest days of Pythia-1B among the machines that the budget can buy."""
    within = [(*name, *numbers) for name, numbers in numbers.machines().items() if numbers[0].value.value <= budget]
    gpu, gpus, cost, days = min(within, key=lambda machine: machine[3].value.value)
    others = [number for *_, its_cost, its_days in within for number in (its_cost, its_days)]
    return days.after(*others).saying(
        f"the fastest of the {len(within)} machines up to {shown(budget)} USD: {gpus} {gpu} at "
        f"{shown(cost.value.value)} USD, {shown(days.value.value)} days"
    )


@recomputes("table-3")
def table_3() -> Working:
    """Count the entries of Table 3 that differ from the authors' release, but for parameters and ViT's tokens."""
    checked, wrong = [], 0
    for printed in printed_recipes().values():
        recipe = recipe_of(printed.model)
        ours = _entries(recipe)
        for name, value in ours.items():
            table = getattr(printed, name)
            same = table == value if isinstance(value, str) or table is None else _rounds(value, table)
            wrong += not same
            step = f"{printed.model}, {name}: {table} printed, {value} in the release"
            rows = (SourceRow("table3.csv", f"{printed.model}, {name}", str(table), printed.source),)
            checked.append(Working(Interval.exact(not same), rows, () if same else (step,)))
    return count(wrong, checked, "entries differ")


def _entries(recipe: Recipe) -> dict[str, int | str | None]:
    found: dict[str, int | str | None] = {
        "batch_size": recipe.batch_size,
        "training_steps": recipe.training_steps,
        "mixed_precision": None if recipe.precision == "fp32" else recipe.precision,
        "optimizer": recipe.optimizer.name,
    }
    if isinstance(recipe.inputs, Text):
        found |= {"sequence_length": recipe.inputs.sequence, "vocabulary": recipe.inputs.vocabulary}
    if isinstance(recipe.inputs, Images):
        found |= {"image_size": recipe.inputs.size, "classes": recipe.inputs.classes}
    return found


def _rounds(value: int | None, printed: int) -> bool:
    """Return True where a number equals the printed one, or rounds to it in thousands."""
    return value is not None and printed in (value, round(value, -3))


@recomputes("appendix-j-batch-sizes")
def batch_sizes() -> Working:
    """Count the rows of Appendix J whose GPUs, MBS and GAS do not multiply to the batch size."""
    wrong, rows = 0, []
    for row in published_settings():
        product, batch = row.gpus * row.mbs * row.gas, printed_recipes()[row.model].batch_size
        wrong += product != batch
        value = f"{row.gpus} x {row.mbs} x {row.gas} = {product}, batch size {batch}"
        rows.append(Working(Interval.exact(product), (_row_j(*row.place, value, row.source),)))
    return count(wrong, rows, "rows have another GPUs x MBS x GAS than the batch size")


@recomputes("appendix-j-powers-of-two")
def powers_of_two() -> Working:
    """Count the rows of Appendix J whose MBS is not a power of two."""
    wrong = sum(row.mbs.bit_count() != 1 for row in published_settings())
    rows = [Working.read(row.mbs, _row_j(*row.place, f"MBS {row.mbs}", row.source)) for row in published_settings()]
    return count(wrong, rows, "rows have an MBS that is no power of two")


@recomputes("appendix-j-leaves-out")
def left_out() -> Working:
    """Count the cells that Appendix J leaves out although Table 1 has days, or has although Table 1 has none."""
    there = {row.place for row in published_settings()}
    found = []
    wrong = 0
    for place, cell in by_place("1").items():
        differs = (place in there) != (cell.state == "days")
        wrong += differs
        value = f"{'' if place in there else 'not '}in Appendix J, {counted(cell.days or 0, 'day')} in Table 1"
        found.append(Working(Interval.exact(differs), (_row_j(*place, value, cell.source),)))
    return count(wrong, found, "cells are in one of Appendix J and Table 1 alone")


def _row_j(model: str, gpu: str, gpus: int, value: str, source: str) -> SourceRow:
    return SourceRow("appendix_j.csv", f"{model} on {gpus} {gpu}", value, source)


@recomputes("review-budget-160k")
def cheaper_and_as_fast() -> Working:
    """Count machines that cost less than 8 A100 and train Pythia-1B in as few days; a "good balance" means none."""
    machines = numbers.machines()
    cost, days = machines["A100", 8]
    better = {
        f"{gpus} {gpu} at {shown(its_cost.value.value)} USD in {shown(its_days.value.value)} days"
        for (gpu, gpus), (its_cost, its_days) in machines.items()
        if its_cost.value.value < cost.value.value and its_days.value.value <= days.value.value
    }
    of = [days.after(cost) for cost, days in machines.values()]
    found = count(len(better), of, "machines are cheaper than 8 A100 and as fast")
    here = f"8 A100 at {shown(cost.value.value)} USD, above that budget, in {shown(days.value.value)} days"
    return found.with_note(f"{here}; {' and '.join(sorted(better)) or 'no other'}")


@recomputes("review-under-50k", gpus=("RTX 3090",), least=0, most=50_000)
@recomputes("review-over-100k", gpus=("A100", "H100"), least=100_000, most=float("inf"))
def days_lost(gpus: tuple[str, ...], least: float, most: float) -> Working:
    """Return the days of Pythia-1B that a price range's fastest advised machine takes more than its fastest one."""
    within = {name: numbers for name, numbers in numbers.machines().items() if least < numbers[0].value.value < most}
    advised = [days for (name, _), (_, days) in within.items() if name in gpus]
    if not advised:
        absent("table5.csv", "price that puts a machine in the range that the claim is of", " and ".join(gpus))
    fastest = min(within, key=lambda name: within[name][1].value.value)
    best, ours = within[fastest][1], min(advised, key=lambda days: days.value.value)
    lost = (ours - best).called(
        f"days more than {fastest[1]} {fastest[0]} at {shown(within[fastest][0].value.value)} USD"
    )
    return lost.after(*(cost for cost, _ in within.values()))


@recomputes("review-50k-to-100k")
def a6000_machines() -> Working:
    """Count the machines with A6000 that cost $50k to $100k."""
    costs = {name: cost for name, (cost, _) in numbers.machines().items() if name[0] == "A6000"}
    there = sum(50_000 <= cost.value.value <= 100_000 for cost in costs.values())
    dearest = max(cost.value.value for cost in costs.values())
    found = count(there, list(costs.values()), "machines with A6000 cost 50,000 to 100,000 USD")
    return found.with_note(f"the dearest of them costs {shown(dearest)} USD")


@recomputes("lab-cpus-underestimated", sign=-1, resources=(T4_2_CPUS, T4_16_CPUS))
@recomputes("lab-gpus-overestimated", sign=1, resources=(T4, V100))
def errors(sign: int, resources: tuple[str, ...]) -> Working:
    """Count the predictions that are not off in the direction that the lab report states."""
    found, wrong = [], 0
    for name in resources:
        run, row = numbers.lab(name, 20)
        if run.predicted_seconds is None:
            absent("lab.csv", "predicted seconds", (name, 20))
        off = run.predicted_seconds - run.seconds
        wrong += sign * off <= 0
        step = f"{name}: {shown(run.predicted_seconds)} - {shown(run.seconds)} = {shown(off)} s"
        found.append(Working(Interval.exact(off), (row,), (step,)))
    return count(wrong, found, "predictions are off in the other direction")
