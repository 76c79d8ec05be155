"""Several nodes, of which one dies, and what other users of a machine can reach."""

from __future__ import annotations

import json
import random
import socket
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import psutil

from repro.console import FAILED, INTERRUPTED, USAGE

from .case import Case, Running, fault, finished

LONG = ("run", "--models", "vit", "--processes", "1", "--methods", "naive", "--steps", "100000")
TORCHRUN = ("-m", "torch.distributed.run", "--rdzv-backend", "c10d", "--local-addr", "127.0.0.1", "--nnodes", "2")
GONE_SECONDS = 60.0 + 90.0  # all nodes end within a minute; the rest is for what a busy machine adds


def _torchruns(case: Case, folders: Sequence[Path]) -> list[Running]:
    """The same run under torchrun on each of two nodes."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [sys.executable, *TORCHRUN, "--rdzv-endpoint", address, "-m", "repro", *LONG, "--out"]
    return [case.launch([*command, str(folder)], {}) for folder in folders]


def _steps(case: Case, folders: Sequence[Path]) -> list[Running]:
    """The same run as two tasks of a step of SLURM, which says as which each was started."""
    job = random.randrange(10**6)
    known = {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost,other"}
    known |= {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2"}
    return [
        case.start(*LONG, "--out", str(folder), variables={**known, "SLURM_PROCID": str(rank)})
        for rank, folder in enumerate(folders)
    ]


def _measuring(case: Case, runs: Sequence[Running]) -> None:
    """Wait until each node has a rank at work."""
    for run in runs:
        case.check(run.wait_for(partial(Running.ranks, run), case.patience), f"no rank: {run.message()[-300:]}")
    time.sleep(case.random.uniform(0.0, 2.0))


@fault("network", times=2, fast=0)
def node_dies(case: Case) -> None:
    """The node that follows dies in a trial: that crashed, and names the node; what needs it is unsupported."""
    for _ in range(case.count):
        with case.injection():
            folders = [case.folder(), case.folder()]
            leader, other = _steps(case, folders)
            _measuring(case, [leader, other])
            other.kill()
            ended = case.ended(leader, (FAILED,), r"node 1|node 2", GONE_SECONDS)
            rows = [json.loads(line) for line in (folders[0] / "trials.jsonl").read_text().splitlines()]
            case.check("crashed" in {row.get("status") for row in rows}, f"{rows} {ended.stderr[-300:]}")


@fault("network", times=2, fast=0)
def leading_node_dies(case: Case) -> None:
    """The node that leads dies: the other ends within two minutes, with a line on it."""
    for _ in range(case.count):
        with case.injection():
            leader, other = _steps(case, [case.folder(), case.folder()])
            _measuring(case, [leader, other])
            leader.kill()
            ended = case.ended(other, (FAILED, USAGE, INTERRUPTED), r"node", GONE_SECONDS)
            case.check(ended.stderr.splitlines(), "it says nothing")


@fault("network", times=1, fast=0)
def torchrun_of_a_node_dies(case: Case) -> None:
    """torchrun's agent is killed, as a node that loses its power: no process of either node is left."""
    for _ in range(case.count):
        with case.injection():
            runs = _torchruns(case, [case.folder(), case.folder()])
            _measuring(case, runs)
            runs[case.random.randrange(2)].process.kill()
            for run in runs:  # what torchrun says of it, tracebacks among it, is its own
                case.check(run.end(GONE_SECONDS) is not None, f"hangs, having said {run.message()[-300:]!r}")
                case.check(not (left := run.left()), f"left behind: {left}")


@fault("network", times=1, fast=1)
def words_of_a_stranger(case: Case) -> None:
    """Whoever connects to the store where nodes meet, and sends brackets or nothing, has nothing executed and stops
    nobody for long."""
    with case.injection():
        folder = case.folder()
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        known = {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "2", "RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        run = case.start(*LONG, "--out", str(folder), variables=known)
        case.check(run.wait_for(lambda: _listens(port), case.patience), f"nothing listens: {run.message()[-300:]}")
        for words in (b"[" * 100_000, b"", b"GET / HTTP/1.0\r\n\r\n", case.random.randbytes(4096)):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
                stranger.sendall(words)
        run.process.terminate()
        case.ended(run, (INTERRUPTED, FAILED, USAGE), "", GONE_SECONDS)
        case.check(not finished(folder), "it measured with a stranger")


def _listens(port: int) -> bool:
    return any(
        each.laddr and each.laddr.port == port for each in psutil.net_connections("tcp") if each.status == "LISTEN"
    )
