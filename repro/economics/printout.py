"""A result as the commands print it: sentences, a table, notes; or its rows alone; or all of it as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..formats import Format, render, yes


def printout(
    sentences: Sequence[str],
    rows: Sequence[dict[str, Any]],
    notes: Sequence[str],
    format: Format,
    **more: Any,
) -> str:
    """CSV is the rows alone. JSON holds them with `answer`, `notes` and whatever `more` there is."""
    if format == "json":
        data = {"answer": " ".join(sentences), **more, "rows": list(rows), "notes": list(notes)}
        return json.dumps(data, indent=1, default=str)
    if format == "csv":
        return render(rows, "csv")
    people = [{key: yes(value) if isinstance(value, bool) else value for key, value in row.items()} for row in rows]
    return "\n\n".join(
        [
            "\n".join(sentences),
            render(people, format, digits=6),
            *(["\n".join(f"- {n}" for n in notes)] if notes else []),
        ]
    )
