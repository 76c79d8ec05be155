"""Costs of one operator, from the shapes of its tensors: its class, its FLOPs, and the bytes it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from torch import Tensor

_SCAN_FLOPS = 9  # per channel, state and token, forward (as in Mamba's paper)
_NO_KERNEL = ("empty", "new_empty", "detach", "alias", "lift_fresh", "set_", "_unsafe_view", "resize_", "sym_")
_NOT_FUSED = ("embedding", "scatter", "index", "cat", "nll_loss_backward", "gather")
_PICKS = ("embedding", "nll_loss_forward", "nll_loss_backward")  # they read rows of a table by index
_GROUPED = "grouped_mm"  # of (tokens and choices, width) by the weights of experts, which each row has one of
_REDUCTIONS = ("sum", "mean", "softmax", "layer_norm", "var", "amax", "norm")


# `returned` is between the passes: copies of the model's outputs, which checkpointing does not recompute.
Phase = Literal["forward", "returned", "backward"]


@dataclass(frozen=True)
class Operator:
    """One kernel. `kind` is matmul, batched (the products of each head), attention, convolution, depthwise, scan,
    memory or weight_cast; `in_half`: it computes in half precision; `reads` and `writes` map storages to bytes; `unit`
    is the index of the layer that runs, 0 outside of layers."""

    name: str
    kind: str
    in_half: bool
    flops: float
    reads: dict[int, float]
    writes: dict[int, float]
    fusable: bool
    phase: Phase
    unit: int = 0

    @property
    def reduces(self) -> bool:
        """Return whether it reduces over a dimension, which ends a fused kernel."""
        return any(word in self.name for word in _REDUCTIONS)


def has_kernel(name: str) -> bool:
    """Return whether an operator that is no view starts a kernel."""
    return not name.startswith(_NO_KERNEL)


def classify(name: str, args: tuple[Any, ...], out: Any) -> tuple[str, float, bool]:
    """Return an operator's kind, FLOPs (2 a multiply-add), and whether torch.compile can fuse it with others."""
    if "convolution" in name:
        return _convolution(name, args, out)
    if name in ("mm", "bmm", "addmm", "baddbmm"):
        left = args[-2] if name in ("mm", "bmm") else args[1]
        return "batched" if "bmm" in name else "matmul", 2.0 * prod(left.shape) * _first(out).shape[-1], False
    if name.startswith(_GROUPED):
        return "matmul", (4.0 if name.endswith("backward") else 2.0) * args[0].numel() * args[1].shape[-1], False
    if "scaled_dot_product" in name:
        return "attention", _attention(name, args), False
    if name.startswith("selective_scan"):
        backward = name.endswith("backward")
        u, states = (args[1], args[3].shape[1]) if backward else (args[0], args[2].shape[1])
        return "scan", _SCAN_FLOPS * (2.5 if backward else 1) * u.numel() * states, False
    if name.startswith("causal_conv1d"):
        backward = name.endswith("backward")
        x, weight = args[-2], args[-1]
        return "depthwise", 2.0 * x.numel() * weight.shape[-1] * (2 if backward else 1), False
    return "memory", 0.0, not any(word in name for word in _NOT_FUSED)


def _convolution(name: str, args: tuple[Any, ...], out: Any) -> tuple[str, float, bool]:
    """Classify a convolution. torch's own counter ignores the groups in the weight's gradient; this one does not."""
    if name == "convolution_backward":
        gradient, inputs, weight = args[:3]
        transposed, groups, wanted = args[7], args[9], args[10]
        times = int(wanted[0]) + int(wanted[1])
    else:
        inputs, weight = args[:2]
        gradient, transposed, groups, times = _first(out), args[6], args[8], 1
    kind = "depthwise" if groups > 1 and groups == inputs.shape[1] else "convolution"
    positions = inputs if transposed else gradient  # the kernel multiplies at each
    return kind, 2.0 * positions.numel() * prod(weight.shape[1:]) * times, False


def _attention(name: str, args: tuple[Any, ...]) -> float:
    """Return the FLOPs of fused attention: 2 products forward, 5 backward over the scores; half if it is causal."""
    backward = "backward" in name
    query, key = (args[1], args[2]) if backward else (args[0], args[1])
    causal = any(argument is True for argument in args)
    scores = query.numel() * key.shape[-2]
    return 2.0 * scores * (5 if backward else 2) * (0.5 if causal else 1.0)


def bytes_of(tensor: Tensor) -> float:
    """Return the bytes that reading or writing a tensor moves. An expanded tensor is read once."""
    return float(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))


def read_of(name: str, tensor: Tensor, args: tuple[Any, ...]) -> float:
    """Return the bytes that an operator reads of a tensor: all, a row per index where it picks from a table, or of
    experts those that the rows can reach."""
    if name.startswith(_GROUPED) and tensor is args[1]:
        return bytes_of(tensor) * min(1.0, args[0].shape[0] / tensor.shape[0])
    if name not in _PICKS:
        return bytes_of(tensor)
    indices = next(x for x in args if isinstance(x, Tensor) and not x.is_floating_point())
    row = tensor.shape[-1] if name == "embedding" and tensor is args[0] else 1
    return min(bytes_of(tensor), float(indices.numel() * row * tensor.element_size()))


def _first(out: Any) -> Tensor:
    return out if isinstance(out, Tensor) else next(x for x in out if isinstance(x, Tensor))
