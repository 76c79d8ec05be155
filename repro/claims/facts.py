"""What expected/ and the recipes hold, as numbers that know their row.

Reading raises UserError where a file of expected/ is broken, or lacks what a claim is checked on.
"""

from __future__ import annotations

from .. import prices
from ..datafile import absent
from ..expected import COUNTS, Cell, Table
from ..findings import by_place, recipe_of, training_flops
from ..formats import counted
from ..gpus import by_name, paper_gpus
from ..lab import LabRun, lab_runs
from ..originals import originals
from ..quantities import quantities
from .working import Row, Working, shown, total


def days(table: Table, model: str, gpu: str, gpus: int) -> Working:
    """Days of a cell that has some."""
    cell = by_place(table)[model, gpu, gpus]
    if cell.days is None:
        absent(f"table{table}.csv", "days", (model, gpu, gpus))
    return Working.read(cell.days, cell_row(cell), rounded_to=1)


def original(model: str) -> Working:
    """GPU-days of the original training, which is known."""
    found = originals()[model]
    if found.gpus is None or found.days is None:
        absent("figure6.csv", "GPUs and days", model)
    value = f"{found.gpus} {found.gpu} for {counted(found.days, 'day')}"
    days = Working.read(found.days, Row("figure6.csv", model, value, found.source))
    return (days * found.gpus).called(f"GPU-days of the original {model}")


def original_gpus(model: str) -> Working:
    """GPUs of the original training, which are known."""
    found = originals()[model]
    if found.gpus is None:
        absent("figure6.csv", "GPUs", model)
    return Working.read(found.gpus, Row("figure6.csv", model, f"{found.gpus} {found.gpu}", found.source))


def quantity(id: str, rounded_to: float = 0.0) -> Working:
    found = quantities()[id]
    row = Row("quantities.csv", f"{id}: {found.what}", f"{shown(found.value)} {found.unit}", found.source)
    return Working.read(found.value, row, rounded_to)


def price(gpu: str) -> Working:
    """US dollars of a GPU."""
    found = prices.gpu_prices()[gpu]
    row = Row("table5.csv", gpu, f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row, quantities()[f"rounding/{gpu}"].value)


def system(gpus: int) -> Working:
    """US dollars of what is around the GPUs, as section 4.1 rounds it."""
    found = prices.systems()[gpus]
    row = Row("systems.csv", f"{found.system}, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row, quantities()["rounding/system"].value)


def machine(gpu: str, gpus: int) -> Working:
    """US dollars of a machine with its GPUs."""
    return (price(gpu) * gpus + system(gpus)).called(f"USD of a machine with {gpus} {gpu}")


def machines() -> dict[tuple[str, int], tuple[Working, Working]]:
    """Cost and days of Pythia-1B of every machine that can train it, cheapest first: figure 7."""
    found = {
        (gpu, gpus): (machine(gpu, gpus), days("1", "Pythia-1B", gpu, gpus)) for gpu in paper_gpus() for gpus in COUNTS
    }
    return dict(sorted(found.items(), key=lambda item: item[1][0].value.value))


def parts(gpus: int) -> Working:
    """US dollars of a desktop's parts: Table 6, without its total."""
    return total(
        [
            Working.read(part.cost_usd, Row("table6.csv", part.part, f"{part.cost_usd:.2f} USD", part.source))
            for part in prices.parts().values()
            if part.gpus == gpus and part.part != "Total"
        ]
    )


def server(gpus: int) -> Working:
    """US dollars of a server without its GPUs: Table 7."""
    found = prices.servers()[gpus]
    row = Row("table7.csv", f"server, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
    return Working.read(found.cost_usd, row)


def rental(gpu: str, gpus: int, provider: str, terms: str) -> Working:
    """What the hours of an instance cost that it is rented for: an hour, or a reservation."""
    found = prices.rentals()[gpu, gpus, provider, terms]
    what = f"{gpus} {gpu} at {provider}, {terms}, {found.hours:g} h"
    row = Row("rental.csv", what, f"{shown(found.price)} {found.currency}", found.source)
    return Working.read(found.price, row)


def lab(resources: str, epochs: int) -> tuple[LabRun, Row]:
    """A run of the lab, and its row."""
    run = lab_runs()[resources, epochs]
    return run, Row("lab.csv", f"{resources}, {counted(epochs, 'epoch')}", f"{run.seconds} s", run.source)


def figure(gpu: str, field: str, unit: str) -> Working:
    """A figure of a GPU's data sheet."""
    found = by_name()[gpu]
    value = getattr(found, field)
    if value is None:
        absent("gpus.csv", field, gpu)
    return Working.read(value, Row("gpus.csv", f"{gpu}, {field}", f"{value:g} {unit}", found.source))


def parameters(model: str) -> Working:
    """The model's weights, counted in closed form."""
    recipe = recipe_of(model)
    row = Row("models/", recipe.id, f"{recipe.parameters:,} parameters", "closed form of the recipe's shape")
    return Working.read(recipe.parameters, row)


def flops(model: str) -> Working:
    """FLOPs of a whole training, counted in closed form."""
    recipe = recipe_of(model)
    value = f"{shown(recipe.flops_per_example)} FLOPs an example x {recipe.batch_size} x {recipe.training_steps} steps"
    row = Row("models/", recipe.id, value, "closed form of the recipe's shape")
    return Working.read(training_flops(recipe), row).called(f"FLOPs of {model}")


def cell_row(cell: Cell) -> Row:
    """The row of a cell of Table 1 or 4."""
    value = counted(cell.days, "day") if cell.days is not None else cell.state
    return Row(f"table{cell.table}.csv", f"{cell.model} on {cell.machine}", value, cell.source)
