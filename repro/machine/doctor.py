"""A check of this machine: its GPUs, the installed kernels, TF32, and whether the image suits the GPUs."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .. import installation
from ..console import UserError
from ..installation import KERNELS, installed
from ..paper.gpus import GENERATIONS, TURING
from . import build_cache, nvml, packages, support
from .devices import Device, generation_of

# The Dockerfile's targets, and the GPU generations that the kernels and the torch of each support.
SERVES: dict[str, tuple[str, ...]] = {
    **{generation.lower(): (generation,) for generation in GENERATIONS},
    "cpu": (),
    "paper": GENERATIONS[: GENERATIONS.index("Blackwell")],  # torch 2.3.1 supports nothing newer
    "latest": GENERATIONS[GENERATIONS.index("Turing") :],  # CUDA 13 supports nothing older
    "every": GENERATIONS[GENERATIONS.index("Turing") :],
}
_WITHOUT_VOLTA = 13  # from this CUDA on
_SHARED_BYTES = 2**30  # more than the 64 MiB that a container has by default


@dataclass(frozen=True)
class Health:
    """The result of the check. `kernels` are those besides torch's own. `complaint` says what is wrong and how to fix
    it, `advice` what several GPUs may lack; both may be None."""

    gpus: tuple[str, ...]
    driver: str | None
    image: str | None
    torch: str | None
    kernels: tuple[str, ...]
    tf32: str
    complaint: str | None
    advice: str | None

    @property
    def line(self) -> str:
        """Return the result in one line."""
        parts = [
            f"{', '.join(self.gpus)}, driver {self.driver or 'unknown'}" if self.gpus else "no GPU is visible",
            f"image {self.image}" if self.image else "no image",
            f"torch {self.torch or 'is not installed'}",
            f"kernels {', '.join(self.kernels) or 'of torch alone'}",
            f"TF32 {self.tf32}",
        ]
        return "; ".join([*parts, *filter(None, (self.advice, self.complaint))])


def examine() -> Health:
    """Check this machine without starting CUDA or importing torch. Raises UserError for a wrong variable."""
    devices, unusable = _devices()
    first = devices[0] if devices else None
    counted = {device.name: device for device in devices}
    return Health(
        gpus=tuple(
            f"{sum(other.name == name for other in devices)} x {name} ({generation_of(device)})"
            for name, device in counted.items()
        ),
        driver=None if unusable else nvml.driver(),
        image=_image(),
        torch=installed("torch"),
        kernels=tuple(_kernels(first)),
        tf32=_tf32(first),
        complaint=unusable or next(filter(None, map(_mismatch, devices)), None) or _damage(),
        advice=shared_memory_advice(_shared_memory(), len(devices)),
    )


def _damage() -> str | None:
    """Describe damaged packages and their repair; None where there are none, or no lock was installed here."""
    damages = installation.damages() if installation.installed_locks() else ()
    return installation.summary(damages)


def _devices() -> tuple[list[Device], str | None]:
    """Return the visible GPUs and None; or no GPU, and why those that exist cannot be used."""
    try:
        return nvml.visible_devices(), None
    except UserError as error:
        return [], str(error)


def shared_memory_advice(size: int, gpus: int) -> str | None:
    """Return advice where /dev/shm (`size` bytes) is small for communication among `gpus` GPUs; None where not."""
    if gpus < 2 or size >= _SHARED_BYTES:
        return None
    return (
        f"/dev/shm has {size / 2**20:.0f} MiB, and NCCL may want 1 GiB among {gpus} GPUs without NVLink: in Docker "
        "--shm-size 1g gives it"
    )


def _shared_memory() -> int:
    """Return the size of /dev/shm in bytes."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:  # there is none
        return 0
    return found.f_frsize * found.f_blocks


def _kernels(device: Device | None) -> list[str]:
    found = [f"{package} {version}" for package in (*KERNELS, "flash-attn-4") if (version := installed(package))]
    if installed("deepspeed"):
        if build_cache.built_in("fused_adam") and build_cache.built_in("cpu_adam"):
            found.append("DeepSpeed's Adam, built in")
        elif device is not None:
            lacking = build_cache.obstacle()
            found.append(f"DeepSpeed's Adam, {f'not to be built: {lacking}' if lacking else 'built when needed'}")
    return found


def _tf32(device: Device | None) -> str:
    allowed = support.tf32_allowed(device.compute_capability if device else None)
    if device is None:
        return "off, without a GPU"
    if allowed:
        return "on with free lunch"
    return "off" if device.compute_capability >= support.SINCE else "off, the GPU has none"


def _image() -> str | None:
    target = packages.image_target()
    if target not in (None, *SERVES):
        raise UserError(f"REPRO_IMAGE={target}: expected one of {', '.join(SERVES)}; images set it, leave it alone")
    return target


def without_cuda(device: Device) -> str | None:
    """Return why the installed torch cannot use this GPU, and the fix; None where it was built for such GPUs and
    drivers."""
    torch = installed("torch") or ""
    cuda, supported = build_cache.cuda_of_torch(), nvml.cuda()
    if torch.endswith("+cpu"):
        return (
            f"torch {torch} was built without CUDA, and there is a GPU, {device.name}: set up the GPU's stack, "
            "requirements.lock, with ./run_all.sh, or hide the GPU with CUDA_VISIBLE_DEVICES="
        )
    if cuda is None or cuda[0] < _WITHOUT_VOLTA:
        return None
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
    return None


def _older_stack(image: str) -> str:
    if packages.image_target() is not None:
        return f"docker build --target {image} --tag repro:{image} . makes an image for CUDA 12"
    return "set up locks/volta.lock, for CUDA 12.8, with ./run_all.sh"


def _mismatch(device: Device) -> str | None:
    """Return why this stack or image does not suit this GPU, and which one does; None where it does."""
    target = packages.image_target()
    if target is None:
        return without_cuda(device)
    generation = generation_of(device)
    if generation in SERVES[target]:
        return _not_compiled_for(device, target) or without_cuda(device)
    right = generation.lower()
    way_out = f"docker build --target {right} --tag repro:{right} . makes the right one"
    if generation not in GENERATIONS:
        way_out = "no image is for such a GPU"
    return (
        f"this image, {target}, is for {', '.join(SERVES[target]) or 'machines without a GPU'}, and {device.name} is "
        f"{generation}: {way_out}"
    )


def _not_compiled_for(device: Device, target: str) -> str | None:
    """Return why an image that was compiled for some GPUs only does not suit this one; None where it does. Code for 8.0
    also runs on 8.6, but not the reverse."""
    compiled, (major, minor) = packages.image_architectures(), device.compute_capability
    if not compiled or any(known[0] == major and known[1] <= minor for known in compiled):
        return None
    listed = ", ".join(f"{known[0]}.{known[1]}" for known in compiled)
    return (
        f"this image, {target}, is compiled for compute capability {listed}, and {device.name} has {major}.{minor}: "
        f"docker build --target {target} --build-arg ARCHITECTURES={major}{minor} --tag repro . makes the right one"
    )
