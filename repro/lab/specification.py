"""Data of the lab's experiment: the report's runs on CPUs, a T4 and a V100, and trainings of our own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ..datafile import Count, Positive, read_csv, read_once
from ..models.recipe import Scale

# Resources of the report's runs; the first two trained on CPUs only.
T4_2_CPUS, T4_16_CPUS = "T4 node with 2 CPUs", "T4 node with 16 CPUs"
T4, V100 = "T4 node with 1 GPU and 8 CPUs", "DGX node with 1 GPU and 8 CPUs"


@dataclass(frozen=True)
class LabRun:
    """A training in the report; all but those of one epoch were predicted. Times are local; the clocks went forward by
    `clock_change_seconds` during the run."""

    resources: str
    epochs: Count
    seconds: Positive
    predicted_seconds: Positive | None
    last_epoch_seconds: Positive
    started: datetime
    ended: datetime
    clock_change_seconds: float
    source: str


@dataclass(frozen=True)
class Training:
    """A training of our own, on a `machine`."""

    machine: str
    scale: Scale
    batch: int
    images: int
    epochs: int

    @property
    def id(self) -> str:
        """Return the name used in messages and as the file name, by which a later run finds it."""
        machine, many = self.machine.replace(" ", "-"), "s" if self.epochs > 1 else ""
        return f"{machine}_{self.scale}_{self.images}-images_{self.epochs}-epoch{many}"


@dataclass(frozen=True)
class TimedTraining:
    """Measured seconds of a training: reading and training of each batch, by epoch, and each epoch. `busy_cpus` is the
    number of CPUs that other processes used during the epochs, at least."""

    what: Training
    reading: list[list[float]]
    training: list[list[float]]
    seconds: list[float]
    busy_cpus: float | None = None


@read_once
def lab_runs() -> Mapping[tuple[str, int], LabRun]:
    """Return the report's eight runs, by resources and epochs. Raise UserError if the file is broken."""
    return read_csv(LabRun, "lab.csv", ("resources", "epochs"))
