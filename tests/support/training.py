"""What ranks run for the tests, called by name (see conftest.py). What a function returns is JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import runpy
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from repro import models
from repro.measure import engine, epochs, phases, probes
from repro.measure.batches import random_batch
from repro.measure.clock import Clock, Watch, kernel_path, optimizer_path, synchronised, wait
from repro.measure.engine import modern
from repro.measure.engine.base import WrongWrapperError, layers, rate_factor, torch_optimizer
from repro.measure.engine.plain import PlainEngine
from repro.measure.jobs import SEED
from repro.measure.method import UnfitError
from repro.measure.rank import Rank
from repro.models import pythia
from repro.models.adversarial import Adversaries
from repro.models.objective import ImageClassification, LanguageModelling
from repro.models.recipe import Images, Optimizer, Precision, Recipe, Scale, Schedule, Text
from repro.models.transformer import TextShape
from repro.paper.deepspeed import configuration
from repro.paper.settings import Settings
from repro.run import tracking
from tests.support.ranks import changed_engines
from tests.support.trained import still

torch.set_num_threads(1)  # the models are tiny: more threads would only wait for each other

SCALES: tuple[Scale, ...] = ("paper", "tiny")

# --- Training, by an engine and by hand ---


def _comparable(name: str, precision: Precision, clip: float | None, wide: bool) -> Recipe:
    """A tiny recipe whose weights tell modes apart: without dropout, and with an epsilon so large that Adam, which is
    else blind to the gradient's scale, follows it. `wide` Pythias have weights too large for ZeRO-3 to keep whole."""
    recipe = models.find(name, "tiny")
    wanted = recipe.optimizer
    shape = TextShape(layers=2, width=192, heads=4, vocabulary=512)
    build = (lambda kernels, attention: pythia._build(shape, 65, kernels, attention)) if wide else recipe.build
    comparable = dataclasses.replace(
        recipe,
        precision=precision,
        optimizer=Optimizer(wanted.name, 0.1, wanted.betas, eps=1.0),
        schedule=Schedule("linear", warmup_steps=0),
        training_steps=10,
        clip=clip,
        build=build,
    )
    return still(comparable)


def train(
    rank: Rank,
    recipe: str,
    settings: str,
    folder: str,
    micro_batch: int,
    accumulation: int,
    steps: int = 3,
    precision: Precision = "fp32",
    clip: float | None = None,
    wide: bool = False,
    reduce: bool = True,
    same_data: bool = False,
    divide: bool = True,
) -> dict[str, Any]:
    """Trains on this rank's part of each step's batch; folder/<rank>.npz gets the weights at the `start` and `end`.

    A batch is the same whatever the world: ranks x accumulation x micro_batch examples, dealt in that order. Faults
    for negative controls: without `reduce` no micro-step reduces, with `same_data` every rank has the first one's
    part, without `divide` the gradients of the micro-steps are summed.
    """
    described = _comparable(recipe, precision, clip, wide)
    divisor = accumulation if divide else 1
    built = engine.build(described, Settings.parse(settings), rank, divisor, False, tf32=False)
    forwards = _count_forwards(built.module, described.layers)
    start, losses, watch = _flat(_full_weights(built)), [], Watch()
    for step in range(steps):
        batch = random_batch(described, rank.world * accumulation * micro_batch, SEED + step)
        parts = {name: value.split(micro_batch) for name, value in batch.items()}
        first = 0 if same_data else rank.index * accumulation
        step_losses = [
            built.micro_step(
                {name: value[first + number] for name, value in parts.items()},
                reduce=reduce and number == accumulation - 1,
            ).item()
            for number in range(accumulation)
        ]
        losses.append(sum(step_losses) / accumulation)
        with watch:
            built.update()
    built.check()
    lying_around = sum(weight.numel() for weight in built.module.parameters())
    numpy.savez(Path(folder) / f"{rank.index}.npz", start=start, end=_flat(_full_weights(built)))
    return {
        "losses": losses,
        "forwards": {calls / (steps * accumulation) for calls in forwards.values()}.pop(),
        "training": all(child.training for child in built.module.modules()),
        "gradients_left": any(weight.grad is not None for weight in built.module.parameters()),
        "scales_loss": isinstance(built, PlainEngine) and built.scaler.is_enabled(),
        "wrapper": built.wrapper,
        "optimizer": optimizer_path(built.adam, watch),
        "ran_precision": built.precision,
        "offloads": _offloads(built),
        "weights": built.held().weights / built.total,
        "moments": built.held().moments / built.total,
        "lying_around": lying_around / built.total,
    }


def train_by_hand(
    rank: Rank, recipe: str, folder: str, examples: int, steps: int = 3, clip: float | None = None
) -> dict[str, Any]:
    """The same training in one process and one micro-step, without an engine."""
    described = _comparable(recipe, "fp32", clip, wide=False)
    wanted, module = described.optimizer, described.build(True, "sdpa").train()
    optimizer = {"Adam": torch.optim.Adam, "AdamW": torch.optim.AdamW}[wanted.name](
        module.parameters(), wanted.rate, wanted.betas, wanted.eps, weight_decay=0.0
    )
    start, losses = _flat(list(module.parameters())), []
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = wanted.rate * (1 - step / described.training_steps)
        loss = module(**random_batch(described, examples, SEED + step))
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    numpy.savez(Path(folder) / f"{rank.index}.npz", start=start, end=_flat(list(module.parameters())))
    return {"losses": losses}


