"""What a machine's GPUs draw, and the CO2 of a kWh."""

from __future__ import annotations

from dataclasses import dataclass

from ..datafile import records
from ..errors import UserError
from ..gpus import find
from ..interval import Interval
from ..units import interval
from .days import TrainingDays


@dataclass(frozen=True)
class PowerGrid:
    """The CO2 of a kWh from a region's grid in a year's mean."""

    region: str
    year: int
    grams_co2_per_kwh: float
    source: str


@dataclass(frozen=True)
class Power:
    """Kilowatts while training, and who says so."""

    kilowatts: Interval
    source: str


def gpu_power(run: TrainingDays) -> Power | None:
    """Of the machine's GPUs: as measured where the days were, else their board power; None where neither is known."""
    if run.watts is not None:
        return Power(Interval.exact(run.watts / 1000), f"measured, {run.source}; GPUs alone")
    gpu = find(run.gpu)
    if gpu is None or gpu.board_power_w is None:
        return None
    return Power(Interval.exact(run.gpus * gpu.board_power_w / 1000), "board power of the GPUs alone, gpus.csv")


def intensity(text: str, option: str) -> tuple[Interval, str]:
    """Grams of CO2 a kWh, and who says so: of a region of grid.csv by its name, or a number. Raises UserError."""
    grids = {grid.region.casefold(): grid for grid in records(PowerGrid, "grid.csv", ("region",)).values()}
    grid = grids.get(text.casefold())
    if grid is not None:
        return Interval.exact(grid.grams_co2_per_kwh), f"{grid.source}, {grid.region} {grid.year}"
    try:
        return interval(text, option), f"{text.strip()} g a kWh, as given"
    except UserError:
        regions = ", ".join(grid.region for grid in grids.values())
        raise UserError(f"{option} {text}: expected grams of CO2 a kWh, or a region: {regions}") from None
