"""What a search of settings found on one machine: the best against free lunch alone, the median, the worst."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, median

import models

from .recipe import Scale
from .rules import compiles
from .settings import FREE_LUNCH, NAIVE, Settings, search_space
from .trial import OnMachine, Record


@dataclass(frozen=True)
class Spread:
    """Seconds of a training step with the best, the median and the worst settings of a search."""

    best: float
    median: float
    worst: float


@dataclass(frozen=True)
class Search(OnMachine):
    """All trials of one recipe on one machine, memory limit included. Steps are seconds by the authors' clock, which
    is the one that the paper compares; None where the settings did not run."""

    recipe: str
    scale: Scale
    device: str
    count: int
    nodes: int
    memory_limit: int | None
    trials: tuple[Record, ...]

    @property
    def model(self) -> str:
        """The paper's name of the recipe."""
        return models.find(self.recipe).name

    @property
    def whole(self) -> bool:
        """Whether every settings of the paper's space either ran here or ran out of memory."""
        tried = {Settings.parse(t.settings).base for t in self.trials if t.status in ("ok", "out_of_memory")}
        return set(search_space(self.world)) <= tried

    @property
    def tried(self) -> list[Record]:
        """What was measured, with whatever outcome."""
        return [trial for trial in self.trials if trial.status != "skipped"]

    @property
    def skipped(self) -> list[Record]:
        """What a guided search did not measure, as it could not be the fastest."""
        return [trial for trial in self.trials if trial.status == "skipped"]

    @property
    def seconds(self) -> float:
        """What the trials took, without loading the stack."""
        return sum(trial.wall_seconds for trial in self.trials)

    @property
    def exhaustive_seconds(self) -> float:
        """The same, had nothing been skipped: an estimate, each skipped settings at the mean of those tried that are
        compiled likewise, or of all tried."""
        recipe = models.find(self.recipe, self.scale)
        took = [(compiles(recipe, Settings.parse(trial.settings)), trial.wall_seconds) for trial in self.tried]
        total = sum(trial.wall_seconds for trial in self.tried)
        for trial in self.skipped:
            compiled = compiles(recipe, Settings.parse(trial.settings))
            alike = [seconds for one, seconds in took if one == compiled] or [seconds for _, seconds in took]
            total += mean(alike) if alike else 0.0
        return total

    @property
    def guided(self) -> str:
        """What guidance saved, in a sentence; nothing where nothing was predicted."""
        if not self.skipped:
            guided = any(trial.predicted_micro_batch is not None for trial in self.trials)
            return f"{len(self.tried)} settings were tried in {self.seconds:.0f} s, none was skipped" if guided else ""
        return (
            f"{len(self.tried)} settings were tried in {self.seconds:.0f} s, {len(self.skipped)} were skipped, for "
            "even at best they were predicted no faster than the fastest; all would have taken about "
            f"{self.exhaustive_seconds:.0f} s (estimated)"
        )

    @property
    def naive(self) -> float | None:
        return self._step(NAIVE.id)

    @property
    def free_lunch(self) -> float | None:
        """Free lunch alone, with the faster attention where both ran."""
        alone = (step for id, step in self.steps.items() if Settings.parse(id).base == FREE_LUNCH)
        return min(alone, default=None)

    @property
    def memory_saving(self) -> float | None:
        """The fastest with any memory-saving method."""
        return min((step for id, step in self.steps.items() if Settings.parse(id).saves_memory), default=None)

    @property
    def best(self) -> float | None:
        return min(self.steps.values(), default=None)

    @property
    def spread(self) -> Spread | None:
        """How far the steps of the search lie apart (figure 5); None where nothing ran."""
        steps = self.steps.values()
        return Spread(min(steps), median(steps), max(steps)) if steps else None

    @property
    def gain(self) -> float | None:
        """What the best memory-saving settings take off the step of free lunch alone, as a share; negative where they
        are slower (figures 4 and 11)."""
        if self.memory_saving is None or self.free_lunch is None:
            return None
        return 1 - self.memory_saving / self.free_lunch

    @property
    def best_days(self) -> float | None:
        """Days of the whole training with the best settings, naive left out."""
        days = [t.authors_days for t in self.trials if t.settings != NAIVE.id and t.authors_days is not None]
        return min(days, default=None)

    @property
    def steps(self) -> dict[str, float]:
        """Seconds of a training step of all that ran but naive, by settings."""
        return {
            trial.settings: trial.authors_step
            for trial in self.trials
            if trial.settings != NAIVE.id and trial.authors_step is not None
        }

    def _step(self, settings: str) -> float | None:
        return next((trial.authors_step for trial in self.trials if trial.settings == settings), None)


def searches(records: Iterable[Record]) -> list[Search]:
    """The records' searches, in the order of their first trials."""
    places: dict[tuple[str, Scale, str, int, int, int | None], list[Record]] = {}
    for record in records:
        place = (record.recipe, record.scale, record.device, record.count, record.nodes, record.memory_limit)
        places.setdefault(place, []).append(record)
    return [Search(*place, tuple(trials)) for place, trials in places.items()]