def with_fused_loss(rank: Rank, config: dict[str, Any] | None, recipe: str = "") -> str:
    """Why a Gemma of this configuration, or a tiny recipe, cannot take Liger's loss; "fits" where only Liger lacks."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    model = LanguageModelling(Gemma2ForCausalLM(Gemma2Config(**config))) if config else None
    try:
        modern._with_fused_loss(model or models.find(recipe, "tiny").build(False, "sdpa"), torch.bfloat16)
    except UnfitError as error:
        return str(error)
    except ModuleNotFoundError as error:
        return "fits" if error.name and error.name.startswith("liger_kernel") else str(error)
    return "fits"


class _OneGradient(torch.autograd.Function):
    """The sum of two biases, whose gradients are one buffer, as a compiled backward pass may return them."""

    @staticmethod
    def forward(ctx: Any, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one + other

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        buffer = gradient.clone()
        return buffer.view(-1), buffer.view(-1)


class _TwoBiases(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))

    def forward(self, **batch: torch.Tensor) -> torch.Tensor:
        return _OneGradient.apply(self.one, self.other).sum()


def gradients_of_two_biases(rank: Rank, steps: int) -> list[list[float]]:
    """The gradients of biases that share a buffer after each step of three micro-steps, before the update."""
    recipe = dataclasses.replace(models.find("vit", "tiny"), build=lambda kernels, attention: _TwoBiases())
    built = engine.build(recipe, Settings.parse("naive"), rank, 1, False, tf32=False)
    found = []
    for _ in range(steps):
        for number in range(3):
            built.micro_step({}, reduce=number == 2)
        found.append([weight.grad.max().item() for weight in built.module.parameters() if weight.grad is not None])
        built.update()
    return found


def ways_to_update(rank: Rank) -> list[str]:
    """What is said of each optimizer's update."""
    output = []
    for kind, wanted in (
        ("Adam", {}),
        ("Adam", {"foreach": True}),
        ("Adam", {"fused": True}),
        ("AdamW", {"fused": True}),
    ):
        weight = nn.Parameter(torch.ones(2))
        weight.grad = torch.ones(2)
        optimizer = getattr(torch.optim, kind)([weight], **wanted)
        with Watch() as watch:
            optimizer.step()
        output.append(optimizer_path(optimizer, watch))
    return output


def deepspeed_configuration(rank: Rank, recipe: str, settings: str, cuda: bool, accumulation: int) -> dict[str, Any]:
    """DeepSpeed's configuration of a recipe at the paper's scale."""
    described = models.find(recipe)
    return configuration(described, Settings.parse(settings), cuda, described.precision, accumulation)


def fsdp_policy(rank: Rank, settings: str) -> dict[str, Any]:
    """What FSDP gathers and reduces in, and whether the layers, and what is around them, hold whole weights after a
    forward."""
    described = models.find("pythia-1b", "tiny")
    built: Any = engine.build(described, Settings.parse(settings), rank, 1, False, tf32=False)
    built.forward(**random_batch(described, 1))
    states = [child._get_fsdp_state() for child in built.module.modules() if hasattr(child, "_get_fsdp_state")]
    policies = {state._mp_policy for state in states}
    within = {weight for layer in layers(built.module, described.layers) for weight in layer.parameters()}
    around = set(built.module.parameters()) - within
    return {
        "dtypes": [[str(each.param_dtype), str(each.reduce_dtype)] for each in policies],
        "layers": [*{not hasattr(weight, "to_local") for weight in within}],
        "around": [*{not hasattr(weight, "to_local") for weight in around}],
    }


def tf32_of_an_engine(rank: Rank, asked: bool) -> tuple[bool, str]:
    """What is set of TF32 in convolutions and in products once an engine is built."""
    engine.build(models.find("vit", "tiny"), Settings.parse("naive"), rank, 1, False, tf32=asked)
    return torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()


def splits_graphs_for_ddp(rank: Rank, settings: str) -> bool:
    """Whether torch.compile, once the engine is built, is to make a graph for each of DDP's buckets."""
    described = models.find("pythia-1b", "tiny")
    engine.build(described, Settings.parse(settings), rank, 1, compiled=True, tf32=False)
    return bool(torch._dynamo.config.optimize_ddp)


def claim(rank: Rank, ran: str, claimed: str) -> str:
    """Runs a step of one settings, claims it was another, and returns what the engine's check says to that."""
    described = _comparable("pythia-1b", "fp32", None, wide=False)
    built = engine.build(described, Settings.parse(ran), rank, 1, False, tf32=False)
    built.micro_step(random_batch(described, 1), reduce=True)
    built.update()
    built.check()
    built.settings = Settings.parse(claimed)
    try:
        built.check()
    except WrongWrapperError as error:
        return str(error)
    return ""


def recomputed(rank: Rank, settings: str) -> dict[str, float]:
    """How often a micro-step runs each layer forward, in every tiny recipe."""
    found = {}
    for name in models.IDS:
        recipe = models.find(name, "tiny")
        built = engine.build(recipe, Settings.parse(settings), rank, 1, False, tf32=False)
        forwards = _count_forwards(built.module, recipe.layers)
        built.micro_step(random_batch(recipe, 1), reduce=True)
        found[name] = {float(calls) for calls in forwards.values()}.pop()
    return found


