"""`repro list`: the recipes, the GPUs that we know, or the paper's settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .. import models
from ..console import UserError, say
from ..formats import FOR_MACHINES, render, yes
from ..machine.nvml import visible_devices
from ..paper.arithmetic import training_flops
from ..paper.gpus import Gpu, catalogue
from ..paper.settings import NAIVE, search_space
from ..printout import add_output, people

Rows = list[dict[str, Any]]

# The source of each recipe that is not the paper's.
_OTHERS = {
    "gan": "lab report",
    **dict.fromkeys(("pythia-1.4b", "pythia-70m", "pythia-12b", "convnext-l"), "authors' release"),
    "convnext-b": "ConvNeXt's paper",
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=tuple(_LISTS))
    add_output(parser)


def main(given: argparse.Namespace) -> int:
    answer, rows = _LISTS[given.what]()
    if given.format in FOR_MACHINES:
        print(render(rows, given.format))
    else:
        print(people(answer, [_shown(row) for row in rows], [], given.format, given.all))
    return 0


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {
        _HEADINGS.get(key, key): _TEXTS[key](value) if key in _TEXTS else value
        for key, value in row.items()
        if key != "model"  # which its id names as well
    }


_HEADINGS = {
    "flops_per_example": "FLOPs an example",
    "training_flops": "FLOPs in all",
    "gpu": "GPU",
    "paper_name": "in the paper",
    "compute_capability": "capability",
    "memory_gb": "GB",
    "fp32_tflops": "fp32 TFLOP/s",
    "tf32_tflops": "TF32",
    "fp16_tflops": "fp16",
    "bf16_tflops": "bf16",
    "bandwidth_gb_s": "GB/s",
    "board_power_w": "W",
    "on_1_gpu": "on 1 GPU",
}
_TEXTS: dict[str, Callable[[Any], str]] = {
    "parameters": "{:,}".format,
    "flops_per_example": "{:.4g}".format,
    "training_flops": "{:.3g}".format,
}


def _recipes() -> tuple[str, Rows]:
    found = [(id, models.find(id)) for id in (*models.IDS, *models.OTHERS)]
    return f"{len(found)} recipes, {len(models.IDS)} of them the paper's.", [
        {
            "of": _OTHERS.get(id, "paper"),
            "id": id,
            "model": recipe.name,
            "batch_size": recipe.batch_size,
            "training_steps": recipe.training_steps,
            "precision": recipe.precision,
            "optimizer": recipe.optimizer.name,
            "parameters": recipe.parameters,
            "flops_per_example": recipe.flops_per_example,
            "training_flops": training_flops(recipe),
        }
        for id, recipe in found
    ]


def _gpus() -> tuple[str, Rows]:
    here = _here()
    known = sorted(catalogue(), key=lambda gpu: (gpu not in here, not gpu.paper_name))
    return f"{len(known)} GPUs are known, those here and the paper's first; TFLOP/s are dense.", [
        {
            "gpu": gpu.name,
            "paper_name": gpu.paper_name,
            "generation": gpu.generation,
            "compute_capability": ".".join(map(str, gpu.compute_capability)),
            "memory_gb": gpu.memory_gb,
            "fp32_tflops": gpu.fp32_tflops,
            "tf32_tflops": gpu.tf32_tflops,
            "fp16_tflops": gpu.fp16_tflops,
            "bf16_tflops": gpu.bf16_tflops,
            "bandwidth_gb_s": gpu.bandwidth_gb_s,
            "board_power_w": gpu.board_power_w,
            "here": here.count(gpu) or None,
        }
        for gpu in known
    ]


def _here() -> list[Gpu | None]:
    try:
        return [device.gpu for device in visible_devices()]
    except UserError as error:  # the catalogue is still useful
        say(error)
        return []


def _settings() -> tuple[str, Rows]:
    alone, searched = set(search_space(1)), search_space(2)
    return f"{len(searched)} combinations of the paper's methods are searched, after naive settings.", [
        {
            "settings": settings.id,
            "free_lunch": yes(settings.free_lunch),
            "checkpointing": yes(settings.checkpointing),
            "sharding": settings.sharding,
            "offloading": yes(settings.offloading),
            "on_1_gpu": yes(settings == NAIVE or settings in alone),
        }
        for settings in [NAIVE, *searched]
    ]


_LISTS: dict[str, Callable[[], tuple[str, Rows]]] = {"recipes": _recipes, "gpus": _gpus, "settings": _settings}
