"""The cache of compiled code, which outlives a run: its folder, cleaning up after a kill, and the CUDA of builds."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from .. import files
from ..console import DISK_FULL, INSTALLED, ROOT, UserError

# 64-bit ELF: the first bytes, the header's size, and the header's bytes that hold the section table's offset, the size
# of its rows, and their number.
_MAGIC, _HEADER, _PLACE, _ROW, _ROWS = b"\x7fELF", 64, slice(40, 48), slice(58, 60), slice(60, 62)
_FULL_BYTES = 2**20


def build_cache() -> Path:
    """Return `wanted_cache`, and make it. Raises UserError where it cannot be written to, as each compiler would fail
    there in its own way; and as `wanted_cache` does."""
    place = wanted_cache()
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise UserError(
            f"{place}, where it would build, is no folder that you may write to: remove it, or name another folder in "
            "REPRO_CACHE"
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
    ways_out = {
        sys.prefix: "where this Python's packages are: move them, or the checkout that holds them, to",
        str(place): "where it would build: name in REPRO_CACHE",
    }
    for path, way_out in ways_out.items():
        if is_awkward(path):
            raise UserError(
                "torch.compile hands its compiler no path with blanks, quotes, brackets or bytes that are no UTF-8, "
                f"such as {path}, {way_out} a plainer folder"
            )
    if os.path.exists(place) and not os.path.isdir(place):
        raise UserError(f"{place}, where it would build, is no folder: move it, or name a folder in REPRO_CACHE")
    return place


def is_awkward(path: str) -> bool:
    """Return whether torch cannot pass a path to its compiler: command lines are split at blanks and must be UTF-8."""
    return re.search(r"[\s'\"\\\[\udc80-\udcff]", path) is not None


def disk_full(output: str) -> str | None:
    """Return a message with the full disk that ended a trial; None where none is full. A disk is full where the
    compilers' `output` has its error, or less than 1 MiB is left for the build cache or temporary files."""
    places = [build_cache(), Path(tempfile.gettempdir())]
    free = {place: files.free_bytes(place) for place in places}
    place = min(places, key=lambda place: free[place])
    if free[place] < _FULL_BYTES or any(os.strerror(number) in output for number in DISK_FULL):
        return f"no space left in {place}, where it builds"
    return None


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


def packaged_compiler() -> Path | None:
    """Return the CUDA_HOME of the nvcc that is installed beside torch, of locks/nvcc.lock; None where there is none of
    torch's CUDA."""
    torch, home = cuda_of_torch(), Path(sysconfig.get_path("purelib"), "nvidia", "cu13")
    return home if torch is not None and _cuda_of_nvcc(home / "bin" / "nvcc") == torch else None


def _cuda_of_nvcc(nvcc: Path) -> tuple[int, int] | None:
    """Return the CUDA version of an nvcc; None where it does not run."""
    try:
        output = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return _version(r"release (\d+)\.(\d+)", output)


def cuda_of_torch() -> tuple[int, int] | None:
    """Return the CUDA version of the installed torch without importing it; None where it has none."""
    found = find_spec("torch")
    if found is None or found.origin is None:
        return None
    return _version(r"(?m)^cuda\b.*'(\d+)\.(\d+)", Path(found.origin).with_name("version.py").read_text())


def _version(pattern: str, text: str) -> tuple[int, int] | None:
    found = re.search(pattern, text)
    return (int(found[1]), int(found[2])) if found else None
