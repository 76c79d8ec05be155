"""The computer around the GPUs."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

from . import cgroups


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
    allowed, quota = len(os.sched_getaffinity(0)), cgroups.cpus()
    return allowed if quota is None else min(allowed, math.ceil(quota))


def instructions() -> str:
    """Names the set of instructions that this computer's processor has."""
    return hashlib.sha256(_cpu_told("flags").encode()).hexdigest()[:8]


def _memory_bytes() -> int:
    physical, limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), cgroups.memory()
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
