"""Models of one's own: from a transformers configuration, a timm name, a TOML file or a Python file."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from repro import models
from repro.console import UserError
from repro.export.configurations import training_arguments
from repro.models import custom, specification
from repro.models.recipe import Images, Text
from repro.models.specification import Fields
from repro.predict.descriptions import describe
from repro.record import Trial
from repro.run import estimate
from repro.run.results import RECIPES
from tests.export.test_export import training
from tests.support.command_line import answer, process, refusal, repro, trial_lines

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 256,
    "torch_dtype": "bfloat16",
}
PARTS = """
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.second(self.first(x).relu())
"""
OWN = """
from torch import nn

from parts import Block
from repro import Recipe, Text


class Model(nn.Module):
    def __init__(self, layers, width):
        super().__init__()
        self.embedding, self.head = nn.Embedding(500, width), nn.Linear(width, 500)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def recipe(scale="paper"):
    layers, width = (6, 256) if scale == "paper" else (2, 32)
    return Recipe(
        name="ViT",
        inputs=Text(64, 500),
        batch_size=32,
        training_steps=100,
        build=lambda custom_kernels, attention: Model(layers, width),
    )


vector = Recipe(
    name="Vector",
    inputs=Text(8, 10),
    batch_size=4,
    training_steps=10,
    layer="Linear",
    build=lambda custom_kernels, attention: Vector(),
)


class Vector(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, input_ids, labels):
        return self.layers(self.embedding(input_ids)).sum(-1)
