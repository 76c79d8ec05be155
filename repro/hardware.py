"""The GPUs we know, by the catalogue expected/gpus.csv, and what a GPU of this machine is; nvml.py finds those."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from repro import image
from repro.datafile import Row, columns, expected_folder, read_once, rows
from repro.errors import UserError
from repro.recipe import Precision

AMPERE = (8, 0)  # compute capability; the first with TF32 and bf16
GENERATIONS = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")  # in the order they came


@dataclass(frozen=True)
class Gpu:
    """A catalogue row. Peaks are dense, in TFLOP/s, and None where the part has none or no source tells.

    `fp16_tflops` and `bf16_tflops` are tensor core peaks with fp32 accumulation, at `boost_mhz`. A GB is 1e9 bytes.
    """

    name: str
    paper_name: str | None
    driver_names: tuple[str, ...]
    generation: str
    compute_capability: tuple[int, int]
    memory_gb: float
    fp32_tflops: float | None
    tf32_tflops: float | None
    fp16_tflops: float | None
    bf16_tflops: float | None
    boost_mhz: float | None
    bandwidth_gb_s: float | None
    board_power_w: float | None
    link: str
    source: str


@dataclass(frozen=True)
class Device:
    """A GPU of this machine, or a MIG slice of one. `index` counts the visible ones from 0, `number` is NVML's of the
    GPU that it is (part of), in PCI order; `gpu` is None for an unknown one."""

    index: int
    number: int
    uuid: str
    driver_name: str
    gpu: Gpu | None
    memory_bytes: int
    compute_capability: tuple[int, int]

    @property
    def name(self) -> str:
        """The paper's name for it, else ours, else "unknown GPU" with the driver's name."""
        if self.gpu is None:
            return f"unknown GPU ({self.driver_name})"
        return self.gpu.paper_name or self.gpu.name

    @property
    def sliced(self) -> bool:
        """Whether it is a MIG slice of a GPU."""
        return self.uuid.startswith("MIG-")

    @property
    def cuda_name(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it where CUDA_DEVICE_ORDER is PCI_BUS_ID. DeepSpeed reads numbers there, so
        a whole GPU is named by its own; slices of a GPU share theirs."""
        return self.uuid if self.sliced else str(self.number)


@dataclass(frozen=True)
class Host:
    """The computer around the GPUs. None where the system does not tell."""

    cpu: str
    physical_cores: int | None
    memory_bytes: int
    os: str
    kernel: str


@read_once
def catalogue() -> tuple[Gpu, ...]:
    """The GPUs of expected/gpus.csv. Raises UserError where the file is broken or two GPUs share a name."""
    seen: dict[Hashable, int] = {}
    found = []
    for row in rows(expected_folder() / "gpus.csv", columns(Gpu)):
        gpu = _gpu(row)
        for name in sorted({_plain(name) for name in _names(gpu)}):
            row.once("name", name, seen)
        found.append(gpu)
    return tuple(found)


def find(name: str) -> Gpu | None:
    """The GPU of this name (ours, the paper's or the driver's, in any case), or None for an unknown one."""
    plain = _plain(name)
    return next((gpu for gpu in catalogue() if plain in map(_plain, _names(gpu))), None)


def names() -> frozenset[str]:
    """What the files of expected/ call the GPUs: the paper's names, ours where it has none."""
    return frozenset(gpu.paper_name or gpu.name for gpu in catalogue())


def known_gpu(row: Row) -> None:
    """Raises UserError where the row's GPU is none of these."""
    row.choice("gpu", names(), "a GPU of gpus.csv")


def generation(device: Device) -> str:
    """A GPU's generation; an unknown GPU has that of the newest compute capability of the catalogue up to its own."""
    if device.gpu is not None:
        return device.gpu.generation
    older = [gpu for gpu in catalogue() if gpu.compute_capability <= device.compute_capability]
    if not older:
        return f"older than {GENERATIONS[0]}"
    return max(older, key=lambda gpu: gpu.compute_capability).generation


def peak_flops(gpu: Gpu | None, precision: Precision, tf32: bool) -> float | None:
    """Dense peak in FLOP/s; None for an unknown GPU, a precision that it lacks, or a peak without a source.

    `tf32` matters to fp32 on Ampere and newer; Volta and Turing have no TF32, whatever is asked.
    """
    if gpu is None:
        return None
    peak = {"fp16": gpu.fp16_tflops, "bf16": gpu.bf16_tflops, "fp32": gpu.fp32_tflops}[precision]
    if precision == "fp32" and tf32 and _ampere_or_newer(gpu.generation):
        peak = gpu.tf32_tflops
    return None if peak is None else peak * 1e12


def mask(devices: Sequence[Device], variable: str | None) -> list[Device]:
    """What the value of CUDA_VISIBLE_DEVICES leaves of the devices, as CUDA reads it.

    None leaves all. Entries are numbers of GPUs, of which a number in MIG mode is the first slice, or UUIDs or their
    beginnings; one that names no device hides itself and the rest, one given twice hides all.
    """
    if variable is None:
        return list(devices)
    chosen: list[Device] = []
    for entry in variable.split(","):
        device = _named_by(entry.strip(), devices)
        if device is None:
            break
        if device in chosen:
            return []
        chosen.append(device)
    return [replace(device, index=index) for index, device in enumerate(chosen)]


