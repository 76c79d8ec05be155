"""The paper's printed numbers: Tables 1, 3 and 4, Appendix J, its original trainings, and single quantities."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from .. import models
from ..datafile import (
    ContradictionError,
    CsvRow,
    Positive,
    columns,
    complete,
    csv_rows,
    expected_folder,
    positive_int,
    read_csv,
    read_once,
)
from .gpus import OfGpus, known_gpu, paper_gpus
from .settings import SHARDINGS, Settings, Sharding

COUNTS = (1, 2, 4, 8)  # the numbers of GPUs in Tables 1 and 4
TOLERANCE = 0.15  # relative, around the printed days; a run's default

Table = Literal["1", "4"]
TABLES: tuple[Table, ...] = get_args(Table)
State = Literal["days", "infeasible", "lost"]
Place = tuple[str, str, int]  # model, GPU and number of GPUs, as the paper names them


class AtPlace(OfGpus):
    """Base class of rows about one model on one machine."""

    model: str

    @property
    def place(self) -> Place:
        return self.model, self.gpu, self.gpus


@dataclass(frozen=True)
class Cell(AtPlace):
    """One entry of Table 1 or 4. `days` is the printed integer, None unless `state` is "days"."""

    table: Table
    model: str
    gpu: str
    gpus: int
    days: int | None
    state: State
    source: str

    @property
    def printed(self) -> str:
        """Return the cell as the paper prints it."""
        return printed(self.state, self.days)


def printed(state: State, days: int | None) -> str:
    """Return a cell as the paper prints it: days, - for infeasible, ? for a mark lost in our copy of the paper."""
    return {"days": str(days), "infeasible": "-", "lost": "?"}[state]


_MARKS = {"yes": True, "no": False, "?": None}
_SHARDINGS: dict[str, Sharding | None] = {**{sharding: sharding for sharding in SHARDINGS}, "?": None}
_Mark = Annotated[bool | None, (_MARKS.__getitem__, "yes, no or ? (lost mark)")]
_Sharding = Annotated[Sharding | None, (_SHARDINGS.__getitem__, f"{', '.join(SHARDINGS)} or ? (lost mark)")]


@dataclass(frozen=True)
class PublishedSettings(AtPlace):
    """A row of Appendix J: the settings that reached a cell of Table 1. None is a lost mark."""

    model: str
    gpu: str
    gpus: int
    free_lunch: _Mark
    checkpointing: _Mark
    sharding: _Sharding
    offloading: _Mark
    mbs: int
    gas: int
    source: str

    def __post_init__(self) -> None:
        if not self.readings():
            one = self.gpus == 1
            rule = "sharding and offloading together on 1 GPU" if one else "a sharding where there is offloading"
            raise ContradictionError("sharding", f"{rule} (Appendix F)")

    def readings(self) -> list[Settings]:
        """Return all ways to fill in the row's lost marks that Appendix F allows: exactly one if no mark is lost."""
        marks = itertools.product(
            _either(self.free_lunch),
            _either(self.checkpointing),
            SHARDINGS if self.sharding is None else (self.sharding,),
            _either(self.offloading),
        )
        return [reading for reading in itertools.starmap(Settings, marks) if reading.allowed_on(self.gpus)]


def _rounded(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([KMB]?)", text)
    if not match or not (number := round(float(match[1]) * _SCALE[match[2]])):
        raise ValueError
    return number


_SCALE = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}
_PRECISIONS = {"fp16": "fp16", "bf16": "bf16", "N/A": None}
_Rounded = Annotated[int, (_rounded, "a number such as 143K")]
_Precision = Annotated[str | None, (_PRECISIONS.__getitem__, "fp16, bf16 or N/A")]


@dataclass(frozen=True)
class PrintedRecipe:
    """A row of Table 3, rounded as in the paper (143K is 143,000). None is a dash or N/A."""

    model: str
    parameters: _Rounded
    sequence_length: _Rounded | None
    vocabulary: _Rounded | None
    image_size: _Rounded | None
    classes: _Rounded | None
    batch_size: int
    training_steps: _Rounded
    mixed_precision: _Precision
    optimizer: Literal["Adam", "AdamW"]
    source: str


