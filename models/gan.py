"""The lab report's GAN (*Lab 01 - Predicting Runtimes*, March 2023). It is none of the paper's nine recipes.

The report states 40,597 images, 159 batches an epoch (so a batch of 256) and 20 epochs, and no sizes. Those here are
our choice: the DCGAN of *Dive into Deep Learning*, section 20.2 (after Radford, Metz and Chintala, 2015), which has
the report's data set, batch, epochs and printed lines: 64 x 64 pixels, 100 latents, 64 channels where the side is
largest, Adam at 0.005 with betas 0.5 and 0.999 for both networks. That the lab ran these sizes is likely, not known.

One forward returns the sum of both networks' losses, so that one micro-step trains both, under any engine (see
models/adversarial.py). Each network gets the gradient of its own loss alone, and one Adam is two, as it treats every
weight by itself. What differs from alternating updates, the book's and surely the lab's, is that the generator meets
the discriminator of before its update, not of after. That spares generating the images once more, and gradients
that alternating throws away: 2 of 13 forwards' worth of FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from .recipe import Generation, Optimizer, Recipe, Scale, Schedule

if TYPE_CHECKING:
    from torch import nn

IMAGES, EPOCHS = 40_597, 20  # of the lab's training
_BATCH = 256  # the lab's, too
WARM_UP_BATCHES = 10  # ours, ahead of an epoch that is to be a warm one
KERNEL = 4
SIDES = (1, 4, 8, 16, 32, 64)  # from the latents to the image, layer by layer


@dataclass(frozen=True)
class Shape:
    """Channels of the generator at each of SIDES but the last, from the latents on. The discriminator is its mirror,
    with one score in place of the latents."""

    latents: int
    channels: tuple[int, int, int, int]

    def layers(self, narrowest: int) -> list[tuple[int, int]]:
        """Channels on the two ends of each layer, the smaller side first; `narrowest` is latents or 1."""
        widths = (narrowest, *self.channels, 3)
        return list(pairwise(widths))


def parameters(shape: Shape) -> int:
    """Of both networks: the kernels, and two weights a channel of each batch normalisation."""
    return sum(
        sum(KERNEL**2 * a * b for a, b in shape.layers(narrowest)) + 2 * sum(shape.channels)
        for narrowest in (shape.latents, 1)
    )


def flops_per_example(shape: Shape) -> int:
    """One real image and one generated, forward and backward. The generator takes three times its forward, less the
    gradient of its latents. So does the discriminator, on the real and on the generated image, less the gradients of
    the pixels; and once more on the generated one, for the generator, less the gradients of its weights."""
    generator, discriminator = _forward_flops(shape, shape.latents), _forward_flops(shape, 1)
    return 3 * sum(generator) - generator[0] + 8 * sum(discriminator) - 2 * discriminator[-1]


def _forward_flops(shape: Shape, narrowest: int) -> list[int]:
    """Of each layer: its weights meet every place of its smaller side once."""
    ends = shape.layers(narrowest)
    return [2 * side**2 * KERNEL**2 * a * b for side, (a, b) in zip(SIDES[:-1], ends, strict=True)]


def _build(shape: Shape) -> nn.Module:
    from .adversarial import Adversaries

    return Adversaries(shape.layers(shape.latents), shape.layers(1), KERNEL)


def batches(images: int, batch: int) -> int:
    """Of an epoch; the last may be smaller."""
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
    )


RECIPES = (
    _recipe("paper", Shape(latents=100, channels=(512, 256, 128, 64)), _BATCH),
    _recipe("tiny", Shape(latents=100, channels=(32, 16, 8, 4)), batch_size=16),
)
