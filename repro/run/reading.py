"""Reading of results folders: their valid records, and a list of all problems in them.

Several folders, of several machines or stacks, are joined to one set of records.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import datafile, files
from ..console import UserError, say
from ..datafile import NotAsDeclaredError
from ..formats import counted, first, listing, percent, were
from ..machine.devices import Device
from ..machine.environment import FILE as ENVIRONMENT
from ..machine.environment import Environment
from ..paper.gpus import find
from ..paper.tables import TOLERANCE
from ..record import DEFAULT, Clock, Record
from ..validity import believed
from . import results
from .plan import Options, trials
from .records import Problem, all_valid_records, environment_of, latest_of, located, print_problems
from .verdict import Verdict, judge_tables

if TYPE_CHECKING:
    from ..released.results import Archive

_WAY_OUT = "name the results folder of a run (its --out)"


@dataclass(frozen=True)
class Reading:
    """The contents of a results folder, judged by `clock`. `environment` is empty and `options` None where the folder
    lacks them; `earlier` are the options of the runs before. Of a trial that was measured several times `every` record
    is kept, `records` has the last. The authors' archive has no records of a run, but `released` ones."""

    folder: Path
    records: tuple[Record, ...]
    environment: Environment
    options: Options | None
    earlier: tuple[Options, ...]
    verdicts: tuple[Verdict, ...]
    problems: tuple[Problem, ...]
    clock: Clock
    released: Archive | None = None
    every: tuple[Record, ...] = ()

    @property
    def devices(self) -> list[Device]:
        """Return the GPUs of the run; empty for the CPU."""
        return _devices(self.environment)


def read(folder: Path, clock: Clock = DEFAULT) -> Reading:
    """Read a results folder and judge its cells by `clock`. A run that has just begun has no trials yet. Raise
    UserError where the folder does not exist or never had a run in it."""
    files.look(folder / results.TRIALS)
    if (archive := _released(folder)) is not None:
        unmeasured = tuple(judge_tables((), TOLERANCE, clock))
        return Reading(folder, (), Environment(), None, (), unmeasured, (), clock, archive)
    has_run = (folder / ENVIRONMENT).exists() and not (folder / results.TRIALS).is_dir()
    if not has_run or any(folder.glob(results.TRAININGS)):
        refuse_without_trials(folder)
    problems: list[Problem] = []
    environment = environment_of(folder, problems)
    options = _options(environment.options, problems) if environment != Environment() else None
    earlier = tuple(filter(None, (_options(each, problems) for each in environment.earlier)))
    measured = all_valid_records(folder, problems)
    records = latest_of(measured, environment, problems)
    if lack := results.lack(folder):
        reason = f"{lack}: no trial of the run ended, or the folder is not whole"
        problems.append(Problem(results.TRIALS, reason, "the same command again measures what is missing"))
    else:
        counting = [record for record in records if record.status != "not_measured"]
        _look_for_planned(options, environment, counting, problems)
    verdicts = judge_tables(records, options.tolerance if options else TOLERANCE, clock)
    return Reading(
        folder,
        tuple(records),
        environment,
        options,
        earlier,
        tuple(verdicts),
        tuple(problems),
        clock,
        every=tuple(believed(record, environment) for record in measured),
    )


def _released(folder: Path) -> Archive | None:
    """Return the authors' raw results where this is their archive."""
    if (folder / results.TRIALS).exists() or (folder / ENVIRONMENT).exists():
        return None
    from ..released.archive import is_archive  # unpacks, which nothing else here does

    if not is_archive(folder):
        return None
    from ..released.results import read

    return read(folder)


