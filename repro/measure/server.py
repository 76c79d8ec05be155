"""The fork server, which imports the stack once and forks every trial's ranks from it.

Importing the stack takes seconds, forking milliseconds. The server never touches a device. It exchanges JSON lines over
a socket: one job in, one answer out. A job names a function, how many ranks run it here, and its limits. Any message
that arrives while a job runs ends the job's processes, and the end of the stream also ends the server.

Ranks of one job are one process group. The server reaps all their descendants, and each rank dies with the server, so
that nothing outlives a run, however it ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import IO, Any

from repro import datafile
from repro.console import ROOT, one_line
from repro.datafile import from_json
from repro.formats import end_of
from repro.machine import host, nvml, stack
from repro.machine.host import no_more_processes, process_limit
from repro.machine.imports import imports

from ..machine.processes import adopt_orphans, end_with, go_on_without_parent
from ..models import custom
from ..models.custom import CustomModel
from ..record import GpuState
from .memory import busy_cpus, is_out_of_memory, is_the_hosts, lost_a_compiler
from .method import MethodError, MethodFile, UnfitError
from .rank import Rank
from .rank_reports import Report

_READ_BYTES = 1 << 20  # read of a job's log
_GRACE_SECONDS = 3.0  # for the other ranks to report once one has failed
_LOOK_SECONDS = 1.0  # between two checks of silent ranks
_GLANCE_SECONDS = 0.005  # and of ranks that are about to end
_BEGIN, _END = 12_000, 4_000  # characters kept of a traceback's beginning, with a compiler's first error, and end


@dataclass(frozen=True)
class Job:
    """A call for every rank: `call` is "module:function", run as function(rank, **arguments), which returns JSON.

    `log` gets what the ranks print. Times are in seconds, memory in bytes per rank. `scheduler` is the address of the
    scheduler that interleaves this job with others. With `projected` the other ranks of `world` are never started, and
    collectives return at once; `set_aside` are bytes of each GPU that they leave free. The sender fills in the rest:
    `world` counts the ranks of all nodes, `ranks` those forked here, from number `first` on; they meet at `rendezvous`:
    a file's absolute path on one machine, else tcp://HOST:PORT/PREFIX#ADDRESS, keys of the nodes' store and this node's
    own address. `own` is the recipe of one's own that the arguments name. `methods` are the user's, which settings may
    name: the fork server's client knows their files from its command line.
    """

    call: str
    arguments: dict[str, Any]
    ranks: int
    log: str
    timeout: float
    cuda: bool = False
    memory: int | None = None
    scheduler: str | None = None
    projected: bool = False
    set_aside: int = 0
    methods: tuple[MethodFile, ...] = ()
    rendezvous: str = ""
    world: int = 0
    first: int = 0
    sent: float = field(default_factory=time.time)
    own: dict[str, Any] | None = None

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Job:
        """Return a job that a client of this version sent."""
        return cls(**plain | {"methods": tuple(MethodFile(**each) for each in plain["methods"])})


@dataclass
class RankOutcome:
    """The result of one rank: `ok` with a value, `out_of_memory`, `unsupported` or `crashed` with the error,
    `timed_out`, or `stopped`, by another rank's failure or by the client. `error` is one line, `reports` are in their
    order, `failed` is the seconds from sending the job to an error. `of_host` marks memory that ran out on the host of
    a GPU, `gpu_state` is what the GPU reported then. `busy_cpus` are those that other processes kept busy on its
    machine while the ranks there timed something; None where nothing was timed, or the job was interleaved."""

    rank: int
    status: str = ""
    value: Any = None
    error: str = ""
    traceback: str = ""
    failed: float = 0.0
    of_host: bool = False
    gpu_state: GpuState | None = None
    busy_cpus: float | None = None
    reports: list[Report] = field(default_factory=list)


def _rank_process(job: Job, local: int, group: int, pipe: int, server: int, kills: int) -> None:
    """Run a forked rank; never returns. `kills` is as in `_of_error`."""
    code = 1
    try:
        sink: IO[str] = os.fdopen(pipe, "w", buffering=1)

        def send(kind: str, sent: Any) -> None:
            plain = asdict(sent) if is_dataclass(sent) and not isinstance(sent, type) else sent
            sink.write(json.dumps({"kind": kind, "value": plain}) + "\n")

        try:
            os.setpgid(0, group)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # _held_back delays it in the server
            signal.signal(signal.SIGINT, signal.default_int_handler)
            end_with(server)
            with contextlib.suppress(OSError):  # if memory runs out, the kernel kills a rank
                Path("/proc/self/oom_score_adj").write_text("1000")
            log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(log, 1)
            os.dup2(log, 2)
            # Ranks share a log, so each writes whole lines, which PYTHONUNBUFFERED would split.
            sys.stdout.reconfigure(line_buffering=True, write_through=False)  # type: ignore[union-attr]
            rank = Rank(
                job.first + local,
                job.world or job.ranks,
                local,
                job.world if job.projected and not job.cuda else job.ranks,
                job.cuda,
                job.rendezvous,
                job.sent,
                job.scheduler,
                job.projected,
            )
            rank.report = lambda report: send("report", report)
            rank.methods = job.methods
            rank.prepare(job.memory, job.set_aside)
            if job.own is not None:
                custom.register(from_json(CustomModel, job.own))
            module, function = job.call.split(":")
            send("ok", getattr(importlib.import_module(module), function)(rank, **job.arguments))
            code = 0
        except BaseException as error:
            status, sentence, of_host = _of_error(error, kills, job.cuda)
            send(
                status,
                {
                    "error": sentence,
                    "traceback": _traceback(),
                    "failed": time.time() - job.sent,
                    "of_host": of_host,
                    "gpu_state": nvml.state(local) if status == "out_of_memory" and job.cuda else None,
                },
            )
            traceback.print_exc()
        sys.stdout.flush()  # last: a log that cannot be written must not lose a result
        sys.stderr.flush()
    finally:
        os._exit(code)  # skips the teardown of CUDA and of the process group, which can hang once a rank is gone


def _of_error(error: BaseException, kills: int, cuda: bool) -> tuple[str, str, bool]:
    """Return the status of a rank that raised this, the error in one line, and whether the memory that ran out was the
    host's and not the device's: on a CPU only a killed compiler's. `kills` is the number of processes that the kernel
    had killed for lack of memory before the rank began."""
    if lost_a_compiler(error) and host.oom_kills() > kills:
        return "out_of_memory", "the kernel killed a compiler, as the host's memory ran out", True
    if isinstance(error, UnfitError):
        return "unsupported", str(error), False
    return "out_of_memory" if is_out_of_memory(error) else "crashed", _line(error), cuda and is_the_hosts(error)


def _line(error: BaseException) -> str:
    """Return the error in one line, with the limit of processes and threads where that caused it."""
    line = str(error) if isinstance(error, MethodError) else one_line(error)
    return line + (f"; {process_limit()}" if no_more_processes(str(error)) else "")


def _traceback() -> str:
    """Return the current traceback for a record, which others may read: paths are relative to this checkout, or to ~,
    and the middle of a long one, such as a compiler's, is left out. The log has all of it."""
    text = traceback.format_exc().replace(f"{ROOT}{os.sep}", "")
    home = os.path.expanduser("~").rstrip(os.sep)  # ~ or / for an unknown user
    if home not in ("", "~"):
        text = text.replace(f"{home}{os.sep}", "~/")
    left_out = len(text) - _BEGIN - _END
    if left_out <= 0:
        return text
    return f"{text[:_BEGIN]}\n[{left_out:,} characters are left out here, the log has them]\n{text[-_END:]}"


