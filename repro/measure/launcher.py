"""The client of a fork server: it starts the server, sends it jobs, and ends it with all that it forked."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path

from repro import files
from repro.formats import duration, end_of
from repro.machine.build_cache import clean_build_caches
from repro.machine.host import host, oom_kills
from repro.machine.packages import Imports
from repro.machine.stack import process_environment

from ..machine.processes import MARK, end_with, kill_marked
from ..models import custom
from .jobs import Job, RankOutcome
from .method import MethodFile

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


class ForkServer:
    """A fork server, which starts on first use, and again after it died. A context manager: leaving it ends every
    process.

    `log` gets what the server prints, `environment` is added to its own, with a folder for temporary files: what killed
    compilers leave there goes with the server. `python` is the stack's interpreter, by default this one. `modules` are
    imported beforehand, by default all that trials use; `methods` are the user's, which the settings of its jobs may
    name. Once it has started, `broken` has those modules that do not import, each with the error, and `imports` is what
    it imported.
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
        self._pipe: Connection | None = None
        self._loaded, self._temporary = False, ""
        self._mark, self._oom_kills = secrets.token_hex(16), 0
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
        self._pipe, far = Pipe()
        with open(self._opened(self._log), "ab") as log, far:
            self._process = subprocess.Popen(
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
        self._loaded = False

    @staticmethod
    def _opened(log: Path) -> int:
        """Open a log of a results folder through no link that leaves that, and return the descriptor."""
        return files.open_to_append(log.parent.parent, f"{log.parent.name}/{log.name}")

    def start(self) -> None:
        """Start the server and wait until the stack is loaded; do nothing where it is. The thread that launched the
        server waits here, as its end would end the server."""
        self.launch()
        if self._loaded:
            return
        with self._talking() as pipe:
            if not pipe.poll(LOADING_SECONDS):
                raise StackError(
                    f"the fork server did not load the stack within {duration(LOADING_SECONDS)}",
                    "run it again: a network file system that was slow answers sooner once it was read; or set up on a "
                    "local disk",
                )
            error, self.broken, self.imports = pipe.recv()
            if error:
                raise StackError(f"the stack does not import: {error}")
        self._loaded = True

    def call(self, job: Job) -> list[RankOutcome]:
        """Run a job of this machine alone, whose ranks meet in a file, and return its outcomes, one per rank."""
        self.start()
        with tempfile.TemporaryDirectory(dir=self._temporary) as meeting:
            self.begin(replace(job, rendezvous=f"{meeting}/rendezvous"))
            return self.outcomes(job)

    def begin(self, job: Job) -> None:
        """Have the server run a job. It receives later messages after the job."""
        self.start()
        if Path(job.log).parent == self._log.parent:
            os.close(self._opened(Path(job.log)))  # the ranks open it again, following no link
        model = custom.registered(job.arguments.get("recipe", ""))
        with self._talking() as pipe:
            interleaved = job.scheduler is not None
            pipe.send(replace(job, methods=self.methods, custom_model=model, scheduler=None, interleaved=interleaved))
            if job.scheduler is not None:
                assert self._process is not None
                with job.scheduler.pipe() as theirs:
                    send_handle(pipe, theirs.fileno(), self._process.pid)

    def answered(self) -> bool:
        """Return whether the job that was begun has ended, so that `outcomes` need not wait."""
        with self._talking() as pipe:
            return pipe.poll()

    def outcomes(self, job: Job) -> list[RankOutcome]:
        """Wait for the outcomes of the job that was begun, one per rank. The server enforces its time limit."""
        with self._talking() as pipe:
            if not pipe.poll(job.timeout + 60):
                raise ServerDiedError("the fork server does not answer")
            found: list[RankOutcome] = pipe.recv()
            return found

    def stop(self) -> None:
        """End the running job, if there is one; the server stays. Does nothing where the server has gone."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.send("stop")

    def clean_build_caches(self) -> int:
        """Clean the build caches, see repro/machine/build_cache.py; return the number of removed files."""
        return clean_build_caches(self._environment)

    def close(self) -> None:
        """End the server and all that it forked: close its connection, and kill it where it does not end then."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
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

    @property
    def lost(self) -> str:
        """Return why no more jobs can run: a server that died starts again."""
        return ""

    @contextlib.contextmanager
    def _talking(self) -> Iterator[Connection]:
        """Yield the pipe to the server. An interruption ends the server, and so does an error of it, which gets the end
        of its log."""
        assert self._pipe is not None
        try:
            yield self._pipe
        except KeyboardInterrupt:
            self.close()
            raise
        except (EOFError, OSError, ServerDiedError) as error:
            died = error if isinstance(error, ServerDiedError) else self._death()
            self.close()
            tail = self._log.read_text(errors="replace").splitlines()[-15:]
            raise type(died)("\n".join([str(died), "the end of its log:", *tail]), died.remedy) from error

    def _death(self) -> ServerDiedError:
        """Return how a server that has closed the pipe ended."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return ServerDiedError("the fork server has left")
        reason, remedy = f"the fork server {end_of(code)}", ""
        if code == -signal.SIGKILL:
            has = f"{host().memory_bytes / 2**30:.1f} GiB"
            remedy = f"free some memory, or give more to the container or job that this runs in: it has {has}"
            if oom_kills() > self._oom_kills:
                reason = "the kernel killed the fork server, as the host's memory ran out"
        return ServerDiedError(reason, remedy)
