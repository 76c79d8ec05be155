"""Processes that are timed in turns: all are alive at once, and one of them computes at a time.

What else happens on a machine comes and goes within seconds, so two processes that run one after the other meet another
machine each. Two that take turns round by round meet the same one. A process that has just had its turn is left a few
milliseconds to fall asleep: the threads of OpenMP spin for as long, and would take from the next one's time.

They meet at a socket in a folder that this user alone may enter. A process that dies, or that keeps its turn for longer
than the time limit, leaves the turns to the others. How long a process waits for its turn is limited by its job.
"""

from __future__ import annotations

import os
import select
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from repro.console import UserError

_PAUSE_SECONDS = 0.005  # on 2 cores pairs of the same stack differ twice as much with 0.002, and no less with more
_GLANCE_SECONDS = 0.02
TURN_SECONDS = 120.0  # models that take turns are tiny: a round of theirs takes a second or two on a busy machine
_SOCKET = "turns"
_TURN, _DONE = b"t", b"d"

T = TypeVar("T")


class Turns:
    """Gives the turns. A context manager; `address` is what the processes are to be told."""

    def __init__(self) -> None:
        self.address: str = tempfile.mkdtemp(prefix="repro-")
        self._listener = socket.socket(socket.AF_UNIX)
        self._waiting: list[socket.socket] = []
        try:
            made = os.lstat(self.address)
            if made.st_uid != os.getuid() or stat.S_IMODE(made.st_mode) & 0o077:
                raise OSError("others may enter it")
            with _socket_in(self.address) as place:
                self._listener.bind(place)
            self._listener.listen()
        except OSError as error:
            self.close()
            raise UserError(
                f"{tempfile.gettempdir()}: no folder and socket of this user alone can be made there ({error}), by "
                "which processes take turns; name another folder for temporary files in TMPDIR"
            ) from None

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Sends home who still waits, and lets nobody in any more."""
        for process in (self._listener, *self._waiting):
            process.close()
        shutil.rmtree(self.address, ignore_errors=True)

    def run(self, works: Sequence[Callable[[], T]], stops: Sequence[Callable[[], None]]) -> list[T]:
        """What each work returns, which is to run one job that takes turns here. They begin one after the other, so
        that none is built while another is timed. `stops` end them where this is interrupted."""
        with ThreadPoolExecutor(len(works)) as pool:
            try:
                futures = []
                for work in works:
                    futures.append(pool.submit(work))
                    self._await(futures[-1])
                self._give(futures)
                return [future.result() for future in futures]
            except BaseException:
                self.close()
                for stop in stops:
                    stop()
                raise

    def _await(self, work: Future[T]) -> None:
        """Waits until one more process waits for its turn, or the work has ended without one."""
        while not work.done() and not self._admit(_GLANCE_SECONDS):
            pass

    def _admit(self, seconds: float) -> bool:
        """Lets in a process that comes within so many seconds; False where none does."""
        if not select.select([self._listener], [], [], seconds)[0]:
            return False
        self._waiting.append(self._listener.accept()[0])
        return True

    def _give(self, works: Sequence[Future[T]]) -> None:
        """Gives turns until all works have ended, in one order: who had two on end would find its caches as it left
        them, which were one to turn the order round who stands in the middle never would."""
        while not all(work.done() for work in works):
            self._admit(0 if self._waiting else _GLANCE_SECONDS)  # a work may try again in another process
            for process in list(self._waiting):
                time.sleep(_PAUSE_SECONDS)
                if not _had_its_turn(process):
                    self._waiting.remove(process)
                    process.close()


def _had_its_turn(process: socket.socket) -> bool:
    """Lets a process compute until it says that it is done; False where it leaves or stays silent instead."""
    try:
        process.sendall(_TURN)
        waited = select.select([process], [], [], TURN_SECONDS)[0]
        waited = waited or select.select([process], [], [], 0)[0]  # the time passed while this process was stopped
        return bool(waited) and process.recv(1) == _DONE
    except ConnectionError:
        return False


@contextmanager
def _socket_in(folder: str) -> Iterator[str]:
    """The address of the socket in a folder, which is short enough for the kernel whatever the folder's name."""
    opened = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}/{_SOCKET}"
    finally:
        os.close(opened)


class Place:
    """A process' own end: it computes between one call of `turn` and the next, the last time until it ends."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._turns: socket.socket | None = None

    def turn(self) -> None:
        """Waits for this process' next turn. Raises ConnectionError where nobody gives turns any more, or its last one
        took too long."""
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
            f"nobody gives turns any more: the run ended, or a turn of this process took more than {TURN_SECONDS:.0f} s"
        )
