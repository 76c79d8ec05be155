"""Stand-ins for mamba-ssm's fused mixer, whose kernels need a GPU. They have the shapes of what the kernels read, write
and save for the backward pass (mamba-ssm 2.2, `mamba_inner_fn`), and compute nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_CHUNK = 2048  # tokens: the scan saves its states once per chunk


def _stand_in(shapes: Callable[..., Any]) -> Any:
    """Return an operator of this name whose results have the shapes of the function's."""
    operator = torch.library.custom_op(f"repro::{shapes.__name__}", shapes, mutates_args=())
    operator.register_fake(shapes)
    return operator


@_stand_in
def causal_conv1d(x: Tensor, weight: Tensor) -> Tensor:
    """Stand in for a convolution of x (examples, channels, tokens) with weight (channels, taps), and its SiLU."""
    return torch.empty_like(x)


@_stand_in
def causal_conv1d_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), torch.empty_like(weight)


@_stand_in
def selective_scan(
    u: Tensor, delta: Tensor, decay: Tensor, b: Tensor, c: Tensor, z: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take u, delta, z (examples, channels, tokens), decay (channels, states), b, c (examples, states, tokens)."""
    chunks = -(-u.shape[2] // _CHUNK)
    states = u.new_empty((*u.shape[:2], chunks, 2 * decay.shape[1]), dtype=torch.float32)
    return torch.empty_like(u), states, torch.empty_like(u)


@_stand_in
def selective_scan_backward(
    gradient: Tensor,
    u: Tensor,
    delta: Tensor,
    decay: Tensor,
    b: Tensor,
    c: Tensor,
    z: Tensor,
    states: Tensor,
    out: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    like = torch.empty_like
    return like(u), like(delta), like(decay), like(b), like(c), like(z), like(u)


class FusedMixer(torch.autograd.Function):
    """The mixer: saves its input, B, C, delta's projection, the scan's states and output; recomputes the rest."""

    @staticmethod
    def forward(ctx: Any, xz: Tensor, *weights: Tensor) -> Tensor:
        convolution, to_states, to_delta, to_out, decay, _, _, _ = weights
        to_states, to_delta, to_out = (weight.to(xz.dtype) for weight in (to_states, to_delta, to_out))
        u, z = xz.chunk(2, dim=1)
        convolved = causal_conv1d(u, convolution)
        projected = _flat(convolved).matmul(to_states.t())
        delta = _delta(projected, to_delta, u.shape)
        b, c = _states(projected, to_delta, decay, xz.shape)
        out, states, gated = selective_scan(convolved, delta, decay, b, c, z)
        ctx.save_for_backward(xz, projected, b, c, states, out, *weights, to_states, to_delta, to_out)
        return _flat(gated).matmul(to_out.t()).view(xz.shape[0], xz.shape[2], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, ...]:
        xz, projected, b, c, states, out, *rest = ctx.saved_tensors
        weights, (to_states, to_delta, to_out) = rest[:8], rest[8:]
        convolution, decay = weights[0], weights[4]
        u, z = xz.chunk(2, dim=1)
        convolved = causal_conv1d(u, convolution)
        delta = _delta(projected, to_delta, xz.shape)
        given = torch.empty_like(xz)
        flat = gradient.reshape(-1, gradient.shape[-1])
        inward = flat.matmul(to_out).view(xz.shape[0], xz.shape[2], -1).transpose(1, 2).contiguous()
        d_u, d_delta, d_decay, d_b, d_c, _, gated = selective_scan_backward(
            inward, convolved, delta, decay, b, c, z, states, out
        )
        d_out = flat.t().matmul(_flat(gated))
        d_projected = torch.empty_like(projected)
        d_to_delta = _flat(d_delta).t().matmul(projected[:, : to_delta.shape[1]])
        d_projected[:, : to_delta.shape[1]].copy_(_flat(d_delta).matmul(to_delta))
        d_projected[:, to_delta.shape[1] :].copy_(_flat(torch.cat((d_b, d_c), dim=1)))
        d_to_states = d_projected.t().matmul(_flat(convolved))
        d_u = d_u + d_projected.matmul(to_states).view(xz.shape[0], xz.shape[2], -1).transpose(1, 2)
        _, d_convolution = causal_conv1d_backward(d_u, u, convolution)
        like = torch.empty_like
        found = (d_convolution, d_to_states, d_to_delta, d_out, d_decay, *(like(weight) for weight in weights[5:]))
        return given, *(d.to(weight.dtype) for d, weight in zip(found, weights, strict=True))


def _delta(projected: Tensor, to_delta: Tensor, shape: torch.Size) -> Tensor:
    flat = projected[:, : to_delta.shape[1]].matmul(to_delta.t())
    return flat.view(shape[0], shape[2], -1).transpose(1, 2)


def _states(projected: Tensor, to_delta: Tensor, decay: Tensor, shape: torch.Size) -> list[Tensor]:
    rank = to_delta.shape[1]
    return [
        part.reshape(shape[0], shape[2], -1).transpose(1, 2).contiguous()
        for part in projected[:, rank:].split(decay.shape[1], dim=1)
    ]


def _flat(x: Tensor) -> Tensor:
    """Reshape (examples, channels, tokens) to (examples x tokens, channels)."""
    return x.transpose(1, 2).reshape(-1, x.shape[1])


def mamba_inner_fn(
    xz: Tensor,
    convolution: Tensor,
    convolution_bias: Tensor,
    to_states: Tensor,
    to_delta: Tensor,
    to_out: Tensor,
    out_bias: Tensor | None,
    decay: Tensor,
    b: None,
    c: None,
    skip: Tensor,
    delta_bias: Tensor,
    delta_softplus: bool = True,
) -> Tensor:
    """Replace mamba-ssm's function in transformers, with the same arguments and shape of result."""
    return FusedMixer.apply(xz, convolution, to_states, to_delta, to_out, decay, skip, delta_bias, convolution_bias)
