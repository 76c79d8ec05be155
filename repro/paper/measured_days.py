"""Days measured on real GPUs for cells of Tables 1 and 4, each with the software stack of its measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .. import models
from ..datafile import Count, CsvRow, Positive, read_csv, read_once
from .gpus import paper_gpus
from .tables import AtPlace, Cell


@dataclass(frozen=True)
class MeasuredDays(AtPlace):
    """One trial, with days by both clocks. Days and micro batch are None if the settings ran out of memory. `source` is
    the results folder and the trial's id."""

    model: str
    gpu: str
    gpus: Count
    settings: str
    micro_batch: Count | None
    true_days: Positive | None
    authors_days: Positive | None
    stack: str
    source: str

    @property
    def folder(self) -> str:
        """Return the results folder that contains its record."""
        return self.source.partition(",")[0]

    @property
    def shown_by_authors_clock(self) -> float | None:
        """Return the authors' days over the true ones; None if the trial did not run."""
        return self.authors_days / self.true_days if self.authors_days and self.true_days else None


@read_once
def measured_days() -> Mapping[tuple[str, str, int, str, str], MeasuredDays]:
    """Return the trials by model, GPU, count, settings and stack. Raise UserError if the file is broken."""
    return read_csv(MeasuredDays, "measured.csv", ("model", "gpu", "gpus", "settings", "stack"), _check)


def measured(cell: Cell) -> MeasuredDays | None:
    """Return the fastest trial with a cell's settings: naive for Table 4; for Table 1, any reading of its row in
    Appendix J. Return an out-of-memory trial if none ran, and None if there is no trial."""
    wanted = {settings.id for settings in cell.readings}
    found = [row for row in measured_days().values() if row.place == cell.place and row.settings in wanted]
    return min(found, key=lambda row: row.true_days or float("inf"), default=None)


def _check(row: CsvRow) -> None:
    row.choice("model", models.names())
    row.choice("gpu", list(paper_gpus()))
