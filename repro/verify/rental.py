"""Scripts for rented machines: each sets repro up on one, goes through its runs in their time, and packs results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path

from ..formats import counted, shell_words
from .order import Row

CHECKOUT = "repro.tar.gz"  # beside the scripts
_BODY = Path(__file__).with_suffix(".sh")
_HEAD = """\
#!/usr/bin/env bash
# Decides about {decides} of the paper on {machine}, in {minutes} minutes at most.
#
# For a rented machine: Ubuntu with an NVIDIA driver, and nothing else. There, in the folder of this file:
#   bash {name}.sh                               sets up {checkout} from the package index
#   IMAGE=REGISTRY/NAME:TARGET bash {name}.sh    takes an image of it, by Docker: docs/containers.md
# After each run results.tar.gz has what was measured so far, without the names of the host and of users. At the end,
# however it ends, the machine shuts down, or runs the command of --at-the-end, or of AT_THE_END here, which may first
# copy results.tar.gz to a safe place.
minutes={minutes}
commit={commit}
at_the_end={at_the_end}
"""
_SKYPILOT = """\
# sky launch --cluster {cluster} {name}.yaml && rsync {cluster}:sky_workdir/results.tar.gz {name}.tar.gz
# sky down {cluster}
name: {cluster}
workdir: .
resources:
  accelerators: {{{accelerators}}}
  disk_size: 100
  autostop: {{idle_minutes: 30, down: true}}
run: AT_THE_END=true bash {name}.sh
"""
# SkyPilot's names of the paper's GPUs, whose A100 has 80 GB: `sky show-gpus --all`. They differ from cloud to cloud.
_SKYPILOTS = {
    "RTX 3090": ("RTX3090",),
    "A6000": ("A6000", "RTXA6000"),
    "A100": ("A100-80GB", "A100-80GB-SXM"),
    "H100": ("H100", "H100-SXM"),
}


def scripts(rows: Sequence[Row], commit: str, at_the_end: str | None) -> dict[str, str]:
    """Return by file name, for each machine of a list, a shell script and what SkyPilot needs to run it."""
    of_machines = [list(of_one) for _, of_one in groupby(rows, lambda row: row.run.machine)]
    return {name: text for of_one in of_machines for name, text in _of_machine(of_one, commit, at_the_end)}


def _of_machine(rows: Sequence[Row], commit: str, at_the_end: str | None) -> Iterator[tuple[str, str]]:
    name, (gpu, gpus) = rows[0].run.place, rows[0].run.machine
    ends = [math.ceil(minutes) for minutes in accumulate(row.minutes for row in rows)]
    cells, claims = (round(sum(getattr(row, f"expected_{what}") for row in rows)) for what in ("cells", "claims"))
    head = _HEAD.format(
        decides=counted(cells, "cell") + (f" and {counted(claims, 'claim')}" if claims else ""),
        machine=f"{gpus} x {gpu}",
        minutes=ends[-1],
        name=name,
        checkout=CHECKOUT,
        commit=commit,
        at_the_end=shell_words([at_the_end or ""]),
    )
    runs = [f"run {shell_words([end, *row.run.words('results')])}\n" for end, row in zip(ends, rows, strict=True)]
    yield f"{name}.sh", "".join([head, _BODY.read_text(), *runs])
    yield (
        f"{name}.yaml",
        _SKYPILOT.format(
            name=name,
            cluster=f"repro-{name.lower()}",
            accelerators=", ".join(f"{each}: {gpus}" for each in _SKYPILOTS[gpu]),
        ),
    )
