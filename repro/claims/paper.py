"""Claims of the paper: training times, models, costs."""

from __future__ import annotations

from dataclasses import replace

from .. import models
from ..datafile import absent
from ..formats import DAYS_A_YEAR, Interval, counted
from ..models.recipe import Images, Recipe, Text
from ..models.vit import PATCH
from ..paper.arithmetic import PYTHIA, GpuDays, Speedup, by_place, days_at_peak, gpu_days, recipe_of, speedups
from ..paper.gpus import paper_gpus
from ..paper.settings import NAIVE, search_space
from ..paper.tables import COUNTS, Table, analytic_peaks, printed_recipes, published_settings, training_compute
from . import facts
from .claim import recomputes
from .facts import SourceRow, Working, count, mean, shown


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
def printed_days(gpu: str, gpus: int, table: Table = "1", model: str = "Pythia-1B") -> Working:
    return facts.printed_days(table, model, gpu, gpus).called(f"days of {model} on {gpus} {gpu}, Table {table}")


@recomputes("two-h100-in-the-same-time")
def two_h100() -> Working:
    other = printed_days("A100", 4).value.value
    return printed_days("H100", 2).with_note(f"4 A100 take {shown(other)} days, so the advice stands all the more")


@recomputes("original-pythia-1b", model="Pythia-1B")
@recomputes("original-roberta", model="RoBERTa")
def original(model: str) -> Working:
    return facts.original(model)


@recomputes("pythia-1b-gpu-days")
def best_gpu_days() -> Working:
    return (printed_days("A100", 4) * 4).called("GPU-days of Pythia-1B on 4 A100")


@recomputes("pythia-1b-fewer-gpu-days")
def fewer_gpu_days() -> Working:
    return facts.original("Pythia-1B") / best_gpu_days()


@recomputes("clip-lag")
def clip_lag() -> Working:
    """Return the years from CLIP to its study; each was published at some time within its year."""
    lag = facts.quantity("paper/clip_study_year", rounded_to=1) - facts.quantity("paper/clip_year", rounded_to=1)
    return lag.with_note("from the years in the paper's own references, at whose two ends the works may have appeared")


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
    ratio = facts.original(row.model) / (facts.printed_days("1", row.model, "A100", 8) * 8)
    return replace(ratio.called(row.model), steps=ratio.called(row.model).steps[-1:])


@recomputes("mean-speedup")
def mean_speedup() -> Working:
    """Return Figure 2's mean speed-up, over the Pythia models, wherever the naive settings can train."""
    rows = speedups()
    pythia = mean([_speedup(row) for row in rows if row.model in PYTHIA])
    every = mean([_speedup(row) for row in rows])
    return pythia.with_note(f"over all {len(rows)} cells of all models it is {shown(every.value.value)}")


def _speedup(row: Speedup) -> Working:
    ratio = facts.printed_days("4", *row.place) / facts.printed_days("1", *row.place)
    return ratio.called(f"{row.model} on {row.machine}")


@recomputes("analytic-optimism")
def analytic_optimism() -> Working:
    """Return the mean of naive days over analytic ones, for the Pythia models of Figure 2."""
    return _optimism({}).with_note("H100 at 756 TFLOP/s, the peak of the PCIe part; the nodes had the SXM part")


@recomputes("analytic-optimism-with-sxm-peak")
def analytic_optimism_sxm() -> Working:
    sxm = facts.datasheet("H100", "fp16_tflops", "TFLOP/s")
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
        ratio = facts.printed_days("4", model, gpu, gpus) / estimate
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
            places.append(Working(Interval.exact(never), tuple(facts.cell_row(cell) for cell in found), (step,)))
    return count(lacking, places, "are infeasible")


@recomputes("largest-model-on-1-gpu")
def largest_model_on_1_gpu() -> Working:
    """Count Figure 10's GPUs of which one alone can train Pythia-6.9B."""
    found = [by_place("1")["Pythia-6.9B", gpu, 1] for gpu in paper_gpus()]
    rows = [Working(Interval.exact(0), (facts.cell_row(cell),)) for cell in found]
    return count(sum(cell.state == "days" for cell in found), rows, "GPUs can train it alone")


@recomputes("feasible-on-more-gpus")
def feasible_on_more_gpus() -> Working:
    """Count Figure 10's cells with several GPUs that no settings can train."""
    found = [cell for cell in by_place("1").values() if cell.gpus > 1]
    rows = [Working(Interval.exact(0), (facts.cell_row(cell),)) for cell in found]
    return count(sum(cell.state != "days" for cell in found), rows, "cells with 2, 4 or 8 GPUs are infeasible")


@recomputes("eight-h100-fastest")
def eight_h100_fastest() -> Working:
    """Count the other machines that train Pythia-1B at least as fast as 8 H100."""
    best = facts.printed_days("1", "Pythia-1B", "H100", 8)
    others = [found for machine, (_, found) in facts.machines().items() if machine != ("H100", 8)]
    as_fast = sum(found.value.value <= best.value.value for found in others)
    return count(as_fast, [best, *others], "machines are as fast as 8 H100")


