"""The time model: nothing runs faster than the hardware allows, and a step is the sum of its parts."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from repro import models
from repro.console import UserError
from repro.models.recipe import Recipe
from repro.paper.arithmetic import paper_gpu
from repro.paper.gpus import catalogue
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings, search_space
from repro.paper.tables import COUNTS, cells
from repro.predict import fits, traces
from repro.predict.constants import CANDIDATES, Rates
from repro.predict.forecast import forecast, search
from repro.predict.hardware import Machine, Probed, gpu_named
from repro.predict.memory import variant_of
from repro.predict.time import Step, StepModel, stretches

A100 = Machine(paper_gpu("A100"), 1)


def step(
    recipe: Recipe, trace: traces.Trace, settings: Settings, machine: Machine, examples: int, rates: Rates
) -> Step:
    """The seconds of a training step, part by part."""
    return StepModel(recipe, trace, settings, machine, rates).step(examples).parts


def moved(trace: traces.Trace, settings: Settings, examples: int, compiled: bool) -> float:
    """The bytes of a micro-step's operators that only move memory."""
    return sum(each.moved for each in stretches(trace, settings, examples, compiled))


def kernels(trace: traces.Trace, settings: Settings, examples: int, compiled: bool) -> float:
    return sum(each.kernels for each in stretches(trace, settings, examples, compiled))


@pytest.fixture(scope="module")
def fitted() -> fits.Constants:
    return fits.fitted_constants()[fits.EVERYTHING]


def test_every_rate_of_every_fit_is_a_share_of_what_the_hardware_offers() -> None:
    for fit in fits.fitted_constants().values():
        rates = asdict(fit.rates)
        assert 0 < rates.pop("launch") < 1e-4
        assert all(0 < rate <= 1 for rate in rates.values())


def test_a_fit_moves_at_most_six_rates_and_only_candidates() -> None:
    start = asdict(Rates())
    for fit in fits.fitted_constants().values():
        moved = {name for name, rate in asdict(fit.rates).items() if rate != start[name]}
        assert len(moved) <= 6
        assert moved <= set(CANDIDATES)


@pytest.mark.parametrize("model", models.IDS)
@pytest.mark.parametrize("gpu", ["RTX 3090", "A6000", "A100", "H100"])
def test_no_settings_beat_the_peak_or_the_memory(model: str, gpu: str, fitted: fits.Constants) -> None:
    recipe, machine = models.find(model), Machine(paper_gpu(gpu), 8)
    for settings in [NAIVE, *search_space(8)]:
        found = forecast(recipe, machine, settings, fitted)
        if found.step is None or found.utilisation is None:
            continue
        # Causal attention skips half of its products, which the closed form of model FLOPs counts.
        assert 0 < found.utilisation < 1.25
        assert found.step.compute + found.step.memory > 0
        least = moved(traces.find(model, variant_of(settings)), settings, found.micro_batch, True)
        assert found.step.total > least * (found.accumulation or 0) / machine.bandwidth * 0.99


def test_perfect_rates_give_the_rooflines_time() -> None:
    recipe, machine = models.find("roberta"), Machine(paper_gpu("A100"), 1)
    perfect = Rates(matmul_half=1.0, attention=1.0, eager_hbm=1.0, launch=1e-12)
    found = step(recipe, traces.find("roberta", "naive"), NAIVE, machine, 8, perfect)
    work = stretches(traces.find("roberta", "naive"), NAIVE, 8, False)
    assert {kind for each in work for kind, _, _ in each.arithmetic} == {"matmul/half", "batched/half"}
    products = sum(max(flops / 312e12, moved / 2039e9) for each in work for _, flops, moved in each.arithmetic)
    assert found.compute == pytest.approx(products * 1024, rel=1e-6)
    assert found.memory == pytest.approx(sum(each.moved for each in work) / 2039e9 * 1024, rel=1e-6)
    assert found.communication == found.offload == 0


