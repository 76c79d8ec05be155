"""What a launcher, a shell, a checkout's place or a broken machine leaves to a command."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from repro.console import OK, USAGE
from repro.run.results import REPORT, VERDICTS
from tests.command_line import ROOT
from tests.test_launchers import OF_A_LAUNCHER, ZERO
from tests.test_setup import House

from .case import TWO_TRIALS, Case, SkippedError, fault, finished
from .shim import no_locks

NOTHING_TO_MEASURE = ("--models", "vit", "--methods", "naive", "--processes", "1", "--budget", "1s")


def _allowed(*command: str) -> None:
    """Raise SkippedError where a command that isolates is not allowed."""
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        raise SkippedError(f"{command[0]} is not allowed here")


def _environment(case: Case, variables: Mapping[str, str]) -> dict[str, Any]:
    """What a run writes of its environment, before it measures."""
    folder = case.folder()
    file = folder / "environment.json"
    run = case.start_run(folder, *NOTHING_TO_MEASURE, variables=variables)
    case.check(
        run.wait_for(file.is_file, case.patience) or file.is_file(), f"nothing is written: {run.message()[-300:]}"
    )
    run.kill()
    found: dict[str, Any] = json.loads(file.read_text())
    return found


# --- Launchers and shells ---


@fault("launchers", times=1)
def started_by_open_mpi(case: Case) -> None:
    """A ZeRO trial under Open MPI's, Azure's and torchrun's variables, with SIGCHLD ignored and SIGTERM blocked."""
    leaving = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD, signal.SIGTERM]); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    with case.injection():
        folder = case.folder()
        run = case.start_run(folder, *ZERO, prefix=[sys.executable, "-c", leaving], variables=OF_A_LAUNCHER)
        ended = case.ended(run, (OK,))
        case.check(len(finished(folder)) == 1, f"not measured: {ended.stderr[-300:]}")


@fault("launchers", times=1)
def ignored_sigchld(case: Case) -> None:
    """As some window managers leave it, whereby nobody could wait for a process."""
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    for _ in range(case.count):
        with case.injection():
            folder = case.folder()
            case.ended(case.start_run(folder, prefix=[sys.executable, "-c", ignoring]), (OK,))
            case.resumes(folder)


