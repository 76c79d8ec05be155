"""RoBERTa-large as a masked language model. Shape: the roberta-large configuration; hyper-parameters: the paper's Table
3 and the authors' release (apoorvkh/academic-pretraining v1.0.0)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .recipe import Optimizer, Recipe, Scale, Schedule, Text
from .transformer import TextShape, forward_flops, layer_parameters

if TYPE_CHECKING:
    from torch import nn


def parameters(shape: TextShape, sequence: int) -> int:
    """Count the weights: embeddings of tokens (shared with the head), positions and one type, with a norm; the layers;
    the head's own layer, norm and bias. Positions are two more than tokens: they start after the padding id."""
    embeddings = (shape.vocabulary + sequence + 2 + 1) * shape.width + 2 * shape.width
    head = shape.width**2 + shape.width + 2 * shape.width + shape.vocabulary
    return embeddings + shape.layers * layer_parameters(shape.width) + head


def flops_per_example(shape: TextShape, sequence: int) -> int:
    """Return the FLOPs as for Pythia (see there), plus the masked-LM head's extra width x width layer."""
    head = 2 * sequence * shape.width * (shape.vocabulary + shape.width)
    return 3 * (shape.layers * forward_flops(sequence, shape.width) + head)


def _build(shape: TextShape, sequence: int) -> nn.Module:
    """Build the model with eager attention: the paper's stack has no other for RoBERTa (Appendix F)."""
    from transformers import RobertaConfig, RobertaForMaskedLM

    from .objective import LanguageModelling

    config = RobertaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=sequence + 2,  # positions start after the padding id, 1
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        attn_implementation="eager",
    )
    return LanguageModelling(RobertaForMaskedLM(config))


def _recipe(scale: Scale, shape: TextShape, sequence: int, batch_size: int) -> Recipe:
    return Recipe(
        id="roberta",
        scale=scale,
        name="RoBERTa",
        family="roberta",
        inputs=Text(sequence, shape.vocabulary),
        batch_size=batch_size,
        training_steps=500_000,
        precision="fp16",
        optimizer=Optimizer("Adam", 4e-4, (0.9, 0.98)),
        schedule=Schedule("linear", warmup_steps=30_000),
        clip=None,
        layer="RobertaLayer",
        width=shape.width,
        parameters=parameters(shape, sequence),
        flops_per_example=flops_per_example(shape, sequence),
        build=lambda kernels, attention: _build(shape, sequence),
        module="transformers.models.roberta.modeling_roberta",
        custom_kernels=False,
    )


RECIPES = (
    _recipe("paper", TextShape(layers=24, width=1024, heads=16, vocabulary=50_265), sequence=512, batch_size=8192),
    _recipe("tiny", TextShape(layers=2, width=64, heads=4, vocabulary=512), sequence=64, batch_size=16),
)
