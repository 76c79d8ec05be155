"""Numbers that no arithmetic on named ones states: means over cells, counts of rows, and choices among machines."""

from __future__ import annotations

from functools import partial
from statistics import fmean

from ..datafile import absent
from ..formats import counted
from ..lab.specification import T4, T4_2_CPUS, T4_16_CPUS, V100, lab_runs
from ..models.recipe import Images, Recipe, Text
from ..paper.arithmetic import PYTHIA, by_place, days_at_peak, gpu_days, recipe_of, speedups
from ..paper.gpus import paper_gpus
from ..paper.tables import COUNTS, Table, analytic_peaks, printed_recipes, published_settings, training_compute
from . import numbers
from .numbers import NAMES, named
from .working import SourceRow, Working, count, fact, mean, shown


@named("mean of original GPU-days over those on 8 A100")
def less_compute() -> Working:
    """Return the mean of original GPU-days over those on 8 A100, where the original is known: all but Mamba."""
    ratios = {}
    for model in (row.model for row in gpu_days()):
        ratio = numbers.original(model) / (numbers.printed_days("1", model, "A100", 8) * 8)
        ratios[model] = ratio.with_steps(ratio.called(model).steps[-1])
    data_center = mean([ratio for model, ratio in ratios.items() if model != "ViT"])
    without = f"without ViT, whose original ran on TPUs, the mean of 7 is {shown(data_center.value.value)}"
    return mean(list(ratios.values())).with_note(without)


@named("mean speed-up of Pythia")
def mean_speedup() -> Working:
    """Return Figure 2's mean speed-up, over the Pythia models, wherever the naive settings can train."""
    every = speedups()
    pythia = [
        (numbers.printed_days("4", *row.place) / numbers.printed_days("1", *row.place)).called(
            f"{row.model} on {row.machine}"
        )
        for row in every
        if row.model in PYTHIA
    ]
    note = f"over all {len(every)} cells of all models it is {shown(fmean(row.ratio.value for row in every))}"
    return mean(pythia).with_note(note)


@named("mean of naive days over analytic ones, {board} H100")
def analytic_optimism(board: str) -> Working:
    """Return the mean of naive days over analytic ones, for the Pythia models of Figure 2: with the paper's peaks,
    of the PCIe part for the H100, or with that of the SXM part, which the nodes had."""
    known = analytic_peaks()
    peaks = {}
    for gpu in dict.fromkeys((*known, "H100")):  # a row that is missing is named
        text = f"{known[gpu].fp16_tflops:g} TFLOP/s"
        peaks[gpu] = Working.read(known[gpu].fp16_tflops, SourceRow("analytic_peaks.csv", gpu, text, known[gpu].source))
    note = "H100 at 756 TFLOP/s, the peak of the PCIe part; the nodes had the SXM part"
    if board == "SXM":
        pcie, peaks["H100"] = peaks["H100"], numbers.datasheet("H100", "fp16_tflops", "TFLOP/s")
        faster = shown(peaks["H100"].value.value)
        note = f"H100 at {faster} TFLOP/s in place of {shown(pcie.value.value)}: its analytic days are fewer"
    ratios = []
    for (model, gpu, gpus), cell in by_place("4").items():
        if model not in PYTHIA or cell.days is None:
            continue
        printed = training_compute()[model]
        compute = Working.read(
            printed.training_flops,
            SourceRow("figure9.csv", model, f"{shown(printed.training_flops)} FLOPs", printed.source),
            rounded_to=10 ** (len(str(int(printed.training_flops))) - 2),
        )
        estimate = compute * days_at_peak(1.0, peaks[gpu].value.value * 1e12, gpus)
        ratio = numbers.printed_days("4", model, gpu, gpus) / estimate
        took = f"{cell.days} / {shown(estimate.value.value)} analytic = {shown(ratio.value.value)}"
        ratios.append(ratio.after(peaks[gpu]).with_steps(f"{model} on {gpus} {gpu}: {took}"))
    if not ratios:
        absent("table4.csv", "days", "any Pythia model")
    return mean(ratios).with_note(note)


