"""FLOPs of an example, forward and backward, in closed form: against known numbers, and against torch's counter."""

from collections.abc import Callable
from typing import Any

import pytest

from repro import models
from repro.models.recipe import Scale, Text

InRanks = Callable[..., list[Any]]

KNOWN = {
    "pythia-160m": 1.984e12,
    "pythia-410m": 5.584e12,
    "pythia-1b": 1.282e13,
    "pythia-2.8b": 3.665e13,
    "pythia-6.9b": 8.835e13,
    "roberta": 1.166e12,
    "mamba": 6.78e13,
    "convnext": 3.658e11,
    "vit": 3.692e11,
}


@pytest.mark.parametrize("recipe", models.IDS)
def test_the_closed_forms_give_the_known_numbers(recipe: str) -> None:
    assert models.find(recipe).flops_per_example == pytest.approx(KNOWN[recipe], rel=2e-3)


def test_a_token_of_mamba_passes_four_projections_a_convolution_and_the_head() -> None:
    inner, rank, states = 2 * 64, 64 // 16, 16
    projections = 64 * 2 * inner + inner * (rank + 2 * states) + rank * inner + inner * 64
    a_token = 2 * (2 * (projections + 4 * inner) + 64 * 512)
    assert models.find("mamba", "tiny").flops_per_example == 3 * 32 * a_token


def test_mambas_whole_training_is_5e21_flops_and_convnexts_5e20() -> None:
    def whole(recipe: str) -> float:
        found = models.find(recipe)
        return found.flops_per_example * found.batch_size * found.training_steps

    assert whole("mamba") == pytest.approx(4.97e21, rel=2e-3)
    assert whole("convnext") == pytest.approx(4.67e20, rel=2e-3)


@pytest.mark.parametrize("scale", ["paper", "tiny"])
@pytest.mark.parametrize("recipe", [id for id in models.IDS if id != "mamba"])
def test_torchs_counter_agrees(in_ranks: InRanks, recipe: str, scale: Scale) -> None:
    [count] = in_ranks("count_flops", recipe=recipe, scale=scale)
    assert count == models.find(recipe, scale).flops_per_example


def test_torchs_counter_agrees_on_mamba_but_for_the_scan_and_padding(in_ranks: InRanks) -> None:
    """The slow path writes the scan's output as matrix products, and pads its convolution at both ends; counts of
    the other recipes hold neither vector operations nor padding, so the closed form leaves them out."""
    recipe = models.find("mamba", "tiny")
    assert isinstance(recipe.inputs, Text)
    layers, inner, state, kernel = 2, 2 * 64, 16, 4
    scan = 3 * layers * recipe.inputs.sequence * 2 * inner * state
    padding = 3 * layers * 2 * inner * kernel * (kernel - 1)
    [count] = in_ranks("count_flops", recipe="mamba", scale="tiny")
    assert count == recipe.flops_per_example + scan + padding


def test_mambas_scan_is_a_hundredth_of_its_flops() -> None:
    inner, state = 2 * 2560, 16
    scan = 3 * 4096 * 64 * 9 * inner * state
    assert scan / models.find("mamba").flops_per_example == pytest.approx(0.01, abs=0.003)
