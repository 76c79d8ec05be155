"""The nodes of a run, as torchrun or SLURM started them: this process's rank, their count and where they meet."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from .. import command
from ..console import UserError

_PORTS = range(20_000, 30_000)  # below Linux's ephemeral ports
_PER_JOB = 31  # ports per job ID, so that as many steps of one job get different ports


@dataclass(frozen=True)
class Node:
    """One node of a run on several. Nodes are numbered from 0, the leader, and meet in torch's store at `host`:`port`.
    Node 0 runs the store where it is to `serve` it, else the launcher does."""

    rank: int
    count: int
    host: str
    port: int
    launcher: str
    serve: bool = False


def launched(variables: Mapping[str, str] = os.environ) -> Node | None:
    """Return this process's node; None for a run on one node. Raises UserError where a node has several processes:
    repro starts one for each GPU itself."""
    if "TORCHELASTIC_RUN_ID" in variables:
        return _by_torchrun(variables)
    # Batch shells, and shells opened by salloc or srun --pty, have SLURM's variables as well, with one task.
    if "SLURM_STEP_ID" in variables and whole("SLURM_STEP_NUM_TASKS", variables, 1) > 1:
        return _by_slurm(variables)
    return None


def launch(nodes: int) -> str:
    """Return the shell command that starts this program on each of `nodes` nodes."""
    if nodes == 1:
        return command()
    front = f"{command()} torchrun" if "REPRO_COMMAND" in os.environ else "torchrun"
    return f"{front} --nnodes {nodes} --node-rank RANK --rdzv-endpoint HOST:PORT -m repro"


def _by_torchrun(variables: Mapping[str, str]) -> Node | None:
    if (local := whole("LOCAL_WORLD_SIZE", variables)) > 1:
        raise UserError(
            f"torchrun started {local} processes on this node, and each of them would measure: give it "
            "--nproc-per-node 1, repro starts the processes of its GPUs itself"
        )
    count = whole("WORLD_SIZE", variables)
    if count == 1:
        return None
    rank = whole("RANK", variables)
    agents = variables.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host, port = _text("MASTER_ADDR", variables), whole("MASTER_PORT", variables)
    return Node(rank, count, host, port, "torchrun", serve=not agents and rank == 0)


def _by_slurm(variables: Mapping[str, str]) -> Node:
    tasks, nodes = (whole(f"SLURM_STEP_NUM_{each}", variables) for each in ("TASKS", "NODES"))
    if tasks > nodes:
        raise UserError(
            f"SLURM started {tasks} tasks on {nodes} node{'s' if nodes > 1 else ''}, and each of them would measure: "
            "give srun --ntasks-per-node 1, repro starts the processes of its GPUs itself"
        )
    rank = whole("SLURM_PROCID", variables)
    return Node(rank, tasks, *slurm_address(variables), "SLURM", serve=rank == 0)


def slurm_address(variables: Mapping[str, str]) -> tuple[str, int]:
    """Return host and port at which the tasks of a step meet: of its first node, by the numbers of job and step."""
    if "MASTER_ADDR" in variables:
        host = _text("MASTER_ADDR", variables)
    else:
        host, here = first_host(_text("SLURM_STEP_NODELIST", variables)), variables.get("SLURMD_NODENAME")
        if whole("SLURM_PROCID", variables) == 0 and here not in (None, host):
            raise UserError(
                f"task 0 runs on {here}, which is not the first node of its step, {host}: name {here} in MASTER_ADDR, "
                "for all tasks"
            )
    if "MASTER_PORT" in variables:
        return host, whole("MASTER_PORT", variables)
    numbers = whole("SLURM_JOB_ID", variables) * _PER_JOB + whole("SLURM_STEP_ID", variables)
    return host, _PORTS[numbers % len(_PORTS)]


def first_host(listed: str) -> str:
    """Return the first host of a SLURM node list: node07 of node[07-09,12],gpu3."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", listed)
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0] if first else "")


def whole(name: str, variables: Mapping[str, str], default: int | None = None) -> int:
    """Return a variable's whole number, or the default where it is not set. Raises UserError for other text."""
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


def local_address(host: str | None, port: int | None) -> str:
    """Return this machine's own address in the network that leads to `host`; empty where it has none. Its host name may
    mean 127.0.1.1, which other machines cannot reach."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as way:
            way.connect(address)  # sends nothing
            return str(way.getsockname()[0])
    except (OSError, UnicodeError):
        return ""
