"""Conversion between text and values: units, intervals, and tables as text, Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, Literal

from . import console
from .console import UserError, visible

Format = Literal["text", "markdown", "csv", "json", "latex"]
FOR_MACHINES: tuple[Format, ...] = ("csv", "json")
FORMATS: tuple[Format, ...] = ("text", "markdown", *FOR_MACHINES)
MOST_COLUMNS = 100  # of a text table


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 trial, 2 trials."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def are(number: int) -> str:
    """Return the verb for a number: 1 is, 2 are."""
    return "is" if number == 1 else "are"


def were(number: int) -> str:
    """Return the verb in the past tense for a number: 1 was, 2 were."""
    return "was" if number == 1 else "were"


def listing(names: Sequence[str]) -> str:
    """Join names as in a sentence: A, B and C; empty for none."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def from_to(values: Sequence[float], format: str = "") -> str:
    """Return the range of values as "low to high", or one number where both ends print alike."""
    ends = min(values), max(values)
    return " to ".join(dict.fromkeys(f"{end:{format}}" if format else significant(end) for end in ends))


def tallied(names: Iterable[str]) -> str:
    """Count equal names: 2 x A, 1 x B; "none" where there are none."""
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items()) or "none"


def by_machine(cells: Mapping[tuple[str, str, int], str]) -> list[dict[str, Any]]:
    """Arrange cells, by model, GPU and count: one line per machine, one column per model."""
    lines: dict[str, dict[str, Any]] = {}
    for (model, gpu, gpus), cell in cells.items():
        machine = f"{gpus} x {gpu}"
        lines.setdefault(machine, {"GPUs": machine})[model] = cell
    return list(lines.values())


def first(names: Sequence[str]) -> str:
    """Join the first three names and count the others: A; B; C; and 2 more."""
    message = "; ".join(names[:3])
    return message if len(names) <= 3 else f"{message}; and {len(names) - 3} more"


def percent(share: float) -> str:
    """Return a share in percent with as many digits as it has: 15%, 12.5%."""
    return f"{100 * share:g}%"


def yes(value: bool) -> str:
    """Return "yes" or "no", for a table."""
    return "yes" if value else "no"


def render(rows: Sequence[Mapping[str, Any]], format: Format, headings: Mapping[str, str] | None = None) -> str:
    """Return rows, which have the same keys, as one table. JSON and CSV have keys as headings, all digits, and null or
    nothing for None. Other formats have `headings`, or keys with blanks, floats with 3 significant digits, and a dash
    for None. The cells of a text table wrap so that its lines fit a terminal, and `MOST_COLUMNS`."""
    if format == "json":
        return as_json(list(rows))
    if format == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
        if rows:
            writer.writerow({key: console.csv_field(key) for key in rows[0]})
        writer.writerows(
            {key: console.csv_field(value) if isinstance(value, str) else value for key, value in row.items()}
            for row in rows
        )
        return text.getvalue().rstrip("\n")

    def message(value: Any) -> str:
        text = cell_text(value)
        return console.markdown(text).replace("|", r"\|") if format == "markdown" else console.visible(text)

    keys = list(rows[0] if rows else ())
    columns = [
        [message((headings or {}).get(key, key.replace("_", " "))), *(message(row[key]) for row in rows)]
        for key in keys
    ]
    right = [_numeric(rows, key) for key in keys]
    if format == "text":
        return _laid_out(console.wrapped(columns, min(console.width() or MOST_COLUMNS, MOST_COLUMNS)), right)
    try:
        import tabulate
    except ImportError:
        from .installation import way_to_install

        raise UserError(
            f"tabulate is not installed: {way_to_install('read')}, or ask for --format text, csv or json"
        ) from None
    head, *body = zip(*columns, strict=True) if columns else [()]
    tabulate.MIN_PADDING = 0  # beside headings: columns are two blanks apart
    return tabulate.tabulate(
        body,
        headers=head,
        tablefmt=_STYLES[format],
        disable_numparse=True,
        colalign=["right" if each else "left" for each in right],
    )


