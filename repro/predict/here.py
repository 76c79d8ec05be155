"""The machine at hand as predictions see it: the catalogue's GPU with the fit, or what probes measured."""

from __future__ import annotations

from dataclasses import replace

from repro.gpus import Gpu

from .calibration import EVERYTHING, Calibration, load
from .machine import Machine
from .memory import ALL_OF_IT
from .probed import Probes


def here(known: Gpu | Probes, count: int, limit: int | None) -> tuple[Machine, Calibration]:
    """`count` devices, `limit` bytes of each if not all: a GPU of the catalogue, or one that was probed."""
    fitted = load()[EVERYTHING]
    if isinstance(known, Probes):
        return known.machine(count, limit), known.calibration(fitted, count, limit is not None)
    if limit is None or limit / 2**30 >= known.memory_gb:  # no limit adds to what there is
        return Machine(known, count), fitted
    return Machine(replace(known, memory_gb=limit / 2**30), count), replace(fitted, allowance=ALL_OF_IT)
