"""The computer around the GPUs: CPUs, memory, and the limits that cgroups and the system set."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Host:
    """The computer around the GPUs. None, empty or 0 is what nobody tells. `usable_cpus` counts those that a run may
    use, as taskset, Docker's --cpuset-cpus and --cpus or a batch system leave them: it starts a thread for each.
    `memory_bytes` is all of the memory, or as much of it as the container may have."""

    cpu: str = ""
    physical_cores: int | None = None
    usable_cpus: int | None = None
    memory_bytes: int = 0
    os: str = ""
    kernel: str = ""

    def __str__(self) -> str:
        cores = f"{self.physical_cores} cores" if self.physical_cores else ""
        memory = f"{self.memory_bytes / 2**30:.0f} GiB" if self.memory_bytes else ""
        return ", ".join(filter(None, (self.cpu, cores, memory)))


def host() -> Host:
    """This computer, as its system describes it."""
    return Host(
        cpu=_cpu_model(),
        physical_cores=_physical_cores(),
        usable_cpus=usable_cpus(),
        memory_bytes=_memory_bytes(),
        os=_os_name(),
        kernel=platform.release(),
    )


def usable_cpus() -> int:
    """CPUs that this process may use; a part of one, of a container's quota, keeps a thread busy for a part of the
    time."""
    allowed, quota = len(os.sched_getaffinity(0)), cgroup_cpus()
    return allowed if quota is None else min(allowed, math.ceil(quota))


def instructions() -> str:
    """Names the set of instructions that this computer's processor has."""
    return hashlib.sha256(_cpu_told("flags").encode()).hexdigest()[:8]


def _memory_bytes() -> int:
    physical, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), cgroup_memory()
    return physical if limit is None else min(physical, limit)


def _cpu_model() -> str:
    return _cpu_told("model name") or platform.processor() or platform.machine()


def _cpu_told(what: str) -> str:
    """What the system tells of the first processor; nothing where it does not."""
    try:
        found = re.search(rf"^{what}\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else ""


def _physical_cores() -> int | None:
    try:
        import psutil
    except ImportError:
        return None
    return psutil.cpu_count(logical=False)


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()


MOUNTED, OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cgroup_cpus() -> float | None:
    """As many CPUs as its quota of time amounts to; None where it has none."""
    found = []
    for folder in _folders("cpu"):
        told = _told(folder / "cpu.max") or [*_told(folder / "cpu.cfs_quota_us"), *_told(folder / "cpu.cfs_period_us")]
        if len(told) == 2 and told[0] not in ("max", "-1"):
            found.append(int(told[0]) / int(told[1]))
    return min(found, default=None)


def cgroup_memory() -> int | None:
    """Bytes; None where nothing limits it. Version 1 has a number larger than any memory for that."""
    told = [_told(folder / name) for folder in _folders("memory") for name in ("memory.max", "memory.limit_in_bytes")]
    return min((int(each[0]) for each in told if each and each[0] != "max"), default=None)


def cgroup_pids() -> tuple[int, int] | None:
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
    if (pids := cgroup_pids()) is not None:
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
