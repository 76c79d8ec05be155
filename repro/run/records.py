"""The records of a results folder that can be used, and its environment: each problem of them is named.

A resumed run and a later reader select the same records. Nothing is removed from a folder: a run measures the trials of
invalid records again and appends the new records.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from .. import files
from ..console import UserError, say, say_once
from ..datafile import NotAsDeclaredError
from ..formats import are, counted, first
from ..machine.environment import FILE as ENVIRONMENT
from ..machine.environment import Environment
from ..machine.environment import read as read_environment
from ..models import custom
from ..paper.gpus import Gpu, find
from ..record import Derived, Record
from ..steps import derive
from ..validity import believed, contradiction
from . import results

_MOST_LINES = 3  # that are named one by one where they are invalid


@dataclass(frozen=True)
class Problem:
    """A problem of a results folder: where it is, what it is, and what was used despite it."""

    where: str
    what: str
    used: str
    changes_verdicts: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.what}; {self.used}"


def print_problems(problems: Iterable[Problem], folder: Path) -> None:
    """Print the problems of a folder on stderr, a line each, with the paths of the files."""
    for problem in problems:
        say(located(problem, folder))


def located(problem: Problem, folder: Path) -> Problem:
    """Return the problem with the path of its file."""
    return replace(problem, where=str(folder / problem.where))


def _valid_records(lines: Iterable[results.Line], problems: list[Problem]) -> list[Record]:
    """Return every valid record, oldest first, with all that follows from its raw times and today's catalogue. Add a
    problem for each other line."""
    found: list[Record] = []
    numbers: dict[str, int] = {}
    gpus: dict[str, Gpu | None] = {"cpu": None}
    for line in lines:
        where, record = f"{results.TRIALS}, line {line.number}", line.record
        if record is None:
            problems.append(Problem(where, f"not a trial's record ({line.problem})", "the line was left out", True))
        elif (reason := contradiction(record)) is None:
            if record.device not in gpus:
                gpus[record.device] = find(record.device)
            derived = derive(record, gpus[record.device]) if record.timed else Derived()
            found.append(replace(record, derived=derived))
            numbers[record.id] = line.number
        else:
            used = "the record was left out"
            if record.id in numbers:
                used += f", line {numbers[record.id]} stands for the trial"
            problems.append(Problem(where, f"{record.id} was tampered with or damaged: {reason}", used, True))
    return found


def latest_of(records: Iterable[Record], environment: Environment, problems: list[Problem]) -> list[Record]:
    """Return the latest record of every trial, oldest first; one that `environment` does not support becomes
    `not_measured`, and is added to `problems`."""
    found = [believed(record, environment) for record in records]
    latest: dict[str, Record] = {}
    # By reason: the trials, and whether an earlier record is used for each.
    disbelieved: dict[str, dict[str, bool]] = {}
    for record in found:
        if record.status != "not_measured" or record.id not in latest:
            latest[record.id] = record
        if record.status == "not_measured":
            disbelieved.setdefault(record.reason, {})[record.id] = latest[record.id] is not record
    for reason, ids in disbelieved.items():
        what = f"{counted(len(ids), 'record')} {are(len(ids))} not believed, as {reason} ({first([*ids])})"
        used = "such a trial counts as not measured, for no cell and no claim"
        if any(ids.values()):
            used += ", but where an earlier record stands for it"
        problems.append(Problem(results.TRIALS, what, used))
    return [record for record in found if latest[record.id] is record]


def all_valid_records(folder: Path, problems: list[Problem]) -> list[Record]:
    """Return all valid records, oldest first; a trial that ran more than once has several. Add to `problems`.
    Raise UserError where the trials cannot be read."""
    try:
        register_custom_recipes(folder)
    except UserError as error:
        problems.append(Problem(results.RECIPES, str(error), "trials of models that it describes were left out", True))
    invalid: list[Problem] = []
    found = _valid_records(results.read_trials(folder).lines, invalid)
    if len(invalid) > _MOST_LINES:
        more = f"{invalid[0].what}, and {len(invalid) - 1:,} more lines are invalid"
        invalid = [Problem(invalid[0].where, more, "these lines were left out", True)]
    problems += invalid
    if results.read_trials(folder).torn:
        problems.append(Problem(results.TRIALS, "the last line is torn, its trial was stopped", "it was left out"))
    return found


def register_custom_recipes(folder: Path) -> None:
    """Make the recipes known that a folder describes. Raise UserError where they cannot be used."""
    files.look(folder / results.RECIPES)
    if not (folder / results.RECIPES).is_file():
        return
    try:
        custom.read(folder / results.RECIPES)
    except NotAsDeclaredError as error:
        raise UserError(f"it describes no models ({error})") from None


def history(folder: Path) -> list[Record]:
    """Return all valid records of a folder, as `all_valid_records` does, and print its problems, once in a process."""
    problems: list[Problem] = []
    found = all_valid_records(folder, problems)
    for problem in problems:
        say_once(located(problem, folder))
    return found


def environment_of(folder: Path, problems: list[Problem]) -> Environment:
    """Return the environment of a folder's trials, empty where it is missing or damaged. Add to `problems`."""
    used = "nothing is known of machine, stack and options: put back the one that the run wrote"
    try:
        found = read_environment(folder)
    except NotAsDeclaredError as error:
        problems.append(Problem(ENVIRONMENT, f"it describes no run ({error})", used))
        return Environment()
    if found is None:
        problems.append(Problem(ENVIRONMENT, "missing: the folder is not whole", used))
        return Environment()
    return found
