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
    """Inputs of a language model: per example, `sequence` random token ids below `vocabulary`."""

    sequence: int
    vocabulary: int


@dataclass(frozen=True)
class Images:
    """Inputs of a vision model: random RGB images of `size` x `size` pixels and one of `classes` labels."""

    size: int
    classes: int


@dataclass(frozen=True)
class Generation:
    """Inputs of a GAN: random `size` x `size` RGB images from -1 to 1, and per example `latents` normal numbers."""

    size: int
    latents: int


@dataclass(frozen=True)
class Optimizer:
    """Adam or AdamW without weight decay, as in the authors' trainings. Their release asks for a decay of 0.01 to 0.1,
    but the Trainer of transformers 4.42.3 sets one per parameter group, 0 by default, which overrides the optimizer's.
    With a decay above 0, Adam would copy the gradients in every update: 12 bytes of memory traffic a weight."""

    name: Literal["Adam", "AdamW"]
    rate: float
    betas: tuple[float, float]
    eps: float = 1e-8


@dataclass(frozen=True)
class Schedule:
    """Learning rate: linear warm-up, then `kind` decay to `floor` (a fraction of the peak rate)."""

    kind: Literal["cosine", "linear"]
    warmup_steps: int
    floor: float = 0.0


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained. Only `build` needs torch; all other fields are plain data.

    `build(custom_kernels, attention)` returns a module whose forward pass takes a batch's tensors by name and returns
    the mean loss; `attention` (sdpa or flash) is the implementation to use with custom kernels. `layer` is the class
    name of the repeated block, which FSDP shards and activation checkpointing recomputes. `width` is the model's hidden
    size (for ConvNeXt, of the last stage). `parameters` is the number of weights, `flops_per_example` counts forward
    and backward.
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
