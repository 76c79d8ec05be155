"""A GPU's clocks, power and temperature at this moment, through NVML."""

from __future__ import annotations

import os
from typing import Any


def state(local: int) -> dict[str, Any] | None:
    """MHz, W, degrees C, the reasons why the clock is held down, and how many processes compute, of the `local`-th
    visible GPU. What the GPU does not tell is None, and so is all of it without NVML."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        handle = nvml.nvmlDeviceGetHandleByIndex(int(visible.split(",")[local]) if visible else local)
    except Exception:  # a GPU that does not tell is no reason to lose a measurement
        return None
    questions = {
        "sm_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except nvml.NVMLError:
            found[name] = None
    return found
