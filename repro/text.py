"""Text to values and values to text: units, intervals, and rows as text, Markdown, CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from . import console
from .console import UserError, visible

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
            writer.writerow({key: console.csv_field(key) for key in rows[0]})
        writer.writerows(console.map_strings(console.csv_field, list(rows)))
        return text.getvalue().rstrip("\n")
    try:
        from tabulate import tabulate
    except ImportError:
        from .installation import way_to_install

        raise UserError(f"tabulate is not installed: {way_to_install()}, or ask for --format csv or json") from None
    called = headings or {}

    def told(value: Any) -> str:
        cell = _cell(value, digits)
        return console.markdown(cell).replace("|", r"\|") if format == "markdown" else console.visible(cell)

    table = [
        console.Column(
            told(called.get(key, key.replace("_", " "))), tuple(told(row[key]) for row in rows), _numeric(rows, key)
        )
        for key in (rows[0] if rows else ())
    ]
    width = console.width() if format == "text" else None
    return "\n\n".join(
        tabulate(
            list(zip(*(column.cells for column in part), strict=True)),
            headers=[column.heading for column in part],
            tablefmt=_STYLES[format],
            disable_numparse=True,
            colalign=["right" if column.right else "left" for column in part],
        )
        for part in ([table] if width is None else console.laid_out(table, width))
    )


def prose(text: str, format: Format) -> str:
    """Sentences of a result in its format, with nothing in them that Markdown takes for markup."""
    return "\n".join(map(console.markdown, text.split("\n"))) if format == "markdown" else text


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


@dataclass(frozen=True)
class Interval:
    """A positive number: `value` is what is printed, and the truth lies between `low` and `high`."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """A number without any doubt."""
        return cls(value, value, value)

    @classmethod
    def rounded(cls, value: float, unit: float = 1.0) -> Interval:
        """A number printed to a multiple of `unit`: the truth lies within half of it."""
        return cls(value, value - unit / 2, value + unit / 2)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        """May be negative, and then it is not to be divided by."""
        return Interval(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval | float) -> Interval:
        by = other if isinstance(other, Interval) else Interval.exact(other)
        return Interval(self.value * by.value, self.low * by.low, self.high * by.high)

    def __truediv__(self, other: Interval | float) -> Interval:
        by = other if isinstance(other, Interval) else Interval.exact(other)
        return Interval(self.value / by.value, self.low / by.high, self.high / by.low)

    def __rtruediv__(self, other: float) -> Interval:
        return Interval.exact(other) / self

    def mapped(self, by: Callable[[float], float]) -> Interval:
        """What a function makes of it that falls nowhere, such as rounding."""
        return Interval(by(self.value), by(self.low), by(self.high))

    def overlaps(self, other: Interval) -> bool:
        """Whether both may be the same number."""
        return self.low <= other.high and other.low <= self.high


def mean(intervals: Iterable[Interval]) -> Interval:
    """The arithmetic mean, and its bounds. Raises ZeroDivisionError where there are none."""
    listed = list(intervals)
    return sum(listed, Interval.exact(0.0)) / len(listed)


SECONDS_A_DAY = 24 * 60 * 60
MOST_COUNTED = 10**9  # of anything
DAYS_A_YEAR = 365  # as the paper reckons what a machine's life costs
# Of a number that is read: what is reckoned from a few of them stays far within the floats.
_DIGITS = 20  # on either side of the point
SMALLEST, LARGEST = 10.0**-_DIGITS, 10.0**_DIGITS
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": SECONDS_A_DAY}
_LONGEST = 36_500 * SECONDS_A_DAY  # a century
_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def seconds(text: str, option: str) -> float:
    """`90s`, `30m`, `4h`, `2d`. A bare number is refused, as who writes one may mean another unit, and so is what no
    clock counts to."""
    found = _parse(text, option, _SECONDS, "a positive duration such as 90s, 30m or 4h")
    if found > _LONGEST:
        raise UserError(f"{option} {text}: expected a positive duration of at most {_LONGEST // _SECONDS['d']}d")
    return found


def bytes_(text: str, option: str) -> int:
    """`2GiB`, `512MiB`, `80GB`. A bare number is refused, as who writes one may mean another unit."""
    expected = "a positive size such as 512MiB, 2GiB or 80GB"
    found = int(_parse(text, option, _BYTES, expected))
    if not found:
        raise UserError(f"{option} {text}: expected {expected}")
    return found


def size(number: int) -> str:
    """So many bytes as `bytes_` reads them, exactly: in GB or MB where that is even, else in GiB or MiB where that
    takes few digits, else in bytes."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if number % unit == 0:
            return f"{number // unit}{name}"
    value, name = (number / 2**30, "GiB") if number >= 2**30 else (number / 2**20, "MiB")
    return f"{value:g}{name}" if float(f"{value:g}") == value else f"{number}B"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def days(text: str, option: str) -> float:
    """`30d`, `12h`, in days."""
    return _parse(text, option, _SECONDS, "a positive duration such as 30d or 12h") / _SECONDS["d"]


