"""The paper's sentences on models, GPUs and the search space: Table 3, figure 9, Appendices D, F and J."""

from __future__ import annotations

import models
from models.vit import PATCH

from ..datafile import absent
from ..expected import COUNTS, printed_recipes, published_settings
from ..findings import by_place, recipe_of
from ..formats import counted
from ..gpus import paper_gpus
from ..interval import Interval
from ..recipe import Images, Recipe, Text
from ..settings import NAIVE, search_space
from . import facts
from .registry import recomputes
from .working import Row, Working, count, shown


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
    return parameters(model).told(f"with 1,000 classes it would have {with_1000:,}")


@recomputes("vit-sequence")
def vit_sequence() -> Working:
    """Patches of an image, which are ViT's tokens."""
    size = printed_recipes()["ViT"].image_size
    if size is None:
        absent("table3.csv", "image size", "ViT")
    image = Working.read(size, Row("table3.csv", "ViT", f"{size} pixels a side", printed_recipes()["ViT"].source))
    patch = Working.read(PATCH, Row("models/", "vit", f"patches of {PATCH} pixels a side", "ViT-L/16"))
    side = (image / patch).called("patches a side")
    found = side * side
    of_14 = (size // 14) ** 2
    return found.told(
        f"a class token makes it {shown(found.value.value + 1)}; {of_14} are the patches of 14 pixels a side, ViT-L/14"
    )


@recomputes("table-3")
def table_3() -> Working:
    """Entries of Table 3 that the authors' release has otherwise; parameters and ViT's tokens have their own claims."""
    checked, wrong = [], 0
    for printed in printed_recipes().values():
        recipe = recipe_of(printed.model)
        ours = _entries(recipe)
        for name, value in ours.items():
            table = getattr(printed, name)
            same = table == value if isinstance(value, str) or table is None else _rounds(value, table)
            wrong += not same
            step = f"{printed.model}, {name}: {table} printed, {value} in the release"
            rows = (Row("table3.csv", f"{printed.model}, {name}", str(table), printed.source),)
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
    """Whether a number rounds to one that is printed in thousands, or whole."""
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
    return facts.flops("Mamba").told(f"the rule of thumb, 6 FLOPs a parameter and token, gives {shown(rule)}")


@recomputes("flops-convnext")
def flops_convnext() -> Working:
    return facts.flops("ConvNeXt").told(
        "torch's counter, which takes grouped convolutions for full ones, gives three times as much "
        "(tests/test_flops.py)"
    )


@recomputes("olmo-tokens")
def olmo_tokens() -> Working:
    """Tokens of OLMo-1B over those of Pythia-1B."""
    recipe = recipe_of("Pythia-1B")
    assert isinstance(recipe.inputs, Text)
    value = f"{recipe.training_steps} steps of {recipe.batch_size} x {recipe.inputs.sequence} tokens"
    row = Row("models/", recipe.id, value, "the authors' release")
    pythia = Working.read(recipe.training_steps, row) * (recipe.batch_size * recipe.inputs.sequence)
    return facts.quantity("olmo_1b/tokens") / pythia.called("tokens of Pythia-1B")


@recomputes("rtx-3090-memory", gpu="RTX 3090")
@recomputes("a6000-memory", gpu="A6000")
@recomputes("a100-memory", gpu="A100")
@recomputes("h100-memory", gpu="H100")
@recomputes("thesis-rtx-4090-memory", gpu="RTX 4090")
def memory(gpu: str) -> Working:
    return facts.figure(gpu, "memory_gb", "GB")


@recomputes("rtx-3090-peak", gpu="RTX 3090")
@recomputes("a6000-peak", gpu="A6000")
@recomputes("a100-peak", gpu="A100")
def peak(gpu: str) -> Working:
    return facts.figure(gpu, "fp16_tflops", "TFLOP/s")


@recomputes("tf32-bits")
def tf32_bits() -> Working:
    return facts.quantity("fp32/mantissa") - facts.quantity("tf32/mantissa")


@recomputes("search-space-1-gpu", gpus=1)
@recomputes("search-space-more-gpus", gpus=2)
@recomputes("search-space-largest", gpus=2)
def space(gpus: int) -> Working:
    """Settings that Appendix F's rules leave."""
    found = search_space(gpus)
    row = Row(
        "repro/settings.py",
        f"search space on {counted(gpus, 'GPU')}",
        ", ".join(s.id for s in found),
        "paper, Appendix F",
    )
    return Working.read(len(found), row).called(f"settings on {'1 GPU' if gpus == 1 else 'several GPUs'}")


@recomputes("configurations-benchmarked")
@recomputes("review-configurations")
def configurations() -> Working:
    """Every model on every machine with all settings of the search and the naive ones."""
    of_each = [space(gpus) + len([NAIVE]) for gpus in COUNTS]
    machine = (of_each[0] + of_each[1] * len(COUNTS[1:])).called("settings of a model on 1, 2, 4 and 8 of a GPU")
    pairs = len(models.IDS) * len(paper_gpus())
    return (machine * pairs).called(f"{len(models.IDS)} models x {len(paper_gpus())} GPUs")


@recomputes("appendix-j-batch-sizes")
def batch_sizes() -> Working:
    """Rows of Appendix J whose GPUs, MBS and GAS do not multiply to the batch size."""
    wrong, rows = 0, []
    for row in published_settings():
        product, batch = row.gpus * row.mbs * row.gas, printed_recipes()[row.model].batch_size
        wrong += product != batch
        value = f"{row.gpus} x {row.mbs} x {row.gas} = {product}, batch size {batch}"
        rows.append(Working(Interval.exact(product), (_row_j(*row.place, value, row.source),)))
    return count(wrong, rows, "rows have another GPUs x MBS x GAS than the batch size")


@recomputes("appendix-j-powers-of-two")
def powers_of_two() -> Working:
    """Rows of Appendix J whose MBS is no power of two."""
    wrong = sum(row.mbs.bit_count() != 1 for row in published_settings())
    rows = [Working.read(row.mbs, _row_j(*row.place, f"MBS {row.mbs}", row.source)) for row in published_settings()]
    return count(wrong, rows, "rows have an MBS that is no power of two")


@recomputes("appendix-j-leaves-out")
def left_out() -> Working:
    """Cells that Appendix J leaves out although Table 1 has days, or has although Table 1 has none."""
    there = {row.place for row in published_settings()}
    found = []
    wrong = 0
    for place, cell in by_place("1").items():
        differs = (place in there) != (cell.state == "days")
        wrong += differs
        value = f"{'' if place in there else 'not '}in Appendix J, {counted(cell.days or 0, 'day')} in Table 1"
        found.append(Working(Interval.exact(differs), (_row_j(*place, value, cell.source),)))
    return count(wrong, found, "cells are in one of Appendix J and Table 1 alone")


def _row_j(model: str, gpu: str, gpus: int, value: str, source: str) -> Row:
    return Row("appendix_j.csv", f"{model} on {gpus} {gpu}", value, source)
