"""`repro gpus`: the catalogue of GPUs, with the number of each on this machine."""

from __future__ import annotations

import argparse

from ..console import UserError, say
from ..formats import add_format, render
from ..machine.nvml import visible_devices
from ..paper.gpus import Gpu, catalogue

_HEADINGS = {
    "gpu": "GPU",
    "paper_name": "in the paper",
    "compute_capability": "capability",
    "memory_gb": "GB",
    "fp32_tflops": "fp32 TFLOP/s",
    "tf32_tflops": "TF32",
    "fp16_tflops": "fp16",
    "bf16_tflops": "bf16",
    "bandwidth_gb_s": "GB/s",
    "board_power_w": "W",
}


def options(parser: argparse.ArgumentParser) -> None:
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    here = _here()
    rows = [
        {
            "gpu": gpu.name,
            "paper_name": gpu.paper_name,
            "generation": gpu.generation,
            "compute_capability": ".".join(map(str, gpu.compute_capability)),
            "memory_gb": gpu.memory_gb,
            "fp32_tflops": gpu.fp32_tflops,
            "tf32_tflops": gpu.tf32_tflops,
            "fp16_tflops": gpu.fp16_tflops,
            "bf16_tflops": gpu.bf16_tflops,
            "bandwidth_gb_s": gpu.bandwidth_gb_s,
            "board_power_w": gpu.board_power_w,
            "here": here.count(gpu) or None,
        }
        for gpu in catalogue()
    ]
    print(render(rows, given.format, headings=_HEADINGS))
    return 0


def _here() -> list[Gpu | None]:
    try:
        return [device.gpu for device in visible_devices()]
    except UserError as error:  # the catalogue is still useful
        say(error)
        return []
