"""Training steps of one rank, for the check that a part trains as the settings without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from repro import models
from repro.measure import engine
from repro.measure.batches import random_batch, to_device
from repro.measure.engine.base import local
from repro.measure.jobs import SEED
from repro.measure.rank import Rank
from repro.models.recipe import Recipe, Scale
from repro.paper.settings import Settings
from tests.support.same_training import Trained

_MICRO_STEPS = 2
_BLOCKS, _BUCKETS = 256, 32  # of the sketch of a gradient
_SCALE_TRIES = 24  # the scale starts at 2^16 and halves with every skipped update


def train(
    rank: Rank,
    recipe: str,
    scale: Scale,
    settings: str,
    tf32: bool,
    compiled: bool,
    micro_batch: int,
    nudge: float,
    steps: int,
) -> Trained:
    """Train for so many steps of two micro-steps, each on other data, at the peak learning rate. Dropout is off: chance
    would fall otherwise in a compiled model. The starting weights are moved by a share of themselves, at most `nudge`,
    at random: as far as rounding may move them. A step that the fp16 loss scale skips is repeated."""
    described = still(models.find(recipe, scale), nudge)
    built = engine.build(described, Settings.parse(settings), rank, _MICRO_STEPS, compiled, tf32)
    losses: list[float] = []
    gradient: list[list[float]] = []
    for step in range(steps):
        first = SEED + (step * rank.world + rank.index) * _MICRO_STEPS
        batches = [random_batch(described, micro_batch, first + number) for number in range(_MICRO_STEPS)]
        for _ in range(_SCALE_TRIES):
            skipped = built.skipped_updates()
            found = [
                built.micro_step(to_device(batch, rank), reduce=number == _MICRO_STEPS - 1)
                for number, batch in enumerate(batches)
            ]
            built.peak_rate()
            built.update()
            if built.skipped_updates() == skipped:
                break
        losses.append(sum(map(float, found)) / _MICRO_STEPS)
        gradient = gradient or _sketch(built.adam)
    held = built.held()
    return Trained(losses, gradient, held.weights, held.moments, built.precision)


def still(recipe: Recipe, nudge: float = 0.0) -> Recipe:
    """Return the recipe of a model without dropout, whose weights are moved."""
    usual: Callable[[bool, str], nn.Module] = recipe.build

    def build(kernels: bool, attention: str) -> nn.Module:
        module = usual(kernels, attention)
        child: Any
        for child in module.modules():
            if isinstance(child, nn.modules.dropout._DropoutNd):
                child.p = 0.0
            elif hasattr(child, "drop_prob"):  # timm's DropPath
                child.drop_prob = 0.0
        if nudge:
            with torch.no_grad():
                for number, weight in enumerate(module.parameters()):
                    generator = torch.Generator(weight.device).manual_seed(number)
                    moved = torch.rand(weight.shape, generator=generator, device=weight.device)
                    weight.mul_(1 + nudge * (2 * moved - 1))
        return module

    return replace(recipe, build=build)


def _sketch(adam: torch.optim.Optimizer) -> list[list[float]]:
    """Return sketches of the blocks of this rank's gradient, which Adam's first moment is after one update. A block's
    elements, each with a random sign, are added up in buckets: the sketch of a difference is the difference of the
    sketches, and about as long as what it is of."""
    moments = [local(state["exp_avg"]).flatten() for state in adam.state.values() if "exp_avg" in state]
    total = sum(moment.numel() for moment in moments)
    found: list[list[float]] = []
    for number, moment in enumerate(moments):
        if not moment.numel():  # a shard may be empty
            continue
        blocks = max(1, round(_BLOCKS * moment.numel() / total))
        generator = torch.Generator(moment.device).manual_seed(number)
        signs = torch.randint(0, 2, moment.shape, generator=generator, device=moment.device, dtype=torch.int8)
        signed = moment.float() * (2 * signs - 1)
        padded = nn.functional.pad(signed, (0, -signed.numel() % (blocks * _BUCKETS)))
        found += padded.view(blocks, -1, _BUCKETS).sum(1).tolist()
    return found
