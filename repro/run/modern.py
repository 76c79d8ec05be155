"""The search for modern settings: parts are added to free lunch one by one, and kept where they make a step faster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .. import models
from ..formats import figures
from ..measure.same_training import SameTraining
from ..models.recipe import Recipe
from ..paper.settings import Settings
from ..parts import exact, excluded, in_order
from ..predict.hardware import Machine
from ..predict.modern import order_of
from ..record import Modern, Record, Trial
from ..validity import Answer
from .reporter import Reporter
from .run import Run

_CHECKED = 8  # examples of a micro-step in the check of the training, at most


@dataclass(frozen=True)
class ModernSearch:
    """The search of one recipe on `count` devices of a run, each of whose trials the reporter reports."""

    run: Run
    reporter: Reporter
    recipe: str
    count: int

    def go(self) -> list[Record]:
        """Measure, and return all records; none where free lunch did not run."""
        usual = self._fastest()
        if usual is None:
            return []
        trial = next(trial for trial in self.run.trials if trial.id == usual.id)
        named = self.run.options.parts
        known = _Steps(self, trial, usual)
        if named:
            kept = known.asked(named)
        else:
            exact_only = self.run.options.methods == "modern:exact"
            kept = known.added(name for name in self._order(trial) if not exact_only or exact([name]))
        known.left_out(kept)
        return known.records

    def _fastest(self) -> Record | None:
        """Return the fastest record without parts, to which they are added."""
        there = [
            record
            for record in self.run.records()
            if (record.recipe, record.count) == (self.recipe, self.count) and not record.own
        ]
        ran = [record for record in there if Answer.of(record).ran and record.derived.true_step]
        return min(ran, key=lambda record: record.derived.true_step or 0.0, default=None)

    def _order(self, trial: Trial) -> Sequence[str]:
        """Return all parts in the order in which they are tried: those with the largest predicted gain first."""
        recipe, settings = trial.recipe_and_settings
        devices = self.run.devices
        known = devices[0].gpu if devices else None
        paper = models.find(recipe.id, "paper")
        return order_of(paper, settings, Machine(known, trial.count) if known is not None else None)


@dataclass
class _Steps:
    """The steps of a search that adds parts to a trial whose record is `usual`."""

    search: ModernSearch
    trial: Trial
    usual: Record
    same: SameTraining | None = None

    def __post_init__(self) -> None:
        self.records: list[Record] = []
        self.run = self.search.run
        self.spent = False  # the budget
        self.settings = self.trial.recipe_and_settings[1]
        if self.run.options.check_training:
            size = min(_CHECKED, self.usual.batch.micro_batch or 1)
            self.same = SameTraining(self.run.bench, self.trial, self.usual.ran.tf32, size, left=lambda: self.run.left)

    def added(self, names: Iterable[str]) -> Record:
        """Add parts one at a time, and keep those that make the step faster by more than the rounds scatter. Return the
        record with all that were kept."""
        best = self.usual
        for name in names:
            kept = Settings.parse(best.settings).parts
            if excluded([*kept, name]):
                continue
            found = self._measure((*kept, name), Modern({}, best.settings, added=name), best)
            if self.spent:
                break
            if found is not None and found.modern is not None and found.modern.outcome == "kept":
                best = found
        return best

    def asked(self, names: Sequence[str]) -> Record:
        """Measure the parts that a user named, all of them that run here, together."""
        can: list[str] = []
        for name in names:
            wanted = self._trial((*can, name))
            if self.run.bench.obstacle(wanted) is None:
                can.append(name)
            else:
                self._measure((*can, name), Modern({}, self.usual.settings, added=name), self.usual)
        while can:
            found = self._measure(can, Modern({}, self.usual.settings, outcome="asked", reason="named"), self.usual)
            if found is not None and Answer.of(found).ran:
                return found
            if found is None or found.modern is None or not found.modern.added:
                break
            can.remove(found.modern.added)  # the model has nothing that it changes
        return self.usual

    def left_out(self, best: Record) -> None:
        """Measure the settings with all parts but one, for each of them."""
        parts = Settings.parse(best.settings).parts
        for name in parts:
            others = tuple(part for part in parts if part != name)
            if others and not self.spent:
                self._measure(others, Modern({}, best.settings, left_out=name), best)

    def _trial(self, parts: Iterable[str]) -> Trial:
        return replace(self.trial, settings=replace(self.settings, parts=in_order(parts)).id)

    def _measure(self, parts: Iterable[str], about: Modern, beside: Record) -> Record | None:
        """Measure settings, or take the record of an earlier run, and put into it what it was for; None where the
        budget would not suffice."""
        trial, run = self._trial(parts), self.run
        if (known := next((record for record in self.records if record.id == trial.id), None)) is not None:
            return known  # a part was left out that was added last
        about = replace(about, parts=Settings.parse(trial.settings).classes)
        run.add(trial)
        self.search.reporter.expect(trial, run.estimate(trial))
        earlier = run.finished(trial)
        if earlier is not None:
            if about.left_out == "":
                before = earlier.modern
                self._judge(earlier, about, beside)
                if earlier.modern != before:
                    run.keep(earlier)
            found: Record | None = earlier
        else:
            found = run.record(trial, lambda record: self._judge(record, about, beside))
        self.search.reporter.trial(trial, found, earlier is not None)
        if found is None:
            self.spent = True
        else:
            self.records.append(found)
        return found

    def _judge(self, record: Record, about: Modern, beside: Record) -> None:
        """Put into a record what its trial was for and, of an added part, what becomes of it."""
        if about.added and record.status != "unsupported":
            kept, reason = faster(record, beside)
            about = replace(about, outcome="kept" if kept else "dropped", reason=reason)
        if not about.added and record.status == "unsupported":
            unfit = next((name for name in about.parts if record.reason.startswith(f"the part {name} ")), "")
            about = replace(about, added=unfit, outcome=None, reason="")
        if about.stands() and Answer.of(record).ran:
            before = record.modern  # of an earlier run
            if before is not None and before.training and before.added == about.added:
                changes = before.outcome == "changes_training"
                about = replace(before if changes else about, training=before.training)
            elif self.same is not None:
                about = self._checked(record, about)
        record.modern = about

    def _checked(self, record: Record, about: Modern) -> Modern:
        """Check the added part alone, where it can be without others, or all of the record's parts."""
        assert self.same is not None
        alone = self._trial([about.added]) if about.added else None
        settings = alone.settings if alone and self.run.bench.obstacle(alone) is None else record.settings
        try:
            found = self.same.of(settings, record.ran.compiled)
        except RuntimeError as error:
            return replace(about, outcome="dropped", reason=f"its training could not be checked: {error}")
        if found.fault:
            return replace(about, outcome="changes_training", reason=found.text, training=found.text)
        return replace(about, training=found.text)


def faster(record: Record, beside: Record) -> tuple[bool, str]:
    """Return whether a record's step is shorter than that of another by more than their rounds scatter, and the reason.

    The scatter of a record is half the distance of its slowest from its fastest round."""
    step, usual = record.derived.true_step, beside.derived.true_step
    if not Answer.of(record).ran or step is None or usual is None:
        return False, f"{record.status}, {record.reason}" if record.reason else record.status.replace("_", " ")
    scatter = sum(
        (max(rounds) - min(rounds)) / 2 for rounds in (record.derived.step_rounds, beside.derived.step_rounds)
    )
    text = f"{figures(step)} s a step with it, {figures(usual)} s without"
    if usual - step > scatter:
        return True, text
    return False, f"{text}: not faster by more than the rounds scatter ({figures(scatter)} s)"


def search_name(recipe: Recipe, count: int, device: str) -> str:
    """Return the name of a search, for its case."""
    return f"{recipe.id}/{recipe.scale}/{count}x{device.replace(' ', '-')}/modern"
