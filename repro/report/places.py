"""Each recipe on each machine: its search of settings and its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..clocks import BY_CLOCK
from ..formats import figures, from_to, listing, were
from ..reading import Joined
from ..search import Search
from ..settings import NAIVE, Settings, search_space
from ..trial import Record
from ..verdict import Verdict
from .grids import verdict_entry
from .text import nearest_paper_gpu, notes_on, settings_told, trial_rows


@dataclass(frozen=True)
class Place:
    """One recipe on one machine: the settings that were searched, and every trial. `told` is all of it in a line."""

    title: str
    told: str
    says: Sequence[str]
    trials: Sequence[dict[str, Any]]
    notes: Sequence[str]


def place_of(search: Search, verdicts: Iterable[Verdict], runs: Joined) -> Place:
    """A search of these runs with the verdicts on its cells; beside its trials stand the paper's days on its GPU that
    is most like theirs."""
    twin = " (tiny twin)" if search.scale == "tiny" else ""
    space = set(search_space(search.world))
    tried = {Settings.parse(trial.settings).base for trial in search.tried}
    naive = ", and naive settings" if NAIVE in tried else ""
    searched = len(tried & space)
    says = [f"{searched} of the {len(space)} settings of the paper's search {were(searched)} tried{naive}."]
    if search.guided:
        says.append(f"Guided by predictions: {search.guided}.")
    if search.fastest is not None:
        best = f"{search.fastest}: {figures(search.steps[search.fastest])} s a training step {BY_CLOCK[search.clock]}"
        slower = "" if search.naive is None else f"; naive settings take {figures(search.naive)} s"
        says.append(f"The fastest apart from naive settings is {best}{slower}.")
    for verdict in verdicts if search.stands_for_paper else ():
        if verdict.place == (search.model, search.device, search.count):
            says.append(f"{verdict_entry(verdict).told}.")
    if runs.several:
        says.append(f"Measured in {_folders(search, runs)}.")
    nearest = nearest_paper_gpu(runs.run_of(search.trials[0]).devices)
    rows = [_trial(*both) for both in zip(search.trials, trial_rows(search.trials, nearest), strict=True)]
    return Place(f"{search.model}{twin} on {search.machine}", _told(search), says, rows, _notes(search))


def _folders(search: Search, runs: Joined) -> str:
    """Where its trials were measured; which of them, where that is several folders."""
    found: dict[str, list[str]] = {}
    for trial in search.trials:
        found.setdefault(str(runs.run_of(trial).folder), []).append(settings_told(trial))
    if len(found) == 1:
        return next(iter(found))
    return listing([f"{folder} ({', '.join(settings)})" for folder, settings in found.items()])


def _notes(search: Search) -> list[str]:
    found: dict[str, list[str]] = {}
    for trial in search.trials:
        for note in notes_on(trial):
            found.setdefault(note, []).append(settings_told(trial))
    return [f"{', '.join(settings)}: {note}" for note, settings in found.items()]


def _told(search: Search) -> str:
    statuses = Counter(trial.status.replace("_", " ") for trial in search.trials)
    told = [", ".join(f"{count} {status}" for status, count in statuses.items())]
    if search.best is not None:
        told.append(f"the fastest apart from naive takes {figures(search.best)} s a step {BY_CLOCK[search.clock]}")
    ratios = [ratio for trial in search.trials if (ratio := trial.clocks_ratio) is not None]
    if ratios:
        told.append(f"authors' clock {from_to(ratios, '.2f')} of the true one")
    return "; ".join(told)


def _trial(record: Record, row: dict[str, Any]) -> dict[str, Any]:
    """The trial's line, with a step by each clock."""
    steps = {
        "true s": record.true_step,
        "authors s": record.authors_step,
        "synchronised s": record.synchronised_step,
        "authors/true": record.clocks_ratio,
    }
    settled = {name: row.pop(name) for name in ("settings", "status", "MBS", "GAS")}
    return settled | steps | {name: value for name, value in row.items() if name not in ("model", "machine", "step s")}
