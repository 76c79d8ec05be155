"""The folder of a run: every finished trial on disk before the next begins, and one run at a time in it."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from . import files, jsonfile
from .errors import UserError
from .stderr import say
from .trial import Record

TRIALS = "trials.jsonl"
LOCK, LOGS = ".lock", "logs"
VERDICTS = "verdicts.json"
BENCHMARK = "benchmark.json"
REPORT, PAGE = "report.md", "report.html"
TRAININGS = "*-images_*.json"  # of repro lab


class Results:
    """A results folder, held by this process while open. A context manager.

    Raises UserError where the folder cannot be written, or another run holds it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._trials = folder / TRIALS
        self._lock: IO[bytes] | None = None
        self._syncs = True

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
            self._mend()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.truncate(0)
            self._lock.close()
            self._lock = None

    @property
    def logs(self) -> Path:
        """Where trials print to."""
        return self.folder / LOGS

    def append(self, record: Record) -> None:
        """Write a record, and sync it where the file system does. A full disk loses nothing that was written before."""
        size = self._trials.stat().st_size if self._trials.is_file() else 0
        line = json.dumps(asdict(record)) + "\n"
        try:
            with open(files.open_to_append(self.folder, TRIALS), "a", encoding="utf-8") as file:
                file.write(line)
                synced = files.sync(file)
        except OSError as error:
            if self._trials.is_file():
                os.truncate(self._trials, size)
            if not self.folder.is_dir():
                told = f"{self.folder} was removed, with what was finished: run the same command again"
                raise UserError(told) from error
            raise UserError(f"{files.not_written(self.folder, error)}; what was finished is kept") from error
        if not synced and self._syncs:
            self._syncs = False
            say(f"{self.folder} is on a file system that does not sync: a power cut may lose what was finished last")

    def _mend(self) -> None:
        """Cuts off a last line that was torn by a kill or a full disk: the trial of it runs again. One that only lacks
        its newline, as editors leave it, gets that."""
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
    """Whether who wrote that it holds a folder is another process of this host, and still there."""
    found = re.fullmatch(r"process ([0-9]+) on (.+)", holder)
    if found is None or found[2] != socket.gethostname() or int(found[1]) == os.getpid():
        return False
    return Path("/proc", found[1]).exists()


def _logs(folder: Path) -> list[str]:
    """The folder of logs in a results folder, and what is in it already."""
    there = folder / LOGS
    return [LOGS, *(f"{LOGS}/{name}" for name in (os.listdir(there) if there.is_dir() else ()))]


@dataclass(frozen=True)
class Line:
    """A whole line of trials.jsonl, counted from 1: a record, or why it is none."""

    number: int
    record: Record | None
    problem: str = ""


def lines(folder: Path) -> Iterator[Line]:
    """The whole lines of a folder's trials, none where there is no such file. Raises UserError where the file cannot be
    read."""
    for number, text in enumerate(_whole(_bytes(folder)).split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            yield Line(number, jsonfile.value(Record, jsonfile.parse(text)))
        except jsonfile.NotAsDeclaredError as error:
            yield Line(number, None, str(error))


def lack(folder: Path) -> str:
    """Why a folder has no trials, in a word on trials.jsonl; nothing where there is something in it."""
    path = folder / TRIALS
    if not path.is_file():
        return "no file" if path.exists() else "missing"
    return "" if path.stat().st_size else "empty"


def torn(folder: Path) -> bool:
    """Whether a kill or a full disk cut the last line short."""
    found = _bytes(folder)
    return len(_whole(found)) < len(found)


def _whole(found: bytes) -> bytes:
    """Without what follows the last newline, unless that is a record, to its last brace."""
    end = found.rfind(b"\n") + 1
    try:
        jsonfile.value(Record, jsonfile.parse(found[end:]))
    except jsonfile.NotAsDeclaredError:
        return found[:end]
    return found


def _bytes(folder: Path) -> bytes:
    path = folder / TRIALS
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); make it readable") from error