@named("infeasible pairs of Pythia and GPU, Table {table}")
def infeasible(table: Table) -> Working:
    """Count Figure 3's infeasible pairs of Pythia model and GPU: those that are infeasible on 2, on 4 and on 8 GPUs."""
    pairs = []
    for model in PYTHIA:
        for gpu in paper_gpus():
            cells = [by_place(table)[model, gpu, gpus] for gpus in COUNTS[1:]]
            never = all(cell.state == "infeasible" for cell in cells)
            step = f"{model} on {gpu}, 2, 4 and 8 GPUs: {'infeasible' if never else 'feasible'}"
            pairs.append(fact(never, *map(numbers.cell_row, cells), step=step))
    return count(pairs, "are infeasible")


@named("GPUs that train Pythia-6.9B alone")
def largest_model_on_1_gpu() -> Working:
    """Count Figure 10's GPUs of which one alone can train Pythia-6.9B."""
    cells = [by_place("1")["Pythia-6.9B", gpu, 1] for gpu in paper_gpus()]
    return count([fact(cell.state == "days", numbers.cell_row(cell)) for cell in cells], "GPUs can train it alone")


@named("infeasible cells of several GPUs, Table 1")
def feasible_on_more_gpus() -> Working:
    """Count Figure 10's cells with several GPUs that no settings can train."""
    cells = [cell for cell in by_place("1").values() if cell.gpus > 1]
    lacking = [fact(cell.state != "days", numbers.cell_row(cell)) for cell in cells]
    return count(lacking, "cells with 2, 4 or 8 GPUs are infeasible")


@named("entries of Table 3 unlike the release")
def table_3() -> Working:
    """Count the entries of Table 3 that differ from the authors' release, but for parameters and ViT's tokens."""
    entries = []
    for printed in printed_recipes().values():
        for name, value in _released(recipe_of(printed.model)).items():
            table = getattr(printed, name)
            rounded = round(value, -3) if isinstance(value, int) and table is not None else value
            differs = table not in (value, rounded)
            step = f"{printed.model}, {name}: {table} printed, {value} in the release"
            row = SourceRow("table3.csv", f"{printed.model}, {name}", str(table), printed.source)
            entries.append(fact(differs, row, step=step if differs else ""))
    return count(entries, "entries differ")


def _released(recipe: Recipe) -> dict[str, int | str | None]:
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


@named("rows of Appendix J with another batch size")
def batch_sizes() -> Working:
    """Count the rows of Appendix J whose GPUs, MBS and GAS do not multiply to the batch size."""
    rows = []
    for row in published_settings():
        product, batch = row.gpus * row.mbs * row.gas, printed_recipes()[row.model].batch_size
        text = f"{row.gpus} x {row.mbs} x {row.gas} = {product}, batch size {batch}"
        rows.append(fact(product != batch, _row_j(*row.place, text, row.source)))
    return count(rows, "rows have another GPUs x MBS x GAS than the batch size")


@named("rows of Appendix J whose MBS is no power of two")
def powers_of_two() -> Working:
    """Count the rows of Appendix J whose MBS is not a power of two."""
    rows = [
        fact(row.mbs.bit_count() != 1, _row_j(*row.place, f"MBS {row.mbs}", row.source)) for row in published_settings()
    ]
    return count(rows, "rows have an MBS that is no power of two")


@named("cells in one of Appendix J and Table 1")
def left_out() -> Working:
    """Count the cells that Appendix J leaves out although Table 1 has days, or has although Table 1 has none."""
    there = {row.place for row in published_settings()}
    cells = []
    for place, cell in by_place("1").items():
        text = f"{'' if place in there else 'not '}in Appendix J, {counted(cell.days or 0, 'day')} in Table 1"
        cells.append(fact((place in there) != (cell.state == "days"), _row_j(*place, text, cell.source)))
    return count(cells, "cells are in one of Appendix J and Table 1 alone")


def _row_j(model: str, gpu: str, gpus: int, value: str, source: str) -> SourceRow:
    return SourceRow("appendix_j.csv", f"{model} on {gpus} {gpu}", value, source)


# --- Machines of Figure 7: each has a price and days of Pythia-1B ---


@named("machines as fast as 8 H100")
def eight_h100_fastest() -> Working:
    """Count the other machines that train Pythia-1B at least as fast as 8 H100."""
    days = {machine: days for machine, (_, days) in numbers.machines().items()}
    best = days.pop(("H100", 8))
    others = [each.marked(each.value.value <= best.value.value) for each in days.values()]
    return count([best.marked(False), *others], "machines are as fast as 8 H100")


