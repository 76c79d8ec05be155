"""The results folder of a run: each finished trial is on disk before the next begins, and only one run writes at a
time."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from .. import datafile, files, models
from ..console import UserError, say
from ..machine.environment import TRIALS as TRIALS
from ..machine.environment import of_line
from ..models import custom
from ..record import Record

RECIPES = "recipes.json"  # those of one's own, as data
LOGS = "logs"
VERDICTS = "verdicts.json"
BENCHMARK = "benchmark.json"
REPORT, PAGE, CERTIFICATE = "report.md", "report.html", "certificate.json"
TRAININGS = "*-images_*.json"  # written by repro lab
_PART = re.compile(r".+\.(?:json|md|html)\.([0-9]+)\.part")  # temporary name in files.replace


class Results:
    """A results folder, whose `file` this process has open and locked. A context manager.

    Raises UserError where the folder cannot be written, or another run has it locked. Lines go to the file that was
    opened, wherever its folder is moved, and whoever begins a run under the old name.
    """

    def __init__(self, folder: Path, file: str = TRIALS) -> None:
        self.folder, self.logs = folder, folder / LOGS
        self._path = folder / file
        self._syncs = True

    def __enter__(self) -> Results:
        try:
            files.make_folder(self.folder, LOGS)
            self._file = open(files.open_to_append(self.folder, self._path.name), "ab", buffering=0)
        except OSError as error:
            raise files.not_written(self.folder, error, "name another folder with --out") from error
        with contextlib.ExitStack() as opened:
            opened.enter_context(self._file)
            try:
                if not files.lock(self._file):
                    where = f"{self.folder} is on a file system without locks"
                    say(f"{where}: see that no run of another process or machine writes there")
                self._can_tell = self._is_here()  # on some file systems no two looks find the same number
                self._repair()
            except BlockingIOError:
                reason = "is held by another run: wait for it, or name another folder with --out"
                raise UserError(f"{self.folder} {reason}") from None
            except OSError as error:
                raise files.not_written(self.folder, error) from error
            _remove_parts(self.folder)
            opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _is_here(self) -> bool:
        """Return whether the path still leads to the open file."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file.fileno()))
        except OSError:
            return False

    def check(self) -> None:
        """Raise UserError where the folder or its open file was moved or removed: what is written there by name would
        end up in another run."""
        if self._can_tell and not self._is_here():
            raise UserError(
                f"{self._path} was moved, removed or replaced while the run went on: run the same command again, with "
                "--out where the folder is now"
            )

    def append(self, record: Record) -> None:
        """Write a record as `append_line` does, and what describes its recipe."""
        self.keep_recipes([record.recipe])
        self.append_line(json.dumps(datafile.to_json(record)).encode())

    def append_line(self, line: bytes) -> None:
        """Write a line, and sync it where the file system can. A full disk loses nothing that was written before. Raise
        UserError where it cannot be written and, after writing it, as `check` does."""
        size = os.fstat(self._file.fileno()).st_size
        try:
            left = memoryview(line + b"\n")
            while left:
                left = left[self._file.write(left) :]
            synced = files.sync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file.fileno(), size)
            raise UserError(f"{files.not_written(self.folder, error)}; what was finished is kept") from error
        if not synced and self._syncs:
            self._syncs = False
            say(f"{self.folder} is on a file system that does not sync: a power cut may lose what was finished last")
        self.check()

    def keep_recipes(self, ids: Iterable[str]) -> None:
        """Write those of these recipes that are one's own beside those of the folder, so that it can be reported
        without their models. Raise UserError where the folder describes one differently."""
        mine = list(filter(models.is_own, ids))
        file = self.folder / RECIPES
        if not mine:
            return
        try:
            known = custom.read(file) if file.exists() else []
        except datafile.NotAsDeclaredError as error:
            raise UserError(f"{file} describes no models ({error}): remove it, and the run writes it again") from None
        there = datafile.load(file) if known else []
        scales = [(each["id"], each["scale"]) for each in there]
        wanted = custom.described(dict.fromkeys(mine))
        if more := [each for each in wanted if (each["id"], each["scale"]) not in scales]:
            datafile.write(file, [*there, *more])

    def _repair(self) -> None:
        """Cut off a last line torn by a kill or a full disk: its trial runs again. Add a newline that an editor
        omitted."""
        content = _bytes(self._path)
        if torn := contents(content).torn:
            os.ftruncate(self._file.fileno(), len(content) - torn)
            say(f"{self._path}: the last line was torn, its trial was stopped; it was cut off")
        elif content and not content.endswith(b"\n"):
            self._file.write(b"\n")


def _remove_parts(folder: Path) -> None:
    """Remove unfinished files of killed runs. Keep those of a live process: it may write a report without a lock."""
    for found in folder.glob("*.part"):
        process = _PART.fullmatch(found.name)
        with contextlib.suppress(OSError):
            if process and not Path("/proc", process[1]).exists():
                found.unlink()


@dataclass(frozen=True)
class Line:
    """A complete line of trials.jsonl that is no environment's, numbered from 1: a record, or why it is not one."""

    number: int
    record: Record | None
    problem: str = ""


@dataclass(frozen=True)
class Contents:
    """The lines of trials.jsonl, and the length of a last one that a kill or a full disk has `torn`."""

    lines: tuple[Line, ...]
    torn: int


def read_trials(folder: Path) -> Contents:
    """Return the contents of trials.jsonl, none where it is missing. Raise UserError where it cannot be read."""
    return contents(_bytes(folder / TRIALS))


@lru_cache(maxsize=16)
def contents(content: bytes) -> Contents:
    """Return the lines in these bytes. All callers get the same records, and must not change them."""
    *whole, last = content.split(b"\n")
    lines = [line for number, text in enumerate(whole, 1) if text.strip() and (line := _line(number, text))]
    end = _line(len(whole) + 1, last) if last.strip() else None
    if end is not None and end.record is None:
        return Contents(tuple(lines), len(last))
    return Contents((*lines, end) if end else tuple(lines), 0)


def _line(number: int, text: bytes) -> Line | None:
    """Return the line of this text; None where it has an environment."""
    try:
        return Line(number, datafile.from_json(Record, datafile.parse(text))) if of_line(text) is None else None
    except datafile.NotAsDeclaredError as error:
        return Line(number, None, str(error))


def lack(folder: Path) -> str:
    """Return what is wrong with a trials.jsonl without trials ("missing", "empty", "no file"), else an empty string."""
    path = folder / TRIALS
    if not path.is_file():
        return "no file" if path.exists() else "missing"
    found = read_trials(folder)
    if found.lines or found.torn:
        return ""
    return "without a trial" if path.stat().st_size else "empty"


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); make it readable") from error
