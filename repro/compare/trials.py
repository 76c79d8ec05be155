"""Two sides, trial by trial: matched by recipe, machine, settings and micro batch, and judged by the rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mode
from typing import Literal, get_args

from ..environment import Environment
from ..errors import UserError, cut
from ..fairness import shared, unfair
from ..formats import counted
from ..trial import SILENT, Record
from .changes import Change, changes
from .judge import Judge, Judged, judge_separate
from .side import Key, Side, key, middle, step_seconds

Status = Literal["regressed", "improved", "unchanged", "inconclusive", "incomparable", "broke", "fixed"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Half:
    """One side of a trial: medians over its processes, of seconds, bytes and days; None where nothing was measured.

    `discarded` counts samples that were measured and are not fair, see fairness.py, `failed` processes that left
    none."""

    processes: int
    discarded: int
    median: float | None
    peak_memory: float | None
    days: float | None
    failed: int = 0


@dataclass(frozen=True)
class Compared:
    """A trial of both sides. `judged` is None where their times cannot be compared; `reason` says why a status."""

    trial: Record
    before: Half
    after: Half
    status: Status
    reason: str
    judged: Judged | None = None
    changes: tuple[Change, ...] = ()

    @property
    def unanswered(self) -> bool:
        """Whether a side measured it, and nothing can be said of a change. What ran on neither side is no question."""
        return self.status == "incomparable" and any(
            half.processes + half.discarded for half in (self.before, self.after)
        )


@dataclass(frozen=True)
class Alone:
    """A trial of one side alone. `there` is what the other side has in place of an answer, `interrupted` or `skipped`;
    nothing where it has no record of it."""

    trial: Record
    half: Half
    there: str


def compare(before: Side, after: Side) -> list[Compared]:
    """Every trial that both sides have. Raises UserError where they have none in common, or one is the baseline of
    another machine."""
    for side, other in ((before, after), (after, before)):
        if side.baseline_of is not None and (
            problem := _another_machine(before, after, before.records[:1], after.records[:1])
        ):
            raise UserError(f"{side.name} is a baseline of {side.baseline_of}, and {other.name} is not: {problem}")
    sides = _by_trial(before), _by_trial(after)
    found = [
        compare_trial(records, sides[1][named], _another_machine(before, after, records, sides[1][named]))
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


def only_in(side: Side, other: Side) -> list[Alone]:
    """The trials of a side to which the other has no answer."""
    answered = _by_trial(other).keys()
    silent = {key(record): record.status for record in other.records}
    return [
        Alone(_shown(records), _half(records), silent.get(named, ""))
        for named, records in _by_trial(side).items()
        if named not in answered
    ]


def _shown(records: Sequence[Record]) -> Record:
    """The latest that ran, else the latest, which tells what trial it is."""
    return next((record for record in reversed(records) if record.status == "ok"), records[-1])


def compare_trial(
    before: Sequence[Record], after: Sequence[Record], obstacle: str = "", judge: Judge | None = None
) -> Compared:
    """One trial from its records on both sides, oldest first, each of a process of its own. It broke where it ran
    before and runs in none now, or fails in some where none failed, whichever they are; `fixed` is the other way round.
    `obstacle` says why the machines cannot be compared. What ran out of memory that another process held is discarded.
    A `judge` gets all that ran, as it may pair them by their order."""
    told = Compared(_shown(before), _half(before), _half(after), "incomparable", obstacle)
    if obstacle:
        return told
    sides = [[record for record in side if not shared(record)] for side in (before, after)]
    for side, kept in zip((before, after), sides, strict=True):
        if not kept:
            return replace(told, reason=_all_discarded(side))
    ran = [[record for record in side if record.status == "ok"] for side in sides]
    shares = [1 - len(runs) / len(side) for runs, side in zip(ran, sides, strict=True)]
    failures = _failures(*sides)
    if not any(ran):
        return replace(told, reason=f"ran on neither side: {_failed(sides[1])}")
    if not ran[1] or (shares[1] and not shares[0]):
        return replace(told, status="broke", reason=failures)
    if not ran[0]:
        return replace(told, status="fixed", reason=failures)
    found = _of_what_ran(told, ran, judge)
    if not failures:
        return found
    more = "fails more often: " if shares[1] > shares[0] else ""
    return replace(found, status=_beside(found, *shares), reason=f"{more}{failures}; {found.reason}")


def _of_what_ran(told: Compared, ran: Sequence[Sequence[Record]], judge: Judge | None) -> Compared:
    """The same by the times of both sides, of which each has some."""
    if obstacle := _another_recipe(*ran):
        return replace(told, reason=obstacle)
    fair = [[record for record in side if unfair(record) is None] for side in ran]
    for side, kept in zip(ran, fair, strict=True):
        if not kept:
            return replace(told, reason=_all_discarded(side))
    sizes = [Counter(record.micro_batch or 0 for record in side) for side in fair]
    common = sizes[0].keys() & sizes[1].keys()
    if not common:
        what = f"another largest micro batch: {_listed(sizes[0])}, then {_listed(sizes[1])}"
        return replace(told, reason=what)
    # Of several that both have the one that leaves most to compare: two mixed would tell of the mixture.
    size = max(common, key=lambda one: (min(side[one] for side in sizes), one))
    alike = [[record for record in side if (record.micro_batch or 0) == size] for side in fair]
    judged = judge(ran[0], ran[1], alike[0][-1].micro_batch) if judge else judge_separate(*alike)
    found = Compared(
        alike[0][-1],
        replace(_half(alike[0]), discarded=told.before.discarded, failed=told.before.failed),
        replace(_half(alike[1]), discarded=told.after.discarded, failed=told.after.failed),
        judged.decision.call,
        judged.decision.reason,
        judged,
        tuple(changes(*alike)),
    )
    return found if len(sizes[0] | sizes[1]) == 1 else _of_one_size(found, size, *sizes)


def _of_one_size(found: Compared, size: int, before: Mapping[int, int], after: Mapping[int, int]) -> Compared:
    """The same, where some processes had to take another micro batch and so are in no ratio. One that takes a smaller
    one more often than before is not as it was, whatever the others say."""
    smaller, told = [], []
    for side in (before, after):
        smaller.append(sum(count for one, count in side.items() if one < size) / sum(side.values()))
        told.append(" and ".join(f"{one} in {side[one]}" for one in sorted(side, reverse=True)))
    why = (
        f"of all processes those of micro batch {size} alone are compared, {before[size]} of {sum(before.values())} "
        f"before and {after[size]} of {sum(after.values())} after (micro batch {told[0]}; then {told[1]})"
    )
    changed = (Change("micro batch", *(f"{each} processes" for each in told)),) if before != after else ()
    status = found.status
    if smaller[1] > smaller[0]:
        why = f"a smaller micro batch more often: {why}"
        status = "inconclusive" if status in ("unchanged", "improved") else status
    return replace(found, status=status, reason=f"{why}; {found.reason}", changes=(*found.changes, *changed))


def _beside(found: Compared, before: float, after: float) -> Status:
    """What is said of a trial that runs on both sides and failed in these shares of their processes. One that fails no
    more is fixed, unless what ran before was faster; one that fails more often is not as it was."""
    if found.judged and not after:
        slower = found.judged.ratio.value > 1 + found.judged.decision.threshold
        return found.status if slower else "fixed"
    return "inconclusive" if after > before and found.status in ("unchanged", "improved") else found.status


def _failures(before: Sequence[Record], after: Sequence[Record]) -> str:
    """How often and why either side failed; nothing where none did."""
    told = [_failed(side) for side in (before, after)]
    return f"before, {told[0]}; after, {told[1]}" if all(told) else "".join(told)


def _failed(side: Sequence[Record]) -> str:
    """The same of one side: by status, with the most frequent reason of each."""
    reasons: dict[str, list[str]] = {}
    for record in side:
        if record.status != "ok":
            reasons.setdefault(record.status, []).append(record.reason or "no reason recorded")
    count = (lambda number: f"{number} of {len(side)} processes ") if len(side) > 1 else lambda number: ""
    return ", ".join(f"{count(len(said))}{status}: {mode(sorted(said))}" for status, said in sorted(reasons.items()))


def _all_discarded(side: Sequence[Record]) -> str:
    all_of_it = "its one sample" if len(side) == 1 else f"every one of {len(side)} samples"
    return f"{all_of_it} was discarded: {unfair(side[-1])}"


def _half(records: Sequence[Record]) -> Half:
    fair = [record for record in records if record.status == "ok" and unfair(record) is None]
    failed = sum(record.status != "ok" and not shared(record) for record in records)
    return Half(
        processes=len(fair),
        discarded=len(records) - len(fair) - failed,
        failed=failed,
        median=middle(step_seconds(record) for record in fair),
        peak_memory=middle(record.peak_memory for record in fair),
        days=middle(record.true_days for record in fair if record.scale == "paper"),  # nobody trains a tiny twin
    )


def _by_trial(side: Side) -> dict[Key, list[Record]]:
    """One that was interrupted, or that a guided search skipped, says nothing."""
    found: dict[Key, list[Record]] = {}
    for record in side.records:
        if record.status not in SILENT:
            found.setdefault(key(record), []).append(record)
    return found


def _another_machine(before: Side, after: Side, old: Sequence[Record], new: Sequence[Record]) -> str:
    """Why times of two machines cannot be compared, or nothing. The runs of one side may be of several, too."""
    devices = [sorted({record.device for record in records}) for records in (old, new)]
    if devices[0] != devices[1] or len(devices[0]) > 1:
        return f"another device: {' or '.join(devices[0])}, then {' or '.join(devices[1])}"
    for take in (_cpu, _cores, _usable) if devices[0] == ["cpu"] else (_gpus,):
        names = [side.said(take) for side in (before, after)]
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
    """Also where a side's own records are of two: a folder may have gone on after a recipe was changed."""
    takes: dict[str, Callable[[Record], object]] = {
        "weights": lambda record: record.weights,
        "precision": lambda record: record.precision or None,
        "batch": _batch,
    }
    for what, take in takes.items():
        told = [sorted({str(said) for said in map(take, side) if said is not None}) for side in (before, after)]
        if all(told) and (told[0] != told[1] or len(told[0]) > 1):
            return f"another recipe: {what} {' or '.join(told[0])}, then {' or '.join(told[1])}"
    return ""


def _batch(record: Record) -> int | None:
    """Examples of a training step, over all devices."""
    if record.micro_batch is None or record.accumulation is None:
        return None
    return record.micro_batch * record.accumulation * record.world


def _listed(sizes: Collection[int]) -> str:
    return " or ".join(map(str, sorted(sizes)))
