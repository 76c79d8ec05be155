"""The paper's printed numbers: Tables 1, 3 and 4, Appendix J, its original trainings, and single quantities."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from .. import models
from ..datafile import Positive, Row, columns, expected_folder, named, positive_int, problem, read_once, records, rows
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


@dataclass(frozen=True)
class PublishedSettings(AtPlace):
    """A row of Appendix J: the settings that reached a cell of Table 1. None is a lost mark."""

    model: str
    gpu: str
    gpus: int
    free_lunch: bool | None
    checkpointing: bool | None
    sharding: Sharding | None
    offloading: bool | None
    mbs: int
    gas: int
    source: str

    def readings(self) -> list[Settings]:
        """Return all ways to fill in the row's lost marks that Appendix F allows: exactly one if no mark is lost."""
        marks = itertools.product(
            _either(self.free_lunch),
            _either(self.checkpointing),
            SHARDINGS if self.sharding is None else (self.sharding,),
            _either(self.offloading),
        )
        return [reading for reading in itertools.starmap(Settings, marks) if reading.allowed_on(self.gpus)]


@dataclass(frozen=True)
class PrintedRecipe:
    """A row of Table 3, rounded as in the paper (143K is 143,000). None is a dash or N/A."""

    model: str
    parameters: int
    sequence_length: int | None
    vocabulary: int | None
    image_size: int | None
    classes: int | None
    batch_size: int
    training_steps: int
    mixed_precision: str | None
    optimizer: str
    source: str


@read_once
def cells(table: Table) -> tuple[Cell, ...]:
    """Return every cell of Table 1 or 4: each model of Table 3 on 1, 2, 4 and 8 of each of the paper's GPUs.

    Raise UserError if the file is broken.
    """
    file, recipes, gpus = expected_folder() / f"table{table}.csv", printed_recipes(), paper_gpus()
    seen: dict[Hashable, int] = {}
    found = []
    for row in rows(file, columns(Cell, without=("table", "state"))):
        model, gpu, count = _cell_of(row, recipes, gpus, seen)
        state, days = row.parse("days", _days, "a whole number of days, - (infeasible) or ? (lost mark)")
        found.append(Cell(table, model, gpu, count, days, state, row.text("source")))
    _complete(file, seen, itertools.product(recipes, gpus, COUNTS))
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
    found = []
    for row in rows(expected_folder() / "appendix_j.csv", columns(PublishedSettings)):
        model, gpu, count = _cell_of(row, recipes, gpus, seen)
        settings = PublishedSettings(
            model,
            gpu,
            count,
            free_lunch=row.parse("free_lunch", *_MARK),
            checkpointing=row.parse("checkpointing", *_MARK),
            sharding=row.parse("sharding", _SHARDING.__getitem__, f"{', '.join(SHARDINGS)} or ? (lost mark)"),
            offloading=row.parse("offloading", *_MARK),
            mbs=row.count("mbs"),
            gas=row.count("gas"),
            source=row.text("source"),
        )
        if not settings.readings():
            rule = "sharding and offloading together on 1 GPU" if count == 1 else "a sharding where there is offloading"
            row.problem("sharding", f"{rule} (Appendix F)")
        product, batch = count * settings.mbs * settings.gas, recipes[model].batch_size
        if product != batch:
            equation = f"gpus x mbs x gas = {batch}, the batch size of {model} in table3.csv"
            row.problem("gas", f"{equation}, not {product}")
        found.append(settings)
    return tuple(found)


@read_once
def printed_recipes() -> Mapping[str, PrintedRecipe]:
    """Return the rows of Table 3, by model. Raise UserError if the file is broken or lacks a model."""
    file, seen = expected_folder() / "table3.csv", dict[Hashable, int]()
    found = {}
    for row in rows(file, columns(PrintedRecipe)):
        model = row.choice("model", models.NAMES)
        row.once("model", model, seen)
        found[model] = PrintedRecipe(
            model,
            parameters=row.parse("parameters", _rounded, "a number such as 160M"),
            sequence_length=row.parse("sequence_length", _rounded_or_dash, "a whole number or -"),
            vocabulary=row.parse("vocabulary", _rounded_or_dash, "a number such as 50K, or -"),
            image_size=row.parse("image_size", _rounded_or_dash, "a whole number or -"),
            classes=row.parse("classes", _rounded_or_dash, "a number such as 22K, or -"),
            batch_size=row.count("batch_size"),
            training_steps=row.parse("training_steps", _rounded, "a number such as 143K"),
            mixed_precision=row.parse("mixed_precision", _PRECISION.__getitem__, "fp16, bf16 or N/A"),
            optimizer=row.choice("optimizer", ("Adam", "AdamW")),
            source=row.text("source"),
        )
    _complete(file, seen, models.NAMES)
    return found


def _complete(file: Path, seen: dict[Hashable, int], wanted: Iterable[Hashable]) -> None:
    missing = next((key for key in wanted if key not in seen), None)
    if missing is not None:
        end = max(seen.values(), default=1) + 1
        problem(file, end, 1, "model", "the end of the file", f"a row for {named(missing)}")


def _cell_of(
    row: Row, recipes: Collection[str], gpus: Collection[str], seen: dict[Hashable, int]
) -> tuple[str, str, int]:
    model, gpu = row.choice("model", recipes), row.choice("gpu", gpus)
    count = int(row.choice("gpus", tuple(map(str, COUNTS))))
    row.once("gpus", (model, gpu, count), seen)
    return model, gpu, count


def _either(mark: bool | None) -> tuple[bool, ...]:
    return (False, True) if mark is None else (mark,)


_MARK = {"yes": True, "no": False, "?": None}.__getitem__, "yes, no or ? (lost mark)"
_SHARDING: dict[str, Sharding | None] = {**{sharding: sharding for sharding in SHARDINGS}, "?": None}
_PRECISION = {"fp16": "fp16", "bf16": "bf16", "N/A": None}
_SCALE = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9}


def _days(text: str) -> tuple[State, int | None]:
    if text == "-":
        return "infeasible", None
    if text == "?":
        return "lost", None
    return "days", positive_int(text)


def _rounded(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([KMB]?)", text)
    if not match or not (number := round(float(match[1]) * _SCALE[match[2]])):
        raise ValueError
    return number


def _rounded_or_dash(text: str) -> int | None:
    return None if text == "-" else _rounded(text)


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
def originals() -> Mapping[str, Original]:
    """Return the rows of figure 6(a), by model. Raise UserError if the file is broken."""
    return records(Original, "figure6.csv", ("model",), _known_model)


@read_once
def training_compute() -> Mapping[str, TrainingCompute]:
    """Return the rows of figure 9(a), by model. Raise UserError if the file is broken."""
    return records(TrainingCompute, "figure9.csv", ("model",), _known_model)


@read_once
def analytic_peaks() -> Mapping[str, AnalyticPeaks]:
    """Return the peaks behind figures 2 and 9(b), by GPU. Raise UserError if the file is broken."""
    return records(AnalyticPeaks, "analytic_peaks.csv", ("gpu",), known_gpu)


def _known_model(row: Row) -> None:
    row.choice("model", models.NAMES)


@dataclass(frozen=True)
class Quantity:
    """A number with its unit, what it counts, and its source."""

    id: str
    value: Positive
    unit: str
    what: str
    source: str


@read_once
def quantities() -> Mapping[str, Quantity]:
    """Return all quantities, by id. Raise UserError if the file is broken."""
    return records(Quantity, "quantities.csv", ("id",))
