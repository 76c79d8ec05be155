"""Every way to distribute training trains what one process trains on the joined batch.

Two gloo ranks with different data take three steps of two accumulated micro-steps; losses and all weights are held
against one process that takes the whole batch at once. The weights are compared by how they moved. Negative controls
show that each fault the comparison is there for would fail it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest

InRanks = Callable[..., list[Any]]

MODES = {
    "naive": "DistributedDataParallel",
    "zero_1": "DeepSpeedEngine(DeepSpeedZeroOptimizer)",
    "zero_2": "DeepSpeedEngine(DeepSpeedZeroOptimizer)",
    "zero_3": "DeepSpeedEngine(DeepSpeedZeroOptimizer_Stage3)",
    "fsdp_2": "FSDPModule",
    "fsdp_3": "FSDPModule",
}
OFFLOADED = [f"{mode}+offloading" for mode in MODES if mode != "naive"]
CHECKPOINTED = ["checkpointing", *(f"checkpointing+{mode}" for mode in ("zero_2", "zero_3+offloading", "fsdp_3"))]

EXACT = 1e-5  # of the way the weights moved: what the order of fp32 sums makes is below 1e-6
HALF = 0.03  # bf16 has 8 bits


@dataclass(frozen=True)
class Training:
    """What each rank told, the loss of each step, and the weights at the start and the end, (ranks, weights)."""

    reported: list[dict[str, Any]]
    losses: numpy.ndarray
    start: numpy.ndarray
    end: numpy.ndarray

    @classmethod
    def read(cls, reported: list[dict[str, Any]], folder: Path) -> "Training":
        saved = [numpy.load(folder / f"{rank}.npz") for rank in range(len(reported))]
        return cls(
            reported,
            losses=numpy.mean([rank["losses"] for rank in reported], axis=0),
            start=numpy.stack([weights["start"] for weights in saved]),
            end=numpy.stack([weights["end"] for weights in saved]),
        )


@pytest.fixture(scope="module")
def train(in_ranks: InRanks, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Training]:
    """Trains on two ranks, in two micro-steps of two examples."""

    def trained(settings: str, recipe: str = "pythia-1b", **changes: Any) -> Training:
        folder = tmp_path_factory.mktemp("weights")
        arguments = {"world": 2, "micro_batch": 2, "accumulation": 2, **changes}
        return Training.read(
            in_ranks("train", recipe=recipe, settings=settings, folder=str(folder), **arguments), folder
        )

    return trained


@pytest.fixture(scope="module")
def alone(train: Callable[..., Training]) -> Callable[..., Training]:
    """The same training in one process, on all eight examples at once."""
    return cache(lambda **changes: train("naive", world=1, micro_batch=8, accumulation=1, **changes))


def apart(one: Training, other: Training) -> float:
    """How far apart two trainings moved the weights, over how far they moved them, on the worst rank."""
    moved = other.end[0] - other.start[0]
    return max(numpy.linalg.norm((one.end - one.start) - moved, axis=1) / numpy.linalg.norm(moved))


def alike(one: Training, other: Training) -> bool:
    return apart(one, other) < EXACT and numpy.allclose(one.losses, other.losses, rtol=1e-6, atol=0)


# --- One process is the measure of all others ---


@pytest.mark.parametrize("clip", [None, 0.1])
def test_one_process_trains_as_written_by_hand(
    in_ranks: InRanks, alone: Callable[..., Training], tmp_path: Path, clip: float | None
) -> None:
    reported = in_ranks("train_by_hand", recipe="pythia-1b", folder=str(tmp_path), examples=8, clip=clip)
    assert alike(alone(clip=clip), Training.read(reported, tmp_path))
    [rank] = alone(clip=clip).reported
    assert rank["wrapper"] == "DistributedDataParallel", "as the authors' launcher has one process wrapped, too"


def test_one_process_that_accumulates_trains_as_on_the_whole_batch(
    train: Callable[..., Training], alone: Callable[..., Training]
) -> None:
    assert alike(train("naive", world=1, accumulation=4), alone())


# --- Every mode ---


@pytest.mark.parametrize("settings", [*MODES, *OFFLOADED, *CHECKPOINTED])
def test_a_mode_trains_as_one_process_does_and_is_what_it_is_called(
    train: Callable[..., Training], alone: Callable[..., Training], settings: str
) -> None:
    training = train(settings)
    assert alike(training, alone())

    words = settings.split("+")
    mode = next((word for word in words if word in MODES), "naive")
    for rank in training.reported:
        assert rank["training"], "dropout takes its time, too"
        assert not rank["gradients_left"], "the next micro-step has none to add to"
        assert rank["wrapper"] == MODES[mode]
        assert rank["optimizer"] == "torch Adam (tensor by tensor)"
        assert rank["weights"] == pytest.approx(0.5 if mode in ("zero_3", "fsdp_2", "fsdp_3") else 1, rel=0.02)
        assert rank["moments"] == pytest.approx(1 if mode == "naive" else 0.5, rel=0.02)
        assert rank["offloads"] == ("offloading" in words)
        assert rank["forwards"] == (2 if "checkpointing" in words else 1)


@pytest.mark.parametrize("settings", ["zero_1+offloading", "zero_3+offloading", "fsdp_3+offloading"])
def test_offloading_on_one_device_trains_the_same(
    train: Callable[..., Training], alone: Callable[..., Training], settings: str
) -> None:
    training = train(settings, world=1, accumulation=4)
    assert alike(training, alone())
    assert training.reported[0]["offloads"]


def test_zero_3_frees_the_weights_that_it_gathered(
    train: Callable[..., Training], alone: Callable[..., Training]
) -> None:
    training = train("zero_3", wide=True)
    assert alike(training, alone(wide=True))
    # DeepSpeed keeps weights below 100,000 elements whole on every rank.
    assert all(rank["lying_around"] < 0.5 for rank in training.reported)


@pytest.mark.parametrize("settings", ["naive", "zero_1", "zero_3", "fsdp_3"])
def test_clipping_is_by_the_norm_over_all_ranks(
    train: Callable[..., Training], alone: Callable[..., Training], settings: str
) -> None:
    assert apart(alone(clip=0.1), alone()) > 0.1  # the clip is active
    assert alike(train(settings, clip=0.1), alone(clip=0.1))


@pytest.mark.parametrize("settings", ["zero_3", "fsdp_3"])
@pytest.mark.parametrize("recipe", ["roberta", "mamba", "convnext", "vit"])
def test_every_family_trains_as_one_process_does(
    train: Callable[..., Training], alone: Callable[..., Training], recipe: str, settings: str
) -> None:
    assert alike(train(settings, recipe), alone(recipe=recipe))


@pytest.mark.parametrize("settings", ["naive", "checkpointing+zero_2", "fsdp_3+offloading"])
def test_the_gan_trains_as_one_process_does_on_micro_batches_of_that_size(
    train: Callable[..., Training], settings: str
) -> None:
    """Its batch normalisation sees one micro batch at a time, so the whole batch at once would differ."""
    assert alike(train(settings, "gan"), train("naive", "gan", world=1, accumulation=4))


@pytest.mark.parametrize("settings", ["naive", "zero_3", "fsdp_2"])
def test_half_precision_trains_the_same_within_its_rounding(
    train: Callable[..., Training], alone: Callable[..., Training], settings: str
) -> None:
    training = train(settings, precision="bf16")
    assert EXACT < apart(training, alone()) < HALF
    assert {(rank["ran_precision"], rank["scales_loss"]) for rank in training.reported} == {("bf16", False)}


def test_pixels_reach_a_model_that_zero_made_half_precision_as_it_is(
    train: Callable[..., Training], alone: Callable[..., Training]
) -> None:
    assert apart(train("zero_2", "vit", precision="bf16"), alone(recipe="vit")) < HALF


@pytest.mark.parametrize(("settings", "ran"), [("naive", "fp16"), ("zero_3", "bf16"), ("fsdp_3", "fp16")])
def test_zero_runs_fp16_recipes_in_bf16_on_a_cpu(
    train: Callable[..., Training], alone: Callable[..., Training], settings: str, ran: str
) -> None:
    training = train(settings, precision="fp16")
    assert apart(training, alone()) < HALF
    for rank in training.reported:
        assert (rank["ran_precision"], rank["scales_loss"]) == (ran, ran == "fp16")


@pytest.mark.parametrize("settings", ["naive", "fsdp_3"])
def test_fp16_gradients_are_clipped_by_their_own_norm_not_the_scaled_ones(
    train: Callable[..., Training], alone: Callable[..., Training], settings: str
) -> None:
    assert apart(train(settings, precision="fp16", clip=0.1), alone(clip=0.1)) < HALF


@pytest.mark.parametrize(("settings", "whole"), [("fsdp_2", True), ("fsdp_3", False)])
def test_fsdp_keeps_layers_gathered_in_stage_2_alone_and_works_in_half_precision(
    in_ranks: InRanks, settings: str, whole: bool
) -> None:
    for reported in in_ranks("fsdp_policy", world=2, settings=settings):
        assert reported == {"dtypes": [["torch.bfloat16", "torch.bfloat16"]], "layers": [whole], "around": [True]}


def test_zeros_configuration_is_the_authors_on_a_gpu(in_ranks: InRanks) -> None:
    def reported(recipe: str, settings: str, cuda: bool = True) -> dict[str, Any]:
        asked = {"recipe": recipe, "settings": f"free_lunch+{settings}", "cuda": cuda, "accumulation": 4}
        return in_ranks("deepspeed_configuration", **asked)[0]

    offloaded, host = reported("pythia-1b", "zero_3+offloading"), {"device": "cpu", "pin_memory": True}
    assert offloaded["zero_optimization"] == {
        "stage": 3,
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 10**9,
        "reduce_bucket_size": 2048 * 2048,
        "stage3_prefetch_bucket_size": 3_774_873,  # nine tenths of it
        "stage3_param_persistence_threshold": 10 * 2048,
        "stage3_max_live_parameters": 10**9,
        "stage3_max_reuse_distance": 10**9,
        "offload_optimizer": host,
        "offload_param": host,
    }
    assert (offloaded["gradient_accumulation_steps"], offloaded["gradient_clipping"]) == (4, 1.0)
    assert (offloaded["bf16"], "fp16" in offloaded) == ({"enabled": True}, False)
    zero_2 = reported("roberta", "zero_2+offloading")
    assert zero_2["zero_optimization"] == {
        "stage": 2,
        "allgather_partitions": True,
        "allgather_bucket_size": 2 * 10**8,
        "overlap_comm": True,
        "reduce_scatter": True,
        "reduce_bucket_size": 2 * 10**8,
        "contiguous_gradients": True,
        "offload_optimizer": host,
    }
    assert zero_2["gradient_clipping"] == 0.0
    assert "bf16" not in zero_2
    assert zero_2["fp16"] == {
        "enabled": True,
        "loss_scale": 0,  # dynamic
        "loss_scale_window": 1000,
        "initial_scale_power": 16,
        "hysteresis": 2,
        "min_loss_scale": 1,
    }
    assert zero_2["optimizer"]["type"] == "Adam"
    assert zero_2["optimizer"]["params"] == {
        "lr": 4e-4,
        "betas": [0.9, 0.98],
        "eps": 1e-8,
        "weight_decay": 0.0,
        "adam_w_mode": False,
    }
    assert reported("mamba", "zero_1")["optimizer"]["params"]["adam_w_mode"]
    assert reported("mamba", "zero_1")["zero_optimization"] == {"stage": 1}
    widths = {"pythia-6.9b": 4096, "roberta": 1024, "mamba": 2560, "convnext": 2048, "vit": 1024}
    assert {id: reported(id, "zero_3")["zero_optimization"]["reduce_bucket_size"] for id in widths} == {
        id: width**2 for id, width in widths.items()
    }, "what the model's configuration calls its hidden size, of several the largest"
    assert "optimizer" not in reported("mamba", "zero_1", cuda=False), "torch's stands in for one that is built first"


def test_checkpointing_runs_every_layer_of_every_recipe_twice(in_ranks: InRanks) -> None:
    [without], [with_] = in_ranks("recomputed", settings="naive"), in_ranks("recomputed", settings="checkpointing")
    assert len(without) == len(with_) == 9
    assert set(without.values()) == {1}
    assert set(with_.values()) == {2}


@pytest.mark.parametrize(("settings", "splits"), [("free_lunch", True), ("free_lunch+checkpointing", False)])
def test_torch_compile_splits_no_graph_that_checkpointing_computes_again(
    in_ranks: InRanks, settings: str, splits: bool
) -> None:
    assert in_ranks("splits_graphs_for_ddp", world=2, settings=settings) == [splits] * 2


def test_weights_that_are_handed_one_gradient_accumulate_each_its_own(in_ranks: InRanks) -> None:
    assert in_ranks("gradients_of_two_biases", steps=2) == [[[3.0, 3.0]] * 2]


# --- Negative controls: the comparison fails where it should ---


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ("naive", {"reduce": False}),  # sharded gradients are reduced in every micro-step, whatever is asked
        ("naive", {"same_data": True}),
        ("naive", {"divide": False}),
        ("zero_3", {"same_data": True}),
        ("zero_3", {"divide": False}),
        ("fsdp_3", {"same_data": True}),
        ("fsdp_3", {"divide": False}),
    ],
)
def test_a_faulty_training_is_not_alike(
    train: Callable[..., Training], alone: Callable[..., Training], settings: str, fault: dict[str, bool]
) -> None:
    training = train(settings, **fault)
    assert apart(training, alone()) > 1000 * EXACT
    assert not alike(training, alone())


@pytest.mark.parametrize(
    ("ran", "claimed", "what"),
    [
        ("naive", "fsdp_3", "weights"),
        ("naive", "zero_1", "moments"),
        ("zero_2", "zero_3", "weights"),
        ("fsdp_3", "naive", "weights"),
        ("zero_1", "naive", "moments"),
    ],
)
def test_a_wrapper_that_holds_another_share_than_its_settings_promise_is_caught(
    in_ranks: InRanks, ran: str, claimed: str, what: str
) -> None:
    for complaint in in_ranks("claim", world=2, ran=ran, claimed=claimed):
        assert f" {what} on rank " in complaint
        assert f"{claimed} should hold about" in complaint