@dataclass(frozen=True)
class Joined:
    """The records of one or several results folders as one set, oldest first. `runs` are the folders as named by the
    user, each with those of its records that are in the set. `notes` report the choices made in joining."""

    runs: tuple[Reading, ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...]

    @property
    def several(self) -> bool:
        return len(self.runs) > 1

    @property
    def name(self) -> str:
        """Return the folders as text for a sentence."""
        return listing([str(run.folder) for run in self.runs])

    @property
    def stack(self) -> str:
        """Return the stacks of the runs as text for a sentence."""
        return " and ".join(dict.fromkeys(run.environment.stack or "an unnamed stack" for run in self.runs))

    @property
    def devices(self) -> list[Device]:
        """Return the GPUs of all runs; empty for the CPU."""
        return [device for run in self.runs for device in run.devices]

    @property
    def problems(self) -> list[Problem]:
        """Return the problems of all runs, with the paths of their files if there are several runs."""
        return [
            located(problem, run.folder) if self.several else problem for run in self.runs for problem in run.problems
        ]

    @property
    def clock(self) -> Clock:
        """Return the clock that judges all runs."""
        return self.runs[0].clock

    @property
    def released(self) -> Archive | None:
        """Return the authors' raw results, where the user named their archive among the folders."""
        return next((run.released for run in self.runs if run.released is not None), None)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        if not self.several:
            return self.runs[0].verdicts
        return tuple(judge_tables(self.records, min(_tolerances(self.runs)), self.clock))

    def run_of(self, record: Record) -> Reading:
        """Return the run that measured a record of the set."""
        return self._runs[record.id]

    @cached_property
    def _runs(self) -> dict[str, Reading]:
        return {record.id: run for run in self.runs for record in run.records}


def join(*runs: Reading) -> Joined:
    """Join the records of several folders. If several folders have the same trial, its newest record counts; one
    without a result (such as a skipped one) counts only where no folder has another.

    The age of a record is the start of its stack (`stack_started`). A record without one takes that of the record
    before it in its folder, else the first in the folder that has one. A folder without any was measured by a version
    that did not keep it, and is older than all others. Of equally old records the one in the folder named last counts.
    """
    if len(runs) == 1:
        return Joined(runs, runs[0].records, ())
    aged = [(at, number, record) for number, run in enumerate(runs) for at, record in _with_starts(run.records)]
    aged.sort(key=lambda one: one[:2])  # keeps each folder's order
    newest = {record.id: number for _, number, record in aged}
    newest |= {record.id: number for _, number, record in aged if record.ended}
    left = tuple(
        replace(run, records=tuple(record for record in run.records if newest[record.id] == number))
        for number, run in enumerate(runs)
    )
    notes = []
    older: dict[tuple[int, int], list[str]] = {}
    for _, number, record in aged:
        if number != newest[record.id]:
            older.setdefault((newest[record.id], number), []).append(record.id)
    if older:
        counted_texts = [
            f"{counted(len(ids), 'record')} of {runs[new].folder}, not of {runs[old].folder} ({first(ids)})"
            for (new, old), ids in older.items()
        ]
        notes.append(f"Of a trial that several folders have the newest record counts: {', '.join(counted_texts)}.")
    if len(tolerances := _tolerances(runs)) > 1:
        shares = [percent(tolerance) for tolerance in sorted(tolerances)]
        notes.append(f"The runs asked for tolerances of {listing(shares)}: cells are judged within {shares[0]}.")
    kept = tuple(record for _, number, record in aged if newest[record.id] == number)
    return Joined(left, kept, tuple(notes))


def by_stack(runs: Iterable[Reading]) -> list[Joined]:
    """Join the folders of each stack: a record is no newer measurement of what another stack measured."""
    groups: dict[str, list[Reading]] = {}
    for run in runs:
        groups.setdefault(run.environment.stack, []).append(run)
    return [join(*group) for group in groups.values()]


def _with_starts(records: Sequence[Record]) -> list[tuple[float, Record]]:
    """Return a folder's records, each with the start of the stack that dates it; 0 where the folder has none."""
    first_start = next((record.stack_started for record in records if record.stack_started is not None), 0.0)
    ages = accumulate((record.stack_started or first_start for record in records), max)
    return list(zip(ages, records, strict=True))


def _tolerances(runs: Iterable[Reading]) -> set[float]:
    return {run.options.tolerance if run.options else TOLERANCE for run in runs}


def measured(folders: Sequence[Path], clock: Clock = DEFAULT) -> Joined:
    """Read runs for a comparison with published numbers, judged by `clock`. Print their problems on stderr. Raise
    UserError where a folder has no valid record or is named twice."""
    refuse_twice(folders)
    joined = join(*alone([_measured(folder, clock) for folder in folders]))
    for note in joined.notes:
        say(note)
    return joined


