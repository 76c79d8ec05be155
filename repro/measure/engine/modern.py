"""The parts of modern training at work: hooks as in a method of one's own, and what an engine does otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from ..method import Method, UnfitError

if TYPE_CHECKING:
    from ...models.recipe import Optimizer, Recipe

_FUSED_LOSS = "fused_cross_entropy"
_IGNORED = -100  # targets that transformers leaves out of the loss
_LOOKED_AT = 64  # tokens on which an output layer is tried out


def methods(parts: tuple[str, ...], recipe: Recipe, device: torch.device, precision: str) -> dict[str, Method]:
    """Return the hooks of these parts, by name, for a recipe that trains on a device in a precision. Parts that change
    how an engine wraps, compiles or reduces have none."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    known: dict[str, Callable[[], Method]] = {
        "fused_attention": lambda: Method(module=_fused_attention),
        _FUSED_LOSS: lambda: Method(module=partial(_with_fused_loss, dtype=dtype), loss=_loss_of_head),
        "channels_last": lambda: Method(module=_channels_last),
        "fp8": lambda: Method(module=_fp8),
        "fused_adam": lambda: Method(optimizer=_fused_adam),
    }
    return {name: known[name]() for name in parts if name in known}


def _fused_adam(parameters: Any, given: Optimizer) -> torch.optim.Optimizer:
    """Return the recipe's Adam, which updates all weights in one pass over memory."""
    return getattr(torch.optim, given.name)(
        parameters, lr=given.rate, betas=given.betas, eps=given.eps, weight_decay=0.0, fused=True
    )


def _fused_attention(model: Any) -> nn.Module:
    """Have a transformers model take scaled_dot_product_attention. Under this name it makes no mask, see
    models/pythia.py."""
    from ...models.pythia import custom_attention

    model.model.set_attn_implementation(custom_attention("sdpa"))
    return model