class _Forked:
    """A rank as the server sees it: its process, the pipe that it reports on, and its outcome. `oom_kills` are those
    before it began, `log` is what it prints to."""

    def __init__(self, rank: int, pid: int, pipe: int, cuda: bool, oom_kills: int, log: _Log | None = None) -> None:
        self.outcome, self.pid, self.pipe, self._cuda, self._oom_kills = RankOutcome(rank), pid, pipe, cuda, oom_kills
        self._log = log
        self.hung_up = self.ended = False
        self._torn = b""
        os.set_blocking(pipe, False)

    def hear(self) -> None:
        """Read what the rank has sent."""
        while not self.hung_up:
            try:
                chunk = os.read(self.pipe, 1 << 16)
            except BlockingIOError:
                return
            self.hung_up = not chunk
            *lines, self._torn = (self._torn + chunk).split(b"\n")
            for message in map(json.loads, lines):
                kind, sent = message["kind"], message["value"]
                if kind == "report":
                    self.outcome.reports.append(datafile.from_json(Report, sent))
                elif kind == "ok":
                    self.outcome.status, self.outcome.value = kind, sent
                else:
                    self.outcome = replace(self.outcome, status=kind, **sent)

    def look(self) -> None:
        """Note whether the process has ended. Its pipe does not show it: a process that it forked may keep it open.

        The process stays a zombie, so that its group's number is not used again.
        """
        end = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if end is None:
            return
        self.hear()
        self.ended = True
        if not self.outcome.status:
            killed = end.si_code != os.CLD_EXITED
            if killed and end.si_status == signal.SIGKILL and host.oom_kills() > self._oom_kills:
                self.outcome.status, self.outcome.of_host = "out_of_memory", self._cuda
                self.outcome.error = "the kernel killed the process, as the host's memory ran out"
                return
            how = end_of(-end.si_status if killed else end.si_status)
            if self._log is not None and self._log.lacks_processes():
                how += f"; {process_limit()}"
            self.outcome.status, self.outcome.error = "crashed", f"the process {how}"


