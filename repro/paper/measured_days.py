"""Days that real GPUs took for cells of Tables 1 and 4, each with the stack that it was measured on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .. import models
from ..datafile import Positive, Row, read_once, records
from .gpus import paper_gpus
from .settings import NAIVE
from .tables import AtPlace, Cell, published_settings


@dataclass(frozen=True)
class MeasuredDays(AtPlace):
    """One trial, by both clocks. Days and micro batch are None where the settings ran out of memory. `source` is the
    results folder and the trial's id."""

    model: str
    gpu: str
    gpus: int
    settings: str
    micro_batch: int | None
    true_days: Positive | None
    authors_days: Positive | None
    stack: str
    source: str

    @property
    def folder(self) -> str:
        """The results folder that has its record."""
        return self.source.partition(",")[0]

    @property
    def shown_by_authors_clock(self) -> float | None:
        """The authors' days over the true ones; None where nothing ran."""
        return self.authors_days / self.true_days if self.authors_days and self.true_days else None


@read_once
def measured_days() -> Mapping[tuple[str, str, int, str, str], MeasuredDays]:
    """By model, GPU, count, settings and stack. Raises UserError where the file is broken."""
    return records(MeasuredDays, "measured.csv", ("model", "gpu", "gpus", "settings", "stack"), _check)


def measured(cell: Cell) -> MeasuredDays | None:
    """The fastest trial of a cell's settings, which are naive in Table 4 and in Table 1 any reading of Appendix J; one
    that ran out of memory where none ran, None where there is none."""
    naive = cell.table == "4"
    rows = [] if naive else [row for row in published_settings() if row.place == cell.place]
    wanted = {NAIVE.id} if naive else {settings.id for row in rows for settings in row.readings()}
    found = [row for row in measured_days().values() if row.place == cell.place and row.settings in wanted]
    return min(found, key=lambda row: row.true_days or float("inf"), default=None)


def _check(row: Row) -> None:
    row.choice("model", models.NAMES)
    row.choice("gpu", list(paper_gpus()))
