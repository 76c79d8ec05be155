"""Step time of the harness over a hand-written minimal loop that trains the same tiny Pythia-1B, naive."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Any

from . import Ask, tell, warm_ranks

if TYPE_CHECKING:
    import torch

    from repro.measure.rank import Rank

EXAMPLES = 16
WARM_UP = 10


def by_hand(device: torch.device, batch: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """All there is to a training step, in as few words as torch needs, wrapped as a trial's model is: its process has
    joined a group. What it returns takes a step and returns the loss."""
    import torch
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    model = GPTNeoXForCausalLM(
        GPTNeoXConfig(
            vocab_size=512,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=256,
            max_position_embeddings=65,
            rotary_pct=0.25,
            use_parallel_residual=True,
            use_cache=False,
            attn_implementation="eager",
        )
    ).to(device)
    model.train()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.9, 0.95), eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 1430)

    def step() -> torch.Tensor:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = wrapped(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def compare(rank: Rank, steps: int, harness_first: bool) -> dict[str, list[float]]:
    """Seconds of `steps` steps by hand, by the harness with all it does around a step, and as its clock recorded them;
    then the losses of both. They take turns, and turns at going first, so that both see the same machine. On a CPU
    with one thread: threads that wait for each other make a busy machine's noise larger than what is looked for."""
    import torch

    import models
    from repro.measure import engine
    from repro.measure.batch import random_batch, to_device
    from repro.measure.clock import Clock, synchronised
    from repro.measure.rank import SEED
    from repro.settings import NAIVE

    torch.set_num_threads(1)
    rank.join()
    recipe = models.find("pythia-1b", "tiny")
    host = random_batch(recipe, EXAMPLES)
    micro_steps, updates = Clock(rank.device), Clock(rank.device)
    times: dict[str, list[float]] = {"by hand": [], "harness": []}
    losses: dict[str, list[torch.Tensor]] = {"by hand": [], "harness": []}

    def make_by_hand() -> Callable[[], None]:
        step = by_hand(rank.device, to_device(host, rank))
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
    for _ in range(WARM_UP + steps):
        for name, step in turns:
            times[name].append(synchronised(rank.device, step))
        turns.reverse()
    recorded = [sum(parts) for parts in zip(micro_steps.read()[1], updates.read()[1], strict=True)]
    return {
        "by hand": times["by hand"][WARM_UP:],
        "harness": times["harness"][WARM_UP:],
        "recorded": recorded[WARM_UP:],
        "losses by hand": [float(loss) for loss in losses["by hand"]],
        "losses of the harness": [float(loss) for loss in losses["harness"]],
    }


def measure(ask: Ask, ranks: int, steps: int) -> list[dict[str, Any]]:
    """Median milliseconds of a step and how many per cent that is over the loop by hand. Where a process happens to
    lay its tensors is worth two per cent either way, so the steps are those of several ranks, one after another."""
    found: dict[str, list[float]] = {}
    for number in range(ranks):
        [outcome] = ask("benchmarks.overhead:compare", steps=steps, harness_first=number % 2 == 1)
        for name, seconds in outcome.value.items():
            found.setdefault(name, []).extend(seconds)
    if found["losses by hand"] != found["losses of the harness"]:
        raise RuntimeError("the loop by hand and the harness did not train the same")
    base = median(found["by hand"])
    return [
        {
            "step": told,
            "median (ms)": median(found[name]) * 1e3,
            "over by hand (%)": (median(found[name]) / base - 1) * 100,
            "steps": len(found[name]),
        }
        for name, told in (
            ("by hand", "by hand"),
            ("harness", "harness, with all around the step"),
            ("recorded", "harness, as its clock records it"),
        )
    ]


def rows() -> list[dict[str, Any]]:
    with warm_ranks() as ask:
        return measure(ask, ranks=16, steps=50)


if __name__ == "__main__":
    tell(__doc__, rows)
