"""Rows as people and machines want them: text, Markdown, CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from . import escape, terminal
from .errors import UserError

Format = Literal["text", "markdown", "csv", "json", "latex"]
FOR_MACHINES: tuple[Format, ...] = ("csv", "json")
FORMATS: tuple[Format, ...] = ("text", "markdown", *FOR_MACHINES)


def add_format(parser: argparse.ArgumentParser, formats: tuple[Format, ...] = FORMATS) -> None:
    """Gives a command that prints data its --format."""
    parser.add_argument("--format", choices=formats, default="text", help="format of stdout")


def counted(number: int, noun: str) -> str:
    """As people say it: 1 trial, 2 trials."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def are(number: int) -> str:
    """The verb of so many: 1 is, 2 are."""
    return "is" if number == 1 else "are"


def were(number: int) -> str:
    """The same of what is past: 1 was, 2 were."""
    return "was" if number == 1 else "were"


def listing(names: Sequence[str]) -> str:
    """As people say it: A, B and C."""
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def from_to(values: Sequence[float], format: str) -> str:
    """Between which ends they lie, one where both look alike."""
    return " to ".join(dict.fromkeys(f"{end:{format}}" for end in (min(values), max(values))))


def tallied(names: Iterable[str]) -> str:
    """As people count equals: 2 x A, 1 x B; none where there are none."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items()) or "none"


def by_machine(rows: Iterable[dict[str, Any]], shown: Callable[[dict[str, Any]], str]) -> list[dict[str, Any]]:
    """Rows as the paper lays them out: a line a model, a column a machine, and there what is `shown` of a row."""
    lines: dict[str, dict[str, Any]] = {}
    for row in rows:
        line = lines.setdefault(row["model"], {"model": row["model"]})
        line[f"{row['gpus']} x {row['gpu']}"] = shown(row)
    return list(lines.values())


def first(names: Sequence[str]) -> str:
    """The first three of them, the others counted: A; B; C; and 2 more."""
    told = "; ".join(names[:3])
    return told if len(names) <= 3 else f"{told}; and {len(names) - 3} more"


def percent(share: float) -> str:
    """As many digits as it has: 15%, 12.5%."""
    return f"{100 * share:g}%"


def yes(value: bool) -> str:
    """A mark in a table."""
    return "yes" if value else "no"


def render(
    rows: Sequence[dict[str, Any]], format: Format, digits: int = 3, headings: Mapping[str, str] | None = None
) -> str:
    """One table. All rows have the same keys, which head the columns; people read them with blanks, or what `headings`
    has in their place. None is a dash for people, empty or null for machines. People see floats with so many
    significant digits, machines see all. A person at a terminal sees as many tables as fit it."""
    if format == "json":
        return as_json(list(rows))
    if format == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        if rows:
            writer.writerow({key: escape.csv(key) for key in rows[0]})
        writer.writerows(escape.each(escape.csv, list(rows)))
        return text.getvalue().rstrip("\n")
    try:
        from tabulate import tabulate
    except ImportError:
        from .installation import way_to_install

        raise UserError(f"tabulate is not installed: {way_to_install()}, or ask for --format csv or json") from None
    called = headings or {}

    def told(value: Any) -> str:
        cell = _cell(value, digits)
        return escape.markdown(cell).replace("|", r"\|") if format == "markdown" else escape.visible(cell)

    table = [
        terminal.Column(
            told(called.get(key, key.replace("_", " "))), tuple(told(row[key]) for row in rows), _numeric(rows, key)
        )
        for key in (rows[0] if rows else ())
    ]
    width = terminal.width() if format == "text" else None
    return "\n\n".join(
        tabulate(
            list(zip(*(column.cells for column in part), strict=True)),
            headers=[column.heading for column in part],
            tablefmt=_STYLES[format],
            disable_numparse=True,
            colalign=["right" if column.right else "left" for column in part],
        )
        for part in ([table] if width is None else terminal.laid_out(table, width))
    )


def prose(text: str, format: Format) -> str:
    """Sentences of a result in its format, with nothing in them that Markdown takes for markup."""
    return "\n".join(map(escape.markdown, text.split("\n"))) if format == "markdown" else text


def as_json(data: Any) -> str:
    """JSON for machines; dates are text. Raises ValueError for NaN and infinity, which JSON does not have."""
    return json.dumps(data, indent=1, default=str, allow_nan=False)


_STYLES = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}


def _cell(value: Any, digits: int) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, str):
        return value
    return figures(value, digits) if isinstance(value, float) else str(value)


def figures(value: float, digits: int = 3) -> str:
    """So many significant figures, and all digits before the point; an exponent where it is very small or large."""
    if value == 0 or 10 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.{digits}g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def _numeric(rows: Sequence[dict[str, Any]], key: str) -> bool:
    return all(row[key] is None or re.fullmatch(r"[-?(),.%0-9 ]*[BKM]?", str(row[key])) for row in rows)
