"""The parts of modern training at work: hooks as in a method of one's own, and what an engine does otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import linear
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from repro.parts import CHUNK

from ..clock import synchronised
from ..method import Method, UnfitError

if TYPE_CHECKING:
    from ...models.recipe import Optimizer, Recipe

_IGNORED = -100  # targets that transformers leaves out of the loss
_TIMED = 5  # calls of each attention kernel, of which the median counts
_LOOKED_AT = 64  # tokens on which an output layer is tried out
_BACKENDS = {
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "math": SDPBackend.MATH,
}


def methods(parts: tuple[str, ...], recipe: Recipe, device: torch.device, precision: str) -> dict[str, Method]:
    """Return the hooks of these parts, by name, for a recipe that trains on a device in a precision. Parts that change
    how an engine wraps, compiles or reduces have none."""
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(precision, torch.float32)
    known: dict[str, Callable[[], Method]] = {
        "fused_attention": lambda: Method(module=_fused_attention),
        "chunked_cross_entropy": lambda: Method(
            module=partial(_with_head, part="chunked_cross_entropy", head=_ChunkedHead, dtype=dtype), loss=_loss_of_head
        ),
        "liger_cross_entropy": lambda: Method(
            module=partial(_with_head, part="liger_cross_entropy", head=_liger_head(), dtype=dtype), loss=_loss_of_head
        ),
        "channels_last": lambda: Method(module=_channels_last),
        "fp8": lambda: Method(module=_fp8),
        "fused_adam": lambda: Method(optimizer=_fused_adam),
        "timed_attention": lambda: Method(module=partial(_timed_attention, recipe=recipe, device=device, dtype=dtype)),
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


def _with_head(model: Any, part: str, head: type[nn.Linear], dtype: torch.dtype) -> nn.Module:
    """Have a transformers model return what its output layer takes in place of logits: that layer becomes one that
    computes the loss once it is given targets. Its weights and their names stay, so that they are sharded as before.

    Raise UnfitError for a model without such a layer, and for one whose loss is not the mean cross entropy of that
    layer's output, such as one that bounds its logits."""
    find = getattr(getattr(model, "model", None), "get_output_embeddings", None)
    layer = find() if find is not None else None
    if type(layer) is not nn.Linear:
        raise UnfitError(
            f"the part {part} serves language models of transformers with a linear output layer, this one's is "
            f"{type(layer).__name__ if layer is not None else 'not known'}"
        )
    model.eval()  # without dropout
    where = layer.weight.device
    words = torch.arange(_LOOKED_AT, device=where)[None] % layer.out_features
    batch = {"input_ids": words, "labels": words}
    with torch.no_grad(), torch.autocast(where.type, dtype, enabled=dtype is not torch.float32):
        layer.weight.mul_(_LOOKED_AT)  # large logits show what is done to them; a power of two can be taken back
        usual = model(**batch).item()
        layer.__class__ = head
        changed = _loss_of_head(model, batch).item()
        layer.weight.div_(_LOOKED_AT)
    model.train()
    if not math.isclose(usual, changed, rel_tol=0.01):
        raise UnfitError(
            f"the part {part} serves models whose loss is the cross entropy of their output layer: it is "
            f"{changed:.4g} where this model's own loss is {usual:.4g}"
        )
    return model


