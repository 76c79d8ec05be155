"""The user's script, run in a process of its own: without credentials, network, or any file that it could change."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from repro import datafile
from repro.console import UserError, say
from repro.datafile import NotAsDeclaredError
from repro.installation import installed, way_to_install
from repro.machine.processes import MARK, kill_marked
from repro.machine.stack import process_environment

_MOST = 600  # seconds
_COPIED, _FILES = 1 << 20, 5000  # larger files are linked to; a folder of more is not copied
_PROJECT = (".git", "pyproject.toml", "setup.py", "requirements.txt")
_SKIPPED = {".git", ".venv", "venv", "__pycache__", "node_modules", "wandb"}
_KEPT = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONHASHSEED", "OMP_NUM_THREADS")
_TORCHRUN = re.compile(r"environ(?:\.get\(|\[)\s*['\"](?:LOCAL_)?RANK|init_process_group")
_DATA = (
    "download",
    "urlopen",
    "FileNotFoundError",
    "ConnectionRefusedError",
    "ConnectionError",
    "OfflineModeIsEnabled",
    "LocalEntryNotFound",
)


@dataclass(frozen=True)
class Asked:
    """What to run: the script with its own arguments, for GPUs of a kind. `samples` is a file for the data that it
    wants; `here` keeps its folder, in place of a copy."""

    script: Path
    arguments: tuple[str, ...]
    gpu: dict[str, Any]
    gpus: int
    samples: Path | None = None
    here: bool = False


def recorded(asked: Asked) -> dict[str, Any]:
    """Return what was recorded of the script's steps. Raise UserError with its error's last line where it fails."""
    if installed("torch") is None:
        raise UserError(f"plan runs a script with torch, not installed here: {way_to_install()}")
    if asked.samples is not None and not asked.samples.is_file():
        raise UserError(f"--samples {asked.samples}: no such file; name a small file of the data that the script reads")
    if not asked.script.is_file():
        raise UserError(f"{asked.script}: no such file; name the script that trains, as in plan train.py --gpu A100")
    _notice()
    with TemporaryDirectory(prefix="repro-plan-") as name:
        scratch = Path(name).resolve()
        home, work = scratch / "home", scratch / "work"
        home.mkdir()
        source = _root(asked.script)
        if asked.here:
            work = source
        else:
            _copy(source, work)
        isolated = _isolates()
        found = _ran(asked, scratch, work, isolated)
        if "failed" in found:
            error = found["failed"] or found["last"]
            say(error.replace(f"{work}/", ""))
            raise UserError(_way_out(asked, error, found))
    return found | {"isolation": "a network namespace" if isolated else "sockets that refuse"}


def _ran(asked: Asked, scratch: Path, work: Path, isolated: bool) -> dict[str, Any]:
    root, here = _root(asked.script), Path.cwd()
    script = work / asked.script.resolve().relative_to(root)
    folder = work / here.relative_to(root) if here.is_relative_to(root) else script.parent
    request = {
        "script": str(script),
        "arguments": asked.arguments,
        "gpu": asked.gpu,
        "gpus": asked.gpus,
        "scratch": str(scratch),
        "answer": str(scratch / "answer.json"),
        "root": str(work),
        "folder": str(folder),
        "sockets": not isolated,
        "samples": None if asked.samples is None else str(asked.samples.resolve()),
    }
    (scratch / "request.json").write_text(json.dumps(request))
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    command = [sys.executable, "-m", "repro.plan.child"]
    if isolated:
        command = ["unshare", "--user", "--map-root-user", "--net", *(_read_only(work) if asked.here else ()), *command]
    with (scratch / "request.json").open() as given, (scratch / "log").open("w") as log:
        environment = _environment(scratch / "home", script, asked.gpus) | {MARK: mark}
        process = subprocess.Popen(
            command, stdin=given, stdout=log, stderr=log, cwd=scratch, env=environment, start_new_session=True
        )
    try:
        process.wait(_MOST)
    except subprocess.TimeoutExpired:
        raise UserError(
            f"{asked.script}: no third optimizer step within {_MOST // 60} min; give it arguments behind -- that make "
            "it smaller"
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kill_marked(mark)
    lines = [line for line in (scratch / "log").read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "it said nothing"
    try:
        found: dict[str, Any] = datafile.load(scratch / "answer.json")
    except NotAsDeclaredError:
        raise UserError(f"{asked.script}: it ended its process: {last}") from None
    return found | {"last": last}


def _read_only(folder: Path) -> list[str]:
    """Return what mounts a folder read-only in a namespace of its own, before a command."""
    mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    return ["--mount", "sh", "-c", mount, str(folder)]


def _way_out(asked: Asked, error: str, found: dict[str, Any]) -> str:
    """Return what to do about a script's error, or its early end."""
    if match := re.search(r"ModuleNotFoundError: No module named '([^'.]+)", error):
        return f"{asked.script} needs a package: {sys.executable} -m pip install {match[1]}"
    if any(name in error for name in _DATA):
        return (
            f"{asked.script} wants data that is not in its folder, or the network, which it has not: put a small file "
            "there, or name one with --samples FILE"
        )
    if found["failed"]:
        return f"{asked.script} failed before its third optimizer step; its own arguments stand behind --"
    return (
        f"{asked.script} ended after {found['steps_made']} of 3 steps of an optimizer of torch.optim, by which a plan "
        "counts: give it other arguments behind --, more data or more steps"
    )


