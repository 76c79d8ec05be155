"""Set-up: the front door, the locks, and what becomes of a set-up that is cut short.

A "house" is a copy of the front door with a lock of one small wheel in place of the stack, so that the real
scripts set a real virtual environment up in a second.
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from repro import installation
from tests.support.command_line import PATIENCE, program, trial_lines, wait_for
from tests.support.wheels import linked, pin, wheel

ROOT = Path(__file__).resolve().parents[2]
UV = ROOT / ".venv" / "uv" / "bin" / "uv"
_NO_BYTECODE = shutil.ignore_patterns("__pycache__")
STACKS = ["requirements.lock", "locks/cpu.lock"]
OTHER_STACKS = ["locks/volta.lock", "locks/paper.lock", "locks/latest.lock"]
SECOND_STEPS = [
    f"locks/{step}.lock"
    for step in ("kernels", "flash4", "modern", "nvcc", "nvcc-latest", "dev", "read", "tracking", "installer")
]
LOCKS = [*STACKS, *OTHER_STACKS, *SECOND_STEPS]

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64", reason="the locks are for Linux x86-64"
)

# What `python -m repro` is in a house: it says how it was called, and ends as it is told.
REPRO = """\
import json, os, sys
arguments = sys.argv[1:]
print(json.dumps({"arguments": arguments, "folder": os.getcwd(), "prefix": sys.prefix,
                  "cache": os.environ["REPRO_CACHE"], "command": os.environ["REPRO_COMMAND"],
                  "utf8": sys.flags.utf8_mode}))
sys.exit(int(arguments[1]) if arguments[:1] == ["exit"] else 0)
"""

# A model that takes seconds to compile.
SMALL = """
from repro import Images, Recipe
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 48)

    def forward(self, values):
        return values + self.linear(values).relu()

class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, pixels, labels):
        return nn.functional.cross_entropy(self.blocks(pixels.flatten(1)), labels)

recipe = Recipe(name="small", inputs=Images(4, 48), batch_size=16, training_steps=100, build=lambda *_: Small())
"""


class House:
    """A checkout of the front door in a folder of its own, and the wheels that its pip is told of."""

    def __init__(self, root: Path, wheels: Path):
        self.root = root
        self.wheels = wheels
        shutil.copytree(ROOT / "locks", root / "locks")
        shutil.copy(ROOT / "run_all.sh", root)
        (root / "repro").mkdir()
        (root / "repro" / "__init__.py").touch()  # a package, before the checkout that the environment names
        (root / "repro" / "__main__.py").write_text(REPRO)
        shutil.copy(ROOT / "repro" / "installation.py", root / "repro")
        (root / ".venv").mkdir()
        for step in ("nvcc", "dev", "tracking"):
            (root / "locks" / f"{step}.lock").write_text("")
        wheels.mkdir()
        self.lock(self.wheel("stone", "1.0"))

    def wheel(self, name: str, version: str) -> str:
        """Lays a wheel into the folder of wheels; its line for a lock."""
        return pin(wheel(self.wheels, name, version, {f"{name}.py": f"version = {version!r}\n"}))

    def lock(self, text: str) -> None:
        for stack in (*STACKS, "locks/volta.lock", "locks/read.lock"):
            (self.root / stack).write_text(text)

    def borrow_uv(self) -> None:
        """Takes the uv of this checkout, when it has one, rather than getting it once more."""
        if (ROOT / ".venv" / "uv").is_dir():
            shutil.copytree(ROOT / ".venv" / "uv", self.root / ".venv" / "uv")

    def hand_on_uv(self, first: str = "", uv: Path = UV) -> None:
        """Has pip install a uv that hands on to this checkout's, when it has one, after a line of shell. `uv` is where
        that is found then."""
        if not UV.exists():
            pytest.skip("this checkout has no uv of its own")
        script = {"uv-1.0.data/scripts/uv": f'#!/bin/sh\n{first}\nexec {uv} "$@"\n'}
        (self.root / "locks" / "installer.lock").write_text(pin(wheel(self.wheels, "uv", "1.0", script)))

    def finish_set_up(self, *locks: str) -> None:
        """Leaves what a finished set-up leaves, around the Python that runs these tests."""
        for venv in ("cpu", "gpu", "volta", "flash4"):
            folder = self.root / ".venv" / venv
            (folder / "installed").mkdir(parents=True)
            program(folder / "bin" / "python", f'exec {sys.executable} "$@"')
            for lock in [*STACKS, "locks/volta.lock", "locks/nvcc.lock", *locks]:
                shutil.copy(self.root / lock, folder / "installed")

    def environment(self, **extra: str) -> dict[str, str]:
        unset = ("PYTHONPATH", "REPRO_CACHE", "UV_FIND_LINKS", "PIP_FIND_LINKS")
        kept = {name: value for name, value in os.environ.items() if name not in unset}
        return {**kept, "PIP_FIND_LINKS": str(self.wheels), **extra}

    def start(self, *arguments: str, cwd: Path | None = None, **extra: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(self.root / "run_all.sh"), *arguments],
            cwd=cwd or self.root,
            env=self.environment(**extra),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str, cwd: Path | None = None, **extra: str) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments, cwd=cwd, **extra)
        out, err = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return house_in(tmp_path, "house")


def house_in(tmp_path: Path, name: str) -> House:
    if not os.access(ROOT, os.W_OK):
        pytest.skip("an image is set up already, and brings nothing to set up with")
    (tmp_path / name).mkdir()
    return House(tmp_path / name, tmp_path / "wheels")


def command(folder: Path, name: str, script: str) -> str:
    """A PATH on which the command `name` is the shell script."""
    program(folder / name, script)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def assert_one_line(result: "subprocess.CompletedProcess[str]", *words: str) -> None:
    """Exit code 2, nothing on stdout, and one line on stderr that has the words."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    for word in words:
        assert word in result.stderr


# The front door