def _full_weights(built: Any) -> list[torch.Tensor]:
    """All weights in fp32 on the host, gathered from every rank."""
    if built.settings.library == "deepspeed":
        from deepspeed.utils import safe_get_full_fp32_param

        found: Iterable[torch.Tensor] = map(safe_get_full_fp32_param, built.module.parameters())
    else:
        found = (getattr(weight, "full_tensor", lambda weight=weight: weight)() for weight in built.module.parameters())
    return [weight.detach().float().cpu() for weight in found]


def _flat(weights: list[torch.Tensor]) -> numpy.ndarray:
    return torch.cat([weight.detach().flatten() for weight in weights]).numpy().copy()


def _gradients(module: nn.Module) -> dict[str, torch.Tensor]:
    """By the name of the weight; none is without."""
    found = {}
    for name, weight in module.named_parameters():
        assert weight.grad is not None, name
        found[name] = weight.grad
    return found


def _count_forwards(module: nn.Module, names: list[str]) -> Counter[int]:
    """Counts, from now on, the forwards of every layer, by its number."""
    calls: Counter[int] = Counter()
    # fully_shard prefixes the class names of what it shards.
    repeated = [child for child in module.modules() if type(child).__name__.removeprefix("FSDP") in names]
    for number, child in enumerate(repeated):
        calls[number] = 0
        child.register_forward_pre_hook(lambda *_, number=number: calls.update([number]))
    return calls


def _offloads(built: Any) -> bool:
    """Whether the library keeps on the host what the settings offload. On a CPU only the library can tell."""
    if built.settings.library == "deepspeed":
        optimizer = built.optimizer
        return (
            optimizer.cpu_offload
            if built.settings.stage < 3
            else optimizer.offload_optimizer and optimizer.offload_param
        )
    if built.settings.library == "fsdp":
        states = [child._get_fsdp_state() for child in built.module.modules() if hasattr(child, "_get_fsdp_state")]
        groups = [state._fsdp_param_group for state in states if state._fsdp_param_group is not None]
        return {type(group.offload_policy).__name__ for group in groups} == {"CPUOffloadPolicy"}
    return False


# --- Recipes ---


def optimizer_of(rank: Rank, recipe: str) -> tuple[str, dict[str, Any]]:
    """The class of a recipe's optimizer where no library brings its own, and what it was told of all weights."""
    optimizer = torch_optimizer(models.find(recipe), [nn.Parameter(torch.zeros(1))])
    return type(optimizer).__name__, {key: optimizer.defaults[key] for key in ("lr", "betas", "eps", "weight_decay")}


def describe(rank: Rank) -> dict[str, Any]:
    """Of every recipe, built without memory: its parameters, the classes it is made of, its repeated layers, and what
    holds these."""
    found: dict[str, Any] = {}
    for name in models.IDS:
        for scale in SCALES:
            recipe = models.find(name, scale)
            with torch.device("meta"):
                module = recipe.build(True, "sdpa")
            repeated = layers(module, recipe.layers)
            found[f"{name}/{scale}"] = {
                "parameters": sum(weight.numel() for weight in module.parameters()),
                "classes": sorted({type(child).__qualname__ for child in module.modules()}),
                "layers": len(repeated),
                "held": {type(each).__name__ for each in module.modules() if {*each.children()} & {*repeated}}.pop(),
            }
    return found


def sizes_of_gan(rank: Rank, scale: Scale) -> dict[str, Any]:
    """Parameters of the GAN's networks, its layers, and the shapes of what two examples become."""
    recipe = models.find("gan", scale)
    module, batch = recipe.build(False, "sdpa"), random_batch(recipe, 2)
    assert isinstance(module, Adversaries)
    return {
        "generator": sum(weight.numel() for weight in module.generator.parameters()),
        "discriminator": sum(weight.numel() for weight in module.discriminator.parameters()),
        "layers": len(layers(module, recipe.layers)),
        "generated": list(module._generate(batch["latents"]).shape),
        "judged": list(module._judge(batch["pixels"]).shape),
    }


def gan_gradients_by_hand(rank: Rank) -> float:
    """How far the joint loss's gradients are from those of each network's loss, relative, at worst."""
    recipe = models.find("gan", "tiny")
    module, batch = recipe.build(False, "sdpa"), random_batch(recipe, 8)
    assert isinstance(module, Adversaries)
    entropy, one, zero = nn.BCEWithLogitsLoss(), torch.ones(8, 1, 1, 1), torch.zeros(8, 1, 1, 1)
    module(**batch).backward()
    joint = [gradient.clone() for gradient in _gradients(module).values()]
    with torch.no_grad():
        images = module._generate(batch["latents"])
    right = entropy(module._judge(batch["pixels"]), one) + entropy(module._judge(images), zero)
    fooled = entropy(module._judge(module._generate(batch["latents"])), one)
    alone = torch.autograd.grad(fooled, list(module.generator.parameters()))
    alone += torch.autograd.grad(right / 2, list(module.discriminator.parameters()))
    return max(float((one - other).norm() / other.norm()) for one, other in zip(joint, alone, strict=True))


def attention(rank: Rank, recipe: str, custom_kernels: bool) -> str:
    """Which attention a forward of the tiny recipe runs."""
    described, watch = models.find(recipe, "tiny"), Watch()
    module = described.build(custom_kernels, "sdpa")
    with watch:
        module(**random_batch(described, 1))
    return kernel_path(described, watch)


