"""What the NVIDIA driver tells through its library, NVML, which starts no CUDA in this process.

Where there is no driver there are no GPUs. A driver that does not answer is another matter: its GPUs are there and
cannot be used, which is told, and never taken for a machine without.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..console import UserError
from ..paper.gpus import find
from .devices import Device, mask

_T = TypeVar("_T")
_SECONDS = 20.0  # without persistence the driver starts each GPU anew, in a second or two
_HIDING_ALL = ("", "-1")  # as people write CUDA_VISIBLE_DEVICES to run on the CPU


def visible_devices() -> list[Device]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves visible, numbered from 0 in its order; else all in PCI order.

    CUDA itself may number unlike GPUs otherwise, so tell a process which are its own, see Device.cuda_name. Raises
    UserError as `devices` does, unless the variable hides all.
    """
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None and variable.strip() in _HIDING_ALL:
        return []
    return mask(devices(), variable)


def devices() -> list[Device]:
    """Every GPU that the driver shows, in PCI order; a GPU in MIG mode counts as its slices.

    Raises UserError where there is a GPU that the driver, or this Python, cannot tell of.
    """
    try:
        import pynvml as nvml
    except ImportError:
        if _node() is None:
            return []
        from ..installation import way_to_install

        raise UserError(
            f"{_node()} is here, and nvidia-ml-py, which reads the GPU, is not installed: {way_to_install()}"
        ) from None
    try:
        return _in_time(lambda: _devices(nvml))
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded) as error:
        if _node() is None:
            return []
        raise _unusable(error) from error
    except nvml.NVMLError as error:
        raise _unusable(error) from error


def driver() -> str | None:
    """The version of the NVIDIA driver; None where there is none, or none that tells."""
    try:
        import pynvml as nvml

        return _in_time(lambda: _version(nvml))
    except Exception:  # what a run needs of the driver it asks elsewhere; this one is for the record
        return None


def state(local: int) -> dict[str, float | None] | None:
    """MHz, W, degrees C, the reasons why the clock is held down, and how many processes compute, of the `local`-th
    GPU of a process whose GPUs are named as Device.cuda_name does. Of a MIG slice the processes are its own, all else
    is of the GPU that it is part of. What the GPU does not tell is None, and so is all of it without NVML."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        handle, whole = _named(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"), local)
    except Exception:  # a GPU that does not tell is no reason to lose a measurement
        return None
    questions = {
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(whole, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(whole, nvml.NVML_CLOCK_MEM),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(whole) / 1e3,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(whole, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(whole),
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }
    found: dict[str, float | None] = {}
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except Exception:  # nor is one that this version of the driver, or of its Python side, does not know
            found[name] = None
    return found


def memory(local: int) -> tuple[int, int] | None:
    """Bytes of the `local`-th GPU of such a process, or slice, and how many of them are taken: by others, as long as
    this process has made nothing there. None where nobody tells."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()  # in a forked process what the one before it began does not count
        handle, _ = _named(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"), local)
        try:
            told = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        except Exception:  # a driver before 510: what it keeps for itself counts as taken
            told = nvml.nvmlDeviceGetMemoryInfo(handle)
    except Exception:  # as above
        return None
    return int(told.total), int(told.used)


def _in_time(ask: Callable[[], _T]) -> _T:
    """Return what `ask` does; a UserError where the driver hangs, as with a GPU that fell off the bus."""
    answers: list[_T | Exception] = []

    def keep() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            answers.append(error)

    asking = threading.Thread(target=keep, daemon=True)  # which the interpreter does not wait for at its end
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


def _devices(nvml: Any) -> list[Device]:
    with _asking(nvml):
        return [_device(nvml, index, *handles) for index, handles in enumerate(_handles(nvml))]


def _version(nvml: Any) -> str:
    with _asking(nvml):
        return str(nvml.nvmlSystemGetDriverVersion())


@contextmanager
def _asking(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


def _node() -> Path | None:
    """A GPU's device node, by which run_all.sh, too, tells that there is a GPU."""
    return next(iter(sorted(Path("/dev").glob("nvidia[0-9]*"))), None)


def _unusable(error: Exception) -> UserError:
    return UserError(
        f"the NVIDIA driver does not tell of its GPUs: {str(error).rstrip('.')} (NVML); nvidia-smi should list them: "
        "after an upgrade of the driver reboot, in a container name its GPUs when it starts, or set "
        "CUDA_VISIBLE_DEVICES= to run on the CPU"
    )


def _handles(nvml: Any) -> Iterator[tuple[int, Any, Any]]:
    """Of every GPU or MIG slice the GPU's number, its own NVML handle, and that of the GPU that it is (part of)."""
    for number in range(nvml.nvmlDeviceGetCount()):
        whole = nvml.nvmlDeviceGetHandleByIndex(number)
        if not _in_mig_mode(nvml, whole):
            yield number, whole, whole
            continue
        for place in range(nvml.nvmlDeviceGetMaxMigDeviceCount(whole)):
            try:
                yield number, nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, place), whole
            except nvml.NVMLError_NotFound:
                continue


def _named(nvml: Any, visible: str | None, local: int) -> tuple[Any, Any]:
    """The handles of the `local`-th GPU or slice that CUDA_VISIBLE_DEVICES names, and of the GPU it is (part of)."""
    name = visible.split(",")[local] if visible else str(local)
    if name.startswith("MIG-"):
        handle = nvml.nvmlDeviceGetHandleByUUID(name)
        return handle, nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    handle = nvml.nvmlDeviceGetHandleByIndex(int(name))
    return handle, handle


def _in_mig_mode(nvml: Any, handle: Any) -> bool:
    try:
        return nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # the GPU has none, the driver knows of none, or a sandbox passes on no such question
        return False


def _device(nvml: Any, index: int, number: int, handle: Any, whole: Any) -> Device:
    name = nvml.nvmlDeviceGetName(handle)
    return Device(
        index=index,
        number=number,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        driver_name=name,
        gpu=find(name),
        memory_bytes=nvml.nvmlDeviceGetMemoryInfo(handle).total,
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(whole)),
    )