def _environment(home: Path, script: Path, gpus: int) -> dict[str, str]:
    """Return variables without anything of the user's but paths and the language."""
    known, temporary = process_environment({}), home.parent / "tmp"
    temporary.mkdir(exist_ok=True)
    kept = {name: known[name] for name in _KEPT if name in known}
    own = {
        "HOME": home,
        "TMPDIR": temporary,
        "XDG_CACHE_HOME": home / ".cache",
        "HF_HOME": home / ".cache/huggingface",
        "PYTHONPATH": Path(__file__).resolve().parents[2],
    }
    fixed = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "disabled", "TQDM_DISABLE": "1", "CUDA_VISIBLE_DEVICES": ""}
    fixed |= {"PYTHONDONTWRITEBYTECODE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    fixed["PYTHONUNBUFFERED"] = "1"  # the log's last line is what was said last
    if gpus > 1 or _TORCHRUN.search(script.read_text(errors="replace")):
        fixed |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(gpus), "LOCAL_WORLD_SIZE": str(gpus)}
        fixed |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    return kept | {name: str(value) for name, value in own.items()} | fixed


def _isolates() -> bool:
    """Return whether the system gives this user a network namespace."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def _root(script: Path) -> Path:
    """Return the folder of a script's project, which it may import from: the next above it that says so, else the
    current one if the script is in it, else the script's own."""
    here, folder = Path.cwd(), script.resolve().parent
    for above in (folder, *folder.parents):
        if any((above / name).exists() for name in _PROJECT):
            return above
    return here if folder.is_relative_to(here) else folder


def _copy(source: Path, work: Path) -> None:
    """Copy the script's folder; its large files are links, which the script cannot write through."""
    number = 0
    for folder, folders, names in os.walk(source):
        folders[:] = [each for each in folders if each not in _SKIPPED]
        there = work / Path(folder).relative_to(source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            number += 1
            if number > _FILES:
                raise UserError(
                    f"{source}: over {_FILES} files, too many to copy: call it in the script's folder, or use --here"
                )
            file = Path(folder, name)
            with suppress(OSError):
                if file.stat().st_size <= _COPIED:
                    shutil.copyfile(file, there / name)
                else:
                    (there / name).symlink_to(file)


def _notice() -> None:
    """Say once, before the first time, that a plan runs the user's code."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "repro"
    mark = cache / "plan-runs-code"
    if mark.exists():
        return
    say("plan runs your script's code, in a process without credentials or network, on a copy of its folder")
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
        mark.touch()
