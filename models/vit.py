"""ViT-L/16 with 21,841 classes, from timm. Hyper-parameters: the paper's Table 3 and the authors' release
(apoorvkh/academic-pretraining v1.0.0), with dropout where the authors' model, transformers' ViT, has it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from .recipe import Images, Optimizer, Recipe, Scale, Schedule
from .transformer import forward_flops, layer_parameters

if TYPE_CHECKING:
    from torch import nn

PATCH = 16


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    classes: int


def parameters(shape: Shape, size: int) -> int:
    """Count the weights: patch embedding, class token, positions, the layers, the last norm and the head."""
    embedding = (3 * PATCH**2 + 1) * shape.width + shape.width + (patches(size) + 1) * shape.width
    head = (shape.width + 1) * shape.classes
    return embedding + shape.layers * layer_parameters(shape.width) + 2 * shape.width + head


def patches(size: int) -> int:
    """Return the number of tokens of an image of `size` x `size` pixels, without the class token."""
    return (size // PATCH) ** 2


def patch_flops(size: int, width: int) -> int:
    """Return the FLOPs of the patch convolution, forward and its weights' gradient. The images need no gradient."""
    return 2 * 2 * patches(size) * 3 * PATCH**2 * width


def flops_per_example(shape: Shape, size: int) -> int:
    """Return the FLOPs of one image, forward and backward (three times the forward pass, without the pixels' gradient):
    the patches, the layers over them and one class token, and the head on that token."""
    tokens = patches(size) + 1
    head = 2 * shape.width * shape.classes
    return patch_flops(size, shape.width) + 3 * (shape.layers * forward_flops(tokens, shape.width) + head)


def _build(shape: Shape, size: int, custom_kernels: bool) -> nn.Module:
    from timm.layers import LayerNorm, set_fused_attn
    from timm.models.vision_transformer import VisionTransformer
    from torch import nn

    from .objective import ImageClassification

    set_fused_attn(custom_kernels)
    model = VisionTransformer(
        img_size=size,
        patch_size=PATCH,
        num_classes=shape.classes,
        embed_dim=shape.width,
        depth=shape.layers,
        num_heads=shape.heads,
        proj_drop_rate=0.1,
        pos_drop_rate=0.1,
        norm_layer=partial(LayerNorm, eps=1e-12),
    )
    for block in model.blocks:
        block.mlp.drop1 = nn.Identity()  # after the activation: only timm has this dropout
    return ImageClassification(model)


def _recipe(scale: Scale, shape: Shape, size: int, batch_size: int) -> Recipe:
    return Recipe(
        id="vit",
        scale=scale,
        name="ViT",
        family="vit",
        inputs=Images(size, shape.classes),
        batch_size=batch_size,
        training_steps=311_948,
        precision="fp32",
        optimizer=Optimizer("Adam", 1e-3, (0.9, 0.999)),
        schedule=Schedule("linear", warmup_steps=10_000),
        clip=1.0,
        layer="Block",
        width=shape.width,
        parameters=parameters(shape, size),
        flops_per_example=flops_per_example(shape, size),
        build=lambda kernels, attention: _build(shape, size, kernels),
        module="timm.models.vision_transformer",
    )


RECIPES = (
    _recipe("paper", Shape(layers=24, width=1024, heads=16, classes=21_841), size=224, batch_size=4096),
    _recipe("tiny", Shape(layers=2, width=64, heads=4, classes=100), size=64, batch_size=16),
)
