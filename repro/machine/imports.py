"""The imports of a process: packages from elsewhere than where packages are installed, and edited ones."""

from __future__ import annotations

import hashlib
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Literal

from ..console import ROOT, cut
from ..formats import first
from ..installation import damages
from .packages import IMAGE_KERNELS, PACKAGES, TOOLS, image_target

Place = Literal["site-packages", "kernels", "elsewhere"]

_OURS = {"repro", "tests", "benchmarks"}
_MODULES = {"nvidia-ml-py": "pynvml"}  # of packages whose module has another name
# The packages that a trial may import, by module.
_PACKAGES = {_MODULES.get(name, name.replace("-", "_")): name for name in PACKAGES if name not in TOOLS}
_AT_START = ("sitecustomize", "usercustomize")  # Python runs these first, and no lock contains them


@dataclass(frozen=True)
class Imported:
    """A package that was imported from `elsewhere` than where packages are installed: its version, None where neither
    it nor the metadata beside it states one, and a hash of the files that were imported. Folders of versions before 0.5
    list those from `site-packages` and an image's `kernels`, too, and have no hash."""

    version: str | None
    place: Place = "elsewhere"
    sha256: str | None = None


@dataclass(frozen=True)
class Imports:
    """What a process imported that was not installed, by package, or by module where it belongs to none. `changed` says
    of installed packages what was edited since."""

    packages: dict[str, Imported] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)


def imports() -> Imports:
    """Return what this process imported, and for the rest of the stack what a trial would import from here."""
    files: dict[str, list[str]] = {}  # by top-level module
    for module_name, module in [*sys.modules.items()]:
        found = files.setdefault(module_name.partition(".")[0], [])
        if file := _file(module):
            found.append(file)
    for top in _PACKAGES.keys() - files.keys():
        if located := _located(top):
            files[top] = [located]
    packages = {
        _PACKAGES.get(top, top): Imported(_version(top, of_top), sha256=_hash(of_top))
        for top, of_top in sorted(files.items())
        if _is_from_elsewhere(top, of_top)
    }
    sources = [file for of_top in files.values() for file in of_top if file.endswith(".py")]
    return Imports(packages, {name: damage.what for name, damage in damages(sources).items()})


def elsewhere(packages: Mapping[str, Imported] | None) -> list[str]:
    """Return the names of packages that came from neither the environment's site-packages nor an image's kernels."""
    return sorted(name for name, each in (packages or {}).items() if each.place == "elsewhere")


def complaint(packages: Mapping[str, Imported] | None) -> str | None:
    """Return a clause that names the packages from elsewhere; None where there are none."""
    if not (names := elsewhere(packages)):
        return None
    verb = "was" if len(names) == 1 else "were"
    return f"{first(names)} {verb} imported from elsewhere than the environment's site-packages"


def _file(module: object) -> str | None:
    """Return the file of a module, or the folder of a namespace package. Reads the module's dictionary: attribute
    access would make lazy modules import more."""
    if not isinstance(module, ModuleType):
        return None
    file = module.__dict__.get("__file__")
    if isinstance(file, str) and os.path.isabs(file):  # some modules without a file name one that is no path
        return file
    spec = module.__dict__.get("__spec__")
    return next(iter(getattr(spec, "submodule_search_locations", None) or ()), None)


def _located(top: str) -> str | None:
    """Return the file of a module that is not imported; None where there is no such module."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _hash(files: Iterable[str]) -> str:
    """Return a hash of the content of a module's files."""
    found = hashlib.sha256()
    for path in sorted({*files}):
        if os.path.isfile(path):
            found.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return found.hexdigest()


def _is_from_elsewhere(top: str, files: Sequence[str]) -> bool:
    """Return whether one of the files of a top-level module was not installed: neither into this environment nor into
    an image's kernels, nor with Python itself. This checkout's own modules do not count."""
    if top in ("__main__", "__mp_main__"):
        return False
    if not files:  # made by code
        return top in _PACKAGES
    others = [file for file in files if not (top in _OURS and _within(file, (str(ROOT),)))]
    return any((top in _AT_START and not _is_pythons(file)) or not _is_installed(file) for file in others)


def _is_installed(file: str) -> bool:
    kernels = (IMAGE_KERNELS,) if image_target() is not None else ()
    return _within(file, (*_local_folders(), *kernels)) or _is_pythons(file)


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
def _local_folders() -> tuple[str, ...]:
    found = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if sys.prefix == sys.base_prefix:
        found += site.getsitepackages()  # some systems have several for their own Python
    return _and_real(found)


@cache
def _standard_library() -> tuple[str, ...]:
    base = {"installed_base": sys.base_prefix, "base": sys.base_prefix}
    found = [sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")]
    return _and_real([*found, os.path.dirname(os.__file__)])


def _and_real(folders: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for folder in folders for path in (folder, os.path.realpath(folder))))


def _version(top: str, files: Iterable[str]) -> str | None:
    """Return the version that a module states itself, else the one of the metadata beside its files."""
    from importlib.metadata import distributions

    own = getattr(sys.modules.get(top), "__dict__", {}).get("__version__")
    if isinstance(own, str) and own.strip():
        return cut(own.strip().splitlines()[0], 40)
    folders = {os.path.dirname(os.path.dirname(file)) for file in files} | {os.path.dirname(file) for file in files}
    beside = sorted(folders.intersection(sys.path))
    return next((found.version for found in distributions(name=_PACKAGES.get(top, top), path=beside)), None)
