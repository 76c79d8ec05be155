"""Does the tiny twin of a recipe train with each part of modern training on this GPU, or CPU, as it does without it:
the check of tests/same_training.py, compiled, with steps of two examples."""

from __future__ import annotations

import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro.machine.environment import stack
from repro.machine.nvml import visible_devices
from repro.machine.packages import installed_packages
from repro.measure.launcher import ForkServer
from repro.measure.trial import Bench
from repro.paper.settings import Settings
from repro.predict.hardware import gpu_named
from repro.record import Trial
from tests.same_training import SameTraining, TrainingCheck

from . import tell

# The recipe, the settings without parts, and the parts, each with what it needs.
CHECKED = (
    (
        "pythia-160m",
        "free_lunch",
        (
            "bf16",
            "bf16+bf16_weights",
            "bf16+fused_cross_entropy",
            "bf16+fp8",
            "no_wrapper",
            "fused_adam",
            "cuda_graphs",
        ),
    ),
    ("convnext", "free_lunch", ("channels_last",)),
    ("roberta", "free_lunch+checkpointing", ("fused_attention", "selective_checkpointing")),
)
STEPS = 6


def rows() -> list[dict[str, Any]]:
    """Return a row for each recipe and part that this machine has. A `fault` says why a training differs or fails."""
    devices = visible_devices()
    here = stack(devices, installed_packages())
    gpu = gpu_named(devices[0].driver_name) if devices else None
    found = []
    with tempfile.TemporaryDirectory(prefix="repro-") as folder, ForkServer(Path(folder, "server.log"), {}) as server:
        server.start()
        bench = Bench(server, here, gpu, Path(folder))
        for recipe, base, all_parts in CHECKED:
            trial = Trial(recipe, "tiny", base, gpu.name if gpu else "cpu", 1, timeout=600)
            same = SameTraining(bench, trial, tf32=bool(devices), micro_batch=2, steps=STEPS)
            for parts in all_parts:
                settings = replace(Settings.parse(base), parts=tuple(parts.split("+")))
                found.append({"recipe": recipe, "settings": settings.id, **_row(same, settings.id)})
                print(found[-1], file=sys.stderr, flush=True)
    return found


def _row(same: SameTraining, settings: str) -> dict[str, Any]:
    try:
        check = same.of(settings, compiled=True)
    except RuntimeError as error:
        check = TrainingCheck([], math.nan, math.nan, math.nan, math.nan, str(error))
    return {
        "losses apart": check.apart,
        "rounding alone": check.rounding,
        "allowed": check.allowed,
        "cosine of gradients": check.cosine,
        "fault": check.fault,
    }


if __name__ == "__main__":
    tell(__doc__, rows)
