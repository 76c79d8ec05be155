"""Queries to the NVIDIA driver through its library NVML, which starts no CUDA in this process.

Without a driver there are no GPUs. A driver that does not answer is an error: its GPUs exist but cannot be used, so the
machine must not be taken for one without GPUs. Each GPU is asked by itself: of several, those that answer can be used.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ..console import UserError, say_once
from ..paper.gpus import find
from .devices import Device, Unusable, mask, may_name
from .host import host

_T = TypeVar("_T")
_SECONDS = 20.0  # without persistence mode the driver starts each GPU anew, in 1 to 2 s
_HIDING_ALL = ("", "-1")  # values of CUDA_VISIBLE_DEVICES for a run on the CPU


def visible_devices() -> list[Device]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects, numbered from 0 in its order; without it all in PCI order.

    CUDA itself may number GPUs of different types in another order, so pass GPUs to a process by Device.cuda_name.
    A GPU that cannot be used is left out, and named on stderr, once in a process. Unless the variable hides all GPUs,
    raises UserError where it leaves none that can be used, or this Python cannot ask the driver.
    """
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None and variable.strip() in _HIDING_ALL:
        return []
    found, unusable = _all_devices()
    chosen = mask(found, variable, unusable)
    if not chosen and may_name(variable, unusable):
        reasons = "; ".join(each.reason for each in unusable)
        raise UserError(f"{reasons}; or set CUDA_VISIBLE_DEVICES= to run on the CPU")
    for each in unusable:
        say_once(f"{each.reason}; it is left out")
    for device in chosen:
        if device.memory_source:
            say_once(
                f"the driver does not report the memory of GPU {device.number} ({device.driver_name}): taken are "
                f"{device.memory_source}, {device.memory_bytes / 2**30:.1f} GiB"
            )
    return chosen


def _all_devices() -> tuple[list[Device], list[Unusable]]:
    """Return every GPU that the driver lists, in PCI order, and those that cannot be used. A GPU in MIG mode is
    replaced by its slices."""
    try:
        import pynvml as nvml
    except ImportError:
        if _node() is None:
            return [], []
        from ..installation import way_to_install

        raise UserError(
            f"{_node()} is here, and nvidia-ml-py, which reads the GPU, is not installed: {way_to_install('read')}"
        ) from None
    try:
        return _in_time(nvml, _devices)
    except nvml.NVMLError as error:
        without_driver = (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded)
        if isinstance(error, without_driver) and _node() is None:
            return [], []
        raise UserError(
            f"the NVIDIA driver does not tell of its GPUs: {str(error).rstrip('.')} (NVML); nvidia-smi should list "
            "them: after an upgrade of the driver reboot, in a container name its GPUs when it starts, or set "
            "CUDA_VISIBLE_DEVICES= to run on the CPU"
        ) from error


def driver() -> str | None:
    """Return the version of the NVIDIA driver; None where there is no driver, or it does not answer."""
    return _of_system(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()))


