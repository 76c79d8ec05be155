"""Rules for which settings can run where: Appendix F, what the installed stack lacks, and the use of TF32."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..console import INSTALLED, UserError
from ..formats import listing
from ..installation import way_to_install
from ..models.recipe import Images, Recipe, Text, sharing
from ..paper.gpus import AMPERE
from ..paper.settings import Settings
from .packages import numbers

_WITH_KERNELS = (
    f"{way_to_install('kernels')}, with --no-build-isolation" if INSTALLED else "./run_all.sh --with-kernels"
)
# By major compute capability, as flash-attn-4 checks them itself; of the last its tiles have to fit into 99 KiB.
_FLASH4_HEADS: dict[int, tuple[int, tuple[int, ...]]] = {
    9: (256, ()),
    10: (128, (256,)),
    11: (128, (256,)),
    12: (192, ()),
}
_FULLY_SHARD_SINCE = (2, 4)
_PAPER_HOST_BYTES = 64e9  # per GPU (Appendix B); the authors' jobs request as much


@dataclass(frozen=True)
class Stack:
    """The stack and the device that rules are checked for. `packages` maps distributions to versions, `capability` is
    the GPU's, None on a CPU. `tf32` says whether free lunch may use TF32. `broken` maps modules to the error of
    importing them, as far as that was tried."""

    packages: dict[str, str]
    capability: tuple[int, int] | None
    tf32: bool = False
    broken: Mapping[str, str] = field(default_factory=dict)

    @property
    def torch(self) -> tuple[int, ...]:
        """Return torch's version numbers."""
        return numbers(self.packages.get("torch", ""))


@dataclass(frozen=True)
class Obstacle:
    """The reason why settings cannot run, and what would make them run."""

    reason: str
    remedy: str


def packages_of(recipe: Recipe) -> tuple[str, ...]:
    """Return the packages that a recipe's model comes from, besides torch."""
    return (recipe.module.partition(".")[0],) if recipe.module else ()


def host_bytes(recipe: Recipe, settings: Settings) -> float:
    """Return the bytes of system memory that offloading takes on the node: fp32 weights, moments and gradients."""
    return 16.0 * recipe.parameters if settings.offloading else 0.0


def fits_papers_hosts(recipe: Recipe, settings: Settings, gpus: int) -> bool:
    """Return whether the paper's nodes have the system memory that offloading takes."""
    return host_bytes(recipe, settings) <= _PAPER_HOST_BYTES * gpus


def obstacle(recipe: Recipe, settings: Settings, count: int, stack: Stack) -> Obstacle | None:
    """Return the first reason why these settings cannot run on `count` devices of this stack; None where they can."""
    for module in filter(None, ("torch", recipe.module, "deepspeed" if settings.library == "deepspeed" else "")):
        package = module.partition(".")[0]
        if package not in stack.packages:
            return Obstacle(f"{package} is not installed", "set up with ./run_all.sh, or install it with pip")
        if module in stack.broken:
            return Obstacle(
                f"{package} does not import: {stack.broken[module]}",
                "set up with ./run_all.sh, or install what it lacks with pip",
            )
    if recipe.batch_size % count:
        return Obstacle(
            f"the replication batch of {recipe.batch_size} does not divide by {count}",
            f"use {sharing([recipe.batch_size], count)} devices",
        )
    if settings.library == "fsdp" and stack.torch < _FULLY_SHARD_SINCE:
        return Obstacle(
            f"fully_shard needs torch 2.4 or newer, this is {stack.packages['torch']}",
            "use a newer torch, or ZeRO",
        )
    capability = stack.capability
    if capability is not None and (lacking_bf16 := bf16_obstacle(recipe, capability)):
        return lacking_bf16
    if recipe.kernels is not None and settings.free_lunch and capability is not None:
        lacking = [package for package in recipe.kernels.packages if package not in stack.packages]
        if lacking:
            return Obstacle(
                f"{recipe.name}'s custom kernels are not installed ({', '.join(lacking)})",
                _WITH_KERNELS,
            )
    if settings.attention == "flash":
        if lacking_flash := flash_obstacle(recipe, capability):
            return lacking_flash
        flash = {"flash-attn", "flash-attn-4"}.intersection(stack.packages)
        if len(flash) > 1:
            return Obstacle(
                "flash-attn and flash-attn-4 are both installed, as one package", "uninstall both, then one"
            )
        if not flash:
            return Obstacle(
                "neither flash-attn nor flash-attn-4 is installed",
                _WITH_KERNELS + ("" if INSTALLED else ", or --with-flash4 on a Hopper or Blackwell GPU"),
            )
        if "flash-attn-4" in flash and capability is not None and (lacking_4 := _flash4_obstacle(recipe, capability)):
            return lacking_4
    return next(filter(None, (part_obstacle(part, recipe, settings, count, stack) for part in settings.parts)), None)


def _flash4_obstacle(recipe: Recipe, capability: tuple[int, int]) -> Obstacle | None:
    """Return why flash-attn-4 (4.0.0b36) cannot train the recipe: it lacks a backward pass, or the head size."""
    major, size = capability[0], recipe.head_size
    where = f"compute capability {capability[0]}.{capability[1]}"
    if major not in _FLASH4_HEADS:
        return Obstacle(
            f"flash-attn-4 has no backward pass for {where}", "use a Hopper or Blackwell GPU, or flash-attn's 2.8"
        )
    largest, others = _FLASH4_HEADS[major]
    if size % 8 or not (8 <= size <= largest or size in others):
        sizes = f"multiples of 8 up to {largest}{''.join(f', or {other}' for other in others)}"
        return Obstacle(
            f"flash-attn-4 has no attention heads of size {size} for {where}, only {sizes}",
            "use flash-attn's 2.8, or leave flash out",
        )
    return None


