"""The ends of processes: together with their parent, by a signal, or found by a mark and killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

MARK = "REPRO_FORK_SERVER"  # variable that marks all processes of a fork server, to find them after its end
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None)  # loaded here, as little is allowed between a fork and an exec
_ROUNDS, _GLANCE_SECONDS = 20, 0.01


def end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit at once where `parent` has ended already.

    The kernel takes the end of the thread that started this process for the parent's.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def go_on_without_parent() -> None:
    """Have the kernel send SIGCONT instead of SIGKILL when the parent ends: a process that has to end others first then
    sees the end of its connection, even where it was stopped."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def stop_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent ends, such as torchrun's agent, as nothing else stops this."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of all descendants whose own parent ends."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_marked(mark: str) -> None:
    """Kill every process that has this mark in its environment."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_ROUNDS):  # they may fork meanwhile, and a process that waits for a disk ends late
        found = [int(each.name) for each in Path("/proc").glob("[0-9]*") if wanted in _variables(each)]
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_GLANCE_SECONDS)


def _variables(process: Path) -> list[bytes]:
    """Return the variables that a process was started with; none where it has ended, or belongs to another user."""
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
