"""Two sides, trial by trial: matched by recipe, machine, settings and micro batch, and judged by the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, get_args

from ..errors import UserError, cut
from ..soundness import unsound
from ..trial import Record
from .changes import Change, changes
from .ratio import Ratio, of_separate
from .rule import SEPARATE_A_ROUND, Decision, decide, noise_floor
from .side import Side, middle, step_seconds

Status = Literal["regressed", "improved", "unchanged", "inconclusive", "incomparable", "broke", "fixed"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Half:
    """One side of a trial: medians over its processes, of seconds, bytes and days; None where nothing was measured.

    `discarded` counts samples that were measured and are not sound, see soundness.py."""

    processes: int
    discarded: int
    median: float | None
    peak_memory: float | None
    days: float | None


@dataclass(frozen=True)
class Judged:
    """What was decided from the seconds of both sides. `floor` is None where no stack ran against itself."""

    ratio: Ratio
    decision: Decision
    floor: float | None


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


Judge = Callable[[Sequence[Record], Sequence[Record]], Judged]
Key = tuple[str, str, str, int, int, int | None]


def compare(before: Side, after: Side) -> list[Compared]:
    """Every trial that both sides have. Raises UserError where they have none in common, or one is the baseline of
    another machine."""
    for side, other in ((before, after), (after, before)):
        if side.baseline_of is not None and (
            problem := _another_machine(before, after, before.records[0], after.records[0])
        ):
            raise UserError(f"{side.name} is a baseline of {side.baseline_of}, and {other.name} is not: {problem}")
    sides = _by_trial(before), _by_trial(after)
    found = [
        compare_trial(records, sides[1][key], _another_machine(before, after, records[0], sides[1][key][0]))
        for key, records in sides[0].items()
        if key in sides[1]
    ]
    if not found:
        names = [cut(", ".join(dict.fromkeys(f"{key[0]} {key[2]}" for key in side)), 80) for side in sides]
        raise UserError(
            f"{before.name} and {after.name} have no trial in common (recipe, scale, settings, count, --memory): "
            f"{names[0]} against {names[1]}"
        )
    return found


def only_in(side: Side, other: Side) -> int:
    """How many trials of a side the other lacks."""
    return len(_by_trial(side).keys() - _by_trial(other).keys())


def compare_trial(
    before: Sequence[Record], after: Sequence[Record], obstacle: str = "", judge: Judge | None = None
) -> Compared:
    """One trial from its records on both sides, oldest first: the latest, of any number of rounds, says whether it
    runs. `obstacle` says why the machines cannot be compared. A `judge` gets all that ran, as it may pair them by their
    order."""
    ran = [[record for record in side if record.status == "ok"] for side in (before, after)]
    halves = _half(ran[0]), _half(ran[1])
    latest = [{record.id: record for record in side}.values() for side in (before, after)]
    runs = [any(record.status == "ok" for record in side) for side in latest]

    def told(status: Status, reason: str) -> Compared:
        return Compared(before[-1], *halves, status, reason)

    if not obstacle and not all(runs):
        if any(runs):
            failed = (before if runs[1] else after)[-1]
            return told("fixed" if runs[1] else "broke", f"{failed.status}: {failed.reason or 'no reason recorded'}")
        return told("incomparable", f"ran on neither side: {after[-1].status}, {after[-1].reason}")
    obstacle = obstacle or _another_recipe(before[-1], after[-1])
    if obstacle:
        return told("incomparable", obstacle)
    sizes = [{record.micro_batch for record in side} for side in ran]
    common = sizes[0] & sizes[1]
    if not common:
        return told("incomparable", f"another largest micro batch: {_listed(sizes[0])}, then {_listed(sizes[1])}")
    in_order = ran
    ran = [[record for record in side if record.micro_batch in common] for side in ran]
    sound = [[record for record in side if unsound(record) is None] for side in ran]
    for side, kept in zip(ran, sound, strict=True):
        if not kept:
            return told("incomparable", f"every one of {len(side)} samples was discarded: {unsound(side[-1])}")
    judged = judge(*in_order) if judge else judge_separate(*ran)
    return Compared(
        before[-1],
        _half(ran[0]),
        _half(ran[1]),
        judged.decision.call,
        judged.decision.reason,
        judged,
        tuple(changes(*sound)),
    )


def judge_separate(before: Sequence[Record], after: Sequence[Record]) -> Judged:
    """Of runs that were not interleaved. Where there are samples enough the two halves of each side are the two
    rounds, and every other sample of `before` against the rest is the noise floor."""
    a, b = _samples(before), _samples(after)
    together, floor = of_separate(a, b), None
    rounds = [together]
    if min(len(a), len(b)) >= 2 * SEPARATE_A_ROUND:
        half, other = len(a) // 2, len(b) // 2
        rounds = [of_separate(a[:half], b[:other]), of_separate(a[half:], b[other:])]
        floor = noise_floor(of_separate(a[::2], a[1::2]))
    return Judged(together, decide(rounds, together, floor), floor)


def _samples(records: Sequence[Record]) -> list[float]:
    """Seconds of a training step: the median of the sound processes of each start of the stack, oldest first. Where no
    start is recorded each process is its own."""
    starts: dict[tuple[float | None, int | None], list[float]] = {}
    for number, record in enumerate(records):
        if unsound(record) is None and (seconds := step_seconds(record)):
            start = (None, number) if record.stack_started is None else (record.stack_started, None)
            starts.setdefault(start, []).append(seconds)
    return [median(times) for times in starts.values()]


def _half(measured: Sequence[Record]) -> Half:
    sound = [record for record in measured if unsound(record) is None]
    return Half(
        processes=len(sound),
        discarded=len(measured) - len(sound),
        median=middle(step_seconds(record) for record in sound),
        peak_memory=middle(record.peak_memory for record in sound),
        days=middle(record.true_days for record in sound),
    )


def _by_trial(side: Side) -> dict[Key, list[Record]]:
    """Records by all that names a trial except its device and micro batch; one that was interrupted, or that a guided
    search skipped, says nothing."""
    found: dict[Key, list[Record]] = {}
    for record in side.records:
        if record.status not in ("interrupted", "skipped"):
            key = (
                record.recipe,
                record.scale,
                record.settings,
                record.count,
                record.nodes,
                record.memory_limit,
            )
            found.setdefault(key, []).append(record)
    return found


def _another_machine(before: Side, after: Side, old: Record, new: Record) -> str:
    """Why times of two machines cannot be compared, or nothing."""
    if old.device != new.device:
        return f"another device: {old.device}, then {new.device}"
    if old.device == "cpu":
        names = [side.environment.host.cpu or None for side in (before, after)]
    else:
        names = [
            ", ".join(sorted({gpu.driver_name for gpu in side.environment.gpus or []})) or None
            for side in (before, after)
        ]
    return f"another machine: {names[0]}, then {names[1]}" if None not in names and names[0] != names[1] else ""


def _another_recipe(old: Record, new: Record) -> str:
    for what, a, b in (
        ("weights", old.weights, new.weights),
        ("precision", old.precision or None, new.precision or None),
        ("batch", _batch(old), _batch(new)),
    ):
        if a is not None and b is not None and a != b:
            return f"another recipe: {what} {a}, then {b}"
    return ""


def _batch(record: Record) -> int | None:
    """Examples of a training step, over all devices."""
    if record.micro_batch is None or record.accumulation is None:
        return None
    return record.micro_batch * record.accumulation * record.world


def _listed(sizes: set[int | None]) -> str:
    return " or ".join(str(size) for size in sorted(size or 0 for size in sizes))
