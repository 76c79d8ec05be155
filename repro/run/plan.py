"""The plan of a run: its trials and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from .. import models
from ..console import UserError, suggest_names
from ..machine.devices import Device, gpu_of, name_of
from ..measure.method import Added
from ..models.recipe import Recipe, Scale
from ..paper.gpus import Gpu, most_like
from ..paper.settings import FREE_LUNCH, NAIVE, Attention, Settings, search_space
from ..paper.tables import COUNTS, TOLERANCE, published_settings
from ..record import DEFAULT, Clock, Trial

Planned = Literal["published", "naive", "free-lunch", "all"]
ModernMethods = Literal["modern", "modern:exact"]
Methods = Literal[Planned, ModernMethods]

_CHECKING = 0.1  # share of its time that a run may spend on holding its own numbers against others
_SAFETY = 3.0  # time limit over the estimate: in results/h100 trials that ran took up to 2 times theirs

# The default run without a GPU covers every recipe, and the whole search space with this recipe only.
_SEARCHED_ON_CPU = "pythia-1b"


@dataclass(frozen=True)
class Options:
    """The options of a run. `methods` None is the default: published on GPUs, a sample of all on a CPU.

    `counts` are numbers of GPUs, or of processes on a CPU; `projected` are more, of which one device is measured.
    Memory is in bytes per rank, times are in seconds; `trial_timeout` None derives each trial's limit from its
    estimate. `nodes` is the number that the run was launched on. `search` is `exhaustive`, a number of settings in
    digits, or in older folders `guided`. `clock` judges cells and decides which settings are the fastest. Each of
    `added` is a user's methods, which all settings with free lunch are also measured with.
    `micro_batch` is the only one that is measured, None for the largest that fits. Of modern training, `parts` are
    those that a user named, in place of all that serve a model. Each trial is measured `repeat` times.
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
    nodes: int = 1
    search: str = "exhaustive"
    clock: Clock = DEFAULT
    projected: tuple[int, ...] = ()
    added: tuple[Added, ...] = ()
    micro_batch: int | None = None
    parts: tuple[str, ...] = ()
    repeat: int = 1

    @property
    def best(self) -> int | None:
        """Return how many of the best predicted settings are measured beside naive and free lunch; None for all."""
        return int(self.search) if self.search.isdecimal() else None

    @property
    def modern(self) -> bool:
        """Return whether parts of modern training are measured."""
        return self.methods in get_args(ModernMethods)


def methods_and_parts(asked: str | None) -> tuple[Methods | None, tuple[str, ...]]:
    """Return what --methods asks for, and the parts that it names behind modern. Raise UserError for another text."""
    known: tuple[Methods, ...] = get_args(Methods)
    if asked is None or asked in known:
        return asked, ()
    if asked.startswith("modern+"):
        from ..parts import checked

        return "modern", checked(asked.split("+")[1:], f"--methods {asked}")
    near = suggest_names(asked, known) or known
    raise UserError(f"--methods {asked}: expected {', '.join(near)} or modern+PART, such as modern+fused_adam")


def default_scale(on_gpus: bool) -> Scale:
    """Return the default size of the recipes: tiny on a CPU."""
    return "paper" if on_gpus else "tiny"


def counts_up_to(available: int) -> tuple[int, ...]:
    """Return the paper's counts (1, 2, 4, 8) up to the number of available GPUs."""
    return tuple(count for count in COUNTS if count <= available)


def settings_for(recipe: Recipe, methods: Methods, gpu: Gpu | None, count: int, on_gpus: bool = True) -> list[Settings]:
    """Return the settings that `methods` selects for a recipe on `count` of a GPU, naive first.

    `published` selects Appendix J's settings for the cell, with every reading of a lost mark. For a GPU that the paper
    does not have, and for a model of one's own, it adds free lunch; for such a GPU it takes the rows of the paper's
    most similar one, for an unknown GPU those of all. `modern` selects what parts are added to: free lunch, and on GPUs
    the published settings.
    """
    if methods == "naive":
        return [NAIVE]
    if methods == "free-lunch":
        return [FREE_LUNCH]
    if methods in get_args(ModernMethods):
        published = settings_for(recipe, "published", gpu, count) if on_gpus else []
        return list(dict.fromkeys([FREE_LUNCH, *(each for each in published if each.free_lunch)]))
    if methods == "all":
        return [NAIVE, *search_space(count)]
    rows = [row for row in published_settings() if row.model == recipe.name and row.gpus == count]
    of_paper = gpu is not None and gpu.paper_name is not None and not models.is_own(recipe.id)
    first = [NAIVE] if of_paper else [NAIVE, FREE_LUNCH]
    if gpu is not None:
        alike = most_like(gpu).paper_name
        rows = [row for row in rows if row.gpu == alike]
    return list(dict.fromkeys([*first, *(reading for row in rows for reading in row.readings())]))


