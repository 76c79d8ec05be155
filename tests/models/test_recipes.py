"""The nine recipes: the paper's models and hyper-parameters, built from numbers, each with a tiny twin."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.console import UserError
from repro.models.recipe import Images, Optimizer, Scale, Schedule, Text
from repro.paper.tables import PrintedRecipe, printed_recipes

ROOT = Path(__file__).resolve().parents[2]
InRanks = Callable[..., list[Any]]

# Parameters and repeated layers. ConvNeXt repeats stages: of 3, 3, 27 and 3 blocks.
SIZES = {
    "pythia-160m": (162_322_944, 12),
    "pythia-410m": (405_334_016, 24),
    "pythia-1b": (1_011_781_632, 16),
    "pythia-2.8b": (2_775_208_960, 32),
    "pythia-6.9b": (6_857_302_016, 32),
    "roberta": (355_412_057, 24),
    "mamba": (2_768_345_600, 64),
    "convnext": (392_900_177, 4),
    "vit": (325_688_657, 24),
}

# The authors' release: optimizer with rate and betas; schedule, warm-up steps and floor; clipping.
TRAINING = {
    "pythia-160m": (Optimizer("Adam", 6e-4, (0.9, 0.95)), Schedule("cosine", 1_430, 0.1), 1.0),
    "pythia-410m": (Optimizer("Adam", 3e-4, (0.9, 0.95)), Schedule("cosine", 1_430, 0.1), 1.0),
    "pythia-1b": (Optimizer("Adam", 3e-4, (0.9, 0.95)), Schedule("cosine", 1_430, 0.1), 1.0),
    "pythia-2.8b": (Optimizer("Adam", 1.6e-4, (0.9, 0.95)), Schedule("cosine", 1_430, 0.1), 1.0),
    "pythia-6.9b": (Optimizer("Adam", 1.2e-4, (0.9, 0.95)), Schedule("cosine", 1_430, 0.1), 1.0),
    "roberta": (Optimizer("Adam", 4e-4, (0.9, 0.98)), Schedule("linear", 30_000), None),
    "mamba": (Optimizer("AdamW", 8e-4, (0.9, 0.95)), Schedule("cosine", 57_220, 1e-5 / 8e-4), 1.0),
    "convnext": (Optimizer("AdamW", 4e-3, (0.9, 0.999)), Schedule("cosine", 17_330), None),
    "vit": (Optimizer("Adam", 1e-3, (0.9, 0.999)), Schedule("linear", 10_000), 1.0),
}
STEPS = dict.fromkeys(models.IDS, 143_000) | {
    "roberta": 500_000,
    "mamba": 572_204,
    "convnext": 311_940,
    "vit": 311_948,
}


@pytest.fixture(scope="module")
def described(in_ranks: InRanks) -> dict[str, Any]:
    return in_ranks("describe")[0]


# --- What a recipe is ---


def test_the_nine_recipes_have_the_papers_order_and_names() -> None:
    assert [models.find(id).name for id in models.IDS] == list(printed_recipes())


def test_every_recipe_of_a_family_is_listed_at_both_scales() -> None:
    families = models._OF_PAPER | models._OTHERS
    listed = {(id, scale) for id in families for scale in ("paper", "tiny")}
    assert {key for family in families.values() for key in models._recipes(family)} == listed
    assert all(models.find(id).id == id for id in families)


@pytest.mark.parametrize("recipe", models.IDS)
def test_models_have_the_known_parameters_and_layers(described: dict[str, Any], recipe: str) -> None:
    found = described[f"{recipe}/paper"]
    assert (found["parameters"], found["layers"]) == SIZES[recipe]
    assert found["held"] in ("ModuleList", "Sequential"), "whole layers, of which the model has a row"


@pytest.mark.parametrize("scale", ["paper", "tiny"])
@pytest.mark.parametrize("recipe", models.IDS)
def test_the_closed_forms_count_the_parameters_that_models_have(
    described: dict[str, Any], recipe: str, scale: Scale
) -> None:
    assert models.find(recipe, scale).parameters == described[f"{recipe}/{scale}"]["parameters"]


@pytest.mark.parametrize("recipe", models.IDS)
def test_a_tiny_twin_is_made_of_the_same_classes(described: dict[str, Any], recipe: str) -> None:
    paper, tiny = described[f"{recipe}/paper"], described[f"{recipe}/tiny"]
    assert tiny["classes"] == paper["classes"]
    assert tiny["layers"] == (4 if recipe == "convnext" else 2)  # ConvNeXt's layers are its stages
    assert tiny["parameters"] < 200_000


@pytest.mark.parametrize("id", models.IDS)
def test_a_tiny_twin_trains_as_the_paper_does_on_a_batch_of_8_to_16(id: str) -> None:
    paper, tiny = models.find(id), models.find(id, "tiny")
    assert 8 <= tiny.batch_size <= 16
    for what in ("name", "family", "precision", "optimizer", "schedule", "clip", "training_steps", "layer", "compiles"):
        assert getattr(tiny, what) == getattr(paper, what)


@pytest.mark.parametrize("id", models.IDS)
def test_hyper_parameters_are_the_authors(id: str) -> None:
    recipe = models.find(id)
    optimizer, schedule, clip = TRAINING[id]
    assert recipe.optimizer == optimizer
    assert (recipe.schedule.kind, recipe.schedule.warmup_steps) == (schedule.kind, schedule.warmup_steps)
    assert recipe.schedule.floor == pytest.approx(schedule.floor)
    assert recipe.clip == clip
    assert recipe.training_steps == STEPS[id]


@pytest.mark.parametrize("id", ["roberta", "mamba"])
def test_weights_do_not_decay_as_in_the_authors_trainings(in_ranks: InRanks, id: str) -> None:
    wanted = TRAINING[id][0]
    [(name, output)] = in_ranks("optimizer_of", recipe=id)
    assert name == wanted.name
    assert output == {"lr": wanted.rate, "betas": wanted.betas, "eps": wanted.eps, "weight_decay": 0.0}


@pytest.mark.parametrize("printed", printed_recipes().values(), ids=lambda printed: printed.model)
def test_recipes_are_what_table_3_prints(printed: PrintedRecipe) -> None:
    recipe = next(recipe for recipe in map(models.find, models.IDS) if recipe.name == printed.model)
    assert recipe.batch_size == printed.batch_size
    assert round(recipe.training_steps, -3) == printed.training_steps
    assert recipe.precision == (printed.mixed_precision or "fp32")
    assert recipe.optimizer.name == printed.optimizer
    assert float(f"{SIZES[recipe.id][0]:.1e}") == printed.parameters  # two digits are printed
    if isinstance(recipe.inputs, Text):
        assert recipe.inputs.sequence == printed.sequence_length
        assert round(recipe.inputs.vocabulary, -3) == printed.vocabulary
    else:
        assert isinstance(recipe.inputs, Images)
        assert recipe.inputs.size == printed.image_size
        assert round(recipe.inputs.classes, -3) == printed.classes


def test_inputs_are_drawn_from_the_known_ranges() -> None:
    inputs = {id: models.find(id).inputs for id in models.IDS}
    pythias = [id for id in models.IDS if id.startswith("pythia")]
    assert all(inputs[id] == Text(2049, 50_304) for id in pythias)
    assert inputs["roberta"] == Text(512, 50_265)
    assert inputs["mamba"] == Text(4096, 50_265)
    assert inputs["convnext"] == inputs["vit"] == Images(224, 21_841)


@pytest.mark.parametrize(
    ("recipe", "ranges"),
    [
        ("pythia-160m", {"input_ids": [0, 511], "labels": [0, 511]}),
        ("vit", {"pixels": [0, 1], "labels": [0, 99]}),
        ("gan", {"pixels": [-1, 1]}),
    ],
)
def test_random_inputs_fill_their_whole_range(in_ranks: InRanks, recipe: str, ranges: dict[str, list[float]]) -> None:
    [found] = in_ranks("drawn", recipe=recipe)
    assert {name: found[name] for name in ranges} == ranges


def test_an_unknown_model_is_reported_with_the_nine_there_are() -> None:
    with pytest.raises(UserError) as error:
        models.find("pythia-1.5b")
    message = str(error.value)
    assert message.startswith("unknown model 'pythia-1.5b'")
    assert "\n" not in message
    assert all(id in message for id in models.IDS)


# --- Building ---

# Reports every connection asked for, and every file opened below HOME, from the first import on.
_WATCH = """
import json, os, sys
asked, opened = [], []
def audit(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        asked.append(str(arguments))
    if event == "open" and str(arguments[0]).startswith(os.environ["HOME"] + os.sep):
        opened.append(str(arguments[0]))
sys.addaudithook(audit)
"""
_BUILD = """
from repro.machine import stack
stack.load()
from repro import models
built = {id: type(models.find(id, "tiny").build(True, "sdpa").model).__name__ for id in models.IDS}
print(json.dumps({"built": built, "asked": asked, "opened": opened}))
"""


def python(program: str, home: Path) -> str:
    """Runs a program in a fresh process with an empty home, and nothing said about being offline."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_", "XDG_"))}
    environment = keep | {"HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, cwd=home, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_all_nine_recipes_build_in_one_fresh_process_without_network_or_home(tmp_path: Path) -> None:
    found = json.loads(python(_WATCH + _BUILD, tmp_path))
    assert list(found["built"]) == list(models.IDS)
    assert set(found["built"].values()) == {
        "GPTNeoXForCausalLM",
        "RobertaForMaskedLM",
        "MambaForCausalLM",
        "ConvNeXt",
        "VisionTransformer",
    }
    assert found["asked"] == []
    assert found["opened"] == []


# --- Custom kernels and naive ---


@pytest.mark.parametrize("recipe", ["pythia-160m", "vit"])
def test_custom_kernels_replace_eager_attention(in_ranks: InRanks, recipe: str) -> None:
    assert in_ranks("attention", recipe=recipe, custom_kernels=False) == ["eager attention"]
    [custom] = in_ranks("attention", recipe=recipe, custom_kernels=True)
    assert "scaled_dot_product" in custom


@pytest.mark.parametrize("recipe", ["convnext", "gan"])
def test_a_model_without_attention_is_said_to_have_no_custom_kernels(in_ranks: InRanks, recipe: str) -> None:
    assert in_ranks("attention", recipe=recipe, custom_kernels=True) == ["none (no custom kernel exists)"]


def test_pythia_takes_flash_attn_where_asked_and_no_other_kernel_for_it(in_ranks: InRanks) -> None:
    [asked] = in_ranks("asked_attention", recipe="pythia-160m", custom_kernels=True, attention="flash")
    assert asked in ("causal_dao", "flash_attention_2", "No module named 'flash_attn'")


# (batch, sequence, heads, size); the backward pass knows the scores' logarithms of sums alone, as flash-attn's do.
FLASH_ATTN_4 = """\
import torch

def _scores(q, k):
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)

def _flash_attn_fwd(q, k, v, causal, return_lse):
    assert causal and return_lse
    scores = _scores(q, k)
    out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).contiguous()
    return out, scores.logsumexp(-1), None, None, None

def _flash_attn_bwd(q, k, v, out, dout, lse, causal):
    assert causal
    weights = (_scores(q, k) - lse.unsqueeze(-1)).exp()
    dv = torch.einsum("bhqk,bqhd->bkhd", weights, dout)
    dots = (dout * out).sum(-1).transpose(1, 2).unsqueeze(-1)
    dscores = weights * (torch.einsum("bqhd,bkhd->bhqk", dout, v) - dots) / q.shape[-1] ** 0.5
    dq, dk = torch.einsum("bhqk,bkhd->bqhd", dscores, k), torch.einsum("bhqk,bqhd->bkhd", dscores, q)
    return tuple(torch.empty_like(like).copy_(each) for each, like in ((dq, q), (dk, k), (dv, v)))
"""


@pytest.fixture
def flash_attn_4_package(tmp_path: Path) -> str:
    """Stands in for flash-attn-4, whose kernels need a GPU: the two functions of its interface, computed by torch."""
    folder = tmp_path / "flash_attn" / "cute"
    folder.mkdir(parents=True)
    (folder / "interface.py").write_text(FLASH_ATTN_4)
    described = tmp_path / "flash_attn_4-4.0.0b36.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: flash-attn-4\nVersion: 4.0.0b36\n")
    return str(tmp_path)


