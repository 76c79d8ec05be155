"""The trials of two sides: matched, judged by the rule, with what else changed and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, mode
from typing import Literal, get_args

from ..console import UserError, cut
from ..formats import counted, significant
from ..machine import support
from ..machine.environment import Environment
from ..record import Record, Trial
from ..validity import Answer, cpu_disturbance, disturbance
from .decision import SMALLEST_CHANGE, Decision, decide, decide_apart, of_separate
from .side import Key, Side, key, middle, of_starts, step_seconds

Status = Literal["regressed", "improved", "unchanged", "inconclusive", "incomparable", "broke", "fixed"]
STATUSES: tuple[Status, ...] = get_args(Status)
DRIFT = 0.10  # by which one stack may differ from itself between runs that were not interleaved


@dataclass(frozen=True)
class SideStats:
    """One side of a trial: medians over its processes, of seconds, bytes and days; None where nothing was measured.
    `discarded` counts samples that were measured but disturbed, see validity.py; `failed` counts processes without a
    sample."""

    processes: int
    discarded: int
    median: float | None
    peak_memory: float | None
    days: float | None
    failed: int = 0


@dataclass(frozen=True)
class Compared:
    """A trial of both sides. `judged` is None where their times cannot be compared; `reason` explains the status."""

    trial: Record
    before: SideStats
    after: SideStats
    status: Status
    reason: str
    judged: Decision | None = None
    changes: tuple[Change, ...] = ()

    @property
    def unanswered(self) -> bool:
        """Return True where a side measured it and the sides cannot be compared; False where it ran on neither."""
        return self.status == "incomparable" and any(
            half.processes + half.discarded for half in (self.before, self.after)
        )


@dataclass(frozen=True)
class OnlyOnOneSide:
    """A trial of one side alone. `there` is the status that the other side has instead of a result, such as
    `interrupted` or `skipped`; empty where it has no record of it."""

    trial: Record
    half: SideStats
    there: str


def compare(before: Side, after: Side, *, drift: float = DRIFT) -> list[Compared]:
    """Compare every trial that both sides have. Raises UserError where they have none in common."""
    sides = _by_trial(before), _by_trial(after)
    found = [
        compare_trial(records, sides[1][named], _another_machine(before, after, records, sides[1][named]), drift)
        for named, records in sides[0].items()
        if named in sides[1]
    ]
    if not found:
        names = [cut(", ".join(dict.fromkeys(f"{named[0]} {named[2]}" for named in side)), 80) for side in sides]
        names = [name or "none that came to an end" for name in names]
        raise UserError(
            f"{before.name} and {after.name} have no trial in common (recipe, scale, settings, count, --memory): "
            f"{names[0]} against {names[1]}"
        )
    return found


def only_in(side: Side, other: Side) -> list[OnlyOnOneSide]:
    """Return the trials of a side for which the other has no result."""
    answered = _by_trial(other).keys()
    silent = {key(record): record.status for record in other.records}
    return [
        OnlyOnOneSide(_shown(records), _half(records), silent.get(named, ""))
        for named, records in _by_trial(side).items()
        if named not in answered
    ]


def _shown(records: Sequence[Record]) -> Record:
    """Return the latest record that ran, else the latest, to describe the trial."""
    return next((record for record in reversed(records) if Answer.of(record).was_timed), records[-1])


def compare_trial(
    before: Sequence[Record], after: Sequence[Record], obstacle: str = "", drift: float = DRIFT
) -> Compared:
    """Compare one trial by its records on both sides, oldest first, one for each process. It `broke` where it ran
    before and runs in no process now, or fails in some where none failed before, for any reason; `fixed` is the
    reverse. `obstacle` says why the machines cannot be compared. Processes that ran out of memory which another process
    used are discarded. Times that were not interleaved may differ by `drift` without a change."""
    compared = Compared(_shown(before), _half(before), _half(after), "incomparable", obstacle)
    if obstacle:
        return compared
    sides = [[record for record in side if Answer.of(record) is not Answer.MAY_FIT] for side in (before, after)]
    for side, kept in zip((before, after), sides, strict=True):
        if not kept:
            return replace(compared, reason=_all_discarded(side))
    ran = [[record for record in side if Answer.of(record).was_timed] for side in sides]
    shares = [1 - len(runs) / len(side) for runs, side in zip(ran, sides, strict=True)]
    failures = _failures(*sides)
    if not any(ran):
        return replace(compared, reason=f"ran on neither side: {_failed(sides[1])}")
    if not ran[1] or (shares[1] and not shares[0]):
        return replace(compared, status="broke", reason=failures)
    if not ran[0]:
        return replace(compared, status="fixed", reason=failures)
    found = _of_what_ran(compared, ran, drift)
    if not failures:
        return found
    more = "fails more often: " if shares[1] > shares[0] else ""
    return replace(found, status=_beside(found, *shares), reason=f"{more}{failures}; {found.reason}")


def _of_what_ran(compared: Compared, ran: Sequence[Sequence[Record]], drift: float) -> Compared:
    """Compare a trial by the times of both sides, each of which has some."""
    if obstacle := _another_recipe(*ran):
        return replace(compared, reason=obstacle)
    valid = [[record for record in side if Answer.of(record) is Answer.TIMED] for side in ran]
    for side, kept in zip(ran, valid, strict=True):
        if not kept:
            return replace(compared, reason=_all_discarded(side))
    sizes = [Counter(record.batch.micro_batch or 0 for record in side) for side in valid]
    common = sizes[0].keys() & sizes[1].keys()
    if not common:
        what = f"another largest micro batch: {_listed(sizes[0])}, then {_listed(sizes[1])}"
        return replace(compared, reason=what)
    # The micro batch of both sides with the most samples: a mix of two could not be compared.
    size = max(common, key=lambda one: (min(side[one] for side in sizes), one))
    alike = [[record for record in side if (record.batch.micro_batch or 0) == size] for side in valid]
    ratios = ratios_of_pairs(ran[0], ran[1], alike[0][-1].batch.micro_batch)
    starts = [of_starts(side, step_seconds) for side in alike]
    judged = decide(ratios) if ratios else decide_apart(starts[0], starts[1], drift)
    found = Compared(
        alike[0][-1],
        replace(_half(alike[0]), discarded=compared.before.discarded, failed=compared.before.failed),
        replace(_half(alike[1]), discarded=compared.after.discarded, failed=compared.after.failed),
        judged.call,
        judged.reason,
        judged,
        tuple(changes(*alike)),
    )
    return found if len(sizes[0] | sizes[1]) == 1 else _of_one_size(found, size, *sizes)


def _of_one_size(found: Compared, size: int, before: Mapping[int, int], after: Mapping[int, int]) -> Compared:
    """Return the comparison of one micro batch, where some processes had to take another and are left out of the ratio.
    A side that takes a smaller one more often than before has changed, whatever the ratio is."""
    smaller, shown_sizes = [], []
    for side in (before, after):
        smaller.append(sum(count for one, count in side.items() if one < size) / sum(side.values()))
        shown_sizes.append(" and ".join(f"{one} in {side[one]}" for one in sorted(side, reverse=True)))
    reason = (
        f"of all processes those of micro batch {size} alone are compared, {before[size]} of {sum(before.values())} "
        f"before and {after[size]} of {sum(after.values())} after (micro batch {shown_sizes[0]}; then {shown_sizes[1]})"
    )
    changed = (Change("micro batch", *(f"{each} processes" for each in shown_sizes)),) if before != after else ()
    status = found.status
    if smaller[1] > smaller[0]:
        reason = f"a smaller micro batch more often: {reason}"
        status = "inconclusive" if status in ("unchanged", "improved") else status
    return replace(found, status=status, reason=f"{reason}; {found.reason}", changes=(*found.changes, *changed))


def _beside(found: Compared, before: float, after: float) -> Status:
    """Return the status of a trial that runs on both sides and failed in these shares of their processes. It is `fixed`
    where it fails no more and did not become slower; where it fails more often it is not `unchanged` or `improved`."""
    if found.judged and not after:
        slower = found.judged.ratio > 1 + found.judged.allowance
        return found.status if slower else "fixed"
    return "inconclusive" if after > before and found.status in ("unchanged", "improved") else found.status


def _failures(before: Sequence[Record], after: Sequence[Record]) -> str:
    """Describe how often and why either side failed; empty where none did."""
    failed = [_failed(side) for side in (before, after)]
    return f"before, {failed[0]}; after, {failed[1]}" if all(failed) else "".join(failed)


def _failed(side: Sequence[Record]) -> str:
    """Describe the failures of one side, by status, with the most frequent reason of each."""
    reasons: dict[str, list[str]] = {}
    for record in side:
        if not Answer.of(record).was_timed:
            reasons.setdefault(record.status, []).append(record.reason or "no reason recorded")
    count = (lambda number: f"{number} of {len(side)} processes ") if len(side) > 1 else lambda number: ""
    return ", ".join(f"{count(len(said))}{status}: {mode(sorted(said))}" for status, said in sorted(reasons.items()))


def _all_discarded(side: Sequence[Record]) -> str:
    all_of_it = "its one sample" if len(side) == 1 else f"every one of {len(side)} samples"
    return f"{all_of_it} was discarded: {disturbance(side[-1])}"


def _half(records: Sequence[Record]) -> SideStats:
    valid = [record for record in records if Answer.of(record) is Answer.TIMED]
    answers = Counter(map(Answer.of, records))
    discarded = answers[Answer.DISTURBED] + answers[Answer.MAY_FIT]
    return SideStats(
        processes=len(valid),
        discarded=discarded,
        failed=len(records) - len(valid) - discarded,
        median=middle(step_seconds(record) for record in valid),
        peak_memory=middle(record.observed.peak_memory for record in valid),
        days=middle(
            record.derived.true_days for record in valid if record.scale == "paper"
        ),  # tiny recipes have no days
    )


def _by_trial(side: Side) -> dict[Key, list[Record]]:
    """Return the records of each trial that have a result: not those that were interrupted or skipped."""
    found: dict[Key, list[Record]] = {}
    for record in side.records:
        if Answer.of(record).ended:
            found.setdefault(key(record), []).append(record)
    return found


def _another_machine(before: Side, after: Side, old: Sequence[Record], new: Sequence[Record]) -> str:
    """Explain why times of two machines cannot be compared, or return "". One side may have several, too."""
    devices = [sorted({record.device for record in records}) for records in (old, new)]
    if devices[0] != devices[1] or len(devices[0]) > 1:
        return f"another device: {' or '.join(devices[0])}, then {' or '.join(devices[1])}"
    for take in (_cpu, _cores, _usable) if devices[0] == ["cpu"] else (_gpus,):
        names = [side.distinct(take) for side in (before, after)]
        if names[0] != names[1] and all(names):
            return f"another machine: {'; '.join(names[0])}, then {'; '.join(names[1])}"
    return ""


def _cpu(known: Environment) -> str | None:
    return known.host.cpu or None


def _cores(known: Environment) -> str | None:
    return f"{known.host.physical_cores} cores" if known.host.physical_cores else None


def _usable(known: Environment) -> str | None:
    return counted(known.host.usable_cpus, "usable CPU") if known.host.usable_cpus else None


def _gpus(known: Environment) -> str | None:
    return ", ".join(sorted({gpu.driver_name for gpu in known.gpus or []})) or None


def _another_recipe(before: Sequence[Record], after: Sequence[Record]) -> str:
    """Explain why the recipes differ, or return "". One side may have two, if a recipe changed between its runs."""
    takes: dict[str, Callable[[Record], object]] = {
        "weights": lambda record: record.as_run.weights,
        "precision": lambda record: record.as_run.asked_precision or None,
        "batch": _batch,
    }
    for what, take in takes.items():
        values = [sorted({str(said) for said in map(take, side) if said is not None}) for side in (before, after)]
        if all(values) and (values[0] != values[1] or len(values[0]) > 1):
            return f"another recipe: {what} {' or '.join(values[0])}, then {' or '.join(values[1])}"
    return ""


def _batch(record: Record) -> int | None:
    """Return the examples of a training step, over all devices."""
    if record.batch.micro_batch is None or record.batch.accumulation is None:
        return None
    return record.batch.micro_batch * record.batch.accumulation * record.world


def _listed(sizes: Collection[int]) -> str:
    return " or ".join(map(str, sorted(sizes)))


# A warm-up includes compilation and disk access; half-precision losses differ in their last digits.
_WARM_UP_SECONDS, _WARM_UP_CHANGE = 1.0, 0.2
_LOSS_CHANGE = 1e-3
_MIB = 2**20


@dataclass(frozen=True)
class Change:
    """One thing that changed, with both sides in words."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before}, then {self.after}"