class _Log:
    """The output of a job from now on, and how often its control group refuses a process or a thread."""

    def __init__(self, file: str) -> None:
        self._file, self._refused = Path(file), host.pids_refused()
        self._size = self._file.stat().st_size if self._file.is_file() else 0

    def lacks_processes(self) -> bool:
        """Return whether the job lacked a process or a thread, as native libraries print before they abort."""
        if host.pids_refused() > self._refused:
            return True
        try:
            with self._file.open("rb") as log:
                log.seek(self._size)
                return no_more_processes(log.read(_READ_BYTES).decode(errors="replace"))
        except OSError:
            return False


def _end(group: int) -> None:
    """Kill and reap the process group, if it is not 0, and every other descendant of this process."""
    import psutil

    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group:  # 0 would be this process's own
            os.killpg(group, signal.SIGKILL)
    while descendants := psutil.Process().children(recursive=True):
        for process in descendants:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(_GLANCE_SECONDS)


def _stop_requested(stream: socket.socket) -> bool:
    """Return whether the client has sent a message, which ends the job. Raises ConnectionError if it has left."""
    try:
        if not stream.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
            raise ConnectionError("the near end has left")
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    """Delay signals that ask this process to end: an exception that a handler raises during a fork is lost, as Python
    ignores those of fork hooks."""
    came: list[int] = []
    handlers = {
        each: signal.signal(each, lambda number, _: came.append(number)) for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        for number in came:
            signal.raise_signal(number)


def run_job(job: Job, stream: socket.socket) -> list[RankOutcome]:
    """Fork the job's ranks, and wait for all, the first failure, the deadline, or any message on the stream.

    Raises ConnectionError where the stream ends instead. Nothing that was forked outlives this.
    """
    server, group, ranks, kills, log = os.getpid(), 0, [], host.oom_kills(), _Log(job.log)
    selector = selectors.DefaultSelector()
    selector.register(stream, selectors.EVENT_READ)
    try:
        for local in range(job.ranks):
            with _held_back():
                reading, writing = os.pipe()
                try:
                    pid = os.fork()
                except OSError as error:
                    os.close(reading)
                    os.close(writing)
                    return _unforked(job, local, error, kills)
                if pid == 0:
                    _rank_process(job, local, group, writing, server, kills)
                group = group or pid
                with contextlib.suppress(PermissionError, ProcessLookupError):  # the rank did so itself, or has ended
                    os.setpgid(pid, group)
                os.close(writing)
                ranks.append(_Forked(job.first + local, pid, reading, job.cuda, kills, log))
                selector.register(reading, selectors.EVENT_READ, ranks[-1])
            _stop_requested(stream)  # only the stream's end is handled before all are forked

        deadline, ending = time.monotonic() + job.timeout, "timed_out"
        while not all(rank.ended for rank in ranks) and (left := deadline - time.monotonic()) > 0:
            leaving = any(rank.hung_up and not rank.ended for rank in ranks)
            ready = [key.data for key, _ in selector.select(min(left, _GLANCE_SECONDS if leaving else _LOOK_SECONDS))]
            if _stop_requested(stream):
                ending = "stopped"
                break
            for rank in ready:
                rank.hear()
                if rank.hung_up:
                    selector.unregister(rank.pipe)
            for rank in ranks:
                if not rank.ended:
                    rank.look()
            if ending == "timed_out" and any(rank.outcome.status not in ("", "ok") for rank in ranks):
                ending, deadline = "stopped", min(deadline, time.monotonic() + _GRACE_SECONDS)
    finally:
        selector.close()
        _end(group)
        for rank in ranks:
            os.close(rank.pipe)
    reports = [report for rank in ranks for report in rank.outcome.reports]
    others = busy_cpus([report.cpu_use for report in reports if report.cpu_use is not None])
    lacking = process_limit() if ending == "timed_out" and log.lacks_processes() else ""
    for rank in ranks:
        if not rank.outcome.status:
            rank.outcome.status, rank.outcome.error = ending, lacking
        rank.outcome.busy_cpus = others
    return [rank.outcome for rank in ranks]


def _unforked(job: Job, failed: int, error: OSError, kills: int) -> list[RankOutcome]:
    """Return the outcomes of a job of which rank `failed` could not be forked."""
    outcomes = [RankOutcome(job.first + local, "stopped") for local in range(job.ranks)]
    status, line, of_host = _of_error(error, kills, job.cuda)
    outcomes[failed] = replace(
        outcomes[failed], status=status, error=f"no process can be forked: {line}", of_host=of_host
    )
    return outcomes


def serve(stream: socket.socket, modules: Sequence[str] = stack.PRELOADED) -> None:
    """Preload `modules`, report which do not import, then run one job after another until the stream ends."""
    with contextlib.suppress(ConnectionError):  # the client has gone
        for job in _jobs(stream, modules):
            outcomes = run_job(job, stream)
            stream.sendall(json.dumps([asdict(outcome) for outcome in outcomes]).encode() + b"\n")


def _jobs(stream: socket.socket, modules: Sequence[str]) -> Iterator[Job]:
    """Load the stack, then yield the jobs for `serve`."""
    adopt_orphans()
    lines = stream.makefile("rb", buffering=0)  # unbuffered: run() has to see what follows a job
    try:
        broken = stack.preload(modules)
        importlib.import_module("psutil")  # needed to end what a job leaves behind
    except Exception as error:
        sentence = _line(error)
        stream.sendall(json.dumps({"error": sentence, "traceback": traceback.format_exc()}).encode() + b"\n")
        return
    gc.collect()
    gc.freeze()  # the collector in a forked rank then does not copy shared pages
    go_on_without_parent()
    ready = {"ready": True, "broken": broken, "imports": asdict(imports())}
    stream.sendall(json.dumps(ready).encode() + b"\n")
    for line in lines:
        message = json.loads(line)
        if "stop" not in message:  # a stop has ended a job already, or came too late
            yield Job.of(message)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), modules=sys.argv[3:] or stack.PRELOADED)
    shutil.rmtree(sys.argv[2], ignore_errors=True)  # its temporary files: the client may have been killed
