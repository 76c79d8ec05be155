"""The days of a training on each machine: true ones, which are measured, else projected, else predicted, with the
printed days beside them. Every answer that uses days takes them from here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from .. import command, models
from ..console import UserError
from ..formats import Interval, listing, rough
from ..models.recipe import Recipe
from ..paper.arithmetic import rounded_days
from ..paper.gpus import CustomGpu, Gpu, OfGpus, catalogue, find
from ..paper.settings import NAIVE, Settings, search_space
from ..paper.tables import COUNTS, cells
from ..predict import descriptions
from ..predict.fits import EVERYTHING, fitted_constants
from ..predict.forecast import Forecast, forecast
from ..predict.hardware import Machine
from ..predict.today import today
from ..predict.traces import Stack, Traced, of_stack
from ..record import By
from ..run.plan import ModernMethods
from ..run.reading import Reading
from .measurements import WHOSE, Measurement, of_folders, shipped

Origin = Literal["measured", "projected", "predicted", "printed"]


@dataclass(frozen=True)
class TrainingDays(OfGpus):
    """Days of one training on `gpus` of `gpu`, with bounds: the rounding of the paper's days, or the 80 % interval of
    predicted ones. `watts` is the power of its GPUs together, where that was measured. The last four are days of the
    same training by other origins: the measured ones may be on another stack, whose versions `measured_on` has."""

    gpu: str
    gpus: int
    days: Interval
    origin: Origin
    source: str
    watts: float | None = None
    printed: float | None = None
    predicted: float | None = None
    measured: float | None = None
    measured_on: str | None = None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the days between which 8 of 10 such predictions hold; None for days that are not predicted, and where
        no interval is known."""
        known = self.origin == "predicted" and self.days.low < self.days.high
        return (self.days.low, self.days.high) if known else None

    def known(self, value: float) -> float:
        """Return a value derived from these days, rounded to significant figures where a prediction is in them."""
        return rough(value) if self.origin in ("predicted", "projected") else value


@dataclass(frozen=True, eq=False)
class DaysAsked:
    """The days that are asked for: by which clock or print, for which stack, and from which measurements: those of
    `runs`, `trained` ones and, with `shipped`, of expected/measured.csv. `methods` adds settings with parts of
    modern training."""

    by: By = "true"
    stack: Stack = "today"
    runs: tuple[Reading, ...] = ()
    shipped: bool = True
    methods: ModernMethods | None = None
    trained: tuple[Measurement, ...] = ()

    @property
    def text(self) -> str:
        """Return a sentence on what the days are."""
        if self.by == "printed":
            return "Days are the paper's printed ones, by its authors' clock: one waits longer (--by true)."
        what = "by the authors' clock" if self.by == "authors" else "those that one waits"
        known = self.shipped or self.runs or self.trained
        origins = "measured, else projected, else predicted" if known else "predicted"
        stack = f"{WHOSE[self.stack]} stack (transformers {of_stack(self.stack).transformers})"
        return f"Days are {what}, {origins} on {stack}."


@dataclass(frozen=True)
class SettingsDays:
    """The days of one training with these settings on a machine, with what they are from. `days` is None where the
    settings do not fit. `elsewhere` was measured on the stack that is not asked for."""

    settings: str
    days: Interval | None
    origin: Origin
    source: str
    forecast: Forecast | None
    measurement: Measurement | None
    elsewhere: Measurement | None = None

    @property
    def feasible(self) -> bool:
        return self.days is not None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Return the 80 % interval of predicted days, None where none is known."""
        return self.forecast.bounds if self.origin == "predicted" and self.forecast is not None else None

    @property
    def micro_batch(self) -> int | None:
        if self.measurement is not None:
            return self.measurement.micro_batch
        return (self.forecast.micro_batch or None) if self.forecast is not None else None


def _order(row: SettingsDays) -> float:
    return row.days.value if row.days is not None else math.inf


@lru_cache(1000)  # the page in a browser asks again at every key
def _searched(recipe: Recipe, machine: Machine, traced: Traced, methods: ModernMethods | None) -> list[Forecast]:
    """Predict the paper's search on a machine, and the parts of modern training where `methods` adds them."""
    constants = fitted_constants()[EVERYTHING]
    found = [forecast(recipe, machine, each, constants, traced) for each in search_space(machine.world)]
    if methods is not None:
        both = today(recipe, machine, constants, traced)
        found.append(both.exact if methods == "modern:exact" else both.all)
    return found