def positive(text: str, option: str, such_as: str) -> float:
    """A number above 0."""
    return _parse(text, option, {"": 1}, f"a positive number in plain digits such as {such_as}")


def budget(text: str, option: str) -> float:
    """A sum above 0, also as sums are told, `40,000`, and as people say them, `40k`. Not for what may be small, such as
    the rent of an hour: who writes 1,250 there may mean one and a quarter."""
    expected = "a sum above 0 such as 40000, 40,000 or 40k, without a currency"
    grouped = re.fullmatch(r"\s*[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?\s*", text)
    return _parse(text.replace(",", "") if grouped else text, option, {"": 1, "k": 1000}, expected)


def count(text: str, option: str, least: int = 1, why: str = "") -> int:
    """A whole number from `least` to a billion."""
    # Python's own int also reads underscores and the digits of every script.
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not least <= int(text) <= MOST_COUNTED:
        reason = f": {why}" if why else ""
        raise UserError(f"{option} {text}: expected a whole number from {least:,} to {MOST_COUNTED:,}{reason}")
    return int(text)


def count_if_given(text: str | None, option: str, least: int = 1, why: str = "") -> int | None:
    """`count`, None without the option."""
    return None if text is None else count(text, option, least, why)


def path(text: str) -> Path:
    """A path, for argparse, which names the option; an empty one would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a path, . is the current folder")
    return Path(text)


def shell_words(words: Iterable[object]) -> str:
    """A command as a shell reads it and any file holds it: what cannot be seen, and bytes of a path that are no UTF-8,
    as bash and zsh write them."""
    return " ".join(map(_shell_word, map(str, words)))


def number(text: str, place: str) -> float | None:
    """A number in plain digits, None for anything else. Raises UserError, naming the place, for too many digits."""
    # Python's own float also reads signs, exponents, underscores and the digits of every script.
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?|\.[0-9]+", text):
        return None
    if max(map(len, text.split("."))) > _DIGITS:
        raise UserError(f"{place}: expected at most {_DIGITS} digits on either side of the point")
    return float(text)


def interval(text: str, option: str) -> Interval:
    """`0.13`, or `0.10..0.16` where the number is uncertain: its middle counts, and the bounds are told."""
    return bounds(text, f"{option} {text}", "a number from 0 up in plain digits such as 0.13, or bounds as 0.10..0.16")


def bounds(text: str, place: str, expected: str) -> Interval:
    """The same of what stands at a place, such as a sum before its currency."""
    low, dots, high = text.strip().partition("..")
    least = number(low, place)
    most = number(high, place) if dots else least
    if least is None or most is None:
        raise UserError(f"{place}: expected {expected}")
    if least > most:
        raise UserError(f"{place}: expected the lower bound first, {high}..{low}")
    return Interval((least + most) / 2, least, most)


def _shell_word(word: str) -> str:
    if _printable(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{_printable(escaped)}'"


def _printable(word: str) -> str:
    return visible(os.fsencode(word).decode(errors="backslashreplace"))


def _parse(text: str, option: str, units: dict[str, int], expected: str) -> float:
    place = f"{option} {text}"
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text.lower())
    value = number(found[1], place) if found else None
    if not found or not value or found[2] not in units:
        raise UserError(f"{place}: expected {expected}")
    return value * units[found[2]]
