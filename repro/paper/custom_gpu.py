"""A GPU of the user's own, from a TOML file: --gpu FILE.toml, in place of one of the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ..datafile import ContradictionError, Currency, Positive, read_toml, table
from ..formats import quantity
from .gpus import AMPERE, GENERATIONS, Capability, CustomGpu, Link, catalogue, find


def _in(units: Mapping[str, float]) -> Callable[[str], float]:
    return lambda text: quantity(text, units)


def _such_as(text: str) -> Meta:
    return Meta(description=f"text with a unit such as {text}")


def _price(text: str) -> tuple[float, str]:
    code = text[-3:]
    return quantity(text, {code: 1}), code


# A GB of memory is 2**30 bytes, as in the catalogue.
_Memory = Annotated[float, _in({"GB": 1, "GiB": 1, "MiB": 1 / 1024}), _such_as('"24 GB" or "24564 MiB"')]
_Peak = Annotated[float, _in({"TFLOP/s": 1, "TFLOPS": 1, "PFLOP/s": 1000, "PFLOPS": 1000}), _such_as('"35.6 TFLOP/s"')]
_Bandwidth = Annotated[float, _in({"GB/s": 1, "TB/s": 1000}), _such_as('"936 GB/s"')]
_Power = Annotated[float, _in({"W": 1, "kW": 1000}), _such_as('"350 W"')]
_Price = Annotated[tuple[Positive, Currency], _price, Meta(description='a sum with its currency such as "1300 USD"')]


@dataclass(frozen=True)
class _File:
    """What a file says. The peaks are dense; `fp16` and `bf16` those of tensor cores with fp32 accumulation."""

    name: str
    compute_capability: Capability
    memory: _Memory
    fp32: _Peak
    fp16: _Peak
    bandwidth: _Bandwidth
    power: _Power
    link: Link
    source: str
    tf32: _Peak | None = None
    bf16: _Peak | None = None
    price: _Price | None = None
    quoted: date | None = None

    def __post_init__(self) -> None:
        if find(self.name):
            raise ContradictionError("name", "a name that the catalogue does not have: its GPUs stand for cells")
        if self.compute_capability < min(gpu.compute_capability for gpu in catalogue()):
            raise ContradictionError("compute_capability", f"that of {GENERATIONS[0]}, 7.0, or newer")
        capability = ".".join(map(str, self.compute_capability))
        for field in ("tf32", "bf16"):
            given = getattr(self, field) is not None
            if given != (self.compute_capability >= AMPERE):
                has = f"nothing, as GPUs of {capability} have no {field}" if given else f"the peak of a {capability}"
                raise ContradictionError(field, has)
        if (self.price is None) != (self.quoted is None):
            raise ContradictionError("price" if self.price is None else "quoted", "both price and quoted, its day")


def custom_gpu(text: str | None) -> CustomGpu | None:
    """Return the GPU that a file describes; None where the text names no TOML file. Raises UserError where a field is
    missing or unknown, or a value is not as declared."""
    if text is None or not text.casefold().endswith(".toml"):
        return None
    file = Path(text)
    found = table(_File, read_toml(file, "--gpu", "a GPU"), str(file))
    older = [gpu for gpu in catalogue() if gpu.compute_capability <= found.compute_capability]
    return CustomGpu(
        name=found.name,
        paper_name=None,
        driver_names=(),
        generation=max(older, key=lambda gpu: gpu.compute_capability).generation,
        compute_capability=found.compute_capability,
        memory_gb=found.memory,
        reported_mib=None,
        fp32_tflops=found.fp32,
        tf32_tflops=found.tf32,
        fp16_tflops=found.fp16,
        bf16_tflops=found.bf16,
        boost_mhz=None,
        bandwidth_gb_s=found.bandwidth,
        board_power_w=found.power,
        link=found.link,
        source=found.source,
        file=file,
        price=found.price,
        quoted=found.quoted,
    )
