"""What a machine's stack was accepted to take: a committed file under expected/baselines/, one a machine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from .. import jsonfile
from ..environment import Environment
from ..trial import Record
from .side import Side

_RAW = ("host", "device_times", "synchronised", "traceback", "log")  # stays in the results folder


def machine(environment: Environment) -> str:
    """Names a machine: its GPUs, or its CPU with the number of cores."""
    gpus, host = [gpu.driver_name for gpu in environment.gpus or []], environment.host
    if gpus:
        return f"{len(gpus)} x {gpus[0]}"
    return f"{host.physical_cores} cores of {host.cpu}" if host.physical_cores else host.cpu


def accept(side: Side, records: Sequence[Record], folder: Path) -> Path:
    """Writes what a stack took as its machine's new baseline, below a folder such as expected/; returns the file."""
    name = machine(side.environment)
    path = folder / "baselines" / f"{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.json"
    rows = [{key: value for key, value in asdict(record).items() if key not in _RAW} for record in records]
    content = {
        "baseline_of": name,
        "accepted": date.today().isoformat(),
        "source": f"repro upgrade-check --accept, {side.name}",
        "environment": asdict(side.environment),
        "records": rows,
    }
    return jsonfile.write(path, content)