def test_every_argument_is_handed_on_as_it_was_given(house: House, tmp_path: Path) -> None:
    house.finish_set_up()
    result = house.run("--out", "two words", "*", "", cwd=tmp_path)
    assert result.stderr == ""
    seen = json.loads(result.stdout)
    assert seen["arguments"] == ["--out", "two words", "*", ""]
    assert seen["folder"] == str(tmp_path), "a relative path means the caller's folder"
    assert seen["cache"] == str(house.root / ".venv" / "build-cache")
    assert seen["utf8"] == 1, "whatever the locale"


def test_uv_takes_the_folder_of_the_stacks_for_an_environment_and_leaves_them(house: House) -> None:
    house.borrow_uv()
    assert house.run("cells").returncode == 0
    venv = house.root / ".venv"
    (house.root / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\n')
    for words in (["run", "--offline", "python", "-c", "import sys; print(sys.prefix)"], ["sync", "--offline"]):
        command = [str(venv / "uv" / "bin" / "uv"), *words]
        done = subprocess.run(command, cwd=house.root, env=house.environment(), capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, f"{venv}\n" if "run" in words else ""), done.stderr
    assert json.loads(house.run("cells").stdout)["prefix"] == str(venv / "cpu")


def test_bytecode_is_kept_with_the_build_caches_also_where_the_caller_writes_none(house: House) -> None:
    house.finish_set_up()
    house.run(PYTHONDONTWRITEBYTECODE="1", PYTHONPYCACHEPREFIX="")
    kept = house.root / ".venv" / "build-cache" / "bytecode"
    names = {path.name.split(".")[0] for path in kept.glob(f"{house.root.relative_to('/')}/repro/*.pyc")}
    assert names == {"__init__", "__main__"}


def test_the_exit_code_is_that_of_the_benchmark(house: House) -> None:
    house.finish_set_up()
    assert house.run("exit", "3").returncode == 3


def test_nothing_is_imported_from_the_callers_folder_by_torchrun_neither(house: House, tmp_path: Path) -> None:
    house.finish_set_up()
    (tmp_path / "repro").mkdir()
    (tmp_path / "repro" / "__main__.py").write_text("raise SystemExit('not this one')")
    assert house.run(cwd=tmp_path).returncode == 0
    result = house.run("torchrun", "--nproc-per-node=1", "-m", "repro", "--out", "two words", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["arguments"] == ["--out", "two words"]


def test_a_link_to_the_front_door_finds_the_house(house: House, tmp_path: Path) -> None:
    house.finish_set_up()
    (tmp_path / "link").symlink_to(house.root / "run_all.sh")
    done = subprocess.run(
        [tmp_path / "link", "cells"], env=house.environment(), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["arguments"] == ["cells"]


def test_once_set_up_the_front_door_adds_less_than_300_ms(house: House) -> None:
    house.finish_set_up()

    variables = house.environment(REPRO_CACHE="", REPRO_COMMAND="")

    def seconds(*line: str) -> float:
        """Of the CPUs, which others that keep them busy do not lengthen."""
        before = os.times()
        subprocess.run(line, cwd=house.root, env=variables, check=True, capture_output=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    through = min(seconds("./run_all.sh") for _ in range(5))
    direct = min(seconds(sys.executable, "-m", "repro") for _ in range(5))
    assert through - direct < 0.3


def test_test_runs_pytest_in_the_checkout_with_its_options(house: House, tmp_path: Path) -> None:
    house.finish_set_up("locks/dev.lock", "locks/tracking.lock")
    (house.root / "test_stone.py").write_text("def test_one(): pass\n\n\ndef test_two(): pass\n")
    result = house.run("test", "-p", "no:cacheprovider", "-k", "two", cwd=tmp_path)
    assert result.returncode == 0, result.stdout
    assert "1 passed" in result.stdout
    assert re.search(r"[0-9]+ workers? \[1 item\]", result.stdout), "side by side, as many as there are CPUs"


def test_another_platform_gets_one_clear_line(house: House, tmp_path: Path) -> None:
    house.finish_set_up()
    path = command(tmp_path / "bin", "uname", "echo Darwin arm64")
    assert_one_line(house.run(PATH=path), "Linux x86_64", "Darwin arm64", "python -m repro")


@pytest.mark.parametrize(("answer", "version"), [("echo glibc 2.17", "glibc 2.17"), ("exit 1", "another libc")])
def test_an_older_or_another_libc_gets_one_clear_line(house: House, tmp_path: Path, answer: str, version: str) -> None:
    path = command(tmp_path / "bin", "getconf", answer)
    assert_one_line(house.run("cells", PATH=path), "glibc 2.28", f"here is {version}")


def test_help_does_not_wait_for_a_set_up(house: House, tmp_path: Path) -> None:
    result = house.run("--help", PATH=command(tmp_path / "bin", "python3", f'exec {sys.executable} "$@"'))
    assert result.stderr == ""
    assert json.loads(result.stdout)["arguments"] == ["--help"]
    assert not (house.root / ".venv" / "cpu").exists()


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="may have a GPU")
def test_kernels_without_a_gpu_get_one_clear_line(house: House) -> None:
    house.finish_set_up("locks/kernels.lock")
    assert_one_line(house.run("--with-kernels", "cells"), "--with-kernels", "NVIDIA GPU")
    assert_one_line(house.run("--with-tracking", "--with-kernels", "cells"), "--with-kernels", "NVIDIA GPU")


def test_a_gpu_that_only_the_driver_names_takes_the_gpu_stack(house: House, tmp_path: Path) -> None:
    house.finish_set_up("locks/kernels.lock", "locks/tracking.lock")
    shutil.rmtree(house.root / ".venv" / "cpu")
    path = command(tmp_path / "bin", "nvidia-smi", "echo 'GPU 0: NVIDIA L4 (UUID: GPU-0)'")
    assert json.loads(house.run("--with-kernels", "cells", PATH=path).stdout)["arguments"] == ["cells"]
    for more in (["--with-kernels", "--with-tracking"], ["--with-tracking", "--with-kernels"]):
        assert json.loads(house.run(*more, "cells", PATH=path).stdout)["arguments"] == ["cells"], more


@pytest.mark.parametrize(
    ("named", "told", "stack"),
    [
        ("NVIDIA L4", "", "gpu"),
        ("Tesla V100-SXM2-16GB", "", "volta"),
        ("Tesla V100S-PCIE-32GB", "", "volta"),
        ("GRID V100D-8Q", "", "volta"),
        ("Quadro GV100", "", "volta"),
        ("NVIDIA GeForce RTX 3090, Driver Version: 560.70 ", "", "volta"),
        ("NVIDIA GeForce RTX 3090, Driver Version: 581.15 ", "", "gpu"),
        ("NVIDIA TITAN V", "", "volta"),
        ("NVIDIA L4", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.10  Thu Jan 23", "volta"),
        ("NVIDIA L4", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", "gpu"),
        ("NVIDIA L4", "Model: \t\t Tesla V100-PCIE-32GB", "volta"),
    ],
)
def test_a_volta_and_an_older_driver_take_the_stack_of_cuda_12(
    house: House, tmp_path: Path, named: str, told: str, stack: str
) -> None:
    house.finish_set_up("locks/flash4.lock")
    path = command(tmp_path / "bin", "nvidia-smi", f"echo 'GPU 0: {named} (UUID: GPU-0)'")
    command(tmp_path / "bin", "cat", f"printf '%s\\n' '{told}' 'GCC version: gcc version 12.3.0 (Debian)'; exit 1")
    python = house.root / ".venv" / stack / "bin" / "python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    assert house.run("run", PATH=path).stdout == "-P -m repro run\n"
    refused = house.run("--with-flash4", "run", PATH=path)
    if stack == "volta":
        assert_one_line(refused, "--with-flash4 needs a Hopper or Blackwell GPU and a driver of 580 or newer")
    else:
        assert json.loads(refused.stdout)["arguments"] == ["run"]


def test_flash_attn_and_its_successor_are_never_in_one_environment(house: House, tmp_path: Path) -> None:
    house.finish_set_up("locks/kernels.lock", "locks/flash4.lock")
    path = command(tmp_path / "bin", "nvidia-smi", "echo 'GPU 0: NVIDIA L4 (UUID: GPU-0)'")
    assert_one_line(house.run("--with-kernels", "--with-flash4", "run", PATH=path), "exclude each other")


def test_a_driver_that_hangs_is_reported_and_not_asked_by_what_needs_no_gpu(house: House, tmp_path: Path) -> None:
    command(tmp_path / "bin", "python3", f'exec {sys.executable} "$@"')
    path = command(tmp_path / "bin", "nvidia-smi", "exec sleep 100")
    started = time.monotonic()
    assert house.run("--help", PATH=path).returncode == 0, "also before a set-up"
    house.finish_set_up()
    for words in (["--help"], ["run", "--models", "vit", "--help"], ["audit"], ["--version"]):
        assert house.run(*words, PATH=path).returncode == 0, words
    assert time.monotonic() - started < 10, "nobody waited for the driver"
    assert_one_line(house.run("run", PATH=path), "nvidia-smi does not answer within 10 s", "CUDA_VISIBLE_DEVICES=")
    assert house.run("run", PATH=path, CUDA_VISIBLE_DEVICES="").returncode == 0


def test_what_else_to_install_is_asked_for_before_all_else(house: House) -> None:
    assert_one_line(house.run("cells", "--with-tracking"), "--with-tracking goes before all else")


# Reading

READING = ("audit", "claims", "table", "predict", "cost", "list gpus", "list recipes")


def test_what_only_reads_sets_up_a_small_environment_or_takes_a_stack(house: House) -> None:
    house.borrow_uv()
    first = house.run("audit", "--format", "csv")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["arguments"] == ["audit", "--format", "csv"]
    files = ("predict --gpu own.toml", "cost vit --prices my.toml", "compare before after")
    for words in (*READING, *files, "settings", "rent", "survey --questions", "run --help", "--version"):
        again = house.run(*words.split())
        assert (again.stderr, json.loads(again.stdout)["prefix"]) == ("", str(house.root / ".venv" / "read")), words
    assert not (house.root / ".venv" / "cpu").exists()
    house.finish_set_up()
    assert json.loads(house.run("audit").stdout)["prefix"] == sys.prefix
    for stack in ("gpu", "volta"):
        shutil.rmtree(house.root / ".venv" / stack)
    path = command(house.root / "bin", "nvidia-smi", "echo 'GPU 0: NVIDIA L4 (UUID: GPU-0)'")
    for words in ("list gpus", "predict --gpu H100", "survey --questions"):  # wait for no stack of this GPU
        assert json.loads(house.run(*words.split(), PATH=path).stdout)["prefix"] == sys.prefix


# As macOS has them: without flock and getconf's glibc, and without what only GNU's know.
_OF_MACOS = {
    "uname": "echo Darwin arm64",
    "readlink": "echo 'readlink: illegal option -- f' >&2; exit 1",
    "flock": "exit 127",
    "stat": "echo 'stat: illegal option -- -' >&2; exit 1",
    "getconf": "exit 1",
    "sha256sum": "exit 127",
}


_OF_AN_OLD_ARM64 = {"uname": "echo Linux aarch64", "getconf": "echo glibc 2.17"}


@pytest.mark.parametrize("tools", [_OF_MACOS, _OF_AN_OLD_ARM64], ids=["macOS", "arm64"])
def test_what_only_reads_does_so_on_any_platform_and_all_else_says_what_it_needs(
    house: House, tmp_path: Path, tools: dict[str, str]
) -> None:
    house.borrow_uv()
    for name, script in tools.items():
        path = command(tmp_path / "bin", name, script)
    done = house.run("claims", PATH=path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["prefix"] == str(house.root / ".venv" / "read")
    platform = tools["uname"].removeprefix("echo ")
    own = (
        "predict --models hf:llama.json",
        "predict --models=my.toml",
        "cost my.py",
        "cost --terms rent my.toml@batch=8",
    )
    measuring = "", "run --gpus all", "lab", "doctor", "test", "compare --against torch==2.11.0"
    for words in (*measuring, *own):
        assert_one_line(house.run(*words.split(), PATH=path), "Linux x86_64 with glibc", platform, "audit, claims")


@pytest.mark.slow
@pytest.mark.nightly
def test_every_reading_command_answers_with_the_lock_for_reading_alone(tmp_path: Path) -> None:
    house = house_in(tmp_path, "house")
    for name in ("repro", "models", "expected", "locks"):
        shutil.copytree(ROOT / name, house.root / name, ignore=_NO_BYTECODE, dirs_exist_ok=True)
    house.borrow_uv()
    needs = {"cost": "vit", "table": "1 --by true"}
    started = time.monotonic()
    for name in (*READING, "list settings"):
        done = house.run(*name.split(), *needs.get(name, "").split(), CUDA_VISIBLE_DEVICES="")
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        assert done.stdout, name
        assert time.monotonic() - started < 60, "with the set-up"
    assert_one_line(house.run("list", "gpus", "--format", "tsv"), "--format")
    environment = house.root / ".venv" / "read"
    assert sum(path.stat().st_size for path in environment.rglob("*") if path.is_file()) < 50e6


# Setting up


def test_a_set_up_installs_the_lock_and_runs_once_and_for_all(house: House) -> None:
    house.borrow_uv()
    first = house.run("cells")
    assert first.returncode == 0, first.stderr
    seen = json.loads(first.stdout)
    assert Path(seen["prefix"]).parent == house.root / ".venv"
    assert "installing" in first.stderr
    assert list(Path(seen["prefix"]).glob("lib/python3.11/site-packages/stone.py"))
    assert house.run("cells").stderr == ""

    house.lock(house.wheel("brick", "2.0"))
    changed = house.run("cells")
    assert changed.returncode == 0, changed.stderr
    assert list(Path(seen["prefix"]).glob("lib/python3.11/site-packages/brick.py"))
    assert not list(Path(seen["prefix"]).glob("lib/python3.11/site-packages/stone.py")), "what a lock lost is gone"


AWKWARD = '-a\\ b\'s "50%" [1]: #?&$HOME\nend\n'


def test_a_checkout_sets_up_and_runs_at_any_path(tmp_path: Path) -> None:
    """By a name that compilers take."""
    house = house_in(tmp_path, AWKWARD)
    house.borrow_uv()
    done = house.run("cells", XDG_CACHE_HOME=str(tmp_path / "links"))
    assert done.returncode == 0, done.stderr
    prefix = Path(json.loads(done.stdout)["prefix"])
    assert prefix.is_relative_to(tmp_path / "links" / "repro")
    assert prefix.parent.samefile(house.root / ".venv")


@pytest.mark.slow
@pytest.mark.nightly
def test_what_compiles_is_measured_at_any_path(tmp_path: Path) -> None:
    house = house_in(tmp_path, AWKWARD)
    for name in ("repro", "models", "expected", "tests", "locks"):
        shutil.copytree(ROOT / name, house.root / name, ignore=_NO_BYTECODE, dirs_exist_ok=True)
    for name in ("pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, house.root)
    (house.root / ".venv").rmdir()
    (house.root / ".venv").symlink_to(ROOT / ".venv")
    (tmp_path / "small.py").write_text(SMALL)
    small = ["run", "--models", str(tmp_path / "small.py"), "--scale", "paper", "--steps", "1", "--processes", "1"]
    words = [*small, "--methods", "free-lunch", "--out", str(tmp_path / "out")]
    done = house.run(*words, XDG_CACHE_HOME=str(tmp_path / "links"), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    [record] = map(json.loads, trial_lines(tmp_path / "out"))
    assert (record["status"], record["compiled"]) == ("ok", True)


def test_a_checkout_whose_path_cannot_work_is_refused_before_anything_is_set_up(tmp_path: Path) -> None:
    not_text = os.fsdecode(b"caf\xe9")
    for name, why, links in ((not_text, "not UTF-8", "links"), ("a:b", "no link to it can be made", "no links")):
        (tmp_path / name).mkdir()
        house = House(tmp_path / name, tmp_path / f"wheels of {why}")
        for words in (["cells"], ["--help"], ["--repair"]):
            assert_one_line(house.run(*words, XDG_CACHE_HOME=str(tmp_path / links)), why, "move the checkout")
        assert not list((house.root / ".venv").iterdir())


def test_a_checkout_is_not_used_through_what_somebody_else_may_change(tmp_path: Path) -> None:
    house = house_in(tmp_path, "a:b")
    links = tmp_path / "cache" / "repro"
    known = subprocess.run(["cksum"], input=os.fsencode(house.root), capture_output=True, check=True).stdout
    name = known.decode().strip().replace(" ", "-")
    (links / name).mkdir(parents=True)  # where the link should be
    refused = partial(house.run, "--help", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert_one_line(refused(), "no link to it can be made", "name a plain folder")
    assert not list((links / name).iterdir())
    links.rename(tmp_path / "elsewhere")
    links.symlink_to(tmp_path / "elsewhere")
    assert_one_line(refused(), "no link to it can be made", "name a plain folder")


def test_a_checkout_whose_run_bits_are_lost_sets_up_and_says_how_to_go_on(house: House) -> None:
    house.borrow_uv()
    for script in house.root.rglob("*.sh"):
        script.chmod(0o644)
    command = ["bash", "run_all.sh", "cells"]
    done = subprocess.run(command, cwd=house.root, env=house.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["command"] == "bash run_all.sh"


def test_the_tools_of_the_tests_join_the_stack_without_making_it_anew(house: House) -> None:
    house.borrow_uv()
    prefix = Path(json.loads(house.run("cells").stdout)["prefix"])
    (prefix / "mark").touch()
    (house.root / "locks" / "dev.lock").write_text(house.wheel("pytest", "99.0"))
    result = house.run("test")
    assert list(prefix.glob("lib/python3.11/site-packages/pytest.py")), result.stderr
    assert (prefix / "mark").exists()


def test_a_file_with_another_hash_is_refused(house: House) -> None:
    house.borrow_uv()
    house.lock("stone==1.0 --hash=sha256:" + "0" * 64 + "\n")
    result = house.run("cells")
    assert result.returncode == 2
    assert result.stdout == ""
    assert "hash" in result.stderr.lower()
    assert result.stderr.splitlines()[-1].startswith("install.sh: ")
    assert house.run("cells").returncode == 2, "what failed is not taken for finished"


def test_a_file_without_a_hash_is_refused(house: House) -> None:
    house.borrow_uv()
    house.lock("stone==1.0\n")
    result = house.run("cells")
    assert result.returncode == 2
    assert "--require-hashes" in result.stderr, "what uv says"
    assert result.stderr.splitlines()[-1].startswith("install.sh: ")


def test_the_cpu_build_of_torch_comes_from_where_pip_looks(house: House) -> None:
    house.borrow_uv()
    house.lock(house.wheel("torch", "2.13.0+cpu"))
    config = house.root / "pip.conf"
    config.write_text(f"[global]\nfind-links =\n    {house.wheels}\n    {house.wheels}/missing\n")
    path = command(house.root / "bin", "nvidia-smi", "exit 9")
    result = house.run("cells", PATH=path, PIP_CONFIG_FILE=str(config), PIP_FIND_LINKS="")
    assert result.returncode == 0, result.stderr
    assert list(Path(json.loads(result.stdout)["prefix"]).glob("lib/python3.11/site-packages/torch.py"))


def test_a_full_disk_gets_one_clear_line_before_anything_is_installed(house: House, tmp_path: Path) -> None:
    house.borrow_uv()
    full = f'[ "$1" != --file-system ] || {{ echo 262144 262144 4096; exit; }}; exec {shutil.which("stat")} "$@"'
    path = command(tmp_path / "bin", "stat", full)
    assert_one_line(house.run("cells", PATH=path), "GiB", "has 1 GiB free", str(house.root / ".venv"))
    assert not list((house.root / ".venv").glob("?pu"))


def test_a_second_set_up_waits_for_the_first_and_takes_what_it_made(house: House) -> None:
    with open(house.root / ".venv" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = house.start("cells")
        assert second.stderr is not None
        assert "waiting" in second.stderr.readline()
        house.finish_set_up()
        marks = {file: file.stat().st_mtime_ns for file in house.root.glob(".venv/?pu/installed/*")}
    out, err = second.communicate(timeout=PATIENCE)
    assert second.returncode == 0, err
    assert json.loads(out)["arguments"] == ["cells"]
    assert {file: file.stat().st_mtime_ns for file in marks} == marks


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_set_up_cut_short_is_finished_by_the_next(house: House, ending: signal.Signals) -> None:
    house.borrow_uv()
    slow = command(house.root / "bin", "cp", "touch copying; sleep 60")
    process = house.start("cells", PATH=slow)
    wait_for(lambda: (house.root / "copying").exists(), process)
    os.killpg(process.pid, ending)
    out, err = process.communicate(timeout=PATIENCE)
    assert out == ""
    if ending is signal.SIGINT:
        assert process.returncode == 130
        assert "run the same command again" in err
    again = house.run("cells")
    assert again.returncode == 0, again.stderr
    assert "installing" in again.stderr


def test_without_pip_and_uv_the_line_says_what_to_install(house: House, tmp_path: Path) -> None:
    house_only = tmp_path / "bin"
    house_only.mkdir()
    for name in [
        "bash",
        "cmp",
        "dirname",
        "env",
        "flock",
        "getconf",
        "grep",
        "mkdir",
        "readlink",
        "rm",
        "sed",
        "sort",
        "uname",
    ]:
        (house_only / name).symlink_to(str(shutil.which(name)))
    assert_one_line(house.run("cells", PATH=str(house_only)), "python3 with pip", "uv")


def test_an_activated_environment_without_pip_is_passed_over(house: House, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "active"], check=True)
    path = f"{tmp_path}/active/bin:{os.environ['PATH']}"
    done = house.run("cells", PATH=path, VIRTUAL_ENV=str(tmp_path / "active"))
    assert done.returncode == 0, done.stderr
    assert "No module named pip" not in done.stderr
    assert "+ stone==1.0" in done.stderr  # from a folder that pip alone was told of


def preload(tmp_path: Path, source: str) -> str:
    """A library for LD_PRELOAD."""
    if shutil.which("gcc") is None:
        pytest.skip("has no gcc")
    (tmp_path / "preload.c").write_text(source)
    library = str(tmp_path / "preload.so")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, str(tmp_path / "preload.c")], check=True)
    return library


NO_LOCKS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int flock(int fd, int how) {
    char link[64], path[4096] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    readlink(link, path, sizeof path - 1);
    if (strstr(path, "/house/.venv/")) { errno = ENOLCK; return -1; }
    return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, how);
}
"""


def test_where_file_locks_do_not_work_a_set_up_says_so_and_goes_on(house: House, tmp_path: Path) -> None:
    house.borrow_uv()
    library = preload(tmp_path, NO_LOCKS)
    done = house.run("cells", LD_PRELOAD=library)
    assert done.returncode == 0, done.stderr
    first = done.stderr.splitlines()[0]
    assert first.startswith("install.sh: file locks do not work in ")
    assert "No locks available" in first


@pytest.mark.skipif(os.getuid() != 0, reason="mounts")
def test_a_set_up_needs_no_temporary_folder(house: House, tmp_path: Path) -> None:
    house.hand_on_uv(uv=Path("/mnt/uv"))
    shutil.copy(UV, tmp_path)  # the checkout, as the tests' folder, may lie in /tmp or /mnt, where nothing is then
    script = f"""
    mount --bind {tmp_path} /mnt && mount -t tmpfs -o ro none /var/tmp && mount -t tmpfs -o ro none /tmp || exit 77
    exec env PIP_FIND_LINKS=/mnt/wheels TMPDIR=/nowhere /mnt/house/run_all.sh cells
    """
    command = ["unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(command, env=house.environment(), cwd="/", capture_output=True, text=True)
    if done.returncode in (1, 77) and "install.sh" not in done.stderr:
        pytest.skip("may not mount")
    assert done.returncode == 0, done.stderr
    assert not list((house.root / ".venv" / "tmp").iterdir())


@contextlib.contextmanager
def https_index(folder: Path, wheels: Path) -> Iterator[str]:
    """An index with a certificate of an authority that nobody knows, whose file is `folder`/ca.pem; its address."""
    for file in wheels.glob("*.whl"):
        page = folder / "simple" / file.name.split("-")[0]
        page.mkdir(parents=True)
        shutil.copy(file, page)
        (page / "index.html").write_text(f'<a href="{file.name}">{file.name}</a>')
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    new = ["openssl", "req", "-x509", "-days", "2", "-newkey", "rsa:2048", "-nodes"]
    authority = ["-subj", "/CN=an authority", "-keyout", "ca.key", "-out", "ca.pem"]
    leaf = [*subject, "-addext", "basicConstraints=critical,CA:FALSE", "-CA", "ca.pem", "-CAkey", "ca.key"]
    for made in (authority, [*leaf, "-keyout", "key.pem", "-out", "leaf.pem"]):
        subprocess.run([*new, *made], cwd=folder, check=True, capture_output=True)

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, directory=str(folder))

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://localhost:{server.server_port}/simple"
    server.shutdown()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="has no openssl")
def test_a_certificate_that_pip_knows_is_known_to_uv_and_others_are_named(house: House, tmp_path: Path) -> None:
    house.borrow_uv()
    house.lock(house.wheel("torch", "2.13.0+cpu"))
    with https_index(tmp_path, house.wheels) as index:
        unset = ("PIP_CERT", "PIP_FIND_LINKS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
        elsewhere = dict.fromkeys(unset, "")
        asked = elsewhere | {"PIP_INDEX_URL": index, "UV_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
        path = command(house.root / "bin", "nvidia-smi", "exit 9")
        unknown = start(house, path, asked)
        says = "has a certificate of an authority that uv does not know"
        assert_one_line(unknown, index.removesuffix("/simple"), says)
        assert "pytorch" not in unknown.stderr
        lost = start(house, path, asked | {"REQUESTS_CA_BUNDLE": str(tmp_path / "lost.pem")})
        assert_one_line(lost, f"{tmp_path}/lost.pem", "is not there")
        known = start(house, path, asked | {"REQUESTS_CA_BUNDLE": str(tmp_path / "ca.pem")})
        assert known.returncode == 0, known.stderr
        shutil.rmtree(house.root / ".venv" / "cpu")
        shutil.rmtree(tmp_path / "cache")
        known = start(house, path, asked | {"PIP_CERT": "~/ca.pem"})
        assert known.returncode == 0, known.stderr


def start(house: House, path: str, variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Sets it up with these variables, where none is empty."""
    given = {name: value for name, value in (house.environment(PATH=path) | variables).items() if value}
    return subprocess.run([house.root / "run_all.sh", "cells"], env=given, capture_output=True, text=True)


# What was changed since


@pytest.fixture
def real(house: House) -> House:
    """A house with the real program, whose stack is this one's packages and a stone, set up."""
    house.borrow_uv()
    for folder in ("repro", "models", "expected"):
        shutil.copytree(ROOT / folder, house.root / folder, ignore=_NO_BYTECODE, dirs_exist_ok=True)
    house.lock(house.wheel("stone", "1.0") + pin(linked(house.wheels, "linked")))
    done = house.run("doctor", UV_LINK_MODE="hardlink", UV_CACHE_DIR=str(house.root / "cache"))
    assert done.returncode == 0, done.stderr
    return house


def stone(house: House) -> Path:
    [packages] = house.root.glob(".venv/?pu/lib/python3.11/site-packages")
    return packages / "stone.py"


def refused_to_measure(house: House, tmp_path: Path) -> str:
    out = tmp_path / "out"
    done = house.run("run", "--models", "vit", "--scale", "tiny", "--out", str(out), CUDA_VISIBLE_DEVICES="")
    assert_one_line(done)
    assert not out.exists()
    return done.stderr


IS_THE_LOCK = """
import contextlib, json
from repro.machine import environment, packages
with contextlib.suppress(ImportError):
    import stone
found = environment.lock(packages.installed_packages(), packages.imports())
print(json.dumps([found.is_the_lock, found.changed]))
"""


def is_the_lock(house: House) -> list[Any]:
    python = stone(house).parents[3] / "bin" / "python"
    variables = house.environment(PYTHONPATH=str(house.root))
    done = subprocess.run([python, "-P", "-c", IS_THE_LOCK], env=variables, capture_output=True, text=True, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_a_package_that_is_gone_is_named_with_the_command_that_puts_it_back(real: House, tmp_path: Path) -> None:
    file = stone(real)
    assert file.stat().st_nlink == 1, "a link would change with other environments"
    file.unlink()
    output = refused_to_measure(real, tmp_path)
    assert "stone is not as it was installed" in output
    assert "stone.py is gone; ./run_all.sh --repair puts it back" in output
    file.symlink_to(real.root / "cache" / "that was cleaned")
    assert "stone.py is gone" in refused_to_measure(real, tmp_path)
    shutil.rmtree(file.parent / "stone-1.0.dist-info")
    assert "all of it is gone; ./run_all.sh --repair puts it back" in refused_to_measure(real, tmp_path)
    assert real.run("table", "1").returncode == 0, "what needs no stack does not look"
    assert_one_line(real.run("--repair", "cells"), "--repair goes alone")
    repaired = real.run("--repair")
    assert (repaired.returncode, repaired.stdout) == (0, ""), repaired.stderr
    assert file.read_text() == "version = '1.0'\n"
    assert real.run("doctor").returncode == 0
    assert is_the_lock(real) == [True, {}]


def test_a_changed_file_is_no_longer_the_lock(real: House) -> None:
    file = stone(real)
    assert is_the_lock(real) == [True, {}]
    file.write_text("version = '9.9'\n")  # as long as before
    assert is_the_lock(real) == [False, {"stone": "stone.py was changed"}]
    file.write_text("version = '10.0'\n")
    found = real.run("doctor")
    assert (found.returncode, found.stderr) == (1, "")
    assert found.stdout.endswith("stone.py was changed; ./run_all.sh --repair puts it back\n")
    file.write_text("version = '1.0'\n")
    assert is_the_lock(real) == [True, {}], "it is newer, and the same"


def test_a_repair_puts_back_what_differs_even_in_uvs_cache(real: House) -> None:
    cache = real.root / "cache"
    [cached] = cache.glob("archive-*/*/stone.py")
    for file in (stone(real), cached):
        file.write_text("version = '9.9'\n")
    repaired = real.run("--repair", UV_CACHE_DIR=str(cache))
    assert repaired.returncode == 0, repaired.stderr
    assert stone(real).read_text() == "version = '1.0'\n"
    assert is_the_lock(real) == [True, {}]


def test_a_package_installed_from_a_folder_is_not_the_lock(real: House, tmp_path: Path) -> None:
    fork = wheel(tmp_path / "fork", "stone", "1.0", {"stone.py": "version = 'a fork'\n"})
    command = [str(real.root / ".venv/uv/bin/uv"), "pip", "install", "-q", "--reinstall", "--python"]
    subprocess.run([*command, str(stone(real).parents[3] / "bin" / "python"), str(fork)], check=True)
    is_it, changed = is_the_lock(real)
    assert not is_it
    assert "from a folder or an address of its own" in changed["stone"]


def test_looking_at_every_file_of_the_stack_takes_less_than_half_a_second() -> None:
    spent = []
    for _ in range(3):  # what runs beside it makes it slower, and nothing faster
        started = time.process_time()
        assert installation.damages() == {}
        spent.append(time.process_time() - started)
    assert min(spent) < 0.5


# A person's settings


def test_the_callers_pythonpath_is_left_out_which_is_one_line(house: House, tmp_path: Path) -> None:
    house.finish_set_up()
    (tmp_path / "json.py").write_text("raise SystemExit(9)")
    done = house.run("cells", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "PYTHONPATH" in line]
    assert line.startswith("run_all.sh: PYTHONPATH is left out, so that the locked packages are the ones measured; ")
    assert "PYTHONPATH" not in house.run("cells", PYTHONPATH=str(house.root)).stderr


@pytest.mark.parametrize(
    "settings",
    [
        {"PYTHONHOME": "{}", "PYTHONINSPECT": "1", "PYTHONSTARTUP": "{}/startup.py"},
        {"PIP_PREFIX": "{}"},
        {"PIP_ROOT": "{}"},
        {"PIP_CONFIG_FILE": "{}/pip.conf", "PIP_DRY_RUN": "1"},
        {"UV_TORCH_BACKEND": "cu128", "UV_NO_BINARY": "1"},
    ],
    ids=["python", "pip's prefix", "pip's root", "pip's file", "uv"],
)
def test_a_set_up_heeds_no_other_settings_of_python_pip_and_uv(
    house: House, tmp_path: Path, settings: dict[str, str]
) -> None:
    """uv is got with pip here, as on a machine that never was set up: a wheel that hands on to this checkout's."""
    house.hand_on_uv()
    personal = tmp_path / "personal"
    personal.mkdir()
    (personal / "startup.py").write_text("raise SystemExit(9)")
    (personal / "pip.conf").write_text(f"[install]\nroot = {personal}/elsewhere\n[global]\nrequire-virtualenv = true\n")
    written = sorted(personal.rglob("*"))
    done = house.run("cells", cwd=tmp_path, **{name: value.format(personal) for name, value in settings.items()})
    assert done.returncode == 0, done.stderr
    assert list((house.root / ".venv").glob("cpu/lib/python3.11/site-packages/stone.py"))
    assert sorted(personal.rglob("*")) == written


def test_a_uv_that_is_there_and_does_not_work_is_got_anew(house: House) -> None:
    """A pip that installed it elsewhere left this behind, and the mark of a success."""
    house.hand_on_uv()
    (house.root / ".venv" / "uv").mkdir()
    shutil.copy(house.root / "locks" / "installer.lock", house.root / ".venv" / "uv" / "installed.lock")
    done = house.run("cells")
    assert done.returncode == 0, done.stderr


# Where pip looks


def pip_configuration(tmp_path: Path, text: str, **extra: str) -> dict[str, str]:
    """The variables of uv's that come of a configuration file of pip's."""
    if subprocess.run(["python3", "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("an image has no pip")
    file = tmp_path / "pip.conf"
    file.write_text(text)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_", "SSL_"))}
    show = f'set -e; assignments=$(python3 {ROOT}/locks/pip_configuration.py); eval "$assignments"; env'
    environment = {**clean, "HOME": str(tmp_path), "PIP_CONFIG_FILE": str(file), **extra}
    done = subprocess.run(["bash", "-c", show], env=environment, capture_output=True, text=True, check=True)
    pairs = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in pairs if name.startswith(("UV_", "SSL_"))}


def test_indexes_and_folders_of_pip_become_those_of_uv(tmp_path: Path) -> None:
    seen = pip_configuration(
        tmp_path,
        f"""[global]
        index-url = https://mirror.example/simple
        extra-index-url = file:///srv/a https://user:p$x@b.example/simple
        find-links =
            {tmp_path}
            {tmp_path}/missing
            https://wheels.example/torch/
        """,
    )
    assert seen["UV_DEFAULT_INDEX"] == "https://mirror.example/simple"
    assert seen["UV_INDEX"] == "file:///srv/a https://user:p$x@b.example/simple"
    assert seen["UV_FIND_LINKS"] == f"{tmp_path},https://wheels.example/torch/"


def test_a_variable_of_pip_goes_before_its_file_and_uvs_own_before_both(tmp_path: Path) -> None:
    text = "[install]\nindex-url = https://install.example/\n[global]\nindex-url = https://global.example/\n"
    assert pip_configuration(tmp_path, text)["UV_DEFAULT_INDEX"] == "https://install.example/"
    env = {"PIP_INDEX_URL": "https://variable.example/"}
    assert pip_configuration(tmp_path, text, **env)["UV_DEFAULT_INDEX"] == "https://variable.example/"
    env["UV_DEFAULT_INDEX"] = "https://uv.example/"
    assert pip_configuration(tmp_path, text, **env)["UV_DEFAULT_INDEX"] == "https://uv.example/"


# The locks


def pins(lock: str) -> dict[str, str]:
    """Package to version in a lock of this checkout."""
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))


def extras(*names: str) -> dict[str, str]:
    """Package to version, as the dependency groups of pyproject.toml pin them."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    lines = [line for name in names for line in groups[name]]
    return dict(re.sub(r"\[.*]", "", line).split("==") for line in lines if "==" in line)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_of_a_lock_is_pinned_and_hashed(lock: str) -> None:
    text = re.sub(r"^\s*#.*\n", "", (ROOT / lock).read_text(), flags=re.MULTILINE)
    requirement = r"[a-z0-9._-]+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n"
    assert re.fullmatch(f"({requirement})+", text)


def test_the_lock_of_what_only_reads_has_the_files_of_every_platform() -> None:
    [msgspec] = re.findall(r"^msgspec==.*(?:\n    --hash.*)+", (ROOT / "locks/read.lock").read_text(), re.MULTILINE)
    assert msgspec.count("sha256:") > 50, "five versions of Python on Linux, macOS and Windows, on two processors"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_address_and_no_path_of_a_machine(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert "--find-links" not in text
    assert "--index" not in text
    assert not re.search(r"(^|[\s@=])/", text), "an absolute path"
    assert text.startswith("# This file was autogenerated by uv via the following command:\n#    locks/make.sh\n")


@pytest.mark.parametrize(
    ("lock", "names"),
    [
        ("requirements.lock", ["bench", "stack", "gpu"]),
        ("locks/cpu.lock", ["bench", "stack", "cpu"]),
        ("locks/paper.lock", ["bench", "paper"]),
        ("locks/latest.lock", ["bench", "latest"]),
        ("locks/kernels.lock", ["kernels"]),
        ("locks/volta.lock", ["bench", "stack", "volta"]),
        ("locks/flash4.lock", ["flash4"]),
        ("locks/modern.lock", ["modern"]),
        ("locks/nvcc.lock", ["nvcc"]),
        ("locks/nvcc-latest.lock", ["nvcc-latest"]),
        ("locks/dev.lock", ["dev"]),
        ("locks/tracking.lock", ["tracking"]),
        ("locks/installer.lock", ["installer"]),
    ],
)
def test_a_lock_has_the_versions_that_the_project_asks_for(lock: str, names: list[str]) -> None:
    wanted = extras(*names)
    assert wanted
    assert {name: pins(lock).get(name) for name in wanted} == wanted


def test_what_the_two_stacks_share_is_the_same_but_for_torch() -> None:
    gpu, cpu = (pins(stack) for stack in STACKS)
    differ = {name for name in gpu.keys() & cpu.keys() if gpu[name] != cpu[name]}
    assert differ == {"torch", "torchvision", "setuptools"}


@pytest.mark.parametrize(
    ("stack", "step"),
    [
        *((stack, f"locks/{step}.lock") for stack in STACKS for step in ("dev", "read", "tracking", "kernels")),
        (STACKS[0], "locks/flash4.lock"),
    ],
)
def test_a_second_step_changes_nothing_of_the_stack(stack: str, step: str) -> None:
    first, second = pins(stack), pins(step)
    assert {name: second[name] for name in second.keys() & first.keys()}.items() <= first.items()


def test_the_papers_stack_is_the_authors() -> None:
    # The versions of their release v1.0.0, and numpy of the generation that its torch was built against.
    authors = {
        "torch": "2.3.1",
        "transformers": "4.42.3",
        "accelerate": "0.32.0",
        "deepspeed": "0.14.4",
        "mamba-ssm": "2.2.2",
        "causal-conv1d": "1.4.0",
    }
    locked = pins("locks/paper.lock")
    assert {name: locked[name] for name in authors} == authors
    assert locked["numpy"].startswith("1.")


def test_the_latest_stack_leads_and_has_nvcc_of_its_torch_s_cuda() -> None:
    def release(version: str) -> tuple[int, ...]:
        return tuple(map(int, re.findall(r"\d+", version)))

    latest, locked, nvcc = pins("locks/latest.lock"), pins(STACKS[0]), pins("locks/nvcc-latest.lock")
    assert extras("kernels").keys() <= latest.keys()
    for name in ("torch", "transformers", "deepspeed", "timm", *extras("kernels")):
        assert release(latest[name]) >= release({**locked, **extras("kernels")}[name]), name
    cuda = release(latest["nvidia-cuda-runtime"])[:2]
    assert {release(version)[:2] for version in nvcc.values()} == {cuda}


def test_nvcc_is_of_the_cuda_of_torch_and_a_volta_has_the_last_that_serves_it() -> None:
    torch, nvcc, volta = pins(STACKS[0]), pins("locks/nvcc.lock"), pins("locks/volta.lock")
    assert {version.rsplit(".", 1)[0] for version in nvcc.values()} == {"13.0"}
    assert torch["cuda-toolkit"].startswith("13.0.")
    assert "nvidia-cuda-runtime" not in volta, "a package of CUDA 13"
    assert volta["nvidia-cuda-runtime-cu12"].startswith("12.8.")


def test_flash_attn_4_comes_without_the_kernels_before_it() -> None:
    step = pins("locks/flash4.lock")
    assert "flash-attn" not in step
    assert not step.keys() & extras("kernels").keys()


def test_a_stack_is_installed_without_its_kernels(house: House) -> None:
    house.borrow_uv()
    house.lock(house.wheel("stone", "1.0") + house.wheel("mamba-ssm", "2.0") + house.wheel("wood", "1.0"))
    prefix = Path(json.loads(house.run("cells").stdout)["prefix"])
    names = {file.stem for file in prefix.glob("lib/python3.11/site-packages/*.py")} - {"_virtualenv"}
    assert names == {"stone", "wood"}


def test_the_kernels_are_sources_and_find_their_build_tools_in_the_gpu_stack() -> None:
    text = (ROOT / "locks" / "kernels.lock").read_text()
    assert text.count("--hash=") == 3, "one file of each: the source"
    assert {"torch", "triton", "einops", "ninja", "packaging", "setuptools", "wheel"} <= pins(STACKS[0]).keys()
    assert "flash-attn" not in pins(STACKS[0])
    assert not extras("kernels").keys() & pins(STACKS[1]).keys()
