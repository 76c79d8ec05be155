"""Measured days of a training: of results folders, and those that come with repro in expected/measured.csv."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ..machine.packages import numbers
from ..models.recipe import Text
from ..paper.gpus import OfGpus
from ..paper.measured_days import measured_days
from ..predict.traces import Stack
from ..record import By, Record
from ..run.plan import ModernMethods
from ..run.reading import Reading, by_stack
from ..run.settings_search import searches
from ..validity import feasible

UNKNOWN = "unknown versions"  # of a measurement's packages
WHOSE: dict[Stack, str] = {"paper": "the paper's", "today": "today's"}


@dataclass(frozen=True)
class Measurement(OfGpus):
    """A trial of one model, measured on this machine or projected to it. Its days are None where the settings do not
    fit. `stack` names the versions of its packages."""

    gpu: str
    gpus: int
    settings: str
    true_days: float | None
    authors_days: float | None
    micro_batch: int | None
    stack: str
    folder: str
    origin: Literal["measured", "projected"] = "measured"
    watts: float | None = None

    @property
    def on(self) -> Stack:
        """Return the stack that it answers for: the paper's has torch 2.3 and transformers 4.42, others are today's."""
        known = self._versions
        papers = {"torch": (2, 3), "transformers": (4, 42)}
        named = "torch" in known and all(known.get(name, of)[:2] == of for name, of in papers.items())
        return "paper" if named else "today"

    @property
    def whose(self) -> str:
        return WHOSE[self.on]

    @property
    def age(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the key by which the newest stack comes last; a folder that does not say its versions is new."""
        known, new = self._versions, (10**9,)
        other = next((known[name] for name in ("transformers", "timm") if name in known), new)
        return known.get("torch", new), other

    @property
    def _versions(self) -> dict[str, tuple[int, ...]]:
        pairs = (each.rpartition(" ") for each in self.stack.split(", "))
        return {name: numbers(version) for name, _, version in pairs if numbers(version)}

    def days(self, by: By) -> float | None:
        return self.authors_days if by == "authors" else self.true_days


def shipped(model: str) -> list[Measurement]:
    """Return the measurements of expected/measured.csv."""
    return [
        Measurement(
            *(row.gpu, row.gpus, row.settings, row.true_days, row.authors_days, row.micro_batch),
            row.stack,
            row.folder,
        )
        for row in measured_days().values()
        if row.model == model
    ]


def of_folders(model: str, folders: Sequence[Reading], methods: ModernMethods | None) -> Iterator[Measurement]:
    """Yield the trials of results folders that say whether their settings fit: at the paper's scale, on one node, with
    the whole memory; with parts of modern training only where `methods` asks for them, and were kept."""
    for runs in by_stack(folders):
        records = [each for each in runs.records if each.recipe == model and each.like_papers]
        usual = [each for each in records if not each.custom]
        found = [*searches(usual), *searches(usual, origin="projected")]
        listed = [each for search in found for each in search.standing.values()]
        if methods is not None:
            exact_only = methods == "modern:exact"
            listed += [each for each in records if each.modern is not None and each.modern.stands(exact_only)]
        yield from filter(None, (_of_record(runs.run_of(each), each) for each in listed))


def _of_record(run: Reading, record: Record) -> Measurement | None:
    """Return a record's measurement; None where it does not say whether its settings fit."""
    fits = feasible(record)
    if fits is None:
        return None
    assert record.origin != "released"  # no run has such a record
    derived = record.derived
    packages = run.environment.packages or {}
    names = ("torch", "transformers" if isinstance(record.recipe_and_settings[0].inputs, Text) else "timm")
    stack = ", ".join(f"{name} {packages[name]}" for name in names if name in packages)
    return Measurement(
        record.device,
        record.count,
        record.settings,
        derived.true_days if fits else None,
        derived.authors_days if fits else None,
        record.batch.micro_batch,
        stack or UNKNOWN,
        str(run.folder),
        record.origin,
        _watts(record),
    )


def _watts(record: Record) -> float | None:
    """Return the ranks' power together: the mean while the rounds were timed, else as read once in a training step;
    None where a GPU did not report it."""
    if record.derived.joules_per_step is not None and record.derived.true_step:
        return record.derived.joules_per_step / record.derived.true_step
    readings = [state.get("power_w") if state else None for state in record.observed.gpu_state or []]
    drawn = [watts for watts in readings if watts is not None]
    return sum(drawn) if readings and len(drawn) == len(readings) else None