"""
NUMBERS = "@batch=64,steps=1000"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with models, and the cache of what was found out about them."""
    place = tmp_path_factory.mktemp("own")
    (place / "llama.json").write_text(json.dumps(LLAMA))
    (place / "parts.py").write_text(PARTS)
    (place / "own.py").write_text(OWN)
    (place / "unreached.py").write_text(UNREACHED)
    (place / "empty.py").write_text("x = 1\n")
    (place / "my.toml").write_text('model = "hf:llama.json"\nname = "My Llama"\nbatch_size = 64\ntokens = "16.384M"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(place / "cache"))
        patch.setattr(custom, "_REGISTERED", {})
        yield place


def described(text: str, **given: Any) -> custom.CustomModel:
    """What the process that builds the model finds out about it, here in this process, with its tiny version."""
    from repro.predict.trace.custom import describe, with_tiny

    return with_tiny(describe(specification.specification(text, Fields(**given)))[0])


KEYS = "; the keys are tokens, images, epochs, dataset, steps, batch, sequence, image, precision, optimizer\n"
REFUSED = {
    "": " needs its batch size, batch=N, and its length, tokens=20B, images=100M, steps=N, or epochs=N with dataset=N, "
    f"as in hf:llama.json@tokens=20B,batch=256{KEYS}",
    "@": f" needs its batch size, batch=N, and its length, .*{KEYS}",
    "@tokens=20B": f" needs its batch size, batch=N, as in hf:llama.json@tokens=20B,batch=256{KEYS}",
    "@batch=8": f" needs its length, .*{KEYS}",
    "@batch=8,epochs=3": f" needs the size of an epoch, dataset=N, as in .*{KEYS}",
    "@batch=8,steps=9,tokens=1B": ": tokens and steps exclude each other: each says how long the training is\n",
    "@batch=8,tokens=5x": ": tokens 5x: expected a number such as 90, 1.28M or 20B\n",
    "@batch=0,steps=9": ": batch 0: expected a whole number from 1 to 1,000,000,000\n",
    "@batch": ": batch : expected a whole number from 1 to 1,000,000,000\n",
    "@batch=8,batch=9": ": batch is given twice\n",
    "@batch=8,batches=9": f": unknown key 'batches' behind the @{KEYS}",
    "@token=1B,batch=8": f": unknown key 'token' behind the @{KEYS}",
    "@batch=8,steps=9,precision=fp8": r", \$.precision: found 'fp8', expected one of fp16, bf16, fp32\n",
    "@batch=8,steps=9,optimizer=SGD": r", \$.optimizer: found 'SGD', expected one of Adam, AdamW\n",
}


@pytest.mark.parametrize("numbers", REFUSED)
def test_wrong_numbers_are_refused_in_one_line(folder: Path, numbers: str) -> None:
    llama = f"hf:{folder / 'llama.json'}"
    assert re.fullmatch(f"repro: {llama}{REFUSED[numbers]}", refusal("predict", "--models", f"{llama}{numbers}"))


def test_the_papers_models_take_no_numbers() -> None:
    for words in (("predict", "--models", "mamba,vit@batch=8"), ("cost", "vit@batch=8")):
        assert refusal(*words).startswith("repro: vit@batch=8: expected a model of your own before the @: hf:CONFIG")


@pytest.mark.parametrize("command", ["run", "predict", "cost", "export", "survey", "compare", "slurm"])
def test_an_old_option_names_the_word_to_write(command: str) -> None:
    front = {"slurm": ["--gpus-per-node", "1", "--time", "4h", "--", "run"], "cost": ["hf:a.json"]}.get(command, [])
    model = "hf:a.json" if command == "cost" else "hf:llama.json"
    old = {"tokens": "20B", "images": "100M", "epochs": "90", "dataset-size": "1M", "training-steps": "9"}
    old |= {"batch-size": "8", "sequence": "64", "image-size": "32", "precision": "bf16", "optimizer": "Adam"}
    now = {"dataset-size": "dataset", "training-steps": "steps", "batch-size": "batch", "image-size": "image"}
    for option, value in old.items():
        assert refusal(command, *front, f"--{option}", value) == (
            f"repro: --{option} {value}: write it behind the model: {model}@{now.get(option, option)}={value}\n"
        )


def test_several_old_options_make_one_word() -> None:
    asked = ("predict", "--models=my.toml@batch=8", "--gpu", "A100", "--tokens=1B", "--precision", "fp16")
    assert refusal(*asked) == (
        "repro: --tokens 1B --precision fp16: write them behind the model: my.toml@batch=8,tokens=1B,precision=fp16\n"
    )
    assert "--images many: expected a whole number" in refusal("lab", "--images", "many"), "the lab has its own"


def test_an_epoch_of_text_is_counted_in_tokens_as_the_length_is() -> None:
    text, images = Text(256, 1000), Images(32, 10)
    epochs = Fields(batch_size=64, epochs=3, dataset_size=256 * 6400)
    assert specification.steps("mine", epochs, text) == 300
    assert specification.steps("mine", Fields(batch_size=64, tokens=3 * 256 * 6400), text) == 300
    assert specification.steps("mine", epochs, images) == specification.steps(
        "mine", Fields(batch_size=64, images=3 * 256 * 6400), images
    )
    for wrong, inputs, words in (
        (Fields(batch_size=64, images=1e6), text, "images: give tokens"),
        (Fields(batch_size=64, tokens=1e6), images, "tokens: give images"),
    ):
        with pytest.raises(UserError, match=f"mine: this model reads no {words}"):
            specification.steps("mine", wrong, inputs)


def test_a_file_without_a_model_is_refused_with_its_name(folder: Path) -> None:
    (folder / "none.json").write_text('{"a": 1}')
    (folder / "broken.toml").write_text('modle = "hf:llama.json"\n')

    def refused(model: str) -> str:
        return refusal("predict", "--gpu", "A100", "--models", f"{model}{NUMBERS}")

    assert "none.json has no model_type" in refused(f"hf:{folder / 'none.json'}")
    (folder / "timm.json").write_text('{"architecture": "resnet50", "num_classes": 1000}')
    assert refused(f"hf:{folder / 'timm.json'}").endswith(
        "as every transformers configuration has; it is timm's: name it as timm:resnet50\n"
    )
    assert "did you mean model?" in refused(f"{folder / 'broken.toml'}")
    assert "gone.py cannot be read" in refused(f"{folder / 'gone.py'}")
    saved = "there is no such file, and nothing is downloaded: save https://huggingface.co/{}/raw/main/config.json and"
    for id in ("gpt2", "meta-llama/Llama-3.1-8B"):
        for text in (f"hf:{id}", f"hf:https://huggingface.co/{id}", f"hf:https://huggingface.co/{id}/tree/main"):
            assert saved.format(id) in refused(text)
    assert "hf:gone.json: gone.json cannot be read" in refused("hf:gone.json")


PATHS = ("a.json", "a,vit/config.json", "a,vit/own.py", "lr=0.1,wd=0.1/config.json", "b@steps=5/c.json", "b@5/c.json")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder and ~, with models in paths that look like lists and numbers."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for path in PATHS:
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_text(json.dumps(LLAMA))
    return tmp_path


WORDS = [  # each with its model, and its numbers
    ("vit", "vit", ""),
    ("hf:a.json@tokens=20B,batch=256,precision=bf16", "hf:a.json", "tokens=20B,batch=256,precision=bf16"),
    ("hf:a.json@batch=8, steps=9", "hf:a.json", "batch=8, steps=9"),
    ("hf:~/a,vit@batch=8", "hf:~/a,vit", "batch=8"),
    ("~/a,vit/own.py:recipe@steps=9", "~/a,vit/own.py:recipe", "steps=9"),
    ("hf:~/lr=0.1,wd=0.1@batch=8,steps=9", "hf:~/lr=0.1,wd=0.1", "batch=8,steps=9"),
    ("hf:b@steps=5/c.json", "hf:b@steps=5/c.json", ""),
    ("hf:b@steps=5/c.json@batch=8,steps=9", "hf:b@steps=5/c.json", "batch=8,steps=9"),
    ("hf:b@5/c.json@batch=8", "hf:b@5/c.json", "batch=8"),
    ("timm:vit_tiny_patch16_224:depth=2,img_size=(32,32)", "timm:vit_tiny_patch16_224:depth=2,img_size=(32,32)", ""),
    ("timm:resnet50:num_classes=100@images=100M,batch=8", "timm:resnet50:num_classes=100", "images=100M,batch=8"),
    ("timm:resnet50@images=100M", "timm:resnet50", "images=100M"),
    ("my.toml@batch=8", "my.toml", "batch=8"),
    ("gone.py:NAME@steps=9", "gone.py:NAME", "steps=9"),
    ("hf:gone/lr=0.1,wd=0.1@batch=8", "hf:gone/lr=0.1,wd=0.1", "batch=8"),
    ("hf:gone@steps=5/c.json@batch=8", "hf:gone@steps=5/c.json", "batch=8"),
    ("hf:a.json@token=1B,batch=8", "hf:a.json", "token=1B,batch=8"),
    ("hf:meta-llama/Llama-2-7b-hf@main", "hf:meta-llama/Llama-2-7b-hf@main", ""),
    ("hf:a.json@", "hf:a.json", ""),
]


@pytest.mark.parametrize(("word", "model", "numbers"), WORDS, ids=[word for word, _, _ in WORDS])
def test_the_last_at_before_a_key_divides(home: Path, word: str, model: str, numbers: str) -> None:
    assert specification.divided(word) == (model, numbers)
    for others in ([], ["vit"], ["hf:a.json"], ["timm:resnet50:num_classes=9@images=1M,batch=8"], ["own.py"]):
        for listed in ([word, *others], [*others, word], [word, *others, word]):
            assert specification.split(",".join(listed)) == listed


def test_any_list_of_words_is_taken_apart_into_them(home: Path) -> None:
    chance = random.Random(57)
    for _ in range(300):
        listed = [chance.choice(WORDS)[0] for _ in range(chance.randint(1, 6))]
        assert specification.split(",".join(listed)) == listed
        text = "".join(chance.choices("hf:a.json@batch=8,steps=9(){}~/vit,b@5", k=chance.randint(0, 30)))
        assert ",".join(specification.split(text)) == text


def test_a_word_means_what_its_fields_say(home: Path) -> None:
    asked = specification.specification("hf:~/a,vit@tokens=20B,batch=256,sequence=64,precision=bf16")
    assert asked.place == str(home / "a,vit" / "config.json")
    assert asked.fields == Fields("a,vit", 256, tokens=20e9, sequence=64, precision="bf16")
    images = "timm:resnet50:num_classes=9@epochs=90,dataset=1.28M,batch=8,image=64,optimizer=Adam"
    assert specification.specification(images).fields == Fields(
        batch_size=8, epochs=90, dataset_size=1.28e6, image_size=64, optimizer="Adam"
    )
    (home / "my.toml").write_text('model = "hf:a.json@sequence=32"\nbatch = 64\ntokens = "1B"\n')
    assert specification.specification("my.toml@steps=9").fields == Fields("my", 64, training_steps=9, sequence=32)
    (home / "small.toml").write_text('model = "gpt2"\nbatch = 8\n')
    popular = specification.specification("small.toml")
    assert (popular.text, popular.fields.name, popular.fields.batch_size) == ("gpt2", "small", 8)
    (home / "none.toml").write_text("batch = 8\n")
    with pytest.raises(UserError, match=r"none.toml: model is 'missing', expected FILE.py\[:NAME\], hf:CONFIG.json or"):
        specification.specification("none.toml")


def test_an_id_is_a_hash_of_the_model_and_its_hyper_parameters_wherever_it_lies(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "llama.json", tmp_path)
    first, second, third, fourth = (
        specification.specification(f"hf:{place}/llama.json", Fields(batch_size=size, training_steps=steps)).id
        for place, size, steps in ((folder, 8, 10), (tmp_path, 8, 10), (folder, 16, 10), (folder, 8, 20))
    )
    assert first == second
    assert len({first, third, fourth}) == 3
    assert custom.is_id(first)
    assert first.startswith("llama-")


@pytest.mark.slow
def test_weights_and_flops_are_those_of_the_closed_form(folder: Path) -> None:
    found = described(f"hf:{folder / 'llama.json'}", batch_size=64, tokens=16_384_000.0)
    width, layers, feed, tokens, vocabulary = 128, 4, 352, 256, 1000
    matrices = layers * (2 * width**2 + 2 * width * width // 2 + 3 * width * feed) + vocabulary * width
    assert found.paper.parameters == matrices + vocabulary * width + (2 * layers + 1) * width
    assert found.paper.flops_per_example == 6 * tokens * matrices + 3 * layers * 4 * tokens**2 * width
    assert (found.paper.training_steps, found.paper.layer) == (1000, "LlamaDecoderLayer")
    assert (found.paper.precision, found.paper.optimizer.name, found.paper.attention) == (
        "bf16",
        "AdamW",
        "causal_sdpa",
    )
    assert found.tiny is not None
    assert found.tiny.parameters < found.paper.parameters
    assert found.tiny.text is not None
    assert (found.tiny.text.sequence, found.tiny.text.vocabulary) == (64, 512)


@pytest.mark.slow
def test_a_scan_without_its_kernel_is_named(folder: Path) -> None:
    small = {"num_heads": 8, "head_dim": 16, "hidden_size": 64, "state_size": 16, "n_groups": 1, "expand": 2}
    config = small | {"model_type": "mamba2", "num_hidden_layers": 3, "vocab_size": 512, "chunk_size": 16}
    (folder / "mamba2.json").write_text(json.dumps(config))
    given = f"hf:{folder / 'mamba2.json'}{NUMBERS},sequence=32"
    done = repro("slurm", "--gpus-per-node", "1", "--time", "4h", "--", "run", "--models", given)
    assert "; its scan runs without mamba-ssm's kernel" in done.stderr
    assert not described(f"hf:{folder / 'llama.json'}", batch_size=8, tokens=1e6).paper.slow_scan


RUNNING = {
    "gradient_checkpointing": True,
    "_gradient_checkpointing": True,
    "return_dict": False,
    "use_return_dict": False,
    "output_attentions": True,
    "output_hidden_states": True,
    "torchscript": True,
    "pretraining_tp": 2,
}
SILENT = {"dtype": "bfloat16", "_attn_implementation": "flash_attention_2", "attn_implementation": "flash_attention_2"}


def test_keys_of_a_configuration_that_are_not_the_models_are_left_out_and_named() -> None:
    part = {"hidden_size": 8, "rope_scaling": {"dtype": 1}} | RUNNING | SILENT
    config = {"model_type": "gemma3", "text_config": part, "encoder": part | {"model_type": "vit"}, "label2id": RUNNING}
    kept = {"hidden_size": 8, "rope_scaling": {"dtype": 1}}
    found = specification.of_the_model(config | RUNNING | SILENT)
    assert found == config | {"text_config": kept, "encoder": kept | {"model_type": "vit"}}
    assert specification.left_out(config) == [f"{part}.{key}" for part in ("text_config", "encoder") for key in RUNNING]
    usual = {
        "gradient_checkpointing": False,
        "return_dict": True,
        "use_return_dict": None,
        "chunk_size_feed_forward": 0,
    }
    assert specification.left_out(usual | SILENT) == []


@pytest.mark.slow
def test_a_configuration_that_says_how_to_run_makes_the_same_model(folder: Path) -> None:
    (folder / "runs.json").write_text(json.dumps(LLAMA | RUNNING | SILENT | {"num_hidden_layers": 2}))
    (folder / "plain.json").write_text(json.dumps(LLAMA | {"num_hidden_layers": 2}))
    job = ("slurm", "--gpus-per-node", "1", "--time", "4h", "--", "run", "--models")
    runs, plain = (repro(*job, f"hf:{folder / name}.json{NUMBERS}").stderr.strip() for name in ("runs", "plain"))
    assert runs.partition("left out of its configuration, as no part of the model: ")[2] == ", ".join(RUNNING)
    counts = [re.findall("[0-9.e+]+ (?:B weights|FLOPs)", said) for said in (runs, plain)]
    assert counts[0] == counts[1]
    assert len(counts[0]) == 2


@pytest.mark.slow
def test_no_part_of_a_model_recomputes_because_its_configuration_says_so() -> None:
    from repro.machine.stack import load
    from repro.models.configured import transformers_model

    load()
    text = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 16,
    }
    vision = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    config = {"model_type": "gemma3", "text_config": text | RUNNING, "vision_config": vision | RUNNING} | RUNNING
    model = transformers_model(config, "eager")
    assert not any(getattr(module, "gradient_checkpointing", False) for module in model.modules())


@pytest.mark.slow
def test_a_classifier_of_texts_without_a_padding_id_takes_several_examples() -> None:
    import torch

    from repro.models.configured import transformers_model

    reward = LLAMA | {"architectures": ["LlamaForSequenceClassification"], "num_hidden_layers": 1}
    ids = torch.randint(1000, (4, 16))
    assert transformers_model(reward, "eager")(input_ids=ids, labels=ids).ndim == 0


@pytest.mark.slow
def test_a_model_of_timm_has_its_own_image_size_and_layer_and_a_tiny_version() -> None:
    found = described("timm:vit_tiny_patch16_224:depth=3,num_classes=10", batch_size=8, epochs=2.0, dataset_size=40.0)
    assert found.paper.images is not None
    assert (found.paper.images.size, found.paper.images.classes, found.paper.layer) == (224, 10, "Block")
    assert (found.paper.training_steps, found.paper.precision) == (10, "fp32")
    assert found.tiny is not None
    assert found.tiny.parameters < found.paper.parameters / 5
    number = described("timm:xcit_nano_12_p16_224", batch_size=8, images=80.0)
    assert number.tiny is not None, "its patch size is a number, not a pair"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}/empty.py", "it has no recipe; define one, a repro.Recipe or a function that returns one"),
        ("{}/own.py", "it has recipe, vector; name one of them"),
        ("{}/own.py:nothing", "defines no nothing; it has recipe, vector"),
        ("{}/own.py:vector", "returns a tensor of shape (1, 8), expected the mean loss, a scalar tensor"),
        ("hf:{}/head.json", "has no ViTForCausalLM; of vit it has ViTForImageClassification"),
        ("hf:{}/type.json", "knows no model_type 'lama'; did you mean llama"),
        ("hf:{}/sound.json", "WhisperForConditionalGeneration reads input_features, and models here read"),
        ("timm:vit_smal_patch16_224", "did you mean vit_small_patch16_224"),
        (
            "timm:vit_tiny_patch16_224:num_classes=0",
            "classifier: name its classes, as timm:vit_tiny_patch16_224:num_cl",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_line(folder: Path, text: str, expected: str) -> None:
    (folder / "head.json").write_text('{"model_type": "vit", "architectures": ["ViTForCausalLM"]}')
    (folder / "type.json").write_text('{"model_type": "lama"}')
    (folder / "sound.json").write_text(json.dumps({"model_type": "whisper"}))
    with pytest.raises(UserError) as refused:
        described(text.format(folder), batch_size=8, training_steps=10)
    assert expected in str(refused.value)
    assert "\n" not in str(refused.value)


CHECKPOINTS = "from torch import nn\nfrom torch.utils.checkpoint import checkpoint"
PASSES = {
    "checkpoint(block, x, use_reentrant=False)": "it checkpoints activations itself: call the block directly",
    "checkpoint(block, x, use_reentrant=True)": "it checkpoints activations itself: call the block directly",
    "block(x) if x.mean() > 0 else -x": "what runs depends on values of a tensor (DataDependentOutputException: aten.",
    "x[labels >= 0]": "what runs depends on values of a tensor (DynamicOutputShapeException: aten.",
    "block(x, 3)": "TypeError: Block.forward() takes 2 positional arguments but 3 were given",
}


@pytest.mark.slow
@pytest.mark.parametrize("call", PASSES)
def test_an_error_in_a_file_names_its_line_in_its_own_words(folder: Path, call: str) -> None:
    code = OWN.replace("x = block(x)", f"x = {call}").replace("from torch import nn", CHECKPOINTS, 1)
    name = f"wrong{[*PASSES].index(call)}.py"  # a file is imported once
    (folder / name).write_text(code)
    line = code.splitlines().index(f"            x = {call}") + 1
    with pytest.raises(UserError) as refused:
        described(f"{folder / name}:recipe")
    assert f": {name}:{line}: {PASSES[call]}" in str(refused.value)


ODD = """
import torch


class Odd(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return 2 * x

    @staticmethod
    def backward(context, gradient):
        return 1 // 0


class Model"""


@pytest.mark.slow
def test_an_error_that_nobody_expected_is_given_in_its_own_words(folder: Path) -> None:
    code = OWN.replace("\nclass Model", ODD).replace("x = block(x)", "x = Odd.apply(block(x))")
    (folder / "odd.py").write_text(code)
    line = code.splitlines().index("        return 1 // 0") + 1
    with pytest.raises(UserError) as refused:
        describe(specification.specification(f"{folder / 'odd.py'}:recipe", Fields()))
    wrong = "ZeroDivisionError: integer division or modulo by zero"
    assert str(refused.value).endswith(f": its description failed: odd.py:{line}: {wrong}")


@pytest.mark.slow
def test_a_tiny_version_is_made_where_it_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = OWN.replace('if scale == "paper" else (2, 32)', 'if scale == "paper" else 1 // 0')
    (folder / "large.py").write_text(code)
    monkeypatch.setattr(custom, "_REGISTERED", {})
    asked = specification.specification(f"{folder / 'large.py'}:recipe", Fields())
    custom.register(describe(asked), partial(describe, asked, tiny=True))
    [id] = custom._REGISTERED
    assert models.find(id).batch_size == 32
    for _ in range(2):
        with pytest.raises(UserError, match=r"has no tiny version: .*large\.py:\d+: ZeroDivisionError"):
            models.find(id, "tiny")


@pytest.mark.slow
def test_predict_traces_a_model_once_and_money_takes_its_days(folder: Path) -> None:
    words = ("predict", "--models", f"{folder / 'my.toml'}", "--gpu", "RTX 4090", "--gpus", "2")
    first = repro(*words, "--format", "json")
    assert "tracing" in first.stderr
    second = repro(*words, "--format", "json")
    assert "tracing" not in second.stderr
    assert first.stdout == second.stdout
    rows = json.loads(first.stdout)
    assert {row["model"] for row in rows} == {"My Llama"}
    assert all(row["days"] > 0 for row in rows if row["feasible"])
    assert any(row["feasible"] for row in rows)
    best = answer("cost", f"{folder / 'my.toml'}", "--budget", "20000")["rows"][0]
    assert best["origin"] == "predicted"


@pytest.mark.slow
def test_a_convolution_models_run_on_a_cpu_is_estimated_within_a_factor_of_2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "_REGISTERED", {})
    monkeypatch.setattr(estimate, "usable_cpus", lambda: 2)  # as many as took 135 s for both trials
    own = described("timm:resnet26", batch_size=64, images=1e6)
    custom.register(own)
    both = [Trial(own.paper.id, "tiny", settings, "cpu", 1, steps=3) for settings in ("naive", "free_lunch")]
    seconds = sum(estimate.estimate(trial, None) for trial in both)
    assert 135 / 2 < estimate.LOADING + seconds + estimate.REPORTING < 135 * 2


