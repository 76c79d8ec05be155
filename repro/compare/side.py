"""One side of a comparison: valid records of one stack on one machine, and the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from .. import datafile
from ..console import UserError
from ..datafile import NotAsDeclaredError
from ..files import look
from ..formats import tallied
from ..machine.environment import Environment
from ..machine.host import Host
from ..record import Record
from ..run.reading import (
    Problem,
    all_valid_records,
    environment_of,
    print_problems,
    refuse_without_trials,
    unusable,
    valid_records,
)
from ..run.results import BENCHMARK, TRIALS, Line, lack
from ..validity import Answer

SEARCHES = "largest"  # subfolder of each stack of a check, with its searches for micro batches
Key = tuple[str, str, str, int, int, int | None, int | None]


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
    """Read a results folder, a folder of such folders (one more start of each trial in each), or pytest-benchmark's
    JSON with our extra_info. Prints the problems of a run to stderr. Raises UserError where no record is
    left, or where the runs are of different packages."""
    look(place / TRIALS)
    if not place.exists():
        raise UserError(f"{place} is not there: name a results folder, or pytest-benchmark's JSON")
    if not place.is_dir():  # a pipe works, too
        return _of_benchmark(place, str(place))
    runs = [folder for folder in (place, *_folders(place)) if (folder / TRIALS).is_file()]
    if place in runs:
        inner = "its run lies in the folder of another run, which is the one compared"
        left_out = [Problem(folder.name, inner, "it was left out") for folder in runs[1:] if folder.name != SEARCHES]
        print_problems(left_out, place)
        runs = [place]
    if not runs and (place / BENCHMARK).is_file():
        print_problems([Problem(TRIALS, lack(place), f"{BENCHMARK} was read in its place")], place)
        return _of_benchmark(place / BENCHMARK, str(place))
    if runs in ([], [place]):
        refuse_without_trials(place)
    found = [_of_run(folder) for folder in runs]
    records = [record for sound_ones, _ in found for record in sound_ones]
    if not records:
        raise unusable(place)
    if place not in runs:  # the side has fewer starts than the user may expect
        used = [folder for folder, (records, _) in zip(runs, found, strict=True) if records]
        none = "it holds no trials that can be used"
        unused = [folder.name for folder in _folders(place) if folder not in used]
        print_problems([Problem(name, none, "it was left out") for name in unused], place)
    known = [(folder, environment) for folder, (_, environment) in zip(runs, found, strict=True)]
    known.sort(key=lambda run: run[1].packages is None)  # unknown packages count as the others'
    for folder, environment in known:
        if environment.versions not in (None, known[0][1].versions):
            raise UserError(f"{folder} and {known[0][0]} are runs of different packages: a side is one stack")
    first, *others = (environment for _, environment in known)
    return Side(str(place), tuple(records), first, others=tuple(others))


def key(record: Record) -> Key:
    """Return what identifies a trial, except its device, micro batch and rounds."""
    machine = (record.count, record.nodes, record.memory_limit, record.measured_on)
    return record.recipe, record.scale, record.settings, *machine


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
    of_id = {record.id: record for record in records if Answer.of(record).ended}
    latest = [record for record in records if of_id.get(record.id) is record]
    stands = {key(record): record for record in latest}
    stands |= {key(record): record for record in latest if Answer.of(record).was_timed}
    return [
        each
        for each in records
        if (answer := Answer.of(each)).was_timed or not answer.ended or each is stands[key(each)]
    ]


_NO_COMMIT = (None, "unversioned", "unknown")  # what pytest-benchmark writes outside of a checkout


@dataclass(frozen=True)
class _Cpu:
    brand_raw: str | None = None


@dataclass(frozen=True)
class _Machine:
    python_version: str | None = None
    cpu: _Cpu | None = None
    release: str | None = None


@dataclass(frozen=True)
class _Commit:
    id: str | None = None
    dirty: bool = False

    def __str__(self) -> str:
        """Return the commit in the form of environment.json."""
        return f"{self.id}-dirty" if self.dirty else str(self.id)


@dataclass(frozen=True)
class _Case:
    extra_info: dict[str, Any]


@dataclass(frozen=True)
class _Benchmarks:
    """The part of pytest-benchmark's JSON that is read here."""

    benchmarks: list[_Case] = field(default_factory=list)
    machine_info: _Machine | None = None
    commit_info: _Commit | None = None