@named("fewest days of Pythia-1B within {usd} USD")
def fastest_within(usd: int) -> Working:
    """Return the fewest days of Pythia-1B among the machines that the budget can buy."""
    within = [(*name, *numbers) for name, numbers in numbers.machines().items() if numbers[0].value.value <= usd]
    gpu, gpus, cost, days = min(within, key=lambda machine: machine[3].value.value)
    others = [number for *_, its_cost, its_days in within for number in (its_cost, its_days)]
    return days.after(*others).saying(
        f"the fastest of the {len(within)} machines up to {shown(usd)} USD: {gpus} {gpu} at "
        f"{shown(cost.value.value)} USD, {shown(days.value.value)} days"
    )


@named("machines cheaper than 8 A100 and as fast")
def cheaper_and_as_fast() -> Working:
    """Count machines that cost less than 8 A100 and train Pythia-1B in as few days; a "good balance" means none."""
    machines = numbers.machines()
    cost, days = machines["A100", 8]
    better, found = list[str](), list[Working]()
    for (gpu, gpus), (its_cost, its_days) in machines.items():
        beats = its_cost.value.value < cost.value.value and its_days.value.value <= days.value.value
        found.append(its_days.after(its_cost).marked(beats))
        if beats:
            better.append(f"{gpus} {gpu} at {shown(its_cost.value.value)} USD in {shown(its_days.value.value)} days")
    here = f"8 A100 at {shown(cost.value.value)} USD, above that budget, in {shown(days.value.value)} days"
    counted = count(found, "machines are cheaper than 8 A100 and as fast")
    return counted.with_note(f"{here}; {' and '.join(sorted(better)) or 'no other'}")


def days_lost(gpus: tuple[str, ...], least: float, most: float) -> Working:
    """Return the days of Pythia-1B that a price range's fastest advised machine takes more than its fastest one."""
    within = {name: numbers for name, numbers in numbers.machines().items() if least < numbers[0].value.value < most}
    advised = [days for (name, _), (_, days) in within.items() if name in gpus]
    if not advised:
        absent("table5.csv", "price that puts a machine in the range that the claim is of", " and ".join(gpus))
    gpu, count = fastest = min(within, key=lambda name: within[name][1].value.value)
    cost, best = within[fastest]
    lost = min(advised, key=lambda days: days.value.value) - best
    lost = lost.called(f"days more than {count} {gpu} at {shown(cost.value.value)} USD")
    return lost.after(*(cost for cost, _ in within.values()))


@named("machines with A6000 of 50,000 to 100,000 USD")
def a6000_machines() -> Working:
    """Count the machines with A6000 that cost $50k to $100k."""
    costs = [cost for (gpu, _), (cost, _) in numbers.machines().items() if gpu == "A6000"]
    there = [cost.marked(50_000 <= cost.value.value <= 100_000) for cost in costs]
    dearest = max(cost.value.value for cost in costs)
    found = count(there, "machines with A6000 cost 50,000 to 100,000 USD")
    return found.with_note(f"the dearest of them costs {shown(dearest)} USD")


def errors(sign: int, *resources: str) -> Working:
    """Count the predictions that are not off in the direction that the lab report states."""
    found = []
    for name in resources:
        run = lab_runs()[name, 20]
        if run.predicted_seconds is None:
            absent("lab.csv", "predicted seconds", (name, 20))
        off = run.predicted_seconds - run.seconds
        step = f"{name}: {shown(run.predicted_seconds)} - {shown(run.seconds)} = {shown(off)} s"
        found.append(fact(sign * off <= 0, *numbers.seconds(name, 20).rows, step=step))
    return count(found, "predictions are off in the other direction")


# The papers' words for ranges of prices, and for processors.
NAMES["days that RTX 3090 lose below 50,000 USD"] = partial(days_lost, ("RTX 3090",), 0, 50_000)
NAMES["days that A100 and H100 lose above 100,000 USD"] = partial(days_lost, ("A100", "H100"), 100_000, float("inf"))
NAMES["times on CPUs that are predicted too long"] = partial(errors, -1, T4_2_CPUS, T4_16_CPUS)
NAMES["times on GPUs that are predicted too short"] = partial(errors, 1, T4, V100)
