"""The near end of a fork server: starts it, hands it jobs, and ends it with all it forked."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from repro import files, jsonfile
from repro.build_cache import mend
from repro.imported import Imports
from repro.variables import process_environment

from .job import Job, Outcome


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
    """The stack does not import: no server of it can start."""


class Stream:
    """JSON lines over a socket, to a server and back; errors call it by `name`."""

    def __init__(self, connection: socket.socket, name: str = "the fork server") -> None:
        self._connection, self.name, self._buffer = connection, name, b""

    def send(self, value: Any) -> None:
        """Sends one line; a ServerDiedError where nobody listens any more."""
        try:
            self._connection.sendall(json.dumps(value).encode() + b"\n")
        except OSError as error:  # also that of a network whose other end does not answer any more
            raise ServerDiedError(f"{self.name} has left") from error

    def receive(self, timeout: float | None) -> Any:
        """Waits for one line, `timeout` seconds at most; a ServerDiedError where none comes."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._buffer:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._connection], [], [], wait)[0]:
                raise ServerDiedError(f"{self.name} does not answer")
            try:
                chunk = self._connection.recv(1 << 16)
            except OSError:
                chunk = b""
            if not chunk:
                raise ServerDiedError(f"{self.name} has left")
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            return json.loads(line)
        except ValueError:
            raise ServerDiedError(f"{self.name} speaks as no fork server does: {line[:40]!r}") from None

    def begin(self, job: Job) -> None:
        """Has the server run a job. What is said from now on is said after it."""
        self.send(asdict(job))

    def outcomes(self, job: Job) -> list[Outcome]:
        """Waits for the outcomes of the job that was begun, one a rank. The server keeps its deadline."""
        return [Outcome(**row) for row in self.receive(job.timeout + 60)]

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
        near, far = socket.socketpair()
        with open(self._opened(self._log), "ab") as log:
            self._process = subprocess.Popen(
                [self._python, "-m", "repro.measure.server", str(far.fileno()), *self._modules],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a terminal's Ctrl-C is the near end's to handle
                env=process_environment(self._environment),
            )
        far.close()
        self._stream, self._loaded = Stream(near), False

    @staticmethod
    def _opened(log: Path) -> int:
        """A log in the folder of logs of a results folder, through no link that leaves that."""
        return files.open_to_append(log.parent.parent, f"{log.parent.name}/{log.name}")

    def start(self) -> None:
        """Starts the server and waits until the stack is loaded; does nothing where it is already."""
        self.launch()
        if self._loaded:
            return
        with self._listening() as stream:
            ready = stream.receive(None)
            if "error" in ready:
                raise StackError(f"the stack does not import: {ready['error']}\n{ready['traceback']}")
        self._loaded, self.broken = True, ready["broken"]
        self.imports = jsonfile.value(Imports, ready["imports"])

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
        """Mends the caches of builds, see repro/build_cache.py; returns how many files were removed."""
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
            self.close()
            tail = self._log.read_text(errors="replace").splitlines()[-15:]
            raise type(error)("\n".join([str(error), "the end of its log:", *tail])) from error
