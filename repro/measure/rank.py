"""One rank of a trial: its device, its share of the machine, and its connection to the other ranks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from repro.machine import nvml
from repro.machine.host import usable_cpus

from .interleaving import turn
from .jobs import SEED
from .memory import CpuUse, limit_memory
from .method import MethodFile

if TYPE_CHECKING:
    import torch

_FOREVER = timedelta(days=1)  # the trial's time limit ends a hang
STACK_STARTED = time.time()  # epoch; ranks are forked from a server that imported this with the stack


@dataclass(eq=False)
class Rank:
    """The rank `index` of `world`, and `local` of `locals` on this node. It sends fields of its `RankOutcome` by
    `report`. `sent` is when the job was sent (epoch); a rank of a job that is interleaved with others waits at the pipe
    `turns`. A `projected` rank has no others: what it sends is lost, and what it gets is its own. `methods` are the
    files of the user's methods."""

    index: int
    world: int
    local: int
    locals: int
    cuda: bool
    report: Callable[..., None]
    rendezvous: str = ""
    sent: float = field(default_factory=time.time)
    turns: Connection | None = None
    projected: bool = False
    methods: tuple[MethodFile, ...] = ()
    patience: ClassVar[timedelta | None] = _FOREVER  # of collectives

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device("cuda", self.local) if self.cuda else torch.device("cpu")

    def prepare(self, memory: int | None, set_aside: int = 0) -> None:
        """Set this rank's device, threads and memory limit (bytes), and seed its weights equally on all ranks. Of a
        GPU's memory so many bytes are `set_aside`."""
        import torch

        os.environ.update(RANK=str(self.index), WORLD_SIZE=str(self.world), LOCAL_RANK=str(self.local))
        os.environ["LOCAL_SIZE"] = str(self.locals)  # without it DeepSpeed 0.14 runs numactl to count this node's CPUs
        if not self.cuda or "OMP_NUM_THREADS" not in os.environ:  # else torch has applied it already
            torch.set_num_threads(max(1, usable_cpus() // self.locals))
        if self.cuda:
            # First, as nothing can be allocated on a GPU that others have filled.
            self.report(gpu_memory=nvml.memory(self.local))
            torch.cuda.set_device(self.local)
        if set_aside:
            free, _ = torch.cuda.mem_get_info()
            memory = min(memory or free, max(0, free - set_aside))
        limit_memory(memory, self.cuda)
        torch.manual_seed(SEED)

    def join(self) -> None:
        """Join the other ranks. CUDA ranks also use gloo: offloaded tensors are reduced on the CPU."""
        import torch.distributed as dist

        if dist.is_initialized():
            return
        if self.projected:
            _join_nobody(self.index, self.world)
            if not self.cuda:
                _start_gloo()
            return
        store, name = self.meet()
        if name is not None:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if self.cuda else "gloo",
            store=store,
            rank=self.index,
            world_size=self.world,
            timeout=self.patience,
            device_id=self.device if self.cuda else None,
        )

    def meet(self) -> tuple[Any, str | None]:
        """Return the store in which the ranks meet, and the network interface that leads to the others, if known."""
        import torch.distributed as dist

        if self.rendezvous.startswith("/"):
            file: Any = os.fsencode(self.rendezvous)  # a path may be no UTF-8
            return dist.FileStore(file, self.world), "lo"  # type: ignore[attr-defined]
        place = urlsplit(self.rendezvous)
        host: Any = place.hostname
        nodes = dist.TCPStore(host, place.port or 0, timeout=_FOREVER, wait_for_workers=False)  # type: ignore[attr-defined]
        return dist.PrefixStore(place.path, nodes), interface(place.fragment)  # type: ignore[attr-defined]

    @property
    def interleaved(self) -> bool:
        """Return whether other jobs compute between this one's rounds."""
        return self.turns is not None

    def turn(self) -> None:
        """Wait until no other job is timed, see interleaving.py; rank 0 asks for all."""
        if self.turns is None:
            return
        if self.index == 0:
            turn(self.turns)
        if self.world > 1 and not self.projected:
            import torch.distributed as dist

            dist.barrier()

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Report the use of the CPUs while something is timed, unless other jobs compute between its rounds."""
        use = CpuUse()
        yield
        if not self.interleaved:
            self.report(cpu_use=use.read())

    def since_sent(self) -> float:
        """Return the seconds since the job was sent to the fork server."""
        return time.time() - self.sent


def _join_nobody(rank: int, world: int) -> None:
    """Join a group of `world` ranks of which this one alone exists, by torch's fake process group. Its collectives
    return at once; an all-gather repeats this rank's part."""
    import torch
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=world)
    scattered, whole = torch.zeros(1), torch.ones(world)
    dist.reduce_scatter_tensor(scattered, whole)
    if not scattered.item():
        # torch before 2.12 or so leaves the output as it is: memory of any content, in which a NaN skips updates.
        _fill_scattered(rank)


_started: list[Any] = []  # groups that gloo started for one


def _start_gloo() -> None:
    """Start gloo for the group of all ranks, and for each group that is made from now on, as in real processes: its
    threads and buffers count in their memory."""
    import torch.distributed as dist

    made = dist.new_group

    def start() -> None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = dist.HashStore()  # type: ignore[attr-defined]
        _started.append(dist.ProcessGroupGloo(store, 0, 1, _FOREVER))

    def starting(*given: Any, **named: Any) -> Any:
        start()
        return made(*given, **named)

    start()
    dist.new_group = starting


def _fill_scattered(rank: int) -> None:
    """Have reduce_scatter_tensor, which FSDP and DeepSpeed call, return this rank's part of the input."""
    import torch.distributed as dist

    scatter = dist.reduce_scatter_tensor

    def filling(output: torch.Tensor, input: torch.Tensor, *more: Any, **named: Any) -> Any:
        output.copy_(input.view(-1)[rank * output.numel() :][: output.numel()].view(output.shape))
        return scatter(output, input, *more, **named)

    dist.reduce_scatter_tensor = filling


def interface(address: str) -> str | None:
    """Return the network interface with this address; None where there is none. gloo would take the one of the host's
    name, which means 127.0.1.1 on many systems."""
    import psutil

    found = psutil.net_if_addrs().items()
    return next((name for name, addresses in found if address in {each.address for each in addresses}), None)
