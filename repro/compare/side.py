"""One side of a comparison: valid records of one stack on one machine, and the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..console import UserError
from ..files import look
from ..formats import tallied
from ..machine.environment import Environment
from ..record import MUST_AGREE, Record
from ..run.reading import refuse_without_trials, unusable
from ..run.records import Problem, all_valid_records, environment_of, print_problems
from ..run.results import TRIALS

SEARCHES = "largest"  # subfolder of each stack of a check, with its searches for micro batches
Key = tuple[object, ...]


@dataclass(frozen=True)
class Side:
    """One side of a comparison. `records` are oldest first, one for each process of a trial, without failures that were
    measured again. `environment` describes what it ran on, as far as it is known, `others` does so for its other
    runs."""

    name: str
    records: tuple[Record, ...]
    environment: Environment
    others: tuple[Environment, ...] = ()

    @property
    def environments(self) -> tuple[Environment, ...]:
        """Return one environment a run, as far as the runs can be distinguished."""
        return self.environment, *self.others

    def distinct(self, take: Callable[[Environment], object]) -> tuple[str, ...]:
        """Return the distinct values that its runs record: several where they differ, none where no run records one."""
        found = map(take, self.environments)
        return tuple(sorted({str(answer) for answer in found if answer is not None}))


def read_side(place: Path) -> Side:
    """Read a results folder, or a folder of such folders (one more start of each trial in each). Prints the problems of
    a run to stderr. Raises UserError where no record is left, or where the runs are of different packages."""
    look(place / TRIALS)
    if not place.is_dir():
        refuse_without_trials(place)
    runs = [place] if (place / TRIALS).is_file() else _folders(place)
    if runs == [place] or not any((folder / TRIALS).is_file() for folder in runs):
        refuse_without_trials(place)
    found = {folder: _of_run(folder) for folder in runs if (folder / TRIALS).is_file()}
    records = [record for sound_ones, _ in found.values() for record in sound_ones]
    if not records:
        raise unusable(place)
    if runs != [place]:  # the side has fewer starts than the user may expect
        unused = [folder.name for folder in runs if not found.get(folder, ((), None))[0]]
        none = "it holds no trials that can be used"
        print_problems([Problem(name, none, "it was left out") for name in unused], place)
    known = [(folder, environment) for folder, (_, environment) in found.items()]
    known.sort(key=lambda run: run[1].packages is None)  # unknown packages count as the others'
    for folder, environment in known:
        if environment.versions not in (None, known[0][1].versions):
            raise UserError(f"{folder} and {known[0][0]} are runs of different packages: a side is one stack")
    first, *others = (environment for _, environment in known)
    return Side(str(place), tuple(records), first, others=tuple(others))


def key(record: Record) -> Key:
    """Return what identifies a trial, except its device, micro batch and rounds."""
    return tuple(getattr(record, name) for name in MUST_AGREE)


def step_seconds(record: Record) -> float | None:
    """Return the seconds of a training step: from an idle device to an idle device, where the record has that."""
    return (
        record.derived.synchronised_step if record.derived.synchronised_step is not None else record.derived.true_step
    )


def middle(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None where none is known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def of_starts(records: Iterable[Record], take: Callable[[Record], float | None]) -> list[float]:
    """Return the median of each start of the stack, oldest first, over the known values above 0 of its processes. Where
    no start is recorded, each process is its own."""
    starts: dict[tuple[float | None, int | None], list[float]] = {}
    for number, record in enumerate(records):
        value = take(record)
        if value is not None and value > 0:  # a file may have any number as a peak
            start = (None, number) if record.stack_started is None else (record.stack_started, None)
            starts.setdefault(start, []).append(value)
    return [median(values) for values in starts.values()]


def _folders(place: Path) -> list[Path]:
    """Return the subfolders in the order of their numbers: 2 before 10."""
    return sorted((path for path in place.iterdir() if path.is_dir()), key=lambda path: (len(path.name), path.name))


def _of_run(folder: Path) -> tuple[list[Record], Environment]:
    problems: list[Problem] = []
    found = _without_repeated(all_valid_records(folder, problems)), environment_of(folder, problems)
    print_problems(problems, folder)
    return found


def _without_repeated(records: Sequence[Record]) -> list[Record]:
    """Return the records of a folder without failures that were measured again later, in any number of rounds: they
    were no starts of their own. Of a trial that still fails, the latest failure stays."""
    of_id = {record.id: record for record in records if record.ended}
    latest = [record for record in records if of_id.get(record.id) is record]
    stands = {key(record): record for record in latest}
    stands |= {key(record): record for record in latest if record.timed}
    return [each for each in records if each.timed or not each.ended or each is stands[key(each)]]


def machine(environment: Environment) -> str:
    """Return a machine's name: its GPUs, or its CPU with the number of cores."""
    gpus, host = [gpu.driver_name for gpu in environment.gpus or []], environment.host
    if gpus:
        return f"{len(gpus)} x {gpus[0]}"
    return f"{host.physical_cores} cores of {host.cpu}" if host.physical_cores else host.cpu


Said = tuple[str, ...]  # several where the runs of a side differ, none where no run records it
_MACHINE: dict[str, Callable[[Environment], object]] = {
    "Python": lambda known: known.python,
    "driver": lambda known: known.driver,
    "GPUs": lambda known: None if known.gpus is None else tallied(gpu.driver_name for gpu in known.gpus),
    "CPU": lambda known: known.host.cpu or None,
    "CPU cores": lambda known: known.host.physical_cores,
    "kernel": lambda known: known.host.kernel or None,
    "repro": lambda known: known.commit or known.repro,
}
_CLOCKS = {"GPU clock, MHz": "sm_mhz", "memory clock, MHz": "memory_mhz"}


@dataclass(frozen=True)
class Difference:
    """One difference. `before` or `after` is None where that side records none of it."""

    what: str
    before: str | None
    after: str | None


def differences(before: Side, after: Side) -> list[Difference]:
    """Return the differences, packages first, in what both sides record. Where the runs of one side disagree, that is a
    difference, too."""
    found = []
    for describe in (_packages, _machine, _variables):
        old, new = describe(before), describe(after)
        if old is None or new is None:
            continue
        for what in dict.fromkeys((*old, *new)):
            pair = old.get(what, ()), new.get(what, ())
            one_sided = describe is _machine and not all(pair)
            if len(pair[0]) > 1 or (pair[0] != pair[1] and not one_sided):
                found.append(Difference(what, *("; ".join(texts) if texts else None for texts in pair)))
    return found


def _packages(side: Side) -> dict[str, Said] | None:
    versions = side.environment.versions
    return None if versions is None else {name: (version,) for name, version in versions.items()}


def _machine(side: Side) -> dict[str, Said]:
    found = {what: side.distinct(take) for what, take in _MACHINE.items()}
    # A folder's environment is its last run's; earlier records are of the commit that they name.
    found["repro"] = tuple(sorted({each.commit for each in side.records if each.commit})) or found["repro"]
    for what, name in _CLOCKS.items():  # while the GPUs worked
        clock = middle(state.get(name) for each in side.records for state in each.observed.gpu_state or [] if state)
        found[what] = () if clock is None else (f"{clock:.0f}",)
    return found


def _variables(side: Side) -> dict[str, Said] | None:
    known = [each.variables for each in side.environments if each.variables is not None]
    names = sorted({name for each in known for name in each})
    variables = {f"variable {name}": tuple(sorted({each.get(name, "not set") for each in known})) for name in names}
    return variables if known else None
