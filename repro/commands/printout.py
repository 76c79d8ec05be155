"""Output of the commands: sentences, a table and notes as text, rows alone as CSV, or everything as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..console import scrolls
from ..formats import FOR_MACHINES, Format, as_json, counted, half_up, prose, render


def printout(
    sentences: Sequence[str],
    rows: Sequence[dict[str, Any]],
    notes: Sequence[str],
    format: Format,
    **more: Any,
) -> str:
    """Return the output. CSV has the rows alone. JSON has them with `answer`, `notes` and `more`. Text leaves out empty
    columns. It begins with the sentences, or ends with them on a terminal that would scroll them off. There is at least
    one row."""
    if format == "json":
        data = {"answer": " ".join(sentences), **more, "rows": list(rows), "notes": list(notes)}
        return as_json(data)
    if format == "csv":
        return render(rows, "csv")
    filled = [key for key in rows[0] if any(row[key] is not None for row in rows)]
    people = [{key: row[key] for key in filled} for row in rows]
    rest = [render(people, format, digits=6), *(["\n".join(f"- {prose(n, format)}" for n in notes)] if notes else [])]
    return answered("\n".join(sentences), rest, format)


def answered(answer: str, rest: Sequence[str], format: Format) -> str:
    """Return the text with the answer first, or last on a terminal that would scroll it off."""
    answer = prose(answer, format)
    text = "\n\n".join([answer, *rest])
    return "\n\n".join([*rest, answer]) if format == "text" and scrolls(text) else text


def finite(value: float | None, digits: int) -> float | None:
    """Return the value rounded; None for an infinite one, for which no format has a number."""
    return None if value is None or math.isinf(value) else half_up(value, digits)


MOST_ROWS, MOST_COLUMNS = 20, 100


def grid(table: Sequence[dict[str, Any]], format: Format) -> str:
    """Return a table whose columns are models, whose names may wrap."""
    headings = {name: name.replace("-", " ") for name in table[0]} if format == "text" else None
    return render(table, format, headings=headings, most=MOST_COLUMNS)


@dataclass(frozen=True)
class Column:
    """A column: its key and its value of a row in CSV and JSON; where people see it, its heading and, if that is not
    the value itself, the text of value and row."""

    key: str
    value: Callable[[Any], Any]
    heading: str = ""
    text: Callable[[Any, Any], Any] = lambda value, row: value


def screen(
    answer: str,
    columns: Sequence[Column],
    rows: Sequence[Any],
    notes: Sequence[str],
    format: Format,
    every: bool = False,
    **more: Any,
) -> str:
    """Return the output: the answer, a table that fits a screen, with all rows for `every`, and notes. CSV has every
    column and row, and JSON has them with the answer, the notes and `more`. Text leaves out empty columns."""
    if format in FOR_MACHINES:
        data = [{column.key: column.value(row) for column in columns} for row in rows]
        if format == "csv":
            return render(data, "csv")
        return as_json({"answer": answer, **more, "rows": data, "notes": list(notes)})
    shown = rows if every else rows[:MOST_ROWS]
    people = [{each.heading: each.text(each.value(row), row) for each in columns if each.heading} for row in shown]
    filled = [heading for heading in people[0] if any(row[heading] is not None for row in people)]
    people = [{heading: row[heading] for heading in filled} for row in people]
    left = [f"{counted(len(rows) - len(shown), 'more row')}: --all shows all."] if len(shown) < len(rows) else []
    table = render(people, format, most=MOST_COLUMNS)
    return answered(answer, [table, *left, "\n".join(f"- {prose(note, format)}" for note in notes)], format)
