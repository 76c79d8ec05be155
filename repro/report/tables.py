"""The paper's tables as printed, with a run's measurements beside: all columns, and numbers as the paper writes
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Literal, get_args

from .. import models
from ..console import UserError
from ..formats import yes
from ..money.prices import gpu_prices, parts, servers
from ..paper.tables import TABLES, cells, printed_recipes, published_settings
from ..record import DEFAULT, Clock, Record
from ..run.settings_search import searches
from ..run.verdict import Verdict, comparable_with_cell

Number = Literal["1", "3", "4", "5", "6", "7", "j"]
NUMBERS: tuple[Number, ...] = get_args(Number)
TITLES: dict[Number, str] = {
    "3": "Table 3 as printed: each model's size, inputs and training.",
    "5": "Table 5 as printed: the price of each GPU.",
    "6": "Table 6 as printed: the price of a desktop's parts, without its GPUs.",
    "7": "Table 7 as printed: the price of a server, without its GPUs.",
    "j": "Appendix J as printed: the fastest settings of each cell of Table 1.",
}
Rows = list[dict[str, Any]]
_SIZES = ((10**9, "B"), (10**6, "M"), (10**3, "K"), (1, ""))
_PRICES = ("5", "6", "7")


def rows(
    table: Number,
    records: Sequence[Record] | None = None,
    verdicts: Sequence[Verdict] = (),
    clock: Clock = DEFAULT,
) -> Rows:
    """Return a row for every entry of a table, all with the same keys, the source last. With `records` each row has the
    measured values too, None where not measured; in Appendix J `clock` decides which settings are the fastest.

    Raise UserError for measured values with a table of prices.
    """
    if records is not None and table in _PRICES:
        raise UserError(f"table {table} holds prices, and no run measures those; leave --measured out")
    found = _printed(table)
    if records is None:
        return found
    if table in TABLES:
        beside = {v.place: v.judged() for v in verdicts if v.table == table}
        return [_with(row, beside[row["model"], row["gpu"], row["gpus"]]) for row in found]
    if table == "3":
        return [_with(row, _of_recipe(row["model"], records)) for row in found]
    best = {
        (search.model, search.device, search.count): search.standing[search.fastest]
        for search in searches(filter(comparable_with_cell, records), clock)
        if search.fastest is not None
    }
    return [_with(row, _of_best(best.get((row["model"], row["gpu"], row["gpus"])))) for row in found]


# Columns that a screen has no room for beside measured values.
_NOT_MEASURED = {"sequence_length", "vocabulary", "image_size", "classes"}
_LESS = {"gas", "measured_gas", "measured_authors_days"}


def layout(found: Rows) -> Rows:
    """Return the columns of a table that people see, with numbers in the paper's notation, and a GPU and its number in
    one column."""
    beside = any(key.startswith("measured") for key in found[0])
    left_out = {"source", *(_NOT_MEASURED | _LESS if beside else ())}
    rows = []
    for row in found:
        if {"gpu", "gpus"} <= row.keys():
            left_out |= {"gpu", "gpus"}
            row = {"model": row["model"], "GPUs": f"{row['gpus']} x {row['gpu']}"} | row
        rows.append({key: _shown(key, value) for key, value in row.items() if key not in left_out})
    return rows


def _shown(column: str, value: Any) -> Any:
    if column.endswith("_usd"):
        return f"{value:,.2f}"
    if column in ("parameters", "measured_parameters", "vocabulary", "classes", "training_steps") and value is not None:
        size, letter = next((size, letter) for size, letter in _SIZES if value >= size)
        return f"{value / size:.1f}{letter}" if letter == "B" else f"{value / size:.4g}{letter}"
    return value


def _with(row: dict[str, Any], beside: dict[str, Any]) -> dict[str, Any]:
    without = {key: value for key, value in row.items() if key != "source"}
    return without | beside | {"source": row["source"]}


def _of_recipe(model: str, records: Sequence[Record]) -> dict[str, Any]:
    there = [r for r in records if r.scale == "paper" and models.find(r.recipe).name == model and r.as_run.weights]
    counts = sorted({r.as_run.weights for r in there if r.as_run.weights})
    precisions = sorted({r.as_run.precision for r in there if r.as_run.precision})
    return {
        "measured_parameters": counts[0] if len(counts) == 1 else None,
        "measured_precision": ", ".join(precisions) or None,
    }


def _of_best(record: Record | None) -> dict[str, Any]:
    return {
        "measured_settings": record and record.settings,
        "measured_mbs": record and record.batch.compared_micro_batch,
        "measured_gas": record and record.batch.compared_accumulation,
        "measured_true_days": record and record.derived.true_days,
        "measured_authors_days": record and record.derived.authors_days,
    }


def _printed(table: Number) -> Rows:
    """Return the rows of a table as printed."""
    if table in TABLES:
        return [asdict(cell) for cell in cells(table)]
    if table == "j":
        return [{key: _mark(value) for key, value in asdict(row).items()} for row in published_settings()]
    read: dict[Number, Callable[[], Mapping[Any, Any]]]
    read = {"3": printed_recipes, "5": gpu_prices, "6": parts, "7": servers}
    return [asdict(row) for row in read[table]().values()]


def _mark(value: Any) -> Any:
    """Return what a column of Appendix J has: a mark, which may be illegible, as a word."""
    return "?" if value is None else yes(value) if isinstance(value, bool) else value
