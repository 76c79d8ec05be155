"""What is built and outlives a run, DeepSpeed's Adam as well: where it lies, and how it is mended after a kill."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from .. import files
from ..console import DISK_FULL, ROOT, UserError
from .packages import installed, numbers

# 64-bit ELF: how a file begins, bytes of its header, and where that tells the place of the table of sections, the size
# of a row of it, and the number of rows.
_MAGIC, _HEADER, _PLACE, _ROW, _ROWS = b"\x7fELF", 64, slice(40, 48), slice(58, 60), slice(60, 62)
_FULL_BYTES = 2**20
_NAMED = "where it would build: name in REPRO_CACHE"
_PARTS = ("inductor", "triton", "extensions-*", "tmp")  # of a build cache, as stack.py names them


def build_cache() -> Path:
    """`wanted_cache`, or, where the checkout is read-only, a temporary folder of this user alone; makes it. What is in
    it runs: raises UserError where others may write to the temporary one, and those of `wanted_cache`."""
    place = wanted_cache()
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    if os.access(place, os.W_OK):
        return _usable(place)
    place = Path(tempfile.gettempdir()) / f"repro-build-cache-{os.getuid()}"
    _refuse_awkward(str(place), _NAMED)
    try:
        with contextlib.suppress(FileExistsError):
            place.mkdir(mode=0o700)
        made = place.lstat()
    except OSError as error:
        raise UserError(f"{place}, where it would build: {error.strerror}; name a folder in REPRO_CACHE") from None
    ours = stat.S_ISDIR(made.st_mode) and made.st_uid == os.getuid() and not made.st_mode & 0o022
    if not ours or not os.access(place, os.W_OK | os.X_OK):
        raise UserError(
            f"{place}, where it would build, is no folder that you, and you alone, may write to: remove it, or name "
            "one in REPRO_CACHE"
        )
    return _usable(place)


def _usable(place: Path) -> Path:
    """The build cache, once its parts are seen to be folders. Raises UserError for one that is none, or is read-only:
    compilers would fail there, each in its own way."""
    for part in (part for pattern in _PARTS for part in place.glob(pattern)):
        if not part.is_dir() or not os.access(part, os.W_OK | os.X_OK):
            raise UserError(
                f"{part}, where it would build, is no folder that you may write to: remove it, or name another folder "
                "in REPRO_CACHE"
            )
    return place


def wanted_cache() -> Path:
    """REPRO_CACHE, else beside the virtual environment.

    Raises UserError where it is no folder, or compilers do not take its path or that of the packages here: they find
    torch there.
    """
    place = Path(os.environ.get("REPRO_CACHE") or ROOT / ".venv" / "build-cache")
    _refuse_awkward(sys.prefix, "where this Python's packages are: move them, or the checkout that holds them, to")
    _refuse_awkward(str(place), _NAMED)
    if os.path.exists(place) and not os.path.isdir(place):
        raise UserError(f"{place}, where it would build, is no folder: move it, or name a folder in REPRO_CACHE")
    return place


def disk_full(output: str) -> str | None:
    """Name the full disk that ended a trial: its compilers' `output` says so, or a disk that they write to is full,
    their cache's or that of temporary files. None where neither is."""
    places = [build_cache(), Path(tempfile.gettempdir())]
    free = {place: files.free_bytes(place) for place in places}
    place = min(places, key=lambda place: free[place])
    if free[place] < _FULL_BYTES or any(os.strerror(number) in output for number in DISK_FULL):
        return f"no space left in {place}, where it builds"
    return None


def is_awkward(path: str) -> bool:
    """Return whether torch cannot hand such a path to its compiler: it splits command lines at blanks, in UTF-8."""
    return bool(_awkward(path))


def _awkward(path: str) -> str:
    """What such a path has that no compiler gets."""
    if re.search(r"[\s'\"\\\[]", path):
        return "blanks, quotes or brackets"
    return "bytes that are no UTF-8" if re.search(r"[\udc80-\udcff]", path) else ""


def _refuse_awkward(path: str, way_out: str) -> None:
    if what := _awkward(path):
        raise UserError(
            f"torch.compile hands its compiler no path with {what}, such as {path}, {way_out} a plainer folder"
        )


def mend(variables: Mapping[str, str]) -> int:
    """Removes what killed compilers left in the caches that these variables name; returns how many files that were.

    In the compiler's cache they are objects cut short, which the next to need one would load as they are; among
    DeepSpeed's extensions locks of builds, whose end the next would wait for. What a process has open is being built.
    """
    left = [file for file in _files(variables.get("TORCHINDUCTOR_CACHE_DIR"), "*.so") if cut_short(file)]
    left += _files(variables.get("TORCH_EXTENSIONS_DIR"), "lock")
    removed = 0
    for file in _closed(left):
        with contextlib.suppress(OSError):  # another's, or gone
            file.unlink()
            removed += 1
    return removed


def _files(folder: str | None, pattern: str) -> list[Path]:
    walked = [] if folder is None else os.walk(folder)  # others may build there: what goes meanwhile is passed over
    return [Path(place, name) for place, _, names in walked for name in fnmatch.filter(names, pattern)]


def cut_short(file: Path) -> bool:
    """Whether a shared object ends before the table of its sections does, which linkers write last."""
    try:
        with file.open("rb") as opened:
            header, size = opened.read(_HEADER), os.fstat(opened.fileno()).st_size
    except OSError:  # gone, or not ours to read
        return False
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        return True
    place, row, rows = (int.from_bytes(header[part], "little") for part in (_PLACE, _ROW, _ROWS))
    return place == 0 or place + row * rows > size


def _closed(files: Iterable[Path]) -> list[Path]:
    """Those that no process has open."""
    wanted = {str(file.resolve()): file for file in files}
    if not wanted:
        return []
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for opened in process.open_files():
                wanted.pop(opened.path, None)
    return list(wanted.values())


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
