"""What was fitted: the rates of the time model and the allowance of the memory model, and how far predictions stray."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import models
from repro import command, jsonfile
from repro.errors import UserError
from repro.gpus import paper_gpus

from .machine import Machine
from .memory import Allowance
from .queue import Queue
from .time import Rates

FILE = Path(__file__).parent / "calibration.json"
EVERYTHING = "everything"
Factors = tuple[float, float]


@dataclass(frozen=True)
class Calibration:
    """A fit to the paper's cells and to what was measured, and the factors on predicted days between which 8 of 10
    cells lie that it has not seen: of GPUs with HBM, which the paper has joined by NVLink, and of those with GDDR,
    mostly on PCIe."""

    rates: Rates
    queue: Queue
    allowance: Allowance
    hbm: Factors
    gddr: Factors

    def interval(self, machine: Machine) -> Factors:
        """The factors for such a machine; a CPU's are the wider ones."""
        return self.hbm if machine.stacked else self.gddr


def save(fits: dict[str, Calibration], file: Path = FILE) -> None:
    """Writes the fit to everything, and those that held a recipe or a GPU out, by what they left out.

    Raises UserError where it cannot be written.
    """
    jsonfile.write(file, {name: asdict(fit) for name, fit in fits.items()})


@cache
def load() -> dict[str, Calibration]:
    """Every fit. Raises UserError where they cannot be read."""
    try:
        fits = jsonfile.read(FILE, dict[str, Calibration])
    except jsonfile.NotAsDeclaredError as error:
        raise _none(str(error)) from None
    if lacking := [name for name in (EVERYTHING, *models.IDS, *paper_gpus()) if name not in fits]:
        raise _none(f"it lacks {', '.join(lacking)}")
    return fits


def _none(why: str) -> UserError:
    return UserError(f"{FILE}: no calibration ({why}); {command()} predict --fit makes it")
