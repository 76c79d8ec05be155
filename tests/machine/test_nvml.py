"""The driver tells which GPUs are here and what they do; one that does not answer is never taken for no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from repro import console
from repro.commands.devices import devices_and_counts
from repro.console import UserError
from repro.machine import nvml
from repro.machine.host import host
from repro.machine.stack import server_environment
from repro.measure import phases
from tests.support.command_line import ROOT, process, refusal, repro

_ERRORS = ("NotSupported", "FunctionNotFound", "NotFound", "LibraryNotFound", "DriverNotLoaded")


def driver_of_a_machine_in_mig_mode() -> ModuleType:
    """The part of NVML that is asked, on a machine with an A100 and an H100 cut into two slices.

    Handles 0 and 1 are the GPUs, 10 and 12 the slices, of which NVML tells no clock.
    """
    stub = ModuleType("pynvml")
    error = type("NVMLError", (Exception,), {})
    errors = {name: type(f"NVMLError_{name}", (error,), {}) for name in _ERRORS}
    names = {
        0: "NVIDIA A100-SXM4-80GB",
        10: "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        12: "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    }
    uuids = {0: "GPU-0", 1: "GPU-1", 10: "MIG-10", 12: "MIG-12"}

    def mig_mode(handle: int) -> list[int]:
        if handle == 0:
            raise errors["NotSupported"]
        return [1, 1]

    def mig_slice(handle: int, place: int) -> int:
        if place not in (0, 2):
            raise errors["NotFound"]
        return 10 * handle + place

    def of_a_whole_gpu(*figures: int) -> Callable[..., int]:
        def tell(handle: int, *_: object) -> int:
            if handle >= 10:
                raise errors["NotSupported"]
            return figures[handle]

        return tell

    vars(stub).update(
        **{f"NVMLError_{name}": each for name, each in errors.items()},
        NVMLError=error,
        NVML_DEVICE_MIG_ENABLE=1,
        NVML_CLOCK_SM=0,
        NVML_CLOCK_MEM=1,
        NVML_TEMPERATURE_GPU=0,
        NVML_PERF_POLICY_THERMAL=1,
        NVML_PERF_POLICY_BOARD_LIMIT=3,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=[0, 1].__getitem__,
        nvmlDeviceGetHandleByUUID={uuid: handle for handle, uuid in uuids.items()}.__getitem__,
        nvmlDeviceGetDeviceHandleFromMigDeviceHandle=lambda handle: handle // 10,
        nvmlDeviceGetMigMode=mig_mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda handle: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=mig_slice,
        nvmlDeviceGetName=names.__getitem__,
        nvmlDeviceGetUUID=uuids.__getitem__,
        nvmlMemory_v2=2,
        nvmlDeviceGetMemoryInfo=lambda handle, version=None: SimpleNamespace(
            total=(40 if handle >= 10 else 80) * 2**30,
            used=handle * 2**30 if version else 2**40,  # the first version counts what the driver reserves
        ),
        nvmlDeviceGetCudaComputeCapability=[(8, 0), (9, 0)].__getitem__,
        nvmlDeviceGetClockInfo=lambda handle, clock: of_a_whole_gpu(*[(1410, 1980), (1593, 2619)][clock])(handle),
        nvmlDeviceGetPowerUsage=of_a_whole_gpu(400_000, 700_000),
        nvmlDeviceGetTotalEnergyConsumption=of_a_whole_gpu(5_000, 7_500),
        nvmlDeviceGetViolationStatus=lambda handle, policy: SimpleNamespace(
            referenceTime=0, violationTime=of_a_whole_gpu(*[(0, 2 * 10**9), (10**9, 0)][policy // 2])(handle)
        ),
        nvmlDeviceGetTemperature=of_a_whole_gpu(40, 70),
        nvmlDeviceGetCurrentClocksThrottleReasons=of_a_whole_gpu(0, 4),
        nvmlDeviceGetComputeRunningProcesses={0: [1], 10: [2, 3], 12: [4], 1: [2, 3, 4]}.__getitem__,
    )
    return stub


@pytest.fixture
def in_mig_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver_of_a_machine_in_mig_mode())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("in_mig_mode")
def test_a_slice_of_a_gpu_is_never_taken_for_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [(gpu.name, gpu.uuid, gpu.compute_capability) for gpu in nvml.visible_devices()] == [
        ("A100", "GPU-0", (8, 0)),
        ("unknown GPU (NVIDIA H100 80GB HBM3 MIG 3g.40gb)", "MIG-10", (9, 0)),
        ("unknown GPU (NVIDIA H100 80GB HBM3 MIG 3g.40gb)", "MIG-12", (9, 0)),
    ]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-12")
    assert [(gpu.index, gpu.uuid, gpu.memory_bytes) for gpu in nvml.visible_devices()] == [(0, "MIG-12", 40 * 2**30)]


@pytest.mark.usefixtures("in_mig_mode")
def test_slices_of_gpus_are_used_one_at_a_time() -> None:
    with pytest.raises(UserError, match="2 MIG slices: CUDA gives a process one, and NCCL joins none; take --gpus 1"):
        devices_and_counts("1,2", None)
    devices, counts = devices_and_counts("device=1", None)
    assert ([device.uuid for device in devices], counts) == (["MIG-10"], (1,))


@pytest.mark.usefixtures("in_mig_mode")
def test_trials_are_given_a_gpu_by_its_number_and_a_slice_by_its_uuid() -> None:
    variables = [server_environment([device]) for device in nvml.visible_devices()]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in variables] == ["0", "MIG-10", "MIG-12"]
    assert {each["CUDA_DEVICE_ORDER"] for each in variables} == {"PCI_BUS_ID"}


@pytest.mark.usefixtures("in_mig_mode")
def test_a_slice_has_processes_of_its_own_and_the_clocks_of_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for device in nvml.visible_devices():
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", device.cuda_name)
        state = nvml.state(0)
        assert state is not None
        found.append((state["sm_mhz"], state["power_w"], state["throttle_reasons"], state["processes"]))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert found == [(1410, 400, 0, 1), (1980, 700, 4, 2), (1980, 700, 4, 1)]


@pytest.mark.usefixtures("in_mig_mode")
def test_each_rank_is_reported_of_its_own_gpu_in_the_order_that_the_process_has_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_h100 = {"sm_mhz": 1980, "memory_mhz": 2619, "power_w": 700, "temperature_c": 70, "throttle_reasons": 4}
    of_a100 = {"sm_mhz": 1410, "memory_mhz": 1593, "power_w": 400, "temperature_c": 40, "throttle_reasons": 0}
    for visible in ("1,0", "MIG-12,0"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        found = [nvml.state(local) for local in (0, 1)]
        assert found == [of_h100 | {"processes": 3 if visible == "1,0" else 1}, of_a100 | {"processes": 1}]


@pytest.mark.usefixtures("in_mig_mode")
def test_each_rank_is_reported_of_its_own_memory_and_what_of_it_others_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-12,0")
    assert [nvml.memory(local) for local in (0, 1, 2)] == [(40 * 2**30, 12 * 2**30), (80 * 2**30, 0), None]


@pytest.mark.usefixtures("in_mig_mode")
def test_counters_are_those_of_a_whole_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0,MIG-12")
    h100 = {"joules": 7.5, "too_hot": 2.0, "short_of_power": 0.0}
    a100 = {"joules": 5.0, "too_hot": 0.0, "short_of_power": 1.0}
    assert [nvml.counters(local) for local in range(4)] == [h100, a100, {}, {}]


@pytest.mark.usefixtures("in_mig_mode")
def test_counters_that_a_gpu_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["pynvml"], "nvmlDeviceGetViolationStatus")
    assert nvml.counters(0) == {"joules": 5.0}


def test_rates_are_those_of_the_time_between_two_looks_at_the_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [{"joules": 100.0, "too_hot": 3.0}, {"joules": 900.0, "too_hot": 4.0}, {}, {"joules": 1.0}, {}]
    monkeypatch.setattr(nvml, "counters", lambda local: looks.pop(0))
    monkeypatch.setattr(phases, "wait", lambda device: None)
    monkeypatch.setattr(phases, "time", SimpleNamespace(perf_counter=iter([0.0, 4.0, 10.0, 12.0, 20.0, 20.5]).__next__))
    rank: Any = SimpleNamespace(cuda=True, interleaved=False, device=None, local=0)
    assert [phases._Counters(rank).rates() for _ in range(2)] == [{"joules": 200.0, "too_hot": 0.25}, {}]
    looks.append({"joules": 2.0})
    assert phases._Counters(rank).rates() == {}, "less time than the counters resolve"


def test_an_older_driver_is_asked_for_its_memory_as_it_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = driver_of_a_machine_in_mig_mode()

    def of_2021(handle: int) -> SimpleNamespace:
        return SimpleNamespace(total=80, used=5)

    monkeypatch.setitem(sys.modules, "pynvml", stub)
    monkeypatch.setattr(stub, "nvmlDeviceGetMemoryInfo", of_2021)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert nvml.memory(0) == (80, 5)
    monkeypatch.delattr(stub, "nvmlDeviceGetMemoryInfo")
    assert nvml.memory(0) is None


def test_a_question_that_a_driver_refuses_costs_its_answer_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    stub = driver_of_a_machine_in_mig_mode()

    def refused(handle: int) -> None:
        raise stub.NVMLError

    monkeypatch.setitem(sys.modules, "pynvml", stub)
    monkeypatch.setattr(stub, "nvmlDeviceGetMigMode", refused)
    monkeypatch.setattr(stub, "nvmlDeviceGetPowerUsage", refused)
    monkeypatch.delattr(stub, "nvmlDeviceGetTemperature")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(stub, "nvmlDeviceGetCount", lambda: 1)
    assert len(nvml.visible_devices()) == 1
    state = nvml.state(0)
    assert state is not None
    assert (state["sm_mhz"], state["power_w"], state["temperature_c"]) == (1410, None, None)


def test_without_the_drivers_library_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # importing it then fails
    monkeypatch.setattr(nvml, "_node", lambda: None)
    assert nvml.visible_devices() == []


def test_devices_are_those_that_the_driver_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    tool = shutil.which("nvidia-smi")
    listing = subprocess.run([tool, "-L"], capture_output=True, text=True).stdout if tool else ""
    uuids = re.findall(r"UUID: ([^)]+)\)", listing)
    slices = [uuid for uuid in uuids if uuid.startswith("MIG-")]
    assert [gpu.uuid for gpu in nvml.visible_devices()] == (slices or uuids)


# --- A driver that does not answer ---


def failing(monkeypatch: pytest.MonkeyPatch, error: str, node: bool) -> None:
    stub = driver_of_a_machine_in_mig_mode()

    def begin() -> None:
        raise getattr(stub, error)(error)

    monkeypatch.setitem(sys.modules, "pynvml", stub)
    monkeypatch.setattr(stub, "nvmlInit", begin)
    monkeypatch.setattr(nvml, "_node", lambda: Path("/dev/nvidia0") if node else None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize("error", ["NVMLError_LibraryNotFound", "NVMLError_DriverNotLoaded"])
def test_a_machine_without_a_driver_has_no_gpus_unless_there_is_the_node_of_one(
    monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    failing(monkeypatch, error, node=False)
    assert nvml.visible_devices() == []
    failing(monkeypatch, error, node=True)
    with pytest.raises(UserError, match=f"{error} .NVML.; nvidia-smi should list them"):
        nvml.visible_devices()


def test_gpus_that_are_hidden_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "NVMLError", node=True)
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert nvml.visible_devices() == []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError):
        nvml.visible_devices()


def test_a_driver_that_does_not_answer_tells_no_version_and_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "NVMLError", node=True)
    assert (nvml.driver(), nvml.state(0)) == (None, None)


# --- A GPU of several that does not answer ---


def two_gpus(monkeypatch: pytest.MonkeyPatch, **answers: Callable[..., object]) -> ModuleType:
    """An A100 and an unknown GPU, neither in MIG mode, that answer some questions in another way."""
    stub = driver_of_a_machine_in_mig_mode()
    monkeypatch.setitem(sys.modules, "pynvml", stub)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    console.say_once.cache_clear()
    names = {0: "NVIDIA A100-SXM4-80GB", 1: "NVIDIA Thor"}
    vars(stub).update(nvmlDeviceGetMigMode=lambda handle: [0, 0], nvmlDeviceGetName=names.__getitem__)
    vars(stub).update(answers)
    return stub


def answering(stub: ModuleType, question: str, lost: int, error: Exception) -> Callable[..., object]:
    usual = getattr(stub, question)

    def answer(handle: int, *more: object, **named: object) -> object:
        if handle == lost:
            raise error
        return usual(handle, *more, **named)

    return answer


@pytest.mark.parametrize(
    "question",
    ["HandleByIndex", "Name", "UUID", "MemoryInfo", "CudaComputeCapability"],
)
@pytest.mark.parametrize("lost", [0, 1])
def test_a_gpu_that_does_not_answer_is_named_once_and_the_others_are_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], question: str, lost: int
) -> None:
    stub = two_gpus(monkeypatch)
    name = f"nvmlDeviceGet{question}"
    monkeypatch.setattr(stub, name, answering(stub, name, lost, stub.NVMLError("Unknown Error")))
    healthy = 1 - lost
    for variable in (None, "0,1", "1,0", str(healthy), f"GPU-{healthy}", f"GPU-{lost},GPU-{healthy}"):
        if variable is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        assert [(gpu.index, gpu.number) for gpu in nvml.visible_devices()] == [(0, healthy)]
        assert nvml.visible_devices()[0].cuda_name == str(healthy)
    said = (
        f"repro: GPU {lost} does not answer, Unknown Error (NVML): see dmesg, and reset it or reboot; it is left out\n"
    )
    assert capsys.readouterr().err == said
    for variable in (str(lost), f"GPU-{lost}"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        with pytest.raises(UserError, match=f"GPU {lost} does not answer, .* to run on the CPU"):
            nvml.visible_devices()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert nvml.visible_devices() == []


@pytest.mark.parametrize("unreported", [True, False], ids=["not supported", "zero"])
def test_a_gpu_without_memory_of_its_own_has_the_hosts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unreported: bool
) -> None:
    stub = two_gpus(monkeypatch)
    usual = stub.nvmlDeviceGetMemoryInfo

    def memory(handle: int, version: object = None) -> object:
        if handle == 1 and unreported:
            raise stub.NVMLError_NotSupported("Not Supported")
        return SimpleNamespace(total=0, used=0) if handle == 1 else usual(handle, version)

    monkeypatch.setattr(stub, "nvmlDeviceGetMemoryInfo", memory)
    assert [gpu.memory_bytes for gpu in nvml.visible_devices()] == [80 * 2**30, host().memory_bytes]
    assert re.fullmatch(
        r"repro: the driver does not report the memory of GPU 1 \(NVIDIA Thor\): taken are the host's, [0-9.]+ GiB\n",
        capsys.readouterr().err,
    )
    assert [nvml.memory(local) for local in (0, 1)] == [(80 * 2**30, 0), (host().memory_bytes, None)]


def test_a_known_gpu_whose_memory_is_not_reported_has_that_of_its_data_sheet(monkeypatch: pytest.MonkeyPatch) -> None:
    two_gpus(monkeypatch, nvmlDeviceGetMemoryInfo=lambda handle, version=None: SimpleNamespace(total=0, used=0))
    [a100, _] = nvml.visible_devices()
    assert a100.gpu is not None
    assert a100.memory_bytes == a100.gpu.memory_bytes


def without_instance(stub: ModuleType, handle: int, place: int) -> int:
    raise stub.NVMLError_NotFound


def test_a_gpu_in_mig_mode_without_an_instance_is_named_and_never_taken_for_the_cpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stub = two_gpus(monkeypatch, nvmlDeviceGetMigMode=lambda handle: [handle, handle])
    monkeypatch.setattr(stub, "nvmlDeviceGetMigDeviceHandleByIndex", partial(without_instance, stub))
    reason = (
        "GPU 1 is in MIG mode and has no instance: nvidia-smi mig -i 1 -cgi PROFILE -C makes one, "
        "nvidia-smi -i 1 -mig 0 ends the mode"
    )
    assert [gpu.number for gpu in nvml.visible_devices()] == [0]
    assert capsys.readouterr().err == f"repro: {reason}; it is left out\n"
    for variable in ("1", "GPU-1", "MIG-10"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
        with pytest.raises(UserError, match=reason):
            devices_and_counts(None, None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(stub, "nvmlDeviceGetMigMode", lambda handle: [1, 1])
    with pytest.raises(UserError, match=f"GPU 0 is in MIG mode .*; {reason}; or set CUDA_VISIBLE_DEVICES= to run on"):
        nvml.visible_devices()


_OF_ANOTHER_VERSION = """
class NVMLError(Exception):
    pass