@recomputes("title-100k", gpu="H100", gpus=4)
@recomputes("four-h100-cost", gpu="H100", gpus=4)
@recomputes("two-rtx-3090-cost", gpu="RTX 3090", gpus=2)
@recomputes("four-a100-cost", gpu="A100", gpus=4)
@recomputes("two-h100-cost", gpu="H100", gpus=2)
@recomputes("eight-a100-cost", gpu="A100", gpus=8)
@recomputes("eight-h100-cost", gpu="H100", gpus=8)
@recomputes("own-8-a100", gpu="A100", gpus=8)
@recomputes("review-four-h100-cost", gpu="H100", gpus=4)
@recomputes("review-eight-a100-cost", gpu="A100", gpus=8)
@recomputes("review-own-8-a100", gpu="A100", gpus=8)
def machine(gpu: str, gpus: int) -> Working:
    return facts.machine(gpu, gpus)


@recomputes("budget-40k-cost")
@recomputes("review-eight-rtx-3090-cost")
def eight_rtx_3090() -> Working:
    return facts.machine("RTX 3090", 8).with_note("$40k is a budget that holds it, no price")


@recomputes("budget-40k-days", budget=40_000)
@recomputes("review-budget-40k", budget=40_000)
@recomputes("review-budget-130k", budget=130_000)
def fastest_within(budget: float) -> Working:
    """Return the fewest days of Pythia-1B among the machines that the budget can buy."""
    within = [(*name, *numbers) for name, numbers in facts.machines().items() if numbers[0].value.value <= budget]
    gpu, gpus, cost, days = min(within, key=lambda machine: machine[3].value.value)
    others = [number for *_, its_cost, its_days in within for number in (its_cost, its_days)]
    return days.after(*others).saying(
        f"the fastest of the {len(within)} machines up to {shown(budget)} USD: {gpus} {gpu} at "
        f"{shown(cost.value.value)} USD, {shown(days.value.value)} days"
    )


@recomputes("four-h100-memory")
def half_the_memory() -> Working:
    """Return the memory of 4 H100 over that of 8 A100."""
    return facts.datasheet("H100", "memory_gb", "GB") * 4 / (facts.datasheet("A100", "memory_gb", "GB") * 8)


@recomputes("a100-run-cost", gpu="A100", gpus=8)
@recomputes("h100-run-cost", gpu="H100", gpus=4)
def run_cost(gpu: str, gpus: int) -> Working:
    """Return the US dollars of one training of Pythia-1B: the machine's price times days over lifespan."""
    lives = (facts.quantity("paper/lifespan") * DAYS_A_YEAR).called("days that a machine lives")
    return facts.machine(gpu, gpus) * facts.printed_days("1", "Pythia-1B", gpu, gpus) / lives


@recomputes("rtx-3090-price", gpu="RTX 3090")
@recomputes("a6000-price", gpu="A6000")
@recomputes("a100-price", gpu="A100")
@recomputes("h100-price", gpu="H100")
def price(gpu: str) -> Working:
    return facts.price(gpu)


@recomputes("desktop-1-gpu", gpus=1)
@recomputes("desktop-2-gpus", gpus=2)
@recomputes("desktop-1-gpu-total", gpus=1)
@recomputes("desktop-2-gpus-total", gpus=2)
def desktop(gpus: int) -> Working:
    """Return the sum of Table 6's parts."""
    return facts.parts(gpus)


@recomputes("server-4-gpus", gpus=4)
def server(gpus: int) -> Working:
    return facts.server(gpus)


@recomputes("server-8-gpus")
def server_8_gpus() -> Working:
    """Return the server's price, printed to $100; the note rounds it to the unit of section 4.1's systems."""
    cost, unit = server(8), facts.quantity("rounding/system").value.value
    rounded = round(cost.value.value / unit) * unit
    return cost.with_note(f"to the nearest {shown(unit)} USD, as the other systems are too, it is {shown(rounded)}")


@recomputes("parameters-pythia-160m", model="Pythia-160M")
@recomputes("parameters-pythia-410m", model="Pythia-410M")
@recomputes("parameters-pythia-1b", model="Pythia-1B")
@recomputes("parameters-pythia-2.8b", model="Pythia-2.8B")
@recomputes("parameters-pythia-6.9b", model="Pythia-6.9B")
@recomputes("parameters-roberta", model="RoBERTa")
@recomputes("parameters-roberta-in-table-1", model="RoBERTa")
@recomputes("parameters-mamba", model="Mamba")
@recomputes("parameters-convnext", model="ConvNeXt")
@recomputes("parameters-vit", model="ViT")
@recomputes("parameters-vit-in-table-1", model="ViT")
@recomputes("smallest-model", model="Pythia-160M")
@recomputes("largest-model", model="Pythia-6.9B")
def parameters(model: str) -> Working:
    return facts.parameters(model).called(f"parameters of {model}")


