"""What a person is told: errors that they can mend, exit codes, suggestions; strings of others are escaped."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, TextIO

_NCCLS_CAUSE = "Last error:"
_COMPILERS_CAUSE = re.compile(r"C\+\+ compile error$.*?\berror: ([^\n]+)", re.MULTILINE | re.DOTALL)  # by Inductor
# By the dynamic linker, of a library that lacks what another needs of it.
_WRONG_LIBRARY = re.compile(
    r"undefined symbol|version `[^']+' not found|cannot open shared object|invalid ELF header|wrong ELF class|"
    "file too short"
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """Bad input, told in one line: the value, what would be right, the way out. The command line exits 2."""


def one_line(error: BaseException) -> str:
    """An error's type, and the beginning of what it says: its first line, and the next where that one only announces
    it, or where NCCL's cause stands behind what it advises, or a compiler's amid its warnings. Some lines hold whole
    commands of a compiler."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    told = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
    if _NCCLS_CAUSE in lines[:-1]:
        told = f"{told.partition(',')[0]}: {' '.join(lines[lines.index(_NCCLS_CAUSE) + 1 :])}"
    if cause := _COMPILERS_CAUSE.search(str(error)):
        told = f"{lines[0]}: {cause[1]}"
    line = cut(f"{type(error).__name__}: {told}")
    if isinstance(error, (ImportError, OSError)) and _WRONG_LIBRARY.search(line):
        # Last, as `line` may have been cut: these two replace libraries that the stack brings, or was built with.
        set_ = [name for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if os.environ.get(name)]
        line += "".join(f"; {name} is set, which may name another such library: unset it" for name in set_)
    return line


def cut(line: str, most: int = 300) -> str:
    """A line, or as much of it as a person reads, in characters."""
    return line if len(line) <= most else f"{line[:most]} ..."


# By the name that run_all.sh leads here by: what links lead to may be a name that compilers do not take.
ROOT = Path(__file__).absolute().parents[1]

OK, FAILED, USAGE, NOTHING_COMPARED, INTERRUPTED = 0, 1, 2, 3, 130
INCONCLUSIVE = NOTHING_COMPARED


def fits(name: str, known: str) -> bool:
    """Whether a known name has every word of this one, in any case: V100 fits V100 16 GB as it fits V100 32 GB."""
    words = _words(name)
    return bool(words) and words <= _words(known)


def near(name: str, known: Iterable[str]) -> list[str]:
    """Those that it fits, else up to three that are spelled much alike, the nearest first; none where nothing is."""
    folded = {each.casefold(): each for each in known}
    fitting = [each for each in folded.values() if fits(name, each)]
    return fitting or [folded[match] for match in get_close_matches(name.casefold(), folded)]


def _words(name: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", name.casefold()))


class Unfailing:
    """A text stream that drops what cannot be written, from then on all: the work goes on when its terminal or its
    reader has gone, or its disk is full. `error` is why it could not be written, unless nobody is left to read it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Sends what is left in the buffer to nowhere: it would fail once more when the interpreter ends."""
        gone = error.errno == errno.EPIPE or (
            error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self._stream.fileno()).st_mode)  # a terminal's
        )
        if not gone:
            self.error = self.error or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def say(line: object) -> None:
    """Print a line at once. Of what somebody typed, or a file holds, no character breaks the line or steers the
    terminal: it is printed as Python writes it."""
    print(f"repro: {visible(str(line))}", file=sys.stderr, flush=True)


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


# What breaks a line, steers a terminal, changes the direction of text, or shows nothing; and what is no character.
_UNSEEN = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe"
    "\uffff\U000e0000-\U000e0fff"
    + "".join(chr(plane << 16 | end) for plane in range(1, 17) for end in (0xFFFE, 0xFFFF))
)
_IN_A_LINE = re.compile(f"[{_UNSEEN}]")
_BUT_LINE_BREAKS = re.compile(f"(?!\n)[{_UNSEEN}]")
# A tag, code, emphasis, an entity, the target of a link or an image, and a backslash that would escape what follows.
_MARKUP = re.compile(r"[<`*~]|&(?=#?\w+;)|\](?=[(\[:])|\\(?=[!-/:-@\[-`{-~]|$)")
_BEGINS_A_FORMULA = re.compile("[=+@\uff1d\uff0b\uff0d\uff20-]")
_NO_FORMULA = re.compile(r"[-+]([-+0-9.,%:e ]*|[0-9.,]+%? [A-Za-z].*)")  # numbers, or one with its unit


class Markdown(str):
    """Text that is Markdown already."""


def visible(text: str) -> str:
    """The text on one line, each character that cannot be seen as Python writes it."""
    return _IN_A_LINE.sub(_written, text)


def visible_lines(text: str) -> str:
    """The same of text that may have several lines."""
    return _BUT_LINE_BREAKS.sub(_written, text)


def markdown(text: str) -> Markdown:
    """The text as Markdown that shows it, without markup, links and HTML of its own; `Markdown` as it is."""
    if isinstance(text, Markdown):
        return text
    return Markdown(_MARKUP.sub(lambda found: _ENTITIES.get(found[0]) or f"\\{found[0]}", visible(text)))


def code(text: str) -> str:
    """The text as a code span of Markdown."""
    text = visible(text)
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def csv_field(text: str) -> str:
    """The text as a field of CSV that no spreadsheet takes for a formula; numbers and a dash stay as they are."""
    text = visible(text)
    return f"'{text}" if _BEGINS_A_FORMULA.match(text.lstrip()) and not _NO_FORMULA.fullmatch(text) else text


def map_strings(change: Callable[[str], str], value: Any) -> Any:
    """A value with all strings changed that lists, tuples, data classes, and the values of dictionaries in it hold."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_strings(change, one) for one in value)
    if isinstance(value, dict):
        return {key: map_strings(change, one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{field.name: map_strings(change, getattr(value, field.name)) for field in fields(value)}
        )
    return value


_ENTITIES = {"<": "&lt;", "&": "&amp;"}


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
