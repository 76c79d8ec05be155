"""The search for modern settings: free lunch with all parts that serve a model, then with all of them but each one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ..formats import significant
from ..machine.devices import name_of
from ..paper.settings import Settings
from ..parts import BY_NAME, Modern, exact, in_order
from ..record import Record, Trial
from .progress import Progress
from .run import Run


@dataclass
class ModernSearch:
    """The search of one recipe on `count` devices of a run, whose trials `progress` tells."""

    run: Run
    progress: Progress
    recipe: str
    count: int
    records: list[Record] = field(default_factory=list)

    def go(self) -> list[Record]:
        """Measure, and return all records; none where free lunch did not run.

        Parts that make the step slower are dropped, and the rest is measured again, unless a user named the parts."""
        usual = self._fastest()
        if usual is None:
            return []
        trial = next(trial for trial in self.run.trials if trial.id == usual.id)
        named = self.run.options.parts
        exact_only = self.run.options.methods == "modern:exact"
        wanted = named or tuple(name for name in BY_NAME if not exact_only or exact([name]))
        whole = self._together(trial, wanted, asked=bool(named))
        if whole is None:
            return self.records
        parts = Settings.parse(whole.settings).parts
        slower = set[str]()
        for name in parts:
            others = tuple(part for part in parts if part != name)
            found = self._measure(trial, others, Modern({}, part=name)) if others else usual
            if found is None:
                return self.records  # the budget is spent
            if faster(found, whole)[0]:
                slower.add(name)
        rest = tuple(part for part in parts if part not in slower)
        if slower and rest and not named:
            self._measure(trial, rest, Modern({}))
        return self.records

    def _fastest(self) -> Record | None:
        """Return the fastest record without parts, to which they are added."""
        there = [
            record
            for record in self.run.records()
            if (record.recipe, record.count) == (self.recipe, self.count) and not record.custom
        ]
        ran = [record for record in there if record.timed and record.derived.true_step]
        return min(ran, key=lambda record: record.derived.true_step or 0.0, default=None)

    def _together(self, trial: Trial, names: Iterable[str], asked: bool) -> Record | None:
        """Measure all of these parts that serve the model here. Return their record; None where none does, or the
        budget would not suffice."""
        can: list[str] = []
        for name in names:
            if self.run.bench.obstacle(_with(trial, (*can, name))) is None:
                can.append(name)
            elif self._measure(trial, (*can, name), Modern({}, part=name)) is None:
                return None
        while can:
            found = self._measure(trial, can, Modern({}, asked=asked))
            if found is None or found.status != "unsupported":
                return found
            # The model, once built, has nothing that a part changes.
            unfit = next((name for name in can if found.reason.startswith(f"the part {name} ")), None)
            if unfit is None:
                return None
            self._as(found, Modern(Settings.parse(found.settings).classes, part=unfit))
            can.remove(unfit)
        return None

    def _measure(self, trial: Trial, parts: Iterable[str], about: Modern) -> Record | None:
        """Measure a trial's settings with these parts, or take the record of an earlier run. Return it with what it was
        for; None where the budget would not suffice."""
        wanted, run = _with(trial, parts), self.run
        about = replace(about, parts=Settings.parse(wanted.settings).classes)
        known = next((record for record in self.records if record.id == wanted.id), None)
        if known is not None:  # the rest after dropping one part is what that part was left out of
            return self._as(known, about)
        run.add(wanted)
        self.progress.expect(wanted.id, run.estimate(wanted))
        earlier = run.finished(wanted)
        found = self._as(earlier, about) if earlier else run.record(wanted, lambda record: _note(record, about))
        self.progress.tell(wanted, found, earlier is not None)
        if found is not None:
            self.records.append(found)
        return found

    def _as(self, record: Record, about: Modern) -> Record:
        """Return a record of before, and write anew what it was for if that is something else now."""
        if record.modern == about:
            return record
        _note(record, about)
        return self.run.keep(record)


def _note(record: Record, about: Modern) -> None:
    record.modern = about


def _with(trial: Trial, parts: Iterable[str]) -> Trial:
    return replace(trial, settings=replace(trial.recipe_and_settings[1], parts=in_order(parts)).id)


def faster(record: Record, beside: Record) -> tuple[bool, str]:
    """Return whether a record's step is shorter than that of another by more than their rounds scatter, and the reason.

    The scatter of a record is half the distance of its slowest from its fastest round."""
    step, usual = record.derived.true_step, beside.derived.true_step
    if not record.timed or step is None:
        return False, f"{record.status}, {record.reason}" if record.reason else record.status.replace("_", " ")
    if not beside.timed or usual is None:
        return True, f"it runs, and beside it {beside.status.replace('_', ' ')}"
    scatter = sum(
        (max(rounds) - min(rounds)) / 2 for rounds in (record.derived.step_rounds, beside.derived.step_rounds)
    )
    text = f"{significant(step)} s a step, {significant(usual)} s beside it"
    if usual - step > scatter:
        return True, text
    return False, f"{text}: not faster by more than the rounds scatter ({significant(scatter)} s)"


def planned_searches(run: Run) -> dict[str, tuple[str, int]]:
    """Return the recipe and count of each search of a run, by the name of its case."""
    if not run.options.modern:
        return {}
    device = name_of(run.devices).replace(" ", "-")
    pairs = dict.fromkeys((trial.recipe, trial.count) for trial in run.trials)
    return {f"{recipe}/{run.options.scale}/{count}x{device}/modern": (recipe, count) for recipe, count in pairs}
