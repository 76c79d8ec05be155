"""What others measured and published, beside what is predicted for it: nothing of it was fitted to.

The models are not the recipes, but are made of the same parts: timm's ViT and ConvNeXt in fp16 under autocast;
llm-foundry's decoders, which have as many weights as GPT-2's, sharded as by FSDP's stage 3; NVIDIA's BERT-large in half
precision throughout; a GPT-NeoX decoder under ZeRO-1; and Pythia-1.4B, as the authors ran it. Their traces are shipped
(see repro/predict/published.py); --trace makes them again on the installed stack.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from statistics import median
from typing import TYPE_CHECKING, Any

from repro.formats import FORMATS, render
from repro.models.recipe import Recipe
from repro.predict import calibration, traces
from repro.predict.calibration import EVERYTHING, Calibration
from repro.predict.published import FOLDER, HeldOut, Published, held_out, largest, published
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


def row(each: HeldOut, fitted: Calibration) -> dict[str, Any]:
    what = each.published
    return {
        "who": what.who,
        "model": what.model,
        "gpu": what.gpu,
        "gpus": what.gpus,
        "what": what.what,
        "settings": what.settings,
        "compiled": what.compiled,
        "mbs": what.micro_batch,
        "largest predicted": largest(what, fitted),
        "clock": what.clock,
        "measured (ms)": round(1e3 * what.seconds, 1),
        "predicted (ms)": round(1e3 * each.predicted.value, 1),
        "predicted/measured": round(each.ratio, 3),
        "inside the interval": each.inside,
    }


def rows() -> list[dict[str, Any]]:
    fitted = calibration.calibrations()[EVERYTHING]
    return [row(each, fitted) for each in held_out(fitted)]


def summary(found: Sequence[HeldOut]) -> list[dict[str, Any]]:
    """Return a row for each source, kind of measurement and GPU: the table of docs/prediction.md."""

    def source(each: HeldOut) -> tuple[str, str, str]:
        return each.published.who, each.published.what, each.published.gpu

    lines = []
    # In the file's order, in which a source's rows of one kind are adjacent.
    for (who, what, gpu), members in groupby(found, key=source):
        group = list(members)
        ratios = [each.ratio for each in group]
        lines.append(
            {
                "who": who,
                "what": "training steps" if what == "step" else "forward passes",
                "GPU": gpu,
                "rows": len(group),
                "predicted over measured": " to ".join(dict.fromkeys(f"{f(ratios):.2f}" for f in (min, max))),
                "median error": f"{100 * median(abs(ratio - 1) for ratio in ratios):.0f} %",
                "inside the interval": sum(each.inside for each in group),
            }
        )
    return lines


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


def _timm(name: str, custom_kernels: bool) -> nn.Module:
    import timm
    from timm.layers import set_fused_attn

    from repro.models.objective import ImageClassification

    set_fused_attn(custom_kernels)
    return ImageClassification(timm.create_model(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", choices=FORMATS, default="text")
    parser.add_argument("--summary", action="store_true", help="a row for each source and GPU")
    parser.add_argument("--trace", action="store_true", help="make the traces again; takes two minutes")
    given = parser.parse_args()
    if given.trace:
        print(traces.save(traced(published()), FOLDER), file=sys.stderr)
    print(render(summary(held_out(calibration.calibrations()[EVERYTHING])) if given.summary else rows(), given.format))


if __name__ == "__main__":
    main()