class ModelDays:
    """What is known of the days of one model. Raise UserError for an unknown model, and for days that the paper did not
    print."""

    def __init__(self, model: str, asked: DaysAsked) -> None:
        self.asked = asked
        if asked.by == "printed":
            _check_printed(model, asked)
        if asked.stack == "paper" and models.is_own(model):
            raise UserError(f"--stack paper: {model} is traced on today's stack alone: leave --stack out")
        named = [*of_folders(model, asked.runs, asked.methods), *asked.trained]
        self.recipe = models.find(model) if named else models.find_traced(model)
        self._measured = [*(shipped(self.recipe.name) if asked.shipped else []), *named]

    @cached_property
    def traced(self) -> Traced | None:
        """Return the stack whose traces predict the model; None for one that cannot be predicted."""
        if models.is_own(self.recipe.id):
            return descriptions.stack(self.recipe)
        return of_stack(self.asked.stack) if self.recipe.id in models.TRACED else None

    def check_runs(self) -> None:
        """Raise UserError where results folders were named, and none has days of the model."""
        named = [str(run.folder) for run in self.asked.runs]
        counts = (each.folder in named and each.true_days and self._counts(each.settings) for each in self._measured)
        if named and not self.asked.trained and not any(counts):
            raise UserError(
                f"--measured {listing(named)}: no finished trial of {self.recipe.id} at the paper's scale on GPUs, "
                f"naive ones left out; {command()} --gpus all --models {self.recipe.id} --out DIR measures it"
            )

    @cached_property
    def places(self) -> list[tuple[str, int]]:
        """Return the machines that were measured, or projected, on the stack asked for."""
        return list(dict.fromkeys((each.gpu, each.gpus) for each in self._measured if self._answers(each)))

    def everywhere(self, gpus: Iterable[Gpu]) -> list[TrainingDays]:
        """Return the days on 1, 2, 4 and 8 of these GPUs, and on all machines that were measured; without those that do
        not fit."""
        known = {gpu.called: gpu for gpu in gpus}
        places = dict.fromkeys([*((name, count) for name in known for count in COUNTS), *self.places])
        order = {gpu.called: number for number, gpu in enumerate(catalogue())}
        listed = sorted(places, key=lambda place: (order.get(place[0], len(order)), *place))
        found = (self.on(known.get(name) or find(name) or name, count) for name, count in listed)
        return [row for row in found if row is not None]

    def on(self, gpu: Gpu | str, gpus: int) -> TrainingDays | None:
        """Return the days with the fastest settings on a machine of one node; None where they are not known, or nothing
        fits. A text is a GPU that the catalogue does not have."""
        name = gpu if isinstance(gpu, str) else gpu.called
        printed = next((cell for cell in cells("1") if cell.place == (self.recipe.name, name, gpus)), None)
        if self.asked.by == "printed":
            if printed is None or printed.days is None:
                return None
            return TrainingDays(name, gpus, rounded_days(printed), "printed", printed.source)
        machine = None if isinstance(gpu, str) else Machine(gpu, gpus)
        best = self.fastest(self.on_settings(machine or (name, gpus)))
        if best is None or best.days is None:
            return None
        foretold = [days.value for each in self.searched(machine) if (days := self._by(each))]
        measured = self.measured(name, gpus)
        return TrainingDays(
            name,
            gpus,
            best.days,
            best.origin,
            best.source,
            best.measurement.watts if best.measurement else None,
            None if printed is None else printed.days,
            rough(min(foretold)) if foretold else None,
            None if measured is None else measured.days(self.asked.by),
            None if measured is None else measured.stack,
        )

    def measured_settings(self, machine: Machine) -> list[Settings]:
        """Return the settings that were measured, or projected, on a machine."""
        return [Settings.parse(id) for id in self._standing(machine)]

    def measured(self, gpu: str, gpus: int, naive: bool = False) -> Measurement | None:
        """Return the fastest that was measured on a machine, or `naive` settings: on the stack that is asked for, else
        on the other."""
        for elsewhere in (False, True):
            best = self._at(gpu, gpus, elsewhere).get(NAIVE.id) if naive else self._best(gpu, gpus, elsewhere)
            if best is not None and best.origin == "measured":
                return best
        return None

    def fastest(self, rows: Iterable[SettingsDays]) -> SettingsDays | None:
        """Return the row with the fewest days of those that may be the fastest: a measured one, if there is any of the
        kind asked for. None where nothing fits."""
        fits = [row for row in rows if row.feasible and self._counts(row.settings)]
        kept = [row for row in fits if row.measurement is not None]
        if self.asked.methods is None or any(Settings.parse(row.settings).parts for row in kept):
            fits = kept or fits
        return min(fits, key=_order, default=None)

    def on_settings(
        self, machine: Machine | tuple[str, int], forecasts: Sequence[Forecast] | None = None
    ) -> list[SettingsDays]:
        """Return the days of these predicted settings, by default of the paper's whole search, and of those that were
        measured there; the fastest first, and last what does not fit. A measurement corrects what it did not measure:
        other settings and other counts of the GPU are the prediction times measured / predicted."""
        known = machine if isinstance(machine, Machine) else None
        forecasts = self.searched(known) if forecasts is None else forecasts
        measured, elsewhere = (self._standing(machine, other) for other in (False, True))
        rows = {}
        nearest = {naive: self._nearest(known, naive) for naive in (False, True)} if known else {}
        for each in forecasts:
            id = each.settings.id
            naive = not self._counts(id)
            rows[id] = self._of(measured[id], each) if id in measured else self._foretold(each, nearest.get(naive))
        rows |= {id: self._of(there, None) for id, there in measured.items() if id not in rows}
        rows = {id: replace(row, elsewhere=elsewhere.get(id)) for id, row in rows.items()}
        best = self.fastest(rows.values())
        return sorted(rows.values(), key=lambda row: (row is not best, _order(row)))

    def _of(self, there: Measurement, foretold: Forecast | None) -> SettingsDays:
        days = there.days(self.asked.by)
        exact = None if days is None else Interval.exact(days)
        source = f"{there.folder}, {there.settings}, on {there.whose} stack ({there.stack}){self._clock}"
        return SettingsDays(there.settings, exact, there.origin, source, foretold, there)

    def _foretold(self, each: Forecast, nearest: tuple[Measurement, float] | None) -> SettingsDays:
        """Return predicted days, to significant figures; projected ones where a measurement corrects them."""
        days, id = self._by(each), each.settings.id
        source = f"{id}, on {self.stack}{self._clock}"
        if days is None or nearest is None:
            return SettingsDays(id, days and days.mapped(rough), "predicted", source, each, None)
        best, factor = nearest
        source += f", corrected by {best.machine} measured on {best.stack}"
        corrected = Interval.exact(rough(days.value * factor))
        return SettingsDays(id, corrected, "projected", source, each, None)

    def _by(self, each: Forecast) -> Interval | None:
        """Return predicted days by the clock that is asked for, with an interval where one is known."""
        days = each.authors_interval if self.asked.by == "authors" else each.days
        return days if days is None or each.bounds else Interval.exact(days.value)

    def _nearest(self, machine: Machine, naive: bool = False) -> tuple[Measurement, float] | None:
        """Return the best measurement on the count of this GPU that is nearest to the machine's, and its days over the
        predicted ones; None where none of the GPU's counts is measured and predicted to train. The best of the search
        is held against the best: then no setting that was not measured is called faster than all that were, and no
        machine gains more from its neighbours than it is predicted to. `naive` settings have a ratio of their own."""
        if not _like_measured(machine) or self.traced is None:
            return None
        name = machine.gpu.called
        counts = {count for gpu, count in self.places if gpu == name}
        for count in sorted(counts, key=lambda count: (abs(math.log(count / machine.world)), count)):
            there = Machine(machine.gpu, count)
            best = self._at(name, count).get(NAIVE.id) if naive else self._best(name, count, parts=False)
            search = [self.forecast(there, NAIVE)] if naive and best else self.searched(there)
            foretold = [days.value for each in search if not each.settings.parts and (days := self._by(each))]
            if best is not None and best.origin == "measured" and best.days(self.asked.by) and foretold:
                return best, (best.days(self.asked.by) or math.inf) / min(foretold)
        return self._nearest(machine) if naive else None

    def forecast(self, machine: Machine, settings: Settings) -> Forecast:
        """Predict settings on a machine, for the stack that is asked for. The model must be one that can be
        predicted."""
        assert self.traced is not None
        return forecast(self.recipe, machine, settings, fitted_constants()[EVERYTHING], self.traced)

    def searched(self, machine: Machine | None) -> list[Forecast]:
        """Predict the paper's search on a machine; nothing where it cannot be predicted."""
        if machine is None or self.traced is None or self.recipe.batch_size % machine.world:
            return []
        return _searched(self.recipe, machine, self.traced, self.asked.methods)

    def _standing(self, machine: Machine | tuple[str, int], elsewhere: bool = False) -> dict[str, Measurement]:
        """Return the measurements that may be of this very machine, by settings."""
        if not isinstance(machine, Machine):
            return self._at(*machine, elsewhere=elsewhere)
        if not _like_measured(machine) or machine.nodes > 1:
            return {}
        return self._at(machine.gpu.called, machine.gpus, elsewhere)

    def _at(self, gpu: str, gpus: int, elsewhere: bool = False) -> dict[str, Measurement]:
        """Return the measurements on a machine, by settings: those of the newest stack with which it was measured, and
        projected ones only where nothing was measured. `elsewhere` takes the stack that is not asked for."""
        there = [each for each in self._measured if (each.gpu, each.gpus) == (gpu, gpus)]
        there = [each for each in there if self._answers(each) != elsewhere]
        there = [each for each in there if each.true_days is None or each.days(self.asked.by)]  # train.py has one clock
        counting = [each for each in there if each.true_days and self._counts(each.settings)]
        for origin in ("measured", "projected"):
            if of_it := [each for each in counting if each.origin == origin]:
                newest = max(each.age for each in of_it)
                return {each.settings: each for each in there if (each.origin, each.age) == (origin, newest)}
        return {each.settings: each for each in sorted(there, key=lambda each: each.age)}

    def _best(self, gpu: str, gpus: int, elsewhere: bool = False, parts: bool = True) -> Measurement | None:
        there = self._at(gpu, gpus, elsewhere).values()
        ran = [each for each in there if each.true_days and self._counts(each.settings)]
        ran = [each for each in ran if parts or not Settings.parse(each.settings).parts]
        return min(ran, key=lambda each: each.days(self.asked.by) or math.inf, default=None)

    def _answers(self, there: Measurement) -> bool:
        """Return True where a measurement is of the stack that is asked for, as any is of a model of one's own."""
        return models.is_own(self.recipe.id) or there.on == self.asked.stack

    def _counts(self, settings: str) -> bool:
        """Return True where settings may be the fastest: Table 1 leaves naive ones out of the paper's recipes."""
        return settings != NAIVE.id or self.recipe.id not in models.IDS

    def foretells(self, gpus: int | None) -> bool:
        """Return whether such a number of GPUs is predicted: training does not fit where no days are known then."""
        return self.traced is not None and gpus in (None, *COUNTS) and self.recipe.batch_size % (gpus or 1) == 0

    @property
    def whose(self) -> str:
        """Name whose stack the days are of."""
        return "the installed" if descriptions.traces_here(self.recipe) else WHOSE[self.asked.stack]

    @cached_property
    def stack(self) -> str:
        """Name the stack of predictions, with the version of transformers that its traces are of."""
        traced = self.traced or of_stack(self.asked.stack)
        return f"{self.whose} stack (transformers {traced.transformers})"

    @property
    def _clock(self) -> str:
        return ", by the authors' clock" if self.asked.by == "authors" else ""


def _like_measured(machine: Machine) -> bool:
    """Return False for a machine that nobody else can have measured: by probes, or a GPU of the user's own."""
    return machine.probed is None and not isinstance(machine.gpu, CustomGpu)


def _check_printed(model: str, asked: DaysAsked) -> None:
    models.find_of_paper(model)
    if asked.runs or asked.trained:
        raise UserError("--by printed takes the paper's days alone, which --measured does not change: leave one out")
    if asked.methods:
        raise UserError(f"--by printed: the paper prints no days with --methods {asked.methods}")
