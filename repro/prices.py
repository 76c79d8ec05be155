"""Prices, each with its date and source: GPUs and machines to buy (Appendix H, section 4.1), GPUs to rent."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .datafile import records
from .economics.currency import codes
from .hardware import names
from .quantities import quantities
from .units import DAYS_A_YEAR

TERMS = ("on-demand", "spot", "reserved")


@dataclass(frozen=True)
class GpuPrice:
    """Table 5: one GPU, in US dollars."""

    gpu: str
    cost_usd: float
    quote: str
    quoted: date
    source: str


@dataclass(frozen=True)
class Part:
    """Table 6: a part of the desktop for `gpus` GPUs; the part "Total" is the sum as printed."""

    gpus: int
    part: str
    detail: str
    cost_usd: float
    quoted: date
    source: str


@dataclass(frozen=True)
class Server:
    """Table 7: a server for `gpus` GPUs, without them."""

    gpus: int
    server: str
    processors: str
    memory: str
    power_supplies: str
    storage: str
    cost_usd: float
    quoted: date
    source: str


@dataclass(frozen=True)
class System:
    """Section 4.1: what a machine for `gpus` GPUs costs without them."""

    gpus: int
    system: str
    cost_usd: float
    quoted: date
    source: str


@dataclass(frozen=True)
class Rental:
    """`hours` of an instance with `gpus` GPUs cost `price`."""

    gpu: str
    gpus: int
    provider: str
    terms: str
    hours: float
    price: float
    currency: str
    quoted: date
    source: str


def gpu_prices(folder: Path | None = None) -> list[GpuPrice]:
    """Table 5. Raises UserError where the file is broken."""
    return records(GpuPrice, "table5.csv", ("gpu",), folder, {"gpu": (names(folder), "a GPU of gpus.csv")})


def parts(folder: Path | None = None) -> list[Part]:
    """Table 6. Raises UserError where the file is broken."""
    return records(Part, "table6.csv", ("gpus", "part"), folder)


def servers(folder: Path | None = None) -> list[Server]:
    """Table 7. Raises UserError where the file is broken."""
    return records(Server, "table7.csv", ("gpus",), folder)


def systems(folder: Path | None = None) -> list[System]:
    """Section 4.1's systems. Raises UserError where the file is broken."""
    return records(System, "systems.csv", ("gpus",), folder)


def rentals(folder: Path | None = None) -> list[Rental]:
    """What renting costs. Raises UserError where the file is broken."""
    gpus = names(folder)
    families = {re.sub(r" [0-9]+ GB.*", "", name) for name in gpus}  # not every provider says which V100
    known = {
        "gpu": (gpus | families, "a GPU of gpus.csv, with or without its memory, such as V100"),
        "terms": (TERMS, f"one of {', '.join(TERMS)}"),
        "currency": (codes(folder), "a code of ISO 4217 such as USD or EUR"),
    }
    return records(Rental, "rental.csv", ("gpu", "gpus", "provider", "terms"), folder, known)


def machine_cost(gpu: str, gpus: int, folder: Path | None = None) -> float:
    """US dollars of a machine as section 4.1 reckons them: Table 5's price of each GPU and the system around them.

    Raises KeyError for a GPU or a number of GPUs without a price.
    """
    each = {price.gpu: price.cost_usd for price in gpu_prices(folder)}[gpu]
    return gpus * each + {system.gpus: system.cost_usd for system in systems(folder)}[gpus]


def experiment_cost(cost: float, days: float) -> float:
    """US dollars of a machine that costs `cost` for `days` of its five years (section 4.1)."""
    return cost * days / (quantities()["paper/lifespan"].value * DAYS_A_YEAR)