def test_a_step_is_the_sum_of_its_parts_and_days_follow(fitted: fits.Constants) -> None:
    found = forecast(models.find("pythia-1b"), Machine(paper_gpu("A100"), 4), FREE_LUNCH, fitted)
    assert found.step is not None
    assert found.days is not None
    assert found.step.total == pytest.approx(sum(asdict(found.step).values()))
    assert found.days.value == pytest.approx(found.step.total * 143_000 / 86_400)
    assert found.days.low < found.days.value < found.days.high


def test_checkpointing_runs_layers_forward_once_more() -> None:
    trace = traces.find("pythia-1b", "custom")

    def products(checkpointing: bool) -> float:
        work = stretches(trace, Settings(True, checkpointing=checkpointing), 4, True)
        return sum(flops for each in work for kind, flops, _ in each.arithmetic if kind == "matmul/half")

    assert 1.25 < products(True) / products(False) < 4 / 3


def test_compiling_moves_fewer_bytes_in_fewer_kernels() -> None:
    for model in ("pythia-410m", "roberta", "convnext", "vit"):
        trace = traces.find(model, "custom")
        assert moved(trace, FREE_LUNCH, 8, True) < moved(trace, FREE_LUNCH, 8, False)
        assert kernels(trace, FREE_LUNCH, 8, True) < kernels(trace, FREE_LUNCH, 8, False)


def test_more_gpus_of_a_paper_machine_are_never_slower(fitted: fits.Constants) -> None:
    by_place = {(cell.model, cell.gpu, cell.gpus): cell for cell in cells("1")}
    for (model, gpu, gpus), cell in by_place.items():
        days = search(cell, fitted)[0].days
        more = by_place.get((model, gpu, 2 * gpus))
        if days and more and (fewer := search(more, fitted)[0].days):
            assert fewer.value < days.value


@pytest.mark.parametrize("gpu", catalogue(), ids=lambda gpu: gpu.name)
def test_every_gpu_of_the_catalogue_is_predicted(gpu: object, fitted: fits.Constants) -> None:
    for gpus in COUNTS:
        found = forecast(models.find("pythia-160m"), Machine(gpu, gpus), FREE_LUNCH, fitted)  # type: ignore[arg-type]
        assert found.days is not None
        assert found.days.value > 0


def test_a_gpu_without_bf16_is_predicted_in_fp16_and_says_so(fitted: fits.Constants) -> None:
    machine, recipe = Machine(gpu_named("V100 32 GB"), 8), models.find("pythia-1b")
    found = forecast(recipe, machine, FREE_LUNCH, fitted)
    assert found.reason == "bf16 is slow or unsupported here: fp16"
    in_fp16 = forecast(replace(recipe, precision="fp16"), machine, FREE_LUNCH, fitted)
    assert in_fp16.reason == ""
    assert (found.days, found.memory) == (in_fp16.days, in_fp16.memory)


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
        ("TITAN RTX", 72, 1.77),
        ("RTX 4070 Ti SUPER", 66, 2.61),
        ("RTX 5080", 84, 2.62),
        ("GB10", 48, 2.53),
        ("MI300X", 304, 2.1),
    ],
)
def test_loads_and_special_functions_go_by_multiprocessors_and_clock_alone(
    name: str, multiprocessors: int, ghz: float
) -> None:
    assert Machine(gpu_named(name), 1).lanes == pytest.approx(multiprocessors * 128 * ghz * 1e9, rel=0.02)


def test_data_center_gpus_of_the_largest_chips_have_stacked_memory() -> None:
    stacked = {gpu.name.split()[0] for gpu in catalogue() if Machine(gpu, 1).stacked}
    assert stacked == {"V100", "A100", "H100", "H200", "GH200", "B200", "MI300X"}


# Eight GPUs whose link nothing was fitted to, each with an example at a time: 128 micro-steps a step.
TWO_NODES = Machine(paper_gpu("A100"), 4, nodes=2)
PLAIN = Rates(eager_hbm=1.0, host=1.0)


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
    updated = 2 * share / 32e9 if wanted.offloading else held * adam / 2039e9
    assert found.update == pytest.approx(updated + gathered * ring / 25e9)

    probed = Probed(*(1e18,) * 6, launch=5e-6, ring=25e9, latency=None)
    quick, slow = (
        step(recipe, trace, wanted, replace(TWO_NODES, probed=replace(probed, latency=latency)), 1, PLAIN)
        for latency in (None, 1e-4)
    )
    assert slow.communication - quick.communication == pytest.approx(exchanges * 1e-4 * 128)


