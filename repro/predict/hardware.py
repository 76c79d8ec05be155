"""What a machine offers, in bytes and FLOPs a second: from the catalogue's figures and the links that it describes, or
as probes measured it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from repro import command
from repro.console import UserError, fits, near
from repro.paper.gpus import Gpu, catalogue, catalogue_file, find, names, peak_flops
from repro.paper.tables import COUNTS

from ..models.recipe import Precision

Link = Literal["none", "switch", "bridge", "pcie", "network"]
# Compute capabilities with 128 fp32 units in each multiprocessor, where others have 64 (CUDA programming guide).
_WIDE = {(8, 6), (8, 9), (9, 0), (10, 0), (12, 0)}
# Both directions together, bytes a second (PCI-SIG: 16 lanes of 8, 16 and 32 GT/s).
_PCIE = {"3.0": 32e9, "4.0": 64e9, "5.0": 128e9}
_HBM = {(7, 0), (8, 0), (9, 0), (10, 0)}  # compute capabilities of the parts with stacked memory
_NETWORK = 25e9  # InfiniBand between nodes, 200 Gb/s, the lower figure of the paper's Appendix B
# The paper's Appendix B: pairs of A6000 are bridged; nothing is said of its RTX 3090.
_BRIDGED = ("RTX A6000",)


@dataclass(frozen=True)
class Probed:
    """What probes measured, see repro.measure.probes: FLOP/s of matrix products, bytes/s of copies, to the host, and of
    a ring between devices, seconds of a kernel that does next to nothing and of the smallest exchange of shards."""

    fp32: float
    tf32: float | None
    fp16: float
    bf16: float | None
    copy: float
    host: float
    launch: float
    ring: float | None
    latency: float | None


@dataclass(frozen=True)
class Machine:
    """`gpus` of one kind on each of `nodes`. Where it was probed, that stands for the data sheet's figures, but never
    above them."""

    gpu: Gpu
    gpus: int
    nodes: int = 1
    probed: Probed | None = None

    @property
    def world(self) -> int:
        return self.gpus * self.nodes

    @property
    def held_out(self) -> bool:
        """Whether predictions for such machines were held against days they were not fitted to: one node of up to 8
        GPUs, by their data sheet. The paper has no more, no several nodes, and nothing that was probed."""
        return self.nodes == 1 and self.gpus <= max(COUNTS) and self.probed is None

    def peak(self, precision: Precision, tf32: bool) -> float:
        """Dense FLOP/s of one GPU. UserError where no source tells."""
        found = peak_flops(self.gpu, precision, tf32) if self.capability else None
        if self.probed is not None:
            name = "tf32" if precision == "fp32" and tf32 and self.probed.tf32 else precision
            found = _lower(getattr(self.probed, name), found)
        if found is None:
            raise self._lacking(f"{precision} peak")
        return found

    @property
    def lanes(self) -> float:
        """FLOP/s of one GPU without tensor cores where loads or special functions set the pace: a multiprocessor has as
        many units for those whether it has 64 for fp32 or 128 (CUDA programming guide, arithmetic instructions)."""
        return self.peak("fp32", False) * (0.5 if self.wide_lanes else 1.0)

    @cached_property
    def bandwidth(self) -> float:
        """Bytes a second of one GPU's memory."""
        if self.probed is not None:
            return _lower(self.probed.copy, self.gpu.bandwidth_gb_s and self.gpu.bandwidth_gb_s * 1e9)
        if self.gpu.bandwidth_gb_s is None:
            raise self._lacking("bandwidth_gb_s")
        return self.gpu.bandwidth_gb_s * 1e9

    @property
    def capability(self) -> tuple[int, int] | None:
        """Of a GPU's; None for a CPU."""
        return self.gpu.compute_capability if self.gpu.generation != "CPU" else None

    @property
    def wide_lanes(self) -> bool:
        """Whether a multiprocessor has 128 units for fp32."""
        return self.capability in _WIDE

    @property
    def geforce(self) -> bool:
        """Whether its tensor cores add up products of half precision at half their rate, as GeForce's do (data sheets):
        that rate is reached more easily than another GPU's, and boards clock above their data sheet."""
        return self.gpu.name.startswith(("RTX 20", "RTX 30", "RTX 40", "RTX 50"))

    @property
    def has_tf32(self) -> bool:
        """Whether it has TF32, by its data sheet or as it was probed."""
        return (self.probed.tf32 if self.probed else self.gpu.tf32_tflops) is not None

    @property
    def stacked(self) -> bool:
        """Whether its memory is HBM."""
        return self.gpu.compute_capability in _HBM

    @cached_property
    def link(self) -> Link:
        """What joins the GPUs: NVLink through switches, a bridge between two, PCIe, or a network."""
        if self.world == 1:
            return "none"
        if self.nodes > 1:
            return "network"
        if "NVLink bridge" in self.gpu.link:
            return "bridge" if self.world == 2 and self.gpu.name in _BRIDGED else "pcie"
        return "switch" if "NVLink" in self.gpu.link else "pcie"

    @cached_property
    def link_bytes(self) -> float:
        """Bytes a second of the link in one direction."""
        if self.probed is not None and self.probed.ring is not None:
            return _lower(self.probed.ring, self._nvlink or self._pcie)  # whatever joins these: it was measured
        if self.link in ("switch", "bridge"):
            assert self._nvlink is not None
            return self._nvlink
        return _NETWORK if self.link == "network" else self.host_bytes

    @property
    def latency(self) -> float:
        """Seconds of the smallest exchange; 0 where nobody measured it: the paper's cells do not tell it."""
        return (self.probed.latency or 0.0) if self.probed else 0.0

    @cached_property
    def host_bytes(self) -> float:
        """Bytes a second between a GPU and the host, in one direction."""
        return _lower(self.probed.host if self.probed else self._pcie, self._pcie)

    def _lacking(self, figure: str) -> UserError:
        return UserError(f"{self.gpu.name} has no {figure} in {catalogue_file()}, which a prediction needs: add it")

    @property
    def _nvlink(self) -> float | None:
        """Bytes a second in one direction, by the data sheet; None where it names none."""
        found = re.search(r"NVLink (?:bridge )?([0-9.]+) GB/s", self.gpu.link)
        return float(found[1]) * 1e9 / 2 if found else None

    @property
    def _pcie(self) -> float | None:
        """The same of PCIe."""
        found = re.search(r"PCIe ([0-9.]+) x16", self.gpu.link)
        return _PCIE[found[1]] / 2 if found else None


def _lower(measured: float | None, promised: float | None) -> float:
    """No faster than the data sheet, where there is one."""
    assert measured is not None
    return measured if promised is None else min(measured, promised)


def gpu_named(name: str) -> Gpu:
    """The catalogue's GPU. A UserError names those that another name may mean."""
    found = find(name)
    if found is not None:
        return found
    meant = [gpu.name for gpu in catalogue() if fits(name, " ".join(names(gpu)))]
    if len(meant) > 1:
        raise UserError(f"GPU {name!r} may be any of {', '.join(meant)}: name one of these")
    meant = meant or near(name, [gpu.name for gpu in catalogue()])
    hint = f"did you mean {', '.join(meant)}? " if meant else ""
    raise UserError(f"unknown GPU {name!r}: {hint}{command()} gpus lists all, and a row in {catalogue_file()} adds one")
