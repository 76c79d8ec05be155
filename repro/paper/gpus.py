"""The catalogue of known GPUs, expected/gpus.csv."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from ..datafile import CsvRow, Keyed, Positive, expected_folder, read_csv, read_once
from ..models.recipe import Precision

TURING = (7, 5)  # compute capability; the oldest that CUDA 13 serves
AMPERE = (8, 0)  # the first with TF32 and bf16
GENERATIONS = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")  # of NVIDIA, in order of release
AMD = "CDNA 3"  # the generation of the only other GPU


def _capability(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text)
    if not match:
        raise ValueError
    return int(match[1]), int(match[2])


_Names = Annotated[tuple[str, ...], lambda text: tuple(map(str.strip, text.split(";")))]
Capability = Annotated[tuple[int, int], _capability, Meta(description="major.minor, such as 8.6")]
Link = Annotated[
    str,
    Meta(
        pattern=r"^(((NVLink( bridge)?|Infinity Fabric) [0-9]+(\.[0-9]+)? GB/s( \(pairs\))?; )?PCIe [345]\.0 x16"
        r"(; NVLink-C2C [0-9]+ GB/s)?|NVLink-C2C [0-9]+ GB/s)\Z",
        description="a link such as PCIe 4.0 x16 or NVLink 600 GB/s; PCIe 4.0 x16",
    ),
]


@dataclass(frozen=True)
class Gpu:
    """A catalogue row. Peaks are dense, in TFLOP/s, and None if the GPU lacks the precision or no source states the
    peak.

    `fp16_tflops` and `bf16_tflops` are tensor core peaks with fp32 accumulation, at `boost_mhz`. A GB of memory is
    2**30 bytes, as memory is built; of bandwidth, 1e9 bytes. `reported_mib` is the memory that the driver reports, in
    2**20 bytes, if error correction always takes a part of it, else None.
    """

    name: str
    paper_name: str | None
    driver_names: _Names
    generation: str
    compute_capability: Capability
    memory_gb: Positive
    reported_mib: Positive | None
    fp32_tflops: Positive | None
    tf32_tflops: Positive | None
    fp16_tflops: Positive | None
    bf16_tflops: Positive | None
    boost_mhz: Positive | None
    bandwidth_gb_s: Positive | None
    board_power_w: Positive | None
    link: Link
    source: str

    @property
    def memory_bytes(self) -> float:
        """Return the memory in bytes, including the driver's own share."""
        return self.memory_gb * 2**30 if self.reported_mib is None else self.reported_mib * 2**20

    @property
    def called(self) -> str:
        """Return its name in the files of expected/ and in records: the paper's name, or else the catalogue's."""
        return self.paper_name or self.name


@dataclass(frozen=True)
class CustomGpu(Gpu):
    """A GPU that a file of the user's describes, with its price, a sum and its currency, if that has one. It stands for
    no cell."""

    file: Path
    price: tuple[float, str] | None
    quoted: date | None

    @property
    def note(self) -> str:
        """Return the sentence on where its figures are from."""
        return f"{self.name} is described in {self.file} ({self.source}); it stands for no cell."


class OfGpus:
    """Base class of rows about one machine: a number of GPUs of one kind."""

    gpu: str
    gpus: int

    @property
    def machine(self) -> str:
        """Return the machine as shown to users: 2 A100."""
        return f"{self.gpus} {self.gpu}"


def catalogue_file() -> Path:
    """Return the path of the catalogue."""
    return expected_folder() / "gpus.csv"


@read_once
def catalogue() -> tuple[Gpu, ...]:
    """Return the GPUs of expected/gpus.csv. Raise UserError if the file is broken or two GPUs share a name."""
    seen: dict[Hashable, int] = {}

    def check(row: CsvRow) -> None:
        row.choice("generation", (*GENERATIONS, AMD))
        generation = row["generation"]
        for column in ("tf32_tflops", "bf16_tflops"):
            if row[column] and not _ampere_or_newer(generation):
                row.problem(column, f"nothing, as {generation} has no TF32 and no bf16")
        called = {row["name"], row["paper_name"], *row["driver_names"].split(";")} - {""}
        for name in sorted({_plain(name) for name in called}):
            row.once("name", name, seen)

    return tuple(read_csv(Gpu, "gpus.csv", ("name",), check).values())


def names(gpu: Gpu) -> list[str]:
    """Return all names of a GPU: the catalogue's, the paper's and the driver's."""
    return [name for name in (gpu.name, gpu.paper_name, *gpu.driver_names) if name]


def find(name: str) -> Gpu | None:
    """Return the GPU with this name (the catalogue's, the paper's or the driver's, in any case), or None."""
    folded = _folded(name)
    return next((gpu for gpu in catalogue() if folded in map(_folded, names(gpu))), None)


@read_once
def by_name() -> Mapping[str, Gpu]:
    """Return the GPUs by their `called` name. Looking up another name raises UserError."""
    return Keyed("gpus.csv", {gpu.called: gpu for gpu in catalogue()})


def paper_gpus() -> tuple[str, ...]:
    """Return the names of the paper's GPUs, in the paper's order."""
    return tuple(gpu.paper_name for gpu in catalogue() if gpu.paper_name)


def most_like(gpu: Gpu) -> Gpu:
    """Return the paper's GPU with the most similar memory, which decides what fits; among equals, the one with the most
    similar half-precision peak. Both are compared as ratios."""

    def apart(other: Gpu) -> tuple[float, float]:
        peaks = (gpu.fp16_tflops or 1.0, other.fp16_tflops or 1.0)
        return abs(math.log(gpu.memory_gb / other.memory_gb)), abs(math.log(peaks[0] / peaks[1]))

    return min((other for other in catalogue() if other.paper_name), key=apart)


def known_gpu(row: CsvRow) -> None:
    """Raise UserError where the row's GPU is not in the catalogue."""
    row.choice("gpu", by_name(), "a GPU of gpus.csv")


def peak_flops(gpu: Gpu | None, precision: Precision, tf32: bool) -> float | None:
    """Return the dense peak in FLOP/s; None for an unknown GPU, a precision that it lacks, or a peak without a source.

    `tf32` applies to fp32 on Ampere and newer only; Volta and Turing have no TF32 and use their fp32 peak.
    """
    if gpu is None:
        return None
    peak = {"fp16": gpu.fp16_tflops, "bf16": gpu.bf16_tflops, "fp32": gpu.fp32_tflops}[precision]
    if precision == "fp32" and tf32 and _ampere_or_newer(gpu.generation):
        peak = gpu.tf32_tflops
    return None if peak is None else peak * 1e12


def _ampere_or_newer(generation: str) -> bool:
    return generation not in ("Volta", "Turing")


def _plain(name: str) -> str:
    # Drivers before 470 leave out "NVIDIA".
    return " ".join(name.casefold().split()).removeprefix("nvidia ")


def _folded(name: str) -> str:
    # Users write both 80GB and 80 GB.
    return _plain(name).replace(" ", "")
