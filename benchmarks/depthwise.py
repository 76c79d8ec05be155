"""How fast depthwise convolutions of 7 x 7 run in fp32, forward and backward, in both memory layouts: the only operator
of ConvNeXt that no other recipe has. The widths are those of ConvNeXt-T, which no recipe is."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from repro.predict.hardware import Machine, gpu_named

from . import Ask, tell, warm_ranks

if TYPE_CHECKING:
    from repro.measure.rank import Rank

SHAPES = ((96, 56), (192, 28), (384, 14), (768, 7))  # channels, height and width of each stage
EXAMPLES = 128
ROUNDS = 10


def measure(rank: Rank, channels: int, size: int, channels_last: bool) -> list[float]:
    """Return the times of one convolution: seconds of forward pass and of both passes, two numbers a round."""
    import torch

    from repro.measure.clock import synchronised

    layout = torch.channels_last if channels_last else torch.contiguous_format
    layer = torch.nn.Conv2d(channels, channels, 7, padding=3, groups=channels, device=rank.device)
    layer = torch.nn.utils.convert_conv2d_weight_memory_format(layer, layout)
    pixels = torch.randn(EXAMPLES, channels, size, size, device=rank.device).to(memory_format=layout).requires_grad_()
    out = layer(pixels)
    gradient = torch.randn_like(out)
    times = []
    for _ in range(ROUNDS):
        times.append(synchronised(rank.device, lambda: layer(pixels)))
        times.append(synchronised(rank.device, lambda: layer(pixels).backward(gradient)))
    return times


def rows(ask: Ask) -> list[dict[str, Any]]:
    """Return a row for each shape and layout: milliseconds, FLOP/s of both passes, and their share of the lanes."""
    found = []
    for channels_last in (True, False):
        for channels, size in SHAPES:
            [outcome] = ask("benchmarks.depthwise:measure", channels=channels, size=size, channels_last=channels_last)
            forward, both = (median(outcome.value[start + 2 :: 2]) for start in (0, 1))
            flops = 3 * 2 * 49 * EXAMPLES * channels * size * size
            found.append(
                {
                    "layout": "channels last" if channels_last else "channels first",
                    "channels": channels,
                    "size": size,
                    "forward (ms)": forward * 1e3,
                    "both (ms)": both * 1e3,
                    "TFLOP/s": flops / both / 1e12,
                    "share of lanes": flops / both / lanes(),
                }
            )
    return found


def lanes() -> float:
    """Return the FLOP/s that rates of depthwise convolutions are divided by."""
    from repro.machine.nvml import visible_devices

    devices = visible_devices()
    return Machine(gpu_named(devices[0].driver_name), 1).lanes if devices else float("nan")


def run() -> list[dict[str, Any]]:
    with warm_ranks() as ask:
        return rows(ask)


if __name__ == "__main__":
    tell(__doc__, run)
