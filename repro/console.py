"""Output for people: user errors, exit codes, name suggestions, table layout, and escaping of untrusted text."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TextIO

_NCCLS_CAUSE = "Last error:"
_COMPILERS_CAUSE = re.compile(r"C\+\+ compile error$.*?\berror: ([^\n]+)", re.MULTILINE | re.DOTALL)  # from Inductor
# The dynamic linker's messages about a library that is missing, or lacks what another library needs.
_WRONG_LIBRARY = re.compile(
    r"undefined symbol|version `[^']+' not found|cannot open shared object|invalid ELF header|wrong ELF class|"
    "file too short"
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """An error that the user can fix, in one line: value, expectation, way out. The command line exits with 2."""


def one_line(error: BaseException) -> str:
    """Return an error's type and the main line of its message: the first, and the second if the first ends with a
    colon; NCCL's last error, which follows advice; or a C++ compiler's first error. Cut to 300 characters: some lines
    are whole commands. Library path variables that may have caused the error are added."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    message = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
    if _NCCLS_CAUSE in lines[:-1]:
        message = f"{message.partition(',')[0]}: {' '.join(lines[lines.index(_NCCLS_CAUSE) + 1 :])}"
    if cause := _COMPILERS_CAUSE.search(str(error)):
        message = f"{lines[0]}: {cause[1]}"
    line = cut(f"{type(error).__name__}: {message}")
    if isinstance(error, (ImportError, OSError)) and _WRONG_LIBRARY.search(line):
        # Last, as `line` may have been cut: these variables replace libraries that the stack brings, or was built with.
        set_ = [name for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if os.environ.get(name)]
        line += "".join(f"; {name} is set, which may name another such library: unset it" for name in set_)
    return line


def cut(line: str, most: int = 300) -> str:
    """Return a line, shortened to `most` characters and " ..." where it is longer."""
    return line if len(line) <= most else f"{line[:most]} ..."


# Links are not resolved: run_all.sh uses a link where the real path is one that compilers do not accept.
ROOT = Path(__file__).absolute().parents[1]
# What the code reads besides itself, such as expected/, is beside the package in a checkout, and inside it in a wheel.
INSTALLED = (ROOT / "repro" / "expected").is_dir()
DATA = ROOT / "repro" if INSTALLED else ROOT

OK, FAILED, USAGE, NOTHING_COMPARED, INTERRUPTED = 0, 1, 2, 3, 130
INCONCLUSIVE = NOTHING_COMPARED


def fits(name: str, known: str) -> bool:
    """Return whether `known` contains every word of `name`, in any case: V100 matches V100 16 GB and V100 32 GB."""
    words = _words(name)
    return bool(words) and words <= _words(known)


def suggest_names(name: str, known: Iterable[str]) -> list[str]:
    """Suggest known names: all that contain the words of `name`, else up to three of similar spelling, closest
    first."""
    folded = {each.casefold(): each for each in known}
    fitting = [each for each in folded.values() if fits(name, each)]
    return fitting or [folded[match] for match in get_close_matches(name.casefold(), folded)]


def _words(name: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", name.casefold()))


class Unfailing:
    """A text stream that drops all output after the first failed write, so that work goes on when the terminal or the
    reader has gone, or the disk is full. `error` is why writing failed, unless nobody is left to read."""

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
        """Redirect the stream to /dev/null: the rest of its buffer would fail again when the interpreter ends."""
        gone = error.errno == errno.EPIPE or (
            error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self._stream.fileno()).st_mode)  # a closed terminal
        )
        if not gone:
            self.error = self.error or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def say(line: object) -> None:
    """Print a line to stderr at once. Characters from user input or files that would break the line or control the
    terminal are escaped."""
    print(f"repro: {visible(str(line))}", file=sys.stderr, flush=True)


say_once = cache(say)  # in a process: what many parts of it find


_GAP = 2  # characters between columns


