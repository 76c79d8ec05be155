"""Engines, which build a model on its devices and run its micro-steps and updates with torch, FSDP or DeepSpeed."""

from __future__ import annotations

from repro.measure.rank import Rank
from repro.paper.settings import Settings

from ...models.recipe import Recipe
from .base import Engine, WrongWrapperError, runs_tf32
from .fsdp import FullyShardedEngine
from .plain import PlainEngine
from .zero import ZeroEngine

_ENGINES: dict[str, type[Engine]] = {"torch": PlainEngine, "fsdp": FullyShardedEngine, "deepspeed": ZeroEngine}


def build(
    recipe: Recipe,
    settings: Settings,
    rank: Rank,
    accumulation: int,
    compiled: bool,
    tf32: bool,
) -> Engine:
    """Build the recipe's model with random weights, wrapped as the settings say.

    `accumulation` divides each micro-step's loss, so that an update uses the mean over the batch. The caller checks
    whether the recipe and the settings allow `compiled` and `tf32` (see repro/machine/support.py).
    """
    return _ENGINES[settings.library](recipe, settings, rank, accumulation, compiled, tf32)


__all__ = ["Engine", "FullyShardedEngine", "WrongWrapperError", "build", "runs_tf32"]
