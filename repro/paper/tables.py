"""The paper's printed numbers: Tables 1, 3 and 4, Appendix J, its original trainings, and single quantities."""

from __future__ import annotations

import itertools
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from msgspec import Meta

from .. import models
from ..datafile import (
    ContradictionError,
    Count,
    CsvRow,
    Positive,
    complete,
    csv_rows,
    expected_folder,
    read_csv,
    read_once,
)
from .gpus import OfGpus, known_gpu, paper_gpus
from .settings import NAIVE, SHARDINGS, Settings, Sharding

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

    @property
    def row(self) -> PublishedSettings | None:
        """Return the row of Appendix J with its settings; None for Table 4, and where there is none."""
        return None if self.table == "4" else settings_by_place().get(self.place)

    @property
    def readings(self) -> list[Settings]:
        """Return the settings that it may have had: naive for Table 4, none without a row of Appendix J."""
        if self.table == "4":
            return [NAIVE]
        return self.row.readings() if self.row else []


def printed(state: State, days: int | None) -> str:
    """Return a cell as the paper prints it: days, - for infeasible, ? for a mark lost in our copy of the paper."""
    return {"days": str(days), "infeasible": "-", "lost": "?"}[state]


_MARKS = {"yes": True, "no": False, "?": None}
_SHARDINGS: dict[str, Sharding | None] = {**{sharding: sharding for sharding in SHARDINGS}, "?": None}
_Mark = Annotated[bool | None, _MARKS.__getitem__, Meta(description="yes, no or ? (lost mark)")]
_Sharding = Annotated[
    Sharding | None, _SHARDINGS.__getitem__, Meta(description=f"{', '.join(SHARDINGS)} or ? (lost mark)")
]


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
    mbs: Count
    gas: Count
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
_Rounded = Annotated[int, _rounded, Meta(description="a number such as 143K")]
_RoundedOrDash = Annotated[
    int | None, lambda text: None if text == "-" else _rounded(text), Meta(description="a number such as 143K, or -")
]
_Precision = Annotated[str | None, _PRECISIONS.__getitem__, Meta(description="fp16, bf16 or N/A")]


@dataclass(frozen=True)
class PrintedRecipe:
    """A row of Table 3, rounded as in the paper (143K is 143,000). None is a dash or N/A."""

    model: str
    parameters: _Rounded
    sequence_length: _RoundedOrDash
    vocabulary: _RoundedOrDash
    image_size: _RoundedOrDash
    classes: _RoundedOrDash
    batch_size: Count
    training_steps: _Rounded
    mixed_precision: _Precision
    optimizer: Literal["Adam", "AdamW"]
    source: str


@read_once
def cells(table: Table) -> tuple[Cell, ...]:
    """Return every cell of Table 1 or 4: each model of Table 3 on 1, 2, 4 and 8 of each of the paper's GPUs.

    Raise UserError if the file is broken.
    """
    name, seen, found = f"table{table}.csv", dict[Hashable, int](), []
    for row, value in csv_rows(expected_folder() / name, _Row):
        _check_place(row, value.gpus, seen)
        state, days = value.days
        found.append(Cell(table, value.model, value.gpu, value.gpus, days, state, value.source))
    complete(name, seen, itertools.product(printed_recipes(), paper_gpus(), COUNTS))
    return tuple(found)


def all_cells() -> list[Cell]:
    """Return the cells of both tables."""
    return [cell for table in TABLES for cell in cells(table)]


@read_once
def published_settings() -> tuple[PublishedSettings, ...]:
    """Return the rows of Appendix J.

    Raise UserError if the file is broken, or contradicts Appendix F or Table 3's batch size.
    """
    seen, found = dict[Hashable, int](), []
    for row, value in csv_rows(expected_folder() / "appendix_j.csv", PublishedSettings):
        _check_place(row, value.gpus, seen)
        product, batch = value.gpus * value.mbs * value.gas, printed_recipes()[value.model].batch_size
        if product != batch:
            equation = f"gpus x mbs x gas = {batch}, the batch size of {value.model} in table3.csv"
            row.problem("gas", f"{equation}, not {product}")
        found.append(value)
    return tuple(found)


@read_once
def settings_by_place() -> Mapping[Place, PublishedSettings]:
    """Return the row of Appendix J of each cell that has one."""
    return {row.place: row for row in published_settings()}


@read_once
def printed_recipes() -> Mapping[str, PrintedRecipe]:
    """Return the rows of Table 3, by model. Raise UserError if the file is broken or lacks a model."""
    return read_csv(PrintedRecipe, "table3.csv", ("model",), _known_model, models.names())


def _check_place(row: CsvRow, gpus: int, seen: dict[Hashable, int]) -> None:
    row.choice("model", printed_recipes())
    row.choice("gpu", paper_gpus())
    row.choice("gpus", tuple(map(str, COUNTS)))
    row.once("gpus", (row["model"], row["gpu"], gpus), seen)


def _either(mark: bool | None) -> tuple[bool, ...]:
    return (False, True) if mark is None else (mark,)


def _days(text: str) -> tuple[State, int | None]:
    if text == "-":
        return "infeasible", None
    if text == "?":
        return "lost", None
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise ValueError
    return "days", int(text)


_Days = Annotated[
    tuple[State, int | None], _days, Meta(description="a whole number of days, - (infeasible) or ? (lost mark)")
]


@dataclass(frozen=True)
class _Row:
    """A row of table1.csv or table4.csv."""

    model: str
    gpu: str
    gpus: Count
    days: _Days
    source: str


@dataclass(frozen=True)
class Original:
    """The GPUs and days of a model's original training, from figure 6(a). None if the original does not state it."""

    model: str
    gpus: Count | None
    gpu: str
    days: Count | None
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
    row.choice("model", models.names())


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
