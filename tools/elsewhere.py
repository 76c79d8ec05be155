"""Trace the models of expected/elsewhere.csv on the installed stack: what others, or we, measured besides the recipes.

    python -m tools.elsewhere

The models are made of the same parts as the recipes: timm's ViT and ConvNeXt in fp16 under autocast; llm-foundry's
decoders, which have as many weights as GPT-2's; NVIDIA's BERT-large in half precision throughout; a GPT-NeoX decoder;
and Llamas. The authors' Pythia-1.4B is a recipe. Takes two minutes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from repro.models.recipe import Recipe
from repro.predict import traces
from repro.predict.published import FOLDER, Published, published
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
        if each.who == "academic-pretraining":
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
        case "timm":
            return replace(row.recipe, build=lambda kernels, _: _timm(row.model, kernels))
        case "llm-foundry":
            return replace(row.recipe, build=lambda *_: _decoder(row.recipe, row.model))
        case "NVIDIA":
            return replace(row.recipe, build=lambda *_: _bert(row.recipe))
        case "gpt-neox":
            return replace(row.recipe, build=lambda *_: _neox(row.recipe))
        case "repro" | "torchtitan":
            return replace(row.recipe, build=lambda *_: _llama(row.recipe, row.model))
        case "academic-pretraining":
            return row.recipe


def _decoder(recipe: Recipe, name: str) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    from repro.models.objective import LanguageModelling
    from repro.models.pythia import custom_attention
    from repro.models.recipe import Text

    assert isinstance(recipe.inputs, Text)
    layers, width, heads = _DECODERS[name]
    config = GPT2Config(
        vocab_size=recipe.inputs.vocabulary,
        n_positions=recipe.inputs.sequence,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        attn_implementation=custom_attention("sdpa"),
    )
    return LanguageModelling(GPT2LMHeadModel(config))


def _bert(recipe: Recipe) -> nn.Module:
    """Return BERT-large with both pre-training heads: PyTorch/LanguageModeling/BERT/bert_config.json, the vocabulary
    padded to a multiple of 8 as run_pretraining.py does. Attention is eager."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    from repro.models.recipe import Text

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


def _neox(recipe: Recipe) -> nn.Module:
    """Return the model of configs/large.yml at gpt-neox 35a3f251: rotary embeddings of whole heads, layers one after
    the other. Attention is eager, as its fused softmax is off."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    from repro.models.objective import LanguageModelling
    from repro.models.recipe import Text

    assert isinstance(recipe.inputs, Text)
    config = GPTNeoXConfig(
        vocab_size=recipe.inputs.vocabulary,
        hidden_size=1536,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4 * 1536,
        max_position_embeddings=recipe.inputs.sequence,
        rotary_pct=1.0,
        use_parallel_residual=False,
        use_cache=False,
        attn_implementation="eager",
    )
    return LanguageModelling(GPTNeoXForCausalLM(config))


def _llama(recipe: Recipe, name: str) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    from repro.models.objective import LanguageModelling
    from repro.models.pythia import custom_attention
    from repro.models.recipe import Text

    assert isinstance(recipe.inputs, Text)
    layers, width, feed_forward, heads, key_heads = _LLAMAS[name]
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        vocab_size=recipe.inputs.vocabulary,
        max_position_embeddings=recipe.inputs.sequence,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation=custom_attention("sdpa"),
    )
    return LanguageModelling(LlamaForCausalLM(config))


def _timm(name: str, custom_kernels: bool) -> nn.Module:
    import timm
    from timm.layers import set_fused_attn

    from repro.models.objective import ImageClassification

    set_fused_attn(custom_kernels)
    return ImageClassification(timm.create_model(name))


if __name__ == "__main__":
    print(traces.save(traced(published()), FOLDER))