@pytest.fixture(scope="module")
def measured(folder: Path) -> Path:
    """A run of a configuration and of a Python file, whose model has the name of one of the paper's, on the CPU."""
    out = folder / "run"
    asked = f"hf:{folder / 'llama.json'}{NUMBERS},{folder / 'own.py'}:recipe{NUMBERS}"
    for _ in range(2):
        done = process("run", "--models", asked, "--processes", "1", "--methods", "naive", "--out", str(out))
        assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_a_run_measures_tiny_versions_and_the_same_command_resumes_it(measured: Path) -> None:
    lines = [json.loads(line) for line in trial_lines(measured)]
    assert [line["status"] for line in lines] == ["ok", "ok"], "the second run measured nothing again"
    assert [line["recipe"].rpartition("-")[0] for line in lines] == ["llama", "recipe"]
    assert {line["scale"] for line in lines} == {"tiny"}
    assert all(line["true_step"] > 0 for line in lines)


@pytest.mark.slow
def test_a_folder_is_reported_where_its_models_are_unknown_and_cannot_build_them(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = shutil.copytree(measured, tmp_path / "run")
    monkeypatch.setattr(custom, "_REGISTERED", {})
    done = repro("report", str(elsewhere))
    assert done.returncode == 0, done.stderr
    assert "llama-" in done.stdout + (elsewhere / "report.md").read_text()
    assert all(row["verdict"] == "not_measured" for row in json.loads((elsewhere / "verdicts.json").read_text()))
    [id] = [id for id in custom._REGISTERED if id.startswith("recipe-")]
    assert models.find(id).name == "ViT (own)", "no cell of the paper's ViT is its"
    with pytest.raises(UserError, match="read from a results folder, which cannot build a model"):
        models.find(id).build(False, "sdpa")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forged", "problem"),
    [
        ({"id": "vit"}, "matching regex"),
        ({"parameters": -1}, ">= 1 - at `$[0].parameters`"),
        ({"precision": "fp8"}, "fp8"),
    ],
)
def test_a_forged_description_is_left_out_and_named(
    measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forged: dict[str, Any], problem: str
) -> None:
    elsewhere = shutil.copytree(measured, tmp_path / "run")
    rows = json.loads((elsewhere / RECIPES).read_text())
    (elsewhere / RECIPES).write_text(json.dumps([row | forged for row in rows]))
    monkeypatch.setattr(custom, "_REGISTERED", {})
    done = repro("compare", str(elsewhere), str(elsewhere))
    assert RECIPES in done.stderr
    assert problem in done.stderr
    assert not custom._REGISTERED


