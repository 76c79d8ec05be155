"""DeepSpeed's Adam, compiled before the first trial that takes it, so that none is charged for it."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from repro.build_cache import disk_full
from repro.errors import cut, one_line
from repro.rules import Obstacle

from .job import Job
from .launcher import ForkServer
from .leader import Leader
from .rank import Rank

_SECONDS = 1800.0
# A compiler's, and a linker's, whose own last line only says that it failed.
_COMPLAINT = re.compile(r"^.*(?:\b(?:error|fatal)\s*:|\bld: cannot find |undefined reference to ).*$", re.MULTILINE)


def compile_adam(server: ForkServer | Leader, host: bool, logs: Path) -> Obstacle | None:
    """Has it compiled into the build cache of each node, for the GPU or for the `host` that offloaded states live on.

    None where that goes well, and where what fails is not the compiling: that fails in the trial, too, which tells.
    """
    log = logs / "build.log"
    call, arguments = "repro.measure.adam:build", {"host": host}
    for outcome in server.call(Job(call, arguments, ranks=1, log=str(log), timeout=_SECONDS, cuda=True)):
        if outcome.status == "ok" and outcome.value is not None:
            where, whose = (f" on node {outcome.rank}", " of that node") if isinstance(server, Leader) else ("", "")
            return Obstacle(
                f"DeepSpeed cannot compile its Adam{where}: {outcome.value}",
                f"read logs/{log.name}{whose}: the compilers have to know the GPU, and each other, and to find the "
                "headers and libcudart.so of torch's CUDA, which nvcc alone may not bring",
            )
    return None


def build(rank: Rank, host: bool) -> str | None:
    """Compiles the Adam; why that fails, None where it does not."""
    from deepspeed.ops.op_builder import CPUAdamBuilder, FusedAdamBuilder

    try:
        (CPUAdamBuilder if host else FusedAdamBuilder)().load()
    except Exception as error:
        traceback.print_exc()
        # torch hands on all that its compilers print, whole command lines first.
        if disk_full(str(error)):
            raise
        complaint = _COMPLAINT.search(str(error))
        return cut(complaint[0].strip()) if complaint else one_line(error)
    return None
