"""Output of the commands: an answer, a table that fits a screen and notes for people; every column and row else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .formats import Format, as_json, counted, half_up, prose, render
from .options import MOST_ROWS

MOST_NOTES = 3  # of a screen


def people(
    answer: str,
    rows: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    format: Format,
    every: bool = False,
    whole: str = "--all shows all",
) -> str:
    """Return an answer, a table without empty columns that fits a screen, or has all rows for `every`, and notes.
    `whole` says where the rows are that it leaves out."""
    shown = rows if every else rows[:MOST_ROWS]
    filled = [key for key in rows[0] if any(row[key] is not None for row in shown)] if rows else []
    names = {key: key.replace("_", " ").replace("-", " ") for key in filled} if format == "text" else {}  # these wrap
    table = render([{key: row[key] for key in filled} for row in shown], format, headings=names) if rows else ""
    if format == "latex":
        return table
    left = f"{counted(len(rows) - len(shown), 'more row')}: {whole}." if len(shown) < len(rows) else ""
    told = "\n".join(f"- {prose(note, format)}" for note in notes)
    return "\n\n".join(filter(None, [prose(answer, format), table, left, told]))


def finite(value: float | None, digits: int) -> float | None:
    """Return the value rounded; None for an infinite one, for which no format has a number."""
    return None if value is None or math.isinf(value) else half_up(value, digits)


@dataclass(frozen=True)
class Column:
    """A column: its key and its value of a row in CSV and JSON; where people see it, its heading and, if that is not
    the value itself, the text of value and row."""

    key: str
    value: Callable[[Any], Any]
    heading: str = ""
    text: Callable[[Any, Any], Any] = lambda value, row: value


def data(columns: Sequence[Column], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return rows as CSV and JSON have them."""
    return [{column.key: column.value(row) for column in columns} for row in rows]


def shown(columns: Sequence[Column], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Return rows as people see them: the columns that have a heading."""
    return [{each.heading: each.text(each.value(row), row) for each in columns if each.heading} for row in rows]


def screen(
    answer: str,
    columns: Sequence[Column],
    rows: Sequence[Any],
    notes: Sequence[str],
    format: Format,
    every: bool = False,
    **more: Any,
) -> str:
    """Return the output of rows with these columns."""
    return output(answer, data(columns, rows), shown(columns, rows), notes, format, every, **more)


def output(
    answer: str,
    data: Sequence[dict[str, Any]],
    shown: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    format: Format,
    every: bool = False,
    **more: Any,
) -> str:
    """Return what `people` see, of the rows `shown`; all `data` as CSV; or as JSON, with the answer, the notes and
    `more`."""
    if format == "csv":
        return render(data, "csv")
    if format == "json":
        return as_json({"answer": answer, **more, "rows": data, "notes": list(notes)})
    return people(answer, shown, notes, format, every)
