"""Trace the models of expected/elsewhere.csv on the installed stack: what others, or we, measured besides the recipes.

    python -m tools.elsewhere

The models are made of the same parts as the recipes: timm's ViT and ConvNeXt in fp16 under autocast; llm-foundry's
decoders, which have as many weights as GPT-2's; NVIDIA's BERT-large in half precision throughout; a GPT-NeoX decoder;
and Llamas. The authors' Pythia-1.4B is a recipe; GPT-2 124M and nanochat's are computed. Takes two minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from repro.models.recipe import Recipe, Text
from repro.predict import traces
from repro.predict.published import COMPUTED, FOLDER, Published, published
from repro.predict.traces import Trace

if TYPE_CHECKING:
    from torch import Tensor, nn

# Layers, width and heads: llm-foundry's scripts/train/yamls, and their README's 2,048 tokens.
_DECODERS = {
    "mpt-125m": (12, 768, 12),
    "mpt-350m": (24, 1024, 16),
    "mpt-760m": (24, 1536, 12),
    "mpt-1b": (24, 2048, 16),
    "mpt-3b": (32, 2560, 20),
    "mpt-7b": (32, 4096, 32),
}
# Layers, width, width of the feed-forward part, heads and their keys' heads: the llama.json of docs/own-model.md, as in
# results/llama-h100; torchtitan's torchtitan/models/llama3.
_LLAMAS = {"llama-1.1b": (22, 2048, 5632, 32, 4), "llama3-8b": (32, 4096, 14336, 32, 8)}


def traced(rows: Iterable[Published]) -> Iterator[Trace]:
    """Yield a trace of each model in each variant of its rows, made here; the recipes have Pythia-1.4B's."""
    from repro.predict.trace.trace import trace, variants

    made = set()
    for each in rows:
        if each.who == "academic-pretraining" or each.model in COMPUTED:
            continue
        recipe = buildable(each)
        # ConvNeXt runs the same kernels with free lunch and without.
        variant = each.variant if each.variant in variants(recipe) else "custom"
        if (each.model, variant) not in made:
            made.add((each.model, variant))
            print(f"{each.model} {variant}", file=sys.stderr)
            yield trace(recipe, variant)


def buildable(row: Published) -> Recipe:
    """Return a recipe that builds the measured model."""
    match row.who:
        case "academic-pretraining":
            return row.recipe
        case "timm":
            return replace(row.recipe, build=lambda kernels, _: _timm(row.model, kernels))
        case "NVIDIA":
            return replace(row.recipe, build=lambda *_: _bert(row.recipe))
        case _:
            return replace(row.recipe, build=lambda *_: _decoder(row))


def _bert(recipe: Recipe) -> nn.Module:
    """Return BERT-large with both pre-training heads: PyTorch/LanguageModeling/BERT/bert_config.json, the vocabulary
    padded to a multiple of 8 as run_pretraining.py does. Attention is eager."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    class Pretraining(torch.nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
            """Return the loss of token ids and labels, both (examples, sequence). An example is two sentences."""
            follows = torch.zeros(len(input_ids), dtype=torch.long)
            return self.model(input_ids=input_ids, labels=labels, next_sentence_label=follows).loss

    assert isinstance(recipe.inputs, Text)
    config = BertConfig(
        vocab_size=recipe.inputs.vocabulary,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=512,
        attn_implementation="eager",
    )
    return Pretraining(BertForPreTraining(config))


def _decoder(row: Published) -> nn.Module:
    from repro.models.configured import transformers_model

    # gpt-neox's fused softmax is off.
    return transformers_model(_config(row), "eager" if row.who == "gpt-neox" else "causal_sdpa")


def _config(row: Published) -> dict[str, Any]:
    """Return transformers' configuration of a decoder. gpt-neox's is configs/large.yml at 35a3f251: rotary embeddings
    of whole heads, layers one after the other."""
    inputs = row.recipe.inputs
    assert isinstance(inputs, Text)
    if row.who == "llm-foundry":
        layers, width, heads = _DECODERS[row.model]
        return {
            "model_type": "gpt2",
            "vocab_size": inputs.vocabulary,
            "n_positions": inputs.sequence,
            "n_embd": width,
            "n_layer": layers,
            "n_head": heads,
            "activation_function": "gelu",
            **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        }
    neox = row.who == "gpt-neox"
    layers, width, feed_forward, heads, key_heads = (24, 1536, 4 * 1536, 16, 16) if neox else _LLAMAS[row.model]
    found = {
        "model_type": "gpt_neox" if neox else "llama",
        "vocab_size": inputs.vocabulary,
        "max_position_embeddings": inputs.sequence,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "intermediate_size": feed_forward,
        "num_attention_heads": heads,
        "tie_word_embeddings": False,
    }
    return found | ({"rotary_pct": 1.0, "use_parallel_residual": False} if neox else {"num_key_value_heads": key_heads})


def _timm(name: str, custom_kernels: bool) -> nn.Module:
    import timm
    from timm.layers import set_fused_attn

    from repro.models.objective import ImageClassification

    set_fused_attn(custom_kernels)
    return ImageClassification(timm.create_model(name))


if __name__ == "__main__":
    print(traces.save(traced(published()), FOLDER))
