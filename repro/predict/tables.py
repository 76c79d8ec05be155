"""The paper's tables, predicted: Table 4 with naive settings, Table 1 with the best of the search, cell by cell."""

from __future__ import annotations

from repro.expected import Cell
from repro.findings import paper_gpu, recipe_of
from repro.settings import NAIVE, search_space

from .calibration import Calibration
from .forecast import Forecast, forecast, ranked
from .machine import Machine


def search(cell: Cell, calibration: Calibration) -> list[Forecast]:
    """Every settings that the paper tried for a cell, fastest first, as predicted on the paper's stack."""
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    space = [NAIVE] if cell.table == "4" else search_space(cell.gpus)
    return ranked(forecast(recipe, machine, settings, calibration) for settings in space)


def predicted(cell: Cell, calibration: Calibration) -> Forecast:
    """The fastest settings of a cell."""
    return search(cell, calibration)[0]