def alone(readings: Sequence[Reading]) -> Sequence[Reading]:
    """Return the readings. Raise UserError where the authors' archive is not the only one: no run is of its clock."""
    archive = next((each.folder for each in readings if each.released), None)
    if archive and len(readings) > 1:
        raise UserError(f"{archive} is the authors' archive, which stands beside no run: name it alone")
    return readings


def refuse_twice(folders: Sequence[Path]) -> None:
    """Raise UserError where two paths are the same folder."""
    known: dict[str, Path] = {}
    for folder in folders:
        if (other := known.setdefault(os.path.realpath(folder), folder)) is not folder:
            same = "is named twice" if str(other) == str(folder) else f"is the same folder as {other}"
            raise UserError(f"{folder} {same}: name each results folder once")


def _measured(folder: Path, clock: Clock) -> Reading:
    reading = read(folder, clock)
    if reading.released is not None:
        return reading
    refuse_without_trials(folder)
    print_problems(reading.problems, folder)
    if not reading.records:
        raise unusable(folder)
    return reading


def begun(folder: Path, clock: Clock = DEFAULT) -> Reading:
    """Read a run for its report; it may have no trials yet. Raise UserError, and print why, if no record is valid."""
    reading = read(folder, clock)
    nothing = not reading.records and not reading.released
    if nothing and (reading.environment == Environment() or results.read_trials(folder).lines):
        print_problems(reading.problems, folder)
        raise unusable(folder)
    return reading


def refuse_without_trials(folder: Path) -> None:
    """Raise UserError where there is no such folder, or it has no trials; the message names the missing file."""
    if not folder.is_dir():
        lacks = "it is a file" if folder.exists() else "there is no such folder"
        raise UserError(f"{folder} holds no trials, {lacks}: {_WAY_OUT}")
    if not (lack := results.lack(folder)):
        return
    if any(folder.glob(results.TRAININGS)):
        raise UserError(f"{folder} holds trainings of repro lab, whose report is in it, and no trials: {_WAY_OUT}")
    runs = sorted(file.parent for file in folder.glob(f"*/{results.TRIALS}"))
    such = f", such as {runs[0]}" if runs else ""
    raise UserError(f"{folder / results.TRIALS} is {lack}, where a run keeps its trials: {_WAY_OUT}{such}")


def unusable(folder: Path) -> UserError:
    """Return the error for a folder without a valid record."""
    return UserError(f"{folder} holds no trials that can be used: {_WAY_OUT}")


def _options(asked: dict[str, Any] | None, problems: list[Problem]) -> Options | None:
    try:
        options = datafile.from_json(Options, asked)
        if 0 < options.tolerance < 1 and min(*options.counts, *options.projected, options.nodes, options.steps) > 0:
            return options
    except NotAsDeclaredError:
        pass
    used = f"cells are judged within {TOLERANCE:.0%}, as by default"
    problems.append(Problem(ENVIRONMENT, "its options are none that this version has", used))
    return None


def _look_for_planned(
    options: Options | None, environment: Environment, records: Sequence[Record], problems: list[Problem]
) -> None:
    """Add a problem where planned trials have no record, as in a run that was stopped."""
    if options is None:
        return
    try:
        planned = trials(options, _devices(environment))
    except UserError as error:
        problems.append(Problem(ENVIRONMENT, f"its options plan no run: {error}", "the records stand as they are"))
        return
    done = {record.id for record in records}
    missing = [trial.id for trial in planned if trial.id not in done]
    if missing:
        have = "has" if len(missing) == 1 else "have"
        problems.append(
            Problem(
                results.TRIALS,
                f"{len(missing)} of the {len(planned)} trials that the last command asked for {have} no valid record, "
                f"the first is {missing[0]}: it was stopped, or asked to leave them out",
                f"{counted(len(records), 'record')} {were(len(records))} used, and the same command again measures the "
                "rest",
            )
        )


def _devices(environment: Environment) -> list[Device]:
    found = []
    for number, each in enumerate(environment.gpus or []):
        gpu = find(each.driver_name)
        capability = gpu.compute_capability if gpu else (0, 0)
        found.append(Device(number, number, "", each.driver_name, gpu, each.memory_bytes, capability))
    return found
