"""Causal attention by flash-attn or flash-attn-4, whichever is installed, in the form that transformers calls."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

from repro.installation import installed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn


def flash_attention() -> Callable[..., tuple[Tensor, None]]:
    """Return the attention. The two packages share the name `flash_attn`, and flash-attn-4 is in `flash_attn.cute`."""
    function: Callable[..., Tensor]
    if installed("flash-attn-4"):
        function = _flash_attn_4()
    else:
        from flash_attn import flash_attn_func

        function = partial(flash_attn_func, causal=True)

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: None, **_: object
    ) -> tuple[Tensor, None]:
        """Take (batch, heads, sequence, width) and return (batch, sequence, heads, width), in the values' precision."""
        query, key, value = (each.to(value.dtype).transpose(1, 2) for each in (query, key, value))
        return function(query, key, value), None

    return attention


@cache
def _flash_attn_4() -> Callable[..., Tensor]:
    """Return flash-attn-4's attention as one operator: torch.compile cannot look into the package's own function, which
    compiles its kernels when it is called, and a watch of operators would not see it."""
    import torch
    from flash_attn.cute.interface import _flash_attn_bwd, _flash_attn_fwd

    @torch.library.custom_op(
        "flash_attn_4::forward", mutates_args=(), schema="(Tensor query, Tensor key, Tensor value) -> (Tensor, Tensor)"
    )
    def forward(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        out, lse, *_ = _flash_attn_fwd(query, key, value, causal=True, return_lse=True)
        return out, lse

    @forward.register_fake
    def _(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        batch, sequence, heads, _ = query.shape
        lse = query.new_empty((batch, heads, sequence), dtype=torch.float32)
        return query.new_empty((batch, sequence, heads, value.shape[-1])), lse

    @torch.library.custom_op(
        "flash_attn_4::backward",
        mutates_args=(),
        schema="(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor out, Tensor lse)"
        " -> (Tensor, Tensor, Tensor)",
    )
    def backward(
        grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return tuple(_flash_attn_bwd(query, key, value, out, grad, lse, causal=True))

    @backward.register_fake
    def _(
        grad: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor, lse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)

    def keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.save_for_backward(*inputs, *output)

    def gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return backward(grad, *ctx.saved_tensors)

    forward.register_autograd(gradients, setup_context=keep)

    return lambda query, key, value: forward(query, key, value)[0]
