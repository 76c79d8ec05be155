"""Which kernels ran: libraries fall back to slow paths without a word, so the path is read off, not assumed."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from repro.recipe import Recipe

SLOW_SCAN = "slow scan (transformers)"


class AttentionWatch(TorchDispatchMode):
    """Notes the attention operators that a forward calls; eager attention calls none."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::")
        if "attention" in name or "flash_attn" in name:
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


def kernel_path(recipe: Recipe, watch: AttentionWatch) -> str:
    """What the model's own kernels are, in one word or a few: attention operators, Mamba's bindings, or none."""
    if recipe.family == "mamba":
        from models.mamba import bound_kernels, runs_fused

        return ", ".join(f"{k}: {v}" for k, v in sorted(bound_kernels().items())) if runs_fused() else SLOW_SCAN
    if recipe.family in ("convnext", "gan"):
        return "none (no custom kernel exists)"
    return ", ".join(sorted(name.lstrip("_") for name in watch.seen)) or "eager attention"