def drawn(rank: Rank, recipe: str) -> dict[str, list[float]]:
    """The least and the largest of what a large batch of the tiny recipe's inputs holds, by the inputs' names."""
    batch = random_batch(models.find(recipe, "tiny"), 1024)
    return {name: [round(float(value.min()), 2), round(float(value.max()), 2)] for name, value in batch.items()}


def attention_of_operators(rank: Rank, seen: list[str]) -> str:
    """Which attention is read off when these operators ran."""
    watch = Watch()
    watch.seen.update(seen)
    return kernel_path(models.find("pythia-1b"), watch)


def asked_attention(rank: Rank, recipe: str, custom_kernels: bool, attention: str) -> str:
    """Which attention the tiny recipe asks transformers for, or what that says where it lacks it."""
    try:
        built: Any = models.find(recipe, "tiny").build(custom_kernels, attention)
        return built.model.config._attn_implementation
    except ImportError as error:
        return str(error)


def flash_attn_4(rank: Rank, packages: str, compiled: bool) -> dict[str, Any]:
    """The loss and gradients of the tiny Pythia-160M by flash-attn-4 of a folder `packages`, next to those by torch's
    attention; not compiled also its kernels as a record names them. Compiled, its graph may not break."""
    sys.path.insert(0, packages)
    described = models.find("pythia-160m", "tiny")
    batch = random_batch(described, 2)
    found: dict[str, Any] = {}
    for attention in ("flash", "sdpa"):
        torch.manual_seed(0)
        model: Any = described.build(True, attention)
        if compiled:
            model = torch.compile(model, backend="aot_eager", fullgraph=True)
        watch = Watch()
        with contextlib.nullcontext() if compiled else watch:
            loss = model(**batch)
            loss.backward()
        gradients = torch.cat([weights.grad.flatten() for weights in model.parameters()])
        found[attention] = {"loss": loss.item(), "norm": gradients.norm().item(), "last": gradients[-100:].tolist()}
        found[attention]["path"] = kernel_path(described, watch)
    return found


def compiled_attention(rank: Rank, recipe: str) -> list[dict[str, Any]]:
    """How the compiled tiny recipe with custom kernels calls torch's attention: whether with a mask, whether causal."""
    calls = []

    def look(graph: torch.fx.GraphModule, example: list[torch.Tensor]) -> Callable[..., Any]:
        for node in graph.graph.nodes:
            if "scaled_dot_product_attention" in str(node.target):
                calls.append({"mask": node.kwargs["attn_mask"] is not None, "causal": node.kwargs["is_causal"]})
        return graph.forward

    described = models.find(recipe, "tiny")
    torch.compile(described.build(True, "sdpa"), backend=look)(**random_batch(described, 1))
    return calls


