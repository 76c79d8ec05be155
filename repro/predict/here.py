"""The machine at hand as predictions see it: the catalogue's GPU with the fit, or what probes measured."""

from __future__ import annotations

from dataclasses import replace

from repro.gpus import Gpu

from .calibration import EVERYTHING, Calibration, load
from .machine import Machine
from .memory import ALL_OF_IT, usable, workspace
from .probed import Probes


def here(known: Gpu | Probes, count: int, limit: int | None) -> tuple[Machine, Calibration]:
    """`count` devices, `limit` bytes of each if not all: a GPU of the catalogue, or one that was probed."""
    fitted = load()[EVERYTHING]
    if isinstance(known, Probes):
        return limited(known.machine(count), known.calibration(fitted, count), limit)
    return limited(Machine(known, count), fitted, limit)


def limited(machine: Machine, calibration: Calibration, limit: int | None) -> tuple[Machine, Calibration]:
    """The same with no more than `limit` bytes of each device: all of them the allocator's, as what CUDA itself takes
    comes on top."""
    allowance = calibration.allowance
    if limit is None or limit >= usable(machine.gpu, allowance) - workspace(allowance, machine.world):
        return machine, calibration
    gpu = replace(machine.gpu, memory_gb=limit / 2**30, reported_mib=None)
    return replace(machine, gpu=gpu), replace(calibration, allowance=replace(ALL_OF_IT, spread=allowance.spread))