def _of_benchmark(path: Path, name: str) -> Side:
    content, found = _object(path), []
    try:
        benchmarks = datafile.from_json(_Benchmarks, content)
        for number, case in enumerate(benchmarks.benchmarks, 1):
            if "recipe" in case.extra_info:
                found.append(Line(number, datafile.from_json(Record, case.extra_info)))
    except NotAsDeclaredError as error:
        raise UserError(f"{path} is not pytest-benchmark's JSON of a run, with its extra_info ({error})") from None
    problems: list[Problem] = []
    records = valid_records(found, f"{path.name}, benchmark", problems)
    print_problems(problems, path.parent)
    if not records:
        raise UserError(
            f"{path} holds no trials that can be used: expected pytest-benchmark's JSON of a run, with its extra_info"
        )
    machine, commit = benchmarks.machine_info or _Machine(), benchmarks.commit_info or _Commit()
    cpu = machine.cpu.brand_raw if machine.cpu else None
    known = Environment(
        commit=None if commit.id in _NO_COMMIT else str(commit),
        python=machine.python_version,
        host=Host(cpu=cpu or "", kernel=machine.release or ""),
    )
    return Side(name, tuple(records), known)


def _object(path: Path) -> dict[str, Any]:
    try:
        return datafile.read(path, dict[str, Any])
    except NotAsDeclaredError as error:
        raise UserError(f"{path}: expected a JSON object of a run ({error})") from None


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
_OF_GPUS = ("driver", "GPUs")


@dataclass(frozen=True)
class Difference:
    """One difference. `before` or `after` is None where that side records none of it; both, where neither does."""

    what: str
    before: str | None
    after: str | None


def differences(before: Side, after: Side) -> list[Difference]:
    """Return the differences, packages first, what neither side records last. Where only one side recorded its
    packages, that is one difference; anything else that only one side records is left out. Where the runs of one side
    disagree, that is a difference, too."""
    found = []
    old, new = (side.environment.versions for side in (before, after))
    if old is not None and new is not None:
        found += _of(*({name: (version,) for name, version in known.items()} for known in (old, new)))
    elif old != new:
        found.append(Difference("packages", *("not recorded" if known is None else "recorded" for known in (old, new))))
    machines = _machine(before), _machine(after)
    both = {what for what in machines[0] if all(machine[what] for machine in machines)}
    found += _of(*({what: said for what, said in machine.items() if what in both} for machine in machines))
    here, there = _variables(before), _variables(after)
    if here is not None and there is not None:
        found += _of(here, there)
    missing = ["packages"] if old is new is None else []
    missing += [what for what in _MACHINE if not any(machine[what] for machine in machines)]
    missing += ["variables"] if here is there is None else []
    on_gpus = any(record.device != "cpu" for side in (before, after) for record in side.records)
    return found + [Difference(what, None, None) for what in missing if on_gpus or what not in _OF_GPUS]


def _of(before: Mapping[str, Said], after: Mapping[str, Said]) -> list[Difference]:
    pairs = {what: (before.get(what, ()), after.get(what, ())) for what in (*before, *after)}
    return [
        Difference(what, *("; ".join(said) if said else None for said in pair))
        for what, pair in pairs.items()
        if pair[0] != pair[1] or len(pair[0]) > 1
    ]


def _machine(side: Side) -> dict[str, Said]:
    """Return what else is recorded of the machine, in words."""
    found = {what: side.distinct(take) for what, take in _MACHINE.items()}
    # A folder's environment is its last run's; earlier records are of the commit that they name.
    commits = tuple(sorted({record.commit for record in side.records if record.commit}))
    found["repro"] = commits or found["repro"]
    return found | {what: _clock(side, name) for what, name in _CLOCKS.items()}


def _variables(side: Side) -> dict[str, Said] | None:
    """Return the environment variables; None where no run records them."""
    known = [each.variables for each in side.environments if each.variables is not None]
    names = sorted({name for each in known for name in each})
    variables = {f"variable {name}": tuple(sorted({each.get(name, "not set") for each in known})) for name in names}
    return variables if known else None


def _clock(side: Side, name: str) -> Said:
    """Return the median clock of the GPUs while they worked."""
    clock = middle(state.get(name) for record in side.records for state in record.observed.gpu_state or [] if state)
    return () if clock is None else (f"{clock:.0f}",)
