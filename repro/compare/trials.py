"""Two sides, trial by trial: matched, judged by the rule, what else changed, and what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, mode
from typing import Literal, get_args

from ..answer import crowded, shared, unfair
from ..console import UserError, cut
from ..machine import rules
from ..machine.environment import Environment
from ..record import SILENT, Record, Trial
from ..text import counted, figures
from .rule import SEPARATE_A_ROUND, SMALLEST_CHANGE, Decision, Ratio, decide, noise_floor, of_pairs, of_separate
from .side import Key, Side, key, middle, of_starts, step_seconds

Status = Literal["regressed", "improved", "unchanged", "inconclusive", "incomparable", "broke", "fixed"]
STATUSES: tuple[Status, ...] = get_args(Status)


@dataclass(frozen=True)
class Half:
    """One side of a trial: medians over its processes, of seconds, bytes and days; None where nothing was measured.

    `discarded` counts samples that were measured and are not fair, see answer.py, `failed` processes that left
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


# A warm-up holds the compilation and whatever the disk did; loss of half precision differs in its last digits.
_WARM_UP_SECONDS, _WARM_UP_CHANGE = 1.0, 0.2
_LOSS_CHANGE = 1e-3
_MIB = 2**20


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was, both sides in words."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before}, then {self.after}"


