"""`repro recipes`: the paper's nine recipes, and after them those of other sources."""

from __future__ import annotations

import argparse

import models

from ..formats import add_format, render


def options(parser: argparse.ArgumentParser) -> None:
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    rows = []
    for id in (*models.IDS, *models.OTHERS):
        recipe = models.find(id)
        rows.append(
            {
                "of": "paper" if id in models.IDS else "lab report",
                "id": id,
                "model": recipe.name,
                "batch": recipe.batch_size,
                "steps": recipe.training_steps,
                "precision": recipe.precision,
                "optimizer": recipe.optimizer.name,
                "FLOPs an example": f"{recipe.flops_per_example:.4g}",
                "FLOPs in all": f"{recipe.flops_per_example * recipe.batch_size * recipe.training_steps:.3g}",
            }
        )
    print(render(rows, given.format))
    return 0
