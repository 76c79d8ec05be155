"""A placeholder for the launch queue's clock: the last kernels of a micro-step take their share of its time."""

from __future__ import annotations

from repro.expected import Cell, published_settings
from repro.findings import paper_gpu, recipe_of
from repro.rules import compiles
from repro.settings import NAIVE, Settings

from . import traces
from .calibration import EVERYTHING, load
from .machine import Machine
from .memory import largest_micro_batch, variant_of
from .time import workload

_QUEUED = {False: 620.0, True: 250.0}
_MOST = 0.9


def settings_and_size(cell: Cell) -> tuple[Settings, int]:
    """The first reading of Appendix J and its micro batch; naive at the largest that fits for Table 4."""
    if cell.table == "4":
        recipe, gpu = recipe_of(cell.model), paper_gpu(cell.gpu)
        trace = traces.find(recipe.id, "naive")
        size = largest_micro_batch(recipe, trace, NAIVE, gpu, cell.gpus, load()[EVERYTHING].allowance)
        return NAIVE, size
    row = {row.place: row for row in published_settings()}[cell.place]
    return row.readings()[0], row.mbs


def hidden(cell: Cell) -> float | None:
    """Share of a micro-step that waits in the queue at its end; None where nothing is known of the cell."""
    recipe, machine = recipe_of(cell.model), Machine(paper_gpu(cell.gpu), cell.gpus)
    settings, size = settings_and_size(cell)
    if not size:
        return None
    if settings.stage > 1 or settings.offloading:
        return 0.0
    compiled = compiles(recipe, settings)
    work = workload(traces.find(recipe.id, variant_of(settings)), settings, size, compiled)
    kernels = work.kernels + (recipe.parameters > 0 and machine.world > 1) * 150
    return min(_MOST, _QUEUED[compiled] / kernels)


def implied_true_days(cell: Cell, printed_days: float) -> float | None:
    """The true days that the printed ones imply, the queue taken out; None where the cell is predicted infeasible."""
    share = hidden(cell)
    if share is None:
        return None
    recipe = recipe_of(cell.model)
    accumulation = recipe.batch_size / cell.gpus / settings_and_size(cell)[1]
    seen = accumulation * (1 - share) + (share if recipe.precision == "fp16" else 0.0)
    return printed_days * accumulation / seen