def _loss_of_head(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """Return the mean loss of a language model whose output layer is a head of the above."""
    language_model, labels = model.model, batch["labels"]
    hidden = language_model(input_ids=batch["input_ids"]).logits
    if "ForMaskedLM" not in type(language_model).__name__:  # the last position predicts nothing
        hidden, labels = hidden[:, :-1], labels[:, 1:]
    return language_model.get_output_embeddings()(hidden.flatten(0, 1), labels.flatten())


class _ChunkedHead(nn.Linear):
    """An output layer that returns its input or, given targets, the mean cross entropy."""

    def forward(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
        if targets is None:
            return hidden
        kind, dtype = hidden.device.type, self.weight.dtype
        if torch.is_autocast_enabled(kind):
            dtype = torch.get_autocast_dtype(kind)
        total = _ChunkedLoss.apply(hidden, self.weight, self.bias, targets, dtype)
        return total / (targets != _IGNORED).sum()


class _ChunkedLoss(torch.autograd.Function):
    """The summed cross entropy of an output layer, in chunks of tokens. In bf16 and fp32 the gradients are computed
    with the loss, from the same logits. Gradients of fp16 need the loss scale, which only the backward pass has: there
    the logits are computed again."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, dtype: torch.dtype
    ) -> Tensor:
        ctx.dtype, ctx.early = dtype, dtype is not torch.float16
        total = hidden.new_zeros((), dtype=torch.float32)
        # Without a graph, such as in validation, there is nothing to differentiate.
        if not ctx.early or not any(ctx.needs_input_grad):
            half = weight.to(dtype)
            for piece, wanted in _chunks(hidden, targets):
                total += _piece(piece, half, bias, wanted, dtype)[0]
            ctx.save_for_backward(hidden, weight, bias, targets)
            return total
        total, *gradients = _differentiated(hidden, weight, bias, targets, dtype, None)
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.early:
            gradients = [None if each is None else each * upstream.to(each.dtype) for each in ctx.saved_tensors]
        else:
            hidden, weight, bias, targets = ctx.saved_tensors
            _, *gradients = _differentiated(hidden, weight, bias, targets, ctx.dtype, upstream)
        return (*gradients, None, None)


def _chunks(hidden: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(hidden.split(CHUNK), targets.split(CHUNK), strict=True))


def _piece(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the summed loss of a chunk, its logits in fp32, and the logarithms of their sums of exponentials."""
    logits = linear(hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)).float()
    sums = logits.logsumexp(dim=1)
    own = logits.gather(1, targets.clamp(min=0)[:, None])[:, 0]
    return ((sums - own) * (targets != _IGNORED)).sum(), logits, sums


def _differentiated(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    dtype: torch.dtype,
    upstream: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return the summed loss and its gradients, times `upstream` where given, as autocast rounds them: products in
    `dtype`, sums over chunks in fp32."""
    half = weight.to(dtype)
    total = hidden.new_zeros((), dtype=torch.float32)
    of_weight = torch.zeros_like(weight, dtype=torch.float32)
    of_bias = None if bias is None else torch.zeros_like(bias, dtype=torch.float32)
    of_hidden = []
    for piece, wanted in _chunks(hidden, targets):
        loss, logits, sums = _piece(piece, half, bias, wanted, dtype)
        total = total + loss
        counts = (wanted != _IGNORED)[:, None]
        gradient = (logits - sums[:, None]).exp()
        gradient.scatter_add_(1, wanted.clamp(min=0)[:, None], -torch.ones_like(sums)[:, None])
        gradient = gradient * counts
        if upstream is not None:
            gradient = gradient * upstream
        rounded = gradient.to(dtype)
        of_hidden.append((rounded @ half).to(hidden.dtype))
        of_weight = of_weight + rounded.T @ piece.to(dtype)
        if of_bias is not None:
            of_bias = of_bias + rounded.sum(dim=0, dtype=torch.float32)
    bias_dtype = None if bias is None else bias.dtype
    return (
        total,
        torch.cat(of_hidden),
        of_weight.to(weight.dtype),
        None if of_bias is None else of_bias.to(bias_dtype),
    )


def _liger_head() -> type[nn.Linear]:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    # Left as it is by torch.compile, which fails on its products in two precisions.
    loss: Callable[..., Tensor] = torch.compiler.disable(
        LigerFusedLinearCrossEntropyLoss(ignore_index=_IGNORED).forward
    )

    class LigerHead(nn.Linear):
        """An output layer that returns its input or, given targets, the mean cross entropy by Liger's kernels."""

        def forward(self, hidden: Tensor, targets: Tensor | None = None) -> Tensor:
            if targets is None:
                return hidden
            return loss(self.weight, hidden, targets, self.bias)

    return LigerHead


# --- Attention, by timing ---


class _SeenError(Exception):
    """Ends a forward pass at its first attention."""


def _timed_attention(model: Any, recipe: Recipe, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """Time the kernels of scaled_dot_product_attention, and FlexAttention, on the model's shapes, and leave on the
    fastest and, for shapes that it does not take, the plain one. `model.attention_kernel` names it."""
    given = _first_attention(model, recipe)
    if given is None:
        raise UnfitError("the part timed_attention serves models that call torch's scaled_dot_product_attention")
    seconds = {name: _seconds(partial(_by, backend), given, device, dtype) for name, backend in _BACKENDS.items()}
    fastest = min(seconds, key=seconds.__getitem__)
    # On a CPU it cannot be compiled for training.
    attend = flexed(given, device, dtype) if device.type == "cuda" else None
    for name, enable in (
        ("cudnn", torch.backends.cuda.enable_cudnn_sdp),
        ("flash", torch.backends.cuda.enable_flash_sdp),
        ("efficient", torch.backends.cuda.enable_mem_efficient_sdp),
    ):
        enable(name == fastest)
    model.attention_kernel = fastest
    if attend is not None and _seconds(attend, given, device, dtype) < seconds[fastest]:
        functional: Any = nn.functional
        functional.scaled_dot_product_attention, model.attention_kernel = attend, "flex"
    return model


def _first_attention(model: nn.Module, recipe: Recipe) -> dict[str, Any] | None:
    """Return the shapes and options of the model's first attention, for one example."""
    from ..batches import random_batch

    found: dict[str, Any] = {}

    def record(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        found.update(shapes=[query.shape, key.shape, value.shape], mask=attn_mask, options=options)
        raise _SeenError

    functional: Any = nn.functional
    usual, functional.scaled_dot_product_attention = functional.scaled_dot_product_attention, record
    where = next(model.parameters()).device
    state = torch.random.get_rng_state()
    with torch.device("cpu"):  # a model may be built on the GPU
        batch = random_batch(recipe, 1)
    try:
        with torch.no_grad():
            model(**{name: value.to(where) for name, value in batch.items()})
    except _SeenError:
        return found
    finally:
        functional.scaled_dot_product_attention = usual
        torch.random.set_rng_state(state)
    return None


def _by(backend: SDPBackend, *given: Tensor, **options: Any) -> Tensor:
    attend: Callable[..., Tensor] = nn.functional.scaled_dot_product_attention
    with sdpa_kernel(backend):
        return attend(*given, **options)


def flexed(given: dict[str, Any], device: torch.device, dtype: torch.dtype) -> Callable[..., Tensor] | None:
    """Return an attention that is torch's FlexAttention where it is asked for what is as in the model's first
    attention, and torch's usual one elsewhere; None where that first one has dropout or a mask's tensor, which
    FlexAttention has not. Under autocast it is in `dtype`, as the usual one is."""
    options, lengths = given["options"], [shape[-2] for shape in given["shapes"][:2]]
    if given["mask"] is not None or options.get("dropout_p"):
        return None
    blocks = None
    if options.get("is_causal"):
        later: Callable[..., Tensor] = lambda batch, head, query, key: query >= key  # noqa: E731  # torch compiles it
        blocks = create_block_mask(later, None, None, lengths[0], lengths[1], device=str(device))
    usual: Callable[..., Tensor] = nn.functional.scaled_dot_product_attention
    compiled: Callable[..., Tensor] = torch.compile(flex_attention)

    def attend(query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **asked: Any) -> Tensor:
        if attn_mask is not None or asked != options or [query.shape[-2], key.shape[-2]] != lengths:
            return usual(query, key, value, attn_mask=attn_mask, **asked)
        cast = (each.to(dtype) for each in (query, key, value))
        # With its model, where that is compiled; where operators are recorded, or on a CPU, nothing can be.
        alone = not (torch.compiler.is_compiling() or is_in_torch_dispatch_mode() or device.type == "cpu")
        flex: Any = compiled if alone else flex_attention
        return flex(*cast, block_mask=blocks, scale=asked.get("scale"), enable_gqa=bool(asked.get("enable_gqa")))

    return attend


def _seconds(kernel: Callable[..., Tensor], given: dict[str, Any], device: torch.device, dtype: torch.dtype) -> float:
    """Return the seconds of a forward and backward pass of one kernel; infinite where it does not take the shapes."""
    query, key, value = (
        torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for shape in given["shapes"]
    )
    mask = given["mask"] if given["mask"] is None else given["mask"].to(device)

    def attend() -> None:
        kernel(query, key, value, attn_mask=mask, **given["options"]).sum().backward()

    try:
        return median([synchronised(device, attend) for _ in range(_TIMED + 1)][1:])
    except RuntimeError:  # torch's: "No available kernel", and where a kernel is not built for this device
        return float("inf")


# --- What an engine does otherwise ---


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


def compiled(module: nn.Module, parts: tuple[str, ...], layers: Callable[[], list[nn.Module]]) -> Any:
    """Return a model compiled, as a whole or, by the part, each of its `layers` by itself."""
    if "cuda_graphs" in parts:
        return torch.compile(module, mode="reduce-overhead")
    if "layer_compilation" not in parts:
        return torch.compile(module)
    for layer in layers():
        layer.compile()
    return module


def in_bf16(_, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations that are text
    """Return the mean of a bucket of gradients over the ranks, sent in bf16. torch's own hook refuses gloo."""
    import torch.distributed as dist

    buffer = bucket.buffer()
    sent = buffer.to(torch.bfloat16).div_(dist.get_world_size())
    return dist.all_reduce(sent, async_op=True).get_future().then(lambda done: buffer.copy_(done.value()[0]))


def distributed(module: nn.Module, parts: tuple[str, ...], local: int | None) -> nn.Module:
    """Wrap a model, on this rank's GPU or the CPU, in DistributedDataParallel as the parts say; not at all by one."""
    if "no_wrapper" in parts:
        return module
    options: dict[str, Any] = {
        option: True
        for part, option in (("gradient_views", "gradient_as_bucket_view"), ("static_graph", "static_graph"))
        if part in parts
    }
    devices = None if local is None else [local]
    parallel = nn.parallel.DistributedDataParallel(module, device_ids=devices, **options)
    if "bf16_reduction" in parts:
        parallel.register_comm_hook(None, in_bf16)
    return parallel
