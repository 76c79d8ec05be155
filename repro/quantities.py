"""Single numbers of the papers: the survey, the rent-or-buy comment's inputs, the lab's specifications."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .datafile import records


@dataclass(frozen=True)
class Quantity:
    """A number, its unit, what it counts, and who says so."""

    id: str
    value: float
    unit: str
    what: str
    source: str


def quantities(folder: Path | None = None) -> dict[str, Quantity]:
    """All of them, by id. Raises UserError where the file is broken."""
    return {quantity.id: quantity for quantity in records(Quantity, "quantities.csv", ("id",), folder)}
