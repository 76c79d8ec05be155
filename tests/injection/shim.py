"""The library that makes system calls fail: see fault.c. It is built once, and loaded before the C library."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

_NAME = "fault.so"


def build(folder: Path) -> None:
    source = Path(__file__).with_name("fault.c")
    command = ["gcc", "-O2", "-shared", "-fPIC", "-o", str(folder / _NAME), str(source), "-ldl"]
    subprocess.run(command, check=True)


def full_disk(folder: Path, pattern: str) -> dict[str, str]:
    """Variables by which files of such a path cannot be written."""
    return {"LD_PRELOAD": str(folder / _NAME), "FAULT_FULL": pattern}


def wrong_clock(folder: Path, in_seconds: float, jump: int) -> dict[str, str]:
    """Variables by which the wall clock jumps so many seconds from now."""
    return {"LD_PRELOAD": str(folder / _NAME), "FAULT_CLOCK": f"{time.monotonic() + in_seconds}:{jump}"}
