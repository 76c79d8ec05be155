"""What cannot run is told before it is tried, with the reason and the way out; nothing else is refused."""

from dataclasses import replace

import pytest

from repro import models
from repro.machine.support import Obstacle, Stack, compiles, obstacle, uses_custom_kernels, uses_tf32
from repro.models.recipe import sharing
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings, search_space

PACKAGES = {"torch": "2.10.0", "transformers": "5.23.0", "timm": "1.0.31", "deepspeed": "0.19.8"}
KERNELS = {"flash-attn": "2.8.3", "mamba-ssm": "2.3.1", "causal-conv1d": "1.6.1"}
VOLTA, TURING, AMPERE, HOPPER = (7, 0), (7, 5), (8, 0), (9, 0)
CPU = Stack(PACKAGES, None)


def on(capability: tuple[int, int], **packages: str) -> Stack:
    """A GPU with everything installed, except where `packages` say otherwise."""
    return Stack({**PACKAGES, **KERNELS, **packages}, capability)


def without(package: str, stack: Stack) -> Stack:
    return Stack({name: version for name, version in stack.packages.items() if name != package}, stack.capability)


def found(recipe: str, settings: str, stack: Stack, count: int = 1) -> Obstacle | None:
    return obstacle(models.find(recipe), Settings.parse(settings), count, stack)


def refused(recipe: str, settings: str, stack: Stack, count: int = 1) -> Obstacle:
    refusal = found(recipe, settings, stack, count)
    assert refusal is not None
    assert refusal.reason
    assert refusal.remedy
    return refusal


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("recipe", models.IDS)
def test_on_a_full_stack_everything_runs(recipe: str, count: int) -> None:
    for settings in [NAIVE, *search_space(count)]:
        assert found(recipe, settings.id, on(AMPERE), count) is None
        assert found(recipe, settings.id, CPU, count) is None


# --- Precision ---


@pytest.mark.parametrize("capability", [VOLTA, TURING])
@pytest.mark.parametrize("recipe", ["pythia-1b", "mamba"])
def test_bf16_recipes_are_unsupported_before_ampere_for_that_reason(recipe: str, capability: tuple[int, int]) -> None:
    refusal = refused(recipe, "naive", on(capability))
    assert "bf16" in refusal.reason
    assert f"this has {capability[0]}.{capability[1]}" in refusal.reason


@pytest.mark.parametrize("recipe", ["pythia-160m", "roberta", "convnext", "vit"])
def test_fp16_and_fp32_recipes_run_on_volta_and_turing(recipe: str) -> None:
    for capability in (VOLTA, TURING):
        assert found(recipe, "free_lunch", on(capability)) is None


def test_custom_kernels_come_with_free_lunch_and_mambas_on_gpus_only() -> None:
    for recipe in map(models.find, models.IDS):
        assert uses_custom_kernels(recipe, FREE_LUNCH, cuda=True)
        assert uses_custom_kernels(recipe, FREE_LUNCH, cuda=False) == (recipe.id != "mamba")
        assert not uses_custom_kernels(recipe, NAIVE, cuda=True)


def test_tf32_comes_with_free_lunch_where_it_is_allowed() -> None:
    assert uses_tf32(FREE_LUNCH, Stack(PACKAGES, AMPERE, tf32=True))
    assert not uses_tf32(NAIVE, Stack(PACKAGES, AMPERE, tf32=True))
    assert not uses_tf32(FREE_LUNCH, Stack(PACKAGES, AMPERE, tf32=False))


# --- Compiling ---


def test_free_lunch_compiles_except_with_zero() -> None:
    recipe = models.find("pythia-160m")
    for settings in search_space(2):
        assert compiles(recipe, settings) == (not settings.sharding.startswith("zero"))


def test_mamba_and_naive_settings_are_never_compiled() -> None:
    assert not any(compiles(models.find("mamba"), settings) for settings in search_space(2))
    assert not any(compiles(models.find(recipe), NAIVE) for recipe in models.IDS)


# --- What is not installed ---


@pytest.mark.parametrize(
    ("recipe", "settings", "package"),
    [
        ("pythia-160m", "naive", "torch"),
        ("pythia-160m", "naive", "transformers"),
        ("roberta", "naive", "transformers"),
        ("mamba", "naive", "transformers"),
        ("convnext", "naive", "timm"),
        ("vit", "naive", "timm"),
        ("vit", "free_lunch+zero_1", "deepspeed"),
    ],
)
def test_a_missing_package_is_unsupported_and_set_up_or_pip_mends_it(recipe: str, settings: str, package: str) -> None:
    refusal = refused(recipe, settings, without(package, on(AMPERE)), count=2)
    assert refusal == Obstacle(f"{package} is not installed", "set up with ./run_all.sh, or install it with pip")


