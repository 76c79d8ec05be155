"""The fork server, which imports the stack once and forks every trial's ranks from it.

Importing the stack takes seconds, forking milliseconds. The server never touches a device. It and its client
(`launcher.py`) talk over a pipe: one job in, the outcomes of its ranks out. Any message that arrives while a job runs
ends the job's processes, and the end of the pipe also ends the server.

Ranks of one job are one process group. The server reaps all their descendants, and each rank dies with the server, so
that nothing outlives a run, however it ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import NoReturn

from repro.console import ROOT, one_line
from repro.formats import end_of
from repro.machine import host, nvml, stack
from repro.machine.host import no_more_processes, process_limit
from repro.machine.packages import imports

from ..machine.processes import adopt_orphans, end_with, go_on_without_parent
from ..models import custom
from .jobs import Job, RankOutcome, RankStatus
from .memory import busy_cpus, is_out_of_memory, is_the_hosts, lost_a_compiler
from .method import MethodError, UnfitError
from .rank import Rank

_GRACE_SECONDS = 3.0  # for the other ranks to report once one has failed
_LOOK_SECONDS = 1.0  # between two checks of silent ranks
_GLANCE_SECONDS = 0.005  # and of ranks that are about to end
_BEGIN, _END = 12_000, 4_000  # characters kept of a traceback's beginning, with a compiler's first error, and end


def _rank_process(
    job: Job, local: int, group: int, pipe: Connection, turns: Connection | None, server: int, kills: int
) -> NoReturn:
    """Run a forked rank and send its reports and its outcome. It asks for its `turns` at that pipe. `kills` is as in
    `_of_error`."""
    index = job.first + local
    try:
        try:
            os.setpgid(0, group)
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
                index,
                world=job.world or job.ranks,
                local=local,
                locals=job.world if job.projected and not job.cuda else job.ranks,
                cuda=job.cuda,
                report=lambda **said: pipe.send(said),
                rendezvous=job.rendezvous,
                sent=job.sent,
                turns=turns,
                projected=job.projected,
                methods=job.methods,
            )
            rank.prepare(job.memory, job.set_aside)
            if job.custom_model is not None:
                custom.register(job.custom_model)
            module, function = job.call.split(":")
            value = getattr(importlib.import_module(module), function)(rank, **job.arguments)
            pipe.send({"status": "ok", "value": value})
        except BaseException as error:
            status, line, of_host = _of_error(error, kills, job.cuda)
            state = nvml.state(local) if status == "out_of_memory" and job.cuda else None
            how = {"status": status, "error": line, "traceback": _traceback(), "of_host": of_host, "gpu_state": state}
            pipe.send(how | {"failed": time.time() - job.sent})
            traceback.print_exc()
        sys.stdout.flush()  # last: a log that cannot be written must not lose a result
        sys.stderr.flush()
    finally:
        os._exit(1)  # skips the teardown of CUDA and of the process group, which can hang once a rank is gone


def _of_error(error: BaseException, kills: int, cuda: bool) -> tuple[RankStatus, str, bool]:
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
    """A rank as the server sees it: its process, the pipe that it reports on, and its outcome. `kills` is as in
    `_of_error`."""

    def __init__(self, rank: int, pid: int, pipe: Connection, cuda: bool, kills: int) -> None:
        self.outcome, self.pid, self.pipe, self._cuda, self._kills = RankOutcome(rank), pid, pipe, cuda, kills
        self.hung_up = self.ended = False

    def hear(self) -> None:
        """Receive what the rank has sent."""
        while not self.hung_up and self.pipe.poll():
            try:
                vars(self.outcome).update(self.pipe.recv())
            except (EOFError, OSError):
                self.hung_up = True

    def look(self) -> None:
        """Note whether the process has ended. Its pipe does not show it: a process that it forked may keep it open.

        The process stays a zombie, so that its group's number is not used again.
        """
        end = None if self.ended else os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if end is None:
            return
        self.hear()
        self.ended = True
        if self.outcome.status:
            return
        killed = end.si_code != os.CLD_EXITED
        if killed and end.si_status == signal.SIGKILL and host.oom_kills() > self._kills:
            self.outcome.status, self.outcome.of_host = "out_of_memory", self._cuda
            self.outcome.error = "the kernel killed the process, as the host's memory ran out"
        else:
            how = end_of(-end.si_status if killed else end.si_status)
            self.outcome.status, self.outcome.error = "crashed", f"the process {how}"


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


def run_job(job: Job, client: Connection) -> list[RankOutcome]:
    """Fork the job's ranks, and wait for all, the first failure, the deadline, or any message of the client.

    Raises EOFError or OSError where the client has gone instead. Nothing that was forked outlives this.
    """
    server, group, ranks, kills = os.getpid(), 0, list[_Forked](), host.oom_kills()
    turns = Connection(recv_handle(client)) if job.interleaved else None
    try:
        for local in range(job.ranks):
            reading, writing = Pipe(duplex=False)
            pid = os.fork()
            if pid == 0:
                _rank_process(job, local, group, writing, turns, server, kills)
            group = group or pid
            with contextlib.suppress(PermissionError, ProcessLookupError):  # the rank did so itself, or has ended
                os.setpgid(pid, group)
            writing.close()
            ranks.append(_Forked(job.first + local, pid, reading, job.cuda, kills))
        if turns is not None:
            turns.close()  # so that its scheduler sees the ranks' end

        deadline = time.monotonic() + job.timeout
        ending: RankStatus = "timed_out"
        while not all(rank.ended for rank in ranks) and (left := deadline - time.monotonic()) > 0:
            leaving = any(rank.hung_up and not rank.ended for rank in ranks)
            pipes = [client, *(rank.pipe for rank in ranks if not rank.hung_up)]
            if client in wait(pipes, min(left, _GLANCE_SECONDS if leaving else _LOOK_SECONDS)):
                client.recv()
                ending = "stopped"
                break
            for rank in ranks:
                rank.hear()
                rank.look()
            if ending == "timed_out" and any(rank.outcome.status not in ("", "ok") for rank in ranks):
                ending, deadline = "stopped", min(deadline, time.monotonic() + _GRACE_SECONDS)
    finally:
        _end(group)
        for rank in ranks:
            rank.pipe.close()
    others = busy_cpus([rank.outcome.cpu_use for rank in ranks if rank.outcome.cpu_use is not None])
    for rank in ranks:
        rank.outcome.status = rank.outcome.status or ending
        rank.outcome.busy_cpus = others
    return [rank.outcome for rank in ranks]


def serve(client: Connection, modules: Sequence[str] = ()) -> None:
    """Preload `modules`, or all that a trial may need; send why the stack does not import (empty where it does), which
    of them do not, and what was imported; then run one job after another until the client has gone."""
    adopt_orphans()
    try:
        broken = stack.preload(modules or stack.preloaded())
        importlib.import_module("psutil")  # needed to end what a job leaves behind
    except Exception as error:
        client.send((f"{_line(error)}\n{traceback.format_exc()}", {}, None))
        return
    gc.collect()
    gc.freeze()  # the collector in a forked rank then does not copy shared pages
    go_on_without_parent()
    client.send(("", broken, imports()))
    while True:
        if isinstance(job := client.recv(), Job):  # a stop that came too late is none
            client.send(run_job(job, client))


if __name__ == "__main__":
    with contextlib.suppress(EOFError, ConnectionError):  # the client has gone
        serve(Connection(int(sys.argv[1])), sys.argv[3:])
    shutil.rmtree(sys.argv[2], ignore_errors=True)  # its temporary files: the client may have been killed
