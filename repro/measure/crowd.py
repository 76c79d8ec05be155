"""How many CPUs other processes kept busy meanwhile: what is timed beside them may take longer than it would alone."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE, _WAITING, _STOLEN = 3, 4, 7  # its columns; those after the last are part of the first two once more


class Crowd:
    """Looks from now on at the CPUs that this process may use."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy(), _own()

    def others(self) -> float | None:
        """How many of them others kept busy since, on average: all but this process and those that it has reaped, also
        another virtual machine. None where the system does not tell."""
        busy, seconds = _busy(), time.monotonic() - self._began
        if busy is None or self._busy is None or seconds <= 0:
            return None
        others = busy - self._busy - (_own() - self._own)
        return min(float(len(os.sched_getaffinity(0))), max(0.0, others / seconds))


def _busy() -> float | None:
    """Seconds that the CPUs of this process have worked, for whomever."""
    names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
    try:
        rows = [line.split() for line in _STAT.read_text().splitlines()]
    except OSError:
        return None
    ticks = [list(map(int, row[1:])) for row in rows if row and row[0] in names]
    if len(ticks) < len(names):
        return None
    worked = sum(sum(each[: _STOLEN + 1]) - each[_IDLE] - each[_WAITING] for each in ticks)
    return worked / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    """Seconds of CPU that this process took, and those that it has reaped."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
