"""Which trials a run has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from repro import models
from repro.cli import parser
from repro.commands.preflight import check_cuda
from repro.commands.run import parsed
from repro.console import UserError
from repro.formats import bytes_, duration
from repro.machine import doctor, nvml
from repro.machine.devices import Device, gpu_of
from repro.machine.host import usable_cpus
from repro.models.recipe import divisors
from repro.paper.gpus import find, paper_gpus
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings
from repro.predict.fits import here
from repro.predict.forecast import forecast
from repro.predict.hardware import gpu_named
from repro.record import Trial
from repro.run.estimate import LOADING, REPORTING, STARTING, compiling_seconds, estimate
from repro.run.plan import Methods, Options, checking, counts_up_to, limited, projecting, settings_for, trials
from tests.support.command_line import ROOT, documentation


def gpus(name: str, count: int) -> list[Device]:
    gpu = find(name)
    assert gpu is not None
    return [
        Device(index, index, f"GPU-{index}", gpu.driver_names[0], gpu, 80 * 10**9, gpu.compute_capability)
        for index in range(count)
    ]


def options(**wanted: Any) -> Options:
    return Options(**{"models": models.IDS, "methods": None, "scale": "paper", "counts": (1,), **wanted})


def test_counts_are_the_papers_up_to_the_gpus_there_are() -> None:
    assert [counts_up_to(n) for n in (1, 3, 6, 8, 16)] == [(1,), (1, 2), (1, 2, 4), (1, 2, 4, 8), (1, 2, 4, 8)]


def test_published_is_naive_and_appendix_j_for_the_cell() -> None:
    found = settings_for(models.find("pythia-1b"), "published", find("A100"), 4)
    assert found == [NAIVE, Settings(True, False, "zero_1", False)]


def test_published_takes_every_reading_of_a_lost_mark() -> None:
    found = settings_for(models.find("pythia-1b"), "published", find("RTX 3090"), 4)
    assert found == [NAIVE, Settings(True, False, "zero_1"), Settings(True, True, "zero_1")]


@pytest.mark.parametrize(
    ("name", "alike"),
    [
        ("H200", "H100"),
        ("B200", "H100"),
        ("RTX 4090", "RTX 3090"),
        ("T4", "RTX 3090"),
        ("L40S", "A6000"),
        ("A40", "A6000"),
    ],
)
def test_on_a_gpu_that_the_paper_has_not_published_takes_what_its_most_similar_took(name: str, alike: str) -> None:
    recipe = models.find("pythia-1b")
    found = settings_for(recipe, "published", find(name), 4)
    assert found == list(dict.fromkeys([NAIVE, FREE_LUNCH, *settings_for(recipe, "published", find(alike), 4)]))


def test_on_an_unknown_gpu_published_takes_what_any_of_the_papers_took() -> None:
    found = settings_for(models.find("pythia-1b"), "published", None, 1)
    assert found == [NAIVE, FREE_LUNCH, Settings(True, True)]


def test_naive_and_free_lunch_alone_are_one_settings_each() -> None:
    recipe, a100 = models.find("pythia-1b"), find("A100")
    assert settings_for(recipe, "naive", a100, 4) == [NAIVE]
    assert settings_for(recipe, "free-lunch", a100, 4) == [FREE_LUNCH]


def test_what_the_paper_never_fitted_has_naive_and_free_lunch() -> None:
    never_fitted = settings_for(models.find("pythia-6.9b"), "published", find("H200"), 1)
    assert never_fitted == [NAIVE, FREE_LUNCH], "the paper trained it on no single GPU"


def test_published_is_the_default_on_gpus() -> None:
    default = trials(options(), gpus("H100", 1))
    assert default == trials(options(methods="published"), gpus("H100", 1))
    assert len(default) < 40


def test_all_is_the_whole_search_and_naive() -> None:
    found = trials(options(models=("vit",), methods="all", counts=(1, 2)), gpus("A100", 2))
    assert [trial.count for trial in found].count(1) == 12 + 1
    assert [trial.count for trial in found].count(2) == 22 + 1


def test_without_a_gpu_recipes_run_naive_and_free_lunch_and_one_searches() -> None:
    found = trials(options(scale="tiny", counts=(1, 2)), [])
    searched = [trial for trial in found if (trial.recipe, trial.count) == ("pythia-1b", 2)]
    assert len(searched) == 22 + 1
    for id in models.IDS:
        assert {trial.settings for trial in found if (trial.recipe, trial.count) == (id, 1)} == {"naive", "free_lunch"}
    assert len(found) == 9 * 2 + 8 * 2 + 23


@pytest.mark.parametrize("change", [{"memory": 2**30}, {"steps": 5}, {"scale": "tiny"}, {"nodes": 2}])
def test_all_that_changes_a_measurement_changes_the_trials_ids(change: dict[str, Any]) -> None:
    before = trials(options(models=("vit",)), gpus("A100", 1))
    after = trials(options(models=("vit",), **change), gpus("A100", 1))
    assert not {trial.id for trial in before} & {trial.id for trial in after}


def test_an_id_tells_all_that_a_trial_is() -> None:
    trial = Trial("vit", "paper", "naive", "A100 40 GB", 4, 3 * 2**29, 5, nodes=2)
    assert trial.id == "vit/paper/2x4xA100-40-GB/naive/1.5GiB/5-rounds"
    assert replace(trial, check_extrapolation=True).id == trial.id, "whole steps come last, and change nothing"
    assert Trial("vit", "tiny", "naive", "cpu", 1, steps=1).id == "vit/tiny/1xcpu/naive/1-rounds"
    assert replace(trial, micro_batch=8).id == f"{trial.id}/micro-batch-8"
    assert Trial("vit", "tiny", "free_lunch", "cpu", 2).id == "vit/tiny/2xcpu/free_lunch"


@pytest.mark.parametrize(
    ("number", "sizes"), [(36, [1, 2, 3, 4, 6, 9, 12, 18, 36]), (12, [1, 2, 3, 4, 6, 12]), (1, [1])]
)
def test_micro_batches_divide_a_share(number: int, sizes: list[int]) -> None:
    assert divisors(number) == sizes


def test_trials_take_what_was_asked_of_the_run() -> None:
    [trial] = trials(options(models=("vit",), methods="naive", steps=5, trial_timeout=60.0, memory=2**30, nodes=2), [])
    assert (trial.steps, trial.memory_limit, trial.nodes, trial.world) == (5, 2**30, 2, 2)


def test_a_trial_gets_an_hour_or_thrice_its_estimate_unless_reported_how_long() -> None:
    def limit(model: str, settings: str, **more: object) -> float:
        asked = options(models=(model,), methods="all", counts=(1,), **more)
        [found] = [trial for trial in trials(asked, gpus("A100 80 GB", 1)) if trial.settings == settings]
        [limited_] = limited([found], asked.trial_timeout, partial(estimate, gpu=find("A100 80 GB")))
        return limited_.timeout

    slow = Trial("pythia-6.9b", "paper", "free_lunch+checkpointing+zero_3+offloading", "A100 80 GB", 1, steps=50)
    seconds = estimate(slow, find("A100 80 GB"))
    assert seconds > 1200
    assert limit(slow.recipe, slow.settings, steps=50) == 3 * seconds
    assert limit("vit", "naive") == 3600
    assert limit(slow.recipe, slow.settings, steps=50, trial_timeout=3600.0) == 3600


def test_an_estimate_counts_the_whole_steps_that_check_an_extrapolation() -> None:
    slow, a100 = Trial("pythia-6.9b", "paper", "free_lunch+fsdp_3+offloading", "A100", 2), gpu_named("A100")
    machine, fitted = here(a100, 2, None)
    found = forecast(models.find(slow.recipe), machine, Settings.parse(slow.settings), fitted)
    assert found.step is not None
    checked = estimate(replace(slow, check_extrapolation=True), a100)
    assert checked - estimate(slow, a100) == pytest.approx(slow.steps * found.step.total)


def test_a_trial_times_whole_steps_too_where_they_take_under_a_tenth_longer() -> None:
    def checked(asked: Options, devices: Sequence[Device]) -> dict[str, bool]:
        made = checking(trials(asked, devices), partial(estimate, gpu=gpu_of(devices)))
        return {trial.settings: trial.check_extrapolation for trial in made}

    assert checked(options(models=("vit",), scale="tiny"), []) == {"naive": False, "free_lunch": True}
    assert not any(checked(options(models=("pythia-6.9b",), methods="all"), gpus("H100", 1)).values())
    assert checked(options(models=("vit",), methods="naive", steps=1), gpus("H100", 8)) == {"naive": False}
    assert checked(options(models=("vit",), methods="free-lunch", counts=(8,)), gpus("H100", 8)) == {"free_lunch": True}
    assert not any(checked(options(scale="tiny", counts=(), projected=(2,)), []).values()), "one rank of two"


def test_what_is_measured_is_projected_too_where_that_takes_under_a_tenth_longer() -> None:
    def projected(methods: Methods, *asked: int) -> tuple[int, ...]:
        wanted = options(models=("vit",), methods=methods, scale="tiny", counts=(1, 2), projected=asked)
        return projecting(wanted, [], partial(estimate, gpu=None)).projected

    assert projected("naive", 2) == (2,), "a ratio of two predictions costs nothing"
    assert projected("free-lunch", 2, 4) == (2, 4)
    assert projected("all", 2) == (), "one rank of each that shards would run"
    assert projected("all", 2, 4) == (4,)


def test_settings_are_those_of_all_gpus_of_all_nodes() -> None:
    found = trials(options(models=("vit",), methods="all", nodes=2), gpus("A100", 1))
    assert len(found) == 22 + 1
    of_all, of_four, of_two = (
        [
            trial.settings
            for trial in trials(options(models=("pythia-6.9b",), counts=(count,), nodes=nodes), gpus("A100", 8))
        ]
        for count, nodes in ((2, 2), (4, 1), (2, 1))
    )
    assert of_all == of_four != of_two


@pytest.mark.parametrize("search", ["3", "guided"])
def test_a_search_by_prediction_chooses_from_the_whole_space(search: str) -> None:
    """A guided one is of an older folder."""
    found = trials(options(models=("vit",), search=search), gpus("A100", 1))
    assert len(found) == 12 + 1


def test_flash_attention_is_asked_for_with_free_lunch_only() -> None:
    found = trials(options(models=("pythia-1b",), methods="published", attention="flash"), gpus("A100", 1))
    assert [trial.settings for trial in found] == ["naive", "free_lunch+flash"]
    without = trials(options(models=("vit",), methods="published", attention="flash"), gpus("A100", 1))
    assert not any("flash" in trial.settings for trial in without), "no other recipe has a path for it"


@pytest.mark.parametrize(
    ("gpu", "words", "refused"),
    [
        ("A100", "--models pythia-1b,vit,gan", False),
        ("A100", "--models vit,gan", True),
        ("A100", "--models pythia-1b --methods naive", True),
        ("V100 16 GB", "--models pythia-1b", True),
    ],
)
def test_flash_attention_that_would_serve_no_trial_is_refused(
    gpu: str, words: str, refused: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvml, "visible_devices", lambda: gpus(gpu, 1))
    given = parser("run").parse_args(["--with", "attention=flash", *words.split()])
    if refused:
        with pytest.raises(UserError, match="--with attention=flash changes nothing here: it serves free lunch"):
            parsed(given)
    else:
        parsed(given)
        output = capsys.readouterr().err
        assert output == "repro: --with attention=flash serves Pythia alone, without it run vit, gan\n"


def test_a_torch_without_cuda_is_reported_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    check_cuda([])
    monkeypatch.setattr(doctor, "installed", lambda package: "2.13.0+cpu")
    with pytest.raises(
        UserError, match=r"torch 2\.13\.0\+cpu was built without CUDA, and there is a GPU, A100: set up"
    ):
        check_cuda(gpus("A100", 1))
    monkeypatch.setattr(doctor, "installed", lambda package: "2.11.0")
    check_cuda(gpus("A100", 1))


@pytest.mark.parametrize("text", ["80GB", "512MB", "2GiB", "1.5GiB", "12641974273B"])
def test_a_limit_of_memory_is_named_as_it_was_given(text: str) -> None:
    [trial] = trials(options(models=("vit",), methods="naive", memory=bytes_(text, "--memory")), gpus("A100", 1))
    assert trial.id.split("/")[-1] == text


def test_an_estimate_on_a_gpu_is_of_starting_and_of_the_steps_of_every_recipe_alike() -> None:
    a100 = gpu_named("A100")
    machine, fitted = here(a100, 1, None)
    for id in ("pythia-1b", "convnext"):
        recipe = models.find(id)
        [naive] = trials(options(models=(id,), methods="naive"), gpus("A100", 1))
        found = forecast(recipe, machine, NAIVE, fitted)
        assert found.step is not None
        assert found.accumulation is not None
        update, sizes = found.step.update, found.micro_batch.bit_length()
        measuring = 22 * (found.step.total - update) / found.accumulation + (10 + sizes) * update
        assert estimate(naive, a100) == pytest.approx(STARTING + measuring)
        assert estimate(replace(naive, device="cpu"), None) > 10 + recipe.parameters / 1e8, "a host draws the weights"


def test_an_estimate_knows_what_offloads_and_what_does_not_fit() -> None:
    free, offloading = (
        Trial("vit", "paper", settings, "A100", 1) for settings in ("free_lunch", "free_lunch+fsdp_3+offloading")
    )
    assert estimate(offloading, find("A100")) > estimate(free, find("A100"))
    shared = Trial("pythia-6.9b", "paper", "free_lunch+checkpointing+fsdp_3", "A6000", 2)
    a6000 = find("A6000")
    assert estimate(replace(shared, nodes=2), a6000) > estimate(shared, a6000), "it fits on two nodes alone"
    sharded = Trial("pythia-6.9b", "paper", "free_lunch+fsdp_2+offloading", "A100", 1)
    assert estimate(sharded, find("A100")) > 300, "the paper's hosts do not hold it, another may"
    too_large = Trial("pythia-6.9b", "paper", "naive", "RTX 3090", 1)
    assert estimate(too_large, find("RTX 3090")) == STARTING
    on_host = replace(too_large, settings="free_lunch+zero_1")
    drawn = models.find("pythia-6.9b").parameters / 1e8
    assert estimate(on_host, find("RTX 3090")) == pytest.approx(STARTING + drawn)
    limited = Trial("pythia-1b", "paper", "naive", "A100", 1, memory_limit=2**30)
    assert estimate(limited, find("A100")) == STARTING
    unknown = [Trial(id, "paper", "naive", "X1", 1) for id in ("vit", "gan")]
    assert all(estimate(trial, None) > STARTING for trial in unknown)
    a100 = gpu_named("A100")
    assert estimate(replace(unknown[1], device="A100"), a100) > STARTING, "nobody traced it"
    assert estimate(free, replace(a100, bandwidth_gb_s=None)) > STARTING, "nothing can be predicted of it"


def test_what_cannot_be_predicted_has_four_examples_at_a_third_of_the_peak() -> None:
    gan, a100 = models.find("gan"), find("A100")
    for gpu, settings, peak in ((a100, "naive", 19.5e12), (a100, "free_lunch", 156e12), (None, "naive", 100e12)):
        trial = Trial("gan", "paper", settings, "A100", 2, steps=3)
        micro_step = 4 * gan.flops_per_example / (peak / 3)
        compiling = compiling_seconds(24, Settings.parse(settings)) if settings == "free_lunch" else 0
        around = STARTING + compiling
        assert estimate(trial, gpu) == pytest.approx(around + 22 * micro_step)
        checked = estimate(replace(trial, check_extrapolation=True), gpu) - estimate(trial, gpu)
        assert checked == pytest.approx(3 * 256 / 2 / 4 * micro_step)


def test_processes_share_the_speed_of_a_cpus_cores() -> None:
    gan = models.find("gan")
    trial = Trial("gan", "paper", "naive", "cpu", 2, steps=3)
    around = 10 + gan.parameters / 1e8
    four = 22 * 4 * gan.flops_per_example / (60e9 * usable_cpus() / 2)
    assert estimate(trial, None) == pytest.approx(around + four)
    assert estimate(replace(trial, micro_batch=1), None) == pytest.approx(around + four / 4)


def test_a_tiny_trial_takes_a_tenth_of_a_second_a_round_and_longer_where_it_compiles() -> None:
    naive, compiled = (Trial("vit", "tiny", settings, "cpu", 1, steps=3) for settings in ("naive", "free_lunch"))
    assert estimate(replace(naive, steps=13), None) - estimate(naive, None) == pytest.approx(1.0)
    assert estimate(compiled, None) - estimate(naive, None) == pytest.approx(12.0)
    assert estimate(naive, None) < 5


@pytest.mark.parametrize(
    ("methods", "command"),
    [("published", "`./run_all.sh --gpus all`"), ("all", "`./run_all.sh --gpus all --methods all`")],
)
def test_the_page_on_the_paper_has_the_estimates_for_one_and_for_eight_of_its_gpus(
    methods: Methods, command: str
) -> None:
    [line] = [each for each in (ROOT / "docs" / "artifact.md").read_text().splitlines() if f"| {command} |" in each]
    output = re.findall(r"on (one|eight) (\d+) to (\d+) (minutes|hours)", line)
    assert [count for count, *_ in output] == ["one", "eight"]
    if methods == "published":
        _, low, high, unit = output[0]
        assert f"{low} to {high} {unit} on one of the paper's GPUs" in documentation("README.md")
    for count, low, high, unit in output:
        counts = counts_up_to(8 if count == "eight" else 1)
        for name in paper_gpus():
            planned = trials(options(methods=methods, counts=counts), gpus(name, counts[-1]))
            seconds = sum(estimate(trial, find(name)) for trial in planned)
            assert int(low) <= seconds / (60 if unit == "minutes" else 3600) <= int(high), name


def test_the_readme_tells_the_estimate_without_a_gpu() -> None:
    planned = trials(options(scale="tiny", counts=(1, 2)), [])
    output = duration(LOADING + sum(estimate(trial, None) for trial in planned) + REPORTING)
    readme = documentation("README.md")
    assert f"tiny twins of the recipes on the CPU, in about {output.replace('min', 'minutes')}" in readme
