"""A recipe: a model with the hyper-parameters of its replication (the paper's Table 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

if TYPE_CHECKING:
    from torch import nn


Precision = Literal["fp16", "bf16", "fp32"]
Scale = Literal["paper", "tiny"]
Whole = Annotated[int, Meta(ge=1)]  # checked where a file is read
_NODE = 8  # devices of the largest node in the paper


def divisors(number: int) -> list[int]:
    """Return the divisors of a positive number, the smallest first."""
    small = [each for each in range(1, isqrt(number) + 1) if number % each == 0]
    return sorted({*small, *(number // each for each in small)})


def sharing(batches: Iterable[int], devices: int) -> str:
    """Name numbers of devices that can share one of the batches, where this many cannot: 1, 2, 4 or 5 of 100."""
    found = sorted({each for batch in batches for each in divisors(batch) if each <= max(_NODE, devices)})[-4:]
    *others, last = map(str, found)
    return f"{', '.join(others)} or {last}" if others else last


@dataclass(frozen=True)
class Text:
    """Inputs of a language model: per example, `sequence` random token ids below `vocabulary`."""

    sequence: Whole
    vocabulary: Whole


@dataclass(frozen=True)
class Images:
    """Inputs of a vision model: random RGB images of `size` x `size` pixels and one of `classes` labels."""

    size: Whole
    classes: Whole


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
class Kernels:
    """Kernels of other `packages`, which run on GPUs alone. Where one is missing, the model takes a slow path.

    After a build, `bound` returns the package of each kernel, and `run` whether all of them run; `import_errors`
    returns why not.
    """

    packages: tuple[str, ...]
    bound: Callable[[], dict[str, str]]
    run: Callable[[], bool]
    import_errors: Callable[[], str]


_ADAMW = Optimizer("AdamW", 3e-4, (0.9, 0.95))
_COSINE = Schedule("cosine", warmup_steps=1_000, floor=0.1)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model and how it is trained. Only `build` needs torch; all other fields are plain data.

    `build(custom_kernels, attention)` returns a module whose forward pass takes a batch's tensors by name and returns
    the mean loss: `input_ids` and `labels` (both examples, sequence) for `Text`, `pixels` (examples, 3, size, size) and
    `labels` (examples) for `Images`. `attention` (sdpa or flash) is the implementation to use with custom kernels.

    `name` is for people, `family` groups models of the same code. `layer` is the class name of the layers, or several
    with commas between them, which FSDP shards and activation checkpointing recomputes.
    `width` is the model's hidden size (for ConvNeXt, of the last stage), `head_size` that of an attention head where
    flash-attn can serve it. `parameters` is the number of weights,
    `flops_per_example` counts forward and backward. `module` is the Python module of the model, where not from torch
    alone. `compiles` is false where torch.compile is not used with it, `attends` where it has no attention,
    `custom_kernels` where free lunch runs the same kernels as naive settings, and `keeps_cache` is true where the
    authors' trainings also returned keys and values. `kernels` are those of other packages.

    In a file of your own (docs/own-model.md) `name`, `inputs`, `batch_size`, `training_steps` and `build` are enough:
    an empty or zero field is found from the model.
    """

    id: str = ""
    scale: Scale = "paper"
    name: str
    family: str = ""
    inputs: Text | Images | Generation
    batch_size: int
    training_steps: int
    precision: Precision = ""  # type: ignore[assignment]  # in a file of your own: bf16 for text, fp32 for images
    optimizer: Optimizer = _ADAMW
    schedule: Schedule = _COSINE
    clip: float | None = 1.0
    layer: str = ""
    width: int = 0
    parameters: int = 0
    flops_per_example: int = 0
    build: Callable[[bool, str], nn.Module]
    module: str = ""
    compiles: bool = True
    flash_attention: bool = False
    head_size: int = 0
    attends: bool = True
    custom_kernels: bool = True
    keeps_cache: bool = False
    kernels: Kernels | None = None

    @property
    def layers(self) -> list[str]:
        """Return the class names of the layers."""
        return self.layer.split(",")
