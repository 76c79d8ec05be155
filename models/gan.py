"""The lab report's GAN (*Lab 01 - Predicting Runtimes*, March 2023). It is none of the paper's nine recipes.

The report states 40,597 images, 159 batches an epoch (so a batch of 256) and 20 epochs, but no layer sizes. We chose
the sizes of the DCGAN in *Dive into Deep Learning*, section 20.2 (after Radford, Metz and Chintala, 2015), which has
the report's data set, batch, epochs and printed lines: 64 x 64 pixels, 100 latents, 64 channels at the largest side,
Adam at 0.005 with betas 0.5 and 0.999 for both networks. That the lab used these sizes is likely, not known.

One forward pass returns the sum of both networks' losses, so one micro-step trains both, under any engine (see
models/adversarial.py). Each network gets the gradient of its own loss only. One Adam optimizer is equivalent to two,
because it treats each weight independently. The difference from alternating updates, which the book and very probably
the lab use: the generator's loss uses the discriminator before its update, not after. This saves generating the images
a second time, and the gradients that alternating updates discard: the FLOPs of 2 of 13 forward passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .recipe import Generation, Optimizer, Recipe, Scale, Schedule

if TYPE_CHECKING:
    from torch import nn

IMAGES, EPOCHS = 40_597, 20  # of the lab's training
_BATCH = 256  # also the lab's
KERNEL = 4
SIDES = (1, 4, 8, 16, 32, 64)  # of the images, in pixels: from the latents to the image


@dataclass(frozen=True)
class Shape:
    """Channels of the generator at each of SIDES except the last, starting at the latents. The discriminator mirrors
    it, with one score instead of the latents."""

    latents: int
    channels: tuple[int, int, int, int]

    def layers(self, narrowest: int) -> list[tuple[int, int]]:
        """Return each layer's channels at its smaller and larger side; `narrowest` is the latents, or 1 for scores."""
        widths = (narrowest, *self.channels, 3)
        return list(pairwise(widths))


def parameters(shape: Shape) -> int:
    """Count the weights of both networks: the kernels, and two weights a channel in each batch normalisation."""
    return sum(
        sum(KERNEL**2 * a * b for a, b in shape.layers(narrowest)) + 2 * sum(shape.channels)
        for narrowest in (shape.latents, 1)
    )


def flops_per_example(shape: Shape) -> int:
    """Return the FLOPs of one real and one generated image, forward and backward. The generator takes three times its
    forward pass, without the gradient of its latents. The discriminator takes the same on the real and the generated
    image, without the pixels' gradients; then again on the generated image, for the generator, without its weights'."""
    generator, discriminator = _forward_flops(shape, shape.latents), _forward_flops(shape, 1)
    return 3 * sum(generator) - generator[0] + 8 * sum(discriminator) - 2 * discriminator[-1]


def _forward_flops(shape: Shape, narrowest: int) -> list[int]:
    """Return each layer's forward FLOPs per image: every weight is used once at each pixel of the smaller side."""
    ends = shape.layers(narrowest)
    return [2 * side**2 * KERNEL**2 * a * b for side, (a, b) in zip(SIDES[:-1], ends, strict=True)]


def _build(shape: Shape) -> nn.Module:
    from .adversarial import Adversaries

    return Adversaries(shape.layers(shape.latents), shape.layers(1), KERNEL)


def batches(images: int, batch: int) -> int:
    """Return the number of batches in an epoch; the last batch may be smaller."""
    return -(-images // batch)


def _recipe(scale: Scale, shape: Shape, batch_size: int) -> Recipe:
    return Recipe(
        id="gan",
        scale=scale,
        name="GAN",
        family="gan",
        inputs=Generation(size=SIDES[-1], latents=shape.latents),
        batch_size=batch_size,
        training_steps=EPOCHS * batches(IMAGES, _BATCH),
        precision="fp32",
        optimizer=Optimizer("Adam", 5e-3, (0.5, 0.999)),
        schedule=Schedule("linear", warmup_steps=0, floor=1.0),
        clip=None,
        layer="GanLayer",
        width=shape.channels[0],
        parameters=parameters(shape),
        flops_per_example=flops_per_example(shape),
        build=lambda kernels, attention: _build(shape),
        attends=False,
        custom_kernels=False,
    )


RECIPES = (
    _recipe("paper", Shape(latents=100, channels=(512, 256, 128, 64)), _BATCH),
    _recipe("tiny", Shape(latents=100, channels=(32, 16, 8, 4)), batch_size=16),
)
