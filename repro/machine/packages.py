"""What is installed in this Python, and the container image it is in."""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, distributions, version

from ..console import UserError

TOOLS = ("pytest", "pytest-benchmark", "tabulate")  # what measures and tells, and no trial imports
# Those that make a difference to what is measured, or to how.
PACKAGES = (
    "torch",
    "torchvision",
    "transformers",
    "accelerate",
    "deepspeed",
    "flash-attn",
    "mamba-ssm",
    "causal-conv1d",
    "triton",
    "timm",
    *TOOLS,
    "numpy",
    "nvidia-ml-py",
)
KERNELS = ("flash-attn", "mamba-ssm", "causal-conv1d")  # built from source, beside torch's own
LIBRARIES = "nvidia-"  # how those of CUDA's begin: cuBLAS, cuDNN, NCCL and others that torch loads


def matters(package: str) -> bool:
    """Whether another version of it makes a difference to a measurement."""
    return package in PACKAGES or package.startswith(LIBRARIES)


def installed(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def installed_packages() -> dict[str, str]:
    """Every installed distribution and its version, names normalised as locks write them."""
    found: dict[str, str] = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(normalised(name), distribution.version)
    return found


def normalised(package: str) -> str:
    """A distribution's name as locks write it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def without_build(version: str) -> str:
    """A version without what names its build, such as "+cpu"."""
    return version.partition("+")[0]


def numbers(version: str) -> tuple[int, ...]:
    """A version's first three numbers, by which versions are ordered."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


IMAGE_KERNELS = "/opt/kernels"  # what an image has compiled in, which Python finds before its stack


def image_target() -> str | None:
    """The target of the Dockerfile that the image was built from; None outside of an image."""
    return os.environ.get("REPRO_IMAGE") or None


def image_architectures() -> tuple[tuple[int, int], ...]:
    """The compute capabilities that an image for several generations was compiled for; empty where it does not say.
    Raises UserError where it says something else."""
    words = os.environ.get("REPRO_ARCHITECTURES", "").split()
    if wrong := [word for word in words if not re.fullmatch("[0-9]{2,3}", word)]:
        raise UserError(f"REPRO_ARCHITECTURES: {wrong[0]} is no compute capability such as 80; images set it")
    return tuple(divmod(int(word), 10) for word in words)


def how_to_see_a_gpu() -> str:
    """What to do where no GPU is visible."""
    if image_target() is None:
        return "check nvidia-smi and CUDA_VISIBLE_DEVICES, or leave --gpus out to run on the CPU"
    return (
        "Docker takes its own --gpus before the image's name, docker run --gpus all repro (with CDI: "
        "--device nvidia.com/gpu=all); or add --allow-cpu to run on the CPU"
    )
