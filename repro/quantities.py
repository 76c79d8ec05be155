"""Single numbers of the papers: the survey, the rent-or-buy comment's inputs, the lab's specifications."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .datafile import Positive, read_once, records


@dataclass(frozen=True)
class Quantity:
    """A number, its unit, what it counts, and who says so."""

    id: str
    value: Positive
    unit: str
    what: str
    source: str


@read_once
def quantities() -> Mapping[str, Quantity]:
    """All of them, by id. Raises UserError where the file is broken."""
    return records(Quantity, "quantities.csv", ("id",))