@recomputes("parameters-convnext-in-figure-6", model="ConvNeXt")
@recomputes("parameters-vit-in-figure-6", model="ViT")
def original_parameters(model: str) -> Working:
    recipe = recipe_of(model)
    assert isinstance(recipe.inputs, Images)
    with_1000 = recipe.parameters - (recipe.inputs.classes - 1000) * (recipe.width + 1)
    return parameters(model).with_note(f"with 1,000 classes it would have {with_1000:,}")


@recomputes("vit-sequence")
def vit_sequence() -> Working:
    """Return the number of patches of an image, which are ViT's tokens."""
    size = printed_recipes()["ViT"].image_size
    if size is None:
        absent("table3.csv", "image size", "ViT")
    image = Working.read(size, SourceRow("table3.csv", "ViT", f"{size} pixels a side", printed_recipes()["ViT"].source))
    patch = Working.read(PATCH, SourceRow("models/", "vit", f"patches of {PATCH} pixels a side", "ViT-L/16"))
    side = (image / patch).called("patches a side")
    found = side * side
    of_14 = (size // 14) ** 2
    return found.with_note(
        f"a class token makes it {shown(found.value.value + 1)}; {of_14} are the patches of 14 pixels a side, ViT-L/14"
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


@recomputes("flops-pythia-160m", model="Pythia-160M")
@recomputes("flops-pythia-410m", model="Pythia-410M")
@recomputes("flops-pythia-1b", model="Pythia-1B")
@recomputes("flops-pythia-2.8b", model="Pythia-2.8B")
@recomputes("flops-pythia-6.9b", model="Pythia-6.9B")
@recomputes("flops-roberta", model="RoBERTa")
@recomputes("flops-vit", model="ViT")
def flops(model: str) -> Working:
    return facts.flops(model)


@recomputes("flops-mamba")
def flops_mamba() -> Working:
    recipe = recipe_of("Mamba")
    assert isinstance(recipe.inputs, Text)
    rule = 6.0 * recipe.parameters * recipe.inputs.sequence * recipe.batch_size * recipe.training_steps
    return facts.flops("Mamba").with_note(f"the rule of thumb, 6 FLOPs a parameter and token, gives {shown(rule)}")


@recomputes("flops-convnext")
def flops_convnext() -> Working:
    return facts.flops("ConvNeXt").with_note(
        "torch's counter, which takes grouped convolutions for full ones, gives three times as much "
        "(tests/test_flops.py)"
    )


@recomputes("olmo-tokens")
def olmo_tokens() -> Working:
    """Return the tokens of OLMo-1B over those of Pythia-1B."""
    recipe = recipe_of("Pythia-1B")
    assert isinstance(recipe.inputs, Text)
    value = f"{recipe.training_steps} steps of {recipe.batch_size} x {recipe.inputs.sequence} tokens"
    row = SourceRow("models/", recipe.id, value, "the authors' release")
    pythia = Working.read(recipe.training_steps, row) * (recipe.batch_size * recipe.inputs.sequence)
    return facts.quantity("olmo_1b/tokens") / pythia.called("tokens of Pythia-1B")


@recomputes("rtx-3090-memory", gpu="RTX 3090")
@recomputes("a6000-memory", gpu="A6000")
@recomputes("a100-memory", gpu="A100")
@recomputes("h100-memory", gpu="H100")
@recomputes("thesis-rtx-4090-memory", gpu="RTX 4090")
def memory(gpu: str) -> Working:
    return facts.datasheet(gpu, "memory_gb", "GB")


@recomputes("rtx-3090-peak", gpu="RTX 3090")
@recomputes("a6000-peak", gpu="A6000")
@recomputes("a100-peak", gpu="A100")
def peak(gpu: str) -> Working:
    return facts.datasheet(gpu, "fp16_tflops", "TFLOP/s")


@recomputes("tf32-bits")
def tf32_bits() -> Working:
    return facts.quantity("fp32/mantissa") - facts.quantity("tf32/mantissa")


@recomputes("search-space-1-gpu", gpus=1)
@recomputes("search-space-more-gpus", gpus=2)
@recomputes("search-space-largest", gpus=2)
def space(gpus: int) -> Working:
    """Return the number of settings that Appendix F's rules leave."""
    found = search_space(gpus)
    row = SourceRow(
        "repro/paper/settings.py",
        f"search space on {counted(gpus, 'GPU')}",
        ", ".join(s.id for s in found),
        "paper, Appendix F",
    )
    return Working.read(len(found), row).called(f"settings on {'1 GPU' if gpus == 1 else 'several GPUs'}")


@recomputes("configurations-benchmarked")
@recomputes("review-configurations")
def configurations() -> Working:
    """Return the number of configurations: every model on every machine, all settings of the search and naive."""
    of_each = [space(gpus) + len([NAIVE]) for gpus in COUNTS]
    machine = (of_each[0] + of_each[1] * len(COUNTS[1:])).called("settings of a model on 1, 2, 4 and 8 of a GPU")
    pairs = len(models.IDS) * len(paper_gpus())
    return (machine * pairs).called(f"{len(models.IDS)} models x {len(paper_gpus())} GPUs")


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
