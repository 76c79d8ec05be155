"""The computer around the GPUs: CPUs, memory, and the limits that cgroups and the system set."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..console import UserError


@dataclass(frozen=True)
class Host:
    """The computer around the GPUs. None, empty or 0 means unknown. `usable_cpus` counts the CPUs that taskset,
    Docker's --cpuset-cpus and --cpus or a batch system leave to a run, which starts a thread for each. `memory_bytes`
    is all of the memory, or the container's limit."""

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
    """Return the description of this computer."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cores, system = None, platform.platform()
    with contextlib.suppress(ImportError):
        import psutil

        cores = psutil.cpu_count(logical=False)
    with contextlib.suppress(OSError, KeyError):
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    return Host(
        cpu=_cpu_text("model name") or platform.processor() or platform.machine(),
        physical_cores=cores,
        usable_cpus=usable_cpus(),
        memory_bytes=min(memory, cgroup_memory() or memory),
        os=system,
        kernel=platform.release(),
    )


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use. A container's quota is rounded up: a fraction of a CPU keeps
    a thread busy part of the time."""
    allowed, quota = len(os.sched_getaffinity(0)), cgroup_cpus()
    return allowed if quota is None else min(allowed, math.ceil(quota))


@contextlib.contextmanager
def limited_cpus(count: int | None) -> Iterator[None]:
    """Keep this thread, and the processes and threads that it starts within, to `count` of its CPUs: one of each core
    first. None leaves it all. Raise UserError where it may use fewer."""
    allowed = os.sched_getaffinity(0)
    if count is None:
        yield
        return
    if count > usable_cpus():
        raise UserError(f"--cpus {count}: at most {usable_cpus()}, the CPUs that this process may use")
    cores: dict[str, list[int]] = {}
    for cpu in sorted(allowed):
        cores.setdefault(_siblings(cpu), []).append(cpu)
    by_turn = sorted((turn, cpu) for cpus in cores.values() for turn, cpu in enumerate(cpus))
    os.sched_setaffinity(0, {cpu for _, cpu in by_turn[:count]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _siblings(cpu: int) -> str:
    """Return the CPUs that share a core with this one, as text; itself where that is not known."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def instructions() -> str:
    """Return a hash of the instruction sets that this computer's processor has."""
    return hashlib.sha256(_cpu_text("flags").encode()).hexdigest()[:8]


def _cpu_text(what: str) -> str:
    """Return a field of the first processor in /proc/cpuinfo; empty where it is not there."""
    try:
        found = re.search(rf"^{what}\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else ""


MOUNTED, OWN, VMSTAT = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/vmstat")


def cgroup_cpus() -> float | None:
    """Return the CPU time quota of this process's cgroups in CPUs; None without one."""
    found = []
    for folder in _folders("cpu"):
        quota = _words(folder / "cpu.max") or [
            *_words(folder / "cpu.cfs_quota_us"),
            *_words(folder / "cpu.cfs_period_us"),
        ]
        if len(quota) == 2 and quota[0] not in ("max", "-1"):
            found.append(int(quota[0]) / int(quota[1]))
    return min(found, default=None)


def cgroup_memory() -> int | None:
    """Return the cgroups' memory limit in bytes; None without one. Version 1 then gives a huge number."""
    limits = [
        _words(folder / name) for folder in _folders("memory") for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(each[0]) for each in limits if each and each[0] != "max"), default=None)


def oom_kills() -> int:
    """Return how many processes the kernel has killed because memory ran out: of this process's memory cgroup, or of
    the whole system where it is in none that counts them."""
    files = [folder / name for folder in _folders("memory") for name in ("memory.events", "memory.oom_control")]
    # The first is the nearest: the kernel counts a process in its own cgroup, whichever limit or lack killed it, and in
    # the parents, where those of other containers count, too.
    for file in (*files, VMSTAT):
        words = _words(file)  # names and numbers by turns
        if "oom_kill" in words:
            return int(words[words.index("oom_kill") + 1])
    return 0


def _folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup and its parents, whose limits also apply. A container may get its path
    on the host but see its own group at the top: a folder that does not exist limits nothing."""
    with contextlib.suppress(OSError):
        for line in OWN.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            top = MOUNTED / controller if controllers else MOUNTED
            group = top / path.lstrip("/")
            yield from (each for each in (group, *group.parents) if each.is_relative_to(top))


def _words(file: Path) -> list[str]:
    """Return the words in a file; none where it cannot be read."""
    try:
        return file.read_text().split()
    except OSError:
        return []


_NO_MORE = ("can't start new thread", "resource temporarily unavailable")  # messages of Python and of the C library


def no_more_processes(text: str) -> bool:
    """Return whether a message says that no process or thread could be started."""
    return any(sign in text.lower() for sign in _NO_MORE)


def process_limit() -> str:
    """Say that a limit of processes was reached, and what to raise."""
    return "no more processes and threads may be started here; raise the limit of this user, container or job"
