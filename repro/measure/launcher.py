"""The client of a fork server: it starts the server, sends it jobs, and ends it with all that it forked."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from repro import datafile, files
from repro.formats import duration, end_of
from repro.machine.build_cache import clean_build_caches
from repro.machine.host import host, oom_kills, process_limit
from repro.machine.imports import Imports
from repro.machine.stack import process_environment

from ..machine.processes import MARK, end_with, kill_marked
from ..models import custom
from .method import MethodFile
from .rank_reports import Report
from .server import Job, RankOutcome

# Loading the stack takes 5 to 60 s from a disk, and minutes from a network file system at the first time.
LOADING_SECONDS = 600.0
_EXIT_SECONDS = 2.0  # for a process to exit after its connection has closed, so that its exit code is known


class ServerDiedError(RuntimeError):
    """An error of a fork server that ended on its own: how, in its first line, and the end of its log. `remedy` is
    empty where only the log helps."""

    def __init__(self, text: str, remedy: str = "") -> None:
        super().__init__(text)
        self.remedy = remedy

    @property
    def reason(self) -> str:
        return str(self).splitlines()[0]


class StackError(ServerDiedError):
    """An error of a stack that does not import, or not in time: no server of it can start."""


class LeftError(ServerDiedError):
    """An error of a fork server that has closed its connection."""


class SilentError(ServerDiedError):
    """An error of a fork server that has not answered in time."""


class Stream:
    """JSON lines over a socket, to a server and back."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._buffer = connection, b""

    def send(self, value: Any) -> None:
        """Send one line. Raises LeftError where the server has gone."""
        try:
            self._connection.sendall(json.dumps(value).encode() + b"\n")
        except OSError as error:
            raise LeftError("the fork server has left") from error

    def receive(self, timeout: float | None) -> Any:
        """Return the next line, after `timeout` seconds at most. Raises ServerDiedError where none comes."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._buffer:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._connection], [], [], wait)[0]:
                raise SilentError("the fork server does not answer")
            try:
                chunk = self._connection.recv(1 << 16)
            except OSError:
                chunk = b""
            if not chunk:
                raise LeftError("the fork server has left")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            return json.loads(line)
        except ValueError:
            raise ServerDiedError(f"the fork server speaks as none does: {line[:40]!r}") from None

    def answered(self) -> bool:
        """Return whether there is something to receive."""
        return bool(self._buffer or select.select([self._connection], [], [], 0)[0])

    def begin(self, job: Job) -> None:
        """Have the server run a job. It receives later messages after the job."""
        self.send(asdict(job))

    def outcomes(self, job: Job) -> list[RankOutcome]:
        """Wait for the outcomes of the job that was begun, one per rank. The server enforces its time limit."""
        rows = self.receive(job.timeout + 60)
        return [RankOutcome(**row | {"reports": datafile.from_json(list[Report], row["reports"])}) for row in rows]

    def stop(self) -> None:
        """End the running job, if there is one; the server stays. Does nothing where the server has gone."""
        with contextlib.suppress(ServerDiedError):
            self.send({"stop": True})

    def close(self) -> None:
        """Close the connection, which ends the server and wakes another thread that waits for it."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class ForkServer:
    """A fork server, which starts on first use, and again after it died. A context manager: leaving it ends every
    process.

    `log` gets what the server prints, `environment` is added to its own, with a folder for temporary files: what killed
    compilers leave there goes with the server. `python` is the stack's interpreter, by
    default this one. `modules` are imported beforehand, by default all that trials use; `methods` are the user's, which
    the settings of its jobs may name. Once it has started, `broken` has those of them that do not import, each with the
    error, and `imports` is what it imported.
    """

    def __init__(
        self,
        log: Path,
        environment: Mapping[str, str],
        python: str = sys.executable,
        modules: Sequence[str] = (),
        methods: Sequence[MethodFile] = (),
    ) -> None:
        self._log, self._environment, self._python, self._modules = log, environment, python, modules
        self.methods = tuple(methods)
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: Stream | None = None
        self._loaded, self._temporary = False, ""
        self._mark, self._oom_kills = secrets.token_hex(16), 0
        self._late: StackError | None = None
        self.broken: dict[str, str] = {}
        self.imports: Imports | None = None

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def launch(self) -> None:
        """Start the server without waiting for it to load the stack; do nothing where it runs already."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self.clean_build_caches()
        self._oom_kills = oom_kills()
        self._temporary = tempfile.mkdtemp(prefix="repro-", dir=self._environment.get("TMPDIR"))
        near, far = socket.socketpair()
        with open(self._opened(self._log), "ab") as log, far:
            self._process = _popen(
                [self._python, "-m", "repro.measure.server", str(far.fileno()), self._temporary, *self._modules],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # this process handles a terminal's Ctrl-C
                # The kernel takes the end of the thread that starts it for the end of this process: see `start`.
                preexec_fn=partial(end_with, os.getpid()),
                env=process_environment(self._environment) | {MARK: self._mark, "TMPDIR": self._temporary},
            )
        self._stream, self._loaded = Stream(near), False

    @staticmethod
    def _opened(log: Path) -> int:
        """Open a log of a results folder through no link that leaves that, and return the descriptor."""
        return files.open_to_append(log.parent.parent, f"{log.parent.name}/{log.name}")

    def start(self) -> None:
        """Start the server and wait until the stack is loaded; do nothing where it is. A server that did not load it in
        time is not started again. The thread that launched the server waits here, as its end would end the server."""
        if self._late is not None:
            raise self._late
        self.launch()
        if self._loaded:
            return
        with self._listening() as stream:
            try:
                ready = stream.receive(LOADING_SECONDS)
            except SilentError:
                self._late = StackError(
                    f"the fork server did not load the stack within {duration(LOADING_SECONDS)}{self._stopped()}",
                    "run it again: a network file system that was slow answers sooner once it was read; or set up on a "
                    "local disk",
                )
                raise self._late from None
            if "error" in ready:
                raise StackError(f"the stack does not import: {ready['error']}\n{ready['traceback']}")
        self._loaded, self.broken = True, ready["broken"]
        self.imports = datafile.from_json(Imports, ready["imports"])

    def _stopped(self) -> str:
        """Return what to add to an error where the server was stopped by a signal; else nothing."""
        import psutil

        assert self._process is not None
        stopped = psutil.Process(self._process.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return ": another process has stopped it (SIGSTOP)" if stopped else ""

    def call(self, job: Job) -> list[RankOutcome]:
        """Run a job of this machine alone, whose ranks meet in a file, and return its outcomes, one per rank."""
        self.start()
        with tempfile.TemporaryDirectory(dir=self._temporary) as meeting:
            self.begin(replace(job, rendezvous=f"{meeting}/rendezvous"))
            return self.outcomes(job)

    def begin(self, job: Job) -> None:
        """Have the server run a job. It receives later messages after the job."""
        self.start()
        if (known := custom.registered(job.arguments.get("recipe", ""))) is not None:
            job = replace(job, own=asdict(known))
        if Path(job.log).parent == self._log.parent:
            os.close(self._opened(Path(job.log)))  # the ranks open it again, following no link
        with self._listening() as stream:
            stream.begin(replace(job, methods=self.methods))

    def answered(self) -> bool:
        """Return whether the job that was begun has ended, so that `outcomes` need not wait."""
        with self._listening() as stream:
            return stream.answered()

    def outcomes(self, job: Job) -> list[RankOutcome]:
        """Wait for the outcomes of the job that was begun, one per rank."""
        with self._listening() as stream:
            return stream.outcomes(job)

    def stop(self) -> None:
        """End the running job, if there is one; the server stays."""
        if self._stream is not None:
            self._stream.stop()

    def clean_build_caches(self) -> int:
        """Clean the build caches, see repro/machine/build_cache.py; return the number of removed files."""
        return clean_build_caches(self._environment)

    def close(self) -> None:
        """End the server and all that it forked: close its connection, and kill it where it does not end then."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._process is not None:
            if not self._loaded:
                self._process.kill()  # it has forked nothing yet, and would finish loading first
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.returncode:
                kill_marked(self._mark)  # what it could not end itself
            self._process = None
        shutil.rmtree(self._temporary, ignore_errors=True)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[Stream]:
        """Yield the server's stream. An interruption ends the server; a ServerDiedError gets the end of its log."""
        assert self._stream is not None
        try:
            yield self._stream
        except KeyboardInterrupt:
            self.close()
            raise
        except ServerDiedError as error:
            reason, remedy = str(error), error.remedy
            if isinstance(error, LeftError):
                reason, remedy = self._end() or (reason, remedy)
            self.close()
            tail = self._log.read_text(errors="replace").splitlines()[-15:]
            raise type(error)("\n".join([reason, "the end of its log:", *tail]), remedy) from error

    def _end(self) -> tuple[str, str] | None:
        """Return how a server that has left ended, and the remedy; None where it ended well, or still runs."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        if code != -signal.SIGKILL:
            return (f"the fork server {end_of(code)}", "") if code else None
        reason = f"the fork server {end_of(code)}"
        if oom_kills() > self._oom_kills:
            reason = "the kernel killed the fork server, as the host's memory ran out"
        has = f"{host().memory_bytes / 2**30:.1f} GiB"
        return reason, f"free some memory, or give more to the container or job that this runs in: it has {has}"


def _popen(command: Sequence[str], **known: Any) -> subprocess.Popen[bytes]:
    """Start a process. Raises ServerDiedError where no more may be started."""
    try:
        return subprocess.Popen(command, **known)
    except BlockingIOError as error:
        raise ServerDiedError(f"the fork server cannot be started: {process_limit()}") from error
