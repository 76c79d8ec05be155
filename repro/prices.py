"""Prices, each with its date and source: GPUs and machines to buy (Appendix H, section 4.1), GPUs to rent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Literal

from .currency import codes
from .datafile import ContradictionError, Positive, Row, read_once, records
from .gpus import OfGpus, by_name, known_gpu

Terms = Literal["on-demand", "reserved", "spot"]


@dataclass(frozen=True)
class PrintedGpuPrice:
    """Table 5: one GPU, in US dollars."""

    gpu: str
    cost_usd: Positive
    quote: str
    quoted: date
    source: str


@dataclass(frozen=True)
class Part:
    """Table 6: a part of the desktop for `gpus` GPUs; the part "Total" is the sum as printed."""

    gpus: int
    part: str
    detail: str
    cost_usd: Positive
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
    cost_usd: Positive
    quoted: date
    source: str


@dataclass(frozen=True)
class System:
    """Section 4.1: what a machine for `gpus` GPUs costs without them."""

    gpus: int
    system: str
    cost_usd: Positive
    quoted: date
    source: str


@dataclass(frozen=True)
class Rental(OfGpus):
    """`hours` of an instance with `gpus` GPUs cost `price`: one hour or, reserved, the whole term, used or not."""

    gpu: str
    gpus: int
    provider: str
    terms: Terms
    hours: Positive
    price: Positive
    currency: str
    quoted: date
    source: str

    def __post_init__(self) -> None:
        if self.terms == "reserved" and self.hours <= 1:
            raise ContradictionError("hours", "more than 1 as terms is reserved: the whole term that price pays for")
        if self.terms != "reserved" and self.hours != 1:
            raise ContradictionError("hours", f"1 as terms is {self.terms}: a term paid for as a whole is reserved")


@dataclass(frozen=True)
class InProportion:
    """A provider whose price of an instance is that of one with one GPU, as often as it has GPUs."""

    provider: str
    source: str


@read_once
def gpu_prices() -> Mapping[str, PrintedGpuPrice]:
    """Table 5, by GPU. Raises UserError where the file is broken."""
    return records(PrintedGpuPrice, "table5.csv", ("gpu",), known_gpu)


@read_once
def parts() -> Mapping[tuple[int, str], Part]:
    """Table 6, by number of GPUs and part. Raises UserError where the file is broken."""
    return records(Part, "table6.csv", ("gpus", "part"))


@read_once
def servers() -> Mapping[int, Server]:
    """Table 7, by number of GPUs. Raises UserError where the file is broken."""
    return records(Server, "table7.csv", ("gpus",))


@read_once
def systems() -> Mapping[int, System]:
    """Section 4.1's systems, by number of GPUs. Raises UserError where the file is broken."""
    return records(System, "systems.csv", ("gpus",))


@read_once
def rentals() -> Mapping[tuple[str, int, str, str], Rental]:
    """What renting costs, by GPU, number of GPUs, provider and terms. Raises UserError where the file is broken."""
    families = {re.sub(r" [0-9]+ GB.*", "", name) for name in by_name()}  # not every provider says which V100

    def check(row: Row) -> None:
        row.choice("gpu", by_name().keys() | families, "a GPU of gpus.csv, with or without its memory, such as V100")
        row.choice("currency", codes(), "a code of ISO 4217 such as USD or EUR")

    return records(Rental, "rental.csv", ("gpu", "gpus", "provider", "terms"), check)


@read_once
def in_proportion() -> Mapping[str, InProportion]:
    """Those providers, by name. Raises UserError where the file is broken."""
    return records(InProportion, "in_proportion.csv", ("provider",))
