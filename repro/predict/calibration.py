"""Calibrations: measurements of a machine by probes (`repro calibrate`), and fits of the time and memory models."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from repro import command, datafile
from repro.console import UserError
from repro.formats import LARGEST, SMALLEST
from repro.paper.gpus import AMPERE, GENERATIONS, Gpu, find, paper_gpus
from repro.validity import cpu_disturbance

from .. import models
from .hardware import Machine, Probed
from .launch_queue import Queue
from .memory import ALL_OF_IT, Allowance, usable, workspace
from .time import Rates

FILE = Path(__file__).parent / "calibration.json"
EVERYTHING = "everything"
Factors = tuple[float, float]


@dataclass(frozen=True)
class Calibration:
    """Parameters fitted to the paper's cells and to measurements. `hbm` and `gddr` are the factors on predicted days
    between which 8 of 10 unseen cells lie: for GPUs with HBM, which the paper connects by NVLink, and for those with
    GDDR, mostly on PCIe."""

    rates: Rates
    queue: Queue
    allowance: Allowance
    hbm: Factors
    gddr: Factors

    def interval(self, machine: Machine) -> Factors:
        """Return the factors for such a machine; a CPU gets those of GDDR, the wider ones."""
        return self.hbm if machine.stacked else self.gddr


def save(fits: dict[str, Calibration], file: Path = FILE) -> None:
    """Write the fit to everything, and the fits that held out a recipe or a GPU, by the name they held out.

    Raise UserError if the file cannot be written.
    """
    datafile.write(file, {name: asdict(fit) for name, fit in fits.items()})


@cache
def calibrations() -> dict[str, Calibration]:
    """Return every fit. Raise UserError if one is missing or the file cannot be read."""
    try:
        fits = datafile.read(FILE, dict[str, Calibration])
    except datafile.NotAsDeclaredError as error:
        raise _none(str(error)) from None
    if lacking := [name for name in (EVERYTHING, *models.IDS, *paper_gpus()) if name not in fits]:
        raise _none(f"it lacks {', '.join(lacking)}")
    return fits


def _none(why: str) -> UserError:
    return UserError(f"{FILE}: no calibration ({why}); {command()} predict --fit makes it")


def here(known: Gpu | Probes, count: int, limit: int | None) -> tuple[Machine, Calibration]:
    """Return machine and calibration of `count` catalogue GPUs or probed devices, each with `limit` bytes or all."""
    fitted = calibrations()[EVERYTHING]
    if isinstance(known, Probes):
        return limited(known.machine(count), known.calibration(fitted, count), limit)
    return limited(Machine(known, count), fitted, limit)


def limited(machine: Machine, calibration: Calibration, limit: int | None) -> tuple[Machine, Calibration]:
    """Return machine and calibration with at most `limit` bytes per device. The allocator can use all of them: CUDA's
    own memory comes on top."""
    allowance = calibration.allowance
    if limit is None or limit >= usable(machine.gpu, allowance) - workspace(allowance, machine.world):
        return machine, calibration
    gpu = replace(machine.gpu, memory_gb=limit / 2**30, reported_mib=None)
    return replace(machine, gpu=gpu), replace(calibration, allowance=replace(ALL_OF_IT, spread=allowance.spread))


@dataclass(frozen=True)
class Probes:
    """Measurements of one kind of device: its name (`cpu` for this machine's CPUs), bytes of memory of one, compute
    capability (None for a CPU), measurements by number of devices used at once, and seconds that probing took.
    `busy_cpus` are those that other processes used, of the busiest count; None if the system does not report it."""

    device: str
    memory: int
    capability: tuple[int, int] | None
    counts: dict[int, Probed]
    seconds: float
    busy_cpus: float | None = None

    def machine(self, count: int) -> Machine:
        """Return a machine of `count` devices. Raise UserError for a number that was not probed."""
        if count not in self.counts:
            known = ", ".join(str(one) for one in sorted(self.counts))
            raise UserError(f"{count} x {self.device} was not probed, only {known}: {command()} calibrate measures it")
        gpu = find(self.device) or _unknown(self.device, self.capability)
        return Machine(replace(gpu, memory_gb=self.memory / 2**30, reported_mib=None), count, probed=self.counts[count])

    def calibration(self, fitted: Calibration, count: int) -> Calibration:
        """Return the fit with measured rates in place of shares of data-sheet figures. What was not measured, such as
        the share of peak that fused attention reaches, stays as fitted."""
        probed = self.counts[count]
        products = ("half", "half_geforce", "full", "full_gddr", "tf32")
        memory = ("hbm", "hbm_fused", "gddr", "gddr_fused")
        measured = dict.fromkeys((*products, *memory, "switch", "bridge", "host"), 1.0)
        measured |= dict.fromkeys(("pcie_2", "pcie_4", "pcie_8"), 1.0) | {"launch": probed.launch}
        if self.capability is None:
            # The device is the host: offloading makes no update faster, and adds copies.
            measured["host_memory"] = probed.copy
        allowance = ALL_OF_IT if self.capability is None else replace(fitted.allowance, reserved=0.0)
        return replace(fitted, rates=replace(fitted.rates, **measured), allowance=allowance)

    @property
    def warning(self) -> str:
        """Return a sentence if other processes may have slowed the probes, else an empty string."""
        others = cpu_disturbance(self.busy_cpus)
        return f"While it was probed {others}: it may be faster than this, measure it again alone." if others else ""

    def save(self, file: Path, named: bool = True) -> None:
        """Write the probes as JSON. `named` is as in `files.replace`, which raises UserError."""
        datafile.write(file, asdict(self), named)


def load_probes(file: Path) -> Probes:
    """Return the probes that `save` wrote. Raise UserError if they cannot be read, or a number is out of range."""
    try:
        found = datafile.read(file, Probes)
        numbers = {"memory": found.memory}
        for count, probed in found.counts.items():
            if probed.bf16 is None and (found.capability is None or found.capability >= AMPERE):
                raise datafile.NotAsDeclaredError(f"counts.{count}.bf16 is null, where the device has bf16")
            numbers |= {f"counts.{count}.{name}": number for name, number in asdict(probed).items()}
        for name, number in numbers.items():
            if number is not None and not SMALLEST <= number <= LARGEST:
                range_ = f"from {SMALLEST:g} to {LARGEST:g}"
                raise datafile.NotAsDeclaredError(f"{name} is {number!r}, not a positive number {range_}")
        return found
    except datafile.NotAsDeclaredError as error:
        raise UserError(
            f"{file}: no probes of a machine ({error}); {command()} calibrate --out FILE makes them"
        ) from None


def _unknown(name: str, capability: tuple[int, int] | None) -> Gpu:
    """Return a catalogue row for a device without one; predictions use only its measured values."""
    nothing: dict[str, Any] = dict.fromkeys(
        (
            "reported_mib",
            "fp32_tflops",
            "tf32_tflops",
            "fp16_tflops",
            "bf16_tflops",
            "boost_mhz",
            "bandwidth_gb_s",
            "board_power_w",
        )
    )
    return Gpu(
        name=name,
        paper_name=None,
        driver_names=(),
        generation=GENERATIONS[-1] if capability else "CPU",
        compute_capability=capability or (0, 0),
        memory_gb=0.0,
        link="measured",
        source="repro calibrate",
        **nothing,
    )
