"""environment.json says what a run ran on, and is the lock only where every pin is what is installed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import pytest

from repro import datafile
from repro.console import UserError
from repro.machine import environment, nvml
from repro.machine.devices import Device
from repro.machine.environment import Environment, RunGpu
from repro.machine.packages import installed_packages
from repro.machine.stack import authors_environment

ROOT = Path(__file__).resolve().parents[2]


def pins(lock: str) -> dict[str, str]:
    """Name and version of every pin, read off line by line."""
    lines = [line for line in (ROOT / lock).read_text().splitlines() if re.match(r"[a-z0-9]", line)]
    return dict(line.removesuffix(" \\").split("==") for line in lines)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    plain = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=plain).stdout.strip()


# --- The lock ---


@pytest.fixture(autouse=True)
def outside_of_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REPRO_IMAGE", raising=False)


@pytest.mark.parametrize("file", ["requirements.lock", "locks/volta.lock", "locks/cpu.lock", "locks/paper.lock"])
def test_all_pins_installed_are_the_lock(file: str) -> None:
    found = environment.lock(pins(file) | {"beside-the-lock": "1.0"})
    assert found == environment.Lock(file, hashlib.sha256((ROOT / file).read_bytes()).hexdigest(), True, {})


@pytest.mark.parametrize("file", ["requirements.lock", "locks/volta.lock", "locks/cpu.lock", "locks/paper.lock"])
def test_every_difference_is_listed_and_then_it_is_not_the_lock(file: str) -> None:
    locked = pins(file)
    installed = locked | {"torch": "2.3.99"}
    del installed["timm"]
    found = environment.lock(installed)
    assert (found.file, found.is_the_lock) == (file, False)
    assert found.differences == {
        "torch": {"lock": locked["torch"], "installed": "2.3.99"},
        "timm": {"lock": locked["timm"], "installed": None},
    }


@pytest.mark.parametrize("folder", ["text", "vision"])
def test_a_custom_stack_is_compared_with_the_nearest_lock(folder: str) -> None:
    kept = environment.read(ROOT / "results" / "h100" / folder)
    assert kept is not None
    assert kept.packages is not None
    found = environment.lock(kept.packages)
    assert found.file == "requirements.lock"
    assert "torch" not in found.differences, "the H100's torch, 2.11.0, is the lock's"


def test_without_a_lock_there_is_none_to_compare_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "DATA", tmp_path)
    assert environment.lock({"torch": "2.0.0"}) == environment.Lock()


def test_nothing_installed_is_no_lock() -> None:
    found = environment.lock({})
    assert not found.is_the_lock
    assert all(difference["installed"] is None for difference in found.differences.values())


def test_installed_packages_are_named_as_locks_name_them() -> None:
    packages = installed_packages()
    assert packages["pytest"] == pytest.__version__
    assert "pytest-benchmark" in packages
    assert all(re.fullmatch(r"[a-z0-9-]+", name) for name in packages)


# --- The description ---


@pytest.mark.parametrize(
    "path", sorted((ROOT / "results").rglob("environment.json")), ids=lambda path: path.parent.name
)
def test_what_earlier_versions_kept_is_read_and_saved_as_it_was(path: Path, tmp_path: Path) -> None:
    known = datafile.read(path, Environment)
    environment.keep(known, tmp_path)
    saved, kept = (json.loads(file.read_text()) for file in (tmp_path / "environment.json", path))
    host = {"usable_cpus": None} | kept["host"]
    of_another_folder: dict[str, list[str]] = {"earlier": []}  # what runs before it asked for stays in theirs
    lock = {"reason": None, "changed": {}} | kept["lock"]
    recorded_since: dict[str, Any] = {
        "image": None,
        "image_digest": None,
        "tf32": None,
        "imported": None,
        "commits": [],
    }
    for imported in (kept.get("imported") or {}).values():
        imported.setdefault("sha256", None)
    assert saved == recorded_since | kept | {"host": host, "lock": lock} | of_another_folder
    assert list(saved) == [each.name for each in fields(Environment)]


def test_a_run_is_described_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "driver", lambda: "570.2")
    monkeypatch.setenv("REPRO_IMAGE", "hopper")
    packages = installed_packages()
    device = Device(0, 0, "GPU-0", "NVIDIA Something", None, 2**34, (8, 0))
    described = environment.describe(
        [device], packages, seed=7, options={"gpus": 1}, variables={"CUDA_VISIBLE_DEVICES": "0"}
    )
    assert datafile.from_json(Environment, json.loads(json.dumps(asdict(described)))) == described
    assert described.packages == packages
    assert described.lock == environment.lock(packages)
    assert (described.seed, described.options) == (7, {"gpus": 1})
    assert described.gpus == [RunGpu("unknown GPU (NVIDIA Something)", "NVIDIA Something", 2**34)]
    assert described.python == ".".join(map(str, sys.version_info[:3]))
    assert described.host.memory_bytes > 2**28
    assert (described.driver, described.image) == ("570.2", "hopper")


def test_only_variables_that_steer_the_stack_are_kept_those_of_trials_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steering = {
        "ATEN_CPU_CAPABILITY": "default",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CXX": "clang++",
        "DS_SKIP_CUDA_CHECK": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
        "GOMP_CPU_AFFINITY": "0-3",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "MKL_NUM_THREADS": "1",
        "NCCL_P2P_LEVEL": "SYS",
        "NVIDIA_TF32_OVERRIDE": "0",
        "OMP_NUM_THREADS": "4",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "TORCHDYNAMO_DISABLE": "0",
        "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
        "TORCH_CUDNN_SDPA_DEPRIORITIZED": "1",
        "TRITON_INTERPRET": "1",
    }
    others = {"SOME_TOKEN": "secret", "NVIDIA_VISIBLE_DEVICES": "all", "TORCHINDUCTOR_CACHE_DIR": "/somewhere"}
    others |= {"TORCHELASTIC_RUN_ID": "1", "DS_ACCELERATOR": "cuda"}  # a launcher's, which trials do not get
    for name, value in (steering | others).items():
        monkeypatch.setenv(name, value)
    variables = environment.describe([], {}, 0, {}, {"OMP_NUM_THREADS": "1"}).variables
    assert variables is not None
    assert variables.items() >= (steering | {"OMP_NUM_THREADS": "1"}).items()
    assert not variables.keys() & others


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CUDA_HOME", "/home/somebody/cuda"),
        ("TRITON_PTXAS_PATH", "ptxas"),
        ("NCCL_DEBUG_FILE", "nccl.log"),
        ("TORCH_LOGS_OUT", "~/logs"),
        ("MKL_THREADING_LAYER", "C:\\mkl"),
        ("TRITON_SOME_API_KEY", "hunter2"),
        ("TORCH_HUB_TOKEN", "hunter2"),
        ("NCCL_SERVER", "https://user:hunter2@example.org"),
        ("LD_PRELOAD", "libjemalloc.so.2"),
        ("PYTHONPATH", "fork"),
    ],
)
def test_of_what_may_be_a_path_or_a_secret_it_counts_that_it_is_set(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert (environment.describe([], {}, 0, {}, {}).variables or {})[name] == "set"


def test_a_variable_that_is_no_utf_8_is_reported_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_DEBUG", os.fsdecode(b"b\xfc\xdfe"))
    described = environment.describe([], {}, 0, {}, {})
    environment.keep(described, tmp_path)
    assert described.variables is not None
    assert described.variables["NCCL_DEBUG"] == r"b\xfc\xdfe"
    assert environment.read(tmp_path) == described


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git, which an image has not")
def test_the_commit_is_the_checkout_s_and_says_where_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    assert environment.describe([], {}, 0, {}, {}).commit is None
    git(tmp_path, "init", "--quiet")
    assert environment.describe([], {}, 0, {}, {}).commit is None, "it has none yet"
    (tmp_path / "file").write_text("as committed")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    git(tmp_path, "tag", "--annotate", "v1", "--message", "a tag is not the commit")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert environment.describe([], {}, 0, {}, {}).commit == commit
    (tmp_path / "file").write_text("changed")
    assert environment.describe([], {}, 0, {}, {}).commit == f"{commit}-dirty"
    (tmp_path / "unpacked").mkdir()
    monkeypatch.setattr(environment, "ROOT", tmp_path / "unpacked")
    assert environment.describe([], {}, 0, {}, {}).commit is None, "the repository around it is another's"


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 5)])
def test_where_git_is_missing_or_does_not_answer_the_commit_is_said_to_be_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object, **__: object) -> None:
        raise error

    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.delenv("REPRO_COMMIT", raising=False)
    assert environment.commit() is None
    assert capsys.readouterr().err.startswith("repro: the commit of this checkout is not recorded, as git does not ")


def test_an_image_says_the_commit_that_it_was_built_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_COMMIT", "0123abc")
    assert environment.describe([], {}, 0, {}, {}).commit == "0123abc"


def test_a_folder_of_another_stack_is_refused_by_name(tmp_path: Path) -> None:
    packages = installed_packages()
    now = environment.describe([], packages, seed=7, options={}, variables={})
    environment.refuse_another(tmp_path, now)  # nothing there yet
    environment.keep(now, tmp_path)
    environment.refuse_another(tmp_path, now)
    other = environment.describe([], {**packages, "torch": "2.0.0"}, seed=7, options={}, variables={})
    with pytest.raises(UserError, match=r"torch was .*, is 2\.0\.0.*--out"):
        environment.refuse_another(tmp_path, other)
    another_cudnn = replace(now, packages={**packages, "nvidia-cudnn-cu12": "9.5.0"})
    with pytest.raises(UserError, match=r"nvidia-cudnn-cu12 was .*, is 9\.5\.0"):
        environment.refuse_another(tmp_path, another_cudnn)
    with pytest.raises(UserError, match=r"nvidia-cudnn-cu12 was 9\.5\.0, is None"):
        environment.refuse_another(_kept(another_cudnn, tmp_path / "cudnn"), now)
    another_tqdm = replace(now, packages={**packages, "tqdm": "4.0.0"})
    environment.refuse_another(tmp_path, another_tqdm)
    with pytest.raises(UserError, match=r"tqdm was .*, is 4\.0\.0"):
        environment.refuse_another(tmp_path, another_tqdm, more={"tqdm"})
    with_gpu = replace(now, gpus=[RunGpu("A6000", "NVIDIA RTX A6000", 48 * 10**9)])
    with pytest.raises(UserError, match=r"the GPU was none, is NVIDIA RTX A6000"):
        environment.refuse_another(tmp_path, with_gpu)
    for changed, output in (
        (replace(now, driver="570.2"), f"driver was {now.driver}, is 570.2"),
        (replace(now, python="3.9.0"), f"python was {now.python}, is 3.9.0"),
        (replace(now, host=replace(now.host, cpu="Another CPU")), f"the CPU was {now.host.cpu}, is Another CPU"),
        (_with_cores(now, 999), f"the number of cores was {now.host.physical_cores}, is 999"),
        (_with_usable(now, 999), f"the number of usable CPUs was {now.host.usable_cpus}, is 999"),
    ):
        with pytest.raises(UserError, match=re.escape(f"({output})")):
            environment.refuse_another(tmp_path, changed)


def test_a_folder_that_does_not_say_whether_it_had_tf32_or_how_many_cores_is_taken(tmp_path: Path) -> None:
    now = environment.describe([], {}, seed=7, options={}, variables={})
    silent = replace(_with_usable(_with_cores(now, None), None), tf32=None)
    environment.refuse_another(_kept(silent, tmp_path), now)
    environment.refuse_another(_kept(now, tmp_path / "whole"), _with_cores(now, None))


def _with_cores(described: Environment, cores: int | None) -> Environment:
    return replace(described, host=replace(described.host, physical_cores=cores))


def _with_usable(described: Environment, cpus: int | None) -> Environment:
    return replace(described, host=replace(described.host, usable_cpus=cpus))


def _printed(code: str) -> str:
    """What a process of its own prints that runs this code."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_cpus_that_a_run_may_not_use_are_none_of_its_own() -> None:
    code = (
        "import os; from repro.machine.host import host; "
        "one = min(os.sched_getaffinity(0)); os.sched_setaffinity(0, {one}); "
        "print(host().usable_cpus)"
    )
    assert _printed(code) == "1\n"