def test_a_package_that_is_not_needed_is_not_missed() -> None:
    assert found("vit", "free_lunch+fsdp_3", without("transformers", CPU), count=2) is None
    assert found("pythia-160m", "free_lunch+fsdp_3", without("timm", CPU), count=2) is None
    assert found("pythia-160m", "free_lunch", without("deepspeed", CPU), count=2) is None
    assert found("pythia-160m", "free_lunch", without("mamba-ssm", on(AMPERE))) is None


@pytest.mark.parametrize("package", ["mamba-ssm", "causal-conv1d"])
def test_mambas_custom_kernels_are_missed_on_a_gpu_by_free_lunch_only(package: str) -> None:
    gpu = without(package, on(AMPERE))
    refusal = refused("mamba", "free_lunch", gpu)
    assert package in refusal.reason
    assert "--with-kernels" in refusal.remedy
    assert found("mamba", "naive", gpu) is None
    assert found("mamba", "free_lunch", CPU) is None


@pytest.mark.parametrize("version", ["2.3.1", "2.3.1+cu121", "1.13.0"])
def test_fsdp_is_unsupported_before_torch_2_4(version: str) -> None:
    old = on(AMPERE, torch=version)
    refusal = refused("pythia-160m", "free_lunch+fsdp_2", old, count=2)
    assert "2.4" in refusal.reason
    assert version in refusal.reason
    assert found("pythia-160m", "free_lunch+zero_2", old, count=2) is None


@pytest.mark.parametrize("version", ["2.4.0", "2.10.0", "2.13.0+cpu", "3.0.0"])
def test_fsdp_runs_from_torch_2_4_on(version: str) -> None:
    assert found("pythia-160m", "free_lunch+fsdp_3", on(AMPERE, torch=version), count=2) is None


# --- flash-attn ---


def test_flash_runs_where_it_is_installed_on_ampere_and_newer() -> None:
    for capability in (AMPERE, HOPPER):
        assert found("pythia-160m", "free_lunch+flash", on(capability)) is None


def test_flash_needs_its_package() -> None:
    refusal = refused("pythia-160m", "free_lunch+flash", without("flash-attn", on(AMPERE)))
    assert refusal.reason == "neither flash-attn nor flash-attn-4 is installed"
    assert "./run_all.sh --with-kernels" in refusal.remedy


@pytest.mark.parametrize(
    ("recipe", "capability", "reason"),
    [
        ("pythia-160m", (8, 6), "flash-attn-4 has no backward pass for compute capability 8.6"),
        ("pythia-1b", (9, 0), None),
        ("pythia-1b", (10, 0), None),
        ("pythia-2.8b", (12, 0), None),
        (
            "pythia-1b",
            (12, 0),
            "flash-attn-4 has no attention heads of size 256 for compute capability 12.0, only multiples of 8 up to "
            "192",
        ),
    ],
)
def test_flash_attn_4_refuses_gpus_and_head_sizes_that_it_has_no_kernels_for(
    recipe: str, capability: tuple[int, int], reason: str | None
) -> None:
    stack = without("flash-attn", on(capability, **{"flash-attn-4": "4.0.0b36"}))
    refusal = found(recipe, "free_lunch+flash", stack)
    assert (refusal.reason if refusal else None) == reason


def test_flash_attn_and_flash_attn_4_in_one_environment_are_refused() -> None:
    refusal = refused("pythia-160m", "free_lunch+flash", on(HOPPER, **{"flash-attn-4": "4.0.0b36"}))
    assert refusal.reason == "flash-attn and flash-attn-4 are both installed, as one package"


@pytest.mark.parametrize("stack", [on(VOLTA), on(TURING), Stack({**PACKAGES, **KERNELS}, None)])
def test_flash_needs_an_ampere_gpu(stack: Stack) -> None:
    assert "Ampere" in refused("pythia-160m", "free_lunch+flash", stack).reason


@pytest.mark.parametrize("recipe", ["roberta", "mamba", "convnext", "vit"])
def test_flash_is_pythias_only(recipe: str) -> None:
    assert models.find(recipe).name in refused(recipe, "free_lunch+flash", on(AMPERE)).reason


# --- The batch ---


def test_a_batch_that_does_not_divide_by_the_devices_is_unsupported() -> None:
    refusal = refused("pythia-160m", "naive", on(AMPERE), count=3)
    assert refusal.reason == "the replication batch of 1024 does not divide by 3"
    assert refusal.remedy == "use 1, 2, 4 or 8 devices"
    hundred = replace(models.find("pythia-160m"), batch_size=100)
    odd = obstacle(hundred, NAIVE, 8, on(AMPERE))
    assert odd is not None
    assert odd.remedy == "use 1, 2, 4 or 5 devices"
    assert sharing([97], 8) == "1"
    assert sharing([100, 96], 16) == "8, 10, 12 or 16"
