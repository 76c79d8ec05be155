"""DeepSpeed's Adam: built in, or compiled by an nvcc that is of torch's CUDA, or a reason why ZeRO is unsupported."""

from __future__ import annotations

import importlib
import shutil
import sys
import sysconfig
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.machine import build_cache, doctor, environment, nvml, stack
from repro.machine.devices import Device
from repro.machine.support import Stack, obstacle
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from repro.measure.phases import build_adam
from repro.measure.trial import Bench, compile_adam, run_trial
from repro.paper.settings import Settings
from repro.record import Trial
from tests.scripted_server import ScriptedServer

ZERO = Settings(True, sharding="zero_2")
GPU = Device(0, 0, "GPU-0", "NVIDIA H100 80GB HBM3", None, 80 * 10**9, (9, 0))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, str | None], Path]:
    """Has this process find a torch of one CUDA, a DeepSpeed without an Adam, and an nvcc of another CUDA, or none."""

    def found(torch: str, nvcc: str | None) -> Path:
        for package in ("torch", "deepspeed"):
            (tmp_path / package).mkdir()
            (tmp_path / package / "__init__.py").touch()
            monkeypatch.delitem(sys.modules, package, raising=False)
        (tmp_path / "torch" / "version.py").write_text(f"__version__ = '9.9'\ncuda: Optional[str] = {torch}\n")
        monkeypatch.syspath_prepend(tmp_path)
        for variable in ("CUDA_HOME", "CUDA_PATH", "DS_SKIP_CUDA_CHECK"):
            monkeypatch.delenv(variable, raising=False)
        tools = tmp_path / "cuda" / "bin"
        tools.mkdir(parents=True)
        monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
        if nvcc is None:
            monkeypatch.setenv("CUDA_HOME", str(tools.parent))
        else:
            (tools / "nvcc").write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {nvcc}, V{nvcc}.88'\n")
            (tools / "nvcc").chmod(0o755)
        return tools.parent

    return found


@pytest.mark.parametrize(("torch", "nvcc"), [("'12.8'", "12.8"), ("'12.8'", "12.4"), ("'13.2'", "13.2")])
def test_nvcc_of_torchs_cuda_builds_it(machine: Callable[..., Path], torch: str, nvcc: str) -> None:
    machine(torch, nvcc)
    assert build_cache.obstacle() is None


@pytest.mark.parametrize(("torch", "nvcc"), [("'12.8'", "13.0"), ("'12.8'", "11.8"), ("'13.2'", "13.0")])
def test_nvcc_of_another_cuda_does_not(machine: Callable[..., Path], torch: str, nvcc: str) -> None:
    machine(torch, nvcc)
    assert build_cache.obstacle() == f"nvcc is of CUDA {nvcc}, torch was built with {torch[1:-1]}"


