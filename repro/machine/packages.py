"""The packages of this Python: those installed, those that a process imported from elsewhere, and the container image
around them."""

from __future__ import annotations

import hashlib
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ..console import ROOT, cut
from ..formats import first
from ..installation import damages, normalised

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


_OURS = ("repro", "tests", "benchmarks")
_AT_START = ("sitecustomize", "usercustomize")  # Python runs these first, and no lock contains them
# The packages that a trial may import, by module.
_BY_MODULE = {name.replace("-", "_"): name for name in PACKAGES if name not in (*TOOLS, "nvidia-ml-py")}
_BY_MODULE["pynvml"] = "nvidia-ml-py"


@dataclass(frozen=True)
class Imported:
    """A package that was imported from `elsewhere` than where packages are installed: its version, None where it does
    not state one, and a hash of the files that were imported. Folders of versions before 0.5 list those from
    `site-packages` and an image's `kernels`, too, and have no hash."""

    version: str | None
    place: Literal["site-packages", "kernels", "elsewhere"] = "elsewhere"
    sha256: str | None = None


@dataclass(frozen=True)
class Imports:
    """What a process imported that was not installed, by package, or by module where it belongs to none. `changed` says
    of installed packages what was edited since."""

    packages: dict[str, Imported] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)


def imports() -> Imports:
    """Return what this process imported, and for the rest of the stack what a trial would import from here."""
    files: dict[str, set[str]] = {}  # by top-level module
    for name, module in [*sys.modules.items()]:
        # Read from its dictionary: attribute access would make lazy modules import more.
        spec = getattr(module, "__dict__", {}).get("__spec__")
        files.setdefault(name.partition(".")[0], set()).update(_file(spec))
    for top in _BY_MODULE.keys() - files.keys():
        with suppress(ImportError, ValueError):
            if spec := find_spec(top):
                files[top] = {*_file(spec)}
    packages = {
        _BY_MODULE.get(top, top): Imported(_version(top), sha256=_hash(of_top))
        for top, of_top in sorted(files.items())
        if _is_from_elsewhere(top, of_top)
    }
    sources = {file for of_top in files.values() for file in of_top if file.endswith(".py")}
    return Imports(packages, damages(sources))


def elsewhere(packages: Mapping[str, Imported] | None) -> list[str]:
    """Return the names of packages that came from neither the environment's site-packages nor an image's kernels."""
    return sorted(name for name, each in (packages or {}).items() if each.place == "elsewhere")


def complaint(packages: Mapping[str, Imported] | None) -> str | None:
    """Return a clause that names the packages from elsewhere; None where there are none."""
    if not (names := elsewhere(packages)):
        return None
    verb = "was" if len(names) == 1 else "were"
    return f"{first(names)} {verb} imported from elsewhere than the environment's site-packages"


def _file(spec: object) -> list[str]:
    """Return the file of a module, or the folder of a namespace package; none where it was made by code."""
    if not isinstance(spec, ModuleSpec):
        return []
    return [spec.origin or ""] if spec.has_location else [*(spec.submodule_search_locations or [])][:1]


def _version(top: str) -> str | None:
    """Return the version that a module states."""
    version = getattr(sys.modules.get(top), "__dict__", {}).get("__version__")
    return cut(version.strip().splitlines()[0], 40) if isinstance(version, str) and version.strip() else None


def _hash(files: Iterable[str]) -> str:
    """Return a hash of the content of a module's files."""
    found = hashlib.sha256()
    for path in filter(os.path.isfile, sorted(files)):
        found.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return found.hexdigest()


def _is_from_elsewhere(top: str, files: Iterable[str]) -> bool:
    """Return whether one of the files of a top-level module was not installed: neither into this environment nor into
    an image's kernels, nor with Python itself. This checkout's own modules do not count."""
    if top in ("__main__", "__mp_main__"):
        return False
    if not files:
        return top in _BY_MODULE
    allowed = [] if top in _AT_START else [*_site_packages(), *([IMAGE_KERNELS] if image_target() is not None else [])]
    allowed += [str(ROOT)] if top in _OURS else []
    return not all(_within(file, allowed) or _is_pythons(file) for file in files)


def _is_pythons(file: str) -> bool:
    """Return whether a file belongs to Python's own library."""
    libraries = _standard_library()
    others = [os.path.join(library, name) for library in libraries for name in ("site-packages", "dist-packages")]
    return _within(file, libraries) and not _within(file, others)


def _within(file: str, folders: Iterable[str]) -> bool:
    """Return whether a file lies in one of these folders by the path that it was imported by. Links are not followed: a
    linked package is where its link is."""
    return any(file.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders)


@cache
def _site_packages() -> tuple[str, ...]:
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if sys.prefix == sys.base_prefix:
        found += site.getsitepackages()  # some systems have several for their own Python
    return tuple({path for folder in found for path in (folder, os.path.realpath(folder))})


@cache
def _standard_library() -> tuple[str, ...]:
    found = (sysconfig.get_path("stdlib"), os.path.dirname(os.__file__))
    return tuple({path for folder in found for path in (folder, os.path.realpath(folder))})
