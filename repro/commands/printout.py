"""A result as the commands print it: sentences, a table, notes; or its rows alone; or all of it as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..console import scrolls
from ..money.prices import half_up
from ..text import Format, as_json, prose, render


def printout(
    sentences: Sequence[str],
    rows: Sequence[dict[str, Any]],
    notes: Sequence[str],
    format: Format,
    **more: Any,
) -> str:
    """CSV is the rows alone. JSON holds them with `answer`, `notes` and whatever `more` there is. People do not see the
    columns in which no row has anything, and find the sentences first, or last on a terminal that the rest would
    scroll them off. There is at least one row."""
    if format == "json":
        data = {"answer": " ".join(sentences), **more, "rows": list(rows), "notes": list(notes)}
        return as_json(data)
    if format == "csv":
        return render(rows, "csv")
    told = [key for key in rows[0] if any(row[key] is not None for row in rows)]
    people = [{key: row[key] for key in told} for row in rows]
    rest = [render(people, format, digits=6), *(["\n".join(f"- {prose(n, format)}" for n in notes)] if notes else [])]
    return answered("\n".join(sentences), rest, format)


def answered(answer: str, rest: Sequence[str], format: Format) -> str:
    """An answer to people before all else, or behind it on a terminal that the rest would scroll it off."""
    answer = prose(answer, format)
    text = "\n\n".join([answer, *rest])
    return "\n\n".join([*rest, answer]) if format == "text" and scrolls(text) else text


def finite(value: float | None, digits: int) -> float | None:
    """The value rounded. None for an infinite one: no format has a number for that."""
    return None if value is None or math.isinf(value) else half_up(value, digits)


def bounds(days: tuple[float, float] | None) -> dict[str, float | None]:
    """The columns of predicted days' bounds, in the names that `repro predict` has for them; empty for other days and
    where they are infinite."""
    low, high = days or (None, None)
    return {"days_low": finite(low, 3), "days_high": finite(high, 3)}


def told_bounds(rows: Iterable[tuple[float, float] | None]) -> list[str]:
    """A sentence on these columns; none where no row has any."""
    told = "Days low and high: between them lie 8 of 10 unseen cells of the paper, predicted without them."
    return [told] if any(rows) else []
