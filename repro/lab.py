"""The lab report's measurements: a GAN trained for 1 and for 20 epochs on CPUs, a T4 and a V100."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from .datafile import records


@dataclass(frozen=True)
class LabRun:
    """A training as the report has it; `gpu` is None where the CPUs trained, times are local. While it ran, clocks
    went forward by `clock_change_seconds`."""

    resources: str
    gpu: str | None
    cpus: int
    epochs: int
    seconds: float
    predicted_seconds: float | None
    last_epoch_seconds: float
    started: datetime
    ended: datetime
    clock_change_seconds: float
    source: str


def lab_runs(folder: Path | None = None) -> list[LabRun]:
    """The eight runs. Raises UserError where the file is broken."""
    return records(LabRun, "lab.csv", ("resources", "epochs"), folder)
