"""DeepSpeed's Adam for a GPU's states and for those offloaded to the host: compiled with the package, or else here, the
first by an nvcc of torch's CUDA, the second by a C++ compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from .packages import installed, numbers

_HOST_WITHOUT_NVCC_SINCE = (0, 19)  # seen in 0.19.8, and not yet in the paper's 0.14.4
_ANOTHER_MINOR_WILL_DO = 12  # DeepSpeed takes nvcc of another minor version up to CUDA 12, none of a later CUDA


def obstacle() -> str | None:
    """Why DeepSpeed could not have its Adam on a GPU of this machine; None where it can."""
    torch = _cuda_of_torch()
    if built_in("fused_adam") or torch is None or os.environ.get("DS_SKIP_CUDA_CHECK") == "1":
        return None
    nvcc = _cuda_of_nvcc()
    if nvcc is None:
        return "there is no nvcc"
    if nvcc == torch or nvcc[0] == torch[0] <= _ANOTHER_MINOR_WILL_DO:
        return None
    return f"nvcc is of CUDA {nvcc[0]}.{nvcc[1]}, torch was built with {torch[0]}.{torch[1]}"


def obstacle_on_host() -> str | None:
    """The same of its Adam for offloaded states. Old versions build it, too, with nvcc."""
    if built_in("cpu_adam"):
        return None
    if numbers(installed("deepspeed") or "") < _HOST_WITHOUT_NVCC_SINCE:
        return obstacle()
    compiler = os.environ.get("CXX") or "c++"
    return None if shutil.which(compiler) else f"there is no C++ compiler ({compiler})"


def built_in(name: str) -> bool:
    """Whether the installed DeepSpeed brings `fused_adam`, the GPU's, or `cpu_adam`, the host's, compiled for a machine
    with a GPU: whatever it compiled for one without, as it does where it sees none, it leaves alone on a GPU."""
    found = find_spec("deepspeed")
    places = [Path(place) for place in (found.submodule_search_locations or [])] if found else []
    return any(_for_gpus(place) and any(place.glob(f"ops/adam/{name}_op*.so")) for place in places)


def _for_gpus(deepspeed: Path) -> bool:
    """Read from what its set-up wrote down, without importing it."""
    try:
        written = (deepspeed / "git_version_info_installed.py").read_text()
    except OSError:
        return False
    return re.search(r"(?m)^accelerator_name='cuda'$", written) is not None


def _cuda_of_nvcc() -> tuple[int, int] | None:
    """Asked of the nvcc that torch, and so DeepSpeed, would take; None where there is none."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = str(Path(home, "bin", "nvcc")) if home else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return _version(r"release (\d+)\.(\d+)", said)


def _cuda_of_torch() -> tuple[int, int] | None:
    """Read from the installed torch without importing it; None where it has none."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    return _version(r"(?m)^cuda\b.*'(\d+)\.(\d+)", Path(found.origin).with_name("version.py").read_text())


def _version(pattern: str, text: str) -> tuple[int, int] | None:
    found = re.search(pattern, text)
    return (int(found[1]), int(found[2])) if found else None
