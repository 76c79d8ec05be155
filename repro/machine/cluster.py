"""How torchrun or SLURM launched this process: as which node of how many, and where these meet."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from .. import command
from ..console import UserError

_PORTS = range(20_000, 30_000)  # below those that Linux gives to connections
_PER_JOB = 31  # ports from one job's number to the next one's: so many steps of a job meet apart


@dataclass(frozen=True)
class Node:
    """One node of a run on several, numbered from 0, which leads. They meet in the store at `host`:`port`, which the
    launcher serves, or node 0 where it is to `serve` it."""

    rank: int
    count: int
    host: str
    port: int
    launcher: str
    serve: bool = False


def launched(variables: Mapping[str, str] = os.environ) -> Node | None:
    """Return the node that this process is, None for a run on one node. Raises UserError where a node has several
    processes: repro starts those of its GPUs."""
    if "TORCHELASTIC_RUN_ID" in variables:
        return _by_torchrun(variables)
    # A batch shell, and one that salloc or srun --pty opened, has SLURM's variables as well, of one task.
    if "SLURM_STEP_ID" in variables and _whole("SLURM_STEP_NUM_TASKS", variables, 1) > 1:
        return _by_slurm(variables)
    return None


def launch(nodes: int) -> str:
    """Return how people launch this program on each of so many nodes, as a shell reads it."""
    if nodes == 1:
        return command()
    front = f"{command()} torchrun" if "REPRO_COMMAND" in os.environ else "torchrun"
    return f"{front} --nnodes {nodes} --node-rank RANK --rdzv-endpoint HOST:PORT -m repro"


def _by_torchrun(variables: Mapping[str, str]) -> Node | None:
    if (local := _whole("LOCAL_WORLD_SIZE", variables)) > 1:
        raise UserError(
            f"torchrun started {local} processes on this node, and each of them would measure: give it "
            "--nproc-per-node 1, repro starts the processes of its GPUs itself"
        )
    count = _whole("WORLD_SIZE", variables)
    if count == 1:
        return None
    rank = _whole("RANK", variables)
    agents = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host, port = _text("MASTER_ADDR", variables), _whole("MASTER_PORT", variables)
    return Node(rank, count, host, port, "torchrun", serve=not agents and rank == 0)


def _by_slurm(variables: Mapping[str, str]) -> Node:
    tasks, nodes = (_whole(f"SLURM_STEP_NUM_{each}", variables) for each in ("TASKS", "NODES"))
    if tasks > nodes:
        raise UserError(
            f"SLURM started {tasks} tasks on {nodes} node{'s' if nodes > 1 else ''}, and each of them would measure: "
            "give srun --ntasks-per-node 1, repro starts the processes of its GPUs itself"
        )
    rank = _whole("SLURM_PROCID", variables)
    if "MASTER_ADDR" in variables:
        host = _text("MASTER_ADDR", variables)
    else:
        host, here = first_host(_text("SLURM_STEP_NODELIST", variables)), variables.get("SLURMD_NODENAME")
        if rank == 0 and here not in (None, host):
            raise UserError(
                f"task 0 runs on {here}, which is not the first node of its step, {host}: name {here} in MASTER_ADDR, "
                "for all tasks"
            )
    if "MASTER_PORT" in variables:
        port = _whole("MASTER_PORT", variables)
    else:
        numbers = _whole("SLURM_JOB_ID", variables) * _PER_JOB + _whole("SLURM_STEP_ID", variables)
        port = _PORTS[numbers % len(_PORTS)]
    return Node(rank, tasks, host, port, "SLURM", serve=rank == 0)


def first_host(listed: str) -> str:
    """Return the first host of a list as SLURM writes it: node07 of node[07-09,12],gpu3."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", listed)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0] if first else "")


def _whole(name: str, variables: Mapping[str, str], default: int | None = None) -> int:
    text = variables.get(name, "")
    if not text and default is not None:
        return default
    if not re.fullmatch("[0-9]{1,12}", text):
        raise UserError(f"{name}={text}: expected a whole number, as torchrun and SLURM set it")
    return int(text)


def _text(name: str, variables: Mapping[str, str]) -> str:
    if not (text := variables.get(name, "").strip()):
        raise UserError(f"{name} is not set: expected what torchrun and SLURM set it to")
    return text
