"""What a fork server is asked to run, and what it answers: both of its ends share these."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from repro.jsonfile import Lines


@dataclass(frozen=True)
class Job:
    """`call` is "module:function", called in each rank as function(rank, **arguments); what it returns must be JSON.

    `log` gets what the ranks print. Times are in seconds, memory in bytes per rank. `turns` is the address of who gives
    turns to this job and those that are timed together with it. Who hands the job on fills in the rest: `world` counts
    the ranks of all nodes, `ranks` those forked here, from number `first` on, and `rendezvous` is
    where they meet: a file's absolute path on one machine, else an init_method of torch.distributed.
    """

    call: str
    arguments: dict[str, Any]
    ranks: int
    log: str
    timeout: float
    cuda: bool = False
    memory: int | None = None
    turns: str | None = None
    rendezvous: str = ""
    world: int = 0
    first: int = 0
    sent: float = field(default_factory=time.time)


@dataclass
class Outcome:
    """What became of one rank: `ok` with a value, `out_of_memory` or `crashed` with the error, `timed_out`, or
    `stopped`, by another rank's failure or a word of the near end. `error` is one line, `reports` are in their order,
    `failed` the seconds from the job's sending to an error. `of_host` says of memory that ran out beside a GPU that it
    was the host's; `gpu_state` is what the GPU told of itself then. `crowd` is how many of the CPUs others kept
    busy while the job ran, None where it is timed on a GPU, or in turns with others.
    """

    rank: int
    status: str = ""
    value: Any = None
    error: str = ""
    traceback: Lines = ""
    failed: float = 0.0
    of_host: bool = False
    gpu_state: dict[str, float | None] | None = None
    crowd: float | None = None
    reports: list[dict[str, Any]] = field(default_factory=list)
