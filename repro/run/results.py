"""The results folder of a run: each finished trial is on disk before the next begins, and only one run writes at a
time."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .. import datafile, files, models
from ..console import UserError, say
from ..machine.environment import TRIALS as TRIALS
from ..machine.environment import of_line
from ..models import custom
from ..record import Record

RECIPES = "recipes.json"  # those of one's own, as data
LOCK, LOGS = ".lock", "logs"
VERDICTS = "verdicts.json"
BENCHMARK = "benchmark.json"
REPORT, PAGE = "report.md", "report.html"
TRAININGS = "*-images_*.json"  # written by repro lab
_PART = re.compile(r".+\.(?:json|md|html)\.([0-9]+)\.part")  # temporary name in files.replace


class Results:
    """A results folder, locked by this process while open. A context manager.

    Raises UserError where the folder cannot be written, or another run has it locked. The folder may be moved
    meanwhile, and another run may start under its old name: records go to the folder that was opened, wherever it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trials = folder / TRIALS
        self._lock: IO[bytes] | None = None
        self._syncs = True
        self._opened = -1  # file descriptor of the folder
        self._tells = True  # whether paths and open files can be compared on this file system

    def __enter__(self) -> Results:
        try:
            files.inside(self.folder, LOCK, TRIALS, *_logs(self.folder))
            self.logs.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / LOCK).open("ab+", buffering=0)
        except OSError as error:
            raise files.not_written(self.folder, error, "name another folder with --out") from error
        try:
            lock.seek(0)
            holder = lock.read().decode(errors="replace").strip()
            if not files.lock(lock):
                if _runs_here(holder):
                    raise BlockingIOError
                say(f"{self.folder} is on a file system without locks: see that no run of another machine writes there")
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except BlockingIOError:
            lock.close()
            raise UserError(
                f"{self.folder} is held by {holder or 'another process'}; wait for it, or name another folder with "
                "--out"
            ) from None
        except OSError as error:
            lock.close()
            raise files.not_written(self.folder, error) from error
        self._lock = lock
        try:
            self._opened = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            self._tells = self._is_here and self._is_held
            self._repair()
            _remove_parts(self.folder)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None
        if self._opened != -1:
            os.close(self._opened)
            self._opened = -1

    @property
    def logs(self) -> Path:
        """Return the folder of the trials' output."""
        return self.folder / LOGS

    @property
    def current(self) -> Path:
        """Return the current path of the folder. Raise UserError where it was removed."""
        if self._is_here or not self._tells:
            return self.folder
        found = Path(os.readlink(f"/proc/self/fd/{self._opened}"))
        if not _is_same(found, self._opened):
            raise UserError(f"{self.folder} was removed, with what was finished: run the same command again")
        return found

    @property
    def _is_here(self) -> bool:
        return _is_same(self.folder, self._opened)

    @property
    def _is_held(self) -> bool:
        assert self._lock is not None
        return _is_same(Path(f"/proc/self/fd/{self._opened}", LOCK), self._lock.fileno())

    def check(self) -> None:
        """Raise UserError where the folder was moved or removed, or is no longer locked by this process: files written
        there by name would end up in another run."""
        if (current := self.current) != self.folder:
            raise UserError(
                f"{self.folder} was moved while the run went on: what is finished is kept in {current}; name that with "
                "--out to go on"
            )
        if self._tells and not self._is_held:
            raise UserError(
                f"{self.folder / LOCK} was removed or replaced while the run went on, and another run may hold the "
                "folder: what is finished is kept; run the same command again once no other one is in it"
            )

    def append(self, record: Record) -> None:
        """Write a record as `append_line` does, and what describes its recipe."""
        self.keep_recipes([record.recipe])
        self.append_line(json.dumps(datafile.to_json(record)).encode())

    def append_line(self, line: bytes) -> None:
        """Write a line of trials.jsonl, and sync it where the file system can. A full disk loses nothing that was
        written before.

        Raise UserError where the folder was moved meanwhile, after writing the line there; and where another run may
        have locked it, after writing the line to a separate file in it.
        """
        aside = "" if self._is_held or not self._tells else f"trials-of-process-{os.getpid()}.jsonl"
        try:
            synced = self._write(aside or TRIALS, line + b"\n")
        except OSError as error:
            raise UserError(f"{files.not_written(self.current, error)}; what was finished is kept") from error
        if not synced and self._syncs:
            self._syncs = False
            say(f"{self.folder} is on a file system that does not sync: a power cut may lose what was finished last")
        try:
            self.check()
        except UserError as error:
            if not aside or self.current != self.folder:
                raise
            raise UserError(f"{error}; the last trial is in {self.folder / aside}, for {TRIALS}") from None

    def keep_recipes(self, ids: Iterable[str]) -> None:
        """Write those of these recipes that are one's own beside those of the folder, so that it can be reported
        without their models. Raise UserError where the folder describes one differently."""
        mine = list(filter(models.is_own, ids))
        file = self.current / RECIPES
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

    def _write(self, name: str, line: bytes) -> bool:
        """Append to a file of the open folder, the whole line or nothing. Return False where it is not synced."""
        with open(files.open_to_append(self.current, name, self._opened), "ab", buffering=0) as file:
            found = os.fstat(file.fileno())
            try:
                left = memoryview(line)
                while left:
                    left = left[file.write(left) :]
                return files.sync(file)
            except OSError:
                if stat.S_ISREG(found.st_mode):
                    os.ftruncate(file.fileno(), found.st_size)
                raise

    def _repair(self) -> None:
        """Cut off a last line torn by a kill or a full disk: its trial runs again. Add a newline that an editor
        omitted."""
        found = _bytes(self.folder)
        whole = _whole(found)
        try:
            if len(whole) < len(found):
                os.truncate(self._trials, len(whole))
                say(f"{self._trials}: the last line was torn, its trial was stopped; it was cut off")
            elif found and not found.endswith(b"\n"):
                with open(files.open_to_append(self.folder, TRIALS), "ab") as file:
                    file.write(b"\n")
        except OSError as error:
            raise files.not_written(self.folder, error) from error