def _laid_out(columns: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return a text table of columns, each a heading and its cells, whose cells may have several lines."""
    widths = [max(len(line) for cell in cells for line in cell.split("\n")) for cells in columns]

    def lines(cells: Sequence[str]) -> Iterable[str]:
        for line in itertools.zip_longest(*(cell.split("\n") for cell in cells), fillvalue=""):
            padded = zip(line, widths, right, strict=True)
            yield "  ".join(each.rjust(width) if right else each.ljust(width) for each, width, right in padded).rstrip()

    head, *body = zip(*columns, strict=True) if columns else [()]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([*lines(head), rule, *(line for row in body for line in lines(row))])


def prose(text: str, format: Format) -> str:
    """Return sentences in this format: escaped where it is Markdown."""
    return "\n".join(map(console.markdown, text.split("\n"))) if format == "markdown" else text


def as_json(data: Any) -> str:
    """Return data as JSON, dates as text. Raises ValueError for NaN and infinity, which JSON does not have."""
    return json.dumps(data, indent=1, default=str, allow_nan=False)


_STYLES = {"markdown": "github", "latex": "latex_booktabs"}


def cell_text(value: Any, digits: int = 3, nothing: str = "-") -> str:
    """Format a value for a table that people read."""
    if value is None or value == "":
        return nothing
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, str):
        return value
    return significant(value, digits) if isinstance(value, float) else str(value)


def significant(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and all before the point; an exponent if very small or large."""
    if value == 0 or 10 ** (digits - 1) <= abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.{digits}g}" if abs(value) >= 1e-4 else f"{value:.1e}"


def rough(value: float) -> float:
    """Round a value to the significant figures of a prediction."""
    return float(f"{value:.3g}")


