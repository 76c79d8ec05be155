"""Pythia, 70M to 12B: GPT-NeoX decoders. Shapes and hyper-parameters: the paper's Table 3 and the authors' release
(apoorvkh/academic-pretraining v1.0.0, which takes the shapes from EleutherAI's configurations).

The release also trains Pythia-70M, 1.4B and 12B, without a cell in the paper. Learning rates: the release's
src/models/pythia.py. Shapes: EleutherAI/pythia a19eecb, models/1.4B/pythia-1.4b.yml and the like.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .recipe import Optimizer, Precision, Recipe, Scale, Schedule, Text
from .transformer import TextShape, forward_flops, layer_parameters

if TYPE_CHECKING:
    from torch import nn


_VOCABULARY = 50_304


def parameters(shape: TextShape) -> int:
    """Count the weights: embedding and output head, which share none, the layers, and the last norm."""
    return 2 * shape.vocabulary * shape.width + shape.layers * layer_parameters(shape.width) + 2 * shape.width


def flops_per_example(shape: TextShape, sequence: int) -> int:
    """Return the matrix products' FLOPs of one sequence, forward and backward (three times forward): layers, head."""
    head = 2 * sequence * shape.width * shape.vocabulary
    return 3 * (shape.layers * forward_flops(sequence, shape.width) + head)


def _build(shape: TextShape, sequence: int, custom_kernels: bool, attention: str) -> nn.Module:
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    from .objective import LanguageModelling

    config = GPTNeoXConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=sequence,
        rotary_pct=0.25,
        use_parallel_residual=True,
        use_cache=False,
        attn_implementation=custom_attention(attention) if custom_kernels else "eager",
    )
    return LanguageModelling(GPTNeoXForCausalLM(config))


def custom_attention(wanted: str) -> str:
    """Return the name of an attention that is causal by its flag, as in the authors' stack, never by a mask.

    Newer transformers first check for packed sequences. A compiled model cannot, and gets a mask, with which torch
    cannot use its flash kernel. An attention without a mask function in transformers gets no mask. transformers' own
    flash-attn path logs in each layer that it casts what the rotary embedding left in fp32: torch.compile breaks its
    graph there, and compiles anew for each layer's index, up to a limit.
    """
    try:
        from transformers import AttentionInterface, AttentionMaskInterface  # noqa: F401  # absent in older versions
        from transformers.integrations.sdpa_attention import sdpa_attention_forward
    except ImportError:
        return "flash_attention_2" if wanted == "flash" else "sdpa"
    if wanted != "flash":
        AttentionInterface.register("causal_sdpa", sdpa_attention_forward)
        return "causal_sdpa"
    from .flash_attention import flash_attention

    AttentionInterface.register("causal_dao", flash_attention())
    return "causal_dao"  # transformers would look up a name "flash..." itself


def _recipes(id: str, name: str, shape: TextShape, rate: float, precision: Precision) -> tuple[Recipe, Recipe]:
    """Return the recipe at the paper's scale and its tiny version."""

    def recipe(scale: Scale, shape: TextShape, inputs: Text, batch_size: int) -> Recipe:
        return Recipe(
            id=id,
            scale=scale,
            name=name,
            family="pythia",
            inputs=inputs,
            batch_size=batch_size,
            training_steps=143_000,
            precision=precision,
            optimizer=Optimizer("Adam", rate, (0.9, 0.95)),
            schedule=Schedule("cosine", warmup_steps=1_430, floor=0.1),
            clip=1.0,
            layer="GPTNeoXLayer",
            width=shape.width,
            parameters=parameters(shape),
            flops_per_example=flops_per_example(shape, inputs.sequence),
            build=lambda kernels, attention: _build(shape, inputs.sequence, kernels, attention),
            module="transformers.models.gpt_neox.modeling_gpt_neox",
            flash_attention=True,
            head_size=shape.width // shape.heads,
            keeps_cache=True,
        )

    tiny = TextShape(layers=2, width=64, heads=4, vocabulary=512)
    return (
        recipe("paper", shape, Text(2049, _VOCABULARY), batch_size=1024),
        recipe("tiny", tiny, Text(65, tiny.vocabulary), batch_size=16),
    )


RECIPES = (
    *_recipes("pythia-160m", "Pythia-160M", TextShape(12, 768, 12, _VOCABULARY), 6e-4, "fp16"),
    *_recipes("pythia-410m", "Pythia-410M", TextShape(24, 1024, 16, _VOCABULARY), 3e-4, "fp16"),
    *_recipes("pythia-1b", "Pythia-1B", TextShape(16, 2048, 8, _VOCABULARY), 3e-4, "bf16"),
    *_recipes("pythia-2.8b", "Pythia-2.8B", TextShape(32, 2560, 32, _VOCABULARY), 1.6e-4, "fp16"),
    *_recipes("pythia-6.9b", "Pythia-6.9B", TextShape(32, 4096, 32, vocabulary=50_432), 1.2e-4, "fp16"),
    # The paper has no cell of these.
    *_recipes("pythia-1.4b", "Pythia-1.4B", TextShape(24, 2048, 16, _VOCABULARY), 2e-4, "fp16"),
    *_recipes("pythia-70m", "Pythia-70M", TextShape(6, 512, 8, _VOCABULARY), 1e-3, "fp16"),
    *_recipes("pythia-12b", "Pythia-12B", TextShape(36, 5120, 40, vocabulary=50_688), 1.2e-4, "fp16"),
)
