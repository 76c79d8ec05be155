"""Faults as data, and what each of them works with: a scratch folder, the real command line, and the checks that are
the same after every injection."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil

from repro.console import FAILED, INTERRUPTED, NOTHING_COMPARED, OK, USAGE
from repro.run.results import TRIALS, VERDICTS
from tests.support.command_line import ROOT

NAMED = (OK, FAILED, USAGE, NOTHING_COMPARED, INTERRUPTED)
MARK = "REPRO_FAULT"  # in the environment of all that an injection starts
# The cheapest run that finishes more than one trial: the stack is loaded once, and nothing is compiled.
TWO_TRIALS = ("--models", "convnext,vit", "--methods", "naive", "--processes", "1", "--steps", "1")
_FINISHED = re.compile(r"^\[[0-9]+/[0-9]+\] (\S+): [0-9.e+-]+ s a training step(?!.*from an earlier run)", re.MULTILINE)
_NONE: Mapping[str, str] = MappingProxyType({})
_ENDING_SECONDS = 15.0  # what processes get to end in, once the command has


@dataclass(frozen=True)
class Fault:
    """A kind of fault: `inject` does it `times` times, `fast_times` in the fast half, where none means not at all."""

    name: str
    group: str
    inject: Callable[[Case], None]
    times: int
    fast_times: int


FAULTS: dict[str, Fault] = {}


def fault(group: str, times: int = 1, fast: int = 0) -> Callable[[Callable[[Case], None]], Fault]:
    """Register a function as a fault, by its name."""

    def register(inject: Callable[[Case], None]) -> Fault:
        name = inject.__name__.replace("_", "-")
        FAULTS[name] = Fault(name, group, inject, times, fast)
        return FAULTS[name]

    return register


class SkippedError(Exception):
    """This machine does not allow the fault: why."""


@dataclass
class Result:
    """What became of a fault's injections: `lost` counts finished trials that are gone or changed."""

    name: str
    injected: int = 0
    held: int = 0
    lost: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    skipped: str = ""
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reference:
    """A run without any fault: its folder, what it was judged to be, and how long it took here."""

    folder: Path
    seconds: float

    @property
    def verdicts(self) -> list[object]:
        found: list[object] = json.loads((self.folder / VERDICTS).read_text())
        return found

    @property
    def trials(self) -> set[str]:
        return set(finished(self.folder))


@dataclass(frozen=True)
class Ended:
    """A command that has ended. `told` is all that it said on both streams."""

    code: int
    stdout: str
    stderr: str

    @property
    def message(self) -> str:
        return self.stdout + self.stderr

    @property
    def measured(self) -> set[str]:
        """The trials that it said it had finished."""
        return set(_FINISHED.findall(self.stderr))


def finished(folder: Path) -> dict[str, bytes]:
    """The lines of a folder's finished trials, by their ids; a torn last line is none."""
    path = folder / TRIALS
    whole = path.read_bytes().rpartition(b"\n")[0].split(b"\n") if path.is_file() else []
    rows = [(json.loads(line), line) for line in whole if line.startswith(b"{") and line.endswith(b"}")]
    return {row["id"]: line for row, line in rows if row.get("status") == "ok"}


def marked(name: str, value: str) -> list[psutil.Process]:
    """The processes that were started with this in their environment, or by one that was."""
    wanted, found = f"{name}={value}".encode(), []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, psutil.Error):
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                process = psutil.Process(int(place.name))
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
    return found


