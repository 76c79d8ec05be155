"""The result of a search of settings on one machine: the best against free lunch alone, the median, the worst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from .. import models
from ..models.recipe import Scale
from ..paper.settings import FREE_LUNCH, NAIVE, Settings, search_space
from ..record import DEFAULT, Clock, OnMachine, Origin, Record
from ..steps import days_of_steps
from ..validity import feasible


@dataclass(frozen=True)
class Spread:
    """Seconds of a training step with the best, the median and the worst of `count` memory-saving settings that ran."""

    best: float
    median: float
    worst: float
    count: int


def standing(trials: Iterable[Record]) -> dict[str, Record]:
    """Return one record for each settings id, although trials may have repeated it, such as with more rounds: the last
    that ran, else the last that does not fit, else the last. Those with methods of one's own or a given micro batch are
    left out."""
    known = [(trial, feasible(trial)) for trial in trials if not trial.custom]
    found = {trial.settings: trial for trial, _ in known}
    for answer in (False, True):
        found |= {trial.settings: trial for trial, fits in known if fits is answer}
    return found


@dataclass(frozen=True)
class Search(OnMachine):
    """All trials of one recipe on one machine with one memory limit. Steps are seconds by `clock`, which thus decides
    which settings are the fastest; None where the settings did not run."""

    recipe: str
    scale: Scale
    device: str
    count: int
    nodes: int
    memory_limit: int | None
    trials: tuple[Record, ...]
    clock: Clock = DEFAULT
    origin: Origin = "measured"

    @property
    def model(self) -> str:
        """Return the paper's name of the recipe."""
        return models.find(self.recipe).name

    @cached_property
    def standing(self) -> dict[str, Record]:
        return standing(self.trials)

    @property
    def untried(self) -> tuple[str, ...]:
        """Return settings of the paper's space that neither ran nor ran out of memory here, with the outcome if
        tried."""
        ended = {
            Settings.parse(id).base: record.status + (", to be run again" if record.status == "out_of_memory" else "")
            for id, record in self.standing.items()
        }
        settled = {Settings.parse(id).base for id, record in self.standing.items() if feasible(record) is not None}
        return tuple(
            f"{settings.id} ({ended[settings]})" if settings in ended else settings.id
            for settings in search_space(self.world)
            if settings not in settled
        )

    @property
    def whole(self) -> bool:
        """Return whether all settings of the paper's space ran or ran out of memory here. This includes a search in
        which free lunch alone ran out of memory: the caller decides what that implies for other settings."""
        return not self.untried

    @property
    def tried(self) -> list[Record]:
        """Return the trials that came to an end, with any outcome but unsupported."""
        ended = (trial for trial in self.trials if trial.ended and not trial.custom)
        return [trial for trial in ended if trial.status != "unsupported"]

    @property
    def skipped(self) -> list[Record]:
        """Return the trials that were not measured, as others were predicted to be faster."""
        return [trial for trial in self.standing.values() if trial.status == "skipped"]

    @property
    def seconds(self) -> float:
        """Return the seconds that the trials took, without loading the stack."""
        return sum(trial.wall_seconds for trial in self.trials)

    @property
    def skipping(self) -> str:
        """Return how many settings were measured, and how many not and why; empty where none was skipped."""
        if not self.skipped:
            return ""
        tried = len({trial.settings for trial in self.tried})
        others = f"{len(self.skipped)} not, as others were predicted to be faster"
        return f"{tried} settings tried in {self.seconds:.0f} s, {others}"

    @cached_property
    def steps(self) -> dict[str, float]:
        """Return the seconds of a training step by settings, for all that ran except naive."""
        return {id: step for id, step in self._steps.items() if id != NAIVE.id}

    @property
    def naive(self) -> float | None:
        return self._steps.get(NAIVE.id)

    @property
    def free_lunch(self) -> float | None:
        """Return the step of free lunch alone, in seconds, with the faster attention where both ran."""
        alone = (step for id, step in self.steps.items() if Settings.parse(id).base == FREE_LUNCH)
        return min(alone, default=None)

    @property
    def free_lunch_fits(self) -> bool:
        """Return False where free lunch alone ran out of memory."""
        full = (id for id, record in self.standing.items() if feasible(record) is False)
        return self.free_lunch is not None or all(Settings.parse(id).base != FREE_LUNCH for id in full)

    @property
    def fastest(self) -> str | None:
        """Return the settings of the shortest step, except naive."""
        return _fastest(self.steps)

    @property
    def fastest_saving(self) -> str | None:
        """Return the settings of the shortest step with any memory-saving method."""
        return _fastest(self._saving)

    @property
    def best(self) -> float | None:
        return min(self.steps.values(), default=None)

    @property
    def spread(self) -> Spread | None:
        """Return the spread of the steps with memory-saving methods; None where none of them ran. Free lunch alone is
        not included: figure 5 shows it separately as a reference."""
        steps = self._saving.values()
        return Spread(min(steps), median(steps), max(steps), len(steps)) if steps else None

    @property
    def gain(self) -> float | None:
        """Return the share by which the best memory-saving settings shorten the step of free lunch alone; negative
        where they are slower (figures 4 and 11)."""
        if self.fastest_saving is None or self.free_lunch is None:
            return None
        return 1 - self.steps[self.fastest_saving] / self.free_lunch

    def days(self, step: float) -> float:
        """Return the days of the whole training with this step, in seconds."""
        return days_of_steps(step, models.find(self.recipe, self.scale).training_steps)

    @property
    def best_days(self) -> float | None:
        """Return the days of the whole training with the best settings, except naive."""
        return None if self.best is None else self.days(self.best)

    @cached_property
    def _saving(self) -> dict[str, float]:
        """Return the steps of all that ran with any memory-saving method."""
        return {id: step for id, step in self.steps.items() if Settings.parse(id).saves_memory}

    @cached_property
    def _steps(self) -> dict[str, float]:
        there = self.standing.items()
        return {id: step for id, record in there if (step := record.step_by(self.clock)) is not None}


def _fastest(steps: dict[str, float]) -> str | None:
    return min(steps, key=lambda settings: steps[settings], default=None)


def searches(records: Iterable[Record], clock: Clock = DEFAULT, origin: Origin = "measured") -> list[Search]:
    """Return the searches in these records of one origin, with this clock, in the order of their first trials."""
    places: dict[tuple[str, Scale, str, int, int, int | None], list[Record]] = {}
    for record in records:
        if record.origin != origin:
            continue
        place = (record.recipe, record.scale, record.device, record.count, record.nodes, record.memory_limit)
        places.setdefault(place, []).append(record)
    return [Search(*place, tuple(trials), clock, origin) for place, trials in places.items()]
