"""Interleaving of timed processes: all are alive at once, and one of them computes at a time.

Other load on a machine changes within seconds, so that two processes that run one after the other are timed under
different load. Interleaved round by round, both are timed under the same. A process that has just computed gets a few
milliseconds to become idle: OpenMP's threads spin for as long, and would slow the next process.

The processes connect to a socket in a folder that only this user may enter. A process that dies, or that computes for
longer than the time limit, is no longer scheduled. How long a process waits to be is limited by its job.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from repro.console import UserError

_PAUSE_SECONDS = 0.005  # on 2 cores, pairs of equal stacks differ twice as much with 0.002, and no less with more
_GLANCE_SECONDS = 0.02
TURN_SECONDS = 120.0  # interleaved models are tiny: a round takes 1 to 2 s on a busy machine
_SOCKET = "turns"
_TURN, _DONE = b"t", b"d"

T = TypeVar("T")


class Scheduler:
    """The scheduler of interleaved processes. A context manager; the processes connect to its `address`."""

    def __init__(self) -> None:
        self.address: str = tempfile.mkdtemp(prefix="repro-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._waiting: list[socket.socket] = []
        try:
            with _socket_in(self.address) as place:
                self._listener.bind(place)
            self._listener.listen()
        except OSError as error:
            self.close()
            raise UserError(
                f"{tempfile.gettempdir()}: no socket can be made there ({error}), by which processes are interleaved; "
                "name another folder for temporary files in TMPDIR"
            ) from None

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect the waiting processes, and accept no more."""
        for process in (self._listener, *self._waiting):
            process.close()
        shutil.rmtree(self.address, ignore_errors=True)

    def run_in_turns(self, works: Sequence[Callable[[], T]], stops: Sequence[Callable[[], None]]) -> list[T]:
        """Return the results of all works, each of which is to run one job that is interleaved here. They begin one
        after the other, so that none is built while another is timed. `stops` end them where this is interrupted.

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
                self.close()
                for stop in stops:
                    stop()
                raise

    def _admit(self, seconds: float) -> bool:
        """Accept a process that connects within this time; return False where none does."""
        if not select.select([self._listener], [], [], seconds)[0]:
            return False
        self._waiting.append(self._listener.accept()[0])
        return True


def _had_its_turn(process: socket.socket) -> bool:
    """Let a process compute until it reports that it is done; return False where it leaves or is too slow."""
    try:
        process.sendall(_TURN)
        waited = select.select([process], [], [], TURN_SECONDS)[0]
        waited = waited or select.select([process], [], [], 0)[0]  # time also passes while this process is stopped
        return bool(waited) and process.recv(1) == _DONE
    except ConnectionError:
        return False


@contextmanager
def _socket_in(folder: str) -> Iterator[str]:
    """Yield an address of the folder's socket that is short enough for the kernel, whatever the folder's name."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{_SOCKET}"
    finally:
        os.close(opened)


class TimeSlot:
    """A process's connection to the scheduler. Each call of `turn` ends one computation and waits for the next."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._turns: socket.socket | None = None

    def turn(self) -> None:
        """Wait for this process's next turn. Raises ConnectionError where the scheduler has ended, or this process's
        last turn took too long."""
        try:
            if self._turns is None:
                self._turns = socket.socket(socket.AF_UNIX)
                with _socket_in(self._address) as place:
                    self._turns.connect(place)
            else:
                self._turns.sendall(_DONE)
            if self._turns.recv(1) == _TURN:
                return
        except (ConnectionError, FileNotFoundError):
            pass
        raise ConnectionError(
            f"interleaving has ended: the run ended, or a turn of this process took more than {TURN_SECONDS:.0f} s"
        )
