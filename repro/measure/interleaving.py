"""Interleaving of timed processes: all are alive at once, and one of them computes at a time.

Other load on a machine changes within seconds, so that two processes that run one after the other are timed under
different load. Interleaved round by round, both are timed under the same. A process that has just computed gets a few
milliseconds to become idle: OpenMP's threads spin for as long, and would slow the next process.

A process asks for its turns over a pipe, which is handed to its fork server with the job. One that dies, or that
computes for longer than the time limit, is no longer scheduled. How long one waits is limited by its job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar

_PAUSE_SECONDS = 0.005  # on 2 cores, pairs of equal stacks differ twice as much with 0.002, and no less with more
_GLANCE_SECONDS = 0.02
TURN_SECONDS = 120.0  # interleaved models are tiny: a round takes 1 to 2 s on a busy machine
_IDLE, _TURN = b"idle", b"turn"

T = TypeVar("T")


class Scheduler:
    """The scheduler of interleaved processes, each of which has one of its `pipe`s."""

    def __init__(self) -> None:
        self._building: list[Connection] = []  # processes that have not asked for a turn yet
        self._waiting: list[Connection] = []  # those that take turns, in this order
        self._ended = False

    def pipe(self) -> Connection:
        """Return the end of a new pipe at which a process is to call `turn`."""
        ours, theirs = Pipe()
        if self._ended:
            ours.close()
        else:
            self._building.append(ours)
        return theirs

    def run_in_turns(self, works: Sequence[Callable[[], T]], stops: Sequence[Callable[[], None]]) -> list[T]:
        """Return the results of all works, each of which is to run jobs that are interleaved here. They begin one after
        the other, so that none is built while another is timed. `stops` end them where this is interrupted.

        The order is fixed. An alternating one would schedule the first and the last process twice in a row, the second
        time with warm caches, and those in the middle never.
        """
        with ThreadPoolExecutor(len(works)) as pool:
            try:
                futures = []
                for work in works:
                    futures.append(pool.submit(work))
                    while not futures[-1].done() and not self._admit(_GLANCE_SECONDS):
                        pass
                while not all(future.done() for future in futures):
                    self._admit(0 if self._waiting else _GLANCE_SECONDS)  # a work may retry in another process
                    for process in list(self._waiting):
                        time.sleep(_PAUSE_SECONDS)
                        if not _had_its_turn(process):
                            self._waiting.remove(process)
                            process.close()
                return [future.result() for future in futures]
            except BaseException:
                self._ended = True
                for process in (*self._building, *self._waiting):
                    process.close()
                for stop in stops:
                    stop()
                raise

    def _admit(self, seconds: float) -> bool:
        """Schedule the processes that have asked for their first turn after this time; return False where none has."""
        time.sleep(seconds)
        heard = [process for process in list(self._building) if process.poll()]
        for process in heard:
            self._building.remove(process)
        asking = [process for process in heard if _is_idle(process)]
        self._waiting += asking
        return bool(asking)


def _is_idle(process: Connection) -> bool:
    """Receive what a process says; return False where it has left."""
    try:
        return process.recv_bytes() == _IDLE
    except (EOFError, OSError):
        return False


def _had_its_turn(process: Connection) -> bool:
    """Let a process compute until it is idle again; return False where it leaves or is too slow."""
    try:
        process.send_bytes(_TURN)
    except OSError:
        return False
    # Time also passes while this process is stopped.
    return (process.poll(TURN_SECONDS) or process.poll(0)) and _is_idle(process)


def turn(pipe: Connection) -> None:
    """Say that this process is idle, and wait for its next turn. Raises ConnectionError where the scheduler has ended,
    or this process's last turn took too long."""
    try:
        pipe.send_bytes(_IDLE)
        pipe.recv_bytes()
    except (EOFError, OSError):
        raise ConnectionError(
            f"interleaving has ended: the run ended, or a turn of this process took more than {TURN_SECONDS:.0f} s"
        ) from None