def _kept(described: Environment, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    environment.keep(described, folder)
    return folder


def test_what_runs_before_this_one_were_asked_for_is_kept_once_each(tmp_path: Path) -> None:
    now = environment.describe([], {}, seed=7, options={}, variables={})
    for model in ("vit", "vit", "mamba", "vit", "mamba", "gan"):
        environment.keep(replace(now, options={"models": (model,)}), tmp_path)
    found = environment.read(tmp_path)
    assert found is not None
    assert found.options == {"models": ["gan"]}
    assert found.earlier == [{"models": ["vit"]}, {"models": ["mamba"]}]


@pytest.mark.parametrize("there", ["{", '{"packages": {}}'])
def test_a_description_that_tells_of_no_run_before_is_replaced(tmp_path: Path, there: str) -> None:
    now = environment.describe([], {}, seed=7, options={"gpus": 1}, variables={})
    (tmp_path / "environment.json").write_text(there)
    environment.keep(now, tmp_path)
    assert environment.read(tmp_path) == now


@pytest.mark.parametrize(
    "broken",
    [
        *("", "{", "[]", "{}", '{"packages": []}', '{"packages": {}, "driver": null}'),
        *('{"packages": {}, "gpus": []}', '{"packages": {}, "python": "3.11.9"}'),
    ],
)
def test_a_folder_whose_stack_cannot_be_reported_is_refused(tmp_path: Path, broken: str) -> None:
    (tmp_path / "environment.json").write_text(broken)
    now = environment.describe([], {}, seed=7, options={}, variables={})
    with pytest.raises(UserError, match=r"environment\.json describes no run"):
        environment.refuse_another(tmp_path, now)


def test_trials_on_gpus_have_the_authors_variables_unless_somebody_set_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("NCCL_P2P_LEVEL", "SYS")
    gpu = Device(0, 0, "GPU-0", "NVIDIA H100 80GB HBM3", None, 2**34, (9, 0))
    assert authors_environment([gpu]) == {"OMP_NUM_THREADS": "1", "NCCL_P2P_LEVEL": "SYS"}
    assert authors_environment([]) == {}
