"""DeepSpeed's Adam: compiled by an nvcc that is of torch's CUDA, or a reason why ZeRO is unsupported."""

from __future__ import annotations

import importlib
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

import pytest

from repro.machine import stack
from repro.machine.devices import Device
from repro.machine.support import Stack
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from repro.measure.phases import build_adam
from repro.measure.trial import Bench, compile_adam, run_trial
from repro.record import Trial
from tests.support.scripted_server import ScriptedServer

GPU = Device(0, 0, "GPU-0", "NVIDIA H100 80GB HBM3", None, 80 * 10**9, (9, 0))


def test_the_compiler_that_is_installed_beside_torch_serves_where_it_is_of_torchs_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    version, nvcc = tmp_path / "torch" / "version.py", tmp_path / "nvidia" / "cu13" / "bin" / "nvcc"
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(stack, "installed", {"torch": "2.11.0"}.get)
    version.write_text("__version__ = '9.9'\ncuda: Optional[str] = '13.0'\n")
    assert "CUDA_HOME" not in stack.trial_environment([GPU]), "there is none"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 13.2, V13.2.88'\n")
    nvcc.chmod(0o755)
    assert "CUDA_HOME" not in stack.trial_environment([GPU]), "of another CUDA"
    nvcc.write_text(nvcc.read_text().replace("13.2", "13.0"))
    assert stack.trial_environment([GPU])["CUDA_HOME"] == str(tmp_path / "nvidia" / "cu13")
    assert "CUDA_HOME" not in stack.trial_environment([GPU], torch="2.12.0"), "another stack's"
    assert "CUDA_HOME" not in stack.trial_environment([])
    version.write_text("__version__ = '9.9'\ncuda: Optional[str] = None\n")
    assert "CUDA_HOME" not in stack.trial_environment([GPU]), "a torch without CUDA"


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


def test_what_does_not_compile_is_tried_once_and_reported_by_each_trial(
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