def test_a_model_that_differs_under_a_known_id_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "_REGISTERED", {})
    vit = custom.Described.of(models.find("vit"))
    first = custom.Described(**{**vars(vit), "id": "mine-01234567"})
    custom.register(custom.CustomModel(first))
    custom.register(custom.CustomModel(first))
    with pytest.raises(UserError, match="two models have the id mine-01234567, and differ"):
        custom.register(custom.CustomModel(custom.Described(**{**vars(first), "parameters": 5})))
    assert models.find("mine-01234567").parameters == first.parameters
    assert "mine-01234567" not in models.IDS
    with pytest.raises(UserError, match="has no tiny version"):
        models.find("mine-01234567", "tiny")


UNREACHED = """
from torch import nn

from parts import Block
from repro import Recipe, Text


class Model(nn.Module):
    def __init__(self, layers, width, custom):
        super().__init__()
        self.embedding, self.head = nn.Embedding(500, width), nn.Linear(width, 500)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.tower = nn.Sequential(Block(width), Block(width))
        self.custom, self.fast, self.slow = custom, nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, input_ids, labels):
        x = self.embedding(input_ids)
        for block in self.blocks:
            x = block(x)
        x = self.fast(x) if self.custom else self.slow(x)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())


def recipe(scale="paper"):
    width = 128 if scale == "paper" else 32
    return Recipe(
        name="Unreached",
        inputs=Text(64, 500),
        batch_size=16,
        training_steps=100,
        layer="Block",
        build=lambda custom_kernels, attention: Model(3, width, custom_kernels),
    )
"""


