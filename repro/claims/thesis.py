"""The thesis: an RTX 4090 rented by the hour against a V100."""

from __future__ import annotations

from . import facts
from .registry import recomputes
from .working import Working, shown


@recomputes("thesis-rtx-4090-cheaper", terms="on-demand")
@recomputes("thesis-spot-cheaper", terms="spot")
def hour(terms: str) -> Working:
    """US dollars of an hour with one RTX 4090."""
    return facts.rental("RTX 4090", 1, "RunPod", terms)


@recomputes("thesis-bandwidth")
def bandwidth() -> Working:
    v100, rtx_4090 = (facts.figure(gpu, "bandwidth_gb_s", "GB/s") for gpu in ("V100 16 GB", "RTX 4090"))
    return rtx_4090 / v100


@recomputes("thesis-cuda-cores")
def cuda_cores() -> Working:
    return facts.quantity("rtx_4090/cuda_cores") / facts.quantity("v100/cuda_cores")


@recomputes("thesis-faster")
def faster() -> Working:
    """The ratio of the peaks in half precision."""
    v100, rtx_4090 = (facts.figure(gpu, "fp16_tflops", "TFLOP/s") for gpu in ("V100 16 GB", "RTX 4090"))
    return rtx_4090 / v100


@recomputes("thesis-cost-effective")
def cost_effective() -> Working:
    """The ratio of the peaks that a dollar rents."""
    v100 = facts.figure("V100 16 GB", "fp16_tflops", "TFLOP/s") / facts.rental("V100 16 GB", 1, "AWS", "on-demand")
    return facts.figure("RTX 4090", "fp16_tflops", "TFLOP/s") / hour("on-demand") / v100


@recomputes("thesis-two-gpus")
def two_gpus() -> Working:
    return hour("on-demand") * 2


@recomputes("thesis-two-gpus-per-gpu-hour")
def per_gpu_hour() -> Working:
    """US dollars of a GPU-hour of the instance with two GPUs."""
    instance = facts.rental("RTX 4090", 2, "RunPod", "on-demand")
    return (instance / 2).told(f"{shown(instance.value.value)} USD are the price of an hour of the whole instance")
