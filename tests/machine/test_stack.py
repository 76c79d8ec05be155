"""Importing the measured stack: a GPU's capability is told by its driver, so that no import starts CUDA."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from repro.machine import nvml, stack
from repro.machine.devices import Device
from tests.support.command_line import ROOT

HOPPER = Device(0, 0, "GPU-0", "NVIDIA H100 80GB HBM3", None, 80 * 10**9, (9, 0))


def test_while_importing_torch_tells_the_capability_that_the_driver_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "visible_devices", lambda: [HOPPER])
    with stack.answers_of_the_driver():
        assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_device_capability(0) == (9, 0)
        assert torch.cuda.current_device() == 0
    assert not torch.cuda.is_initialized()


def test_after_the_import_torch_answers_for_itself_and_remembers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.device_interface import CudaInterface, caching_worker_device_properties

    own = torch.cuda.get_device_properties, torch.cuda.current_device
    monkeypatch.setattr(nvml, "visible_devices", lambda: [HOPPER])
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with stack.answers_of_the_driver():
        assert CudaInterface.Worker.get_device_properties().major == 9
    assert (torch.cuda.get_device_properties, torch.cuda.current_device) == own
    assert not caching_worker_device_properties


@pytest.mark.slow
def test_what_the_compiler_binds_while_it_is_imported_is_torchs_own_afterwards() -> None:
    """Its interface to CUDA is made once, of the functions that torch has at that moment; kernels need all properties
    of a GPU, so none could be compiled by what only tells its capability."""
    code = """
from repro.machine import nvml, stack
from repro.machine.devices import Device
nvml.visible_devices = lambda: [Device(0, 0, "GPU-0", "NVIDIA H100", None, 80 * 10**9, (9, 0))]
stack.preload(("torch._dynamo",))
from torch._dynamo.device_interface import CudaInterface
for ask in (CudaInterface.get_device_properties, CudaInterface.current_device):
    try:
        print("told", ask())
    except (AssertionError, RuntimeError) as error:  # torch's own: this one has no CUDA, or no GPU
        print("torch", type(error).__name__)
"""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["torch", "torch"]


def test_without_a_gpu_nothing_is_put_in_torchs_place(monkeypatch: pytest.MonkeyPatch) -> None:
    own = torch.cuda.get_device_properties
    monkeypatch.setattr(nvml, "visible_devices", list)
    with stack.answers_of_the_driver():
        assert torch.cuda.get_device_properties is own


LOCALES = {"zh_CN": "GBK", "ja_JP": "EUC-JP", "zh_TW": "BIG5", "ko_KR": "EUC-KR"}
SAYS = "import sys; from repro.machine.stack import restart_in_utf8; {}print(sys.flags.utf8_mode, sys.argv[1:])"


@pytest.fixture(scope="module", params=LOCALES)
def locale(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A locale of a language, made once for all variables."""
    made = tmp_path_factory.mktemp("locales") / f"{request.param}.{LOCALES[request.param]}"
    if subprocess.run(["localedef", "-i", request.param, "-f", LOCALES[request.param], str(made)]).returncode:
        pytest.skip(f"the C library's sources of {made.name} are not here")
    return made


@pytest.mark.skipif(shutil.which("localedef") is None, reason="makes locales with localedef")
@pytest.mark.parametrize("variable", ["LC_ALL", "LC_CTYPE", "LANG"])
def test_files_are_utf_8_in_every_locale_in_what_trains(locale: Path, variable: str) -> None:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHONUTF8"))}
    own = {"LOCPATH": str(locale.parent), variable: locale.name, "PYTHONPATH": str(ROOT)}

    def said(code: str, environment: Mapping[str, str]) -> str:
        command = [sys.executable, "-c", code, "a b", "\u00e9"]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout.decode(
            "utf-8", "replace"
        )

    assert said(SAYS.format(""), clean | own).startswith("0 "), "the locale is not in force"
    assert said(SAYS.format(""), stack.process_environment(clean | own)).startswith("1 ")
    assert said(SAYS.format("restart_in_utf8(); "), clean | own) == "1 ['a b', '\u00e9']\n"