@fault("launchers", times=1)
def another_libstdcxx(case: Case) -> None:
    """A library on LD_LIBRARY_PATH hides the one that torch needs: the line names the variable."""
    with case.injection():
        libraries = case.root / "libraries"
        libraries.mkdir()
        command = ["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(libraries / "libstdc++.so.6")]
        subprocess.run([*command, "-Wl,-soname,libstdc++.so.6"], check=True)
        folder = case.folder()
        case.run(folder, codes=(USAGE,), says="LD_LIBRARY_PATH is set", variables={"LD_LIBRARY_PATH": str(libraries)})
        case.resumes(folder)


@fault("launchers", times=1, fast=1)
def no_loopback(case: Case) -> None:
    alone = ["unshare", "--net", "--map-root-user"]
    _allowed(*alone)
    with case.injection():
        out = case.folder()
        case.refused("run", *TWO_TRIALS, "--out", str(out), says="loopback interface, lo, is down", prefix=alone)
        case.check(not out.exists(), "a folder was made")


@fault("launchers", times=3, fast=3)
def compiler_that_cannot_work(case: Case) -> None:
    for variable, value in (("CXX", "no-such-compiler"), ("TORCHDYNAMO_DISABLE", "1"), ("CXX", ""))[: case.count]:
        with case.injection(f"{variable}={value}"):
            out = case.folder()
            words = ("run", "--models", "vit", "--processes", "1", "--out", str(out))
            case.refused(*words, says=f"{variable}={value}", variables={variable: value})
            case.check(not out.exists(), "a folder was made")


@fault("launchers", times=1, fast=1)
def variables_that_change_numbers(case: Case) -> None:
    """Each is recorded; of what is preloaded or on a path, only that it is set."""
    given = {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "KMP_BLOCKTIME": "0",
        "GOMP_SPINCOUNT": "1",
        "OMP_SCHEDULE": "static",
        "TRITON_DEBUG": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_DEBUG": "WARN",
        "TORCH_LOGS": "-all",
        "LD_PRELOAD": str(case.library / "fault.so"),
    }
    with case.injection():
        known = _environment(case, given)["variables"]
        lacking = [name for name in given if name not in known]
        case.check(not lacking, f"not recorded: {lacking}")
        case.check(str(case.library) not in json.dumps(known), "a path of this machine is recorded")


@fault("launchers", times=1)
def fork_of_a_package_on_the_path(case: Case) -> None:
    """A package on PYTHONPATH hides the installed one: what was imported is recorded, and compare --against refuses."""
    with case.injection():
        place = case.root / "theirs"
        (place / "timm").mkdir(parents=True)
        (place / "timm" / "__init__.py").write_text('__version__ = "9.9.9"\n')
        path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{place}"}
        folder = case.folder()
        run = case.start_run(folder, variables=path)
        case.check(
            run.wait_for(lambda: "elsewhere" in run.message(), case.patience), f"not told: {run.message()[-300:]}"
        )
        run.kill()
        text = (folder / "environment.json").read_text()
        case.check(not json.loads(text)["lock"]["is_the_lock"], "it is recorded as the lock")
        case.check(str(place) not in text, "a path of this machine is recorded")
        words = ("compare", "--against", "timm==1.0.30", "--models", "vit", "--out", str(case.folder()))
        case.ended(case.start(*words, variables=path), (USAGE,), "timm was imported from elsewhere")


# --- Output ---


@fault("output that goes away", times=3, fast=1)
def stream_closed_or_full(case: Case) -> None:
    """What is measured is judged and written, whatever becomes of stdout and stderr."""
    ways = {"stderr closed": "2>&-", "stderr full": "2>/dev/full", "stdout full": ">/dev/full"}
    for way, redirection in list(ways.items())[: case.count]:
        with case.injection(way):
            folder = case.folder()
            prefix = ["bash", "-c", f'exec "$0" "$@" {redirection}']
            case.ended(case.start_run(folder, prefix=prefix), (OK, USAGE) if way == "stdout full" else (OK,))
            for name in (VERDICTS, REPORT):
                case.check((folder / name).is_file(), f"no {name}")
            case.resumes(folder)


@fault("output that goes away", times=1)
def reader_that_leaves(case: Case) -> None:
    """`| head -1`: the report is written, and its place told."""
    for _ in range(case.count):
        with case.injection():
            folder = case.folder(case.reference.folder)
            (folder / REPORT).unlink()
            prefix = ["bash", "-c", 'set -o pipefail; "$0" "$@" | head -1 >/dev/null']
            case.ended(case.start_run(folder, prefix=prefix), (OK,), "the report is ")
            case.check((folder / REPORT).is_file(), "no report")
            case.resumes(folder)


@fault("output that goes away", times=2)
def terminal_that_closes(case: Case) -> None:
    """Under nohup the hang-up is ignored: the terminal's stderr answers with errors, and the run goes on."""
    for _ in range(case.count):
        with case.injection():
            ours, theirs = pty.openpty()
            folder = case.folder()
            prefix = ["bash", "-c", 'trap "" HUP; exec "$0" "$@"']
            run = case.start("run", *TWO_TRIALS, "--out", str(folder), prefix=prefix, stderr=theirs)
            os.close(theirs)
            time.sleep(case.moment(0.5))
            os.close(ours)
            with contextlib.suppress(ProcessLookupError):
                run.process.send_signal(signal.SIGHUP)
            case.ended(run, (OK,))
            for name in (VERDICTS, REPORT):
                case.check((folder / name).is_file(), f"no {name}")
            case.resumes(folder)


@fault("output that goes away", times=1, fast=1)
def pipe_of_prices(case: Case) -> None:
    """A pipe that nobody writes to is no price list to wait for."""
    with case.injection():
        pipe = case.root / "prices.toml"
        os.mkfifo(pipe)
        case.refused("cost", "vit", "--prices", str(pipe), says="prices.toml")


# --- Places ---


@fault("places", times=7, fast=1)
def awkward_temporary_folder(case: Case) -> None:
    """Two processes meet in a file, whatever the name of its folder."""
    names: list[bytes] = [b"a#b?c", b'it\'s "q"', b"with blanks", b"100%25", b"new\nline", b"\xff\xfe", b"a:b"]
    for name in names[: case.count]:
        with case.injection(ascii(name)):
            place = case.root / os.fsdecode(name)
            place.mkdir()
            folder = case.folder()
            words = ("--models", "vit", "--methods", "naive", "--processes", "2", "--steps", "1")
            ended = case.run(folder, *words, codes=(OK,), variables={"TMPDIR": str(place)})
            case.check(len(finished(folder)) == 1, f"not measured: {ended.stderr[-300:]}")
            case.check(not (left := os.listdir(place)), f"temporary files: {left}")


@fault("places", times=5, fast=1)
def awkward_results_folder(case: Case) -> None:
    names: list[bytes] = [b"\xff\xfe", b"new\nline", b'it\'s "q"', b"with blanks", b"100%25", b"a#b?c", b"a:b"]
    for name in names[: case.count]:
        with case.injection(ascii(name)):
            folder = shutil.copytree(case.reference.folder, case.root / os.fsdecode(name))
            case.resumes(folder)


def _house(case: Case, name: str) -> House:
    """A checkout of the front door, in a folder of this name, with a lock of one small wheel."""
    (place := case.root / name).mkdir()
    house = House(place, case.folder())
    house.borrow_uv()
    return house


def _ended(house: House, variables: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run the front door of a house: its program ends with 0."""
    command = [*words, str(house.root / "run_all.sh"), "exit", "0"]
    environment = {**house.environment(), **variables}
    return subprocess.run(command, cwd=house.root, env=environment, capture_output=True, text=True, timeout=300)


@fault("places", times=5, fast=1)
def awkward_checkout(case: Case) -> None:
    """A checkout sets up and runs at any path, or is refused in one line before the set-up."""
    for name in ["a:b", "with blanks", "100%25", "new\nline", "it's"][: case.count]:
        with case.injection(ascii(name)):
            house = _house(case, name)
            done = _ended(house, {"XDG_CACHE_HOME": str(case.root / "links")})
            if done.returncode != OK:
                case.check(done.returncode == USAGE, f"exit code {done.returncode}: {done.stderr[-300:]}")
                case.check(len(done.stderr.splitlines()) == 1, f"not one line: {done.stderr[-300:]}")
                case.check(not (house.root / ".venv" / "cpu").exists(), "it was set up")


@fault("set-up", times=6, fast=2)
def settings_of_pip_and_uv(case: Case) -> None:
    """A person's settings of Python, pip and uv break no set-up."""
    (case.root / "uv.toml").write_text("no-index = true\noffline = true\n")
    given = {
        "PYTHONHOME": "/nowhere",
        "PYTHONINSPECT": "1",
        "PIP_PREFIX": "/nowhere",
        "PIP_ROOT": str(case.root / "r"),
        "UV_CONFIG_FILE": str(case.root / "uv.toml"),
        "UV_TORCH_BACKEND": "cu118",
    }
    for variable, value in list(given.items())[: case.count]:
        with case.injection(variable):
            house = _house(case, variable)
            done = _ended(house, {variable: value})
            case.check(done.returncode == OK, f"exit code {done.returncode}: {done.stderr[-300:]}")
            case.check("Traceback" not in done.stderr, done.stderr[-300:])


@fault("set-up", times=4, fast=1)
def kill_a_set_up(case: Case) -> None:
    """What a killed set-up left is finished by the next."""
    for number in range(case.count):
        with case.injection():
            house = _house(case, f"killed-{number}")
            run = house.start("exit", "0")
            time.sleep(case.random.uniform(0.0, 2.0))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            done = _ended(house, {})
            case.check(done.returncode == OK, f"exit code {done.returncode}: {done.stderr[-300:]}")


@fault("set-up", times=3, fast=2)
def installed_files_that_changed(case: Case) -> None:
    """A package is gone from the virtual environment: refused before anything is measured; a file of it differs: said,
    and not recorded as the lock. Both name the command that repairs it. It is hidden or changed in a namespace: the
    environment itself is not touched."""
    packages = Path(sysconfig.get_path("purelib"))
    edited = case.root / "version.py"
    edited.write_text((packages / "timm" / "version.py").read_text() + "edited = True\n")
    ways = {
        "tabulate is gone": f"mount -t tmpfs none {shlex.quote(str(packages / 'tabulate'))}",
        "timm is edited": f"mount --bind {edited} {shlex.quote(str(packages / 'timm' / 'version.py'))}",
        "timm is gone": f"mount -t tmpfs none {shlex.quote(str(packages / 'timm'))}",
    }
    for way, mounting in list(ways.items())[: case.count]:
        alone = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
        _allowed(*alone, mounting, "sh")
        with case.injection(way):
            out = case.folder()
            prefix = [*alone, f'{mounting}; exec "$0" "$@"']
            if "gone" in way:
                case.refused("run", *TWO_TRIALS, "--out", str(out), says="--repair", prefix=prefix)
                case.check(not finished(out), "it was measured")
                continue
            run = case.start_run(out, prefix=prefix)
            case.check(run.wait_for(lambda: "--repair" in run.message(), case.patience), f"not told: {run.message()}")  # noqa: B023
            kept = out / "environment.json"
            case.check(run.wait_for(kept.is_file, case.patience), "it kept no environment")
            run.kill()
            found = json.loads(kept.read_text())
            case.check(not found["lock"]["is_the_lock"], "it is recorded as the lock")


@fault("set-up", times=1, fast=1)
def edit_in_another_checkout(case: Case) -> None:
    """An edit in one checkout's environment reaches no other."""
    with case.injection():
        first, second = _house(case, "first"), _house(case, "second")
        for house in (first, second):
            _ended(house, {})
        stones = [
            next((house.root / ".venv").glob("*/lib/python*/site-packages/stone.py")) for house in (first, second)
        ]
        with stones[0].open("a") as file:
            file.write("edited = True\n")
        case.check("edited" not in stones[1].read_text(), "it reached the other")


@fault("set-up", times=1, fast=1)
def run_bits_are_lost(case: Case) -> None:
    """As on a checkout that was unpacked from a zip file: `bash run_all.sh` works, or says what to do."""
    with case.injection():
        house = _house(case, "bits")
        for file in (house.root / "run_all.sh", *(house.root / "locks").glob("*.sh")):
            file.chmod(0o644)
        done = _ended(house, {}, "bash")
        said = len(done.stderr.splitlines()) == 1 and "chmod" in done.stderr
        case.check(done.returncode == OK or (done.returncode == USAGE and said), f"{done.returncode}: {done.stderr}")


@fault("set-up", times=1, fast=1)
def disk_free_of_a_device_with_blanks(case: Case) -> None:
    """df prints the name of a device with blanks: its columns are still told apart."""
    with case.injection():
        house = _house(case, "blanks")
        tools = case.root / "tools"
        tools.mkdir()
        df = shutil.which("df")
        (tools / "df").write_text(f"#!/bin/sh\n{df} \"$@\" | sed '2,$s/^[^0-9 ][^ ]* /a share of mine /'\n")
        (tools / "df").chmod(0o755)
        done = _ended(house, {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})
        case.check(done.returncode == OK, f"exit code {done.returncode}: {done.stderr[-300:]}")


@fault("set-up", times=1, fast=1)
def locks_of_a_set_up(case: Case) -> None:
    """Where locks are not implemented a set-up goes on: it waits for no other one."""
    with case.injection():
        done = _ended(_house(case, "locks"), no_locks(case.library, errno.ENOSYS, "*/.venv/*"), "timeout", "60")
        case.check(done.returncode == OK, f"exit code {done.returncode}: {done.stderr[-300:]}")
        case.check("waiting for it" not in done.stderr, "it takes itself for another set-up")


@fault("set-up", times=1, fast=1)
def driver_that_hangs(case: Case) -> None:
    """nvidia-smi never returns: a time limit and one line, and what needs no GPU does not ask."""
    with case.injection():
        house = _house(case, "hangs")
        if list(Path("/dev").glob("nvidia[0-9]*")):
            raise SkippedError("there is a GPU")
        tools = case.root / "smi"
        tools.mkdir()
        (tools / "nvidia-smi").write_text("#!/bin/sh\nexec sleep 600\n")
        (tools / "nvidia-smi").chmod(0o755)
        began = time.monotonic()
        path = f"{tools}{os.pathsep}{os.environ['PATH']}"
        done = _ended(house, {"PATH": path}, "env", "-u", "CUDA_VISIBLE_DEVICES")
        took = time.monotonic() - began
        case.check(done.returncode == USAGE and "does not answer" in done.stderr and took < 60, done.stderr[-300:])
        for each in psutil.process_iter(["cmdline"]):
            if each.info["cmdline"] == ["sleep", "600"] and each.ppid() == 1:
                each.kill()


# --- Git ---


@fault("git", times=1, fast=1)
def checkout_of_another_user(case: Case) -> None:
    """Git takes it for unsafe; the commit is recorded all the same."""
    if not (ROOT / ".git").is_dir():
        raise SkippedError("this checkout is a worktree, or has no repository")
    with case.injection():
        found = _environment(case, {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"})
        case.check(found["commit"], "no commit is recorded")


@fault("git", times=1, fast=1)
def repository_of_the_current_folder(case: Case) -> None:
    """Variables of a git hook name another repository than that of this checkout."""
    with case.injection():
        other = case.root / "other"
        subprocess.run(["git", "init", "-q", str(other)], check=True)
        found = _environment(case, {"GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other)})
        expected = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
        case.check((found["commit"] or "").removesuffix("-dirty") == expected.stdout.strip(), found["commit"])