def half_up(value: float, places: int) -> float:
    """Round to so many places, with half a unit of the last one up: Python's own makes 4.12 of 4.125. It rounds the 15
    digits that a float holds, and returns values from 1e15 on, and infinity, unchanged."""
    if not abs(value) < 1e15:
        return value
    return float(Decimal(f"{value:.15g}").quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _numeric(rows: Sequence[Mapping[str, Any]], key: str) -> bool:
    return all(row[key] is None or re.fullmatch(r"[-?(),.%0-9 ]*[BKM]?[*!✓▲▼✗≈?]*", str(row[key])) for row in rows)


@dataclass(frozen=True)
class Interval:
    """A positive number with bounds: `value` is printed, and the true value lies between `low` and `high`."""

    value: float
    low: float
    high: float

    @classmethod
    def exact(cls, value: float) -> Interval:
        """Return the interval of a number that is known exactly."""
        return cls(value, value, value)

    @classmethod
    def rounded(cls, value: float, unit: float = 1.0) -> Interval:
        """Return the interval of a number printed to a multiple of `unit`: the true value lies within half of it."""
        return cls(value, value - unit / 2, value + unit / 2)

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        """Return the difference, which may be negative and must not be a divisor then."""
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
        """Apply a function that never decreases, such as rounding, to the value and both bounds."""
        return Interval(by(self.value), by(self.low), by(self.high))

    def overlaps(self, other: Interval) -> bool:
        """Return whether both may be the same number."""
        return self.low <= other.high and other.low <= self.high


def mean(intervals: Iterable[Interval]) -> Interval:
    """Return the arithmetic mean and its bounds. Raises ZeroDivisionError for no intervals."""
    listed = list(intervals)
    return sum(listed, Interval.exact(0.0)) / len(listed)


SECONDS_A_DAY = 24 * 60 * 60
MOST_COUNTED = 10**9  # the largest count of anything
DAYS_A_YEAR = 365  # as the paper counts for a machine's lifetime
# Limits for a parsed number: products of a few of them stay far within the range of floats.
_DIGITS = 20  # on either side of the point
SMALLEST, LARGEST = 10.0**-_DIGITS, 10.0**_DIGITS
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": SECONDS_A_DAY}
_LONGEST = 36_500 * SECONDS_A_DAY  # a century
_AMOUNTS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_BYTES = {"b": 1}
for _power, _prefix in enumerate("kmgt", 1):
    _BYTES |= {f"{_prefix}b": 1000**_power, f"{_prefix}ib": 1024**_power}

_NETWORK = {"Gb/s": 1e9 / 8, "Gbit/s": 1e9 / 8, "Gbps": 1e9 / 8, "Mb/s": 1e6 / 8, "Mbit/s": 1e6 / 8, "GB/s": 1e9}


def seconds(text: str, option: str) -> float:
    """Parse a duration such as `90s`, `30m`, `4h` or `2d`. Raises UserError for a bare number, whose unit is unclear,
    and for more than a century."""
    found = parse_unit(text, option, _SECONDS, "a positive duration such as 90s, 30m or 4h")
    if found > _LONGEST:
        raise UserError(f"{option} {text}: expected a positive duration of at most {_LONGEST // _SECONDS['d']}d")
    return found


def bytes_(text: str, option: str) -> int:
    """Parse a size such as `2GiB`, `512MiB` or `80GB`. Raises UserError for a bare number, whose unit is unclear."""
    expected = "a positive size such as 512MiB, 2GiB or 80GB"
    found = int(parse_unit(text, option, _BYTES, expected))
    if not found:
        raise UserError(f"{option} {text}: expected {expected}")
    return found


def size(number: int) -> str:
    """Return a number of bytes as `bytes_` parses it, exactly: in GB or MB if whole, else in GiB or MiB if that takes
    few digits, else in bytes."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if number % unit == 0:
            return f"{number // unit}{name}"
    value, name = (number / 2**30, "GiB") if number >= 2**30 else (number / 2**20, "MiB")
    return f"{value:g}{name}" if float(f"{value:g}") == value else f"{number}B"


def duration(seconds: float) -> str:
    """Return seconds for people to read: 50 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def days_cell(days: float) -> str:
    """Return days for a table that people read; below a day in hours and minutes: 3.5, 7 h 12 min, 50 s. Three figures
    of days count, so that days which were rounded to these read as those that were not."""
    if days >= 1:
        return significant(days)
    minutes = round(rough(days) * 24 * 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else duration(rough(days) * SECONDS_A_DAY)


def days_text(days: float) -> str:
    """Return days for a sentence: 3.5 days, 7 h 12 min."""
    cell = days_cell(days)
    return cell if days < 1 else f"{cell} day{'' if cell == '1' else 's'}"


def end_of(code: int) -> str:
    """Describe how a process ended, by its return code as subprocess has it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    reason = ", as the kernel does where the host's memory runs out" if code == -signal.SIGKILL else ""
    return f"was killed by {name}{reason}"


def amount(text: str, option: str) -> float:
    """Parse a number of tokens, images or epochs: 300000, 1.28M, 20B, 1.5T."""
    return parse_unit(text, option, _AMOUNTS, "a number such as 90, 1.28M or 20B")


def quantity(text: str, units: Mapping[str, float]) -> float:
    """Parse a number above 0 with one of these units, whose case counts: Gb are bits, GB bytes. Raises ValueError."""
    found = re.fullmatch(r"([0-9.]+) ?([A-Za-z/]+)", text.strip())
    value = number(found[1], text) if found else None
    if not found or not value or found[2] not in units:
        raise ValueError
    return value * units[found[2]]


def network(text: str, option: str) -> float:
    """Parse the speed of a network such as `25Gb/s`, and return bytes a second in one direction."""
    try:
        return quantity(text, _NETWORK)
    except ValueError:
        raise UserError(f"{option} {text}: expected bits a second such as 25Gb/s, or bytes such as 3GB/s") from None


def count(text: str, option: str, least: int = 1, why: str = "", most: int = MOST_COUNTED) -> int:
    """Parse a whole number from `least` to `most`; `why` is the reason for `least`."""
    # Python's own int also reads underscores and the digits of every script.
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not least <= int(text) <= most:
        reason = f": {why}" if why else ""
        raise UserError(f"{option} {text}: expected a whole number from {least:,} to {most:,}{reason}")
    return int(text)


def path(text: str, option: str) -> Path:
    """Parse a path. Raises UserError for an empty one, which means the current folder."""
    if not text:
        raise UserError(f"{option}: it is empty: name a path, . is the current folder")
    return Path(text)


def shell_words(words: Iterable[object]) -> str:
    """Quote a command for bash and zsh. Characters that cannot be seen, and bytes of a path that are not UTF-8, are
    escaped, so that any file can contain it."""
    return " ".join(map(_shell_word, map(str, words)))


def number(text: str, place: str) -> float | None:
    """Parse a number in plain digits; return None for anything else. Raises UserError for too many digits."""
    # Python's own float also reads signs, exponents, underscores and the digits of every script.
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?|\.[0-9]+", text):
        return None
    if max(map(len, text.split("."))) > _DIGITS:
        raise UserError(f"{place}: expected at most {_DIGITS} digits on either side of the point")
    return float(text)


def _shell_word(word: str) -> str:
    if _printable(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{_printable(escaped)}'"


def _printable(word: str) -> str:
    text = os.fsencode(word).decode(errors="backslashreplace")
    # Shells read \x85 as a byte, and \u0085 only where the locale is UTF-8: so characters are written as their bytes.
    return "".join(char if visible(char) == char else "".join(map(r"\x{:02x}".format, char.encode())) for char in text)


def parse_unit(text: str, option: str, units: dict[str, int], expected: str) -> float:
    """Parse a number above 0 with one of these units, in any case. Raises UserError with what was `expected`."""
    place = f"{option} {text}"
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text.lower())
    value = number(found[1], place) if found else None
    if not found or not value or found[2] not in units:
        raise UserError(f"{place}: expected {expected}")
    return value * units[found[2]]