def _runs_here(holder: str) -> bool:
    """Return whether the lock names another process of this host that still runs."""
    found = re.fullmatch(r"process ([0-9]+) on (.+)", holder)
    if found is None or found[2] != socket.gethostname() or int(found[1]) == os.getpid():
        return False
    return Path("/proc", found[1]).exists()


def _is_same(path: Path, opened: int) -> bool:
    """Return whether this path leads to the open file or folder."""
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except OSError:
        return False


def _remove_parts(folder: Path) -> None:
    """Remove unfinished files of killed runs. Keep those of a live process: it may write a report without a lock."""
    for found in folder.glob("*.part"):
        process = _PART.fullmatch(found.name)
        with contextlib.suppress(OSError):
            if process and stat.S_ISREG(found.lstat().st_mode) and not Path("/proc", process[1]).exists():
                found.unlink()


def _logs(folder: Path) -> list[str]:
    """Return the names of the log folder in a results folder and of the files in it."""
    there = folder / LOGS
    return [LOGS, *(f"{LOGS}/{name}" for name in (os.listdir(there) if there.is_dir() else ()))]


@dataclass(frozen=True)
class Line:
    """A complete line of trials.jsonl that is no environment's, numbered from 1: a record, or why it is not one."""

    number: int
    record: Record | None
    problem: str = ""


def lines(folder: Path) -> Iterator[Line]:
    """Yield the complete lines of trials.jsonl but for environments, none where it is missing. Raise UserError where it
    cannot be read."""
    for number, text in enumerate(_whole(_bytes(folder)).split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            if of_line(text) is None:
                yield Line(number, datafile.from_json(Record, datafile.parse(text)))
        except datafile.NotAsDeclaredError as error:
            yield Line(number, None, str(error))


def lack(folder: Path) -> str:
    """Return what is wrong with a trials.jsonl without trials ("missing", "empty", "no file"), else an empty string."""
    path = folder / TRIALS
    if not path.is_file():
        return "no file" if path.exists() else "missing"
    if any(lines(folder)) or torn(folder):
        return ""
    return "without a trial" if path.stat().st_size else "empty"


def torn(folder: Path) -> bool:
    """Return whether a kill or a full disk cut the last line short."""
    found = _bytes(folder)
    return len(_whole(found)) < len(found)


def _whole(found: bytes) -> bytes:
    """Return the contents up to the last newline, or all where the rest is a line that only lacks its newline."""
    end = found.rfind(b"\n") + 1
    try:
        if of_line(found[end:]) is None:
            datafile.from_json(Record, datafile.parse(found[end:]))
    except datafile.NotAsDeclaredError:
        return found[:end]
    return found


def _bytes(folder: Path) -> bytes:
    path = folder / TRIALS
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); make it readable") from error
