"""Which cells a run has searched: what the claims on the paper's search are checked on.

Only records at the paper's scale, on GPUs of one node, of the GPU's whole memory count. A cell, a Pythia model on some
GPUs, is searched if every settings of the search space ran there or ran out of memory, or if free lunch alone ran out:
the figures leave such cells out. The paper's numbers are of its four GPUs: what some of them give, or another, is told
beside and settles nothing, but that a largest number is above the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import models

from .. import command
from ..clocks import DAYS, Clock
from ..formats import are, counted, listing
from ..gpus import paper_gpus
from ..results import TRIALS
from ..search import Search, searches
from ..settings import search_space
from ..trial import Record
from ..verdict import stands_for_cell
from .working import Row, shown

_PYTHIA = tuple(recipe.id for recipe in models.PYTHIAS)
COMMAND = f"{command()} --gpus all --models {','.join(_PYTHIA)} --methods all"
_NAMED = 3  # so many of the cells that are not searched are named, the others counted


@dataclass(frozen=True)
class Searched:
    """The searched cells of the GPUs whose cells are all searched, or, where `untried` says which are not, of the GPU
    that comes nearest. Cells where free lunch alone does not fit are left out."""

    cells: tuple[Search, ...]
    devices: tuple[str, ...]
    untried: str

    @property
    def of_paper(self) -> bool:
        return set(self.devices) <= set(paper_gpus())

    @property
    def where(self) -> str:
        """What was measured, and on which GPUs."""
        told = f"measured in {counted(len(self.cells), 'cell')} of {listing(self.devices)}"
        return told if self.of_paper else f"{told}, none of the paper's GPUs"

    @property
    def missing(self) -> str:
        """What else the paper's numbers are of; nothing where all of it is there."""
        others = [gpu for gpu in paper_gpus() if gpu not in self.devices]
        if self.untried or not others:
            return self.untried
        return f"the paper's {listing(others)} {are(len(others))} missing, where {COMMAND} measures it"


def searched(records: Sequence[Record], clock: Clock, counts: Sequence[int]) -> Searched:
    """The cells with these numbers of GPUs, by this clock: of the paper's GPUs whose cells are all searched, else of
    other such GPUs, else of the nearest, one of the paper's where any was measured."""
    there = {(each.recipe, each.device, each.count): each for each in searches(at_scale(records), clock)}
    devices = tuple(dict.fromkeys(device for recipe, device, _ in there if recipe in _PYTHIA))
    if not devices:
        return Searched((), (), nothing_counts(records, COMMAND))
    cells = {
        device: [
            there.get((id, device, count)) or Search(id, "paper", device, count, 1, None, (), clock)
            for id in _PYTHIA
            for count in counts
        ]
        for device in devices
    }
    whole = [device for device in devices if not any(map(_lacks, cells[device]))]
    taken = _of_paper(whole)
    untried = ""
    if not taken:
        taken = [max(_of_paper(devices), key=lambda device: sum(not _lacks(cell) for cell in cells[device]))]
        untried = _untried(cells[taken[0]])
    fit = (cell for device in taken for cell in cells[device] if cell.free_lunch_fits and cell.whole)
    return Searched(tuple(fit), tuple(taken), untried)


def _of_paper(devices: Sequence[str]) -> Sequence[str]:
    """The paper's among them, all where there are none."""
    return [device for device in devices if device in paper_gpus()] or devices


def at_scale(records: Sequence[Record]) -> list[Record]:
    """The records that can stand for the paper's, and are believed."""
    return [record for record in records if stands_for_cell(record) and record.status != "not_measured"]


def nothing_counts(records: Sequence[Record], run: str) -> str:
    """Why records settle nothing, and the command whose records would."""
    measures = f"{run} measures it, and {command()} claims --measured DIR checks it"
    return f"{why_none_counts(records)}; {measures}" if records else measures


def why_none_counts(records: Sequence[Record]) -> str:
    """Why none of these records can stand for the paper's, by how many are of which kind."""
    kinds = {
        "not believed": sum(record.status == "not_measured" for record in records),
        "of tiny recipes": sum(record.scale != "paper" for record in records),
        "of the CPU": sum(record.device == "cpu" for record in records),
        "under a memory limit": sum(record.memory_limit is not None for record in records),
        "on several nodes": sum(record.nodes > 1 for record in records),
    }
    told = (
        ", ".join(f"{number} are {kind}" for kind, number in kinds.items() if number)
        or "they are of other models or settings, or did not run"
    )
    return f"none of the {len(records)} records counts: {told}"


def name(cell: Search) -> str:
    """The cell, as the paper's are named."""
    return f"{cell.model} on {cell.count} {cell.device}"


def rows(cell: Search) -> tuple[Row, ...]:
    """Days of all settings that ran there, by the cell's clock."""
    return tuple(
        Row(TRIALS, f"{name(cell)}, {id}", f"{shown(cell.days(step))} {DAYS[cell.clock]}", "this run")
        for id, step in cell.steps.items()
    )


def _lacks(cell: Search) -> bool:
    """Whether settings that the figures would show are still to be tried."""
    return cell.free_lunch_fits and not cell.whole


def _untried(cells: Sequence[Search]) -> str:
    lacking = [cell for cell in cells if _lacks(cell)]
    named = [
        f"{name(cell)} lacks {len(cell.untried)} of {len(search_space(cell.count))} settings, first {cell.untried[0]}"
        for cell in lacking[:_NAMED]
    ]
    if len(lacking) > _NAMED:
        named.append(f"{counted(len(lacking) - _NAMED, 'other')} likewise")
    searched = len(cells) - len(lacking)
    told = f"{searched} of the {len(cells)} cells of {cells[0].device} {are(searched)} searched"
    return f"{told}: {', '.join(named)}; {COMMAND} measures them"
