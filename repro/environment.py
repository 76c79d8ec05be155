"""What a run ran on: machine, driver, packages, the lock they came from, the commit, the seed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import __version__, adam, image, nvml, tf32
from .devices import Device
from .errors import UserError
from .host import host
from .packages import PACKAGES
from .results import Results
from .rules import Stack

ROOT = Path(__file__).resolve().parent.parent
_LOCKS = ("requirements.lock", "locks/cpu.lock", "locks/paper.lock", "locks/latest.lock")


@dataclass(frozen=True)
class Host:
    memory_bytes: int = 0


@dataclass(frozen=True)
class Gpu:
    name: str
    driver_name: str
    memory_bytes: int


@dataclass(frozen=True)
class Lock:
    differences: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Description:
    """The content of environment.json, as far as whoever reads it computes with it, see `describe`."""

    host: Host = field(default_factory=Host)
    gpus: list[Gpu] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    packages: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


def build_cache() -> Path:
    """What is built here and outlives a run: REPRO_CACHE, else beside the virtual environment, else, where the
    checkout is read-only, a temporary folder."""
    place = Path(os.environ.get("REPRO_CACHE") or ROOT / ".venv" / "build-cache")
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
    if os.access(place, os.W_OK):
        return place
    place = Path(tempfile.gettempdir()) / f"repro-build-cache-{os.getuid()}"
    place.mkdir(exist_ok=True)
    return place


def stack(device: Device | None, packages: dict[str, str]) -> Stack:
    """What the rules need to know of this machine; `device` is the first GPU of the run, None on a CPU."""
    capability = device.compute_capability if device else None
    adams = (adam.obstacle(), adam.obstacle_on_host()) if device else (None, None)
    return Stack(packages, capability, *adams, tf32.allowed(capability))


def describe(
    devices: Sequence[Device],
    packages: dict[str, str],
    seed: int,
    options: dict[str, Any],
    variables: Mapping[str, str],
) -> dict[str, Any]:
    """The content of environment.json; `variables` are those that trials get on top of this process's."""
    return {
        "repro": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "host": asdict(host()),
        "gpus": [
            {"name": device.name, "driver_name": device.driver_name, "memory_bytes": device.memory_bytes}
            for device in devices
        ],
        "driver": nvml.driver(),
        "image": image.target(),
        "tf32": tf32.allowed(devices[0].compute_capability if devices else None),
        "lock": lock(packages),
        "packages": dict(sorted(packages.items())),
        "seed": seed,
        "options": options,
        "variables": {
            name: value
            for name, value in sorted({**os.environ, **variables}.items())
            if name.startswith(("CUDA_", "NCCL_", "NVIDIA_TF32", "TORCH", "PYTORCH_", "OMP_", "DS_"))
            and not name.endswith("_DIR")  # where caches lie says nothing of what ran
        },
    }


def refuse_another(folder: Path, now: dict[str, Any]) -> None:
    """A UserError where a results folder's trials were measured on another stack or machine than this one."""
    path = folder / "environment.json"
    if not path.is_file():
        return
    try:
        then = json.loads(path.read_text())
        pairs = [(name, then["packages"].get(name), now["packages"].get(name)) for name in PACKAGES]
        pairs += [(name, then[name], now[name]) for name in ("driver", "python")]
        pairs += [("the CPU", then["host"]["cpu"], now["host"]["cpu"])]
        pairs += [("the GPU", _gpu_name(then), _gpu_name(now))]
        pairs += [("TF32", then.get("tf32", now["tf32"]), now["tf32"])]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{path} describes no run: remove it if its trials are this stack's, or name another with --out"
        ) from None
    different = [f"{name} was {old}, is {new}" for name, old, new in pairs if old != new]
    if different:
        raise UserError(f"{folder} holds another machine's or stack's trials ({different[0]}); name another with --out")


def keep(now: dict[str, Any], results: Results, has_trials: bool) -> None:
    """Writes environment.json. Raises UserError where the folder has trials of another stack or machine."""
    if has_trials:
        refuse_another(results.folder, now)
    results.write_json("environment.json", now)


def _gpu_name(description: dict[str, Any]) -> str:
    return description["gpus"][0]["driver_name"] if description["gpus"] else "none"  # a run has GPUs of one type


def lock(packages: dict[str, str]) -> dict[str, Any]:
    """Which lock the installed packages are, with its hash, or, package by package, how they differ from the
    nearest one."""
    best: dict[str, Any] = {}
    for name in _LOCKS:
        path = ROOT / name
        if not path.is_file():
            continue
        text = path.read_text()
        pins = dict(re.findall(r"^([a-z0-9][a-z0-9.-]*)==([^\s;\\]+)", text, re.MULTILINE))
        differences = {
            package: {"lock": version, "installed": packages.get(package)}
            for package, version in pins.items()
            if packages.get(package) != version
        }
        if not best or len(differences) < len(best["differences"]):
            digest = hashlib.sha256(text.encode()).hexdigest()
            best = {
                "file": name,
                "sha256": digest,
                "is_the_lock": not differences,
                "differences": differences,
            }
    return best


def _commit() -> str | None:
    """This checkout's commit, `-dirty` behind it where files differ; None outside of one. An image has no checkout,
    and says its commit in REPRO_COMMIT."""
    if known := os.environ.get("REPRO_COMMIT"):
        return known
    try:
        found = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
