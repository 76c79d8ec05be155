"""ConvNeXt-XL, -L and -B with 21,841 classes, from timm. Hyper-parameters: the paper's Table 3 and the authors' release
(apoorvkh/academic-pretraining v1.0.0).

The paper has no cell of -L, which the release trains (convnext-large-22k), nor of -B, which it does not. Its shape is
from Liu et al. (2022), *A ConvNet for the 2020s*, where all three are trained with the same hyper-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .recipe import Images, Optimizer, Recipe, Scale, Schedule

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Shape:
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    classes: int


def parameters(shape: Shape) -> int:
    """Count the weights: every convolution and linear layer has a bias; the stem, later stages and the head have a norm
    each; each block has a norm and a scale."""
    total = (4 * 4 * 3 + 1 + 2) * shape.widths[0]
    for stage, (depth, width) in enumerate(zip(shape.depths, shape.widths, strict=True)):
        if stage:
            before = shape.widths[stage - 1]
            total += 2 * before + (2 * 2 * before + 1) * width
        total += depth * (8 * width**2 + (49 + 1 + 2 + 4 + 1 + 1) * width)
    return total + 2 * shape.widths[-1] + (shape.widths[-1] + 1) * shape.classes


def flops_per_example(shape: Shape, size: int) -> int:
    """Return the FLOPs of one image, forward and backward: three times the forward pass, without the pixels' gradient,
    which is not needed. A block is a 7 x 7 depthwise convolution and two pointwise layers of 4 x width. The stem is 4 x
    4 with stride 4; each later stage starts with 2 x 2 and stride 2."""
    side = size // 4
    stem = 2 * side**2 * 4 * 4 * 3 * shape.widths[0]
    total = 2 * stem
    for stage, (depth, width) in enumerate(zip(shape.depths, shape.widths, strict=True)):
        if stage:
            side //= 2
            total += 3 * 2 * side**2 * 2 * 2 * shape.widths[stage - 1] * width
        total += 3 * depth * 2 * side**2 * (49 * width + 8 * width**2)
    return total + 3 * 2 * shape.widths[-1] * shape.classes


def _build(shape: Shape) -> nn.Module:
    from timm.models.convnext import ConvNeXt

    from .objective import ImageClassification

    return ImageClassification(
        ConvNeXt(num_classes=shape.classes, depths=shape.depths, dims=shape.widths, ls_init_value=1e-6)
    )


def _recipe(scale: Scale, shape: Shape, size: int, batch_size: int, id: str, name: str) -> Recipe:
    return Recipe(
        id=id,
        scale=scale,
        name=name,
        family="convnext",
        inputs=Images(size, shape.classes),
        batch_size=batch_size,
        training_steps=311_940,
        precision="fp32",
        optimizer=Optimizer("AdamW", 4e-3, (0.9, 0.999)),
        schedule=Schedule("cosine", warmup_steps=17_330),
        clip=None,
        layer="ConvNeXtStage",
        width=shape.widths[-1],
        parameters=parameters(shape),
        flops_per_example=flops_per_example(shape, size),
        build=lambda kernels, attention: _build(shape),
        module="timm.models.convnext",
        attends=False,
        custom_kernels=False,
    )


_TINY = Shape(depths=(1, 1, 1, 1), widths=(16, 32, 48, 64), classes=100)


def _recipes(id: str, name: str, narrowest: int) -> tuple[Recipe, Recipe]:
    """Return the recipe at the paper's scale and its tiny version; stages double their width."""
    widths = tuple(narrowest << stage for stage in range(4))
    shape = Shape((3, 3, 27, 3), widths, classes=21_841)
    return _recipe("paper", shape, 224, 4096, id, name), _recipe("tiny", _TINY, 64, 16, id, name)


RECIPES = (
    *_recipes("convnext", "ConvNeXt", 256),
    *_recipes("convnext-l", "ConvNeXt-L", 192),
    *_recipes("convnext-b", "ConvNeXt-B", 128),
)