def host() -> Host:
    """This computer, as its system describes it."""
    return Host(
        cpu=_cpu_model(),
        physical_cores=_physical_cores(),
        memory_bytes=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        os=_os_name(),
        kernel=platform.release(),
    )


def parse_gpus(text: str, available: int) -> list[int]:
    """The indices that `--gpus` asks for among `available` GPUs.

    `all`, or a bare number, which is a count as in Docker, or indices: `0,1`, `device=0`, `device=0,2`.
    Raises UserError for anything else, and for GPUs that are not there.
    """
    asked = text.strip().strip('"')
    count = re.fullmatch(r"[+-]?[0-9]{1,9}", asked)
    listed = asked.removeprefix("device=")
    if not (asked == "all" or count or re.fullmatch(r"-?[0-9]{1,9}( *, *-?[0-9]{1,9})*", listed)):
        raise UserError(f"--gpus {text}: expected all, a count such as 2, or indices such as 0,1 or device=0")
    if available == 0:
        raise UserError(f"--gpus {text}: no GPU is visible here; {image.how_to_see_a_gpu()}")
    if asked == "all":
        return list(range(available))
    if count:
        return list(range(_count(int(asked), text, available)))
    indices = [int(index) for index in listed.split(",")]
    for position, index in enumerate(indices):
        if not 0 <= index < available:
            raise UserError(f"--gpus {text}: there is no GPU {index}; {_here(available)}")
        if index in indices[:position]:
            raise UserError(f"--gpus {text}: GPU {index} is listed twice; list each GPU once")
    return indices


def _count(count: int, text: str, available: int) -> int:
    if count < 1:
        hint = "; for the GPU with index 0 write device=0" if count == 0 else ""
        raise UserError(f"--gpus {text}: a bare number is a count and starts at 1{hint}")
    if count > available:
        raise UserError(f"--gpus {text}: more GPUs than there are; {_here(available)}")
    return count


def _here(available: int) -> str:
    if available == 1:
        return "1 is visible here, with index 0"
    return f"{available} are visible here, with indices 0 to {available - 1}"


def _gpu(row: Row) -> Gpu:
    generation = row.choice("generation", GENERATIONS)
    peaks = {}
    for column in ("tf32_tflops", "bf16_tflops"):
        peaks[column] = row.parse(column, _figure, "a positive number or nothing")
        if peaks[column] is not None and not _ampere_or_newer(generation):
            row.problem(column, f"nothing, as {generation} has no TF32 and no bf16")
    return Gpu(
        name=row.text("name"),
        paper_name=row["paper_name"] or None,
        driver_names=tuple(name.strip() for name in row.text("driver_names").split(";")),
        generation=generation,
        compute_capability=row.parse("compute_capability", _capability, "major.minor, such as 8.6"),
        memory_gb=row.parse("memory_gb", _positive, "a positive number"),
        fp32_tflops=row.parse("fp32_tflops", _figure, "a positive number or nothing"),
        fp16_tflops=row.parse("fp16_tflops", _figure, "a positive number or nothing"),
        **peaks,
        boost_mhz=row.parse("boost_mhz", _figure, "a positive number or nothing"),
        bandwidth_gb_s=row.parse("bandwidth_gb_s", _figure, "a positive number or nothing"),
        board_power_w=row.parse("board_power_w", _figure, "a positive number or nothing"),
        link=row.parse("link", _link, "a link such as PCIe 4.0 x16 or NVLink 600 GB/s; PCIe 4.0 x16"),
        source=row.text("source"),
    )


def _ampere_or_newer(generation: str) -> bool:
    return GENERATIONS.index(generation) >= GENERATIONS.index("Ampere")


def _capability(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text)
    if not match:
        raise ValueError
    return int(match[1]), int(match[2])


def _link(text: str) -> str:
    if not re.fullmatch(r"(NVLink( bridge)? [0-9]+(\.[0-9]+)? GB/s( \(pairs\))?; )?PCIe [345]\.0 x16", text):
        raise ValueError
    return text


def _figure(text: str) -> float | None:
    return _positive(text) if text else None


def _positive(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", text) or float(text) == 0:
        raise ValueError
    return float(text)


def _names(gpu: Gpu) -> list[str]:
    return [name for name in (gpu.name, gpu.paper_name, *gpu.driver_names) if name]


def _plain(name: str) -> str:
    # Drivers before 470 leave out the maker's name.
    return " ".join(name.casefold().split()).removeprefix("nvidia ")


def _named_by(entry: str, devices: Sequence[Device]) -> Device | None:
    if re.fullmatch(r"[0-9]{1,9}", entry):
        return next((device for device in devices if device.number == int(entry)), None)
    matches = [device for device in devices if entry and device.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _cpu_model() -> str:
    try:
        names = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = None
    return names[1].strip() if names else platform.processor() or platform.machine()


def _physical_cores() -> int | None:
    try:
        import psutil
    except ImportError:
        return None
    return psutil.cpu_count(logical=False)


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform()
