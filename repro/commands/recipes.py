"""`repro recipes`: list the paper's nine recipes, then those of other sources."""

from __future__ import annotations

import argparse
from typing import Any

from .. import models
from ..formats import FOR_MACHINES, add_format, render
from ..paper.arithmetic import training_flops

# Source of each.
_OTHERS = {
    "gan": "lab report",
    **dict.fromkeys(("pythia-1.4b", "pythia-70m", "pythia-12b", "convnext-l"), "authors' release"),
    "convnext-b": "ConvNeXt's paper",
}
_HEADINGS = {"flops_per_example": "FLOPs an example", "training_flops": "FLOPs in all"}


def options(parser: argparse.ArgumentParser) -> None:
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    exact = given.format in FOR_MACHINES
    rows: list[dict[str, Any]] = []
    for id in (*models.IDS, *models.OTHERS):
        recipe = models.find(id)
        rows.append(
            {
                "of": _OTHERS.get(id, "paper"),
                "id": id,
                "model": recipe.name,
                "batch_size": recipe.batch_size,
                "training_steps": recipe.training_steps,
                "precision": recipe.precision,
                "optimizer": recipe.optimizer.name,
                "parameters": recipe.parameters if exact else f"{recipe.parameters:,}",
                "flops_per_example": recipe.flops_per_example if exact else f"{recipe.flops_per_example:.4g}",
                "training_flops": training_flops(recipe) if exact else f"{training_flops(recipe):.3g}",
            }
        )
    print(render(rows, given.format, headings=_HEADINGS))
    return 0
