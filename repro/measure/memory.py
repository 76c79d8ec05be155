"""Memory of one rank: its limit, its peak, and how running out of it looks."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

from repro.machine import host

_HOST_SIGNS = (
    "can't allocate memory",  # torch's CPU allocator
    "cannot allocate memory",
    "std::bad_alloc",
    "failed to cuda host alloc",  # NCCL, whose last warning is all that torch tells
)
_SIGNS = (
    *_HOST_SIGNS,
    "out of memory",
    "failed to cuda calloc",  # NCCL
    "alloc_failed",  # cuBLAS and cuDNN workspaces
    "cublas_status_not_initialized",
    "allocation_failed",
    "could not create a memory",  # oneDNN
    "failed to allocate memory",
)
# A compiler, a part of one, or a process that runs some, that was killed and could not say why.
_KILLED_SIGNS = (
    "killed signal terminated program",  # GCC
    "failed with error code -9",  # Triton, of ptxas
    "a process in the process pool was terminated abruptly",  # torch's workers
)


def _status(field: str) -> int:
    """A size in bytes from this process's status, such as VmData."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _mapped_beside_data() -> int:
    return _status("VmSize") - _status("VmData")


def limit_memory(limit: int | None, cuda: bool) -> None:
    """Limits this process for real: on a GPU the allocator's share of the device, on a CPU the data segment,
    beyond what the imported stack already takes. `limit` in bytes; None lifts nothing and limits nothing."""
    if limit is None:
        return
    import torch

    if cuda:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
        return
    torch.ones(1 << 20).sum()  # starts the threads of a parallel region: their stacks are none of the trial's
    # The first backward pass starts a thread for each GPU. A CUDA build without one counts 8 of them once there are
    # fake tensors, as FSDP makes: 64 MiB of stacks. Now there are none yet, and none are started.
    torch.ones(1, requires_grad=True).sum().backward()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + limit, hard))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether this error, or one it came from, says that memory ran out, on the device or on the host."""
    return any(type(each).__name__ == "OutOfMemoryError" or _says(each, _SIGNS) for each in _chain(error))


def is_the_hosts(error: BaseException | None) -> bool:
    """Whether what ran out on a GPU's machine is the host's memory. CUDA hands out what is pinned, and tells of it as
    of the GPU's."""
    return any(_says(each, _HOST_SIGNS) or (_says(each, _SIGNS) and _pins(each)) for each in _chain(error))


def lost_a_compiler(error: BaseException | None) -> bool:
    """Whether this error, or one it came from, says that a compiler was killed."""
    return any(sign in str(each).lower() for each in _chain(error) for sign in _KILLED_SIGNS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _says(error: BaseException, signs: tuple[str, ...]) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    told = isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in signs)
    return told or isinstance(error, MemoryError)


def _pins(error: BaseException) -> bool:
    """Whether it was raised where memory is pinned: by that name, or by FSDP, which offloads gradients so. There the
    GPU's own memory may run out, too, and torch's allocator says so by an error of its own."""
    *_, last = [None, *traceback.extract_tb(error.__traceback__)]
    if last is None:
        return False
    offloads = last.name == "foreach_reduce" and type(error).__name__ != "OutOfMemoryError"
    return offloads or "pin_memory" in f"{last.name} {last.line}"


def oom_kills() -> int:
    """How many processes the kernel has killed for want of memory, here or, where it tells no more, in this container;
    0 where it tells nothing."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return host.oom_kills()


class Peak:
    """The peak of a rank's memory from now on: allocated on its GPU, or resident beyond the start on a CPU."""

    def __init__(self, cuda: bool) -> None:
        self._cuda = cuda
        if cuda:
            import torch

            torch.cuda.reset_peak_memory_stats()
        else:
            with contextlib.suppress(OSError):  # some kernels lack it: the peak then starts at the fork
                Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
            self._start, self._mapped, self._beside = _status("VmRSS"), _status("VmSize"), _mapped_beside_data()

    def limited(self) -> int:
        """The same as a limit counts it: with what the allocator keeps, or of a CPU process its data segment."""
        if self._cuda:
            import torch

            return torch.cuda.max_memory_reserved()
        # No peak of the data segment is kept. What is mapped beside it, libraries and shared memory, stays mapped.
        return max(0, _status("VmPeak") - self._mapped - (_mapped_beside_data() - self._beside))

    def bytes(self) -> int:
        """The peak so far."""
        if self._cuda:
            import torch

            return torch.cuda.max_memory_allocated()
        return max(0, _status("VmHWM") - self._start)


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