def _channels_last(model: Any) -> nn.Module:
    """Lay out the weights of convolutions, and the images, with the channels last."""
    if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
        raise UnfitError("the part channels_last serves models with convolutions, and this one has none")

    def last(each: Any) -> Any:
        image = isinstance(each, Tensor) and each.dim() == 4
        return each.contiguous(memory_format=torch.channels_last) if image else each

    def hook(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(map(last, given)), {name: last(each) for name, each in named.items()}

    model.to(memory_format=torch.channels_last)
    getattr(model, "model", model).register_forward_pre_hook(hook, with_kwargs=True)
    return model


def _fp8(model: Any) -> nn.Module:
    """Have linear layers multiply in FP8, except the output layer and those whose sizes FP8 products do not take."""
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    inner = getattr(model, "model", model)
    finders = (getattr(inner, name, None) for name in ("get_output_embeddings", "get_classifier"))
    found = [find() for find in finders if find is not None]
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    head = next((each for each in found if each is not None), linears[-1] if linears else None)

    def takes(module: nn.Module, name: str) -> bool:
        sized = isinstance(module, nn.Linear) and module.in_features % 16 == 0 and module.out_features % 16 == 0
        return sized and module is not head

    # Numbers of tokens, such as ViT's 197, are padded to the multiples of 16 that FP8 products take.
    return convert_to_float8_training(model, module_filter_fn=takes, config=Float8LinearConfig(pad_inner_dim=True))


# --- The output layer and cross entropy, together ---


def _with_fused_loss(model: Any, dtype: torch.dtype) -> nn.Module:
    """Have a transformers model return what its output layer takes in place of logits: that layer becomes one that
    computes the loss once it is given targets. Its weights and their names stay, so that they are sharded as before.

    Raise UnfitError for a model without such a layer, and for one whose loss is not the mean cross entropy of that
    layer's output, such as one that bounds its logits."""
    find = getattr(getattr(model, "model", None), "get_output_embeddings", None)
    layer = find() if find is not None else None
    if type(layer) is not nn.Linear:
        raise UnfitError(
            f"the part {_FUSED_LOSS} serves language models of transformers with a linear output layer, this one's is "
            f"{type(layer).__name__ if layer is not None else 'not known'}"
        )
    model.eval()  # without dropout
    where = layer.weight.device
    words = torch.arange(_LOOKED_AT, device=where)[None] % layer.out_features
    batch = {"input_ids": words, "labels": words}
    with torch.no_grad(), torch.autocast(where.type, dtype, enabled=dtype is not torch.float32):
        layer.weight.mul_(_LOOKED_AT)  # large logits show what is done to them; a power of two can be taken back
        usual = model(**batch).item()
        head: Any = layer
        head.__class__, head.loss = _HeadWithLoss, _whole_loss
        changed = _loss_of_head(model, batch).item()
        layer.weight.div_(_LOOKED_AT)
    model.train()
    if not math.isclose(usual, changed, rel_tol=0.01):
        raise UnfitError(
            f"the part {_FUSED_LOSS} serves models whose loss is the cross entropy of their output layer: it is "
            f"{changed:.4g} where this model's own loss is {usual:.4g}"
        )
    head.loss = ligers_loss()
    return model


def _loss_of_head(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """Return the mean loss of a language model whose output layer computes the loss."""
    language_model, labels = model.model, batch["labels"]
    hidden = language_model(input_ids=batch["input_ids"]).logits
    if "ForMaskedLM" not in type(language_model).__name__:  # the last position predicts nothing
        hidden, labels = hidden[:, :-1], labels[:, 1:]
    return language_model.get_output_embeddings()(hidden.flatten(0, 1), labels.flatten())


class _HeadWithLoss(nn.Linear):
    """An output layer that returns its input or, given targets, the mean cross entropy, by `loss`."""

    loss: Callable[..., Tensor]

    def forward(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        return hidden if targets is None else self.loss(self.weight, hidden, targets, self.bias)


def _whole_loss(weight: Tensor, hidden: Tensor, targets: Tensor, bias: Tensor | None) -> Tensor:
    return cross_entropy(linear(hidden, weight, bias).float(), targets, ignore_index=_IGNORED)


def ligers_loss() -> Callable[..., Tensor]:
    """Return Liger's mean cross entropy of an output layer's weight, its input, the targets and, if any, the bias."""
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss(ignore_index=_IGNORED, accum_dtype=torch.float32)
    # Left as it is by torch.compile, which fails on its products in two precisions.
    return torch.compiler.disable(loss.forward)


# --- What an engine does otherwise ---


def with_master_weights(
    module: nn.Module, optimizer_of: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
) -> torch.optim.Optimizer:
    """Turn a module's weights into bf16, and return the optimizer of their fp32 copies. Each of its steps takes the
    weights' gradients, and rounds the new copies into the weights. Its state has the copies, to save and to load."""
    weights = [weight for weight in module.parameters() if weight.requires_grad]
    masters = [nn.Parameter(weight.detach().clone()) for weight in weights]
    module.to(torch.bfloat16)
    optimizer = optimizer_of(masters)

    def take_gradients(*_: Any) -> None:
        for weight, master in zip(weights, masters, strict=True):
            master.grad = None if weight.grad is None else weight.grad.float()

    def round_weights(*_: Any) -> None:
        with torch.no_grad():
            torch._foreach_copy_(list[Tensor](weights), list[Tensor](masters))
        for master in masters:
            master.grad = None

    optimizer.register_step_pre_hook(take_gradients)
    optimizer.register_step_post_hook(round_weights)
    return optimizer


def in_bf16(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a batch with images in bf16, as weights in bf16 take them."""
    return {name: each.bfloat16() if each.is_floating_point() else each for name, each in batch.items()}


def keep_gradients(module: nn.Module) -> None:
    """Give weights gradients that stay, to add to: those that a CUDA graph returns it overwrites when it runs again."""
    for weight in module.parameters():
        if weight.requires_grad:
            weight.grad = torch.zeros_like(weight)


def checkpoint_options(parts: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of a checkpointed layer: by the part, results of products and attention are kept."""
    if "selective_checkpointing" not in parts:
        return {}
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten = torch.ops.aten
    names = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm")
    kept = {getattr(aten, name).default for name in names if hasattr(aten, name)}
    kept |= {
        getattr(aten, name).default
        for name in dir(aten)
        if name.startswith("_scaled_dot_product_") and not name.endswith("backward")
    }

    def policy(_: Any, operator: Any, *given: Any, **options: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if operator in kept else CheckpointPolicy.PREFER_RECOMPUTE

    return {"context_fn": partial(create_selective_checkpoint_contexts, policy)}


def compiled(module: nn.Module, parts: tuple[str, ...]) -> Any:
    """Return a model compiled, by the part as CUDA graphs."""
    return torch.compile(module, mode="reduce-overhead" if "cuda_graphs" in parts else None)


def distributed(module: nn.Module, parts: tuple[str, ...], local: int | None) -> nn.Module:
    """Wrap a model, on this rank's GPU or the CPU, in DistributedDataParallel; by the part not at all."""
    if "no_wrapper" in parts:
        return module
    return nn.parallel.DistributedDataParallel(module, device_ids=None if local is None else [local])
