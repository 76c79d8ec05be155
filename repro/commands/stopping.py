"""Stopping a command by a signal: it writes what it has, and prints how to resume."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from .. import command
from ..console import INTERRUPTED, say
from ..formats import shell_words
from ..machine.cluster import Node, launched

_STOPS = (signal.SIGTERM, signal.SIGINT)
_BURST_SECONDS = 2.0  # signals within this time count as one: launchers send several, and users press Ctrl-C again
_AGAIN_SECONDS = 0.05
_Given = TypeVar("_Given")


def resumable(kept: str) -> Callable[[Callable[[_Given], int]], Callable[[_Given], int]]:
    """Decorate a command's main: when stopped, however often, it prints what is kept and how to resume."""

    def decorate(main: Callable[[_Given], int]) -> Callable[[_Given], int]:
        @wraps(main)
        def stoppable(given: _Given) -> int:
            try:
                return main(given)
            except KeyboardInterrupt:
                with contextlib.suppress(KeyboardInterrupt):
                    _ignore_stops()
                say(f"interrupted: {kept}; {_how_to_resume()}")
                return INTERRUPTED

        return stoppable

    return decorate


def _how_to_resume() -> str:
    node = launched()
    if node is not None:
        return f"the same command on all {node.count} nodes resumes"
    return f"resume with: {command()} {shell_words(sys.argv[1:])}"


class _Stop:
    """A signal handler that raises KeyboardInterrupt at the first signal, so that the command writes its results, and
    once more at one after _BURST_SECONDS, for a command that hangs. It ignores all others."""

    _first: float | None = None

    def __call__(self, *_: object) -> None:
        now = time.monotonic()
        if self._first is not None:
            if now - self._first < _BURST_SECONDS:
                return
            _ignore_stops()
        self._first = self._first or now
        raise KeyboardInterrupt

    def again(self, dropped: sys.UnraisableHookArgs) -> None:
        """Raise again a moment later where Python drops the exception, as in callbacks after a fork."""
        if dropped.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(dropped)
            return
        self._first = None
        signal.signal(signal.SIGALRM, self)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)


def _ignore_stops() -> None:
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)


def stop_on_sigterm() -> None:
    """Make SIGTERM stop a command as Ctrl-C does, and treat several signals as one; an ignored SIGINT stays ignored."""
    stop = _Stop()
    for number in _STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    sys.unraisablehook = stop.again


def stop_with(node: Node | None) -> None:
    """Have SIGTERM stop this process, and torchrun's end, of which SLURM takes care itself."""
    from ..machine.processes import stop_with_parent

    stop_on_sigterm()
    if node is not None and node.launcher == "torchrun":
        stop_with_parent()
