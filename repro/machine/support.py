"""Rules for which settings can run where: Appendix F, what the installed stack lacks, and the use of TF32."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..console import UserError
from ..models.recipe import Recipe
from ..paper.gpus import AMPERE
from ..paper.settings import Settings
from .packages import numbers

_FULLY_SHARD_SINCE = (2, 4)
_PAPER_HOST_BYTES = 64e9  # per GPU (Appendix B); the authors' jobs request as much


@dataclass(frozen=True)
class Stack:
    """The stack and the device that rules are checked for. `packages` maps distributions to versions, `capability` is
    the GPU's, None on a CPU. `adam` and `host_adam` are why DeepSpeed cannot have its Adam on a GPU and on the host,
    None where it can, or does without, as on a CPU. `tf32` says whether free lunch may use TF32. `broken` maps modules
    to the error of importing them, as far as that was tried."""

    packages: dict[str, str]
    capability: tuple[int, int] | None
    adam: str | None = None
    host_adam: str | None = None
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
    return tuple(map(_package, _model_modules(recipe)))


def _model_modules(recipe: Recipe) -> tuple[str, ...]:
    return (recipe.module,) if recipe.module else ()


def _package(module: str) -> str:
    return module.partition(".")[0]


def host_bytes(recipe: Recipe, settings: Settings) -> float:
    """Return the bytes of system memory that offloading takes on the node: fp32 weights, moments and gradients."""
    return 16.0 * recipe.parameters if settings.offloading else 0.0


def fits_papers_hosts(recipe: Recipe, settings: Settings, gpus: int) -> bool:
    """Return whether the paper's nodes have the system memory that offloading takes."""
    return host_bytes(recipe, settings) <= _PAPER_HOST_BYTES * gpus


def obstacle(recipe: Recipe, settings: Settings, count: int, stack: Stack) -> Obstacle | None:
    """Return the first reason why these settings cannot run on `count` devices of this stack; None where they can."""
    needed = ["torch", *_model_modules(recipe)]
    if settings.library == "deepspeed":
        needed.append("deepspeed")
    for module in needed:
        package = _package(module)
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
            "use 1, 2, 4 or 8 devices",
        )
    if settings.library == "fsdp" and stack.torch < _FULLY_SHARD_SINCE:
        return Obstacle(
            f"fully_shard needs torch 2.4 or newer, this is {stack.packages['torch']}",
            "use a newer torch, or ZeRO",
        )
    capability = stack.capability
    why = stack.host_adam if settings.offloading else stack.adam
    if settings.library == "deepspeed" and why is not None:
        nvcc = "install nvcc of the CUDA that torch was built with, or name its folder in CUDA_HOME"
        return Obstacle(
            f"DeepSpeed cannot compile its Adam: {why}",
            "install a C++ compiler, or name it in CXX" if "C++" in why else nvcc,
        )
    if capability is not None and (lacking_bf16 := bf16_obstacle(recipe, capability)):
        return lacking_bf16
    if recipe.kernels is not None and settings.free_lunch and capability is not None:
        lacking = [package for package in recipe.kernels.packages if package not in stack.packages]
        if lacking:
            return Obstacle(
                f"{recipe.name}'s custom kernels are not installed ({', '.join(lacking)})",
                "./run_all.sh --with-kernels",
            )
    if settings.attention == "flash":
        if lacking_flash := flash_obstacle(recipe, capability):
            return lacking_flash
        if "flash-attn" not in stack.packages:
            return Obstacle("flash-attn is not installed", "./run_all.sh --with-kernels")
    return None


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
