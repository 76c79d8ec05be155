"""Time a training step of one of the paper's models by hand, on one device: what `repro` measures, in few lines.

    python examples/time_a_step.py pythia-160m --scale tiny --micro-batch 4

A step is micro-steps, whose gradients add up, and one update. Its parts are timed, and the step follows by arithmetic.
The true clock waits for the device, and all micro-steps but one add to existing gradients. The authors' clock does not
wait, and each of its micro-steps starts without gradients. `repro` times with events of the device as well.
"""

import argparse
import time
from collections.abc import Callable
from statistics import mean, median
from typing import Any

import torch

from repro import models
from repro.machine.stack import preload
from repro.measure.batches import random_batch
from repro.models.recipe import Recipe

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}


def parts(recipe: Recipe, micro_batch: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Return a micro-step and an update: weights and Adam in fp32, the forward pass in the recipe's precision."""
    with DEVICE:
        model = recipe.build(False, "sdpa").train()
    adam: Any = getattr(torch.optim, recipe.optimizer.name)(model.parameters(), lr=recipe.optimizer.rate)
    scaler = torch.amp.GradScaler(DEVICE.type, enabled=recipe.precision == "fp16")
    batch = {name: tensor.to(DEVICE) for name, tensor in random_batch(recipe, micro_batch).items()}

    def micro_step() -> None:
        with torch.autocast(DEVICE.type, HALF.get(recipe.precision), enabled=recipe.precision in HALF):
            loss = model(**batch)
        scaler.scale(loss).backward()

    def update() -> None:
        scaler.unscale_(adam)
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip or float("inf"))
        scaler.step(adam)
        scaler.update()
        adam.zero_grad()

    return micro_step, update


def time_parts(recipe: Recipe, micro_batch: int, rounds: int, wait: bool) -> dict[str, list[float]]:
    """Return the seconds of each part in each round, from an idle device to an idle one where it is to `wait`."""
    micro_step, update = parts(recipe, micro_batch)
    synchronize = torch.cuda.synchronize if wait and DEVICE.type == "cuda" else lambda: None

    def seconds(work: Callable[[], None]) -> float:
        synchronize()
        started = time.perf_counter()
        work()
        synchronize()
        return time.perf_counter() - started

    micro_step()  # the first round loads kernels and makes Adam's moments
    update()
    # With several devices, the micro-step that starts without gradients is the one that reduces them.
    first = [(seconds(micro_step), seconds(update)) for _ in range(rounds)]
    micro_step()
    later = [seconds(micro_step) for _ in range(rounds)]
    return {"with": [each for each, _ in first], "update": [each for _, each in first], "without": later}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe")
    parser.add_argument("--scale", choices=["paper", "tiny"], default="paper")
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    asked = parser.parse_args()
    preload(["transformers", "timm"])
    recipe = models.find(asked.recipe, asked.scale)
    accumulation = recipe.batch_size // asked.micro_batch
    host, true = (time_parts(recipe, asked.micro_batch, asked.rounds, wait) for wait in (False, True))
    authors_step = accumulation * mean(host["with"]) + mean(host["update"])
    true_step = (accumulation - 1) * median(true["without"]) + median(true["with"]) + median(true["update"])
    print(f"a step takes {true_step:.3g} s; the authors' clock shows {authors_step:.3g} s")


if __name__ == "__main__":
    main()
