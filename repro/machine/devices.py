"""The GPUs of a machine as data, and the selection that CUDA_VISIBLE_DEVICES makes. nvml.py finds the GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..paper.gpus import GENERATIONS, Gpu, catalogue


@dataclass(frozen=True)
class Device:
    """A GPU of this machine, or a MIG slice of one. `index` counts the visible ones from 0, `number` is NVML's number
    of the GPU that it is (part of), in PCI order; `gpu` is the catalogue's entry, None for an unknown GPU.
    `memory_source` says whose memory `memory_bytes` is, where the driver does not report the GPU's."""

    index: int
    number: int
    uuid: str
    driver_name: str
    gpu: Gpu | None
    memory_bytes: int
    compute_capability: tuple[int, int]
    memory_source: str = ""

    @property
    def name(self) -> str:
        """Return the paper's name for it, else the catalogue's, else "unknown GPU" with the driver's name."""
        if self.gpu is None:
            return f"unknown GPU ({self.driver_name})"
        return self.gpu.called

    @property
    def sliced(self) -> bool:
        """Return whether it is a MIG slice of a GPU."""
        return self.uuid.startswith("MIG-")

    @property
    def cuda_name(self) -> str:
        """Return its name for CUDA_VISIBLE_DEVICES with CUDA_DEVICE_ORDER=PCI_BUS_ID: the number of a whole GPU, as
        DeepSpeed requires one there, or the UUID of a slice, as slices of a GPU share its number."""
        return self.uuid if self.sliced else str(self.number)


@dataclass(frozen=True)
class Unusable:
    """A GPU of this machine that no process can use, by NVML's number, and the reason in a sentence."""

    number: int
    reason: str


def every_device(devices: Sequence[Device]) -> str:
    """Return the number and name of the GPUs, which are of one type: 4 x H100; cpu where there are none."""
    return f"{len(devices)} x {name_of(devices)}" if devices else name_of(devices)


def name_of(devices: Sequence[Device]) -> str:
    """Return the name of a run's devices in records: that of its GPUs, which are of one type, or cpu."""
    return devices[0].name if devices else "cpu"


def gpu_of(devices: Sequence[Device]) -> Gpu | None:
    """Return the GPUs' entry in the catalogue; None for the CPU and for an unknown GPU."""
    return devices[0].gpu if devices else None


def capability_of(devices: Sequence[Device]) -> tuple[int, int] | None:
    """Return the GPUs' compute capability; None for the CPU."""
    return devices[0].compute_capability if devices else None


def generation_of(device: Device) -> str:
    """Return a GPU's generation: if unknown, that of the newest one in the catalogue with the same major and no higher
    minor compute capability, whose code runs on it; where there is none, a clause that describes it."""
    if device.gpu is not None:
        return device.gpu.generation
    older = [gpu for gpu in catalogue() if gpu.compute_capability <= device.compute_capability]
    if not older:
        return f"older than {GENERATIONS[0]}"
    newest = max(older, key=lambda gpu: gpu.compute_capability)
    if newest.compute_capability[0] != device.compute_capability[0]:
        own = ".".join(map(str, device.compute_capability))
        return f"of compute capability {own}, none of {GENERATIONS[0]}'s to {GENERATIONS[-1]}'s"
    return newest.generation


def mask(devices: Sequence[Device], variable: str | None, unusable: Sequence[Unusable] = ()) -> list[Device]:
    """Return the devices that a value of CUDA_VISIBLE_DEVICES selects, as CUDA reads it.

    None selects all. An entry is a GPU's number, which in MIG mode means its first slice, or the beginning of a UUID.
    An entry that matches no device ends the selection, unless it is that of an unusable GPU; a repeated one makes it
    empty.
    """
    if variable is None:
        return list(devices)
    chosen: list[Device] = []
    for entry in variable.split(","):
        device = _named_by(entry.strip(), devices)
        if device is None:
            if may_name(entry, unusable):
                continue
            break
        if device in chosen:
            return []
        chosen.append(device)
    return [replace(device, index=index) for index, device in enumerate(chosen)]


def may_name(variable: str | None, unusable: Sequence[Unusable]) -> bool:
    """Return whether a value of CUDA_VISIBLE_DEVICES selects an unusable GPU, by its number, or by a UUID, which may be
    its own: the driver does not report it."""
    if variable is None or not unusable:
        return bool(unusable)
    entries, numbers = map(str.strip, variable.split(",")), {str(each.number) for each in unusable}
    return any(entry in numbers or entry.startswith(("GPU-", "MIG-")) for entry in entries)


def _named_by(entry: str, devices: Sequence[Device]) -> Device | None:
    if re.fullmatch(r"[0-9]{1,9}", entry):
        return next((device for device in devices if device.number == int(entry)), None)
    matches = [device for device in devices if entry and device.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
