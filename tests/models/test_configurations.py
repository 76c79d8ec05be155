"""Real configurations (tests/configs/SOURCES.csv, models/configurations/models.csv): a model and its trace have the
weights of the class that is named, or it is refused by its name; FLOPs are those counted by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from repro.console import UserError
from repro.models import popular, specification
from repro.models.custom import CustomModel
from repro.models.specification import Fields

FOLDER = Path(__file__).parents[1] / "configs"
LISTS = (FOLDER / "SOURCES.csv", popular.FOLDER / "models.csv")
COUNTED = {row["file"]: int(row["counted"]) for list in LISTS for row in csv.DictReader(list.open())}
FILES = {file.name: file for list in LISTS for file in list.parent.glob("*.json")}
REFUSED = {
    "clip-vit-base-patch32.json": "CLIPModel reads images together with text",
    "whisper-small.json": "WhisperForConditionalGeneration reads input_features",
}
SOON = {*REFUSED, "lfm2-350m.json"}  # large, and quickly done
TOKENS = 16


def described(config: Path | dict[str, Any], folder: Path = FOLDER, **given: Any) -> CustomModel:
    """What the process that builds the model finds out about it, here in this process."""
    from repro.machine.stack import load
    from repro.models.configured import head
    from repro.predict.trace.custom import describe

    load()
    if isinstance(config, dict):
        (folder / "config.json").write_text(json.dumps(config))
        config = folder / "config.json"
    asked = specification.specification(f"hf:{config}", Fields(batch_size=8, training_steps=10, **given))
    if given or head(asked.config, asked.text).model.main_input_name == "pixel_values":
        return describe(asked)[0]
    return described(config, sequence=TOKENS)


def marks(file: str) -> list[pytest.MarkDecorator]:
    """At night those of more weights than t5-small, among them both mambas, whose scans take half a minute."""
    large = COUNTED[file] > 7e7 and file not in SOON
    return [pytest.mark.slow, *([pytest.mark.nightly] if large else [])]


@pytest.mark.parametrize("file", [pytest.param(file, marks=marks(file)) for file in COUNTED])
def test_a_configuration_has_the_weights_of_its_class_or_is_refused(file: str) -> None:
    from repro.predict.trace.trace import trace

    if file in REFUSED:
        with pytest.raises(UserError, match=REFUSED[file]):
            described(FILES[file])
        return
    found = described(FILES[file])
    named = json.loads(FILES[file].read_text())["architectures"][0]
    assert (found.paper.parameters, found.paper.built.split()[0]) == (COUNTED[file], named)
    traced = trace(found.recipe("paper"), "custom")
    assert traced.parameters + traced.total("frozen").fixed == COUNTED[file]


def test_the_configurations_are_those_of_the_list() -> None:
    assert FILES.keys() == COUNTED.keys()
    assert not any("id2label" in file.read_text() for file in FILES.values())


LAYERS = 3  # of models whose layers are alike: a trace takes as long as there are many


def _llama(tokens: int) -> float:
    width, feed, layers, keys, words = 2048, 8192, LAYERS, 512, 128_256
    layer = 2 * width**2 + 2 * width * keys + 3 * width * feed
    return 6 * tokens * (layers * layer + width * words) + 3 * layers * 4 * tokens**2 * width


def _t5(tokens: int) -> float:
    """An encoder and a decoder, which attends twice, of as many tokens each."""
    width, inner, feed, layers, words = 512, 512, 2048, LAYERS, 32_128
    attention, dense = 4 * width * inner, 2 * width * feed
    return 6 * tokens * (layers * (3 * attention + 2 * dense) + width * words) + 3 * 3 * layers * 4 * tokens**2 * inner


def _qwen3_moe(tokens: int) -> float:
    """Of 128 experts each token takes 8."""
    width, inner, keys, feed, layers, words = 2048, 4096, 512, 768, LAYERS, 151_936
    layer = 2 * width * inner + 2 * width * keys + 128 * width + 8 * 3 * width * feed
    return 6 * tokens * (layers * layer + width * words) + 3 * layers * 4 * tokens**2 * inner


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "by_hand"),
    [
        pytest.param("llama-3.2-1b", _llama, marks=pytest.mark.nightly),
        ("t5-small", _t5),
        ("qwen3-30b-a3b", _qwen3_moe),
    ],
)
def test_flops_are_those_counted_by_hand(file: str, by_hand: Any, tmp_path: Path) -> None:
    from repro.predict.trace.trace import trace

    small = dict.fromkeys(("num_hidden_layers", "num_layers", "num_decoder_layers"), LAYERS)
    config = json.loads(FILES[f"{file}.json"].read_text())
    config |= {key: small[key] for key in small.keys() & config.keys()}
    found = described(config, tmp_path, sequence=256)
    assert found.paper.flops_per_example == pytest.approx(by_hand(256), rel=0.02)
    traced = trace(found.recipe("paper"), "naive")
    keys = {key for part in traced.parts for key in part.costs if key.endswith("/flops")}
    assert sum(traced.total(key).per_example for key in keys) == pytest.approx(by_hand(256), rel=0.02)


SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 500,
    "max_position_embeddings": 64,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "built", "layers"),
    [
        (  # the hub's own code has another name for the class
            {"model_type": "mpt", "architectures": ["MPTForCausalLM"], "d_model": 32, "n_heads": 2, "n_layers": 2},
            "MptForCausalLM in place of MPTForCausalLM",
            "MptBlock",
        ),
        (
            SMALL | {"model_type": "bert", "architectures": ["BertForTokenClassification"]},
            "BertForTokenClassification (the mean of its outputs stands in for a loss)",
            "BertLayer",
        ),
        (  # a list of one layer is a list
            SMALL | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1},
            "LlamaForCausalLM",
            "LlamaDecoderLayer",
        ),
        (  # the configuration of the text stands inside
            {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForCausalLM"], "text_config": SMALL | {"head_dim": 16}},
            "Qwen3_5ForCausalLM",
            "Qwen3_5DecoderLayer",
        ),
        ({"model_type": "t5", "d_model": 32, "d_kv": 16, "num_heads": 2}, "T5ForConditionalGeneration", "T5Block"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_the_class_that_is_built_is_named(tmp_path: Path, config: dict[str, Any], built: str, layers: str) -> None:
    found = described(config, tmp_path, sequence=TOKENS)
    assert (found.paper.built, found.paper.layer) == (built, layers)


@pytest.mark.slow
def test_layers_that_are_one_module_are_counted_once_and_computed_each_time(tmp_path: Path) -> None:
    from repro.predict.trace.trace import trace

    shared = SMALL | {"model_type": "albert", "architectures": ["AlbertForMaskedLM"], "embedding_size": 16}
    few, more = (described(shared | {"num_hidden_layers": layers}, tmp_path, sequence=TOKENS) for layers in (2, 6))
    assert few.paper.parameters == more.paper.parameters
    layer = 6 * TOKENS * (4 * 32**2 + 2 * 32 * 64) + 3 * 4 * TOKENS**2 * 32
    assert more.paper.flops_per_example - few.paper.flops_per_example == 4 * layer
    traced = trace(more.recipe("paper"), "custom")
    assert sum(part.count for part in traced.layers) == 6
    assert traced.parameters == more.paper.parameters


@pytest.mark.slow
def test_a_trace_without_some_weights_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from repro.predict.trace import trace as tracing
    from repro.predict.trace.record import record

    recipe = described(SMALL | {"model_type": "bert"}, tmp_path, sequence=TOKENS).recipe("paper")

    def without(*given: Any, **named: Any) -> Any:
        recording = record(*given, **named)
        recording.units[0]["parameters"] -= 32
        return recording

    monkeypatch.setattr(tracing, "record", without)
    with pytest.raises(UserError, match=f"its trace has .* weights, its model {recipe.parameters:,}"):
        tracing.trace(recipe, "custom")


def test_layers_are_those_of_the_largest_list_or_else_repeat() -> None:
    from torch import nn

    from repro.models.configured import layer

    class Block(nn.Sequential): ...

    class Stage(nn.Module):
        def __init__(self, first: nn.Module, second: nn.Module) -> None:
            super().__init__()
            self.first, self.second = first, second

    def block(width: int) -> nn.Module:
        return Block(nn.Linear(8, width), nn.Linear(width, 8))

    embedding, head = nn.Embedding(100, 8), nn.Linear(8, 100)
    assert layer(nn.ModuleDict({"a": embedding, "layers": nn.ModuleList([block(800)]), "b": head})) == "Block"
    stages = {"first": Stage(block(8), block(8)), "second": Stage(block(16), block(32)), "head": head}
    assert layer(nn.ModuleDict(stages | {"a": embedding})) == "Stage"
    assert layer(
        nn.ModuleDict({"stem": nn.Sequential(head), "all": nn.Sequential(Stage(head, embedding), Block(head))})
    ) == ("Block,Stage")


@pytest.mark.slow
def test_short_sequences_tell_what_a_long_one_costs_token_by_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from repro.predict.trace import custom
    from repro.predict.trace import trace as tracing

    config = SMALL | {"model_type": "jamba", "mamba_d_state": 4, "num_experts": 2, "num_key_value_heads": 2}
    config |= {"num_hidden_layers": 3, "attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False}
    told = described(config, tmp_path, sequence=40)
    recipe = told.recipe("paper")
    model = tracing._meta(recipe, "custom")
    assert tracing.is_sequential(recipe, model)
    short = tracing.trace(recipe, "custom")
    for module in (custom, tracing):
        monkeypatch.setattr(module, "is_sequential", lambda recipe, model: False)
    assert described(config, tmp_path, sequence=40).paper.flops_per_example == told.paper.flops_per_example
    whole = tracing.trace(recipe, "custom")
    for key in {key for part in whole.parts for key in part.costs} - {"head", "body"}:
        assert short.total(key).at(8) == pytest.approx(whole.total(key).at(8), rel=0.01), key
