"""What the fork server, its client and its ranks send each other: jobs and outcomes. Times are in seconds,
memory in bytes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..models.custom import CustomModel
from ..record import AsRun, GpuState, Times
from .method import MethodFile

if TYPE_CHECKING:
    from .interleaving import Scheduler

SEED = 20240921
AGAIN = "run the same command again on all nodes, once that one is back: it resumes"  # where a node is gone
Ended = Literal["ok", "out_of_memory", "unsupported", "crashed", "timed_out"]  # how a job, or a rank of it, may end
RankStatus = Literal[Ended, "stopped", ""]
PARTS = ("without", "with", "update")  # of a round, each timed


@dataclass(frozen=True)
class Job:
    """A call for every rank: `call` is "module:function", run as function(rank, **arguments).

    `log` gets what the ranks print. Times are in seconds, memory in bytes per rank. `scheduler` interleaves this job
    with others; the server gets a pipe to it where the job is `interleaved`. With `projected` the other ranks of
    `world` are never started, and collectives return at once; `set_aside` are bytes of each GPU that they leave free.
    The sender fills in the rest: `world` counts the ranks of all nodes, `ranks` those forked here, from number `first`
    on; they meet at `rendezvous`: a file's absolute path on one machine, else tcp://HOST:PORT/PREFIX#ADDRESS, keys of
    the nodes' store and this node's own address. `custom_model` is the user's, which the arguments name. `methods`
    are the user's, which settings may name: the fork server's client knows their files from its command line.
    """

    call: str
    arguments: dict[str, Any]
    ranks: int
    log: str
    timeout: float
    cuda: bool = False
    memory: int | None = None
    scheduler: Scheduler | None = None
    interleaved: bool = False
    projected: bool = False
    set_aside: int = 0
    methods: tuple[MethodFile, ...] = ()
    rendezvous: str = ""
    world: int = 0
    first: int = 0
    sent: float = field(default_factory=time.time)
    custom_model: CustomModel | None = None


@dataclass
class RankOutcome:
    """What is known of one rank: what it has reported so far and, once it has ended, how.

    It reports the seconds from sending the job to its first step (`started`); its GPU's memory and what was used
    before; how its first step ran, checked against what was asked for, and when the server that it was forked from
    started (epoch); the micro batches that fit (`fitted`), each with its peak; the raw times of the authors' sequence;
    the seconds that something was timed, with the CPU seconds of all processes and of the rank in them.

    It ends `ok` with a value, `out_of_memory`, `unsupported` or `crashed` with the error, `timed_out`, or `stopped`, by
    another rank's failure or by the client. The status is empty as long as it runs. `error` is one line, `failed` is
    the seconds from sending the job to an error. `of_host` marks memory that ran out on the host of a GPU, `gpu_state`
    is what the GPU reported then. `busy_cpus` are those that other processes kept busy on its machine while the ranks
    there timed something; None where nothing was timed, or the job was interleaved."""

    rank: int
    status: RankStatus = ""
    value: Any = None
    error: str = ""
    traceback: str = ""
    failed: float = 0.0
    of_host: bool = False
    gpu_state: GpuState | None = None
    busy_cpus: float | None = None
    started: float | None = None
    gpu_memory: tuple[int, int | None] | None = None
    as_run: AsRun | None = None
    stack_started: float | None = None
    fitted: dict[int, int] = field(default_factory=dict)
    authors: Times = field(default_factory=dict)
    cpu_use: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Measured:
    """The times of a rank: all parts by the host's clock, by the device's, and synchronised. `uncounted` says why
    launches were not counted on a GPU. `mean_power` is the GPU's in watts while the rounds were timed,
    `part_power` that of each part which lasts long enough for its counter."""

    host: Times
    device: Times
    synchronised: Times
    warm_up: float
    peak_memory: int
    mean_power: float | None = None
    part_power: dict[str, float] = field(default_factory=dict)
    graphs: dict[str, int] | None = None
    gpu_state: GpuState | None = None
    skipped_updates: int = 0
    losses: list[float | None] = field(default_factory=list)
    trained_losses: list[float | None] = field(default_factory=list)
    launches: dict[str, int] | None = None
    uncounted: str | None = None
    whole_steps: list[float] = field(default_factory=list)
