"""The time model: nothing runs faster than the hardware allows, and a step is the sum of its parts."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest

from repro import models
from repro.console import UserError
from repro.models.recipe import Recipe
from repro.paper.arithmetic import paper_gpu
from repro.paper.gpus import catalogue
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings, search_space
from repro.paper.tables import COUNTS, cells
from repro.predict import calibration, traces
from repro.predict.forecast import forecast, search
from repro.predict.hardware import Machine, Probed, gpu_named
from repro.predict.memory import variant_of
from repro.predict.time import BOUNDS, Rates, Step, stretches, timed_step, workload

A100 = Machine(paper_gpu("A100"), 1)


def step(
    recipe: Recipe, trace: traces.Trace, settings: Settings, machine: Machine, examples: int, rates: Rates
) -> Step:
    """The seconds of a training step, part by part."""
    return timed_step(recipe, trace, settings, machine, examples, rates).parts


@pytest.fixture(scope="module")
def fitted() -> calibration.Calibration:
    return calibration.calibrations()[calibration.EVERYTHING]


def test_every_rate_of_every_fit_stays_within_what_the_hardware_offers() -> None:
    shares = set(asdict(Rates())) - {"launch", "host_memory", "handling"}
    for fit in calibration.calibrations().values():
        for name, (low, high) in BOUNDS.items():
            assert low <= getattr(fit.rates, name) <= high
        assert all(getattr(fit.rates, name) <= 1 for name in shares)
    assert set(BOUNDS) == set(asdict(Rates()))


@pytest.mark.parametrize("model", models.IDS)
@pytest.mark.parametrize("gpu", ["RTX 3090", "A6000", "A100", "H100"])
def test_no_settings_beat_the_peak_or_the_memory(model: str, gpu: str, fitted: calibration.Calibration) -> None:
    recipe, machine = models.find(model), Machine(paper_gpu(gpu), 8)
    for settings in [NAIVE, *search_space(8)]:
        found = forecast(recipe, machine, settings, fitted)
        if found.step is None or found.utilisation is None:
            continue
        # Causal attention skips half of its products, which the closed form of model FLOPs counts.
        assert 0 < found.utilisation < 1.25
        assert found.step.compute + found.step.memory > 0
        moved = workload(traces.find(model, variant_of(settings)), settings, found.micro_batch, True).moved
        assert found.step.total > moved * (found.accumulation or 0) / machine.bandwidth * 0.99


def test_perfect_rates_give_the_rooflines_time() -> None:
    recipe, machine = models.find("roberta"), Machine(paper_gpu("A100"), 1)
    perfect = Rates(half=1.0, attention=1.0, hbm=1.0, launch=1e-12)
    found = step(recipe, traces.find("roberta", "naive"), NAIVE, machine, 8, perfect)
    work = workload(traces.find("roberta", "naive"), NAIVE, 8, False)
    assert {kind for kind, _, _ in work.arithmetic} == {"matmul/half", "batched/half"}
    products = sum(
        math.hypot(flops / 312e12, moved / 2039e9)
        for each in stretches(traces.find("roberta", "naive"), NAIVE, 8, False)
        for _, flops, moved in each.arithmetic
    )
    assert found.compute == pytest.approx(products * 1024, rel=1e-6)
    assert found.memory == pytest.approx(work.moved / 2039e9 * 1024, rel=1e-6)
    assert found.communication == found.offload == 0


def test_a_step_is_the_sum_of_its_parts_and_days_follow(fitted: calibration.Calibration) -> None:
    found = forecast(models.find("pythia-1b"), Machine(paper_gpu("A100"), 4), FREE_LUNCH, fitted)
    assert found.step is not None
    assert found.days is not None
    assert found.step.total == pytest.approx(sum(asdict(found.step).values()))
    assert found.days.value == pytest.approx(found.step.total * 143_000 / 86_400)
    assert found.days.low < found.days.value < found.days.high


def test_checkpointing_runs_layers_forward_once_more() -> None:
    trace = traces.find("pythia-1b", "custom")
    plain, again = (
        workload(trace, Settings(True, checkpointing=checkpointing), 4, True) for checkpointing in (False, True)
    )
    products = (
        {kind: flops for kind, flops, _ in plain.arithmetic},
        {kind: flops for kind, flops, _ in again.arithmetic},
    )
    assert 1.25 < products[1]["matmul/half"] / products[0]["matmul/half"] < 4 / 3


def test_compiling_moves_fewer_bytes_in_fewer_kernels() -> None:
    for model in ("pythia-410m", "roberta", "convnext", "vit"):
        trace = traces.find(model, "custom")
        eager, compiled = (workload(trace, FREE_LUNCH, 8, on) for on in (False, True))
        assert compiled.moved < eager.moved
        assert compiled.kernels < eager.kernels


def test_more_gpus_of_a_paper_machine_are_never_slower(fitted: calibration.Calibration) -> None:
    by_place = {(cell.model, cell.gpu, cell.gpus): cell for cell in cells("1")}
    for (model, gpu, gpus), cell in by_place.items():
        days = search(cell, fitted)[0].days
        more = by_place.get((model, gpu, 2 * gpus))
        if days and more and (fewer := search(more, fitted)[0].days):
            assert fewer.value < days.value


@pytest.mark.parametrize("gpu", catalogue(), ids=lambda gpu: gpu.name)
def test_every_gpu_of_the_catalogue_is_predicted(gpu: object, fitted: calibration.Calibration) -> None:
    for gpus in COUNTS:
        found = forecast(models.find("pythia-160m"), Machine(gpu, gpus), FREE_LUNCH, fitted)  # type: ignore[arg-type]
        assert found.days is not None
        assert found.days.value > 0


def test_what_the_gpu_cannot_compute_is_infeasible_and_says_why(fitted: calibration.Calibration) -> None:
    found = forecast(models.find("pythia-1b"), Machine(gpu_named("V100 32 GB"), 8), FREE_LUNCH, fitted)
    assert not found.feasible
    assert (found.micro_batch, found.days) == (0, None)
    assert "bf16 needs an Ampere or newer GPU" in found.reason


@pytest.mark.parametrize(
    ("name", "multiprocessors", "ghz"),  # of each data sheet
    [
        ("A100", 108, 1.41),
        ("H100", 132, 1.98),
        ("A6000", 84, 1.80),
        ("V100 32 GB", 80, 1.53),
        ("T4", 40, 1.59),
        ("RTX 4090", 128, 2.52),
        ("RTX 5090", 170, 2.41),
        ("RTX 2080 Ti", 68, 1.545),
        ("RTX A5000", 64, 1.695),
        ("A10", 72, 1.695),
        ("L4", 58, 2.04),
        ("GH200", 132, 1.98),
    ],
)
def test_loads_and_special_functions_go_by_multiprocessors_and_clock_alone(
    name: str, multiprocessors: int, ghz: float
) -> None:
    assert Machine(gpu_named(name), 1).lanes == pytest.approx(multiprocessors * 128 * ghz * 1e9, rel=0.02)


def test_data_center_gpus_of_the_largest_chips_have_stacked_memory() -> None:
    stacked = {gpu.name.split()[0] for gpu in catalogue() if Machine(gpu, 1).stacked}
    assert stacked == {"V100", "A100", "H100", "H200", "GH200", "B200"}


def test_the_host_updates_fsdps_offloaded_weights_with_an_adam_that_moves_more(
    fitted: calibration.Calibration,
) -> None:
    recipe, machine = models.find("pythia-2.8b"), Machine(paper_gpu("RTX 3090"), 2)
    updates = {}
    for name in ("free_lunch+fsdp_3+offloading", "free_lunch+zero_3+offloading"):
        settings = Settings.parse(name)
        trace = traces.find(recipe.id, variant_of(settings))
        updates[settings.library] = step(recipe, trace, settings, machine, 1, fitted.rates).update
    assert updates["fsdp"] > 2 * updates["deepspeed"]


# Eight GPUs whose link nothing was fitted to, each with an example at a time: 128 micro-steps a step.
TWO_NODES = Machine(paper_gpu("A100"), 4, nodes=2)
PLAIN = Rates(hbm=1.0, host=1.0, overlap=0.0, host_memory=1e10)


@pytest.mark.parametrize(
    ("settings", "sent", "exchanges", "offloaded", "adam", "gathered"),
    [  # bytes a weight that a ring sends, exchanges of 17 units, bytes to and from the host, Adam's, new weights'
        ("free_lunch", 8, 1, 0, 100, 0),
        ("free_lunch+zero_1", 4, 1, 0, 30, 2),
        ("free_lunch+zero_2", 4, 1, 0, 30, 2),
        ("free_lunch+zero_3", 6, 51, 0, 30, 0),
        ("free_lunch+fsdp_2", 4, 34, 0, 100, 0),
        ("free_lunch+fsdp_3", 6, 50, 0, 100, 0),
        ("free_lunch+zero_1+offloading", 4, 1, 2, 30, 2),
        ("free_lunch+zero_3+offloading", 6, 51, 6, 30, 0),
        ("free_lunch+fsdp_2+offloading", 4, 34, 8, 100, 0),
        ("free_lunch+fsdp_3+offloading", 6, 50, 12, 100, 0),
    ],
)
def test_what_settings_exchange_offload_and_update_of_each_weight(
    settings: str, sent: int, exchanges: int, offloaded: int, adam: int, gathered: int
) -> None:
    recipe, wanted = models.find("pythia-1b"), Settings.parse(settings)
    trace = traces.find(recipe.id, variant_of(wanted))
    found = step(recipe, trace, wanted, TWO_NODES, 1, PLAIN)
    ring, share = 7 / 8 * trace.parameters, trace.parameters / 8
    # FSDP keeps what is around the layers gathered between the passes, where it shards the weights.
    kept = trace.rest.cost("parameters").fixed if settings.startswith("free_lunch+fsdp_3") else 0.0
    assert found.communication == pytest.approx((sent * ring - 2 * 7 / 8 * kept) / 25e9 * 128)
    assert found.offload == pytest.approx((offloaded * share - bool(offloaded) * 4 * kept / 8) / 32e9 * 128)
    held = share if wanted.stage else trace.parameters
    updated = held * adam / 1e10 + 2 * share / 32e9 if wanted.offloading else held * adam / 2039e9
    assert found.update == pytest.approx(updated + gathered * ring / 25e9)

    probed = Probed(*(1e18,) * 6, launch=5e-6, ring=25e9, latency=None)
    quick, slow = (
        step(recipe, trace, wanted, replace(TWO_NODES, probed=replace(probed, latency=latency)), 1, PLAIN)
        for latency in (None, 1e-4)
    )
    assert slow.communication - quick.communication == pytest.approx(exchanges * 1e-4 * 128)


def test_a_gpu_of_several_nodes_has_the_share_that_as_many_of_one_have(fitted: calibration.Calibration) -> None:
    recipe = models.find("vit")  # its micro batches are a GPU's whole share of the batch
    for name in ("checkpointing", "checkpointing+zero_3", "checkpointing+fsdp_2"):
        settings = Settings.parse(f"free_lunch+{name}")
        there, here = (forecast(recipe, each, settings, fitted) for each in (TWO_NODES, Machine(paper_gpu("A100"), 8)))
        assert there.step is not None
        assert here.step is not None
        assert (there.micro_batch, there.accumulation, there.memory) == (
            here.micro_batch,
            here.accumulation,
            here.memory,
        )
        assert (there.step.compute, there.step.memory, there.step.launches) == (
            here.step.compute,
            here.step.memory,
            here.step.launches,
        )
        flops = recipe.flops_per_example * recipe.batch_size
        assert there.utilisation == pytest.approx(flops / there.step.total / 8 / 156e12)


def test_of_what_compiling_saves_fsdp_keeps_the_share_that_was_fitted() -> None:
    recipe, settings = models.find("pythia-1b"), Settings(True, sharding="fsdp_2")
    trace, machine = traces.find(recipe.id, "custom"), Machine(paper_gpu("A100"), 2)
    eager, compiled = (workload(trace, settings, 4, on) for on in (False, True))
    for share in (0.0, 0.25, 1.0):
        perfect = Rates(hbm=1.0, hbm_fused=1.0, launch=1.0, handling=0.0, fusion=share)
        found = step(recipe, trace, settings, machine, 4, perfect)
        kernels = share * compiled.kernels + (1 - share) * eager.kernels
        assert found.launches == pytest.approx(kernels * 128)
        moved = share * compiled.moved + (1 - share) * eager.moved
        assert found.memory == pytest.approx(moved / 2039e9 * 128)


def test_fsdp_gathers_weights_in_half_precision_and_casts_none() -> None:
    trace = traces.find("pythia-1b", "custom")
    cast = trace.total("forward/weight_cast/bytes").at(4)
    whole, gathered = (workload(trace, Settings.parse(name), 4, False) for name in ("free_lunch", "free_lunch+fsdp_3"))
    assert cast > 0
    assert whole.moved - gathered.moved == pytest.approx(cast)


@pytest.mark.parametrize(
    ("name", "models_"),
    [
        ("half", set(models.IDS) - {"convnext", "vit"}),
        ("tf32", {"convnext", "vit"}),
        ("depthwise", {"convnext"}),
        ("depthwise_forward", {"convnext", "mamba"}),
        ("scan", {"mamba"}),
    ],
)
def test_what_only_some_models_do_has_a_rate_of_its_own(name: str, models_: set[str]) -> None:
    def compute(model: str, rates: Rates) -> float:
        return step(models.find(model), traces.find(model, "custom"), FREE_LUNCH, A100, 1, rates).compute

    quicker = Rates(**{name: 2 * getattr(Rates(), name)})
    assert {model for model in models.IDS if compute(model, quicker) < compute(model, Rates())} == models_


def test_the_rate_of_attention_is_of_transformers_and_of_no_product_beside_it() -> None:
    recipe, trace = models.find("pythia-1b"), traces.find("pythia-1b", "custom")
    times = [
        step(recipe, trace, FREE_LUNCH, A100, 8, Rates(hbm=1.0, attention=rate, half=half)).compute
        for rate, half in ((0.4, 0.4), (0.2, 0.4), (0.4, 0.2))
    ]
    assert times[0] < times[1] < 1.5 * times[0] < times[2], "most of a transformer's FLOPs are in its products"


@pytest.mark.parametrize("settings", ["free_lunch", "free_lunch+zero_1", "free_lunch+zero_2", "free_lunch+fsdp_3"])
def test_sharded_gradients_are_handled_in_every_micro_step(settings: str) -> None:
    recipe, wanted = models.find("pythia-1b"), Settings.parse(settings)
    trace = traces.find(recipe.id, variant_of(wanted))
    free, handled = (
        step(recipe, trace, wanted, Machine(paper_gpu("A100"), 2), 4, Rates(hbm=1.0, handling=handling))
        for handling in (0.0, 16.0)
    )
    bytes_ = 16 * trace.parameters if wanted.reduces_every_micro_step else 0
    assert handled.memory - free.memory == pytest.approx(bytes_ / 2039e9 * 128, rel=1e-6)


def test_communication_hides_behind_the_backward_pass_as_far_as_that_goes() -> None:
    """About two thirds of what a training step moves is in its backward pass."""
    recipe, trace = models.find("pythia-1b"), traces.find("pythia-1b", "custom")
    share, sharded = (
        workload(trace, each, 1, True).backward for each in (FREE_LUNCH, Settings(True, sharding="fsdp_3"))
    )
    assert 0.5 < share < 0.8
    assert 0.5 < sharded < 0.8
    bare, hidden = (step(recipe, trace, FREE_LUNCH, TWO_NODES, 1, Rates(overlap=overlap)) for overlap in (0.0, 0.5))
    behind = 0.5 * share * (bare.compute + bare.memory + bare.launches)
    assert 0 < behind < bare.communication
    assert bare.communication - hidden.communication == pytest.approx(behind)
    quick = replace(TWO_NODES, nodes=1)
    assert step(recipe, trace, FREE_LUNCH, quick, 4, Rates(overlap=1.0, switch=0.95)).communication == 0


def test_links_are_read_from_the_catalogue() -> None:
    assert Machine(gpu_named("A100"), 4).link == "switch"
    assert Machine(gpu_named("A100"), 4).link_bytes == 300e9
    assert Machine(gpu_named("A6000"), 2).link == "bridge"
    assert Machine(gpu_named("A6000"), 4).link == "pcie"
    assert Machine(gpu_named("RTX 3090"), 2).link_bytes == 32e9
    assert Machine(gpu_named("H100"), 1).link == "none"
    assert Machine(gpu_named("A100"), 8, nodes=2).link == "network"
    assert Machine(gpu_named("A100"), 8, nodes=2).link_bytes == 25e9
    # 16 lanes of 8, 16 and 32 GT/s.
    assert [Machine(gpu_named(name), 1).host_bytes for name in ("T4", "A100", "H100")] == [16e9, 32e9, 64e9]


@pytest.mark.parametrize(
    ("gpu", "gpus", "rate"),
    [
        ("A100", 2, "switch"),
        ("A100", 8, "switch"),
        ("A6000", 2, "bridge"),
        ("A6000", 4, "pcie_4"),
        ("RTX 3090", 2, "pcie_2"),
        ("RTX 3090", 4, "pcie_4"),
        ("RTX 3090", 8, "pcie_8"),
        ("RTX 3090", 16, "pcie_8"),  # the nearest that the paper has
    ],
)
def test_each_link_has_the_rate_that_was_fitted_to_it(gpu: str, gpus: int, rate: str) -> None:
    def communication(**rates: float) -> float:
        machine, trace = Machine(paper_gpu(gpu), gpus), traces.find("roberta", "custom")
        return step(models.find("roberta"), trace, FREE_LUNCH, machine, 1, Rates(overlap=0.0, **rates)).communication

    links = ("switch", "bridge", "pcie_2", "pcie_4", "pcie_8")
    assert communication(**{rate: 0.25}) == pytest.approx(2 * communication(**{rate: 0.5}))
    others = {name: 0.01 for name in links if name != rate}
    assert communication(**{rate: 0.25}, **others) == communication(**{rate: 0.25})


@pytest.mark.parametrize(
    ("gpu", "settings", "own", "others"),
    [
        ("A100", NAIVE, "hbm", ("gddr", "hbm_fused")),
        ("A100", FREE_LUNCH, "hbm_fused", ("gddr_fused", "hbm")),
        ("RTX 3090", NAIVE, "gddr", ("hbm", "gddr_fused")),
        ("RTX 3090", FREE_LUNCH, "gddr_fused", ("hbm_fused", "gddr")),
    ],
)
def test_each_kind_of_memory_has_rates_of_its_own_for_eager_and_fused_loops(
    gpu: str, settings: Settings, own: str, others: tuple[str, str]
) -> None:
    def memory(**rates: float) -> float:
        machine, trace = Machine(paper_gpu(gpu), 1), traces.find("vit", variant_of(settings))
        return step(models.find("vit"), trace, settings, machine, 8, Rates(**rates)).memory

    assert memory(**{own: 0.4}) == pytest.approx(2 * memory(**{own: 0.8}))
    assert memory(**{own: 0.4}, **dict.fromkeys(others, 0.1)) == memory(**{own: 0.4})


def test_a_batch_that_does_not_divide_is_refused(fitted: calibration.Calibration) -> None:
    with pytest.raises(UserError, match="4096, does not divide by 3 GPUs: take"):
        forecast(models.find("vit"), Machine(paper_gpu("A100"), 3), NAIVE, fitted)
    with pytest.raises(UserError, match=r"4096, does not divide by 6 GPUs \(2 nodes of 3\): take"):
        forecast(models.find("vit"), Machine(paper_gpu("A100"), 3, nodes=2), NAIVE, fitted)


@pytest.mark.parametrize(
    ("recipe", "gpu", "settings", "rate", "other"),
    [
        ("pythia-1b", "RTX 3090", NAIVE, "half_geforce", "half"),
        ("pythia-1b", "A6000", NAIVE, "half", "half_geforce"),
        ("vit", "A6000", NAIVE, "full_gddr", "full"),
        ("vit", "H100", NAIVE, "full", "full_gddr"),
    ],
)
def test_products_have_rates_of_their_own_where_cards_differ_in_kind(
    recipe: str, gpu: str, settings: Settings, rate: str, other: str
) -> None:
    def compute(**rates: float) -> float:
        machine, trace = Machine(paper_gpu(gpu), 1), traces.find(recipe, variant_of(settings))
        return step(models.find(recipe), trace, settings, machine, 4, Rates(**rates)).compute

    assert compute(**{rate: 0.2}) > 1.5 * compute(**{rate: 0.4})
    assert compute(**{other: 0.2}) == compute(**{other: 0.4})


@pytest.mark.parametrize(
    ("recipe", "gpu", "paper", "ours"),
    [("convnext", "A100", "depthwise", "depthwise_last"), ("pythia-1b", "H100", "attention", "cudnn")],
)
def test_what_the_papers_stack_runs_by_other_kernels_has_another_rate(
    recipe: str, gpu: str, paper: str, ours: str
) -> None:
    newest = traces.shipped()[-1]

    def compute(stack: traces.Traced, **rates: float) -> float:
        machine, trace = Machine(paper_gpu(gpu), 1), traces.find(recipe, "custom", stack)
        return step(models.find(recipe), trace, FREE_LUNCH, machine, 4, Rates(**rates)).compute

    for stack, own, other in ((traces.PAPER_STACK, paper, ours), (newest, ours, paper)):
        assert compute(stack, **{own: 0.02}) > compute(stack, **{own: 0.04})
        assert compute(stack, **{other: 0.02}) == compute(stack, **{other: 0.04})
