"""Output of the commands: sentences, a table and notes as text, rows alone as CSV, or everything as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ..console import scrolls
from ..formats import Format, as_json, half_up, prose, render


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


def bounds(days: tuple[float, float] | None) -> dict[str, float | None]:
    """Return the columns of predicted days' bounds, named as in `repro predict`; None for other or infinite days."""
    low, high = days or (None, None)
    return {"days_low": finite(low, 3), "days_high": finite(high, 3)}


def interval_text(rows: Iterable[tuple[float, float] | None]) -> list[str]:
    """Return a sentence on these columns; none where no row has any."""
    message = "Days low and high: between them lie 8 of 10 unseen cells of the paper, predicted without them."
    return [message] if any(rows) else []
