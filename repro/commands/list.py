"""`repro list`: the recipes, the GPUs that we know, or the paper's settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import models
from ..console import UserError, say
from ..formats import FOR_MACHINES, render, yes
from ..machine.nvml import visible_devices
from ..models import popular, shipped
from ..options import Output, argument
from ..paper.arithmetic import training_flops
from ..paper.gpus import Gpu, catalogue
from ..paper.settings import NAIVE, search_space
from ..printout import Column, data, people, shown

Listed = tuple[str, Sequence[Column], Sequence[Any]]  # a sentence, and a table

# The source of each recipe that is not the paper's.
_OTHERS = {
    "gan": "lab report",
    **dict.fromkeys(("pythia-1.4b", "pythia-70m", "pythia-12b", "convnext-l"), "authors' release"),
    "convnext-b": "ConvNeXt's paper",
}


def _recipes() -> Listed:
    found = [models.find(id) for id in (*models.IDS, *models.OTHERS)]
    found += [replace(shipped.recipe(id), id=id) for id in popular.listed()]
    others = _OTHERS | dict.fromkeys(popular.listed(), "popular")
    columns = [
        Column("id", lambda recipe: recipe.id, "id"),
        Column("of", lambda recipe: others.get(recipe.id, "paper"), "of"),
        Column("model", lambda recipe: recipe.name),
        Column("batch_size", lambda recipe: recipe.batch_size, "batch_size"),
        Column("training_steps", lambda recipe: recipe.training_steps, "training_steps"),
        Column("precision", lambda recipe: recipe.precision, "precision"),
        Column("optimizer", lambda recipe: recipe.optimizer.name, "optimizer"),
        Column("parameters", lambda recipe: recipe.parameters, "parameters", lambda it, _: f"{it:,}"),
        Column("flops_per_example", lambda it: it.flops_per_example, "FLOPs an example", lambda it, _: f"{it:.4g}"),
        Column("training_flops", training_flops, "FLOPs in all", lambda it, _: f"{it:.3g}"),
    ]
    predicted = len(popular.listed())
    answer = f"{len(found)} recipes: the paper's {len(models.IDS)}, and {predicted} of popular models, to be predicted."
    return answer, columns, found


def _gpus() -> Listed:
    here = _here()
    known = sorted(catalogue(), key=lambda gpu: (gpu not in here, not gpu.paper_name))
    columns = [
        Column("gpu", lambda gpu: gpu.name, "GPU"),
        Column("paper_name", lambda gpu: gpu.paper_name, "in the paper"),
        Column("generation", lambda gpu: gpu.generation, "generation"),
        Column("compute_capability", lambda gpu: ".".join(map(str, gpu.compute_capability)), "capability"),
        Column("memory_gb", lambda gpu: gpu.memory_gb, "GB"),
        Column("fp32_tflops", lambda gpu: gpu.fp32_tflops, "fp32 TFLOP/s"),
        Column("tf32_tflops", lambda gpu: gpu.tf32_tflops, "TF32"),
        Column("fp16_tflops", lambda gpu: gpu.fp16_tflops, "fp16"),
        Column("bf16_tflops", lambda gpu: gpu.bf16_tflops, "bf16"),
        Column("bandwidth_gb_s", lambda gpu: gpu.bandwidth_gb_s, "GB/s"),
        Column("board_power_w", lambda gpu: gpu.board_power_w, "W"),
        Column("here", lambda gpu: here.count(gpu) or None, "here"),
    ]
    return f"{len(known)} GPUs are known, those here and the paper's first; TFLOP/s are dense.", columns, known


def _here() -> list[Gpu | None]:
    try:
        return [device.gpu for device in visible_devices()]
    except UserError as error:  # the catalogue is still useful
        say(error)
        return []


def _settings() -> Listed:
    alone, searched = set(search_space(1)), search_space(2)
    columns = [
        Column("settings", lambda settings: settings.id, "settings"),
        Column("free_lunch", lambda settings: yes(settings.free_lunch), "free_lunch"),
        Column("checkpointing", lambda settings: yes(settings.checkpointing), "checkpointing"),
        Column("sharding", lambda settings: settings.sharding, "sharding"),
        Column("offloading", lambda settings: yes(settings.offloading), "offloading"),
        Column("on_1_gpu", lambda settings: yes(settings == NAIVE or settings in alone), "on 1 GPU"),
    ]
    answer = f"{len(searched)} combinations of the paper's methods are searched, after naive settings."
    return answer, columns, [NAIVE, *searched]


_LISTS: dict[str, Callable[[], Listed]] = {"recipes": _recipes, "gpus": _gpus, "settings": _settings}


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    what: str = argument("what to list", choices=tuple(_LISTS))


def main(asked: Asked) -> str:
    answer, columns, rows = _LISTS[asked.what]()
    if asked.format in FOR_MACHINES:
        return render(data(columns, rows), asked.format)
    return people(answer, shown(columns, rows), [], asked.format, asked.all)
