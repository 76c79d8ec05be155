"""The memory of one rank: its limit, its peak, and errors where it runs out; and CPU use by other processes."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

_HOST_SIGNS = (
    "can't allocate memory",  # torch's CPU allocator
    "cannot allocate memory",
    "std::bad_alloc",
    "failed to cuda host alloc",  # NCCL; torch reports only its last warning
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
# Messages about a killed compiler, a part of one, or a process that runs compilers.
_KILLED_SIGNS = (
    "killed signal terminated program",  # GCC
    "failed with error code -9",  # Triton, of ptxas
    "a process in the process pool was terminated abruptly",  # torch's workers
)


def _status(field: str) -> int:
    """Return a size in bytes from this process's status, such as VmData."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def _mapped_beside_data() -> int:
    return _status("VmSize") - _status("VmData")


def limit_memory(limit: int | None, cuda: bool) -> None:
    """Limit this process to `limit` bytes: on a GPU the allocator's share of the device, on a CPU the data segment
    beyond what the imported stack already takes. None sets no limit."""
    if limit is None:
        return
    import torch

    if cuda:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
        return
    torch.ones(1 << 20).sum()  # starts the threads of parallel regions: their stacks must not count for the trial
    # The first backward pass starts a thread for each GPU. Without a GPU a CUDA build counts 8 once fake tensors exist,
    # as FSDP makes: 64 MiB of stacks. At this point none exist, and no thread is started.
    torch.ones(1, requires_grad=True).sum().backward()
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + limit, hard))


def is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether this error, or one it came from, says that memory ran out, on the device or on the host."""
    return any(type(each).__name__ == "OutOfMemoryError" or _says(each, _SIGNS) for each in _chain(error))


def is_the_hosts(error: BaseException | None) -> bool:
    """Return whether the memory that ran out on a machine with GPUs is the host's. CUDA allocates pinned host memory,
    and reports it as if it were the GPU's."""
    return any(_says(each, _HOST_SIGNS) or (_says(each, _SIGNS) and _pins(each)) for each in _chain(error))


def lost_a_compiler(error: BaseException | None) -> bool:
    """Return whether this error, or one it came from, says that a compiler was killed."""
    return any(sign in str(each).lower() for each in _chain(error) for sign in _KILLED_SIGNS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _says(error: BaseException, signs: tuple[str, ...]) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    matches = isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in signs)
    return matches or isinstance(error, MemoryError)


def _pins(error: BaseException) -> bool:
    """Return whether an error was raised at pin_memory, or in FSDP's foreach_reduce, which offloads gradients to pinned
    memory. There the GPU's own memory may run out, too, for which torch's allocator has an error of its own."""
    *_, last = [None, *traceback.extract_tb(error.__traceback__)]
    if last is None:
        return False
    offloads = last.name == "foreach_reduce" and type(error).__name__ != "OutOfMemoryError"
    return offloads or "pin_memory" in f"{last.name} {last.line}"


class Peak:
    """The peak memory of a rank from now on: allocated on its GPU, or on a CPU resident beyond the start."""

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
        """Return the peak that a limit counts, in bytes: what the GPU's allocator reserved, or a CPU's data segment."""
        if self._cuda:
            import torch

            return torch.cuda.max_memory_reserved()
        # The kernel keeps no peak of the data segment. Other mappings, libraries and shared memory, stay mapped.
        return max(0, _status("VmPeak") - self._mapped - (_mapped_beside_data() - self._beside))

    def bytes(self) -> int:
        """Return the peak so far, in bytes."""
        if self._cuda:
            import torch

            return torch.cuda.max_memory_allocated()
        return max(0, _status("VmHWM") - self._start)


class CpuUse:
    """The use of the CPUs that this process may use, from now on: by all processes, also those of other virtual
    machines, and by this one with the children that it has reaped."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), _busy(), _own()

    def read(self) -> tuple[float, float, float] | None:
        """Return the seconds since the start, and the CPU seconds of all processes and of this one in them. None where
        the system does not report them."""
        busy, seconds = _busy(), time.monotonic() - self._began
        if busy is None or self._busy is None or seconds <= 0:
            return None
        return seconds, busy - self._busy, _own() - self._own


def busy_cpus(uses: Sequence[tuple[float, float, float]]) -> float | None:
    """Return how many CPUs other processes kept busy on average, at least, from what `CpuUse` read in each of the ranks
    on one machine, which timed the same rounds at once. None without any."""
    if not uses:
        return None
    # The kernel counts the work of a CPU in ticks: one for each CPU that the ranks used may not be anybody else's.
    own = sum(mine / seconds for seconds, _, mine in uses)
    found = mean((busy - (own + 1) / os.sysconf("SC_CLK_TCK")) / seconds for seconds, busy, _ in uses) - own
    return min(float(len(os.sched_getaffinity(0))), max(0.0, found))


def _busy() -> float | None:
    """Return the seconds that this process's CPUs have worked for any process; None where unknown."""
    import psutil

    try:
        cpus = psutil.cpu_times(percpu=True)
        ours = [cpus[number] for number in os.sched_getaffinity(0)]
    except (OSError, IndexError):
        return None
    return sum(each.user + each.nice + each.system + each.irq + each.softirq + each.steal for each in ours)


def _own() -> float:
    """Return the CPU seconds of this process and the children that it has reaped."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
