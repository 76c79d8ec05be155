"""What is installed in this Python: which distributions, and of which versions."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distributions, version

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
