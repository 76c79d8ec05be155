"""The computer around the GPUs."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Host:
    """The computer around the GPUs. None, empty or 0 is what nobody tells. `usable_cpus` counts those that a run may
    use, as taskset, Docker's --cpuset-cpus or a batch system leaves them: it starts a thread for each."""

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
        usable_cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        os=_os_name(),
        kernel=platform.release(),
    )


def instructions() -> str:
    """Names the set of instructions that this computer's processor has."""
    return hashlib.sha256(_cpu_told("flags").encode()).hexdigest()[:8]


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
