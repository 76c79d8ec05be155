"""Popular models, and decoders by their dimensions: what is shipped or computed of them equals what tracing finds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from repro import models
from repro.cli import main
from repro.console import UserError
from repro.models import popular, shipped, specification
from repro.models.decoders import FAMILIES, Dimensions
from repro.models.recipe import Text
from repro.models.specification import Fields, of_popular
from repro.paper.settings import search_space
from repro.predict import decoders, descriptions
from repro.predict.fits import EVERYTHING, fitted_constants
from repro.predict.memory import peak_memory, variant_of
from repro.predict.traces import Trace, Variant

# Family and dimensions (layers, width, heads, keys, feed-forward, vocabulary, head, sequence); none was fitted to.
TEN = [
    ("llama", True, Dimensions(3, 576, 9, 3, 1536, 49152, 64, 512)),
    ("llama", True, Dimensions(3, 960, 15, 5, 2560, 49152, 64, 256)),
    ("llama", False, Dimensions(3, 1024, 8, 8, 2816, 32000, 128, 256)),
    ("llama", False, Dimensions(4, 768, 12, 4, 2048, 128256, 64, 512)),
    ("qwen3", True, Dimensions(3, 1024, 16, 8, 3072, 151936, 128, 256)),
    ("qwen3", True, Dimensions(3, 640, 10, 2, 1920, 65536, 64, 512)),
    ("olmo2", False, Dimensions(3, 1024, 16, 16, 4096, 100352, 64, 256)),
    ("olmo2", False, Dimensions(4, 512, 8, 8, 1408, 50304, 64, 512)),
    ("gpt2", True, Dimensions(3, 768, 12, 12, 3072, 50257, 64, 1024)),
    ("gpt2", True, Dimensions(4, 1024, 16, 16, 4096, 50304, 64, 512)),
]


def traced(family: str, tied: bool, asked: Dimensions, variant: Variant) -> Trace:
    """The trace of a decoder with these dimensions, made here."""
    from repro.models.configured import quietly
    from repro.predict.trace.trace import trace

    own = shipped.description(of_popular(FAMILIES[family].like, Fields()))
    assert own is not None
    assert own.paper.config is not None
    config = own.paper.config | FAMILIES[family].config(asked) | {"tie_word_embeddings": tied, "pad_token_id": None}
    paper = replace(own.paper, config=config, text=Text(asked.sequence, asked.vocabulary))
    with quietly():
        return trace(replace(own, paper=paper).recipe("paper"), variant)


def total(trace: Trace, unit: str) -> float:
    """The sum of a unit of 8 examples, over phases and kinds of operators."""
    keys = {key for part in trace.parts for key in part.costs if key.endswith(f"/{unit}")}
    return sum(trace.total(key).at(8) for key in keys)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "tied", "asked"), TEN, ids=[f"{each[0]} {each[2].width}" for each in TEN])
def test_a_computed_decoder_equals_its_trace(family: str, tied: bool, asked: Dimensions) -> None:
    variant: Variant = "half" if asked.layers == 4 else "custom"
    there, computed = traced(family, tied, asked, variant), decoders.Decoder(family, tied, asked).trace("", variant)
    assert computed.parameters == pytest.approx(there.parameters, abs=0.5)
    assert total(computed, "flops") == pytest.approx(total(there, "flops"), rel=0.01)
    assert total(computed, "bytes") == pytest.approx(total(there, "bytes"), rel=0.02)
    recipe, allowance = shipped.recipe("gpt2"), fitted_constants()[EVERYTHING].allowance
    for settings in search_space(2):
        if variant_of(settings) == variant:
            peaks = [peak_memory(recipe, each, settings, 2, 8, allowance).peak for each in (computed, there)]
            assert peaks[0] == pytest.approx(peaks[1], rel=0.02), settings


@pytest.mark.parametrize("id", popular.listed())
def test_a_popular_model_has_the_weights_of_its_configuration(id: str) -> None:
    recipe, counted = shipped.recipe(id), _counted(id)
    decoder = decoders.decoder_of(shipped.description(of_popular(id, Fields())))
    assert (decoder is not None) == (of_popular(id, Fields()).config["model_type"] in FAMILIES)
    if of_popular(id, Fields()).config.get("image_size", 224) == 224:  # DINOv2 has positions of larger images
        assert recipe.parameters == counted
    assert decoder is None or (decoder.parameters, decoder.flops) == (counted, recipe.flops_per_example)


def _counted(id: str) -> int:
    rows = (popular.FOLDER / "models.csv").read_text().splitlines()
    return int(next(row for row in rows if row.startswith(f"{id},")).rpartition(",")[2])


@pytest.mark.parametrize("id", popular.listed())
def test_a_popular_model_is_predicted_without_torch(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "_asked", None)  # what starts a process that has torch
    assert main(["predict", "--models", id, "--gpu", "H100", "--format", "json"]) == 0


@pytest.mark.nightly
@pytest.mark.parametrize("id", ["smollm2-135m", "gpt2", "olmo-2-1b", "qwen3-0.6b"])
def test_a_popular_decoder_equals_the_trace_of_its_whole_depth(id: str) -> None:
    from repro.models.configured import quietly
    from repro.predict.trace.trace import trace

    own = shipped.description(of_popular(id, Fields()))
    decoder = decoders.decoder_of(own)
    assert own is not None
    assert decoder is not None
    with quietly():
        there = trace(own.recipe("paper"), "custom")
    assert total(decoder.trace("", "custom"), "bytes") == pytest.approx(total(there, "bytes"), rel=0.02)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("decoder:layers=2,width=64", "heads, kv, feedforward, vocabulary missing"),
        ("decoder:layers=2,width=64,heads=2,kv=2,feedforward=64,vocabulary=100,depth=2", "depth unknown"),
        ("decoder:layers=2,width=65,heads=2,kv=2,feedforward=64,vocabulary=100", "width a multiple of heads"),
        ("decoder:layers=x,width=64,heads=2,kv=2,feedforward=64,vocabulary=100", "layers"),
        ("decoder:{tmp_path}/jamba.json", "install repro to trace it"),
        ("decoder:{tmp_path}/none.json", "cannot be read"),
        ("gpt2@batch=x", "batch"),
    ],
)
def test_a_decoder_that_cannot_be_computed_is_refused_in_one_line(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "jamba.json").write_text(json.dumps({"model_type": "jamba", "hidden_size": 64}))
    with pytest.raises(UserError, match=told):
        specification.specification(text.format(tmp_path=tmp_path))


def test_a_popular_model_takes_another_length_and_batch() -> None:
    asked = specification.specification("GPT2@tokens=1B,batch=64")
    found = descriptions.describe(asked)
    assert (found.paper.batch_size, found.paper.training_steps) == (64, 15259)
    assert models.typed("GPT2") == "GPT2"


def test_more_positions_than_a_model_has_are_refused() -> None:
    with pytest.raises(UserError, match="sequence=4096: the model has 1024 positions"):
        descriptions.describe(specification.specification("gpt2@sequence=4096"))


def test_another_sequence_of_a_popular_decoder_is_computed() -> None:
    found = descriptions.describe(specification.specification("smollm2-135m@sequence=4096"))
    assert found.paper.text == Text(4096, 49152)
