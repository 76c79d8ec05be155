"""What a GPU of this machine is, and which of them CUDA_VISIBLE_DEVICES leaves. nvml.py finds them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..paper.gpus import GENERATIONS, Gpu, catalogue


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
        return self.gpu.called

    @property
    def sliced(self) -> bool:
        """Whether it is a MIG slice of a GPU."""
        return self.uuid.startswith("MIG-")

    @property
    def cuda_name(self) -> str:
        """What CUDA_VISIBLE_DEVICES calls it where CUDA_DEVICE_ORDER is PCI_BUS_ID. DeepSpeed reads numbers there, so
        a whole GPU is named by its own; slices of a GPU share theirs."""
        return self.uuid if self.sliced else str(self.number)


def every_device(devices: Sequence[Device]) -> str:
    """Return the GPUs, which are of one type, with their number: 4 x H100; without one the CPU."""
    return f"{len(devices)} x {name_of(devices)}" if devices else name_of(devices)


def name_of(devices: Sequence[Device]) -> str:
    """What records call the device of a run on these, which are of one kind; none means the CPU."""
    return devices[0].name if devices else "cpu"


def gpu_of(devices: Sequence[Device]) -> Gpu | None:
    """The catalogue's entry of them; None for the CPU, and for an unknown GPU."""
    return devices[0].gpu if devices else None


def capability_of(devices: Sequence[Device]) -> tuple[int, int] | None:
    """Their compute capability; None for the CPU."""
    return devices[0].compute_capability if devices else None


def generation_of(device: Device) -> str:
    """A GPU's generation; an unknown GPU has that of the newest compute capability of the catalogue up to its own, as
    what is compiled for that runs on it. It does not where the major number is another."""
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


def _named_by(entry: str, devices: Sequence[Device]) -> Device | None:
    if re.fullmatch(r"[0-9]{1,9}", entry):
        return next((device for device in devices if device.number == int(entry)), None)
    matches = [device for device in devices if entry and device.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None