@pytest.mark.parametrize("compiled", [False, True])
def test_flash_attn_4_trains_as_torchs_attention_does_in_one_graph(
    in_ranks: InRanks, flash_attn_4_package: str, compiled: bool
) -> None:
    [found] = in_ranks("flash_attn_4", packages=flash_attn_4_package, compiled=compiled)
    flash, sdpa = found["flash"], found["sdpa"]
    if not compiled:
        assert flash["path"] == "flash_attn_4::backward, flash_attn_4::forward"
        assert "scaled_dot_product" in sdpa["path"]
    assert flash["loss"] == pytest.approx(sdpa["loss"], rel=1e-5)
    assert flash["norm"] == pytest.approx(sdpa["norm"], rel=1e-4)
    assert flash["last"] == pytest.approx(sdpa["last"], rel=1e-3, abs=1e-6)


def test_flash_attn_is_read_off_by_its_own_operators(in_ranks: InRanks) -> None:
    assert in_ranks("attention_of_operators", seen=["mm", "flash_attn::_flash_attn_forward"]) == [
        "flash_attn::_flash_attn_forward"
    ]
    assert in_ranks("attention_of_operators", seen=["mm", "_softmax"]) == ["eager attention"]


@pytest.mark.parametrize("custom_kernels", [False, True])
def test_robertas_attention_is_eager_whatever_is_asked(in_ranks: InRanks, custom_kernels: bool) -> None:
    assert in_ranks("attention", recipe="roberta", custom_kernels=custom_kernels) == ["eager attention"]
    asked = in_ranks("asked_attention", recipe="roberta", custom_kernels=custom_kernels, attention="sdpa")
    assert asked == ["eager"], "with dropout torch's own runs as if it were eager on a CPU"