@read_once
def cells(table: Table) -> tuple[Cell, ...]:
    """Return every cell of Table 1 or 4: each model of Table 3 on 1, 2, 4 and 8 of each of the paper's GPUs.

    Raise UserError if the file is broken.
    """
    file, recipes, gpus = expected_folder() / f"table{table}.csv", printed_recipes(), paper_gpus()
    seen: dict[Hashable, int] = {}
    found = []
    for row in csv_rows(file, columns(Cell, without=("table", "state"))):
        model, gpu, count = _cell_of(row, recipes, gpus, seen)
        state, days = row.parse("days", _days, "a whole number of days, - (infeasible) or ? (lost mark)")
        found.append(Cell(table, model, gpu, count, days, state, row.text("source")))
    complete(file, seen, itertools.product(recipes, gpus, COUNTS))
    return tuple(found)


def all_cells() -> list[Cell]:
    """Return the cells of both tables."""
    return [cell for table in TABLES for cell in cells(table)]


@read_once
def published_settings() -> tuple[PublishedSettings, ...]:
    """Return the rows of Appendix J.

    Raise UserError if the file is broken, or contradicts Appendix F or Table 3's batch size.
    """
    recipes, gpus = printed_recipes(), paper_gpus()
    seen: dict[Hashable, int] = {}

    def check(row: CsvRow) -> None:
        model, _, count = _cell_of(row, recipes, gpus, seen)
        product, batch = count * row.count("mbs") * row.count("gas"), recipes[model].batch_size
        if product != batch:
            equation = f"gpus x mbs x gas = {batch}, the batch size of {model} in table3.csv"
            row.problem("gas", f"{equation}, not {product}")

    return tuple(read_csv(PublishedSettings, "appendix_j.csv", ("model", "gpu", "gpus"), check).values())


@read_once
def settings_by_place() -> Mapping[Place, PublishedSettings]:
    """Return the row of Appendix J of each cell that has one."""
    return {row.place: row for row in published_settings()}


@read_once
def printed_recipes() -> Mapping[str, PrintedRecipe]:
    """Return the rows of Table 3, by model. Raise UserError if the file is broken or lacks a model."""
    return read_csv(PrintedRecipe, "table3.csv", ("model",), _known_model, models.NAMES)


def _cell_of(
    row: CsvRow, recipes: Collection[str], gpus: Collection[str], seen: dict[Hashable, int]
) -> tuple[str, str, int]:
    model, gpu = row.choice("model", recipes), row.choice("gpu", gpus)
    count = int(row.choice("gpus", tuple(map(str, COUNTS))))
    row.once("gpus", (model, gpu, count), seen)
    return model, gpu, count


def _either(mark: bool | None) -> tuple[bool, ...]:
    return (False, True) if mark is None else (mark,)


def _days(text: str) -> tuple[State, int | None]:
    if text == "-":
        return "infeasible", None
    if text == "?":
        return "lost", None
    return "days", positive_int(text)


@dataclass(frozen=True)
class Original:
    """The GPUs and days of a model's original training, from figure 6(a). None if the original does not state it."""

    model: str
    gpus: int | None
    gpu: str
    days: int | None
    source: str


@dataclass(frozen=True)
class TrainingCompute:
    """FLOPs of a whole training as printed in figure 9, with two significant digits."""

    model: str
    training_flops: Positive
    source: str


@dataclass(frozen=True)
class AnalyticPeaks:
    """TFLOP/s of a GPU in the paper's analytic estimate."""

    gpu: str
    fp16_tflops: Positive
    tf32_tflops: Positive
    source: str


@read_once
def original_trainings() -> Mapping[str, Original]:
    """Return the rows of figure 6(a), by model. Raise UserError if the file is broken."""
    return read_csv(Original, "figure6.csv", ("model",), _known_model)


@read_once
def training_compute() -> Mapping[str, TrainingCompute]:
    """Return the rows of figure 9(a), by model. Raise UserError if the file is broken."""
    return read_csv(TrainingCompute, "figure9.csv", ("model",), _known_model)


@read_once
def analytic_peaks() -> Mapping[str, AnalyticPeaks]:
    """Return the peaks behind figures 2 and 9(b), by GPU. Raise UserError if the file is broken."""
    return read_csv(AnalyticPeaks, "analytic_peaks.csv", ("gpu",), known_gpu)


def _known_model(row: CsvRow) -> None:
    row.choice("model", models.NAMES)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, what it counts, and its source. It was rounded to a multiple of `rounded_to`; None if it
    is exact."""

    id: str
    value: Positive
    rounded_to: Positive | None
    unit: str
    what: str
    source: str


@read_once
def quantities() -> Mapping[str, Quantity]:
    """Return all quantities, by id. Raise UserError if the file is broken."""
    return read_csv(Quantity, "quantities.csv", ("id",))
