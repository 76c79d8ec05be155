"""`repro gpus`: the catalogue of GPUs, and how many of each are here."""

from __future__ import annotations

import argparse

from ..errors import UserError
from ..formats import add_format, render
from ..gpus import Gpu, catalogue
from ..nvml import visible_devices
from ..stderr import say


def options(parser: argparse.ArgumentParser) -> None:
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    here = _here()
    rows = [
        {
            "GPU": gpu.name,
            "in the paper": gpu.paper_name,
            "generation": gpu.generation,
            "capability": ".".join(map(str, gpu.compute_capability)),
            "GB": gpu.memory_gb,
            "fp32 TFLOP/s": gpu.fp32_tflops,
            "TF32": gpu.tf32_tflops,
            "fp16": gpu.fp16_tflops,
            "bf16": gpu.bf16_tflops,
            "GB/s": gpu.bandwidth_gb_s,
            "W": gpu.board_power_w,
            "here": here.count(gpu) or None,
        }
        for gpu in catalogue()
    ]
    print(render(rows, given.format))
    return 0


def _here() -> list[Gpu | None]:
    try:
        return [device.gpu for device in visible_devices()]
    except UserError as error:  # the catalogue is worth printing all the same
        say(error)
        return []
