"""Engines: settings -> a model on its devices, with a micro-step and an update, in torch, FSDP and DeepSpeed."""

from __future__ import annotations

from typing import Any

from repro.measure.rank import Rank
from repro.recipe import Recipe
from repro.settings import Settings

from .base import Engine, WrongWrapperError, layers, runs_tf32
from .fsdp import FullyShardedEngine


def build(
    recipe: Recipe,
    settings: Settings,
    rank: Rank,
    accumulation: int,
    compiled: bool,
    tf32: bool,
) -> Engine:
    """Builds the recipe's model with random weights and wraps it as the settings say.

    `accumulation` divides each micro-step's loss, so that an update sees the mean over the batch. Whether the recipe
    and the settings allow `compiled` and `tf32` is for who calls this to ask (see repro/rules.py).
    """
    from .plain import PlainEngine
    from .zero import ZeroEngine

    engine: Any = {"torch": PlainEngine, "fsdp": FullyShardedEngine, "deepspeed": ZeroEngine}[settings.library]
    return engine(recipe, settings, rank, accumulation, compiled, tf32)


__all__ = ["Engine", "FullyShardedEngine", "WrongWrapperError", "build", "layers", "runs_tf32"]
