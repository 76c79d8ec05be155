"""The lab report's GAN: a recipe like the others, and none of the paper's nine."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.machine.packages import installed_packages
from repro.machine.support import Stack, obstacle
from repro.measure.launcher import ForkServer
from repro.measure.trial import Bench, run_trial
from repro.models import gan
from repro.models.recipe import Generation, Optimizer, Scale
from repro.paper.settings import NAIVE, search_space
from repro.paper.tables import cells, quantities
from repro.run.plan import Options, trials
from repro.run.verdict import judge_tables
from tests.support.command_line import answer

InRanks = Callable[..., list[Any]]

GENERATOR = 3_576_704  # as everyone's DCGAN of this shape
DISCRIMINATOR = 2_765_696  # likewise, with a batch normalisation of 64 channels behind its first layer as well


# --- What it is ---


def test_it_is_found_by_its_id_and_is_none_of_the_papers_nine() -> None:
    assert models.find("gan").name == "GAN"
    assert "gan" not in models.IDS
    assert len(models.IDS) == 9
    assert "GAN" not in {cell.model for cell in (*cells("1"), *cells("4"))}


def test_recipes_lists_it_apart_from_the_papers() -> None:
    rows = answer("list", "recipes")
    assert [row["id"] for row in rows if row["of"] == "paper"] == list(models.IDS)
    assert [row["id"] for row in rows if row["of"] == "lab report"] == ["gan"]


def test_recipes_says_what_table_3_prints_under_the_same_names() -> None:
    ours = [row for row in answer("list", "recipes") if row["of"] == "paper"]
    for row, printed in zip(ours, answer("table", "3"), strict=True):
        same = ("model", "batch_size", "optimizer")
        assert [row[name] for name in same] == [printed[name] for name in same]
        assert row["training_steps"] == pytest.approx(printed["training_steps"], rel=0.01)  # there rounded


def test_its_epochs_are_the_labs() -> None:
    lab, recipe = quantities(), models.find("gan")
    assert lab["lab/images"].value == gan.IMAGES
    assert gan.batches(gan.IMAGES, recipe.batch_size) == lab["lab/batches"].value
    assert recipe.training_steps == 20 * lab["lab/batches"].value


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_it_trains_as_the_dcgan_of_dive_into_deep_learning(scale: Scale) -> None:
    """Section 20.2: Adam at 0.005, which stays, with a first beta of 0.5."""
    recipe = models.find("gan", scale)
    assert recipe.optimizer == Optimizer("Adam", 5e-3, (0.5, 0.999), eps=1e-8)
    assert (recipe.schedule.warmup_steps, recipe.schedule.floor) == (0, 1.0)
    assert (recipe.precision, recipe.clip) == ("fp32", None)


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_its_parameters_and_inputs_are_known(in_ranks: InRanks, scale: Scale) -> None:
    [found] = in_ranks("sizes_of_gan", scale=scale)
    recipe = models.find("gan", scale)
    assert recipe.inputs == Generation(64, 100)
    if scale == "paper":
        assert (found["generator"], found["discriminator"]) == (GENERATOR, DISCRIMINATOR)
    assert found["generator"] + found["discriminator"] == recipe.parameters
    assert found["layers"] == 10
    assert found["generated"] == [2, 3, 64, 64]
    assert found["judged"] == [2, 1, 1, 1]
    assert scale == "paper" or found["generator"] + found["discriminator"] < 200_000


@pytest.mark.parametrize("scale", ["paper", "tiny"])
def test_torchs_counter_agrees_with_its_flops(in_ranks: InRanks, scale: Scale) -> None:
    [count] = in_ranks("count_flops", recipe="gan", scale=scale)
    assert count == models.find("gan", scale).flops_per_example


# --- How it trains ---


def test_each_network_gets_the_gradient_of_its_own_loss_alone(in_ranks: InRanks) -> None:
    """Held against the two losses as they are written by hand, one network at a time."""
    [worst] = in_ranks("gan_gradients_by_hand")
    assert worst < 1e-5


def test_it_needs_torch_alone_and_no_settings_are_refused() -> None:
    for count in (1, 2):
        for settings in [NAIVE, *search_space(count)]:
            missing = obstacle(models.find("gan"), settings, count, Stack({"torch": "2.10.0"}, None))
            assert (missing is None) == (settings.library != "deepspeed")


def test_it_runs_in_the_benchmark_and_stands_for_no_cell(fork_server: ForkServer, tmp_path: Path) -> None:
    [trial] = trials(Options(("gan",), "naive", "tiny", (2,)), [])
    record = run_trial(trial, Bench(fork_server, Stack(installed_packages(), None), None, tmp_path))
    assert (record.recipe, record.status, record.batch.micro_batch) == ("gan", "ok", 8), record.reason
    assert record.as_run.weights == record.as_run.moments_held
    assert record.derived.true_step is not None
    assert record.derived.true_step > 0
    assert {verdict.verdict for verdict in judge_tables([record], 0.15)} == {"not_measured"}
