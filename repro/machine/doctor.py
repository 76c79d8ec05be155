"""Checks of this machine: its GPUs, the image, torch, kernels, TF32, shared memory and the installed packages."""

from __future__ import annotations

import contextlib
import csv
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import installation
from ..console import DATA, UserError
from ..installation import KERNELS, installed
from ..paper.gpus import GENERATIONS, TURING
from . import build_cache, nvml, packages, support
from .devices import Device, generation_of

_WITHOUT_VOLTA = 13  # from this CUDA on
_SHARED_BYTES = 2**30  # more than the 64 MiB that a container has by default


@dataclass(frozen=True)
class Finding:
    """The result of a check: the state in words, empty where it is not worth any, and advice on what to do about it.
    Advice is about a fault, unless this is a `hint`."""

    state: str
    advice: str = ""
    hint: bool = False

    @property
    def fault(self) -> str:
        """Return the advice if it is about a fault, else an empty text."""
        return "" if self.hint else self.advice


def examine() -> dict[str, Finding]:
    """Return all findings by the names of their checks, without starting CUDA or importing torch. Raises UserError for
    a wrong variable."""
    try:
        devices, unusable = nvml.visible_devices(), ""
    except UserError as error:
        devices, unusable = [], str(error)
    damages = installation.damages() if installation.installed_locks() else {}
    kernels = [f"{package} {version}" for package in (*KERNELS, "flash-attn-4") if (version := installed(package))]
    image = _image(devices)
    torch = _advice(without_cuda, () if image.advice else devices)  # the right image has the right torch
    return {
        "GPUs": Finding(_gpus(devices), unusable),
        "image": image,
        "torch": Finding(f"torch {installed('torch') or 'is not installed'}", torch),
        "kernels": Finding(f"kernels {', '.join(kernels) or 'of torch alone'}"),
        "TF32": Finding(f"TF32 {_tf32(devices)}"),
        "shared memory": Finding("", _shared_memory(len(devices)), hint=True),
        "packages": Finding("", installation.summary(damages) or ""),
    }


def summary(findings: dict[str, Finding]) -> str:
    """Return the states of all checks in one line."""
    return "; ".join(found.state for found in findings.values() if found.state)


def _advice(check: Callable[[Device], str], devices: Iterable[Device]) -> str:
    """Return what a check advises for GPUs, once for GPUs of one type."""
    return "; ".join(filter(None, dict.fromkeys(map(check, devices))))


def _gpus(devices: Sequence[Device]) -> str:
    names = [device.name for device in devices]
    types = {device.name: generation_of(device) for device in devices}
    listed = ", ".join(f"{names.count(name)} x {name} ({generation})" for name, generation in types.items())
    return f"{listed}, driver {nvml.driver() or 'unknown'}" if listed else "no GPU is visible"


def _shared_memory(gpus: int) -> str:
    """Return advice where /dev/shm is small for communication among this many GPUs."""
    size = 0
    with contextlib.suppress(OSError):  # there is none
        size = shutil.disk_usage("/dev/shm").total
    if gpus < 2 or size >= _SHARED_BYTES:
        return ""
    return (
        f"/dev/shm has {size / 2**20:.0f} MiB, and NCCL may want 1 GiB among {gpus} GPUs without NVLink: in Docker "
        "--shm-size 1g gives it"
    )


def _tf32(devices: Sequence[Device]) -> str:
    capability = devices[0].compute_capability if devices else None
    if support.tf32_allowed(capability):
        return "on with free lunch"
    if capability is None:
        return "off, without a GPU"
    return "off" if capability >= support.SINCE else "off, the GPU has none"


def without_cuda(device: Device) -> str:
    """Return why the installed torch cannot use this GPU, and the fix; empty where it was built for such GPUs and
    drivers."""
    torch = installed("torch") or ""
    cuda, supported = build_cache.cuda_of_torch(), nvml.cuda()
    if torch.endswith("+cpu"):
        return (
            f"torch {torch} was built without CUDA, and there is a GPU, {device.name}: set up the GPU's stack, "
            "requirements.lock, with ./run_all.sh, or hide the GPU with CUDA_VISIBLE_DEVICES="
        )
    if cuda is None or cuda[0] < _WITHOUT_VOLTA:
        return ""
    if device.compute_capability < TURING:
        return (
            f"torch {torch} was built for CUDA {cuda[0]}, which serves no GPU older than Turing, and {device.name} is "
            f"{generation_of(device)}: {_older_stack('volta')}"
        )
    if supported is not None and supported[0] < cuda[0]:
        return (
            f"torch {torch} was built for CUDA {cuda[0]}, and driver {nvml.driver()} supports CUDA {supported[0]}."
            f"{supported[1]}: update the driver, or {_older_stack('paper')}"
        )
    return ""


def _older_stack(image: str) -> str:
    if packages.image_target() is not None:
        return f"docker build --target {image} --tag repro:{image} . makes an image for CUDA 12"
    return "set up locks/volta.lock, for CUDA 12.8, with ./run_all.sh"


# --- Images ---

Capabilities = tuple[tuple[int, int], ...]


def images() -> dict[str, Capabilities]:
    """Return the images of images/generations.csv, each with the compute capabilities that its kernels are for."""
    with (DATA / "images" / "generations.csv").open(encoding="utf-8") as file:
        return {row["name"]: _capabilities(row["capabilities"]) for row in csv.DictReader(file)}


def _capabilities(words: str) -> Capabilities:
    return tuple(divmod(int(word), 10) for word in words.split())


def _image(devices: Sequence[Device]) -> Finding:
    target = packages.image_target()
    if target is None:
        return Finding("no image")
    if target not in (known := images()):
        raise UserError(f"REPRO_IMAGE={target}: expected one of {', '.join(known)}; images set it, leave it alone")
    return Finding(f"image {target}", _advice(lambda device: _mismatch(device, target, known), devices))


def _mismatch(device: Device, target: str, known: dict[str, Capabilities]) -> str:
    """Return why this image does not suit this GPU, and which one does; empty where it does."""
    compiled, generation = _compiled() or known[target], generation_of(device)
    right, (major, minor) = generation.lower(), device.compute_capability
    meant = target == right or target not in map(str.lower, GENERATIONS)
    if meant and _serves(compiled, device):
        return ""
    if meant and _serves(known[target], device):  # it was compiled for less than its target is by default
        options = f"--target {target} --build-arg ARCHITECTURES={major}{minor} --tag repro"
    else:
        options = f"--target {right} --tag repro:{right}" if generation in GENERATIONS else ""
    way_out = f"docker build {options} . makes the right one" if options else "no image is for such a GPU"
    listed = ", ".join(f"{each[0]}.{each[1]}" for each in compiled)
    return (
        f"this image, {target}, is for {f'compute capability {listed}' if listed else 'machines without a GPU'}, and "
        f"{device.name} is {generation}{f', {major}.{minor}' if generation in GENERATIONS else ''}: {way_out}"
    )


def _compiled() -> Capabilities:
    """Return the compute capabilities that images/kernels.sh compiled this image's kernels for; empty in an image
    without kernels."""
    listed = Path(packages.IMAGE_KERNELS, "architectures.txt")
    return _capabilities(listed.read_text()) if listed.exists() else ()


def _serves(compiled: Capabilities, device: Device) -> bool:
    """Return whether kernels for these capabilities run on a GPU: code for 8.0 runs on 8.6, but not the reverse."""
    major, minor = device.compute_capability
    return any(known[0] == major and known[1] <= minor for known in compiled)