def test_a_gpu_of_several_nodes_has_the_share_that_as_many_of_one_have(fitted: fits.Constants) -> None:
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


def test_fsdp_gathers_weights_in_half_precision_and_casts_none() -> None:
    trace = traces.find("pythia-1b", "custom")
    cast = trace.total("forward/weight_cast/bytes").at(4)
    whole, gathered = (moved(trace, Settings.parse(name), 4, False) for name in ("free_lunch", "free_lunch+fsdp_3"))
    assert cast > 0
    assert whole - gathered == pytest.approx(cast)


@pytest.mark.parametrize(
    ("name", "models_"),
    [
        ("matmul_half", set(models.IDS) - {"convnext", "vit"}),
        ("tf32", {"convnext", "vit"}),
        ("attention_fp32", {"vit"}),
        ("depthwise", {"convnext"}),
        ("depthwise_forward", {"convnext", "mamba"}),
        ("scan", {"mamba"}),
    ],
)
def test_what_only_some_models_do_has_a_rate_of_its_own(name: str, models_: set[str]) -> None:
    def compute(model: str, rates: Rates) -> float:
        return step(models.find(model), traces.find(model, "custom"), FREE_LUNCH, A100, 8, rates).compute

    quicker = Rates(**{name: 2 * getattr(Rates(), name)})
    assert {model for model in models.IDS if compute(model, quicker) < compute(model, Rates())} == models_


def test_the_rate_of_attention_is_of_transformers_and_of_no_product_beside_it() -> None:
    recipe, trace = models.find("pythia-1b"), traces.find("pythia-1b", "custom")
    times = [
        step(recipe, trace, FREE_LUNCH, A100, 8, Rates(eager_hbm=1.0, attention=rate, matmul_half=half)).compute
        for rate, half in ((0.4, 0.4), (0.2, 0.4), (0.4, 0.2))
    ]
    assert times[0] < times[1] < 1.5 * times[0] < times[2], "most of a transformer's FLOPs are in its products"


def test_links_are_read_from_the_catalogue() -> None:
    assert Machine(gpu_named("A100"), 4).link == "nvlink"
    assert Machine(gpu_named("A100"), 4).link_bytes == 300e9
    assert Machine(gpu_named("A6000"), 2).link == "nvlink"
    assert Machine(gpu_named("A6000"), 4).link == "pcie"
    assert Machine(gpu_named("RTX 3090"), 2).link_bytes == 32e9
    assert Machine(gpu_named("H100"), 1).link == "none"
    assert Machine(gpu_named("A100"), 8, nodes=2).link == "network"
    assert Machine(gpu_named("A100"), 8, nodes=2).link_bytes == 25e9
    # 16 lanes of 8, 16 and 32 GT/s.
    assert [Machine(gpu_named(name), 1).host_bytes for name in ("T4", "A100", "H100")] == [16e9, 32e9, 64e9]
    chip = Machine(gpu_named("GH200"), 2)
    assert (chip.host_bytes, chip.link, chip.link_bytes) == (450e9, "pcie", 64e9)


@pytest.mark.parametrize(
    ("gpu", "gpus", "rate"),
    [
        ("A100", 2, "nvlink"),
        ("A100", 8, "nvlink"),
        ("A6000", 2, "nvlink"),
        ("A6000", 4, "pcie"),
        ("RTX 3090", 2, "pcie"),
    ],
)
def test_each_kind_of_link_has_its_rate(gpu: str, gpus: int, rate: str) -> None:
    def communication(**rates: float) -> float:
        machine, trace = Machine(paper_gpu(gpu), gpus), traces.find("roberta", "custom")
        return step(models.find("roberta"), trace, FREE_LUNCH, machine, 1, Rates(**rates)).communication

    [other] = {"nvlink", "pcie"} - {rate}
    assert communication(**{rate: 0.25}) == pytest.approx(2 * communication(**{rate: 0.5}))
    assert communication(**{rate: 0.25, other: 0.01}) == communication(**{rate: 0.25})


