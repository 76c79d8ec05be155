"""The ranks of a training, as torchrun or SLURM started them, and how they meet."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..console import UserError, say
from ..formats import counted
from ..machine import cluster, nvml
from ..measure.rank import Rank, interface

_SAID_AFTER, _LIMIT, _POLL = 5.0, 600.0, 0.2  # seconds of waiting: until a line, until it ends, between two looks


@dataclass(frozen=True)
class Place:
    """Where a process stands among those that train together: its rank, the number of them, the same on its node, and
    the address at which they meet. Rank 0 is to `serve` there, unless the launcher does."""

    rank: int
    world: int
    local: int
    locals: int
    host: str
    port: int
    serve: bool


def place_of(variables: Mapping[str, str]) -> Place:
    """Return this process's place by the variables of torchrun or, without a RANK, of srun; alone without either.

    Raises UserError where they do not go together."""
    if "RANK" in variables:
        world = cluster.whole("WORLD_SIZE", variables)
        return Place(
            rank := cluster.whole("RANK", variables),
            world,
            cluster.whole("LOCAL_RANK", variables, rank),
            cluster.whole("LOCAL_WORLD_SIZE", variables, world),
            variables.get("MASTER_ADDR", "127.0.0.1"),
            cluster.whole("MASTER_PORT", variables, 29500),
            variables.get("TORCHELASTIC_USE_AGENT_STORE") != "True" and rank == 0,
        )
    tasks = cluster.whole("SLURM_STEP_NUM_TASKS", variables, cluster.whole("SLURM_NTASKS", variables, 1))
    if "SLURM_PROCID" not in variables or tasks == 1:
        return Place(0, 1, 0, 1, "", 0, False)
    rank = cluster.whole("SLURM_PROCID", variables)
    host, port = cluster.slurm_address(variables)
    nodes = cluster.whole("SLURM_STEP_NUM_NODES", variables, cluster.whole("SLURM_NNODES", variables, 1))
    local = cluster.whole("SLURM_LOCALID", variables, rank)
    return Place(rank, tasks, local, _tasks_here(variables, tasks, nodes), host, port, rank == 0)


def _tasks_here(variables: Mapping[str, str], tasks: int, nodes: int) -> int:
    """Return the tasks on this node: SLURM lists those of each as in 2(x3),1."""
    listed = variables.get("SLURM_STEP_TASKS_PER_NODE") or variables.get("SLURM_TASKS_PER_NODE") or ""
    tasks_of = [
        int(count) for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", listed) for _ in range(int(times or 1))
    ]
    node = cluster.whole("SLURM_NODEID", variables, 0)
    return tasks_of[node] if node < len(tasks_of) else -(-tasks // nodes)


class TrainingRank(Rank):
    """A rank that waits for the others in view of its user, who can stop it meanwhile."""

    patience = None  # torch's own

    def __init__(self, place: Place) -> None:
        cuda = torch.cuda.is_available()
        super().__init__(place.rank, place.world, place.local, place.locals, cuda, report=lambda **_: None)
        self.place = place
        if cuda and place.local >= (seen := len(nvml.visible_devices())):
            raise UserError(
                f"this node has {counted(seen, 'GPU')}, and this is process {place.local + 1} of {place.locals}: "
                "start one for each GPU"
            )

    def meet(self) -> tuple[Any, str | None]:
        """Return the store once all ranks are there, and the network interface. Raises UserError where some do not come
        within ten minutes."""
        place = self.place
        name = "lo" if place.locals == place.world else interface(cluster.local_address(place.host, place.port))
        return dist.HashStore() if place.world == 1 else _met(place), name  # type: ignore[attr-defined]


def _met(place: Place) -> Any:
    """Return the store of all ranks once each has come to it. Waits in Python, where signals are heeded."""
    address = f"{place.host}:{place.port}"
    waiting = _Waiting(address)
    if not place.serve:
        while not _answers(place.host, place.port):
            waiting.look("the first process")
    try:
        served = dist.TCPStore(  # type: ignore[attr-defined]
            place.host, place.port, is_master=place.serve, wait_for_workers=False, timeout=timedelta(seconds=_LIMIT)
        )
    except RuntimeError as error:
        raise UserError(f"{address} cannot be used ({str(error).splitlines()[0]}): set another MASTER_PORT") from None
    store = dist.PrefixStore(  # type: ignore[attr-defined]
        f"repro/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", served
    )
    there = store.add("started", 1)
    while there < place.world:
        waiting.look(f"{place.world - there} of {place.world} processes")
        there = store.add("started", 0)
    return store


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


class _Waiting:
    """A wait at an address: says once for what, and ends after a limit."""

    def __init__(self, address: str) -> None:
        self._address, self._started, self._said = address, time.monotonic(), False

    def look(self, missing: str) -> None:
        """Wait a moment for what is missing. Raises UserError once that has taken too long."""
        waited = time.monotonic() - self._started
        if waited > _LIMIT:
            raise UserError(
                f"{missing} did not come to {self._address} within {_LIMIT / 60:g} minutes: start all of them, with "
                "the same MASTER_ADDR and MASTER_PORT"
            )
        if waited > _SAID_AFTER and not self._said:
            say(f"waiting for {missing} at {self._address}")
            self._said = True
        time.sleep(_POLL)
