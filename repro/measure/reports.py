"""What the ranks of a trial report, as data classes that travel as JSON: times in seconds, memory in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Times = dict[str, list[float]]  # by part of a step, of each round


@dataclass(frozen=True)
class WhatRan:
    """What a rank's first training step ran with, checked against what was asked for. `weights` are the model's,
    `weights_held` and `moments_held` this rank's, in numbers."""

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
    """What a rank says while it works, one thing at a time: when its first step `started`, after the job was sent; its
    GPU's memory and what of it was taken before; a micro batch that `fits` and the `peak` it took; a micro batch, and
    seconds of a micro-step and of an update `uncompiled`; the raw times of the authors' sequence."""

    started: float | None = None
    gpu_memory: tuple[int, int] | None = None
    ran: WhatRan | None = None
    fits: int | None = None
    peak: int | None = None
    uncompiled: list[float] | None = None
    authors: Times | None = None

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Report:
        """As this version's own ranks send it."""
        ran, memory = plain["ran"], plain["gpu_memory"]
        return cls(**plain | {"ran": ran and WhatRan(**ran), "gpu_memory": memory and tuple(memory)})


@dataclass(frozen=True)
class Measured:
    """What a rank timed: all parts by the host's clock, the device's, and synchronised; `uncounted` says why launches
    were not counted on a GPU."""

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
