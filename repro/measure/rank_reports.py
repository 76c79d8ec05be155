"""Data classes of what the ranks of a trial report, sent as JSON: times in seconds, memory in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..record import AsRun, GpuState, Times

PARTS = ("without", "with", "update")  # of a round, each timed


@dataclass(frozen=True)
class FirstStep:
    """What a rank found in its first training step, checked against what was asked for, and when the server that it was
    forked from started (epoch)."""

    as_run: AsRun
    stack_started: float
    warnings: list[str]


@dataclass(frozen=True)
class Report:
    """One report of a rank at work: the seconds from sending the job to its first step (`started`); its GPU's memory
    and what was used before; its first step; a micro batch that `fits` and its `peak`; the raw times of the authors'
    sequence; the seconds that something was timed, with the CPU seconds of all processes and of the rank in them."""

    started: float | None = None
    gpu_memory: tuple[int, int | None] | None = None
    first_step: FirstStep | None = None
    fits: int | None = None
    peak: int | None = None
    authors: Times | None = None
    cpu_use: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Measured:
    """The times of a rank: all parts by the host's clock, by the device's, and synchronised. `uncounted` says why
    launches were not counted on a GPU. `mean_power` is the GPU's in watts while the rounds were timed,
    `part_power` that of each part which lasts long enough for its counter."""

    host: Times
    device: Times
    synchronised: Times
    warm_up: float
    peak_memory: int
    mean_power: float | None = None
    part_power: dict[str, float] = field(default_factory=dict)
    graphs: dict[str, int] | None = None
    gpu_state: GpuState | None = None
    skipped_updates: int = 0
    losses: list[float | None] = field(default_factory=list)
    trained_losses: list[float | None] = field(default_factory=list)
    launches: dict[str, int] | None = None
    uncounted: str | None = None
    whole_steps: list[float] = field(default_factory=list)
