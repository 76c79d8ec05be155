"""The trials of two sides: matched, judged by the rule, with what else changed and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, mode
from typing import Literal, get_args

from ..console import UserError, cut
from ..formats import counted
from ..machine.environment import Environment
from ..record import Record
from ..validity import disturbance, undisturbed
from .changes import changes
from .decision import Decision, decide, decide_apart
from .side import Key, Side, key, middle, of_starts, step_seconds

Status = Literal["regressed", "improved", "unchanged", "inconclusive", "incomparable", "broke", "fixed"]
OneSided = Literal["only_before", "only_after"]
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
    """A trial of both sides, or of one. `judged` is None where their times cannot be compared; `reason` explains the
    status."""

    trial: Record
    before: SideStats
    after: SideStats
    status: Status | OneSided
    reason: str
    judged: Decision | None = None
    changes: tuple[str, ...] = ()

    @property
    def unanswered(self) -> bool:
        """Return True where a side measured it and the sides cannot be compared; False where it ran on neither."""
        return self.status == "incomparable" and any(
            half.processes + half.discarded for half in (self.before, self.after)
        )


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


def alone(before: Side, after: Side) -> list[Compared]:
    """Return the trials for which one side has no result, those of `before` first. The reason is the status that the
    other side has instead, such as `interrupted` or `skipped`."""
    nothing, found = _half(()), []
    for records, instead in _unanswered(before, after):
        found.append(Compared(_shown(records), _half(records), nothing, "only_before", f"{instead} after"))
    for records, instead in _unanswered(after, before):
        found.append(Compared(_shown(records), nothing, _half(records), "only_after", f"{instead} before"))
    return found


def _unanswered(side: Side, other: Side) -> Iterator[tuple[Sequence[Record], str]]:
    """Yield the records of each trial for which the other side has no result, and its status there."""
    answered, statuses = _by_trial(other), {key(record): record.status for record in other.records}
    for named, records in _by_trial(side).items():
        if named not in answered:
            yield records, statuses.get(named, "not recorded")


def _shown(records: Sequence[Record]) -> Record:
    """Return the latest record that ran, else the latest, to describe the trial."""
    return next((record for record in reversed(records) if record.timed), records[-1])


def compare_trial(
    before: Sequence[Record], after: Sequence[Record], obstacle: str = "", drift: float = DRIFT
) -> Compared:
    """Compare one trial by its records on both sides, oldest first, one for each process. It `broke` where it ran
    before and runs in no process now, or fails in some where none failed before, for any reason; it is `fixed` where it
    ran in none before. `obstacle` says why the machines cannot be compared. Processes that ran out of memory which
    another process used are discarded. Times that were not interleaved may differ by `drift` without a change."""
    compared = Compared(_shown(before), _half(before), _half(after), "incomparable", obstacle)
    if obstacle:
        return compared
    sides = [[record for record in side if record.timed or not disturbance(record)] for side in (before, after)]
    for side, kept in zip((before, after), sides, strict=True):
        if not kept:
            return replace(compared, reason=_all_discarded(side))
    ran = [[record for record in side if record.timed] for side in sides]
    failed = [_failed(side) for side in sides]
    failures = f"before, {failed[0]}; after, {failed[1]}" if all(failed) else "".join(failed)
    if not any(ran):
        return replace(compared, reason=f"ran on neither side: {failed[1]}")
    if not ran[1] or (failed[1] and not failed[0]):
        return replace(compared, status="broke", reason=failures)
    if not ran[0]:
        return replace(compared, status="fixed", reason=failures)
    found = _of_what_ran(compared, ran, drift)
    return replace(found, reason=f"{failures}; {found.reason}") if failures else found


def _of_what_ran(compared: Compared, ran: Sequence[Sequence[Record]], drift: float) -> Compared:
    """Compare a trial by the times of both sides, each of which has some."""
    if obstacle := _another_recipe(*ran):
        return replace(compared, reason=obstacle)
    valid = [[record for record in side if undisturbed(record)] for side in ran]
    for side, kept in zip(ran, valid, strict=True):
        if not kept:
            return replace(compared, reason=_all_discarded(side))
    sizes = [Counter(record.batch.micro_batch or 0 for record in side) for side in valid]
    common = sizes[0].keys() & sizes[1].keys()
    if not common:
        names = [" or ".join(map(str, sorted(side))) for side in sizes]
        return replace(compared, reason=f"another largest micro batch: {names[0]}, then {names[1]}")
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
    changed = (f"micro batch: {shown_sizes[0]} processes, then {shown_sizes[1]} processes",) if before != after else ()
    status = found.status
    if smaller[1] > smaller[0]:
        reason = f"a smaller micro batch more often: {reason}"
        status = "inconclusive" if status in ("unchanged", "improved") else status
    return replace(found, status=status, reason=f"{reason}; {found.reason}", changes=(*found.changes, *changed))


def _failed(side: Sequence[Record]) -> str:
    """Describe the failures of one side, by status, with the most frequent reason of each."""
    reasons: dict[str, list[str]] = {}
    for record in side:
        if not record.timed:
            reasons.setdefault(record.status, []).append(record.reason or "no reason recorded")
    count = (lambda number: f"{number} of {len(side)} processes ") if len(side) > 1 else lambda number: ""
    return ", ".join(f"{count(len(texts))}{status}: {mode(sorted(texts))}" for status, texts in sorted(reasons.items()))


def _all_discarded(side: Sequence[Record]) -> str:
    all_of_it = "its one sample" if len(side) == 1 else f"every one of {len(side)} samples"
    return f"{all_of_it} was discarded: {disturbance(side[-1])}"


def _half(records: Sequence[Record]) -> SideStats:
    valid = [record for record in records if undisturbed(record)]
    discarded = sum(disturbance(record) is not None for record in records)
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
        if record.ended:
            found.setdefault(key(record), []).append(record)
    return found


def _another_machine(before: Side, after: Side, old: Sequence[Record], new: Sequence[Record]) -> str:
    """Explain why times of two machines cannot be compared, or return "". One side may have several, too."""
    devices = [sorted({record.device for record in records}) for records in (old, new)]
    if devices[0] != devices[1] or len(devices[0]) > 1:
        return f"another device: {' or '.join(devices[0])}, then {' or '.join(devices[1])}"
    machine = _CPU if devices[0] == ["cpu"] else _GPUS
    for take in machine:
        names = [side.distinct(take) for side in (before, after)]
        if names[0] != names[1] and all(names):
            return f"another machine: {'; '.join(names[0])}, then {'; '.join(names[1])}"
    return ""


# What tells machines apart; None where it is not recorded.
_CPU: tuple[Callable[[Environment], str | None], ...] = (
    lambda known: known.host.cpu or None,
    lambda known: f"{known.host.physical_cores} cores" if known.host.physical_cores else None,
    lambda known: counted(known.host.usable_cpus, "usable CPU") if known.host.usable_cpus else None,
)
_GPUS = (lambda known: ", ".join(sorted({gpu.driver_name for gpu in known.gpus or []})) or None,)


def _another_recipe(before: Sequence[Record], after: Sequence[Record]) -> str:
    """Explain why the recipes differ, or return "". One side may have two, if a recipe changed between its runs."""
    takes: dict[str, Callable[[Record], object]] = {
        "weights": lambda record: record.as_run.weights,
        "precision": lambda record: record.as_run.asked_precision or None,
        "batch": lambda record: (
            record.batch.micro_batch * record.batch.accumulation * record.world
            if record.batch.micro_batch is not None and record.batch.accumulation is not None
            else None
        ),
    }
    for what, take in takes.items():
        values = [sorted({str(value) for value in map(take, side) if value is not None}) for side in (before, after)]
        if all(values) and (values[0] != values[1] or len(values[0]) > 1):
            return f"another recipe: {what} {' or '.join(values[0])}, then {' or '.join(values[1])}"
    return ""


def ratios_of_pairs(before: Sequence[Record], after: Sequence[Record], micro_batch: int | None) -> list[float]:
    """Return the ratio of step times, after over before, of each pair that both sides have: the median over its
    processes. One that was disturbed or ran at another micro batch leaves its counterpart out, too."""

    def seconds(record: Record) -> float | None:
        fair = undisturbed(record) and record.batch.micro_batch == micro_batch
        return step_seconds(record) if fair else None

    found, others = [], _by_pair(after)
    for pair, records in _by_pair(before).items():
        both = zip(records, others.get(pair, ()), strict=False)
        times = [(seconds(one), seconds(other)) for one, other in both]
        if ratios := [after / before for before, after in times if before and after]:
            found.append(median(ratios))
    return found


def _by_pair(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.pair is not None:
            found.setdefault(record.pair, []).append(record)
    return found