def built_as(rank: Rank, recipe: str) -> dict[str, Any]:
    """Of a tiny language model what no count of weights or FLOPs tells, and what it returns beside loss and logits when
    it trains; `rotated` is how much of a head is."""
    described = models.find(recipe, "tiny")
    model: Any = described.build(False, "sdpa").train().model
    batch = random_batch(described, 1)
    config = model.config
    frequencies = [buffer.numel() for name, buffer in model.named_buffers() if name.endswith("inv_freq")]
    heads = getattr(config, "num_attention_heads", None)
    return {
        "rotated": 2 * frequencies[0] / (config.hidden_size // heads) if frequencies else None,
        "parallel": getattr(config, "use_parallel_residual", None),
        "epsilons": sorted({child.eps for child in model.modules() if isinstance(child, nn.LayerNorm)}),
        "residual_in_fp32": getattr(config, "residual_in_fp32", None),
        "tied": model.get_output_embeddings().weight is model.get_input_embeddings().weight,
        "dropouts": sorted({child.p for child in model.modules() if isinstance(child, nn.Dropout)}),
        "returned": sorted(model(**batch).keys()),
    }


# What the authors' classes call what timm's do, in whichever transformers; timm's qkv is their three, in this order.
_TIMMS_NAMES = {
    "vit": {
        r"vit\.embeddings\.patch_embeddings\.projection": "patch_embed.proj",
        r"vit\.embeddings\.cls_token": "cls_token",
        r"vit\.embeddings\.position_embeddings": "pos_embed",
        r"vit\.(encoder\.layer|layers)\.": "blocks.",
        r"layernorm_before": "norm1",
        r"layernorm_after": "norm2",
        r"attention\.((attention\.)?(query|key|value)|[qkv]_proj)\.": "attn.qkv.",
        r"attention\.(output\.dense|o_proj)": "attn.proj",
        r"intermediate\.dense": "mlp.fc1",
        r"output\.dense": "mlp.fc2",
        r"vit\.layernorm": "norm",
        r"classifier": "head",
    },
    "convnext": {
        r"convnext\.embeddings\.patch_embeddings": "stem.0",
        r"convnext\.embeddings\.layernorm": "stem.1",
        r"convnext\.layernorm": "head.norm",
        r"convnext\.encoder\.": "",
        r"downsampling_layer": "downsample",
        r"\.layers\.": ".blocks.",
        r"dwconv": "conv_dw",
        r"layernorm": "norm",
        r"pwconv": "mlp.fc",
        r"layer_scale_parameter": "gamma",
        r"classifier": "head.fc",
    },
}


def _under_timms_names(family: str, values: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    renamed: dict[str, list[torch.Tensor]] = {}
    for name, value in values:
        for theirs, timms in _TIMMS_NAMES[family].items():
            name = re.sub(theirs, timms, name)
        renamed.setdefault(name, []).append(value)
    return {name: torch.cat(parts) for name, parts in renamed.items()}


def _authors_class(recipe: Recipe, timms: Any, custom_kernels: bool) -> nn.Module:
    """The authors' model class, from transformers, at the size of a recipe's timm model, else as they configured it."""
    from transformers import ConvNextConfig, ConvNextForImageClassification, ViTConfig, ViTForImageClassification

    assert isinstance(recipe.inputs, Images)
    if recipe.family == "convnext":
        return ConvNextForImageClassification(
            ConvNextConfig(
                num_labels=recipe.inputs.classes,
                depths=[len(stage.blocks) for stage in timms.stages],
                hidden_sizes=[stage.blocks[0].norm.weight.numel() for stage in timms.stages],
            )
        )
    return ViTForImageClassification(
        ViTConfig(
            num_labels=recipe.inputs.classes,
            image_size=recipe.inputs.size,
            hidden_size=recipe.width,
            num_hidden_layers=len(timms.blocks),
            num_attention_heads=timms.blocks[0].attn.num_heads,
            intermediate_size=4 * recipe.width,
            hidden_dropout_prob=0.1,
            attn_implementation="sdpa" if custom_kernels else "eager",
        )
    )


def beside_the_authors_class(
    rank: Rank, recipe: str, custom_kernels: bool, training: bool, changed: str = ""
) -> dict[str, float]:
    """How far the tiny recipe is from the authors' class with the same random weights and dropout: its logits, its loss
    and the loss's gradient by each weight, relative. `changed` is a weight that the recipe alone has 10 % larger."""
    described = models.find(recipe, "tiny")
    ours = described.build(custom_kernels, "sdpa").train(training)
    assert isinstance(ours, ImageClassification)
    theirs = _authors_class(described, ours.model, custom_kernels).train(training)
    torch.manual_seed(SEED)
    with torch.no_grad():
        for weight in theirs.parameters():  # as they begin, blocks add next to nothing
            weight.add_(0.2 * torch.randn_like(weight))
        ours.model.load_state_dict(_under_timms_names(described.family, theirs.named_parameters()))
        if changed:
            ours.model.get_parameter(changed).mul_(1.1)

    batch = random_batch(described, 4)
    torch.manual_seed(SEED)
    logits = ours.model(batch["pixels"])
    torch.manual_seed(SEED)
    loss = ours(**batch)
    torch.manual_seed(SEED)
    wanted = theirs(pixel_values=batch["pixels"], labels=batch["labels"])
    loss.backward()
    wanted.loss.backward()
    gradients = _under_timms_names(described.family, _gradients(theirs).items())
    found = _gradients(ours.model) | {"logits": logits, "loss": loss}
    return {
        name: ((found[name] - value).norm() / value.norm()).item()
        for name, value in (gradients | {"logits": wanted.logits, "loss": wanted.loss}).items()
    }


def mamba_kernels(rank: Rank, custom_kernels: bool, packages: str | None = None) -> dict[str, str]:
    """What Mamba's kernels are bound to after a build; `packages` is a folder to import from."""
    from repro.models.mamba import bound_kernels

    if packages is not None:
        sys.path.insert(0, packages)
    models.find("mamba", "tiny").build(custom_kernels, "sdpa")
    return bound_kernels()


def search_in_unasked_tf32(rank: Rank) -> None:
    """A trial's search for its micro batch where fp32 products run in TF32 whatever is asked."""
    engine.runs_tf32 = lambda device: True  # in this rank alone
    phases.fit(rank, "vit", "tiny", "naive", tf32=False, start=1, largest=2)


def search_with_another_share(rank: Rank) -> None:
    """The same where what is held is not what the settings promise of so many weights."""
    changed_engines(lambda built: setattr(built, "total", 2 * built.total))
    phases.fit(rank, "vit", "tiny", "naive", tf32=False, start=1, largest=2)


def search_with_a_slow_scan(rank: Rank) -> None:
    """A search of Mamba's free lunch, as on a GPU, where there are no custom kernels."""
    changed_engines(lambda built: setattr(rank, "cuda", True))  # no kernel is there to launch: nothing may run then
    phases.fit(rank, "mamba", "tiny", "free_lunch", tf32=False, start=1, largest=1)


def mamba_path(rank: Rank, packages: str) -> list[str]:
    """The path of a build with custom kernels, and what their packages say; `packages` is a folder to import from."""
    from repro.models.mamba import import_errors

    sys.path.insert(0, packages)
    described = models.find("mamba", "tiny")
    described.build(True, "sdpa")
    return [kernel_path(described, Watch()), import_errors()]


def played(rank: Rank, phase: str, **arguments: Any) -> dict[str, Any]:
    """What a phase of a trial does, in its order, and the inputs' sums: `copy` of inputs to the device, micro-steps
    `alone` and with reduction, `update`, `turn`, `wait` for the device, `ended` for the compiler's processes, [ and ]
    where a clock starts and stops; what losses are divided by; those it tells of, where each micro-step loses its
    number; whose times it takes for whose, and which peak. Nothing is compiled: that takes long, and is not looked at
    here."""
    output: list[str] = []
    reports: dict[str, Any] = {}
    inputs: list[int] = []
    divisors: list[int] = []
    numbers = itertools.count(1)

    def noted(word: str, function: Callable[..., Any], end: str = "") -> Callable[..., Any]:
        def noting(*given: Any, **named: Any) -> Any:
            output.append(word)
            found = function(*given, **named)
            output.extend([end] if end else [])
            return found

        return noting

    def copied(batch: dict[str, torch.Tensor], rank: Rank) -> dict[str, torch.Tensor]:
        output.append("copy")
        inputs.append(int(batch["input_ids"].sum()))
        return batch

    def change(built: Any) -> None:
        divisors.append(built.accumulation)
        micro_step, built.update = built.micro_step, noted("update", built.update)

        def stepped(batch: dict[str, torch.Tensor], reduce: bool) -> torch.Tensor:
            output.append("reduce" if reduce else "alone")
            micro_step(batch, reduce)
            return torch.tensor(float(next(numbers)))

        built.micro_step = stepped

    changed_engines(change)
    patched: Any = phases
    patched.to_device = copied
    patched.synchronised = noted("[", synchronised, "]")
    patched._end_compiler = noted("ended", phases._end_compiler)
    patched.wait = noted("wait", wait)
    patched.Peak = lambda cuda: SimpleNamespace(bytes=lambda: "allocated", limited=lambda: "limited")
    clock: Any = Clock
    clock.part, clock.read = noted("[", Clock.part, "]"), lambda clock: ("by the host", "by the device")
    rank.turn = noted("turn", rank.turn)  # type: ignore[method-assign]
    rank.report = reports.update
    torch.compile = lambda module, **_: module  # type: ignore[assignment]
    result = getattr(phases, phase)(rank, scale="tiny", tf32=False, **arguments)
    played = {"output": " ".join(output), "inputs": sorted(set(inputs)), "divisors": divisors, "reports": reports}
    return played | {name: getattr(result, name, None) for name in ("losses", "host", "device", "peak_memory")}


def clocked(rank: Rank) -> dict[str, Any]:
    """What clocks do on a GPU, one that stands in for it, around some `work`, and the device's seconds of two parts
    whose events are 1,500 ms apart."""
    output: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            output.append("event")

        def elapsed_time(self, end: Any) -> float:
            output.append("read")
            return 1500.0

    cuda: Any = torch.cuda
    cuda.Event, cuda.synchronize = Event, lambda: output.append("wait")
    device = torch.device("cuda")
    clock = Clock(device)
    for _ in range(2):
        clock.part(lambda: output.append("work"))
    _, seconds = clock.read()
    parts, output = output, []
    synchronised(device, lambda: output.append("work"))
    return {"parts": " ".join(parts), "seconds": seconds, "synchronised": " ".join(output)}


def asked_at_work(rank: Rank, seconds: float) -> dict[str, Any]:
    """Of which GPU the fourth rank of a node tells while work that takes so long goes on, and after how long."""
    asked = threading.Event()
    slept: list[float] = []

    def state(local: int) -> dict[str, Any]:
        asked.set()
        return {"local": local}

    patched: Any = phases
    patched.time, patched.nvml = SimpleNamespace(sleep=slept.append), SimpleNamespace(state=state)
    rank.cuda, rank.index, rank.local = True, 7, 3
    during: list[bool] = []
    output = phases._state_at_work(rank, lambda: during.append(asked.wait(60)), seconds)
    return {"output": output, "slept": slept, "during": during}


def overflowing(rank: Rank, phase: str, **arguments: Any) -> dict[str, Any]:
    """A phase of a trial whose loss is so large that fp16 gradients overflow at the first loss scales: how many updates
    were skipped in all, and of how many the phase tells."""

    def build(custom_kernels: bool, attention: str) -> nn.Module:
        module = described.build(custom_kernels, attention)
        module.register_forward_hook(lambda module, batch, loss: 1e4 * loss)
        return module

    engines: list[Any] = []
    described = models.find("pythia-160m", "tiny")
    models.find = lambda *_: dataclasses.replace(described, build=build)
    changed_engines(engines.append)
    result = getattr(phases, phase)(rank, recipe="", scale="tiny", settings="naive", tf32=False, **arguments)
    return {"skipped": engines[0].skipped_updates(), "output": getattr(result, "skipped_updates", None)}


def overflowing_when_accumulated(rank: Rank) -> dict[str, Any]:
    """A trial whose gradients overflow where more than two micro-steps add up: how many updates the loss scale skipped
    in all, and of how many timed ones the trial tells."""
    skipped = added = 0

    def change(built: Any) -> None:
        micro_step, update = built.micro_step, built.update

        def counted(*given: Any) -> torch.Tensor:
            nonlocal added
            added += 1
            return micro_step(*given)

        def skipping() -> None:
            nonlocal skipped, added
            skipped += added > 2
            added = 0
            update()

        built.micro_step, built.update, built.skipped_updates = counted, skipping, lambda: skipped

    changed_engines(change)
    asked: dict[str, Any] = {"micro_batch": 1, "accumulation": 1, "steps": 3, "check_extrapolation": False}
    output = phases.measure(rank, recipe="vit", scale="tiny", settings="naive", tf32=False, compiled=False, **asked)
    return {"skipped": skipped, "output": output.skipped_updates}


def lab_training(rank: Rank, folder: str, **arguments: Any) -> dict[str, Any]:
    """What a training of the lab's GAN reads, image by image, and does, with a second for a reading and three for a
    step; which engine it asks for, and its times."""
    clock = [0.0]
    output: list[str] = []
    reads: list[list[int]] = []
    asked: list[Any] = []
    read = epochs._ImageFile.read

    class Engine:
        def micro_step(self, batch: dict[str, torch.Tensor], reduce: bool) -> None:
            clock[0] += 3.0
            assert reduce
            assert [*batch["latents"].shape] == [len(batch["pixels"]), 100]
            output.append("step")

        def update(self) -> None:
            output.append("update")

    def build(*given: Any, **named: Any) -> Engine:
        asked.extend([given[0].id, given[0].batch_size, given[1].id, *given[3:], named])
        return Engine()

    def noted(file: Any, chosen: torch.Tensor) -> torch.Tensor:
        clock[0] += 1.0
        output.append("read")
        reads.append(chosen.tolist())
        return read(file, chosen)

    patched: Any = epochs
    patched.engine.build, patched._ImageFile.read = build, noted
    patched.wait, patched.time = lambda device: output.append("wait"), SimpleNamespace(perf_counter=lambda: clock[0])
    rank.report = lambda **said: output.append(*said)
    times = epochs.train(rank, "tiny", folder=folder, **arguments)
    return {"output": output, "reads": reads, "asked": asked, **times}


def image_file(rank: Rank, folder: str, images: int) -> dict[str, Any]:
    """What a file of images of 2 x 2 pixels holds, and what becomes of it and of what the page cache has of it."""
    output: list[str] = []
    patched: Any = epochs
    patched.os = SimpleNamespace(
        posix_fadvise=lambda file, *what: output.append("forgotten" if what == (0, 0, os.POSIX_FADV_DONTNEED) else ""),
        POSIX_FADV_DONTNEED=os.POSIX_FADV_DONTNEED,
        pread=os.pread,
    )
    patched.files = SimpleNamespace(sync=lambda file: output.append("written"))
    with epochs._ImageFile(folder, images, 2, torch.Generator().manual_seed(0)) as file:
        pixels, some = file.read(torch.arange(images)), file.read(torch.tensor([images - 1, 3]))
        left = os.listdir(folder)
    return {
        "shape": [*pixels.shape],
        "from": [float(pixels.min()), float(pixels.max())],
        "different": len(pixels.flatten(1).unique(dim=0)),
        "overlap": bool((pixels[1].flatten()[:-1] == pixels[0].flatten()[1:]).all()),
        "as_chosen": bool((some == pixels[[images - 1, 3]]).all()),
        "output": output,
        "left": left,
        "closed": file._file.closed,
    }


def probed(rank: Rank, capability: tuple[int, int] | None = None) -> dict[str, Any]:
    """What is computed where every probe takes 2 s, and a small exchange now and then nothing, else 1 s or 3 s by its
    kind; on this CPU or, with a compute capability, on a GPU that it stands in for, with 7 bytes of memory."""
    exchanging: list[bool] = []
    tf32: list[bool] = []
    pinned: list[bool] = []
    backward_passes: list[bool] = []
    small, ones = itertools.count(), torch.ones

    def best(rank: Rank, work: Callable[[], object], exchanges: bool = False) -> float:
        work()
        exchanging.append(exchanges)
        tf32.append(torch.backends.cuda.matmul.allow_tf32)
        return 2.0

    def exchanged(device: torch.device, work: Callable[[], object]) -> float:
        work()
        number = next(small)
        return 0.0 if number % 50 < 10 else 1.0 if number < 50 else 3.0

    def allocated(*size: Any, pin_memory: bool = False, **named: Any) -> torch.Tensor:
        pinned.append(pin_memory)
        return ones(*size, **named)

    backward, tensor = torch.Tensor.backward, torch.Tensor  # type: Any, Any

    def counted(each: torch.Tensor) -> None:
        backward_passes.append(True)
        backward(each)

    tensor.backward = counted
    patched, cuda, where = probes, torch.cuda, rank  # type: Any, Any, Any
    patched._best, patched.synchronised = best, exchanged
    if capability is not None:
        torch.ones = allocated  # type: ignore[assignment]
        cuda.get_device_capability = lambda: tuple(capability)
        cuda.get_device_properties = lambda device: SimpleNamespace(total_memory=7)
        where = SimpleNamespace(cuda=True, device=torch.device("cpu"), world=1, timed=contextlib.nullcontext)
    found = probes.probe(where)
    output = {"exchanging": sum(exchanging), "tf32": tf32[:4], "pinned": sum(pinned), "backward": len(backward_passes)}
    return {"found": found, **output}


def best_of(rank: Rank, times: list[float], exchanges: bool) -> dict[str, Any]:
    """Of a work that takes these times, and always the last one from then on: what counts, and how often it ran."""
    clock, ran, taken = [0.0], [], iter(times)
    last = times[-1]

    def timed(device: torch.device, work: Callable[[], object]) -> float:
        work()
        clock[0] += 0.03
        return next(taken, last)

    patched: Any = probes
    patched.synchronised, patched.time = timed, SimpleNamespace(perf_counter=lambda: clock[0])
    best = probes._best(rank, lambda: ran.append(True), exchanges)
    return {"best": best, "ran": len(ran)}


def compiler_processes(rank: Rank) -> tuple[int, int]:
    """How many processes a rank has that compiles, before and after it ended them."""
    import psutil
    from torch._inductor.async_compile import AsyncCompile

    from repro.measure.phases import _end_compiler

    torch._inductor.config.compile_threads = 2
    AsyncCompile.process_pool()
    before = len(psutil.Process().children(recursive=True))
    _end_compiler()
    return before, len(psutil.Process().children(recursive=True))


def calls_a_graph(rank: Rank) -> dict[str, bool]:
    """Whether two compiled functions do: one that is a graph, and one of which everything is kept from the compiler."""
    from repro.measure.phases import _calls_a_graph

    def whole(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def broken(x: torch.Tensor) -> torch.Tensor:
        return torch._dynamo.disable(whole)(x)

    found = {}
    for function in (broken, whole):
        torch.compile(function, backend="eager")(torch.ones(2))
        found[function.__name__] = _calls_a_graph(function)
    return found


def compiled_sum(rank: Rank, variables: dict[str, str]) -> float:
    """What a compiled sum gives, where the environment has these variables."""
    os.environ.update(variables)
    return float(torch.compile(lambda one, other: one + other)(torch.ones(2), 2 * torch.ones(2))[0])


def graphs_made(rank: Rank) -> dict[str, int]:
    """What is counted of a compiled function that breaks in two, and that is called with two types."""
    from repro.measure.phases import _graphs

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        return 2 * y

    compiled, built = torch.compile(broken, backend="eager"), SimpleNamespace()  # type: Any, Any
    for dtype in (torch.float32, torch.float64):
        compiled(torch.ones(2, dtype=dtype))
    return _graphs(built)


def rebuild_mamba(rank: Rank, first: bool, second: bool) -> str:
    """Builds Mamba twice in one process, with or without custom kernels; the complaint, if there is one."""
    recipe = models.find("mamba", "tiny")
    recipe.build(first, "sdpa")
    try:
        recipe.build(second, "sdpa")
    except RuntimeError as error:
        return str(error)
    return ""


def rate_factors(rank: Rank, kind: Any, warmup_steps: int, floor: float, steps: int, at: list[int]) -> list[float]:
    return [rate_factor(Schedule(kind, warmup_steps, floor), step, steps) for step in at]


# --- FLOPs ---


def count_flops(rank: Rank, recipe: str, scale: Scale) -> int:
    """torch's count of one example's FLOPs, with eager attention and without memory, but for its mistake in the
    backward of grouped convolutions, where it multiplies the weight gradient by the number of groups."""
    described = models.find(recipe, scale)

    def convolution_backward(gradient: Any, inputs: Any, weight: Any, *rest: Any, out_shape: Any) -> int:
        *_, transposed, _, _, wanted = rest  # gradients wanted: of the inputs, the weight, the bias
        products = 2 * torch.Size(inputs if transposed else gradient).numel() * torch.Size(weight[1:]).numel()
        return products * (wanted[0] + wanted[1])

    mapping = {torch.ops.aten.convolution_backward: convolution_backward}
    example = random_batch(described, 1)
    # timm reads values while it builds, which fake tensors refuse, and transformers in the forward, which meta does.
    with FakeTensorMode() if isinstance(described.inputs, Text) else torch.device("meta"):
        module = described.build(False, "sdpa")
        batch = {name: torch.empty(value.shape, dtype=value.dtype) for name, value in example.items()}
        with FlopCounterMode(display=False, custom_mapping=mapping) as counter:
            module(**batch).backward()
    return counter.get_total_flops()


# --- The exported train.py ---


def run_exported(
    rank: Rank, script: str, words: list[str], port: int, kill_at: int | None = None, stop_at: int | None = None
) -> Any:
    """Run a train.py as torchrun would; return its exit code. Every rank is killed in step `kill_at`; in
    step `stop_at` all get SIGTERM, as from SLURM, with the processes that read their data."""
    log = tracking.StepLog.log

    def watched(tracker: tracking.StepLog, number: int, **values: float) -> None:
        log(tracker, number, **values)
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == stop_at and rank.index == rank.world - 1:
            os.killpg(os.getpgrp(), signal.SIGTERM)  # also those that read data

    tracking.StepLog.log = watched  # type: ignore[method-assign,assignment]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LOCAL_WORLD_SIZE=str(rank.world))
    os.environ["OMP_NUM_THREADS"] = "1"  # as torchrun sets it
    sys.argv = [script, *words]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code
    return None


def transformers_arguments(rank: Rank, folder: str) -> dict[str, Any]:
    """Return which exported arguments transformers does not know, and a few as it takes them, if accelerate is
    installed."""
    from transformers import TrainingArguments

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):  # accelerate would wait for the other ranks
        os.environ.pop(name)
    os.chdir(folder)
    arguments = json.loads(Path("training_arguments.json").read_text())
    known = {field.name for field in dataclasses.fields(TrainingArguments)}
    taken = TrainingArguments(**arguments) if find_spec("accelerate") else None
    return {"unknown": sorted(arguments.keys() - known), "taken": taken and [taken.max_steps, taken.lr_scheduler_type]}


def timed_by_the_example(rank: Rank, recipe: str, micro_batch: int, rounds: int) -> list[dict[str, list[float]]]:
    """The synchronised seconds of each part as a trial times them, and as examples/time_a_step.py does."""
    torch.set_num_threads(1)  # threads that wait for each other make the noise larger than the parts
    example = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "time_a_step.py"))
    measured = phases.measure(rank, recipe, "tiny", "naive", False, False, micro_batch, 2, rounds, False)
    return [measured.synchronised, example["time_parts"](models.find(recipe, "tiny"), micro_batch, rounds, wait=True)]
