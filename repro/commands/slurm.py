"""`repro slurm`: print a batch script for a cluster with SLURM."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import command, formats
from ..console import UserError
from ..export.training import SCRIPT
from ..formats import counted, shell_words
from ..train.kept import STOPPED
from . import custom_models
from .devices import counts_on

_MARGIN = 300  # seconds of the job without trials: the nodes start, and the report is written
_WARNING = 120  # seconds before the job's end at which SLURM sends SIGTERM to running tasks
_EXPORT = """\
# After `sbatch --export=NONE`, an alias of many login nodes, tasks would get neither PATH nor what is exported here.
unset SLURM_EXPORT_ENV"""
_SCRIPT = """\
#!/usr/bin/env bash
# Runs the benchmark {where}. Submit it with: sbatch FILE
# A job that is preempted is queued again, and the same command resumes the results folder.
{directives}
set -euo pipefail
cd {folder}
{export}

# The first use sets up what is missing, before the nodes start.
{repro} --version >/dev/null

# The run starts no trial that would end after the job, less {margin} s for the start and the report.
left=$((${{SLURM_JOB_END_TIME:-$(($(date +%s) + {seconds}))}} - $(date +%s) - {margin}))
if ((left <= 0)); then
    echo "the job ends within {margin} s, too soon for a run" >&2
    exit 1
fi

# One task a node: each starts the processes of its GPUs itself. Where one fails the first node ends all.
exec srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --kill-on-bad-exit=0 \\
    {repro} run --budget "${{left}}s" {words}
"""
_TRAINING = """\
#!/usr/bin/env bash
# Trains {where}. Submit it with: sbatch FILE
# A job that is preempted, or whose time ends, saves a checkpoint, is queued again, and goes on from it.
{directives}
set -uo pipefail
cd {folder}
{export}

MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_ADDR MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))

# One task a GPU.
srun --nodes={nodes} --ntasks={ranks} --ntasks-per-node={gpus} --kill-on-bad-exit=0 bash -c \\
    'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE={ranks} LOCAL_WORLD_SIZE={gpus} exec "$@"' train \\
    {python} {words}
code=$?
if ((code == {stopped})); then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


@dataclass(frozen=True)
class Allocation:
    """The request to SLURM; `seconds` is its time limit, `named` are directives whose value is a name."""

    nodes: int
    gpus: int
    seconds: int
    cpus: int | None
    named: dict[str, str]

    @property
    def where(self) -> str:
        """Return the nodes as text: 2 nodes of 4 GPUs."""
        return f"{counted(self.nodes, 'node')} of {counted(self.gpus, 'GPU')}"

    def directives(self, tasks: int = 1) -> list[str]:
        """Return the lines that sbatch reads, with so many `tasks` a node."""
        minutes = -(-self.seconds // 60)
        asked = {
            "job-name": "repro",
            "nodes": self.nodes,
            "ntasks-per-node": tasks,
            "gpus-per-node": self.gpus,
            "cpus-per-task": self.cpus and max(1, self.cpus // tasks),
            "time": f"{minutes // 60:02}:{minutes % 60:02}:00",
            "output": "repro-%j.out",
            "open-mode": "append",  # a requeued job appends to the same file
            "signal": f"TERM@{_WARNING}",  # to the tasks, not to this shell
            **self.named,
        }
        return [*(f"#SBATCH --{name}={value}" for name, value in asked.items() if value), "#SBATCH --requeue"]


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--nodes", default="1", metavar="N", help="nodes (default 1)")
    add("--gpus-per-node", required=True, metavar="N", help="GPUs of each node")
    add("--time", required=True, metavar="4h", help="time limit of the job")
    add("--cpus-per-node", metavar="N", help="CPUs of each node (default: the cluster's)")
    for name in ("partition", "account", "qos", "constraint"):
        add(f"--{name}", metavar="NAME", help=f"the job's {name} (default: the cluster's)")
    add(
        "words",
        nargs="*",
        metavar="-- run ...",
        help="the run, without --budget, which is the job's; or an exported train.py with its options",
    )


def main(given: argparse.Namespace) -> int:
    named = {
        name: _name(getattr(given, name), f"--{name}")
        for name in ("partition", "account", "qos", "constraint")
        if getattr(given, name) is not None
    }
    allocation = Allocation(
        nodes=formats.count(given.nodes, "--nodes"),
        gpus=formats.count(given.gpus_per_node, "--gpus-per-node"),
        seconds=int(formats.seconds(given.time, "--time")),
        cpus=formats.count_if_given(given.cpus_per_node, "--cpus-per-node"),
        named=named,
    )
    if allocation.seconds <= 2 * _MARGIN:
        raise UserError(f"--time {given.time}: expected more than {2 * _MARGIN // 60}m, of which a run takes none")
    if given.words and Path(given.words[0]).name == SCRIPT:
        print(training(allocation, given.words), end="")
        return 0
    _check(given.words, allocation)
    print(script(allocation, given.words), end="")
    return 0


def training(allocation: Allocation, words: Sequence[str]) -> str:
    """Return a batch script that starts an exported train.py with these words in the current folder. Raise UserError
    where there is none."""
    if not Path(words[0]).is_file():
        raise UserError(f"{words[0]} is no file: {command()} export writes one")
    return _TRAINING.format(
        where=f"on {allocation.where}",
        directives="\n".join(allocation.directives(allocation.gpus)),
        folder=shell_words([Path.cwd()]),
        export=_EXPORT,
        nodes=allocation.nodes,
        gpus=allocation.gpus,
        ranks=allocation.nodes * allocation.gpus,
        python=shell_words([sys.executable]),
        words=shell_words(words),
        stopped=STOPPED,
    )


def script(allocation: Allocation, words: Sequence[str]) -> str:
    """Return a batch script that starts a run with these words, `run` first, in the current folder."""
    nodes = allocation.nodes
    return _SCRIPT.format(
        where=f"on {allocation.where}",
        directives="\n".join(allocation.directives()),
        folder=shell_words([Path.cwd()]),
        export=_EXPORT,
        repro=os.environ.get("REPRO_COMMAND") or shell_words([sys.executable, "-m", "repro"]),
        margin=_MARGIN,
        seconds=allocation.seconds,
        nodes=nodes,
        words=shell_words(words[1:]),
    )


def _check(words: Sequence[str], allocation: Allocation) -> None:
    """Raise UserError for a run that would refuse its words or its nodes, before it waits for hours in a queue."""
    from ..cli import parser
    from .run import options_of

    if not words or words[0] != "run":
        asked = f"{shlex.join(words)}: expected" if words else "expected"
        example = f"{command()} slurm --gpus-per-node 4 --time 4h -- run --models vit"
        raise UserError(f"{asked} a run behind --, as in: {example}")
    given = parser("run").parse_args(words[1:])
    custom_models.register(given)
    if given.budget is not None:
        raise UserError("--budget: the job's end sets it; leave it out, or shorten --time")
    counts = counts_on(given.gpus, given.processes, allocation.gpus)
    options_of(given, given.processes is None, counts, allocation.nodes)


def _name(name: str, option: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,:|&*+@-]{0,200}", name):
        raise UserError(f"{option} {name}: expected a name as SLURM has them, such as gpu or gpu,long")
    return name
