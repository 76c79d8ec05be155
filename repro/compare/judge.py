"""The rule applied to the records of a trial: of two separate runs, and of starts that were taken in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..fairness import unfair
from ..trial import Record
from .ratio import Ratio, of_pairs, of_separate
from .rule import SEPARATE_A_ROUND, Decision, decide, noise_floor
from .side import of_starts, step_seconds


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
