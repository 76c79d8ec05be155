"""The two networks of a GAN, and a forward that returns the sum of their losses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional


class GanLayer(nn.Module):
    """A convolution, transposed where it goes `up`; then, but at the network's `end`, batch normalisation and a leaky
    ReLU. All weights are its own, none a child's: whatever shards or gathers a layer's weights finds them here."""

    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, up: bool, alone: bool, end: bool) -> None:
        """`alone`: its smaller side is a single place, which the kernel covers; else the sides are one to two."""
        super().__init__()
        self.up, self.end = up, end
        self.stride, self.padding = (1, 0) if alone else (2, 1)
        ends = (inputs, outputs) if up else (outputs, inputs)
        self.weight = nn.Parameter(torch.randn(*ends, kernel, kernel) * 0.02)
        if not end:
            self.scale, self.shift = nn.Parameter(torch.ones(outputs)), nn.Parameter(torch.zeros(outputs))
            self.register_buffer("mean", torch.zeros(outputs))
            self.register_buffer("variance", torch.ones(outputs))

    def forward(self, images: torch.Tensor, frozen: bool = False) -> torch.Tensor:
        """Images (examples, inputs, side, side); with `frozen` the layer's weights get no gradient."""

        def weight(parameter: torch.Tensor) -> torch.Tensor:
            return parameter.detach() if frozen else parameter

        convolution = functional.conv_transpose2d if self.up else functional.conv2d
        images = convolution(images, weight(self.weight), stride=self.stride, padding=self.padding)
        if self.end:
            return images
        images = functional.batch_norm(
            images, self.mean, self.variance, weight(self.scale), weight(self.shift), training=self.training
        )
        return functional.leaky_relu(images, 0.0 if self.up else 0.2)


class Adversaries(nn.Module):
    """A generator, and a discriminator that is its mirror."""

    def __init__(
        self, generator: Sequence[tuple[int, int]], discriminator: Sequence[tuple[int, int]], kernel: int
    ) -> None:
        """Channels on the two ends of each layer, the smaller side first, from the smallest side to the image."""
        super().__init__()
        last = len(generator) - 1
        self.generator = nn.ModuleList(
            GanLayer(narrow, wide, kernel, up=True, alone=place == 0, end=place == last)
            for place, (narrow, wide) in enumerate(generator)
        )
        self.discriminator = nn.ModuleList(
            GanLayer(wide, narrow, kernel, up=False, alone=place == 0, end=place == 0)
            for place, (narrow, wide) in reversed(list(enumerate(discriminator)))
        )

    def forward(self, pixels: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        """Pixels (examples, 3, size, size) from -1 to 1 and latents (examples, latents); returns a scalar, the mean
        loss of the discriminator and that of the generator, whose gradients do not meet."""
        generated = self._generate(latents)
        right = functional.softplus(-self._judge(pixels)) + functional.softplus(self._judge(generated.detach()))
        fooled = functional.softplus(-self._judge(generated, frozen=True))
        return right.mean() / 2 + fooled.mean()

    def _generate(self, latents: torch.Tensor) -> torch.Tensor:
        images = latents[..., None, None]
        for layer in self.generator:
            images = layer(images)
        return images.tanh()

    def _judge(self, images: torch.Tensor, frozen: bool = False) -> torch.Tensor:
        """A score an image, (examples, 1, 1, 1): the logarithm of the odds that it is real."""
        for layer in self.discriminator:
            images = layer(images, frozen)
        return images
