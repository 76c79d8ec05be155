"""The cache of compiled code, which outlives a run: its folder, what prevents a build, and cleaning up after a kill."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from .. import files
from ..console import DISK_FULL, INSTALLED, ROOT, UserError
from ..installation import installed
from .packages import numbers

# 64-bit ELF: the first bytes, the header's size, and the header's bytes that hold the section table's offset, the size
# of its rows, and their number.
_MAGIC, _HEADER, _PLACE, _ROW, _ROWS = b"\x7fELF", 64, slice(40, 48), slice(58, 60), slice(60, 62)
_FULL_BYTES = 2**20
_NAMED = "where it would build: name in REPRO_CACHE"
_PARTS = ("inductor", "triton", "extensions-*", "tmp")  # of a build cache; stack.py names them


def build_cache() -> Path:
    """Return `wanted_cache`, and make it. Raises UserError where it, or one of its parts, cannot be written to, as each
    compiler would fail there in its own way; and as `wanted_cache` does."""
    place = wanted_cache()
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    for part in (place, *(part for pattern in _PARTS for part in place.glob(pattern))):
        if not part.is_dir() or not os.access(part, os.W_OK | os.X_OK):
            raise UserError(
                f"{part}, where it would build, is no folder that you may write to: remove it, or name another folder "
                "in REPRO_CACHE"
            )
    return place


def wanted_cache() -> Path:
    """Return REPRO_CACHE, else .venv/build-cache of this checkout, or where repro is installed a folder for this user.

    Raises UserError where it is no folder, or where compilers do not accept its path or that of this Python's packages,
    where they find torch.
    """
    own = ROOT / ".venv" / "build-cache"
    if INSTALLED:  # "/": a user without a home gets a path that cannot be made
        own = Path("/", os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "repro", "build-cache")
    place = Path(os.environ.get("REPRO_CACHE") or own)
    _refuse_awkward(sys.prefix, "where this Python's packages are: move them, or the checkout that holds them, to")
    _refuse_awkward(str(place), _NAMED)
    if os.path.exists(place) and not os.path.isdir(place):
        raise UserError(f"{place}, where it would build, is no folder: move it, or name a folder in REPRO_CACHE")
    return place


def disk_full(output: str) -> str | None:
    """Return a message with the full disk that ended a trial; None where none is full. A disk is full where the
    compilers' `output` has its error, or less than 1 MiB is left for the build cache or temporary files."""
    places = [build_cache(), Path(tempfile.gettempdir())]
    free = {place: files.free_bytes(place) for place in places}
    place = min(places, key=lambda place: free[place])
    if free[place] < _FULL_BYTES or any(os.strerror(number) in output for number in DISK_FULL):
        return f"no space left in {place}, where it builds"
    return None


def is_awkward(path: str) -> bool:
    """Return whether torch cannot pass a path to its compiler: command lines are split at blanks and must be UTF-8."""
    return bool(_awkward(path))


def _awkward(path: str) -> str:
    """Describe the characters of a path that compilers do not accept; empty where there are none."""
    if re.search(r"[\s'\"\\\[]", path):
        return "blanks, quotes or brackets"
    return "bytes that are no UTF-8" if re.search(r"[\udc80-\udcff]", path) else ""


def _refuse_awkward(path: str, way_out: str) -> None:
    if what := _awkward(path):
        raise UserError(
            f"torch.compile hands its compiler no path with {what}, such as {path}, {way_out} a plainer folder"
        )


def clean_build_caches(variables: Mapping[str, str]) -> int:
    """Remove what killed compilers left in the caches that these variables name; return the number of removed files.

    In the compiler's cache these are truncated shared objects, which the next process would load; among DeepSpeed's
    extensions locks of builds, for which the next would wait. A file that a process has open is kept: it is being
    built.
    """
    left = [file for file in _files(variables.get("TORCHINDUCTOR_CACHE_DIR"), "*.so") if cut_short(file)]
    left += _files(variables.get("TORCH_EXTENSIONS_DIR"), "lock")
    removed = 0
    for file in _closed(left):
        with contextlib.suppress(OSError):  # another user's, or gone
            file.unlink()
            removed += 1
    return removed


def _files(folder: str | None, pattern: str) -> list[Path]:
    walked = [] if folder is None else os.walk(folder)  # skips what other builds remove meanwhile
    return [Path(place, name) for place, _, names in walked for name in fnmatch.filter(names, pattern)]


