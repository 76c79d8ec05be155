"""The limit of processes and threads: which is the lowest here, what it leaves, and whether a failure is of it."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from . import cgroups

_NO_MORE = ("can't start new thread", "resource temporarily unavailable")  # Python, and the C library


def no_more_processes(text: str) -> bool:
    """Return whether this text says that no process or thread could be started."""
    return any(sign in text.lower() for sign in _NO_MORE)


def process_limit() -> str:
    """Name the limit that leaves the fewest here, and how to go on."""
    found = processes_left()
    what = f"{found[1]}: raise it" if found else "raise the limit of this user, container or job"
    return f"no more processes and threads may be started here; {what}"


def processes_left() -> tuple[int, str] | None:
    """How many more may be started, and the limit, as a person finds it; None where nothing limits them."""
    found = []
    if (pids := cgroups.pids()) is not None:
        found.append((pids[1], f"pids.max of this control group is {pids[0]}"))
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # root is not held to it
        found.append((soft - _tasks_of(os.getuid()), f"ulimit -u is {soft}"))
    return min(found, default=None)


def _tasks_of(user: int) -> int:
    """How many processes and threads this user has, as far as they can be seen."""
    tasks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if process.stat().st_uid == user:
                tasks += len(os.listdir(process / "task"))
        except OSError:  # it has ended
            continue
    return tasks
