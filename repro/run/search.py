"""What a search of settings found on one machine: the best against free lunch alone, the median, the worst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median

from .. import models
from ..answer import shared
from ..machine.rules import compiles, fits_papers_hosts
from ..models.recipe import Scale
from ..paper.settings import FREE_LUNCH, NAIVE, Settings, search_space
from ..record import DEFAULT, Clock, OnMachine, Record, days_of_steps


@dataclass(frozen=True)
class Spread:
    """Seconds of a training step with the best, the median and the worst of `count` memory-saving settings that ran."""

    best: float
    median: float
    worst: float
    count: int


_SAYS = {"ok": 2, "out_of_memory": 1}  # how much a status says of settings, others nothing


def standing(trials: Iterable[Record]) -> dict[str, Record]:
    """By settings the record that stands for all that were made of them, such as with more rounds: the last that ran,
    else the last that ran out of memory, else the last."""
    found: dict[str, Record] = {}
    for trial in trials:
        before = found.get(trial.settings)
        if before is None or _SAYS.get(trial.status, 0) >= _SAYS.get(before.status, 0):
            found[trial.settings] = trial
    return found


def ran_out(record: Record) -> bool:
    """Whether it ran out of memory, and so tells that its settings do not fit: not of a GPU's that another process
    used, nor of a host's for settings for which the paper's jobs had enough."""
    if record.status != "out_of_memory" or shared(record):
        return False
    return not (record.host_ran_out and fits_papers_hosts(*record.recipe_and_settings, record.world))


@dataclass(frozen=True)
class Search(OnMachine):
    """All trials of one recipe on one machine, memory limit included. Steps are seconds by `clock`, which so decides
    what is fastest; None where the settings did not run."""

    recipe: str
    scale: Scale
    device: str
    count: int
    nodes: int
    memory_limit: int | None
    trials: tuple[Record, ...]
    clock: Clock = DEFAULT

    @property
    def model(self) -> str:
        """The paper's name of the recipe."""
        return models.find(self.recipe).name

    @cached_property
    def standing(self) -> dict[str, Record]:
        return standing(self.trials)

    @property
    def untried(self) -> tuple[str, ...]:
        """Settings of the paper's space that neither ran here nor ran out of memory, and how those tried ended."""
        ended = {
            Settings.parse(id).base: record.status + (", to be run again" if record.status == "out_of_memory" else "")
            for id, record in self.standing.items()
        }
        settled = {
            Settings.parse(id).base for id, record in self.standing.items() if record.status == "ok" or ran_out(record)
        }
        return tuple(
            f"{settings.id} ({ended[settings]})" if settings in ended else settings.id
            for settings in search_space(self.world)
            if settings not in settled
        )

    @property
    def whole(self) -> bool:
        """Whether every settings of the paper's space either ran here or ran out of memory, also where free lunch alone
        did: what that says of others is the reader's to decide."""
        return not self.untried

    @property
    def tried(self) -> list[Record]:
        """What was measured, with whatever outcome; what cannot run here was not."""
        return [trial for trial in self.trials if trial.status not in ("skipped", "unsupported", "not_measured")]

    @property
    def skipped(self) -> list[Record]:
        """What a guided search did not measure, as it could not be the fastest."""
        return [trial for trial in self.standing.values() if trial.status == "skipped"]

    @property
    def seconds(self) -> float:
        """What the trials took, without loading the stack."""
        return sum(trial.wall_seconds for trial in self.trials)

    @property
    def exhaustive_seconds(self) -> float:
        """The same, had nothing been skipped: an estimate, each skipped settings at the mean of those tried that are
        compiled likewise, or of all tried."""
        took = [(compiles(*trial.recipe_and_settings), trial.wall_seconds) for trial in self.tried]
        total = sum(trial.wall_seconds for trial in self.trials if trial.status != "skipped")
        for trial in self.skipped:
            compiled = compiles(*trial.recipe_and_settings)
            alike = [seconds for one, seconds in took if one == compiled] or [seconds for _, seconds in took]
            total += mean(alike) if alike else 0.0
        return total

    @property
    def guided(self) -> str:
        """What guidance saved, in a sentence; nothing where nothing was predicted."""
        tried = len({trial.settings for trial in self.tried})
        if not self.skipped:
            guided = any(trial.predicted_micro_batch is not None for trial in self.trials)
            return f"{tried} settings tried in {self.seconds:.0f} s, none skipped" if guided else ""
        return (
            f"{tried} settings tried in {self.seconds:.0f} s, {len(self.skipped)} skipped, as predicted no faster than "
            "the fastest even at best; all would have taken about "
            f"{self.exhaustive_seconds:.0f} s (estimated)"
        )

    @property
    def steps(self) -> dict[str, float]:
        """Seconds of a training step of all that ran but naive, by settings."""
        return {id: step for id, step in self._steps.items() if id != NAIVE.id}

    @property
    def naive(self) -> float | None:
        return self._steps.get(NAIVE.id)

    @property
    def free_lunch(self) -> float | None:
        """Free lunch alone, with the faster attention where both ran."""
        alone = (step for id, step in self.steps.items() if Settings.parse(id).base == FREE_LUNCH)
        return min(alone, default=None)

    @property
    def free_lunch_fits(self) -> bool:
        """False where free lunch alone ran out of memory."""
        full = (id for id, record in self.standing.items() if ran_out(record))
        return self.free_lunch is not None or all(Settings.parse(id).base != FREE_LUNCH for id in full)

    @property
    def fastest(self) -> str | None:
        """The settings of the shortest step, naive left out."""
        return _fastest(self.steps)

    @property
    def fastest_saving(self) -> str | None:
        """The same of those with any memory-saving method."""
        return _fastest(self._saving)

    @property
    def best(self) -> float | None:
        return min(self.steps.values(), default=None)

    @property
    def spread(self) -> Spread | None:
        """How far the steps with memory-saving methods lie apart; None where none of them ran. Free lunch alone is not
        among them: figure 5 has it as a reference beside them."""
        steps = self._saving.values()
        return Spread(min(steps), median(steps), max(steps), len(steps)) if steps else None

    @property
    def gain(self) -> float | None:
        """What the best memory-saving settings take off the step of free lunch alone, as a share; negative where they
        are slower (figures 4 and 11)."""
        if self.fastest_saving is None or self.free_lunch is None:
            return None
        return 1 - self.steps[self.fastest_saving] / self.free_lunch

    def days(self, step: float) -> float:
        """Days of the whole training at so many seconds a step."""
        return days_of_steps(step, models.find(self.recipe, self.scale).training_steps)

    @property
    def best_days(self) -> float | None:
        """Days of the whole training with the best settings, naive left out."""
        return None if self.best is None else self.days(self.best)

    @property
    def _saving(self) -> dict[str, float]:
        """The steps of all that ran with any memory-saving method."""
        return {id: step for id, step in self.steps.items() if Settings.parse(id).saves_memory}

    @property
    def _steps(self) -> dict[str, float]:
        there = self.standing.items()
        return {id: step for id, record in there if (step := record.step_by(self.clock)) is not None}


def _fastest(steps: dict[str, float]) -> str | None:
    return min(steps, key=lambda settings: steps[settings], default=None)


def searches(records: Iterable[Record], clock: Clock = DEFAULT) -> list[Search]:
    """The records' searches by this clock, in the order of their first trials."""
    places: dict[tuple[str, Scale, str, int, int, int | None], list[Record]] = {}
    for record in records:
        place = (record.recipe, record.scale, record.device, record.count, record.nodes, record.memory_limit)
        places.setdefault(place, []).append(record)
    return [Search(*place, tuple(trials), clock) for place, trials in places.items()]