class Running:
    """A command at work, in a session of its own, and all that it started."""

    def __init__(self, words: Sequence[str], at: Path, environment: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self._out, self._err = at / f"{self.mark}.out", at / f"{self.mark}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                words,
                cwd=ROOT,
                env={**environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def family(self) -> list[psutil.Process]:
        """All processes with its mark, also those that nobody waits for."""
        return marked(MARK, self.mark)

    def servers(self) -> list[psutil.Process]:
        """The fork server, where it has started."""
        return [each for each in self.children() if _is_server(each) and not _is_server(each.parent())]

    def ranks(self) -> list[psutil.Process]:
        """What the fork server forked into a group of its own; while it loads, it starts other programs as well."""
        forked = [(server, each) for server in self.servers() for each in server.children() if _is_server(each)]
        return [each for server, each in forked if os.getpgid(each.pid) != os.getpgid(server.pid)]

    def compilers(self) -> list[psutil.Process]:
        return [each for each in self.children() if each.name() in ("cc1plus", "g++", "c++", "ld", "as", "collect2")]

    def children(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return []

    def wait_for(self, what: Callable[[], object], seconds: float) -> bool:
        """Whether it became so while the command ran."""
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if what():
                    return True
            time.sleep(0.01)
        return False

    def message(self) -> str:
        return self._err.read_text(errors="replace")

    def end(self, seconds: float) -> Ended | None:
        """What it was once it has ended; None where it does not, and is killed."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        return Ended(self.process.returncode, self._out.read_text(errors="replace"), self.message())

    def left(self) -> list[str]:
        """The processes that outlive it, which get some seconds to end."""
        deadline = time.monotonic() + _ENDING_SECONDS
        while family := self.family():
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        output = [f"{each.pid} {' '.join(each.cmdline()[:4])}" for each in family]
        self.kill()
        return output

    def kill(self) -> None:
        for each in self.family():
            with contextlib.suppress(psutil.Error):
                each.kill()
        if self.alive:
            self.process.kill()
        self.process.wait()


def _is_server(process: psutil.Process | None) -> bool:
    return process is not None and "repro.measure.server" in process.cmdline()


class Case:
    """One fault at work. `count` is how often it is to be injected."""

    def __init__(self, fault: Fault, count: int, seed: int, scratch: Path, reference: Reference | None) -> None:
        self.count, self.root = count, scratch
        self.random = random.Random(f"{seed} {fault.name}")
        self.result = Result(fault.name)
        self._reference, self._folders = reference, 0
        self._problems: list[str] = []
        self._runs: list[Running] = []
        self.library = scratch.parent  # where the faulty library lies: see shim.py
        self.temporary = scratch / "tmp"
        self.temporary.mkdir(parents=True)

    @property
    def reference(self) -> Reference:
        assert self._reference is not None
        return self._reference

    @property
    def patience(self) -> float:
        """Seconds after which a command hangs: many times what a run takes here."""
        return max(90.0, 8 * self.reference.seconds) if self._reference else 600.0

    # --- Injections ---

    @contextlib.contextmanager
    def injection(self, output: object = "") -> Iterator[None]:
        """One injection; it holds where no check of it fails."""
        self._problems = []
        try:
            yield
        except SkippedError:
            raise
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self._problems.append(f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})")
        finally:
            for each in self._runs:
                each.kill()
            self._runs.clear()
        self.result.injected += 1
        self.result.held += not self._problems
        self.result.problems += [f"{output}: {problem}" if output else problem for problem in self._problems]

    def check(self, holds: object, output: object) -> None:
        if not holds:
            self._problems.append(" ".join(str(output).split())[:600])

    def moment(self, share: float = 1.0) -> float:
        """A random moment of a run, in seconds from its start."""
        return self.random.uniform(0.0, share * self.reference.seconds)

    # --- Folders and commands ---

    def folder(self, copy: Path | None = None) -> Path:
        """A path of its own, of nothing yet, or of a copy of a folder."""
        self._folders += 1
        path = self.root / f"run-{self._folders}"
        return path if copy is None else shutil.copytree(copy, path)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        known = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TMPDIR": str(self.temporary)}
        return {**os.environ, "PYTHONPATH": str(ROOT), "REPRO_COMMAND": "./run_all.sh", **known, **variables}

    def start(self, *words: str, prefix: Sequence[str] = (), variables: Mapping[str, str] = _NONE) -> Running:
        """Start `python -m repro` with these words, itself started by the command `prefix`."""
        return self.launch([*prefix, sys.executable, "-P", "-m", "repro", *words], variables)

    def launch(self, command: Sequence[str], variables: Mapping[str, str]) -> Running:
        """Start any command, with all that is ended with the injection."""
        running = Running(command, self.root, self.environment(variables))
        self._runs.append(running)
        return running

    def start_run(
        self, out: Path, *more: str, prefix: Sequence[str] = (), variables: Mapping[str, str] = _NONE
    ) -> Running:
        """Start a run of two small trials, or of what `more` names in place of them."""
        return self.start("run", "--out", str(out), *(more or TWO_TRIALS), prefix=prefix, variables=variables)

    def ended(
        self, running: Running, codes: Sequence[int] = NAMED, says: str = "", seconds: float | None = None
    ) -> Ended:
        """Wait for a command, and check what holds of all: see the module tests/faults.py. Where it `says` something,
        that is a pattern of a line on stderr."""
        seconds = self.patience if seconds is None else seconds
        ended = running.end(seconds)
        if ended is None:
            self.check(False, f"hangs after {seconds:.0f} s, having said {running.message()[-300:]!r}")
            return Ended(OK, "", running.message())
        self.check(ended.code in codes, f"exit code {ended.code}, not one of {codes}: {ended.stderr[-300:]!r}")
        self.check("Traceback (most recent call last)" not in ended.message, f"a traceback: {ended.message[-500:]!r}")
        self.check(not (left := running.left()), f"left behind: {left}")
        if says:
            line = re.compile(says)
            found = [each for each in ended.stderr.splitlines() if line.search(each)]
            self.check(found, f"no line {says!r} in {ended.stderr[-500:]!r}")
        return ended

    def run(
        self,
        out: Path,
        *more: str,
        codes: Sequence[int] = NAMED,
        says: str = "",
        variables: Mapping[str, str] = _NONE,
    ) -> Ended:
        """A run to its end, with its checks, the finished trials of the folder among them."""
        before = finished(out)
        ended = self.ended(self.start_run(out, *more, variables=variables), codes, says)
        self.kept(out, before)
        return ended

    # --- What holds of a folder ---

    def kept(self, folder: Path, before: dict[str, bytes], also: set[str] | None = None) -> None:
        """Check that trials which were finished `before` are in the folder as they were, and those of `also`."""
        after = finished(folder)
        lost = [id for id, line in before.items() if after.get(id) != line]
        lost += [id for id in also or () if id not in after]
        self.result.lost += len(lost)
        self.check(not lost, f"lost: {lost}")

    def resumes(self, folder: Path, *more: str) -> None:
        """Check that the same command ends as if nothing had been, measures no finished trial again, and leaves no file
        of its own but those of a run."""
        before, reference = finished(folder), self.reference
        ended = self.run(folder, *more, codes=(OK,))
        self.check(not (again := ended.measured & set(before)), f"measured again: {again}")
        if not more:
            after = finished(folder)
            self.check(set(after) == reference.trials, f"resumed to {sorted(after)}")
            self.check(json.loads((folder / VERDICTS).read_text()) == reference.verdicts, "other verdicts")
        self.tidy(folder)

    def tidy(self, folder: Path, temporary: bool = False) -> None:
        """Check that no unfinished file is left in a folder, nor, where so asked, among the temporary files."""
        parts = [str(each.relative_to(folder)) for each in folder.rglob("*.part")]
        self.check(not parts, f"unfinished files: {parts}")
        if temporary:
            self.check(not (left := [each.name for each in self.temporary.iterdir()]), f"temporary files: {left}")


def of_signal(number: signal.Signals) -> int:
    """The exit code that Python tells of a process that a signal ended."""
    return -number