@pytest.mark.parametrize(
    ("gpu", "settings", "own", "others"),
    [
        ("A100", NAIVE, "eager_hbm", ("eager_gddr", "fused")),
        ("A100", FREE_LUNCH, "fused", ("eager_gddr", "eager_hbm")),
        ("RTX 3090", NAIVE, "eager_gddr", ("eager_hbm", "fused")),
        ("RTX 3090", FREE_LUNCH, "fused", ("eager_hbm", "eager_gddr")),
    ],
)
def test_eager_loops_have_a_rate_of_each_memory_and_fused_ones_their_own(
    gpu: str, settings: Settings, own: str, others: tuple[str, str]
) -> None:
    def memory(**rates: float) -> float:
        machine, trace = Machine(paper_gpu(gpu), 1), traces.find("vit", variant_of(settings))
        return step(models.find("vit"), trace, settings, machine, 8, Rates(**rates)).memory

    assert memory(**{own: 0.4}) == pytest.approx(2 * memory(**{own: 0.8}))
    assert memory(**{own: 0.4}, **dict.fromkeys(others, 0.1)) == memory(**{own: 0.4})


def test_attention_in_fp32_has_the_rate_of_fp32_with_tf32_and_without() -> None:
    recipe, trace, machine = models.find("vit"), traces.find("vit", "custom"), Machine(paper_gpu("H100"), 1)
    flops = sum(trace.total(f"{phase}/attention/fp32/flops").per_example for phase in ("forward", "backward"))
    quick, slow = (
        step(recipe, trace, FREE_LUNCH, machine, 128, Rates(eager_hbm=1.0, attention_fp32=rate)).compute
        for rate in (0.5, 0.25)
    )
    assert slow - quick == pytest.approx(recipe.batch_size * flops / machine.peak("fp32", False) * 2, rel=1e-6)


def test_a_kind_of_gpu_that_was_measured_has_an_interval_and_another_has_none(
    fitted: fits.Constants,
) -> None:
    measured = {gpu.name.split()[0] for gpu in catalogue() if fitted.interval(Machine(gpu, 1))}
    assert measured == {"V100", "RTX", "A40", "A10", "A100", "H100", "H200", "GH200"}
    assert fitted.interval(Machine(gpu_named("RTX 3090"), 1)) == fitted.interval(Machine(gpu_named("A40"), 8))
    for name in ("B200", "T4", "Quadro RTX 8000", "RTX 4090"):
        assert fitted.interval(Machine(gpu_named(name), 1)) is None
    assert fitted.interval(Machine(paper_gpu("A100"), 4, nodes=2)) is None


def test_a_batch_that_does_not_divide_is_refused(fitted: fits.Constants) -> None:
    with pytest.raises(UserError, match="4096, does not divide by 3 GPUs: take"):
        forecast(models.find("vit"), Machine(paper_gpu("A100"), 3), NAIVE, fitted)
    with pytest.raises(UserError, match=r"4096, does not divide by 6 GPUs \(2 nodes of 3\): take"):
        forecast(models.find("vit"), Machine(paper_gpu("A100"), 3, nodes=2), NAIVE, fitted)
    with pytest.raises(
        UserError, match="100, does not divide by 8 GPUs: take a number that divides it, such as 1, 2, 4 or 5"
    ):
        forecast(replace(models.find("vit"), batch_size=100), Machine(paper_gpu("A100"), 8), NAIVE, fitted)


@pytest.mark.parametrize(
    ("recipe", "gpu", "settings", "rate", "other"),
    [
        ("pythia-1b", "RTX 3090", NAIVE, "matmul_half_geforce", "matmul_half"),
        ("pythia-1b", "A6000", NAIVE, "matmul_half", "matmul_half_geforce"),
        ("vit", "A6000", NAIVE, "matmul_fp32_gddr", "matmul_fp32"),
        ("vit", "H100", NAIVE, "matmul_fp32", "matmul_fp32_gddr"),
        ("pythia-1b", "H100", NAIVE, "matmul_half_hopper", "matmul_half"),
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
