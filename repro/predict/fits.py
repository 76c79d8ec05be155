"""Constants of predictions: fitted ones, of each fold, and those of a machine that was probed (`repro probe`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from repro import command, datafile
from repro.console import UserError
from repro.paper.gpus import AMPERE, GENERATIONS, Gpu, find
from repro.validity import cpu_disturbance

from .constants import PAPERS, Queue, Rates
from .hardware import Machine, Probed
from .memory import ALL_OF_IT, Allowance, usable, workspace

FILE = Path(__file__).parent / "fits.json"
EVERYTHING = "everything"
Factors = tuple[float, float]


@dataclass(frozen=True)
class Errors:
    """How far off predictions are that were held out. `intervals` are, by kind of GPU, the factors on predicted days
    between which 8 of 10 measured days lie. Predictions for `worst_gpu` are off by `worst_factor` in the median, more
    than for any other GPU."""

    intervals: dict[str, Factors]
    worst_gpu: str
    worst_factor: float


@dataclass(frozen=True)
class Fits:
    """What tools/fit.py writes: the fitted numbers by what a fit held out, and the errors of what was held out."""

    fitted: dict[str, dict[str, float]]
    errors: Errors


@dataclass(frozen=True)
class Constants:
    """The parameters of the time, queue and memory models, with the errors of their predictions."""

    rates: Rates
    queue: Queue
    errors: Errors
    allowance: Allowance = field(default_factory=Allowance)

    def interval(self, machine: Machine) -> Factors | None:
        """Return the factors on predicted days between which 8 of 10 measured days lie; None for a machine unlike all
        that were measured."""
        return self.errors.intervals.get(machine.kind) if machine.held_out else None


def constants(fitted: Mapping[str, float], errors: Errors) -> Constants:
    """Return the constants with fitted numbers in their place."""
    rates = {name: value for name, value in fitted.items() if name != PAPERS}
    return Constants(replace(Rates(), **rates), replace(Queue(), papers_compiled=fitted[PAPERS]), errors)


@cache
def fitted_constants() -> dict[str, Constants]:
    """Return the fit to everything, and those that held out a recipe or a GPU, by what they held out. Raise UserError
    if the file cannot be read."""
    try:
        found = datafile.read(FILE, Fits)
    except datafile.NotAsDeclaredError as error:
        raise UserError(f"{FILE}: no fits ({error}); restore it, or install repro again") from None
    return {name: constants(fitted, found.errors) for name, fitted in found.fitted.items()}


def here(known: Gpu | Probes, count: int, limit: int | None) -> tuple[Machine, Constants]:
    """Return machine and constants of `count` catalogue GPUs or probed devices, each with `limit` bytes or all."""
    fitted = fitted_constants()[EVERYTHING]
    if isinstance(known, Probes):
        return limited(known.machine(count), known.constants(fitted, count), limit)
    return limited(Machine(known, count), fitted, limit)


def limited(machine: Machine, constants: Constants, limit: int | None) -> tuple[Machine, Constants]:
    """Return machine and constants with at most `limit` bytes per device. The allocator can use all of them: CUDA's
    own memory comes on top."""
    allowance = constants.allowance
    if limit is None or limit >= usable(machine.gpu, allowance) - workspace(allowance, machine.world):
        return machine, constants
    gpu = replace(machine.gpu, memory_gb=limit / 2**30, reported_mib=None)
    return replace(machine, gpu=gpu), replace(constants, allowance=replace(ALL_OF_IT, spread=allowance.spread))


@dataclass(frozen=True)
class Probes:
    """Measurements of one kind of device: its name (`cpu` for this machine's CPUs), bytes of memory of one, compute
    capability (None for a CPU), measurements by number of devices used at once, and seconds that probing took.
    `busy_cpus` are those that other processes used, of the busiest count; None if the system does not report it."""

    device: str
    memory: Annotated[int, Meta(ge=1)]
    capability: tuple[int, int] | None
    counts: dict[int, Probed]
    seconds: float
    busy_cpus: float | None = None

    def machine(self, count: int) -> Machine:
        """Return a machine of `count` devices. Raise UserError for a number that was not probed."""
        if count not in self.counts:
            known = ", ".join(str(one) for one in sorted(self.counts))
            raise UserError(f"{count} x {self.device} was not probed, only {known}: {command()} probe measures it")
        gpu = find(self.device) or _unknown(self.device, self.capability)
        return Machine(replace(gpu, memory_gb=self.memory / 2**30, reported_mib=None), count, probed=self.counts[count])

    def constants(self, fitted: Constants, count: int) -> Constants:
        """Return the fit with measured rates in place of shares of data-sheet figures. What was not measured, such as
        the share of peak that fused attention reaches, stays as fitted."""
        probed = self.counts[count]
        products = (
            "matmul_half",
            "matmul_half_hopper",
            "matmul_half_geforce",
            "matmul_fp32",
            "matmul_fp32_gddr",
            "tf32",
        )
        measured = dict.fromkeys((*products, "fused", "eager_hbm", "eager_gddr", "nvlink", "pcie", "host"), 1.0)
        measured["launch"] = probed.launch
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
        for count, probed in found.counts.items():
            if probed.bf16 is None and (found.capability is None or found.capability >= AMPERE):
                raise datafile.NotAsDeclaredError(f"counts.{count}.bf16 is null, where the device has bf16")
        return found
    except datafile.NotAsDeclaredError as error:
        raise UserError(f"{file}: no probes of a machine ({error}); {command()} probe --out FILE makes them") from None


def _unknown(name: str, capability: tuple[int, int] | None) -> Gpu:
    """Return a catalogue row for a device without one; predictions use only its measured values."""
    fields: dict[str, Any] = dict.fromkeys(datafile.columns(Gpu))
    fields |= {
        "name": name,
        "driver_names": (),
        "generation": GENERATIONS[-1] if capability else "CPU",
        "compute_capability": capability or (0, 0),
        "memory_gb": 0.0,
        "link": "measured",
        "source": "repro probe",
    }
    return Gpu(**fields)
