"""How processes end: with the one that started them, by the kernel's hand, or found by a mark and killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

MARK = "REPRO_FORK_SERVER"  # the variable by which all that a fork server started is found once it has gone
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None)  # looked up here: between a fork and an exec a process may do little
_ROUNDS, _GLANCE_SECONDS = 20, 0.01


def end_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends, which started it; ends it where that was already.

    The kernel takes the end of the thread that started it for the parent's.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def go_on_without_parent() -> None:
    """Have the kernel send SIGCONT when the parent ends, in place of SIGKILL: a process that has others to end first
    sees the end of its connection, also where it was stopped."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGCONT, 0, 0, 0)


def stop_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent ends, as torchrun's agent, after which nobody else stops this."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def adopt_orphans() -> None:
    """Make this process the parent of all descendants whose own parent ends."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_of(code: int) -> str:
    """Describe how a process ended, by its return code as subprocess has it."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:  # a real-time signal
        name = f"signal {-code}"
    why = ", as the kernel does where the host's memory runs out" if code == -signal.SIGKILL else ""
    return f"was killed by {name}{why}"


def kill_marked(mark: str) -> None:
    """Kill every process that got this mark, or inherited it."""
    wanted = f"{MARK}={mark}".encode()
    for _ in range(_ROUNDS):  # they may fork meanwhile, and one that waits for a disk ends later
        found = [int(each.name) for each in Path("/proc").glob("[0-9]*") if wanted in _variables(each)]
        if not found:
            return
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_GLANCE_SECONDS)


def _variables(process: Path) -> list[bytes]:
    """The variables that a process was started with; none of one that has ended, or is another's."""
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
