"""The two networks of a GAN in one module, whose forward pass returns the sum of their losses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional


class GanLayer(nn.Module):
    """A convolution (transposed if `up`), then batch normalisation and a leaky ReLU, except in the network's `end`
    layer. All weights are its own, not a child module's: code that shards or gathers a layer's weights finds them."""

    mean: torch.Tensor
    variance: torch.Tensor

    def __init__(self, inputs: int, outputs: int, kernel: int, up: bool, alone: bool, end: bool) -> None:
        """With `alone`, the smaller side is one pixel, and the kernel covers the larger; else the sides are 1:2."""
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
        """Map images (examples, inputs, side, side). With `frozen`, the layer's weights get no gradient."""

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
    """A generator and a discriminator with mirrored layers."""

    def __init__(
        self, generator: Sequence[tuple[int, int]], discriminator: Sequence[tuple[int, int]], kernel: int
    ) -> None:
        """Take each layer's (channels at its smaller side, at its larger side), from the smallest to the image."""
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
        """Return the mean loss of the discriminator plus that of the generator, a scalar. Pixels are (examples, 3,
        size, size) from -1 to 1, latents (examples, latents). Each loss has gradients for its own network only."""
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
        """Return one score per image, (examples, 1, 1, 1): the log-odds that the image is real."""
        for layer in self.discriminator:
            images = layer(images, frozen)
        return images
