"""Data classes of what the ranks of a trial report, sent as JSON: times in seconds, memory in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

PARTS = ("without", "with", "update")  # of a round, each timed
Times = dict[str, list[float]]  # by part of a step, one per round


@dataclass(frozen=True)
class WhatRan:
    """The properties of a rank's first training step, checked against what was asked for. `weights` counts the model's,
    `weights_held` and `moments_held` this rank's."""

    wrapper: str
    optimizer: str
    ran_precision: str
    kernel_path: str
    weights: int
    weights_held: int
    moments_held: int
    ran_tf32: bool
    stack_started: float
    warnings: list[str]


@dataclass(frozen=True)
class Report:
    """One report of a rank at work: the seconds from sending the job to its first step (`started`); its GPU's memory
    and what was used before; a micro batch that `fits` and its `peak`; a micro batch and its seconds of an `uncompiled`
    micro-step and update; the raw times of the authors' sequence."""

    started: float | None = None
    gpu_memory: tuple[int, int] | None = None
    ran: WhatRan | None = None
    fits: int | None = None
    peak: int | None = None
    uncompiled: list[float] | None = None
    authors: Times | None = None

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Report:
        """Return a report that a rank of this version sent."""
        ran, memory = plain["ran"], plain["gpu_memory"]
        return cls(**plain | {"ran": ran and WhatRan(**ran), "gpu_memory": memory and tuple(memory)})


@dataclass(frozen=True)
class Measured:
    """The times of a rank: all parts by the host's clock, by the device's, and synchronised. `uncounted` says why
    launches were not counted on a GPU."""

    host: Times
    device: Times
    synchronised: Times
    warm_up: float
    peak_memory: int
    graphs: dict[str, int] | None = None
    gpu_state: dict[str, float | None] | None = None
    skipped_updates: int = 0
    losses: list[float | None] = field(default_factory=list)
    launches: dict[str, int] | None = None
    uncounted: str | None = None
    whole_steps: list[float] = field(default_factory=list)
