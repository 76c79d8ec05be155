"""The container image that this process runs in, where it does."""

from __future__ import annotations

import os
import re

from .errors import UserError

KERNELS = "/opt/kernels"  # what an image has compiled in, which Python finds before its stack


def target() -> str | None:
    """The target of the Dockerfile that the image was built from; None outside of an image."""
    return os.environ.get("REPRO_IMAGE") or None


def architectures() -> tuple[tuple[int, int], ...]:
    """The compute capabilities that an image for several generations was compiled for; empty where it does not say.
    Raises UserError where it says something else."""
    words = os.environ.get("REPRO_ARCHITECTURES", "").split()
    if wrong := [word for word in words if not re.fullmatch("[0-9]{2,3}", word)]:
        raise UserError(f"REPRO_ARCHITECTURES: {wrong[0]} is no compute capability such as 80; images set it")
    return tuple(divmod(int(word), 10) for word in words)


def how_to_see_a_gpu() -> str:
    """What to do where no GPU is visible."""
    if target() is None:
        return "check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave --gpus out to run on the CPU"
    return (
        "Docker takes its own --gpus before the image's name, docker run --gpus all repro (with CDI: "
        "--device nvidia.com/gpu=all); or add --allow-cpu to run on the CPU"
    )