def trials(options: Options, devices: Sequence[Device]) -> list[Trial]:
    """Return the trials of the run, grouped by recipe and count; no devices means the CPU. `limited` sets time
    limits."""
    gpu = gpu_of(devices)
    planned: dict[str, Trial] = {}
    for id in options.models:
        recipe = models.find(id, options.scale)
        of_all = [(count, None) for count in options.counts]
        of_one = [(count, 1) for count in options.projected]
        for count, measured_on in [*of_all, *of_one]:
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
                    nodes=options.nodes,
                    measured_on=measured_on,
                    micro_batch=options.micro_batch,
                )
                for each in _variants(trial, options):
                    planned[each.id] = each
    return list(planned.values())


def _variants(trial: Trial, options: Options) -> Iterator[Trial]:
    """Yield the trial, then the same with each of the user's methods."""
    yield trial
    _, settings = trial.recipe_and_settings
    for added in options.added if settings.free_lunch else ():
        own = replace(settings, methods=added.methods)
        yield replace(trial, settings=own.id, method_digest=added.digest)


def measurement(trial: Trial, number: int) -> str:
    """Return the name of the how manyth measurement of a trial."""
    return trial.id if number == 1 else f"{trial.id}#{number}"


def limited(planned: Iterable[Trial], timeout: float | None, estimate: Callable[[Trial], float]) -> list[Trial]:
    """Set each trial's limit to `timeout` seconds. Without one it is an hour, or three times the estimate if that is
    longer: an update of a large model with offloaded states takes minutes."""
    return [replace(trial, timeout=timeout or max(Trial.timeout, _SAFETY * estimate(trial))) for trial in planned]


def checking(planned: Iterable[Trial], estimate: Callable[[Trial], float]) -> list[Trial]:
    """Have those trials also time whole training steps, to show the extrapolation's error, that take under a tenth
    longer with them. On projected ones they would show nothing, and of what is predicted to run out of memory nobody
    knows how long they take."""
    found = []
    for trial in planned:
        seconds, checked = estimate(trial), replace(trial, check_extrapolation=trial.measured_on is None)
        found.append(checked if seconds < estimate(checked) < (1 + _CHECKING) * seconds else trial)
    return found


def projecting(options: Options, devices: Sequence[Device], estimate: Callable[[Trial], float]) -> Options:
    """Return the options without projecting what is measured too, unless a run takes under a tenth longer with it: then
    it shows the projection's error."""

    def seconds(options: Options) -> float:
        return sum(0.0 if is_multiplied(trial) else estimate(trial) for trial in trials(options, devices))

    without = replace(options, projected=tuple(each for each in options.projected if each not in options.counts))
    return options if seconds(options) < (1 + _CHECKING) * seconds(without) else without


def is_multiplied(trial: Trial) -> bool:
    """Return whether a trial is projected from one on fewer devices: it shards nothing, and need not run."""
    return trial.measured_on is not None and trial.recipe_and_settings[1].library == "torch"


def _methods(options: Options, recipe: Recipe, gpu: Gpu | None, count: int, on_gpus: bool) -> list[Settings]:
    if options.added and options.methods is None:
        return [FREE_LUNCH]
    if options.methods is not None or options.search != "exhaustive":
        return settings_for(recipe, options.methods or "all", gpu, count, on_gpus)
    if on_gpus:
        return settings_for(recipe, "published", gpu, count)
    if recipe.id == _SEARCHED_ON_CPU and count > 1:
        return settings_for(recipe, "all", gpu, count)
    return [NAIVE, FREE_LUNCH]
