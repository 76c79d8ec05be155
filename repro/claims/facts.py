"""What expected/ and the recipes hold, each file read once, as numbers that know their row."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import NoReturn, TypeVar

from ..datafile import expected_folder, named
from ..errors import UserError
from ..expected import COUNTS, Cell, PrintedRecipe, PublishedSettings, Table, cells, printed_recipes, published_settings
from ..findings import GpuDays, Place, Speedup, by_place, gpu_days, recipe_of, speedups, training_flops
from ..hardware import Gpu, catalogue
from ..lab import LabRun, lab_runs
from ..originals import AnalyticPeaks, Original, TrainingCompute, analytic_peaks, originals, training_compute
from ..prices import GpuPrice, Part, Rental, Server, System, gpu_prices, parts, rentals, servers, systems
from ..quantities import Quantity, quantities
from .working import Row, Working, shown, total

PAPER_GPUS = ("RTX 3090", "A6000", "A100", "H100")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Rows(dict[K, V]):
    """A file's rows by what names them. One that a claim needs and the file lacks raises UserError."""

    def __init__(self, file: str, rows: Mapping[K, V]) -> None:
        super().__init__(rows)
        self._file = expected_folder() / file

    def __missing__(self, key: K) -> NoReturn:
        raise UserError(f"{self._file}: found no row for {named(key)}, expected the one that claims are checked on")