def test_deepspeeds_own_word_for_another_cuda_is_taken(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("'12.8'", "13.0")
    monkeypatch.setenv("DS_SKIP_CUDA_CHECK", "1")
    assert build_cache.obstacle() is None


def test_cuda_home_goes_before_the_path(machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    home = machine("'12.8'", "12.8")
    monkeypatch.setenv("CUDA_HOME", str(home / "nowhere"))
    assert build_cache.obstacle() == "there is no nvcc"
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert build_cache.obstacle() is None


def test_the_compiler_that_is_installed_beside_torch_needs_no_toolkit_of_the_machine(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = machine("'13.0'", "12.4")
    packaged = tmp_path / "nvidia" / "cu13"
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert build_cache.obstacle() == "nvcc is of CUDA 12.4, torch was built with 13.0"
    shutil.copytree(home, packaged)
    assert build_cache.packaged_compiler() is None, "of another CUDA"
    nvcc = packaged / "bin" / "nvcc"
    nvcc.write_text(nvcc.read_text().replace("12.4", "13.0"))
    assert build_cache.obstacle() is None
    monkeypatch.setattr(stack, "installed", {"torch": "2.11.0"}.get)
    assert stack.trial_environment([GPU])["CUDA_HOME"] == str(packaged)
    assert "CUDA_HOME" not in stack.trial_environment([GPU], torch="2.12.0"), "another stack's"
    assert "CUDA_HOME" not in stack.trial_environment([])
    shutil.copy(nvcc, home / "bin" / "nvcc")
    assert "CUDA_HOME" not in stack.trial_environment([GPU]), "the user's own will do"


def test_a_torch_without_cuda_needs_none(machine: Callable[..., Path]) -> None:
    machine("None", None)
    assert build_cache.obstacle() is None


def build_in(deepspeed: Path, accelerator: str, *names: str) -> None:
    """Compiles Adams of these names into a DeepSpeed; it notes down for which accelerator, as its set-up does."""
    (deepspeed / "git_version_info_installed.py").write_text(
        f"version='0.19.8'\ninstalled_ops={dict.fromkeys(names, 1)}\naccelerator_name='{accelerator}'\n"
    )
    for name in names:
        module = deepspeed / "ops" / "adam" / f"{name}_op.cpython-311-x86_64-linux-gnu.so"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.touch()


def test_one_that_is_built_in_needs_no_nvcc(machine: Callable[..., Path], tmp_path: Path) -> None:
    machine("'12.8'", "13.0")
    build_in(tmp_path / "deepspeed", "cuda")
    assert build_cache.obstacle() is not None
    build_in(tmp_path / "deepspeed", "cuda", "fused_adam")
    assert build_cache.obstacle() is None
    assert not build_cache.built_in("cpu_adam")
    build_in(tmp_path / "deepspeed", "cuda", "cpu_adam")
    assert build_cache.built_in("cpu_adam")


def test_doctor_tells_of_both_adams_built_in_or_else_of_the_gpus(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def output(*devices: Device, deepspeed: str | None = "0.19.8") -> str:
        monkeypatch.setattr(doctor, "installed", {"deepspeed": deepspeed}.get)
        monkeypatch.setattr(nvml, "visible_devices", lambda: list(devices))
        return doctor.examine()["kernels"].state.removeprefix("kernels ")

    machine("'12.8'", "13.0")
    why = "nvcc is of CUDA 13.0, torch was built with 12.8"
    assert output(GPU) == f"DeepSpeed's Adam, not to be built: {why}"
    assert output(GPU, deepspeed=None) == output() == "of torch alone"
    build_in(tmp_path / "deepspeed", "cuda", "fused_adam")
    assert output(GPU) == "DeepSpeed's Adam, built when needed", "the host's is not there"
    build_in(tmp_path / "deepspeed", "cuda", "cpu_adam")
    assert output(GPU) == output() == "DeepSpeed's Adam, built in"


@pytest.mark.parametrize("written", [True, False])
def test_one_that_was_built_where_no_gpu_was_seen_serves_no_gpu(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, written: bool
) -> None:
    machine("'12.8'", None)
    build_in(tmp_path / "deepspeed", "cpu", "fused_adam", "cpu_adam")
    if not written:
        (tmp_path / "deepspeed" / "git_version_info_installed.py").unlink()
    assert [build_cache.built_in("fused_adam"), build_cache.built_in("cpu_adam")] == [False, False]
    assert build_cache.obstacle() == "there is no nvcc"
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build_cache.obstacle_on_host() == "there is no C++ compiler (no-such-compiler)"


def test_the_one_for_offloaded_states_needs_a_compiler_of_cpp_alone(
    machine: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine("'12.8'", None)
    assert [build_cache.obstacle(), build_cache.obstacle_on_host()] == ["there is no nvcc", None]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert build_cache.obstacle_on_host() == "there is no C++ compiler (no-such-compiler)"
    stack, without = environment.stack([GPU], {}), environment.stack([], {})
    assert (stack.adam, stack.host_adam) == ("there is no nvcc", "there is no C++ compiler (no-such-compiler)")
    assert (without.adam, without.host_adam) == (None, None), "it does without on a CPU"
    other = environment.stack([GPU], {}, python="/of/another/stack")
    assert (other.adam, other.host_adam) == (None, None), "it has another DeepSpeed, and a torch of its own"
    monkeypatch.setattr(build_cache, "installed", lambda package: "0.14.4")
    assert build_cache.obstacle_on_host() == "there is no nvcc", "the paper's version builds it with nvcc"


def test_zero_without_it_is_unsupported_with_the_reason() -> None:
    packages = dict.fromkeys(("torch", "transformers", "deepspeed", "timm"), "2.10.0")
    why = "nvcc is of CUDA 13.0, torch was built with 12.8", "there is no C++ compiler (c++)"
    lacking = Stack(packages, (9, 0), *why)
    found = obstacle(models.find("pythia-1b"), ZERO, 2, lacking)
    assert found is not None
    assert found.reason == "DeepSpeed cannot compile its Adam: nvcc is of CUDA 13.0, torch was built with 12.8"
    assert found.remedy == "install nvcc of the CUDA that torch was built with, or name its folder in CUDA_HOME"
    offloaded = obstacle(models.find("pythia-1b"), Settings(True, sharding="zero_2", offloading=True), 2, lacking)
    assert offloaded is not None
    assert offloaded.remedy == "install a C++ compiler, or name it in CXX"
    assert obstacle(models.find("pythia-1b"), Settings(True, sharding="fsdp_2"), 2, lacking) is None


def run_here(job: Job) -> list[RankOutcome]:
    """Run a job in this process. What this machine lacks, a GPU and DeepSpeed's builders for it, does not matter."""
    module, function = job.call.split(":")
    rank: Any = None
    return [RankOutcome(0, "ok", getattr(importlib.import_module(module), function)(rank, **job.arguments))]


@pytest.mark.parametrize(
    ("said", "output"),
    [
        ("[1/2] nvcc -c adam.cu\nadam.cu(3): error: no such type\nninja: stopped", "adam.cu(3): error: no such type"),
        ("c++ -o adam.so\nld: cannot find -lcudart\ncollect2: error: 1", "ld: cannot find -lcudart"),
        ("a.o: undefined reference to `f'\ncollect2: error: 1", "a.o: undefined reference to `f'"),
        ("adam.cu: error: " + "x" * 999, "adam.cu: error: " + "x" * 284 + " ..."),
        ("no compiler", "RuntimeError: no compiler"),
    ],
)
def test_why_it_does_not_compile_is_what_a_compiler_or_linker_says(
    monkeypatch: pytest.MonkeyPatch, said: str, output: str
) -> None:
    class Builder:
        def load(self) -> None:
            raise RuntimeError(said)

    builders: Any = types.ModuleType("deepspeed.ops.op_builder")
    builders.FusedAdamBuilder = builders.CPUAdamBuilder = Builder
    monkeypatch.setitem(sys.modules, "deepspeed.ops.op_builder", builders)
    rank: Any = None
    assert build_adam(rank, host=False) == output


def test_of_several_nodes_the_one_that_cannot_compile_it_is_named(tmp_path: Path) -> None:
    two = ScriptedServer(lambda job: [RankOutcome(0, "ok", None), RankOutcome(1, "ok", "nvcc fatal : no")])
    found = compile_adam(two, False, tmp_path)
    assert found is not None
    assert found.reason == "DeepSpeed cannot compile its Adam on node 1: nvcc fatal : no"
    assert found.remedy.startswith("read logs/build.log of that node: ")


def test_what_does_not_compile_is_tried_once_and_reported_by_each_trial_that_needs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Builder:
        def load(self) -> None:
            raise RuntimeError(
                "Error building extension 'fused_adam': [1/2] nvcc -c adam.cu\nFAILED: [code=1] adam.o\n"
                "nvcc fatal   : Unsupported gpu architecture 'compute_120'\nninja: build stopped: subcommand failed."
            )

    class Another(Builder):
        def load(self) -> None:
            raise AssertionError("the host's was not asked for")

    builders: Any = types.ModuleType("deepspeed.ops.op_builder")
    builders.FusedAdamBuilder, builders.CPUAdamBuilder = Builder, Another
    monkeypatch.setitem(sys.modules, "deepspeed.ops.op_builder", builders)
    node = ScriptedServer(run_here)
    packages = {"torch": "2.10.0", "transformers": "5.23.0", "deepspeed": "0.19.8"}
    bench = Bench(node, Stack(packages, (9, 0)), None, tmp_path)
    for settings in ("free_lunch+zero_1", "free_lunch+zero_2"):
        record = run_trial(Trial("pythia-160m", "tiny", settings, "H100", 1), bench)
        assert (record.status, record.reason) == (
            "unsupported",
            "DeepSpeed cannot compile its Adam: nvcc fatal   : Unsupported gpu architecture 'compute_120'",
        )
        assert record.remedy.startswith("read logs/build.log: ")
        assert "libcudart.so" in record.remedy, "nvcc from a wheel or a distribution may come without it"
    assert [job.arguments for job in node.jobs] == [{"host": False}]


@pytest.mark.parametrize("host", [True, False])
def test_the_adam_that_is_compiled_is_the_one_that_is_needed(monkeypatch: pytest.MonkeyPatch, host: bool) -> None:
    loaded = []

    class OfGpu:
        def load(self) -> None:
            loaded.append(False)

    class OfHost:
        def load(self) -> None:
            loaded.append(True)

    builders: Any = types.ModuleType("deepspeed.ops.op_builder")
    builders.FusedAdamBuilder, builders.CPUAdamBuilder = OfGpu, OfHost
    monkeypatch.setitem(sys.modules, "deepspeed.ops.op_builder", builders)
    rank: Any = None
    assert build_adam(rank, host) is None
    assert loaded == [host]


def test_a_failure_that_is_none_of_compiling_is_left_to_the_trial(fork_server: ForkServer, tmp_path: Path) -> None:
    assert compile_adam(fork_server, False, tmp_path) is None, "no GPU is here"
    assert "Traceback" in (tmp_path / "build.log").read_text()