@pytest.mark.slow
def test_weights_that_no_loss_reaches_are_frozen_in_each_build_and_named(folder: Path) -> None:
    found = described(f"{folder / 'unreached.py'}")
    width = 128
    linear, block = width**2 + width, 8 * width**2 + 5 * width
    assert found.paper.frozen.weights == 2 * block + linear
    assert {name.split(".")[0] for name in found.paper.frozen.naive} == {"tower", "fast"}
    for kernels, unused in ((False, "fast"), (True, "slow")):
        model = found.recipe("tiny").build(kernels, "sdpa")
        frozen = {name.split(".")[0] for name, weight in model.named_parameters() if not weight.requires_grad}
        assert frozen == {"tower", unused}
    custom.register(found)
    assert training_arguments(training(found.paper.id, "naive"))["ddp_find_unused_parameters"]
    assert not training_arguments(training("vit", "naive"))["ddp_find_unused_parameters"]


@pytest.mark.slow
def test_weights_that_no_loss_reaches_take_memory_and_no_update(folder: Path) -> None:
    from repro.paper.settings import Settings
    from repro.predict.memory import Allowance, peak_memory
    from repro.predict.trace.trace import trace

    recipe = described(f"{folder / 'unreached.py'}").recipe("paper")
    found = trace(recipe, "naive")
    frozen = found.total("frozen").fixed
    assert found.parameters + frozen == recipe.parameters
    memory = peak_memory(recipe, found, Settings.parse("naive"), 1, 1, Allowance())
    assert (memory.weights, memory.optimizer) == (4 * recipe.parameters, 8 * found.parameters)


