"""Which kernels ran: libraries fall back to slow paths without a word, so the path is read off, not assumed."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from repro.recipe import Recipe

# By an operator that no other way of torch's Adam calls, nor anything else in a training step. DeepSpeed's call none.
_ADAMS_WAYS = {
    "_fused_adam_": "fused",
    "_fused_adamw_": "fused",
    "_foreach_addcdiv_": "foreach",
    "addcdiv_": "tensor by tensor",
}
SLOW_SCAN = "slow scan (transformers)"


class Watch(TorchDispatchMode):
    """Notes the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func.name().removeprefix("aten::").partition(".")[0])
        return func(*args, **(kwargs or {}))


def kernel_path(recipe: Recipe, watch: Watch) -> str:
    """What the model's own kernels are, in one word or a few: attention operators, of which eager attention calls none,
    Mamba's bindings, or none."""
    if recipe.family == "mamba":
        from models.mamba import bound_kernels, runs_fused

        return ", ".join(f"{k}: {v}" for k, v in sorted(bound_kernels().items())) if runs_fused() else SLOW_SCAN
    if recipe.family in ("convnext", "gan"):
        return "none (no custom kernel exists)"
    seen = (name.lstrip("_") for name in watch.seen if "attention" in name or "flash_attn" in name)
    return ", ".join(sorted(seen)) or "eager attention"


def optimizer_path(optimizer: torch.optim.Optimizer, watch: Watch) -> str:
    """Whose optimizer it is, its class, and, of torch's Adam, which of its ways to update ran."""
    kind = type(optimizer)
    ways = [way for operator, way in _ADAMS_WAYS.items() if operator in watch.seen]
    return " ".join([kind.__module__.partition(".")[0], kind.__name__, *(f"({way})" for way in ways)])