def changes(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """Return what else changed between the measured records of a trial; numbers are medians over processes. Nothing
    that only one side records is a change."""
    words: list[tuple[str, Callable[[Record], str | None]]] = [
        ("kernel path", lambda record: record.as_run.kernel_path),
        ("precision", lambda record: record.as_run.precision),
        ("wrapper", lambda record: record.as_run.wrapper),
        ("optimizer", lambda record: record.as_run.optimizer),
        ("compiled", lambda record: "yes" if record.as_run.compiled else "no"),
        ("TF32", lambda record: "on" if record.as_run.in_tf32 else "off"),
    ]
    graphs = [("graphs", "compiled"), ("graph breaks", "breaks"), ("recompilations", "recompilations")]
    words += [(what, _of_graphs(key)) for what, key in graphs]
    found = [Change(what, _said(before, say), _said(after, say)) for what, say in words]
    found = [change for change in found if change.before and change.after and change.before != change.after]
    found += _moved("peak memory", _peak_mib, before, after, SMALLEST_CHANGE, "MiB")
    found += _moved("compiling and warm-up", _compiling, before, after, _WARM_UP_CHANGE, "s")
    return found + _numerics(before[-1].observed.losses, after[-1].observed.losses) + _cpu_use(before, after)


def _by_chance(take: Callable[[Record], float | None], before: Sequence[Record], after: Sequence[Record]) -> bool:
    """Return True where chance can explain the change. On a CPU the peak is resident memory, which varies by 10 or 20 %
    between starts, and the compiler shares the cores with other processes."""
    starts = [of_starts(side, take) for side in (before, after)]
    if before[-1].device != "cpu" or not all(starts):
        return False
    _, interval = of_separate(*starts)
    return interval is None or interval.low <= 1 <= interval.high


def _of_graphs(key: str) -> Callable[[Record], str | None]:
    return lambda record: (
        str(record.as_run.graphs[key]) if record.as_run.graphs and key in record.as_run.graphs else None
    )


def _moved(
    what: str,
    take: Callable[[Record], float | None],
    before: Sequence[Record],
    after: Sequence[Record],
    smallest: float,
    unit: str,
) -> list[Change]:
    old, new = (middle(map(take, side)) for side in (before, after))
    if not old or not new or abs(new / old - 1) <= smallest or _by_chance(take, before, after):
        return []
    return [Change(what, f"{significant(old)} {unit}", f"{significant(new)} {unit}")]


def _said(records: Sequence[Record], say: Callable[[Record], str | None]) -> str:
    return " or ".join(sorted(set(filter(None, map(say, records)))))  # sorted, as the order of processes varies


def _peak_mib(record: Record) -> float | None:
    return None if record.observed.peak_memory is None else record.observed.peak_memory / _MIB


def _compiling(record: Record) -> float | None:
    seconds = record.observed.warm_up_seconds
    return seconds if seconds is not None and seconds > _WARM_UP_SECONDS else None


def _numerics(before: Sequence[float | None] | None, after: Sequence[float | None] | None) -> list[Change]:
    """Return the first micro-step whose loss differs by more than rounding, on the same data from the same seed. A
    stack that draws other weights from the seed differs from the first micro-step on."""
    for step, (old, new) in enumerate(zip(before or (), after or (), strict=False), 1):
        if old is None and new is None:
            continue
        if old is None or new is None or abs(new - old) > _LOSS_CHANGE * abs(old):
            return [Change(f"loss of micro-step {step}", _loss(old), _loss(new))]
    return []


def _cpu_use(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """Return the change in CPUs that other processes used; interleaved processes do not record it."""
    old, new = (middle(record.observed.busy_cpus for record in side) for side in (before, after))
    if old is None or new is None or cpu_disturbance(abs(new - old)) is None:
        return []
    return [Change("CPUs that other processes kept busy", f"{old:.1f}", f"{new:.1f}")]


def _loss(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.5g}"


def features(trial: Trial) -> frozenset[str]:
    """Return the parts of a stack that a trial runs: model, its family's kernels, compiler, wrappers, precision."""
    recipe, settings = trial.recipe_and_settings
    found = {
        recipe.id,
        recipe.family,
        f"{recipe.family} {'custom' if settings.free_lunch else 'plain'} kernels",
        recipe.precision,
        settings.library,
        settings.sharding,
        "several devices" if trial.world > 1 else "one device",
    }
    if support.compiles(recipe, settings):
        found |= {"compiler", f"compiled {recipe.family}"}
    if settings.checkpointing:
        found.add("checkpointing")
    if settings.offloading:
        found.add("offloading")
    return frozenset(found)


def choose(seconds: Mapping[Trial, float], budget: float) -> list[Trial]:
    """Return trials that fit in `budget` seconds: each time the one with the most new features for its time, until none
    adds any."""
    chosen: list[Trial] = []
    seen: set[str] = set()
    while True:
        left = budget - sum(seconds[trial] for trial in chosen)
        fitting = [
            trial for trial in seconds if trial not in chosen and seconds[trial] <= left and features(trial) - seen
        ]
        if not fitting:
            return chosen
        best = max(fitting, key=lambda trial: len(features(trial) - seen) / seconds[trial])
        chosen.append(best)
        seen |= features(best)


def ratios_of_pairs(before: Sequence[Record], after: Sequence[Record], micro_batch: int | None) -> list[float]:
    """Return the ratio of step times, after over before, of each pair that both sides have: the median over its
    processes. One that was disturbed or ran at another micro batch leaves its counterpart out, too."""
    found, others = [], _by_pair(after)
    for pair, records in _by_pair(before).items():
        times = [
            (_sample(one, micro_batch), _sample(other, micro_batch))
            for one, other in zip(records, others.get(pair, ()), strict=False)
        ]
        if ratios := [after / before for before, after in times if before and after]:
            found.append(median(ratios))
    return found


def _by_pair(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.pair is not None:
            found.setdefault(record.pair, []).append(record)
    return found


def _sample(record: Record, micro_batch: int | None) -> float | None:
    """Return the seconds of a training step; None where the process was disturbed or ran at another micro batch."""
    return (
        step_seconds(record) if Answer.of(record) is Answer.TIMED and record.batch.micro_batch == micro_batch else None
    )
