"""The plan of a run: which trials, in which order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .. import models
from ..machine.devices import Device, gpu_of, name_of
from ..models.recipe import Recipe, Scale
from ..paper.gpus import Gpu, most_like
from ..paper.settings import FREE_LUNCH, NAIVE, Attention, Settings, search_space
from ..paper.tables import COUNTS, TOLERANCE, published_settings
from ..record import DEFAULT, Clock, Trial

Methods = Literal["published", "naive", "free-lunch", "all"]
SearchMode = Literal["exhaustive", "guided"]

_SAFETY = 3.0  # how many times its estimate a trial may take: in results/h100 those that ran took up to twice

# Without a GPU the default run shows every recipe and every settings once: this recipe takes the whole search space.
_SEARCHED_ON_CPU = "pythia-1b"


@dataclass(frozen=True)
class Options:
    """What a person asked of a run. `methods` None is the default: published on GPUs, a sample of all on a CPU.

    `counts` are numbers of GPUs, or of processes on a CPU; memory in bytes per rank, times in seconds, a trial's
    None where it goes by its estimate. `nodes` are as many as the run was launched on. `clock` is the one that cells
    are judged by, and that decides which settings are the fastest.
    """

    models: tuple[str, ...]
    methods: Methods | None
    scale: Scale
    counts: tuple[int, ...]
    memory: int | None = None
    steps: int = Trial.steps
    trial_timeout: float | None = None
    budget: float | None = None
    tolerance: float = TOLERANCE
    attention: Attention = "sdpa"
    check_extrapolation: bool = False
    nodes: int = 1
    search: SearchMode = "exhaustive"
    clock: Clock = DEFAULT


def default_scale(on_gpus: bool) -> Scale:
    """The size of the recipes where nobody asked for one: a CPU gets their tiny twins."""
    return "paper" if on_gpus else "tiny"


def counts_up_to(available: int) -> tuple[int, ...]:
    """The paper's counts, 1, 2, 4, 8, as far as there are GPUs."""
    return tuple(count for count in COUNTS if count <= available)


def settings_for(recipe: Recipe, methods: Methods, gpu: Gpu | None, count: int) -> list[Settings]:
    """The settings that `methods` means for a recipe on `count` of a GPU, naive first.

    `published` takes Appendix J's settings for the cell, every reading of a lost mark; where the GPU is none of
    the paper's, free lunch and those of its GPU that is most like this one, or of an unknown one those of all.
    """
    if methods == "naive":
        return [NAIVE]
    if methods == "free-lunch":
        return [FREE_LUNCH]
    if methods == "all":
        return [NAIVE, *search_space(count)]
    rows = [row for row in published_settings() if row.model == recipe.name and row.gpus == count]
    first = [NAIVE] if gpu is not None and gpu.paper_name is not None else [NAIVE, FREE_LUNCH]
    if gpu is not None:
        alike = most_like(gpu).paper_name
        rows = [row for row in rows if row.gpu == alike]
    return list(dict.fromkeys([*first, *(reading for row in rows for reading in row.readings())]))


def trials(options: Options, devices: Sequence[Device]) -> list[Trial]:
    """Every trial of the run, grouped by recipe and count; no devices means the CPU. Their time limits are the default,
    see `limited`."""
    gpu = gpu_of(devices)
    planned: dict[str, Trial] = {}
    for id in options.models:
        recipe = models.find(id, options.scale)
        for count in options.counts:
            wanted = _methods(options, recipe, gpu, count * options.nodes, bool(devices))
            attention = options.attention if recipe.flash_attention else "sdpa"
            for settings in wanted:
                trial = Trial(
                    recipe=id,
                    scale=options.scale,
                    settings=replace(settings, attention=attention).id,
                    device=name_of(devices),
                    count=count,
                    memory_limit=options.memory,
                    steps=options.steps,
                    check_extrapolation=options.check_extrapolation,
                    nodes=options.nodes,
                )
                planned[trial.id] = trial
    return list(planned.values())


def limited(planned: Iterable[Trial], timeout: float | None, estimate: Callable[[Trial], float]) -> list[Trial]:
    """Give each trial `timeout` seconds; without one an hour, or more where it is estimated to take long: an update of
    a large model whose states are offloaded takes minutes."""
    return [replace(trial, timeout=timeout or max(Trial.timeout, _SAFETY * estimate(trial))) for trial in planned]


def _methods(options: Options, recipe: Recipe, gpu: Gpu | None, count: int, on_gpus: bool) -> list[Settings]:
    if options.methods is not None or options.search == "guided":
        return settings_for(recipe, options.methods or "all", gpu, count)
    if on_gpus:
        return settings_for(recipe, "published", gpu, count)
    if recipe.id == _SEARCHED_ON_CPU and count > 1:
        return settings_for(recipe, "all", gpu, count)
    return [NAIVE, FREE_LUNCH]