def test_compiled_pythia_attends_causally_without_a_mask(in_ranks: InRanks) -> None:
    """A mask would rule out torch's flash kernel. The authors' transformers passed none."""
    [calls] = in_ranks("compiled_attention", recipe="pythia-160m")
    assert calls == [{"mask": False, "causal": True}] * 2


@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        ("pythia-160m", {"rotated": 0.25, "parallel": True, "epsilons": [1e-5], "tied": False, "dropouts": [0.0]}),
        ("roberta", {"epsilons": [1e-5], "tied": True, "dropouts": [0.1]}),
        ("mamba", {"residual_in_fp32": True, "tied": True, "dropouts": []}),
    ],
)
def test_language_models_are_their_authors_where_no_count_tells(
    in_ranks: InRanks, recipe: str, shape: dict[str, Any]
) -> None:
    """The configurations of EleutherAI's Pythia, roberta-large and state-spaces/mamba-2.8b."""
    [found] = in_ranks("built_as", recipe=recipe)
    assert {name: found[name] for name in shape} == shape
    assert found["returned"] == ["logits", "loss"], "keys and values that are kept take memory"


@pytest.fixture
def kernel_packages(tmp_path: Path) -> str:
    """Stands in for the compiled packages, which need nvcc: functions to bind, none of which is called."""
    function = "def {name}(*arguments): raise AssertionError\n"
    for path, names in {
        "mamba_ssm/ops/selective_scan_interface.py": ("mamba_inner_fn", "selective_scan_fn"),
        "causal_conv1d/causal_conv1d_interface.py": ("causal_conv1d_fn", "causal_conv1d_update"),
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text("".join(function.format(name=name) for name in names))
        package, _, module = path.removesuffix(".py").partition("/")
        module = module.replace("/", ".")
        (tmp_path / package / "__init__.py").write_text(f"from .{module} import {', '.join(names)}\n")
    return str(tmp_path)


def test_mambas_path_is_chosen_before_its_import_and_read_off(in_ranks: InRanks, kernel_packages: str) -> None:
    [custom] = in_ranks("mamba_kernels", custom_kernels=True, packages=kernel_packages)
    assert custom["mamba_inner_fn"] == "mamba_ssm"
    assert custom["causal_conv1d_fn"] == "causal_conv1d"

    [naive] = in_ranks("mamba_kernels", custom_kernels=False, packages=kernel_packages)
    assert naive
    assert set(naive.values()) == {"transformers"}


def test_a_silent_fallback_to_mambas_slow_path_is_read_off(in_ranks: InRanks, tmp_path: Path) -> None:
    for package in ("mamba_ssm", "causal_conv1d"):
        (tmp_path / f"{package}.py").write_text("raise ImportError('built for another torch')\n")
    [fallen] = in_ranks("mamba_kernels", custom_kernels=True, packages=str(tmp_path))
    assert set(fallen.values()) == {"transformers"}


def test_one_package_that_cannot_be_imported_makes_all_of_mambas_scan_slow(
    in_ranks: InRanks, kernel_packages: str
) -> None:
    [[path, said]] = in_ranks("mamba_path", packages=kernel_packages)
    assert "mamba_inner_fn: mamba_ssm" in path
    assert said == "both packages can be imported"
    Path(kernel_packages, "mamba_ssm", "__init__.py").write_text("raise ImportError('undefined symbol: _ZN3c10')\n")
    [[path, said]] = in_ranks("mamba_path", packages=kernel_packages)
    assert path == "slow scan (transformers)"
    assert said == "mamba_ssm: ImportError: undefined symbol: _ZN3c10"


@pytest.mark.parametrize("first", [True, False])
def test_one_process_builds_one_of_mambas_paths_only(in_ranks: InRanks, first: bool) -> None:
    assert in_ranks("rebuild_mamba", first=first, second=first) == [""]
    [complaint] = in_ranks("rebuild_mamba", first=first, second=not first)
    assert "fresh process" in complaint


# --- timm's vision models ---

SAME = 1e-4  # relative, in fp32: what rounding leaves is a fifth of it at most, gelu by tanh is five times as much


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("recipe", "custom_kernels"), [("convnext", True), ("vit", False), ("vit", True)])
def test_timms_models_are_the_function_that_the_authors_classes_are(
    in_ranks: InRanks, recipe: str, custom_kernels: bool, training: bool
) -> None:
    [off] = in_ranks("beside_the_authors_class", recipe=recipe, custom_kernels=custom_kernels, training=training)
    assert {"logits", "loss"} < off.keys()
    assert {name: far for name, far in off.items() if not far < SAME} == {}


