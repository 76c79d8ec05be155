"""The packages installed in this Python, and the container image around it."""

from __future__ import annotations

import os
import re

from ..installation import normalised

TOOLS = ("pytest", "pytest-benchmark", "tabulate")  # used to measure and report; no trial imports them
# Packages that affect what is measured, or how.
PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "accelerate",
    "deepspeed",
    "flash-attn",
    "flash-attn-4",
    "mamba-ssm",
    "causal-conv1d",
    "triton",
    "timm",
    *TOOLS,
    "numpy",
    "nvidia-ml-py",
)
LIBRARIES = "nvidia-"  # name prefix of CUDA's libraries: cuBLAS, cuDNN, NCCL and others that torch loads


def matters(package: str) -> bool:
    """Return whether a package's version affects a measurement."""
    return package in PACKAGES or package.startswith(LIBRARIES)


def installed_packages() -> dict[str, str]:
    """Return every installed distribution and its version, with names normalised as in locks."""
    from importlib.metadata import distributions  # 0.06 s, which what only reads saves

    found: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(normalised(name), distribution.version)
    return found


def without_build(version: str) -> str:
    """Return a version without its build, such as "+cpu"."""
    return version.partition("+")[0]


def numbers(version: str) -> tuple[int, ...]:
    """Return a version's first three numbers, by which versions are ordered."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


IMAGE_KERNELS = "/opt/kernels"  # kernels compiled into an image, which Python finds before its stack


def image_target() -> str | None:
    """Return the Dockerfile target that this image was built from; None outside of an image."""
    return os.environ.get("REPRO_IMAGE") or None


def how_to_see_a_gpu() -> str:
    """Return advice for where no GPU is visible."""
    if image_target() is None:
        return "check nvidia-smi and CUDA_VISIBLE_DEVICES, or add --processes 1 to run on the CPU"
    return (
        "Docker takes its own --gpus before the image's name, docker run --gpus all repro (with CDI: "
        "--device nvidia.com/gpu=all); or add --processes 1 to run on the CPU"
    )
