"""The memory model: what engines hold, micro batches as Appendix J has them, and what fits where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from repro import models
from repro.machine.support import host_bytes
from repro.paper.arithmetic import paper_gpu, recipe_of
from repro.paper.gpus import Gpu, catalogue, find
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings, Sharding, search_space
from repro.paper.tables import Table, cells, published_settings
from repro.predict import fits, traces
from repro.predict.forecast import forecast, search
from repro.predict.hardware import Machine
from repro.predict.memory import (
    ALL_OF_IT,
    Allowance,
    largest_micro_batch,
    moments,
    most_examples,
    peak_memory,
    usable,
    variant_of,
    workspace,
)

NOTHING_ASIDE = Allowance(reserved=0.0, context=0.0, group=0.0, spread=1.0)


@pytest.fixture(scope="module")
def fitted() -> fits.Constants:
    return fits.fitted_constants()[fits.EVERYTHING]


def largest(model: str, settings: Settings, gpu: Gpu, gpus: int, allowance: Allowance) -> int:
    recipe = models.find(model)
    trace = traces.find(recipe.id, variant_of(settings))
    return largest_micro_batch(recipe, trace, settings, gpu, gpus, allowance)


@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_mixed_precision_adam_peaks_at_20_bytes_a_weight_and_ddp_adds_4(gpus: int) -> None:
    recipe = models.find("pythia-2.8b")
    trace = traces.find(recipe.id, "custom")
    update = moments(recipe, trace, FREE_LUNCH, gpus)[-1].at(1, workspace=0.0, spread=1.0)
    assert (update.peak, update.buckets) == (24 * trace.parameters, 4 * trace.parameters)


@pytest.mark.parametrize("variant", ["naive", "custom"])
def test_the_authors_stack_returns_logits_and_of_pythia_keys_and_values_twice(variant: traces.Variant) -> None:
    trace = traces.find("pythia-160m", variant)
    assert trace.rest.cost("returned").per_example == pytest.approx((2 + 4) * 2049 * 50304), (
        "in half precision and in fp32"
    )
    kept = trace.layers[0].cost("returned").per_example
    assert kept >= 2 * 4 * 2049 * 768, "fp32; what the backward pass needs is there in any case"
    assert traces.find("roberta", "custom").layers[0].cost("returned").per_example == 0
    for recipe in ("mamba", "vit"):  # the one returns fp32, the other trains in it
        assert traces.find(recipe, "custom").total("returned").per_example == 0


def test_no_other_stack_copies_what_is_returned_nor_does_deepspeed() -> None:
    for (recipe, _, _), trace in traces.load(traces.shipped()[-1]).items():
        assert trace.total("returned") == traces.NOTHING, recipe
    assert traces.find("pythia-160m", "half").total("returned") == traces.NOTHING


def test_a_checkpointed_model_returns_no_keys_and_values() -> None:
    recipe, trace = models.find("pythia-160m"), traces.find("pythia-160m", "custom")
    plain, checkpointed = (
        moments(recipe, trace, Settings(True, checkpointing), 1)[1].activations for checkpointing in (False, True)
    )
    layers = trace.layers[0]
    less = layers.cost("saved") + layers.cost("inputs") * -1 + layers.cost("returned")
    assert plain.per_example - checkpointed.per_example == pytest.approx(12 * less.per_example)


@pytest.mark.parametrize(
    ("settings", "kept", "gathered", "gradients", "optimizer", "buckets"),
    [  # bytes a weight: kept and gathered of all, gradients as they end, states; elements of buckets
        ("zero_1", 2, 0, 2, 12 / 8, 5e8),
        ("zero_2", 2, 0, 2 / 8, 12 / 8, 4e8),
        ("zero_3", 2 / 8, 2e9, 2 / 8, 12 / 8, 0),
        ("zero_1+offloading", 2, 0, 2, 0, 5e8),
        ("zero_2+offloading", 2, 0, 0, 0, 4e8),
        ("zero_3+offloading", 0, 2e9, 0, 0, 0),
        ("fsdp_2", 4 / 8 + 2, 0, 4 / 8, 8 / 8, None),
        ("fsdp_2+offloading", 2, 0, 0, 0, None),
    ],
)
def test_what_a_gpu_of_eight_holds_of_a_sharded_model(
    settings: str, kept: float, gathered: float, gradients: float, optimizer: float, buckets: float | None
) -> None:
    recipe, wanted = models.find("pythia-2.8b"), Settings.parse(f"free_lunch+{settings}")
    trace = traces.find(recipe.id, variant_of(wanted))
    ending = moments(recipe, trace, wanted, 8)[3]
    assert ending.weights == pytest.approx(kept * trace.parameters + gathered)
    assert ending.gradients == pytest.approx(gradients * trace.parameters)
    assert ending.optimizer == pytest.approx(optimizer * trace.parameters)
    rest, layer = trace.rest.cost("parameters").fixed, trace.layers[0].cost("parameters").fixed
    assert ending.buckets == pytest.approx(2 * (rest + layer if buckets is None else buckets))


@pytest.mark.parametrize(
    ("settings", "each"),
    [  # bytes a weight of all: weights, gradients, states, and a copy of a GPU's share in fp32
        ("zero_1", 2 + 2 + 12 / 8 + 4 / 8),
        ("zero_2", 2 + (2 + 12 + 4) / 8),
        ("zero_3", (2 + 2 + 12 + 4) / 8),
        ("fsdp_2", (4 + 4 + 8 + 4) / 8),
        ("fsdp_3", (4 + 4 + 8 + 4) / 8),
        ("zero_1+offloading", 2 + 2),  # what the host updates takes nothing here
        ("zero_2+offloading", 2),
        ("zero_3+offloading", 0),
        ("fsdp_3+offloading", 0),
    ],
)
def test_in_the_update_nothing_is_gathered_and_no_bucket_is_left(settings: str, each: float) -> None:
    recipe, wanted = models.find("pythia-2.8b"), Settings.parse(f"free_lunch+{settings}")
    trace = traces.find(recipe.id, variant_of(wanted))
    update = moments(recipe, trace, wanted, 8)[-1].at(1, workspace=0.0, spread=1.0)
    assert update.peak == pytest.approx(each * trace.parameters)


def test_fsdp_3_gathers_two_layers_and_the_rest_at_a_time() -> None:
    recipe, settings = models.find("pythia-2.8b"), Settings(True, sharding="fsdp_3")
    trace = traces.find(recipe.id, "custom")
    rest, layer = trace.rest.cost("parameters").fixed, trace.layers[0].cost("parameters").fixed
    backward = moments(recipe, trace, settings, 8)[0]
    assert backward.weights == pytest.approx(4 / 8 * trace.parameters + 2 * (rest + 2 * layer))


def test_only_several_gpus_spend_memory_on_a_process_group() -> None:
    allowance = Allowance(context=1e9, group=0.5e9)
    assert [workspace(allowance, gpus) for gpus in (1, 2, 8)] == [1e9, 1.5e9, 1.5e9]


@pytest.mark.parametrize("settings", search_space(2), ids=lambda settings: settings.id)
def test_the_largest_micro_batch_fits_and_its_double_does_not(settings: Settings, fitted: fits.Constants) -> None:
    recipe, gpu = models.find("pythia-1b"), paper_gpu("RTX 3090")
    trace = traces.find(recipe.id, variant_of(settings))
    size = largest_micro_batch(recipe, trace, settings, gpu, 2, fitted.allowance)
    room = usable(gpu, fitted.allowance)
    if size:
        assert peak_memory(recipe, trace, settings, 2, size, fitted.allowance).peak <= room
    assert peak_memory(recipe, trace, settings, 2, 2 * size or 1, fitted.allowance).peak > room


@pytest.mark.parametrize(("share", "size"), [(1, 1), (3, 1), (6, 2), (24, 8), (40, 8), (48, 16)])
def test_with_room_the_micro_batch_is_the_largest_power_of_two_in_the_share(
    share: int, size: int, fitted: fits.Constants
) -> None:
    recipe = replace(models.find("pythia-160m"), batch_size=4 * share)
    vast = replace(paper_gpu("H100"), memory_gb=10_000.0)
    trace = traces.find(recipe.id, "custom")
    assert largest_micro_batch(recipe, trace, FREE_LUNCH, vast, 4, fitted.allowance) == size


def test_a_model_of_ones_own_takes_the_largest_divisor_that_fits(fitted: fits.Constants) -> None:
    recipe = replace(models.find("pythia-160m"), id="mine-01234567", batch_size=1000)
    trace, gpu = traces.find("pythia-160m", "custom"), paper_gpu("A100")
    most = most_examples(recipe, trace, FREE_LUNCH, gpu, 1, fitted.allowance)
    size = largest_micro_batch(recipe, trace, FREE_LUNCH, gpu, 1, fitted.allowance)
    assert (size, 1000 % size) == (max(each for each in range(1, int(most) + 1) if 1000 % each == 0), 0)
    assert size > 8, "the largest power of two that divides 1000"


def test_a_micro_batch_is_a_power_of_two_within_a_gpus_share_of_the_batch(fitted: fits.Constants) -> None:
    for gpu in catalogue():
        for gpus in (1, 8):
            for settings in search_space(gpus):
                size = largest("mamba", settings, gpu, gpus, fitted.allowance)
                assert size <= 128 // gpus
                assert size & (size - 1) == 0


@pytest.mark.parametrize("sharding", ["none", "zero_2", "fsdp_3"])
def test_into_what_some_examples_take_go_as_many(sharding: Sharding) -> None:
    recipe, settings = models.find("pythia-1b"), Settings(True, sharding=sharding)
    *backward, _ = moments(recipe, traces.find(recipe.id, variant_of(settings)), settings, 8)
    for moment in backward:
        also = replace(moment, activations=moment.activations + traces.Linear(1e9, 0.0))  # whatever the micro batch
        taken = also.at(8, workspace=0.0, spread=1.1).peak
        assert also.examples(taken, spread=1.1) == pytest.approx(8)


def activations(model: str, moment: int) -> Iterator[float]:
    """Bytes at a moment, without checkpointing and with it."""
    recipe, trace = models.find(model), traces.find(model, "custom")
    for settings in (FREE_LUNCH, Settings(True, checkpointing=True)):
        yield moments(recipe, trace, settings, 1)[moment].at(8, workspace=0.0, spread=1.0).activations


@pytest.mark.parametrize("model", models.IDS)
def test_as_backward_starts_checkpointing_holds_the_inputs_of_layers_alone(model: str) -> None:
    trace = traces.find(model, "custom")
    whole, kept = activations(model, 0)
    saved = sum(part.count * part.cost("saved").at(8) for part in trace.layers)
    taken_in = trace.total("inputs").at(8)
    assert 0 < taken_in < saved
    assert whole - kept == pytest.approx(saved - taken_in)


@pytest.mark.parametrize("model", models.IDS)
def test_within_the_layers_checkpointing_holds_what_the_largest_unit_saves_again(model: str) -> None:
    trace = traces.find(model, "custom")
    whole, kept = activations(model, 2)
    saved = sum(part.count * part.cost("saved").at(8) for part in trace.layers)
    unit = max(part.count / part.units * part.cost("saved").at(8) for part in trace.layers)
    assert whole == pytest.approx(trace.total("saved").at(8) + trace.rest.cost("body").at(8))
    assert whole - kept == pytest.approx(saved - unit - trace.total("inputs").at(8))


def test_fsdp_keeps_no_half_precision_copies_as_it_gathers_weights_so() -> None:
    recipe, trace = models.find("pythia-1b"), traces.find("pythia-1b", "custom")
    for checkpointing, copies in ((False, trace.total("copies")), (True, trace.rest.cost("copies"))):
        torch, fsdp = (
            moments(recipe, trace, Settings(True, checkpointing, sharding), 8)[0].activations.at(4)
            for sharding in ("none", "fsdp_2")
        )
        assert copies.at(4) > 0
        assert torch - fsdp == pytest.approx(copies.at(4)), "a checkpointed layer keeps none in any case"


def test_gradients_come_as_the_backward_pass_goes() -> None:
    recipe = models.find("pythia-2.8b")
    for settings, each in ((FREE_LUNCH, 4), (Settings(True, sharding="zero_1"), 2)):
        trace = traces.find(recipe.id, variant_of(settings))
        whole, rest = each * trace.parameters, each * trace.rest.cost("parameters").fixed
        start, returned, within, end, update = moments(recipe, trace, settings, 8)
        assert (end.gradients, update.gradients) == (whole, whole)
        assert (start.gradients, returned.gradients, within.gradients) == (0, 0, rest)
        assert end.activations == trace.rest.cost("saved"), "what is before the layers is last"


def test_checkpointing_and_more_memory_never_shrink_the_micro_batch(fitted: fits.Constants) -> None:
    for model in models.IDS:
        small, large = (largest(model, FREE_LUNCH, paper_gpu(gpu), 1, fitted.allowance) for gpu in ("RTX 3090", "A100"))
        kept = largest(model, Settings(True, checkpointing=True), paper_gpu("A100"), 1, fitted.allowance)
        assert small <= large <= kept


def test_one_host_does_not_hold_the_offloaded_states_of_the_largest_model() -> None:
    settings = Settings(True, sharding="zero_3", offloading=True)
    assert 64e9 < host_bytes(models.find("pythia-6.9b"), settings) < 2 * 64e9
    recipe, fitted = models.find("pythia-6.9b"), fits.fitted_constants()["everything"]
    on_one, on_two = (forecast(recipe, Machine(paper_gpu("A100"), gpus), settings, fitted) for gpus in (1, 2))
    assert (on_one.feasible, on_one.reason) == (False, "a host of 64 GB a GPU does not hold what is offloaded")
    assert on_two.feasible
    assert forecast(recipe, Machine(paper_gpu("A100"), 1), settings, fitted, papers_hosts=False).feasible


def test_132_of_appendix_js_micro_batches_are_exact_and_all_within_2x(
    fitted: fits.Constants,
) -> None:
    exact = near = 0
    for row in published_settings():
        sizes = [
            largest(recipe_of(row.model).id, reading, paper_gpu(row.gpu), row.gpus, fitted.allowance)
            for reading in row.readings()
        ]
        exact += row.mbs in sizes
        near += any(row.mbs / 2 <= size <= 2 * row.mbs for size in sizes)
    assert exact == 132
    assert near == 140


@pytest.mark.parametrize("table", ["1", "4"])
def test_every_cell_is_feasible_where_the_paper_found_it_so(table: Table, fitted: fits.Constants) -> None:
    known = [cell for cell in cells(table) if cell.state != "lost"]
    assert len(known) >= 143
    for cell in known:
        assert search(cell, fitted)[0].feasible == (cell.state == "days"), cell


def test_naive_training_needs_more_memory_than_custom_kernels() -> None:
    for model in ("pythia-160m", "pythia-2.8b", "mamba", "vit"):
        recipe = models.find(model)
        naive, custom = (
            peak_memory(recipe, traces.find(model, variant_of(settings)), settings, 1, 2, NOTHING_ASIDE)
            for settings in (NAIVE, FREE_LUNCH)
        )
        assert naive.activations >= custom.activations


@pytest.mark.parametrize(("name", "mib"), [("T4", 15360), ("L40S", 46068), ("A100", 81920), ("RTX 3090", 24576)])
def test_memory_that_error_correction_takes_is_not_there_to_use(name: str, mib: int) -> None:
    gpu = find(name)
    assert gpu is not None
    assert usable(gpu, ALL_OF_IT) == mib * 2**20
    assert usable(gpu, replace(ALL_OF_IT, reserved=0.25)) == 0.75 * mib * 2**20
