"""Speeds of a machine in bytes and FLOPs a second, from the catalogue's figures and links or from probes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from msgspec import Meta

from repro import command
from repro.console import UserError, fits, suggest_names
from repro.formats import LARGEST, SMALLEST
from repro.paper.gpus import CustomGpu, Gpu, catalogue, catalogue_file, find, names, peak_flops
from repro.paper.tables import COUNTS

from ..models.recipe import Precision

Link = Literal["none", "nvlink", "pcie", "network"]
# Compute capabilities with 128 fp32 units per multiprocessor; others have 64 (CUDA programming guide).
# A unit of the MI300X computes as many fp32 values, two at once in each of 64 lanes (CDNA 3 white paper).
_WIDE = {(8, 6), (8, 9), (9, 0), (9, 4), (10, 0), (12, 0), (12, 1)}
# Both directions together, bytes a second (PCI-SIG: 16 lanes of 8, 16 and 32 GT/s).
_PCIE = {"3.0": 32e9, "4.0": 64e9, "5.0": 128e9}
_HBM = {(7, 0), (8, 0), (9, 0), (9, 4), (10, 0)}  # compute capabilities of GPUs with stacked memory
_NETWORK = 25e9  # InfiniBand between nodes, 200 Gb/s: the lower figure in the paper's Appendix B
# The paper's Appendix B: pairs of A6000 have a bridge; it does not mention one for its RTX 3090.
_BRIDGED = ("RTX A6000",)


_Measured = Annotated[float, Meta(ge=SMALLEST, le=LARGEST)]


@dataclass(frozen=True)
class Probed:
    """Measurements by probes, see repro.measure.probes: FLOP/s of matrix products; bytes/s of copies, of copies to the
    host, and of a ring between devices; seconds of an almost empty kernel and of the smallest exchange of shards."""

    fp32: _Measured
    tf32: _Measured | None
    fp16: _Measured
    bf16: _Measured | None
    copy: _Measured
    host: _Measured
    launch: _Measured
    ring: _Measured | None
    latency: _Measured | None


@dataclass(frozen=True)
class Machine:
    """`gpus` of one kind on each of `nodes`. If probed, the measurements replace the data sheet's figures, up to these
    figures. `network` is between nodes, in bytes a second in one direction."""

    gpu: Gpu
    gpus: int
    nodes: int = 1
    probed: Probed | None = None
    network: float = _NETWORK

    @property
    def world(self) -> int:
        return self.gpus * self.nodes

    @property
    def held_out(self) -> bool:
        """Return whether machines of this size were held out: one node of up to 8 GPUs, by data sheet. The paper has no
        larger node, no run on several nodes, and no probed machine."""
        return self.nodes == 1 and self.gpus <= max(COUNTS) and self.probed is None

    def peak(self, precision: Precision, tf32: bool) -> float:
        """Return the dense FLOP/s of one GPU. Raise UserError if no source states it."""
        found = peak_flops(self.gpu, precision, tf32) if self.capability else None
        if self.probed is not None:
            name = "tf32" if precision == "fp32" and tf32 and self.probed.tf32 else precision
            found = _lower(getattr(self.probed, name), found)
        if found is None:
            raise self._lacking(f"{precision} peak")
        return found

    @property
    def lanes(self) -> float:
        """Return one GPU's FLOP/s without tensor cores where loads or special functions are the limit: a multiprocessor
        has as many units for these with 64 fp32 units as with 128 (CUDA programming guide, arithmetic instructions)."""
        return self.peak("fp32", False) * (0.5 if self.wide_lanes else 1.0)

    @cached_property
    def bandwidth(self) -> float:
        """Return the bytes a second of one GPU's memory. Raise UserError if no source states it."""
        if self.probed is not None:
            return _lower(self.probed.copy, self.gpu.bandwidth_gb_s and self.gpu.bandwidth_gb_s * 1e9)
        if self.gpu.bandwidth_gb_s is None:
            raise self._lacking("bandwidth_gb_s")
        return self.gpu.bandwidth_gb_s * 1e9

    @property
    def capability(self) -> tuple[int, int] | None:
        """Return a GPU's compute capability; None for a CPU."""
        return self.gpu.compute_capability if self.gpu.generation != "CPU" else None

    @property
    def wide_lanes(self) -> bool:
        """Return whether a multiprocessor has 128 fp32 units."""
        return self.capability in _WIDE

    @property
    def geforce(self) -> bool:
        """Return whether it is a GeForce, whose tensor cores add half-precision products at half their rate (data
        sheets): code reaches that rate more easily than other GPUs', and boards clock above their data sheet."""
        return self.gpu.name.startswith(("RTX 20", "RTX 30", "RTX 40", "RTX 50"))

    @property
    def has_tf32(self) -> bool:
        """Return whether it has TF32, by its probes or else by its data sheet."""
        return (self.probed.tf32 if self.probed else self.gpu.tf32_tflops) is not None

    @property
    def stacked(self) -> bool:
        """Return whether its memory is HBM."""
        return self.gpu.compute_capability in _HBM

    @property
    def kind(self) -> str:
        """Return the kind of GPU: its architecture and its memory, such as Ampere with GDDR."""
        return f"{self.gpu.generation} with {'HBM' if self.stacked else 'GDDR'}"

    @cached_property
    def link(self) -> Link:
        """Return what connects the GPUs: NVLink or AMD's link, by switches or a bridge between two; PCIe; a network."""
        if self.world == 1:
            return "none"
        if self.nodes > 1:
            return "network"
        if "NVLink bridge" in self.gpu.link:
            bridged = self.gpu.name in _BRIDGED or isinstance(self.gpu, CustomGpu)
            return "nvlink" if self.world == 2 and bridged else "pcie"
        return "nvlink" if self._nvlink else "pcie"

    @cached_property
    def link_bytes(self) -> float:
        """Return the link's bytes a second in one direction."""
        if self.probed is not None and self.probed.ring is not None:
            return _lower(self.probed.ring, self._nvlink or self._pcie)  # measured, for any kind of link
        if self.link == "nvlink":
            assert self._nvlink is not None
            return self._nvlink
        pcie = _lower(self.host_bytes, self._pcie)
        return min(self.network, pcie) if self.link == "network" else pcie  # what leaves a node passes its PCIe

    @property
    def latency(self) -> float:
        """Return the seconds of the smallest exchange; 0 if not measured: the paper's cells do not show it."""
        return (self.probed.latency or 0.0) if self.probed else 0.0

    @cached_property
    def host_bytes(self) -> float:
        """Return the bytes a second between a GPU and the host, in one direction."""
        chip = re.search(r"NVLink-C2C ([0-9]+) GB/s", self.gpu.link)
        link = float(chip[1]) * 1e9 / 2 if chip else self._pcie
        return _lower(self.probed.host if self.probed else link, link)

    def _lacking(self, figure: str) -> UserError:
        return UserError(f"{self.gpu.name} has no {figure} in {catalogue_file()}, which a prediction needs: add it")

    @property
    def _nvlink(self) -> float | None:
        """Return the bytes a second of NVLink, or AMD's link, in one direction, by the data sheet; None without one."""
        found = re.search(r"(?:NVLink|Infinity Fabric) (?:bridge )?([0-9.]+) GB/s", self.gpu.link)
        return float(found[1]) * 1e9 / 2 if found else None

    @property
    def _pcie(self) -> float | None:
        """Return PCIe's bytes a second in one direction, by the data sheet; None without PCIe."""
        found = re.search(r"PCIe ([0-9.]+) x16", self.gpu.link)
        return _PCIE[found[1]] / 2 if found else None


def _lower(measured: float | None, promised: float | None) -> float:
    """Return the measured rate, at most the data sheet's if there is one."""
    assert measured is not None
    return measured if promised is None else min(measured, promised)


def gpu_named(name: str) -> Gpu:
    """Return the catalogue's GPU. Raise UserError, with suggestions, for a name that is unknown or ambiguous."""
    found = find(name)
    if found is not None:
        return found
    meant = [gpu.name for gpu in catalogue() if fits(name, " ".join(names(gpu)))]
    if len(meant) > 1:
        raise UserError(f"GPU {name!r} may be any of {', '.join(meant)}: name one of these")
    meant = meant or suggest_names(name, [gpu.name for gpu in catalogue()])
    hint = f"did you mean {', '.join(meant)}? " if meant else ""
    raise UserError(
        f"unknown GPU {name!r}: {hint}{command()} list gpus has all, and a row in {catalogue_file()} adds one; "
        "--gpu also takes a FILE.toml that describes one of your own"
    )
