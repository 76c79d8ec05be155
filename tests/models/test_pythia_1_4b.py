"""Pythia-1.4B: a recipe of the authors' release that the paper has no cell of, and that predictions know."""

import pytest

from repro import models
from repro.models.recipe import Optimizer, Scale, Schedule, Text
from repro.paper.tables import all_cells
from repro.predict import traces
from repro.predict.traces import Traced
from tests.support.command_line import answer

PARAMETERS = 1_414_647_808  # of EleutherAI's checkpoint on the Hugging Face Hub
# What the authors' search ended at on one V100 of 32 GB: apoorvkh/academic-pretraining, issue 5.
FASTEST = "free_lunch+checkpointing+zero_1+offloading"


def test_it_is_none_of_the_papers_nine_and_runs_only_when_asked_for() -> None:
    assert "pythia-1.4b" not in models.IDS
    assert models.listed(None) == models.IDS
    assert models.listed("Pythia-1.4B") == ("pythia-1.4b",)
    assert "Pythia-1.4B" not in {cell.model for cell in all_cells()}
    assert "pythia-1.4b" not in models.PYTHIAS


def test_recipes_lists_it_with_its_source() -> None:
    [row] = [row for row in answer("list", "recipes") if row["id"] == "pythia-1.4b"]
    assert (row["of"], row["parameters"], row["training_steps"]) == ("authors' release", PARAMETERS, 143_000)


def test_it_trains_as_the_other_pythias_at_a_learning_rate_of_its_own() -> None:
    recipe, other = models.find("pythia-1.4b"), models.find("pythia-410m")
    assert recipe.optimizer == Optimizer("Adam", 2e-4, (0.9, 0.95))
    assert recipe.schedule == Schedule("cosine", 1_430, 0.1)
    assert (recipe.inputs, recipe.batch_size, recipe.precision) == (Text(2049, 50_304), 1024, "fp16")
    assert (recipe.clip, recipe.layer, recipe.family) == (other.clip, other.layer, other.family)


@pytest.mark.parametrize("stack", traces.shipped(), ids=str)
@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_its_traces_have_the_weights_and_flops_of_the_closed_form(stack: Traced, scale: Scale) -> None:
    recipe = models.find("pythia-1.4b", scale)
    for variant in traces.VARIANTS:
        trace = traces.find(recipe.id, variant, stack, scale)
        assert trace.parameters == recipe.parameters
    keys = {key for part in trace.parts for key in part.costs if key.endswith("/flops")}
    found = sum(trace.total(key).per_example for key in keys)
    # Attention that is causal by its flag computes half of the scores, which the closed form counts whole.
    assert 0.8 < found / recipe.flops_per_example <= 1.0


def test_predict_finds_the_micro_batch_of_the_authors_search() -> None:
    rows = answer("predict", "--models", "pythia-1.4b", "--gpu", "V100 32 GB")
    sizes = {row["settings"]: row["micro_batch"] for row in rows}
    assert sizes[FASTEST] == 16
    assert not sizes["naive"], "the authors tried naive and free lunch, and neither fitted"
    assert not sizes["free_lunch"]
