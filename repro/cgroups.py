"""What a container may have of its computer: the limits of its control groups, of version 2 or 1 of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

MOUNTED, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cpus() -> float | None:
    """As many CPUs as its quota of time amounts to; None where it has none."""
    found = []
    for folder in _folders("cpu"):
        told = _told(folder / "cpu.max") or [*_told(folder / "cpu.cfs_quota_us"), *_told(folder / "cpu.cfs_period_us")]
        if len(told) == 2 and told[0] not in ("max", "-1"):
            found.append(int(told[0]) / int(told[1]))
    return min(found, default=None)


def memory() -> int | None:
    """Bytes; None where nothing limits it. Version 1 has a number larger than any memory for that."""
    told = [_told(folder / name) for folder in _folders("memory") for name in ("memory.max", "memory.limit_in_bytes")]
    return min((int(each[0]) for each in told if each and each[0] != "max"), default=None)


def pids() -> tuple[int, int] | None:
    """How many processes and threads it may have, and how many of them are left; None where nothing limits it."""
    found = []
    for folder in _folders("pids"):
        most, current = _told(folder / "pids.max"), _told(folder / "pids.current")
        if most and current and most[0] != "max":
            found.append((int(most[0]), int(most[0]) - int(current[0])))
    return min(found, key=lambda each: each[1], default=None)


def pids_refused() -> int:
    """How often one more was refused for that."""
    return _counted("pids", "pids.events", "max")


def oom_kills() -> int:
    """How many of its processes the kernel has killed for want of memory."""
    return _counted("memory", "memory.events", "oom_kill") or _counted("memory", "memory.oom_control", "oom_kill")


def _counted(controller: str, file: str, name: str) -> int:
    """What a file of its groups counts under this name, over all of them."""
    counts = [_told(folder / file) for folder in _folders(controller)]
    return sum(int(value) for each in counts for key, value in zip(each[::2], each[1::2], strict=False) if key == name)


def _folders(controller: str) -> Iterator[Path]:
    """This process's group and those around it, whose limits hold for it too. A container may be told its path on the
    host and see its own group at the top: a folder that is not there limits nothing."""
    with contextlib.suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            top = MOUNTED / controller if controllers else MOUNTED
            group = top / path.lstrip("/")
            yield from (each for each in (group, *group.parents) if each.is_relative_to(top))


def _told(file: Path) -> list[str]:
    """The words in a file; none where it cannot be read."""
    try:
        return file.read_text().split()
    except OSError:
        return []