def width() -> int | None:
    """Return the width of the terminal on stdout in characters, or None where stdout is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def folded(text: str, width: int) -> str:
    """Wrap sentences to a width; continuation lines are indented past a bullet, a number or the name of a list entry.
    Tables, which are blocks with a line of dashes, stay as they are."""
    blocks = re.split(r"(\n{2,})", text)
    return "".join(
        each if _TABLE.search(each) else re.sub(".+", lambda line: _fold(line[0], width), each) for each in blocks
    )


_TABLE = re.compile("^-[- ]*$", re.MULTILINE)


def _fold(line: str, width: int) -> str:
    if len(line) <= width:
        return line
    start = re.match(r" *(?:- |[0-9]+\. |(?<=  )\S+ {2,})?", line)
    before = start[0] if start else ""
    return before + _fill(line[len(before) :], width - len(before)).replace("\n", "\n" + " " * len(before))


class _Wrapper(textwrap.TextWrapper):
    """Wraps at blanks, and in settings after a plus."""

    wordsep_simple_re = re.compile(r"(\s+|(?<=\w\+)(?=[a-z_]))")


def wrapped(columns: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Wrap a table's columns, each a heading and its cells, so that lines are no longer than `width` where words allow
    it. Headings wrap before cells, the widest column is narrowed first, and none below its longest word."""
    widths = [max(map(len, cells)) for cells in columns]
    whole = [max([_longest(heading), *map(len, cells)]) for heading, *cells in columns]
    least = [max(map(_longest, cells)) for cells in columns]
    for narrowest in (whole, least):
        while sum(widths) + _GAP * (len(widths) - 1) > width:
            wide = [place for place, each in enumerate(widths) if each > narrowest[place]]
            if not wide:
                break
            widths[max(wide, key=widths.__getitem__)] -= 1
    return [[_fill(cell, each, _Wrapper) for cell in cells] for cells, each in zip(columns, widths, strict=True)]


def _longest(text: str) -> int:
    return max(map(len, _Wrapper.wordsep_simple_re.split(text)))


def _fill(text: str, width: int, wrapper: type[textwrap.TextWrapper] = textwrap.TextWrapper) -> str:
    return wrapper(max(1, width), break_long_words=False, break_on_hyphens=False).fill(text)


# Characters that break a line, control a terminal, change the text's direction or are invisible; and noncharacters.
_UNSEEN = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe"
    "\uffff\U000e0000-\U000e0fff"
    + "".join(chr(plane << 16 | end) for plane in range(1, 17) for end in (0xFFFE, 0xFFFF))
)
_IN_A_LINE = re.compile(f"[{_UNSEEN}]")
# A tag, code, emphasis (an underscore between letters or digits is none), an entity, the target of a link or an image,
# and a backslash that would escape what follows.
_MARKUP = re.compile(r"[<`*~]|_(?![^\W_])|(?<![^\W_])_|&(?=#?\w+;)|\](?=[(\[:])|\\(?=[!-/:-@\[-`{-~]|$)")
_BEGINS_A_FORMULA = re.compile("[=+@\uff1d\uff0b\uff0d\uff20-]")
_NO_FORMULA = re.compile(r"[-+]([-+0-9.,%:e ]*|[0-9.,]+%? [A-Za-z].*)")  # numbers, or a number with its unit


class Markdown(str):
    """Text that is Markdown already."""


def visible(text: str) -> str:
    """Escape line breaks and characters that cannot be seen, as Python writes them."""
    return text if text.isascii() and text.isprintable() else _IN_A_LINE.sub(_written, text)


def visible_lines(text: str) -> str:
    """Escape characters that cannot be seen, but keep line breaks."""
    return "\n".join(map(visible, text.split("\n")))


def markdown(text: str) -> Markdown:
    """Escape text for Markdown, so that it adds no markup, links or HTML; `Markdown` is returned unchanged."""
    if isinstance(text, Markdown):
        return text
    return Markdown(_MARKUP.sub(lambda found: _ENTITIES.get(found[0]) or f"\\{found[0]}", visible(text)))


def code(text: str) -> str:
    """Return the text as a Markdown code span."""
    text = visible(text)
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def csv_field(text: str) -> str:
    """Return the text as a CSV field that no spreadsheet takes for a formula; numbers and a dash stay as they are."""
    text = visible(text)
    return f"'{text}" if _BEGINS_A_FORMULA.match(text.lstrip()) and not _NO_FORMULA.fullmatch(text) else text


_ENTITIES = {"<": "&lt;", "&": "&amp;"}


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