@pytest.mark.slow
def test_every_engine_trains_a_model_with_weights_that_no_loss_reaches(folder: Path) -> None:
    picked = "(naive or zero_2 or fsdp_3) and not (checkpointing or offloading)"
    asked = ("run", "--models", f"{folder / 'unreached.py'}", "--processes", "2", "--methods", "all")
    done = process(*asked, "--out", str(folder / "unreached"), "--", "-k", picked)
    said = next(line for line in done.stderr.splitlines() if "steps of" in line)
    assert said.endswith("; 0.28 M weights take no part, and are frozen")
    records = [json.loads(line) for line in trial_lines(folder / "unreached")]
    assert [(record["status"], record["reason"]) for record in records] == [("ok", "")] * len(records)
    assert len(records) == 3


LEAVES = {
    "a thread": "import threading, time; threading.Thread(target=time.sleep, args=(9999,)).start()",
    "a timer and a hook": "import atexit, threading, time; threading.Timer(9999, print).start()\n"
    "atexit.register(time.sleep, 9999)",
    "processes": "import subprocess, multiprocessing; subprocess.Popen(['sleep', '9999'])\n"
    "subprocess.Popen(['sleep', '9999'], start_new_session=True); pool = multiprocessing.Pool(2)",
    "an error and a thread": "import threading, time; threading.Thread(target=time.sleep, args=(9999,)).start()\n"
    "raise SystemExit('no data here')",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "left",
    ["processes", "an error and a thread"]
    + [pytest.param(left, marks=pytest.mark.nightly) for left in ("a thread", "a timer and a hook")],
)
def test_nothing_that_a_file_leaves_keeps_the_answer_back(folder: Path, left: str) -> None:
    before = sleeping()
    (folder / "leaves.py").write_text(f"{LEAVES[left]}\n{OWN}")
    asked = specification.specification(f"{folder / 'leaves.py'}:recipe", Fields())
    if "error" in left:
        with pytest.raises(UserError, match="its description failed: SystemExit: no data here"):
            describe(asked)
    else:
        assert describe(asked).paper.name == "ViT (own)"
    assert sleeping() == before, "what it started ended with it"


