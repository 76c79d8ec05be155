"""What the kept runs on GPUs measured for cells of Tables 1 and 4: the rows of expected/measured.csv.

`python -m benchmarks.measured_days --format csv > expected/measured.csv` writes it anew, from every results folder in
results/h100. Of several trials of the same settings on the same stack the last counts. Left out are trials that can
stand for no cell, those that something disturbed, and those that neither ran nor ran out of the GPU's memory.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from repro import models
from repro.console import ROOT, UserError
from repro.machine.environment import FILE as ENVIRONMENT
from repro.machine.support import packages_of
from repro.paper.gpus import paper_gpus
from repro.paper.tables import COUNTS
from repro.record import Record
from repro.run.reading import Reading, read
from repro.run.results import TRIALS
from repro.run.settings_search import standing
from repro.run.verdict import comparable_with_cell
from repro.validity import fits, undisturbed

from . import tell

KEPT = ROOT / "results/h100"


def folders() -> list[Path]:
    """Return every results folder of kept runs."""
    return sorted(file.parent for file in KEPT.glob(f"*/{TRIALS}"))


def rows(kept: Iterable[Path]) -> list[dict[str, Any]]:
    """Return a row for each settings of a cell and stack, in the tables' order; days by the authors' clock only where
    they are of the same micro batch. Raises UserError for a folder without a run, or without its stack's packages."""
    found: dict[tuple[str, str, int, str], list[tuple[Record, str]]] = defaultdict(list)
    for folder in kept:
        reading = read(folder)
        for record in filter(_counts, reading.records):
            key = record.recipe, record.device, record.count, stack(record, reading)
            found[key].append((record, os.path.relpath(folder, ROOT)))
    gpus = list(paper_gpus())
    places = sorted(found, key=lambda key: (models.IDS.index(key[0]), gpus.index(key[1]), *key[2:]))
    return [_row(record, place[3], source) for place in places for record, source in _standing(found[place])]


def stack(record: Record, reading: Reading) -> str:
    """Return the packages that decide what ran, with their versions."""
    recipe, settings = record.recipe_and_settings
    names = ["torch", *packages_of(recipe)]
    if settings.library == "deepspeed":
        names.append("deepspeed")
    if recipe.family == "mamba" and settings.free_lunch:
        names += ["mamba-ssm", "causal-conv1d"]
    packages = reading.environment.packages or {}
    if "torch" not in packages:
        raise UserError(
            f"{reading.folder / ENVIRONMENT} names no torch, the stack of its trials: put back the run's own"
        )
    return ", ".join(f"{name} {packages[name]}" for name in names if name in packages)


def _counts(record: Record) -> bool:
    at_cell = comparable_with_cell(record) and record.device in paper_gpus() and record.count in COUNTS
    return at_cell and (undisturbed(record) or fits(record) is False)


def _standing(measured: list[tuple[Record, str]]) -> list[tuple[Record, str]]:
    """Return for each settings the trial that counts, and the folder that it is from."""
    ordered = sorted(measured, key=lambda each: each[0].stack_started or 0.0)
    sources = {id(record): source for record, source in ordered}
    last = standing(record for record, _ in ordered)
    return [(last[settings], sources[id(last[settings])]) for settings in sorted(last, key=_naive_first)]


def _naive_first(settings: str) -> tuple[bool, str]:
    return settings != "naive", settings


def _row(record: Record, on: str, source: str) -> dict[str, Any]:
    return {
        "model": models.find(record.recipe).name,
        "gpu": record.device,
        "gpus": record.count,
        "settings": record.settings,
        "micro_batch": record.batch.micro_batch or "-",
        "true_days": _days(record.derived.true_days),
        "authors_days": _days(record.derived.authors_days if record.batch.authors_micro_batch is None else None),
        "stack": on,
        "source": f"{source}, {record.id}",
    }


def _days(days: float | None) -> str:
    return "-" if days is None else f"{days:.3f}"


if __name__ == "__main__":
    tell(__doc__, lambda: rows(folders()))