def cuda() -> tuple[int, int] | None:
    """Return the newest CUDA version that the NVIDIA driver runs; None as for `driver`."""
    version = _of_system(lambda nvml: int(nvml.nvmlSystemGetCudaDriverVersion_v2()))  # 13000 is CUDA 13.0
    return None if version is None else (version // 1000, version % 1000 // 10)


def _of_system(ask: Callable[[Any], _T]) -> _T | None:
    try:
        import pynvml as nvml

        return _in_time(nvml, ask)
    except Exception:  # for the record and for advice: queries that a run needs are elsewhere
        return None


def state(local: int) -> dict[str, float | None] | None:
    """Return clocks in MHz, power in W, temperature in degrees C, throttle reasons and the number of compute processes
    of a process's `local`-th GPU, by the names of Device.cuda_name. Of a MIG slice only the processes are its own, all
    else is the whole GPU's. A value that the GPU does not report is None, as is the result without NVML."""
    try:
        nvml, handle, whole = _named(local)
    except Exception:  # a GPU that does not answer must not lose a measurement
        return None
    questions = {
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(whole, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(whole, nvml.NVML_CLOCK_MEM),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(whole) / 1e3,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(whole, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(whole),
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }
    return dict.fromkeys(questions) | _answers(questions)


def counters(local: int) -> dict[str, float]:
    """Return what a process's `local`-th GPU, see `state`, has counted since its driver started: the `joules` that it
    took, and the seconds that heat (`too_hot`) and the limits of its board (`short_of_power`) held its clocks down.
    Those that it does not report are left out (joules are from Volta on), all of a MIG slice: they are the whole GPU's.
    The joules are brought up to date every 20 to 100 ms."""
    try:
        nvml, handle, whole = _named(local)
    except Exception:  # as above
        return {}
    if handle is not whole:
        return {}

    def held_down(policy: int) -> float:  # the fields that count clock events have other numbers in other drivers
        return float(nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime / 1e9)

    return _answers(
        {
            "joules": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
            "too_hot": lambda: held_down(nvml.NVML_PERF_POLICY_THERMAL),
            "short_of_power": lambda: held_down(nvml.NVML_PERF_POLICY_BOARD_LIMIT),
        }
    )


def _answers(questions: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Return the answers to those questions that this GPU, the driver and pynvml can answer."""
    found = {}
    for name, ask in questions.items():
        with suppress(Exception):
            found[name] = ask()
    return found


def memory(local: int) -> tuple[int, int | None] | None:
    """Return the total and used bytes of a process's `local`-th GPU or slice, see `state`; None where unknown. The used
    ones are other processes', as long as this process has allocated nothing there; None where the driver does not
    report them."""
    try:
        nvml, handle, whole = _named(local)
        total, source = _memory(nvml, handle, whole)
        if source:
            return total, None
        try:
            info = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except Exception:  # drivers before 510 count their own reserve as used
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
    except Exception:  # as above
        return None
    return int(info.total), int(info.used)


def _in_time(nvml: Any, ask: Callable[[Any], _T]) -> _T:
    """Return what `ask` gets from NVML. Raise UserError where the driver hangs, as with a GPU that fell off the bus."""
    answers: list[_T | Exception] = []

    def keep() -> None:
        try:
            nvml.nvmlInit()
            try:
                answers.append(ask(nvml))
            finally:
                nvml.nvmlShutdown()
        except Exception as error:
            answers.append(error)

    asking = threading.Thread(target=keep, daemon=True)  # the interpreter does not wait for it
    asking.start()
    asking.join(_SECONDS)
    if not answers:
        raise UserError(
            f"the NVIDIA driver has not answered within {_SECONDS:.0f} s, so it hangs: see dmesg, reboot, or set "
            "CUDA_VISIBLE_DEVICES= to run on the CPU"
        )
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _devices(nvml: Any) -> tuple[list[Device], list[Unusable]]:
    found: list[Device] = []
    unusable = []
    for number in range(nvml.nvmlDeviceGetCount()):
        before = len(found)
        try:
            for handle, whole in _handles(nvml, number):
                found.append(_device(nvml, len(found), number, handle, whole))
        except (nvml.NVMLError, ValueError) as error:
            what = f"does not answer, {str(error).rstrip('.')} (NVML): see dmesg, and reset it or reboot"
            unusable.append(Unusable(number, f"GPU {number} {what}"))
            continue
        if len(found) == before:
            what = f"is in MIG mode and has no instance: nvidia-smi mig -i {number} -cgi PROFILE -C makes one"
            unusable.append(Unusable(number, f"GPU {number} {what}, nvidia-smi -i {number} -mig 0 ends the mode"))
    return found, unusable


def _node() -> Path | None:
    """Return a GPU's device node, by which run_all.sh also detects GPUs; None without one."""
    return next(iter(sorted(Path("/dev").glob("nvidia[0-9]*"))), None)


def _handles(nvml: Any, number: int) -> Iterator[tuple[Any, Any]]:
    """Yield a GPU's NVML handle, or in MIG mode those of its slices, each with that of the whole GPU."""
    whole = nvml.nvmlDeviceGetHandleByIndex(number)
    if not _in_mig_mode(nvml, whole):
        yield whole, whole
        return
    for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(whole)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, place), whole
        except nvml.NVMLError_NotFound:
            continue


def _named(local: int) -> tuple[Any, Any, Any]:
    """Return NVML, its handle of the `local`-th GPU or slice that is visible, and that of its whole GPU."""
    import pynvml as nvml

    nvml.nvmlInit()  # a forked process has to initialise NVML itself
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    name = visible.split(",")[local] if visible else str(local)
    if name.startswith("MIG-"):
        handle = nvml.nvmlDeviceGetHandleByUUID(name)
        return nvml, handle, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    handle = nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml, handle, handle


def _in_mig_mode(nvml: Any, handle: Any) -> bool:
    try:
        return nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # no MIG in this GPU or driver, or a sandbox blocks the query
        return False


def _device(nvml: Any, index: int, number: int, handle: Any, whole: Any) -> Device:
    name = nvml.nvmlDeviceGetName(handle)
    memory_bytes, source = _memory(nvml, handle, whole)
    return Device(
        index=index,
        number=number,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        driver_name=name,
        gpu=find(name),
        memory_bytes=memory_bytes,
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(whole)),
        memory_source=source,
    )


def _memory(nvml: Any, handle: Any, whole: Any) -> tuple[int, str]:
    """Return the bytes of a GPU's memory, and whose memory that is where the driver does not report the GPU's: a GPU
    that shares the host's memory, such as GB10 or a Jetson, has none of its own."""
    try:
        total = int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError_NotSupported:
        total = 0
    if total:
        return total, ""
    if handle is not whole:
        raise ValueError("its slice reports no memory")
    known = find(nvml.nvmlDeviceGetName(whole))
    return (host().memory_bytes, "the host's") if known is None else (int(known.memory_bytes), "its data sheet's")
