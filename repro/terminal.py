"""Text on a terminal. Tables: headings and long cells wrap at words, and columns that still do not fit follow in a
further table, behind those that tell the rows apart. What is between them wraps at words, too. And whether a text is
longer than the terminal."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

_GAP = 2  # characters between columns
_PADDING = 2  # that tabulate adds to a heading
_ONE_PIECE = 24  # a cell up to this long is not wrapped, and none is wrapped to less


def width() -> int | None:
    """Characters in a line of the terminal that stdout is, None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def scrolls(text: str) -> bool:
    """Whether the first line of a text has left the terminal that stdout is once its last is there."""
    if not sys.stdout.isatty():
        return False
    columns, lines = shutil.get_terminal_size()
    return len(folded(text, columns).splitlines()) >= lines  # the prompt that follows takes a line, too


def folded(text: str, width: int) -> str:
    """The text with its sentences wrapped, what goes on below itself: behind a bullet, a number, a name in a list.
    Tables stay as they are, which are blocks with a line of dashes."""
    blocks = re.split(r"(\n{2,})", text)
    return "".join(
        each if _is_table(each) else re.sub(".+", lambda line: _fold(line[0], width), each) for each in blocks
    )


def _is_table(block: str) -> bool:
    return re.search(r"^-[- ]*$", block, re.MULTILINE) is not None


def _fold(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    start = re.match(r" *(?:- |[0-9]+\. |(?<=  )\S+ {2,})?", line)
    before = start[0] if start else ""
    return before + _fill(line[len(before) :], width - len(before)).replace("\n", "\n" + " " * len(before))


@dataclass(frozen=True)
class Column:
    """A heading and the cells below it, as text; `right` where they are numbers."""

    heading: str
    cells: tuple[str, ...]
    right: bool

    @cached_property
    def widest(self) -> int:
        """How wide it is with nothing wrapped."""
        return max([len(self.heading) + _PADDING, *map(len, self.cells)])

    @cached_property
    def narrowest(self) -> int:
        """How wide it is with all wrapped that may be."""
        return max([_longest(self.heading.split()) + _PADDING, *map(_narrowed, self.cells)])

    def wrapped(self, width: int) -> Column:
        """The same, no wider than that where it may be so narrow."""
        cells = tuple(_fill(cell, width) for cell in self.cells)
        return replace(self, heading=_fill(self.heading, width - _PADDING), cells=cells)


def laid_out(table: Sequence[Column], width: int) -> list[list[Column]]:
    """The table as one or several, of lines no longer than `width` where words allow it."""
    if _line(column.widest for column in table) <= width:
        return [list(table)]
    return [
        [column.wrapped(narrowed) for column, narrowed in zip(part, _widths(part, width), strict=True)]
        for part in _balanced(table, width)
    ]


def _balanced(table: Sequence[Column], width: int) -> list[list[Column]]:
    """As few parts as fit, and of those about as wide as each other. Rows have a number in every part where what tells
    them apart is too wide for that."""
    keys = _telling_apart(table, width // 2)
    rows = len(table[0].cells)
    if len(set(zip(*(table[key].cells for key in keys), strict=True))) < rows:
        table = [Column("row", tuple(map(str, range(1, rows + 1))), right=True), *table]
        keys = [0, *(key + 1 for key in keys)]
    number = len(_parts(table, keys, width))
    return next(parts for limit in range(width + 1) if len(parts := _parts(table, keys, limit)) == number)


def _parts(table: Sequence[Column], keys: Sequence[int], limit: int) -> list[list[Column]]:
    parts = [list(keys)]
    for index in range(len(table)):
        if index in keys:
            continue
        part = parts[-1]
        if len(part) > len(keys) and _line(table[each].narrowest for each in (*part, index)) > limit:
            parts.append(part := list(keys))
        part.append(index)
    return [[table[index] for index in sorted(part)] for part in parts]


def _telling_apart(table: Sequence[Column], limit: int) -> list[int]:
    """The first columns that tell rows apart, each more of them than those before it, or as many of these as are no
    wider than the limit, one at least: where all rows are of one model, what tells them apart is their settings."""
    keys: list[int] = []
    told = 1
    for index, column in enumerate(table[:-1]):
        apart = len(set(zip(*(table[key].cells for key in (*keys, index)), strict=True)))
        if apart <= told:
            continue
        if keys and _line(table[key].narrowest for key in (*keys, index)) > limit:
            break
        keys.append(index)
        told = apart
        if told == len(column.cells):
            break
    return keys or [0]


def _widths(part: Sequence[Column], width: int) -> list[int]:
    """The columns' widths: the widest gives way first."""
    widths = [column.widest for column in part]
    while _line(widths) > width:
        can = [place for place, column in enumerate(part) if widths[place] > column.narrowest]
        if not can:
            break
        widths[max(can, key=widths.__getitem__)] -= 1
    return widths


def _line(widths: Iterable[int]) -> int:
    listed = list(widths)
    return sum(listed) + _GAP * (len(listed) - 1)


def _narrowed(cell: str) -> int:
    return len(cell) if len(cell) <= _ONE_PIECE else max(_ONE_PIECE, _longest(cell.split()))


def _longest(words: Iterable[str]) -> int:
    return max(map(len, words), default=0)


def _fill(text: str, width: int) -> str:
    return textwrap.fill(text, max(1, width), break_long_words=False, break_on_hyphens=False)
