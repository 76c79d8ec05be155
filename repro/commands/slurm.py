"""`repro slurm`: print a batch script for a cluster with SLURM."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import command, formats
from ..console import UserError
from ..export.training import SCRIPT
from ..formats import count, counted, shell_words
from ..options import Options, argument, option
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


def _name(name: str, option: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.,:|&*+@-]{0,200}", name):
        raise UserError(f"{option} {name}: expected a name as SLURM has them, such as gpu or gpu,long")
    return name


def _named(what: str) -> Any:
    return option(f"the job's {what} (default: the cluster's)", "NAME", _name)


def _time(text: str, option: str) -> int:
    seconds = int(formats.seconds(text, option))
    if seconds <= 2 * _MARGIN:
        raise UserError(f"{option} {text}: expected more than {2 * _MARGIN // 60}m, of which a run takes none")
    return seconds


@dataclass(frozen=True, kw_only=True)
class Asked(Options):
    """The request to SLURM. `time` is its limit in seconds."""

    nodes: int = option("nodes (default 1)", "N", count, default=1)
    gpus_per_node: int = option("GPUs of each node", "N", count, required=True)
    time: int = option("time limit of the job", "4h", _time, required=True)
    cpus_per_node: int | None = option("CPUs of each node (default: the cluster's)", "N", count)
    partition: str | None = _named("partition")
    account: str | None = _named("account")
    qos: str | None = _named("qos")
    constraint: str | None = _named("constraint")
    words: tuple[str, ...] = argument(
        "the run, without --budget, which is the job's; or an exported train.py with its options",
        "-- run ...",
        nargs="*",
    )

    @property
    def where(self) -> str:
        """Return the nodes as text: 2 nodes of 4 GPUs."""
        return f"{counted(self.nodes, 'node')} of {counted(self.gpus_per_node, 'GPU')}"

    def directives(self, tasks: int = 1) -> str:
        """Return the lines that sbatch reads, with so many `tasks` a node."""
        minutes = -(-self.time // 60)
        asked = {
            "job-name": "repro",
            "nodes": self.nodes,
            "ntasks-per-node": tasks,
            "gpus-per-node": self.gpus_per_node,
            "cpus-per-task": self.cpus_per_node and max(1, self.cpus_per_node // tasks),
            "time": f"{minutes // 60:02}:{minutes % 60:02}:00",
            "output": "repro-%j.out",
            "open-mode": "append",  # a requeued job appends to the same file
            "signal": f"TERM@{_WARNING}",  # to the tasks, not to this shell
            **{name: getattr(self, name) for name in ("partition", "account", "qos", "constraint")},
        }
        lines = [f"#SBATCH --{name}={value}" for name, value in asked.items() if value]
        return "\n".join([*lines, "#SBATCH --requeue"])


def main(asked: Asked) -> int:
    if asked.words and Path(asked.words[0]).name == SCRIPT:
        print(_training(asked), end="")
        return 0
    _check(asked)
    print(_run(asked), end="")
    return 0


def _training(asked: Asked) -> str:
    """Return a batch script that starts an exported train.py in the current folder. Raise UserError where there is
    none."""
    if not Path(asked.words[0]).is_file():
        raise UserError(f"{asked.words[0]} is no file: {command()} export writes one")
    return _TRAINING.format(
        where=f"on {asked.where}",
        directives=asked.directives(asked.gpus_per_node),
        folder=shell_words([Path.cwd()]),
        export=_EXPORT,
        nodes=asked.nodes,
        gpus=asked.gpus_per_node,
        ranks=asked.nodes * asked.gpus_per_node,
        python=shell_words([sys.executable]),
        words=shell_words(asked.words),
        stopped=STOPPED,
    )


def _run(asked: Asked) -> str:
    """Return a batch script that starts a run in the current folder."""
    return _SCRIPT.format(
        where=f"on {asked.where}",
        directives=asked.directives(),
        folder=shell_words([Path.cwd()]),
        export=_EXPORT,
        repro=os.environ.get("REPRO_COMMAND") or shell_words([sys.executable, "-m", "repro"]),
        margin=_MARGIN,
        seconds=asked.time,
        nodes=asked.nodes,
        words=shell_words(asked.words[1:]),
    )


def _check(asked: Asked) -> None:
    """Raise UserError for a run that would refuse its words or its nodes, before it waits for hours in a queue."""
    from ..cli import parser
    from .run import options_of

    words = asked.words
    if not words or words[0] != "run":
        found = f"{shlex.join(words)}: expected" if words else "expected"
        example = f"{command()} slurm --gpus-per-node 4 --time 4h -- run --models vit"
        raise UserError(f"{found} a run behind --, as in: {example}")
    run = custom_models.register(parser("run").parse_args(words[1:]))
    if run.budget is not None:
        raise UserError("--budget: the job's end sets it; leave it out, or shorten --time")
    counts = counts_on(run.gpus, run.processes, asked.gpus_per_node)
    options_of(run, run.processes is None, counts, asked.nodes)
