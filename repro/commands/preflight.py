"""Parts shared by commands that measure: their folder, and checks before any work."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import files, installation
from ..console import UserError
from ..formats import are, path
from ..machine import support
from ..machine.build_cache import build_cache, wanted_cache
from ..machine.devices import Device
from ..machine.doctor import without_cuda
from ..options import option
from ..record import Trial

_FREE_BYTES = 256 * 2**20


def out_option(default: str) -> Any:
    """Declare the option that names the folder."""
    return option(f"results folder (default {default})", "DIR", path, default=Path(default))


def check_packages(*more: str) -> None:
    """Check the packages that measuring needs besides the measured stack, and `more`. Raise UserError for missing ones,
    for a cache in which compilers cannot work, and without a temporary folder."""
    damages = installation.damages() if installation.installed_locks() else {}
    if installation.missing(damages):
        raise UserError(installation.summary(damages) or "")
    needed = (*more, "tabulate", "psutil")
    missing = [package for package in needed if find_spec(package.replace("-", "_")) is None]
    if missing:
        raise UserError(f"{', '.join(missing)} {are(len(missing))} not installed: {installation.way_to_install()}")
    wanted_cache()
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        raise UserError(
            "no temporary folder can be written, neither /tmp nor /var/tmp: free some space there, or name another "
            "folder in TMPDIR"
        ) from None


def check_cuda(devices: Sequence[Device]) -> None:
    """Raise UserError where the installed torch cannot use these GPUs."""
    if devices and (complaint := without_cuda(devices[0])):
        raise UserError(complaint)


def check_machine(devices: Sequence[Device]) -> None:
    """Raise UserError where torch cannot use the GPUs, or the ranks of one machine could not connect to each
    other."""
    import psutil

    check_cuda(devices)
    loopback = psutil.net_if_stats().get("lo")
    if loopback is not None and not loopback.isup:
        raise UserError(
            "the loopback interface, lo, is down: over it the processes of a trial meet; bring it up with "
            "'ip link set lo up'"
        )


def check_compilers(trials: Iterable[Trial], devices: Sequence[Device]) -> None:
    """Raise UserError where one of these trials needs compiling and this is impossible, before any trial fails."""
    if not any(support.compiles(*trial.recipe_and_settings) for trial in trials):
        return
    for variable in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"):
        if os.environ.get(variable) == "1":
            raise UserError(
                f"{variable}=1 turns torch.compile off, which free lunch is measured with: unset it, or take --methods "
                "naive"
            )
    variable = "CC" if devices else "CXX"  # Triton compiles C, for each kernel's launch, and the CPU's Inductor C++
    compiler = os.environ.get(variable)
    if compiler is not None and shutil.which(compiler) is None:
        raise UserError(f"{variable}={compiler}: there is no such program, expected a compiler; name one, or unset it")
    cache = build_cache()
    if os.statvfs(cache).f_flag & os.ST_NOEXEC:
        raise UserError(
            f"{cache}, where it would build, is on a file system mounted noexec, from which nothing built can be "
            "loaded: name a folder elsewhere in REPRO_CACHE"
        )
    if (free := files.free_bytes(cache)) < _FREE_BYTES:
        raise UserError(f"{_short_of_disk(cache, free)}, or name a folder elsewhere in REPRO_CACHE")
    with tempfile.TemporaryFile(dir=cache) as file:
        if not files.lock(file):  # each lock of Inductor would wait for ten minutes
            raise UserError(
                f"{cache}, where it would build, is on a file system without locks, by which compilers wait for each "
                "other: name a folder elsewhere in REPRO_CACHE"
            )


def check_disk(
    folder: Path, *names: str, asked: Path | None = None, way_out: str = "name another folder with --out"
) -> None:
    """Raise UserError where the folder, or files of these names in it, cannot be written, before any work is done for
    it. `asked` is the path that the user named, where it is not the folder. Create nothing, so that a later refusal
    leaves nothing behind."""
    try:
        there = files.nearest(folder)
        tempfile.TemporaryFile(dir=there).close()
        free = files.free_bytes(there)
        blocked = next((folder / name for name in names if (folder / name).is_dir()), None)
    except OSError as error:
        raise files.not_written(asked or folder, error, way_out) from error
    if blocked is not None:
        raise UserError(f"{blocked} is a folder, where a file is to be written: move it, or {way_out}")
    if asked is None:
        files.inside(folder, *names)
    if free < _FREE_BYTES:
        raise UserError(_short_of_disk(folder, free))


def _short_of_disk(folder: Path, free: float) -> str:
    return f"{folder}: {int(free) >> 20} MiB of disk are free, {_FREE_BYTES >> 20} are needed; free some"