@pytest.mark.parametrize(
    ("recipe", "changed"),
    [("convnext", "stem.0.bias"), ("convnext", "head.fc.bias"), ("vit", "cls_token"), ("vit", "head.bias")],
)
def test_one_weight_that_is_another_tells_them_apart(in_ranks: InRanks, recipe: str, changed: str) -> None:
    [off] = in_ranks("beside_the_authors_class", recipe=recipe, custom_kernels=True, training=False, changed=changed)
    assert off["logits"] > SAME


# --- Learning rate ---


def test_the_rate_rises_linearly_and_falls_by_cosine_to_its_floor(in_ranks: InRanks) -> None:
    steps = [0, 5, 10, 60, 110, 120]
    [factors] = in_ranks("rate_factors", kind="cosine", warmup_steps=10, floor=0.1, steps=110, at=steps)
    assert factors == pytest.approx([0, 0.5, 1, 0.55, 0.1, 0.1])
    [quarter] = in_ranks("rate_factors", kind="cosine", warmup_steps=0, floor=0.0, steps=100, at=[25])
    assert quarter == pytest.approx([0.853553], rel=1e-5)  # (1 + cos 45 degrees) / 2


def test_the_rate_falls_linearly_to_nothing(in_ranks: InRanks) -> None:
    steps = [0, 1, 2, 27, 52, 102, 200]
    [factors] = in_ranks("rate_factors", kind="linear", warmup_steps=2, floor=0.0, steps=102, at=steps)
    assert factors == pytest.approx([0, 0.5, 1, 0.75, 0.5, 0, 0])
