"""What the time model is fitted to, and scored by: the printed days of the paper's cells, and the trials kept in
expected/measured.csv."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.paper.arithmetic import paper_gpu, recipe_of
from repro.paper.measured_days import measured_days
from repro.paper.settings import NAIVE, Settings
from repro.paper.tables import Cell, Table, all_cells
from repro.record import Record

from ..models.recipe import Recipe
from . import traces
from .constants import Rates
from .hardware import Machine
from .memory import variant_of
from .time import StepModel, TimedStep


@dataclass(frozen=True)
class Observation:
    """Days of a cell or of a trial. A cell's `readings` are the settings it may have had, naive for Table 4 and
    Appendix J's for Table 1, with its micro batch. A trial has `cell` None, its own settings and micro batch, and was
    measured on `stack`. Its `days` are true; `authors_days` are by the authors' clock, None if at another micro
    batch."""

    cell: Cell | None
    days: float
    recipe: Recipe
    machine: Machine
    readings: tuple[Settings, ...]
    micro_batch: int | None
    stack: traces.Traced = traces.PAPER_STACK
    authors_days: float | None = None
    source: str = ""

    @property
    def gpu(self) -> str:
        """Return the GPU's name, the paper's if it has one."""
        return self.machine.gpu.called

    def trace(self, settings: Settings) -> traces.Trace:
        """Return the trace of its recipe and stack for these settings."""
        return traces.find(self.recipe.id, variant_of(settings), self.stack)

    def step(self, settings: Settings, micro_batch: int, rates: Rates) -> TimedStep:
        """Return its predicted training step with these settings, at a micro batch."""
        return StepModel(self.recipe, self.trace(settings), settings, self.machine, rates).step(micro_batch)

    def belongs(self, held_out: str) -> bool:
        """Return whether it is of the recipe or the GPU that a fit holds out."""
        return held_out in (self.recipe.id, self.gpu)


def observations() -> list[Observation]:
    """Return every cell of Tables 1 and 4 that has days."""
    return [
        Observation(
            cell,
            cell.days,
            recipe_of(cell.model),
            Machine(paper_gpu(cell.gpu), cell.gpus),
            tuple(cell.readings),
            cell.row.mbs if cell.row else None,
            source=cell.source,
        )
        for cell in all_cells()
        if cell.days is not None
    ]


def released(records: Iterable[Record]) -> list[Observation]:
    """Return the authors' raw results that ran: days by their clock, of one reading of a cell each, not rounded."""
    cells = {(cell.table, *cell.place): cell for cell in all_cells()}
    found = []
    for record in records:
        if record.derived.authors_days is None:
            continue
        recipe, settings = record.recipe_and_settings
        table: Table = "4" if settings == NAIVE else "1"
        cell = cells[table, recipe.name, record.device, record.count]
        machine = Machine(paper_gpu(record.device), record.count)
        days, size = record.derived.authors_days, record.batch.micro_batch
        found.append(Observation(cell, days, recipe, machine, (settings,), size, source="the authors' raw results"))
    return found


def trials() -> list[Observation]:
    """Return every trial of expected/measured.csv that ran. Raise UserError if the file is broken."""
    found = []
    for row in measured_days().values():
        if row.true_days is None:
            continue
        versions = dict(one.rsplit(" ", 1) for one in row.stack.split(", "))
        found.append(
            Observation(
                None,
                row.true_days,
                recipe_of(row.model),
                Machine(paper_gpu(row.gpu), row.gpus),
                (Settings.parse(row.settings),),
                row.micro_batch,
                traces.nearest(versions),
                row.authors_days,
                row.source,
            )
        )
    return found


def folds(seen: Iterable[Observation]) -> list[str]:
    """Return the names that are held out, one at a time: each recipe, then each GPU."""
    listed = list(seen)
    return [*dict.fromkeys(each.recipe.id for each in listed), *dict.fromkeys(each.gpu for each in listed)]
