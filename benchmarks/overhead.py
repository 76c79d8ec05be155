"""Step time of the harness over a hand-written minimal loop that trains the same model, naive: a tiny Pythia-1B, or
Pythia-160M at the paper's scale, which needs a GPU's memory of 64 GB."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from repro.formats import render
from repro.machine.nvml import visible_devices

from . import Ask, options, warm_ranks

if TYPE_CHECKING:
    import torch

    from repro.measure.rank import Rank
    from repro.models.recipe import Scale

_DIFFER = "losses differ by (%)"
_ROUNDING = 2.0**-10  # of fp16, relative: how much a GPU's sums in another order may change a loss


@dataclass(frozen=True)
class Loop:
    """A model and its training for the loop by hand; `recipe` is the harness' own."""

    recipe: str
    scale: Scale
    dtype: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    sequence: int
    rate: float
    examples: int
    warm_up: int


LOOPS = {
    "tiny": Loop("pythia-1b", "tiny", "bfloat16", 512, 64, 2, 4, 65, 3e-4, examples=16, warm_up=10),
    "paper": Loop("pythia-160m", "paper", "float16", 50_304, 768, 12, 12, 2049, 6e-4, examples=8, warm_up=4),
}
_ASKED = {"tiny": {"ranks": 16, "steps": 50}, "paper": {"ranks": 2, "steps": 20}}


def by_hand(loop: Loop, device: torch.device, batch: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Return a function that takes a training step and returns its loss: all of a step in as little code as torch
    needs. The model is wrapped as a trial's is, so the process must have joined a group."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    with device:
        model = GPTNeoXForCausalLM(
            GPTNeoXConfig(
                vocab_size=loop.vocabulary,
                hidden_size=loop.width,
                num_hidden_layers=loop.layers,
                num_attention_heads=loop.heads,
                intermediate_size=4 * loop.width,
                max_position_embeddings=loop.sequence,
                rotary_pct=0.25,
                use_parallel_residual=True,
                use_cache=False,
                attn_implementation="eager",
            )
        )
    model.train()
    dtype = getattr(torch, loop.dtype)
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=loop.rate, betas=(0.9, 0.95), eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 1430)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)

    def step() -> torch.Tensor:
        with torch.autocast(device.type, dtype=dtype):
            loss = wrapped(**batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def compare(rank: Rank, loop: dict[str, Any], steps: int, harness_first: bool) -> dict[str, list[float]]:
    """Return the seconds of `steps` steps by hand, by the harness with all it does around a step, and as its clock
    recorded them; then the losses of both. Their steps alternate, in alternating order, so that both see the same
    machine. A CPU uses one thread: threads that wait for each other make the noise larger than the difference."""
    import torch

    from repro import models
    from repro.measure import engine
    from repro.measure.batches import random_batch, to_device
    from repro.measure.clock import Clock, synchronised
    from repro.measure.jobs import SEED
    from repro.paper.settings import NAIVE

    torch.set_num_threads(1)
    rank.join()
    wanted = Loop(**loop)
    recipe = models.find(wanted.recipe, wanted.scale)
    host = random_batch(recipe, wanted.examples)
    micro_steps, updates = Clock(rank.device), Clock(rank.device)
    times: dict[str, list[float]] = {"by hand": [], "harness": []}
    losses: dict[str, list[torch.Tensor]] = {"by hand": [], "harness": []}

    def make_by_hand() -> Callable[[], None]:
        step = by_hand(wanted, rank.device, to_device(host, rank))
        return lambda: losses["by hand"].append(step())

    def make_harness() -> Callable[[], None]:
        built = engine.build(recipe, NAIVE, rank, 1, compiled=False, tf32=False)

        def step() -> None:
            batch = to_device(host, rank)
            micro_steps.part(lambda: losses["harness"].append(built.micro_step(batch, reduce=True)))
            updates.part(built.update)

        return step

    turns = []
    for name, make in [("by hand", make_by_hand), ("harness", make_harness)][:: -1 if harness_first else 1]:
        torch.manual_seed(SEED)
        turns.append((name, make()))
    for _ in range(wanted.warm_up + steps):
        for name, step in turns:
            times[name].append(synchronised(rank.device, step))
        turns.reverse()
    recorded = [sum(parts) for parts in zip(micro_steps.read()[1], updates.read()[1], strict=True)]
    return {
        "by hand": times["by hand"][wanted.warm_up :],
        "harness": times["harness"][wanted.warm_up :],
        "recorded": recorded[wanted.warm_up :],
        "losses by hand": [float(loss) for loss in losses["by hand"]],
        "losses of the harness": [float(loss) for loss in losses["harness"]],
    }


def apart(by_hand: list[float], harness: list[float]) -> float:
    """Return the largest difference between the losses of both, relative to the loss; infinite where one is NaN."""
    differences = [abs(mine - theirs) / max(abs(mine), 1e-9) for mine, theirs in zip(by_hand, harness, strict=True)]
    return max(math.inf if math.isnan(each) else each for each in differences)


def measure(ask: Ask, ranks: int, steps: int, loop: Loop = LOOPS["tiny"]) -> list[dict[str, Any]]:
    """Return a step's median milliseconds and its per cent over the loop by hand. A process's layout of tensors changes
    times by two per cent either way, so the steps are those of several ranks, one after another."""
    found: dict[str, list[float]] = {}
    for number in range(ranks):
        [outcome] = ask("benchmarks.overhead:compare", loop=asdict(loop), steps=steps, harness_first=number % 2 == 1)
        for name, seconds in outcome.value.items():
            found.setdefault(name, []).extend(seconds)
    differ = apart(found["losses by hand"], found["losses of the harness"])
    base = median(found["by hand"])
    return [
        {
            "step": text,
            "median (ms)": median(found[name]) * 1e3,
            "over by hand (%)": (median(found[name]) / base - 1) * 100,
            "steps": len(found[name]),
            _DIFFER: differ * 100,
        }
        for name, text in (
            ("by hand", "by hand"),
            ("harness", "harness, with all around the step"),
            ("recorded", "harness, as its clock records it"),
        )
    ]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--scale", choices=sorted(LOOPS), default="tiny", help="which of the two models")
    asked = parser.parse_args()
    with warm_ranks() as ask:
        rows = measure(ask, **_ASKED[asked.scale], loop=LOOPS[asked.scale])
    print(render(rows, asked.format))
    if rows[0][_DIFFER] > (100 * _ROUNDING if visible_devices() else 0):
        sys.exit("benchmarks.overhead: the loop by hand and the harness did not train the same: their losses differ")


if __name__ == "__main__":
    main()