def part_obstacle(name: str, recipe: Recipe, settings: Settings, count: int, stack: Stack) -> Obstacle | None:
    """Return why a part of modern training cannot run, or changes nothing, with these settings on `count` devices of
    this stack; None where it can."""
    from .. import models
    from ..parts import BY_NAME, EXTRA

    part, has = BY_NAME[name], stack.capability
    serves = part.custom if models.is_own(recipe.id) else recipe.family in part.families
    where = "with FSDP" if settings.library == "fsdp" else "with ZeRO" if settings.library == "deepspeed" else ""
    lacks = ""
    if stack.torch < part.torch:
        lacks = f"needs torch {'.'.join(map(str, part.torch))} or newer, this is {stack.packages.get('torch')}"
    elif part.families and not serves:
        lacks = f"serves {listing(part.families)}, not {recipe.name}"
    elif settings.library not in part.engines:
        lacks = f"does not run {where}"
    elif part.capability is not None and (has is None or has < part.capability):
        needs = "{}.{}".format(*part.capability)
        lacks = (
            f"needs a GPU of compute capability {needs}, this {'is a CPU' if has is None else 'has {}.{}'.format(*has)}"
        )
    else:
        lacks = _of_part(name, recipe, settings, count, stack)
    if lacks:
        return Obstacle(f"the part {name} {lacks}", "leave it out")
    if part.package and part.package not in stack.packages:
        return Obstacle(f"the part {name} needs {part.package}, which is not installed", EXTRA)
    return None


def _of_part(name: str, recipe: Recipe, settings: Settings, count: int, stack: Stack) -> str:
    """Return the condition of one part that these settings do not meet; empty where they meet it."""
    half = settings.precision_of(recipe.precision)
    compiled = compiles(recipe, settings)
    no_text = (not isinstance(recipe.inputs, Text), f"serves language models, not {recipe.name}")
    unmet = {
        "bf16": [
            (recipe.precision == "bf16", f"changes nothing: {recipe.name} trains in bf16"),
            (
                stack.capability is not None and stack.capability < AMPERE,
                "needs an Ampere or newer GPU (compute capability 8.0)",
            ),
            (
                settings.library == "deepspeed" and stack.capability is None and recipe.precision == "fp16",
                "changes nothing: on a CPU DeepSpeed runs fp16 recipes in bf16",
            ),
        ],
        "bf16_weights": [(half != "bf16", "needs training in bf16: add bf16")],
        "fused_adam": [
            (settings.library == "fsdp" and half == "fp16", "cannot be stepped by FSDP's gradient scaler in fp16")
        ],
        "fused_cross_entropy": [no_text, (half != "bf16", "needs training in bf16: add bf16")],
        "channels_last": [(not isinstance(recipe.inputs, Images), f"serves image models, not {recipe.name}")],
        "no_wrapper": [(count > 1, f"is for one device, these are {count}")],
        "selective_checkpointing": [(not settings.checkpointing, "needs activation checkpointing, which is off")],
        "cuda_graphs": [(not compiled, "needs a compiled model, and these settings compile nothing")],
        "fp8": [(not compiled, "needs a compiled model, and these settings compile nothing")],
    }
    return next((text for unmet_here, text in unmet.get(name, []) if unmet_here), "")


def bf16_obstacle(recipe: Recipe, capability: tuple[int, int]) -> Obstacle | None:
    """Return why a GPU cannot run a bf16 recipe: Volta and Turing have no bf16. None where it can."""
    if recipe.precision != "bf16" or capability >= AMPERE:
        return None
    return Obstacle(
        f"bf16 needs an Ampere or newer GPU (compute capability 8.0), this has {capability[0]}.{capability[1]}",
        "use a newer GPU",
    )


def flash_obstacle(recipe: Recipe, capability: tuple[int, int] | None) -> Obstacle | None:
    """Return why flash-attn cannot run: the recipe does not support it, or the device is a CPU, Volta or Turing."""
    if not recipe.flash_attention:
        return Obstacle(f"{recipe.name} has no flash-attn path", "leave flash out")
    if capability is None or capability < AMPERE:
        return Obstacle("flash-attn needs an Ampere or newer GPU", "leave flash out")
    return None


def compiles(recipe: Recipe, settings: Settings) -> bool:
    """Return whether the settings compile: with free lunch, except Mamba and ZeRO (Appendix F)."""
    return settings.free_lunch and recipe.compiles and settings.library != "deepspeed"


def uses_custom_kernels(recipe: Recipe, settings: Settings, cuda: bool) -> bool:
    """Return whether the settings use custom kernels: with free lunch, and those of other packages only on GPUs."""
    return settings.free_lunch and (cuda or recipe.kernels is None)


def uses_tf32(settings: Settings, stack: Stack) -> bool:
    """Return whether the settings use TF32: with free lunch, where it is allowed."""
    return settings.free_lunch and stack.tf32


SINCE = AMPERE  # Volta and Turing have no TF32
CHOICES = ("auto", "on", "off")


def tf32_allowed(capability: tuple[int, int] | None) -> bool:
    """Return whether TF32 is allowed on a GPU of this capability (None: no GPU). REPRO_TF32=off forbids it; `auto`, the
    default, and `on`, which images for GPUs with TF32 set, allow it if the GPU has it. Raises UserError for others."""
    asked = os.environ.get("REPRO_TF32") or "auto"
    if asked not in CHOICES:
        raise UserError(f"REPRO_TF32={asked}: expected one of {', '.join(CHOICES)}")
    return capability is not None and capability >= SINCE and asked != "off"