def sleeping() -> set[int]:
    return {each.pid for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "9999"]}


def test_a_file_that_takes_long_to_import_is_reported_and_ended(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "long.py").write_text("import time; time.sleep(9999)")
    monkeypatch.setattr("repro.predict.descriptions._SOON", 0.5)
    monkeypatch.setattr("repro.predict.descriptions._MOST", 1.0)
    with pytest.raises(UserError, match=r"long\.py: it was ended after 0 min without an answer: it said nothing"):
        describe(specification.specification(f"{folder / 'long.py'}", Fields()))
    said = (
        f"repro: {folder / 'long.py'}: still being imported and built without weights, after 0.5 s; it may take 0 min"
    )
    assert capsys.readouterr().err.splitlines() == [said]


def test_recipe_is_imported_from_repro_in_one_line_and_by_nothing_else() -> None:
    import subprocess
    import sys

    code = "import sys, repro; assert 'repro.models' not in sys.modules; from repro import Recipe, Text; print(Recipe)"
    assert "recipe.Recipe" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


@pytest.mark.parametrize("transposed", [False, True])
def test_a_transposed_convolution_counts_its_kernel_at_each_input(transposed: bool) -> None:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from repro.predict.trace.custom import _Counter

    make = torch.nn.ConvTranspose2d if transposed else torch.nn.Conv2d
    layer, images = make(8, 12, 3, stride=2), torch.rand(2, 8, 10, 10, requires_grad=True)
    with _Counter() as ours, FlopCounterMode(display=False) as torchs:
        layer(images).sum().backward()
    positions = 10 * 10 if transposed else 4 * 4
    assert ours.flops == torchs.get_total_flops() == 3 * 2 * 2 * positions * 8 * 12 * 3 * 3