def cut_short(file: Path) -> bool:
    """Return whether a shared object ends before its section table does, which linkers write last."""
    try:
        with file.open("rb") as opened:
            header, size = opened.read(_HEADER), os.fstat(opened.fileno()).st_size
    except OSError:  # gone, or not readable
        return False
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return True
    place, row, rows = (int.from_bytes(header[part], "little") for part in (_PLACE, _ROW, _ROWS))
    return place == 0 or place + row * rows > size


def _closed(files: Iterable[Path]) -> list[Path]:
    """Return the files that no process has open."""
    wanted = {str(file.resolve()): file for file in files}
    if not wanted:
        return []
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for opened in process.open_files():
                wanted.pop(opened.path, None)
    return list(wanted.values())


_HOST_WITHOUT_NVCC_SINCE = (0, 19)  # checked with 0.19.8; the paper's 0.14.4 needs nvcc
_ANOTHER_MINOR_WILL_DO = 12  # up to CUDA 12, DeepSpeed accepts nvcc of another minor version


def obstacle() -> str | None:
    """Return why DeepSpeed cannot compile its Adam for a GPU of this machine; None where it can, or need not."""
    torch = cuda_of_torch()
    if built_in("fused_adam") or torch is None or os.environ.get("DS_SKIP_CUDA_CHECK") == "1":
        return None
    if packaged_compiler() is not None:
        return None
    nvcc = _cuda_of_nvcc(_machines_nvcc())
    if nvcc is None:
        return "there is no nvcc"
    if _suits(nvcc, torch):
        return None
    return f"nvcc is of CUDA {nvcc[0]}.{nvcc[1]}, torch was built with {torch[0]}.{torch[1]}"


def packaged_compiler() -> Path | None:
    """Return the CUDA_HOME of the nvcc that is installed beside torch, of locks/nvcc.lock. None where there is none of
    torch's CUDA, or where the user's CUDA_HOME has one."""
    torch, home = cuda_of_torch(), Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
    nvcc = home / "bin" / "nvcc"
    if torch is None or not nvcc.exists() or not _suits(_cuda_of_nvcc(nvcc), torch):
        return None
    named = _named_home()
    return home if named is None or not _suits(_cuda_of_nvcc(Path(named, "bin", "nvcc")), torch) else None


def obstacle_on_host() -> str | None:
    """Return why DeepSpeed cannot compile its Adam for offloaded states, or None. Old versions need nvcc for it."""
    if built_in("cpu_adam"):
        return None
    if numbers(installed("deepspeed") or "") < _HOST_WITHOUT_NVCC_SINCE:
        return obstacle()
    compiler = os.environ.get("CXX") or "c++"
    return None if shutil.which(compiler) else f"there is no C++ compiler ({compiler})"


def built_in(name: str) -> bool:
    """Return whether the installed DeepSpeed contains `fused_adam` (GPU) or `cpu_adam` (host), built on a machine with
    a GPU. What it builds where it sees no GPU is not used on a GPU."""
    found = find_spec("deepspeed")
    places = [Path(place) for place in (found.submodule_search_locations or [])] if found else []
    return any(_for_gpus(place) and any(place.glob(f"ops/adam/{name}_op*.so")) for place in places)


def _for_gpus(deepspeed: Path) -> bool:
    """Return whether DeepSpeed was built for CUDA, by its git_version_info_installed.py and without importing it."""
    try:
        written = (deepspeed / "git_version_info_installed.py").read_text()
    except OSError:
        return False
    return re.search(r"(?m)^accelerator_name='cuda'$", written) is not None


def _suits(nvcc: tuple[int, int] | None, torch: tuple[int, int]) -> bool:
    """Return whether DeepSpeed accepts an nvcc of this CUDA for a torch of that."""
    return nvcc is not None and (nvcc == torch or nvcc[0] == torch[0] <= _ANOTHER_MINOR_WILL_DO)


def _named_home() -> str | None:
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")


def _machines_nvcc() -> Path:
    """Return the nvcc that torch, and so DeepSpeed, would use of this machine."""
    home = _named_home()
    return Path(home, "bin", "nvcc") if home else Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc")


def _cuda_of_nvcc(nvcc: Path) -> tuple[int, int] | None:
    """Return the CUDA version of an nvcc; None where it does not run."""
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return _version(r"release (\d+)\.(\d+)", said)


def cuda_of_torch() -> tuple[int, int] | None:
    """Return the CUDA version of the installed torch without importing it; None where it has none."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    return _version(r"(?m)^cuda\b.*'(\d+)\.(\d+)", Path(found.origin).with_name("version.py").read_text())


def _version(pattern: str, text: str) -> tuple[int, int] | None:
    found = re.search(pattern, text)
    return (int(found[1]), int(found[2])) if found else None
