"""A recipe: a model with the hyper-parameters of its replication (the paper's Table 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import nn


Precision = Literal["fp16", "bf16", "fp32"]
Scale = Literal["paper", "tiny"]


@dataclass(frozen=True)
class Text:
    """Inputs of a language model: random token ids below `vocabulary`, `sequence` of them an example."""

    sequence: int
    vocabulary: int


@dataclass(frozen=True)
class Images:
    """Inputs of a vision model: random `size` x `size` RGB pixels and one of `classes` labels."""

    size: int
    classes: int


@dataclass(frozen=True)
class Generation:
    """Inputs of a GAN: random `size` x `size` RGB pixels from -1 to 1, and `latents` normal numbers an example."""

    size: int
    latents: int


@dataclass(frozen=True)
class Optimizer:
    """Without weight decay, as the authors' trainings ran: their release asks for 0.01 to 0.1, but the Trainer of
    transformers 4.42.3 gives each group of parameters its own, 0 unless told, which goes before the optimizer's. A
    decay above 0 would have Adam copy the gradients in every update: 12 bytes of traffic a weight."""

    name: Literal["Adam", "AdamW"]
    rate: float
    betas: tuple[float, float]
    eps: float = 1e-8


@dataclass(frozen=True)
class Schedule:
    """Learning rate: linear warm-up, then `kind` down to `floor` (a fraction of the peak rate)."""

    kind: Literal["cosine", "linear"]
    warmup_steps: int
    floor: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """What is trained. `build` alone needs torch; everything else is plain data.

    `build(custom_kernels, attention)` returns a module whose forward takes a batch's tensors by name and
    returns the mean loss; `attention` is the implementation wanted with custom kernels (sdpa or flash).
    `layer` is the class name of the repeated block that FSDP shards and activation checkpointing recomputes, `width`
    the model's hidden size (of ConvNeXt's last stage).
    `parameters` counts the model's weights, `flops_per_example` forward and backward, in FLOPs.
    """

    id: str
    scale: Scale
    name: str
    family: str
    inputs: Text | Images | Generation
    batch_size: int
    training_steps: int
    precision: Precision
    optimizer: Optimizer
    schedule: Schedule
    clip: float | None
    layer: str
    width: int
    parameters: int
    flops_per_example: int
    build: Callable[[bool, str], nn.Module]
    compiles: bool = True
    flash_attention: bool = False
