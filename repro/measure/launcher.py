"""The near end of a fork server: starts it, hands it jobs, and ends it with all it forked."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
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
from repro.machine.build_cache import mend
from repro.machine.host import host, process_limit
from repro.machine.imported import Imports
from repro.machine.stack import process_environment
from repro.text import duration

from .memory import oom_kills
from .processes import MARK, end_of, end_with, kill_marked
from .reports import Report
from .server import Job, Outcome

# To load the stack takes 5 to 60 s from a disk, and minutes from a network file system that is read for the first time.
LOADING_SECONDS = 600.0
_EXIT_SECONDS = 2.0  # from the end of its connection to that of a process, whose exit code is known then


class ServerDiedError(RuntimeError):
    """A fork server ended on its own: its first line says what became of it, the others what it left. `remedy` is empty
    where only these help."""

    def __init__(self, told: str, remedy: str = "") -> None:
        super().__init__(told)
        self.remedy = remedy

    @property
    def reason(self) -> str:
        return str(self).splitlines()[0]


class StackError(ServerDiedError):
    """The stack does not import, or not in time: no server of it can start."""


class LeftError(ServerDiedError):
    """A fork server has closed its connection."""


class SilentError(ServerDiedError):
    """A fork server has said nothing for as long as it may."""


class Stream:
    """JSON lines over a socket, to a server and back."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._buffer = connection, b""

    def send(self, value: Any) -> None:
        """Sends one line; a ServerDiedError where nobody listens any more."""
        try:
            self._connection.sendall(json.dumps(value).encode() + b"\n")
        except OSError as error:
            raise LeftError("the fork server has left") from error

    def receive(self, timeout: float | None) -> Any:
        """Waits for one line, `timeout` seconds at most; a ServerDiedError where none comes."""
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

    def begin(self, job: Job) -> None:
        """Has the server run a job. What is said from now on is said after it."""
        self.send(asdict(job))

    def outcomes(self, job: Job) -> list[Outcome]:
        """Waits for the outcomes of the job that was begun, one a rank. The server keeps its deadline."""
        rows = self.receive(job.timeout + 60)
        return [Outcome(**row | {"reports": [Report.of(each) for each in row["reports"]]}) for row in rows]

    def stop(self) -> None:
        """Ends the job that runs, if one does; the server stays. One that has left runs none."""
        with contextlib.suppress(ServerDiedError):
            self.send({"stop": True})

    def close(self) -> None:
        """Tells the server to end. Another thread that waits for it wakes up."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


class ForkServer:
    """Starts on first use, again after it died. A context manager: leaving it ends every process.

    `log` gets what the server prints, `environment` is added to its own. `python` is the stack's interpreter, this
    one's where none is named; `modules` are what it imports beforehand, all that trials use unless some are named.
    Once it has started, `broken` are those of these that do not import, each with the error, and `imports` is what it
    imported.
    """

    def __init__(
        self, log: Path, environment: Mapping[str, str], python: str = sys.executable, modules: Sequence[str] = ()
    ) -> None:
        self._log, self._environment, self._python, self._modules = log, environment, python, modules
        self._process: subprocess.Popen[bytes] | None = None
        self._stream: Stream | None = None
        self._loaded = False
        self._mark, self._oom_kills = secrets.token_hex(16), 0
        self._late: StackError | None = None
        self.broken: dict[str, str] = {}
        self.imports: Imports | None = None

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def launch(self) -> None:
        """Starts the server without waiting for it to load the stack; does nothing where it runs already."""
        if self._process is not None and self._process.poll() is None:
            return
        self.mend()
        self._oom_kills = oom_kills()
        near, far = socket.socketpair()
        with open(self._opened(self._log), "ab") as log, far:
            self._process = _popen(
                [self._python, "-m", "repro.measure.server", str(far.fileno()), *self._modules],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a terminal's Ctrl-C is the near end's to handle
                # Of the thread that starts it the kernel takes the end for this process's: see `start`.
                preexec_fn=partial(end_with, os.getpid()),
                env=process_environment(self._environment) | {MARK: self._mark},
            )
        self._stream, self._loaded = Stream(near), False

    @staticmethod
    def _opened(log: Path) -> int:
        """A log in the folder of logs of a results folder, through no link that leaves that."""
        return files.open_to_append(log.parent.parent, f"{log.parent.name}/{log.name}")

    def start(self) -> None:
        """Starts the server and waits until the stack is loaded; does nothing where it is already. A server that could
        not load it in time is not started again. The thread that launched it waits here, too."""
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
        self.imports = datafile.value(Imports, ready["imports"])

    def _stopped(self) -> str:
        """What to add where the server was stopped."""
        import psutil

        assert self._process is not None
        stopped = psutil.Process(self._process.pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        return ": somebody has stopped it (SIGSTOP)" if stopped else ""

    def call(self, job: Job) -> list[Outcome]:
        """Runs a job of this machine alone, whose ranks meet in a file, and waits for its outcomes, one a rank."""
        with tempfile.TemporaryDirectory(prefix="repro-") as meeting:
            self.begin(replace(job, rendezvous=f"{meeting}/rendezvous"))
            return self.outcomes(job)

    def begin(self, job: Job) -> None:
        """Has the server run a job. What is said from now on is said after it."""
        self.start()
        if Path(job.log).parent == self._log.parent:
            os.close(self._opened(Path(job.log)))  # the ranks open it anew, through no link at all
        with self._listening() as stream:
            stream.begin(job)

    def outcomes(self, job: Job) -> list[Outcome]:
        """Waits for the outcomes of the job that was begun, one a rank."""
        with self._listening() as stream:
            return stream.outcomes(job)

    def stop(self) -> None:
        """Ends the job that runs, if one does; the server stays."""
        if self._stream is not None:
            self._stream.stop()

    def mend(self) -> int:
        """Mends the caches of builds, see repro/machine/build_cache.py; returns how many files were removed."""
        return mend(self._environment)

    def close(self) -> None:
        """Ends the server and all it forked. The stream's end tells it to; a deaf one is killed."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._process is not None:
            if not self._loaded:
                self._process.kill()  # it has forked nothing yet, and would load on to the end
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._process.returncode:
                kill_marked(self._mark)  # what it could not end itself
            self._process = None

    @contextlib.contextmanager
    def _listening(self) -> Iterator[Stream]:
        """The server's stream. An interruption at it ends the server; news of its death get the end of its log."""
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
        """How a server ended that has left, and the remedy; None where it ended well, or is still there."""
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
    """Starts a process. Raises ServerDiedError where no more may be started."""
    try:
        return subprocess.Popen(command, **known)
    except BlockingIOError as error:
        raise ServerDiedError(f"the fork server cannot be started: {process_limit()}") from error