def changes(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """Between the measured records of a trial on both sides; numbers are medians over processes. What one side does not
    record is no change."""
    words: list[tuple[str, Callable[[Record], str | None]]] = [
        ("kernel path", lambda record: record.kernel_path),
        ("precision", lambda record: record.ran_precision),
        ("wrapper", lambda record: record.wrapper),
        ("optimizer", lambda record: record.optimizer),
        ("compiled", lambda record: "yes" if record.compiled else "no"),
        ("TF32", lambda record: "on" if record.in_tf32 else "off"),
    ]
    graphs = [("graphs", "compiled"), ("graph breaks", "breaks"), ("recompilations", "recompilations")]
    words += [(what, _of_graphs(key)) for what, key in graphs]
    found = [Change(what, _said(before, say), _said(after, say)) for what, say in words]
    found = [change for change in found if change.before and change.after and change.before != change.after]
    found += _moved("peak memory", _peak_mib, before, after, SMALLEST_CHANGE, "MiB")
    found += _moved("compiling and warm-up", _compiling, before, after, _WARM_UP_CHANGE, "s")
    return found + _numerics(before[-1].losses, after[-1].losses) + _crowd(before, after)


def _by_chance(take: Callable[[Record], float | None], before: Sequence[Record], after: Sequence[Record]) -> bool:
    """Whether chance can have moved it: on a CPU the peak is what was resident, another 10 or 20 % in every start, and
    what compiles shares the cores with whatever else runs."""
    starts = [of_starts(side, take) for side in (before, after)]
    if before[-1].device != "cpu" or not all(starts):
        return False
    interval = of_separate(*starts).interval
    return interval is None or interval.low <= 1 <= interval.high


def _of_graphs(key: str) -> Callable[[Record], str | None]:
    return lambda record: str(record.graphs[key]) if record.graphs and key in record.graphs else None


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
    return [Change(what, f"{figures(old)} {unit}", f"{figures(new)} {unit}")]


def _said(records: Sequence[Record], say: Callable[[Record], str | None]) -> str:
    return " or ".join(sorted(set(filter(None, map(say, records)))))  # in an order that the processes' does not change


def _peak_mib(record: Record) -> float | None:
    return None if record.peak_memory is None else record.peak_memory / _MIB


def _compiling(record: Record) -> float | None:
    seconds = record.warm_up_seconds
    return seconds if seconds is not None and seconds > _WARM_UP_SECONDS else None


def _numerics(before: Sequence[float | None] | None, after: Sequence[float | None] | None) -> list[Change]:
    """Loss of the first micro-steps, on the same data from the same seed: the first that differs by more than rounding.

    A stack that draws other weights from the seed differs, too: from the first on."""
    for step, (old, new) in enumerate(zip(before or (), after or (), strict=False), 1):
        if old is None and new is None:
            continue
        if old is None or new is None or abs(new - old) > _LOSS_CHANGE * abs(old):
            return [Change(f"loss of micro-step {step}", _loss(old), _loss(new))]
    return []


def _crowd(before: Sequence[Record], after: Sequence[Record]) -> list[Change]:
    """What may well be why one side was slower. Processes that took turns have no such number."""
    old, new = (middle(record.crowd for record in side) for side in (before, after))
    if old is None or new is None or crowded(abs(new - old)) is None:
        return []
    return [Change("CPUs that other processes kept busy", f"{old:.1f}", f"{new:.1f}")]


def _loss(loss: float | None) -> str:
    return "not finite" if loss is None else f"{loss:.5g}"


def features(trial: Trial) -> frozenset[str]:
    """What of a stack a trial runs: the model, its family's kernels, the compiler, wrappers, precision."""
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
    if rules.compiles(recipe, settings):
        found |= {"compiler", f"compiled {recipe.family}"}
    if settings.checkpointing:
        found.add("checkpointing")
    if settings.offloading:
        found.add("offloading")
    return frozenset(found)


def choose(seconds: Mapping[Trial, float], budget: float) -> list[Trial]:
    """The trials that fit in `budget` seconds: each time the one with the most features not yet seen for its time,
    until none shows anything new."""
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


@dataclass(frozen=True)
class Judged:
    """What was decided from the seconds of both sides. `floor` is None where no stack ran against itself."""

    ratio: Ratio
    decision: Decision
    floor: float | None


Judge = Callable[[Sequence[Record], Sequence[Record], int | None], Judged]  # both sides, and the micro batch to judge


def judge_separate(before: Sequence[Record], after: Sequence[Record]) -> Judged:
    """Of fair samples of runs that were not interleaved. Where there are samples enough the two halves of each side
    are the two rounds, and every other sample of `before` against the rest is the noise floor."""
    a, b = (of_starts(side, step_seconds) for side in (before, after))
    together, floor = of_separate(a, b), None
    rounds = [together]
    if min(len(a), len(b)) >= 2 * SEPARATE_A_ROUND:
        half, other = len(a) // 2, len(b) // 2
        rounds = [of_separate(a[:half], b[:other]), of_separate(a[half:], b[other:])]
        floor = noise_floor(of_separate(a[::2], a[1::2]))
    return Judged(together, decide(rounds, together, floor), floor)


def judge_pairs(again: Sequence[Record], first: int, forks: int) -> Judge:
    """Judges starts, of `forks` processes each: the first `first` of them as the first round; `again` is the first
    stack's copy. A start without a fair pair at the micro batch to judge is left out."""

    def judge(before: Sequence[Record], after: Sequence[Record], micro_batch: int | None) -> Judged:
        starts, same = (by_start(before, side, forks, micro_batch) for side in (after, again))
        rounds = [of_pairs(part) for half in (starts[:first], starts[first:]) if (part := _known(half))]
        if len(rounds) > 1 and rounds[1].interval is None:
            del rounds[1]  # cut short, it can neither confirm nor deny
        if not rounds:  # no pair is fair: what there is tells at least both medians
            together = of_separate(*(_known(_sample(one, micro_batch) for one in side) for side in (before, after)))
            return Judged(together, decide([together], together, None), None)
        together = of_pairs(_known(starts))
        floor = noise_floor(of_pairs(_known(same))) if any(same) else None
        return Judged(together, decide(rounds, together, floor), floor)

    return judge


def by_start(
    before: Sequence[Record], after: Sequence[Record], forks: int, micro_batch: int | None
) -> list[float | None]:
    """The ratio of the times of a training step, a start at a time: the median of its fair pairs, None where it has
    none."""
    pairs = [(_sample(one, micro_batch), _sample(two, micro_batch)) for one, two in zip(before, after, strict=False)]
    starts = [pairs[first : first + forks] for first in range(0, len(pairs), forks)]
    ratios = [[other / one for one, other in start if one and other] for start in starts]
    return [median(start) if start else None for start in ratios]


def _sample(record: Record, micro_batch: int | None) -> float | None:
    """Seconds of a training step; None where the process is no fair sample, or had to halve the micro batch."""
    return None if unfair(record) or record.micro_batch != micro_batch else step_seconds(record)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
