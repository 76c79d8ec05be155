"""Training days of a model on every machine for which somebody knows them, and who that is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import models

from ..errors import UserError
from ..expected import cells
from ..findings import rounded_days
from ..interval import Interval
from ..results import read_or_refuse
from ..trial import Record

Origin = Literal["expected", "measured", "given"]  # the paper's, ours, or whoever asks says so


@dataclass(frozen=True)
class TrainingDays:
    """Days of one training on `gpus` of `gpu`, within the bounds of their rounding; `watts` is what its GPUs drew
    together where that was measured."""

    gpu: str
    gpus: int
    days: Interval
    origin: Origin
    source: str
    watts: float | None = None


def training_days(model: str, measured: Path | None = None) -> list[TrainingDays]:
    """The days of the model with that id: Table 1's, and in their place those measured in a results folder.

    Raises UserError for an unknown model, and for a folder without a measurement of it.
    """
    found = {(row.gpu, row.gpus): row for row in expected_days(model)}
    if measured is not None:
        found |= {(row.gpu, row.gpus): row for row in measured_days(model, measured)}
    return list(found.values())


def expected_days(model: str) -> list[TrainingDays]:
    """Table 1: the paper's best settings, by the authors' clock, rounded to a day. Infeasible cells are left out."""
    name = models.find(model).name
    return [
        TrainingDays(cell.gpu, cell.gpus, rounded_days(cell), "expected", cell.source)
        for cell in cells("1")
        if cell.model == name and cell.state == "days"
    ]


def measured_days(model: str, folder: Path) -> list[TrainingDays]:
    """True days of the fastest trial on each machine: at the paper's scale, on one node, with the whole memory."""
    models.find(model)
    best: dict[tuple[str, int], tuple[float, Record]] = {}
    for record in read_or_refuse(folder).values():
        if (record.recipe, record.scale, record.status, record.nodes) != (model, "paper", "ok", 1):
            continue
        if record.true_days is None or record.memory_limit is not None or record.device == "cpu":
            continue
        place = record.device, record.count
        if place not in best or record.true_days < best[place][0]:
            best[place] = record.true_days, record
    if not best:
        raise UserError(
            f"--measured {folder}: no finished trial of {model} at the paper's scale on GPUs; "
            f"measure one with run --models {model} --out {folder}"
        )
    return [
        TrainingDays(gpu, gpus, Interval.exact(days), "measured", f"{folder}, {record.settings}, true", _watts(record))
        for (gpu, gpus), (days, record) in best.items()
    ]


def _watts(record: Record) -> float | None:
    """The ranks' power together, each read once in a training step; None where a GPU did not tell."""
    told = [state.get("power_w") if state else None for state in record.gpu_state or []]
    drawn = [watts for watts in told if watts is not None]
    return sum(drawn) if told and len(drawn) == len(told) else None
