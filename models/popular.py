"""Models that people ask for: their configurations, and the training that each gets unless numbers are given."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "configurations"


@dataclass(frozen=True)
class Popular:
    """A row of models.csv, without its sources; `given` has the numbers of its training, as fields of a
    specification."""

    id: str
    name: str
    file: str
    given: dict[str, Any]


@cache
def listed() -> dict[str, Popular]:
    """Return the models, by id."""
    with (FOLDER / "models.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["id"]: Popular(row["id"], row["name"], row["file"], _given(row)) for row in rows}


_NUMBERS = {"sequence": "sequence", "image": "image_size", "batch": "batch_size", "tokens": "tokens"}
_NUMBERS |= {"epochs": "epochs", "dataset": "dataset_size"}


def _given(row: dict[str, str]) -> dict[str, Any]:
    numbers = {name: int(row[key]) for key, name in _NUMBERS.items() if row[key]}
    return {"name": row["id"], "precision": row["precision"], **numbers}