NVMLError_LibraryNotFound = type("NVMLError_LibraryNotFound", (NVMLError,), {})
NVMLError_DriverNotLoaded = type("NVMLError_DriverNotLoaded", (NVMLError,), {})
def nvmlInit():
    raise NVMLError("Driver/library version mismatch")
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [("run --models vit", 2), ("run --gpus all", 2), ("lab", 2), ("doctor", 1)],
)
def test_a_driver_of_another_version_than_its_library_measures_nothing(tmp_path: Path, command: str, code: int) -> None:
    (tmp_path / "pynvml.py").write_text(_OF_ANOTHER_VERSION)
    found = process(*command.split(), PYTHONPATH=f"{tmp_path}:{ROOT}", CUDA_VISIBLE_DEVICES="0", cwd=tmp_path)
    output = found.stdout if command == "doctor" else found.stderr
    lines = 2 if command == "doctor" else 1  # its first are the states of all checks
    assert (found.returncode, len(output.splitlines())) == (code, lines), found
    assert "driver does not tell of its GPUs: Driver/library version mismatch (NVML); nvidia-smi should list" in output
    assert not (tmp_path / "results").exists()


def test_the_catalogue_is_listed_beside_a_driver_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(_OF_ANOTHER_VERSION)
    found = process("list", "gpus", PYTHONPATH=f"{tmp_path}:{ROOT}", CUDA_VISIBLE_DEVICES="0", cwd=tmp_path)
    assert (found.returncode, "RTX 3090" in found.stdout) == (0, True)
    assert found.stderr.startswith("repro: the NVIDIA driver does not tell of its GPUs: ")


def test_a_driver_that_hangs_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = "import time\n" + _OF_ANOTHER_VERSION.replace("raise", "time.sleep(100); raise")
    (tmp_path / "pynvml.py").write_text(hanging)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    monkeypatch.setattr(nvml, "_SECONDS", 0.2, raising=False)
    for command in (["run", "--models", "vit"], ["lab"]):
        output = refusal(*command, "--out", str(tmp_path / "out"), CUDA_VISIBLE_DEVICES="0")
        assert "the NVIDIA driver has not answered within 0 s, so it hangs: " in output
    found = repro("doctor", CUDA_VISIBLE_DEVICES="0")
    assert (found.returncode, found.stdout.count("so it hangs")) == (1, 1)