class Facts:
    """The files of expected/. Reading raises UserError where one is broken."""

    @cached_property
    def tables(self) -> dict[Table, dict[Place, Cell]]:
        return {"1": by_place(cells("1")), "4": by_place(cells("4"))}

    @cached_property
    def appendix_j(self) -> list[PublishedSettings]:
        return published_settings()

    @cached_property
    def recipes(self) -> dict[str, PrintedRecipe]:
        return {recipe.model: recipe for recipe in printed_recipes()}

    @cached_property
    def gpus(self) -> dict[str, Gpu]:
        """By the paper's name where it has one, else by ours."""
        return {gpu.paper_name or gpu.name: gpu for gpu in catalogue()}

    @cached_property
    def speedups(self) -> list[Speedup]:
        return speedups()

    @cached_property
    def gpu_days(self) -> list[GpuDays]:
        return gpu_days()

    @cached_property
    def figure_9(self) -> dict[str, TrainingCompute]:
        return _Rows("figure9.csv", {row.model: row for row in training_compute()})

    @cached_property
    def analytic_peaks(self) -> dict[str, AnalyticPeaks]:
        return _Rows("analytic_peaks.csv", {row.gpu: row for row in analytic_peaks()})

    @cached_property
    def _quantities(self) -> dict[str, Quantity]:
        return _Rows("quantities.csv", quantities())

    @cached_property
    def _originals(self) -> dict[str, Original]:
        return _Rows("figure6.csv", {original.model: original for original in originals()})

    @cached_property
    def _prices(self) -> dict[str, GpuPrice]:
        return _Rows("table5.csv", {price.gpu: price for price in gpu_prices()})

    @cached_property
    def _systems(self) -> dict[int, System]:
        return _Rows("systems.csv", {system.gpus: system for system in systems()})

    @cached_property
    def _parts(self) -> list[Part]:
        return parts()

    @cached_property
    def _servers(self) -> dict[int, Server]:
        return _Rows("table7.csv", {server.gpus: server for server in servers()})

    @cached_property
    def _rentals(self) -> dict[tuple[str, int, str, str], Rental]:
        return _Rows(
            "rental.csv", {(rental.gpu, rental.gpus, rental.provider, rental.terms): rental for rental in rentals()}
        )

    @cached_property
    def _lab_runs(self) -> dict[tuple[str, int], LabRun]:
        return _Rows("lab.csv", {(run.resources, run.epochs): run for run in lab_runs()})

    def days(self, table: Table, model: str, gpu: str, gpus: int) -> Working:
        """Days of a cell that has some."""
        cell = self.tables[table][model, gpu, gpus]
        assert cell.days is not None
        return Working.read(cell.days, cell_row(cell), rounded_to=1)

    def original(self, model: str) -> Working:
        """GPU-days of the original training, which is known."""
        found = self._originals[model]
        assert found.gpus is not None
        assert found.days is not None
        value = f"{found.gpus} {found.gpu} for {found.days} days"
        days = Working.read(found.days, Row("figure6.csv", model, value, found.source))
        return (days * found.gpus).called(f"GPU-days of the original {model}")

    def original_gpus(self, model: str) -> Working:
        """GPUs of the original training, which are known."""
        found = self._originals[model]
        assert found.gpus is not None
        return Working.read(found.gpus, Row("figure6.csv", model, f"{found.gpus} {found.gpu}", found.source))

    def quantity(self, id: str, rounded_to: float = 0.0) -> Working:
        found = self._quantities[id]
        row = Row("quantities.csv", f"{id}: {found.what}", f"{shown(found.value)} {found.unit}", found.source)
        return Working.read(found.value, row, rounded_to)

    def price(self, gpu: str) -> Working:
        """US dollars of a GPU."""
        found = self._prices[gpu]
        row = Row("table5.csv", gpu, f"{shown(found.cost_usd)} USD", found.source)
        return Working.read(found.cost_usd, row, self._quantities[f"rounding/{gpu}"].value)

    def system(self, gpus: int) -> Working:
        """US dollars of what is around the GPUs, as section 4.1 rounds it."""
        found = self._systems[gpus]
        row = Row("systems.csv", f"{found.system}, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
        return Working.read(found.cost_usd, row, self._quantities["rounding/system"].value)

    def machine(self, gpu: str, gpus: int) -> Working:
        """US dollars of a machine with its GPUs."""
        return (self.price(gpu) * gpus + self.system(gpus)).called(f"USD of a machine with {gpus} {gpu}")

    def machines(self) -> dict[tuple[str, int], tuple[Working, Working]]:
        """Cost and days of Pythia-1B of every machine that can train it, cheapest first: figure 7."""
        found = {
            (gpu, gpus): (self.machine(gpu, gpus), self.days("1", "Pythia-1B", gpu, gpus))
            for gpu in PAPER_GPUS
            for gpus in COUNTS
        }
        return dict(sorted(found.items(), key=lambda item: item[1][0].value.value))

    def parts(self, gpus: int) -> Working:
        """US dollars of a desktop's parts: Table 6, without its total."""
        return total(
            [
                Working.read(part.cost_usd, Row("table6.csv", part.part, f"{part.cost_usd:.2f} USD", part.source))
                for part in self._parts
                if part.gpus == gpus and part.part != "Total"
            ]
        )

    def server(self, gpus: int) -> Working:
        """US dollars of a server without its GPUs: Table 7."""
        found = self._servers[gpus]
        row = Row("table7.csv", f"server, GPUs: {gpus}", f"{shown(found.cost_usd)} USD", found.source)
        return Working.read(found.cost_usd, row)

    def rental(self, gpu: str, gpus: int, provider: str, terms: str) -> Working:
        """What the hours of an instance cost that it is rented for: an hour, or a reservation."""
        found = self._rentals[gpu, gpus, provider, terms]
        what = f"{gpus} {gpu} at {provider}, {terms}, {found.hours:g} h"
        row = Row("rental.csv", what, f"{shown(found.price)} {found.currency}", found.source)
        return Working.read(found.price, row)

    def lab(self, resources: str, epochs: int) -> tuple[LabRun, Row]:
        """A run of the lab, and its row."""
        run = self._lab_runs[resources, epochs]
        return run, Row("lab.csv", f"{resources}, {epochs} epochs", f"{run.seconds} s", run.source)

    def figure(self, gpu: str, field: str, unit: str) -> Working:
        """A figure of a GPU's data sheet."""
        found = self.gpus[gpu]
        value = getattr(found, field)
        return Working.read(value, Row("gpus.csv", f"{gpu}, {field}", f"{value:g} {unit}", found.source))

    def parameters(self, model: str) -> Working:
        """The model's weights, counted in closed form."""
        recipe = recipe_of(model)
        row = Row("models/", recipe.id, f"{recipe.parameters:,} parameters", "closed form of the recipe's shape")
        return Working.read(recipe.parameters, row)

    def flops(self, model: str) -> Working:
        """FLOPs of a whole training, counted in closed form."""
        recipe = recipe_of(model)
        value = (
            f"{shown(recipe.flops_per_example)} FLOPs an example x {recipe.batch_size} x {recipe.training_steps} steps"
        )
        row = Row("models/", recipe.id, value, "closed form of the recipe's shape")
        return Working.read(training_flops(recipe), row).called(f"FLOPs of {model}")


def cell_row(cell: Cell) -> Row:
    """The row of a cell of Table 1 or 4."""
    value = f"{cell.days} days" if cell.days is not None else cell.state
    return Row(f"table{cell.table}.csv", f"{cell.model} on {cell.gpus} {cell.gpu}", value, cell.source)
