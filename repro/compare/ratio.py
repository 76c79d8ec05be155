"""How many times longer `after` takes than `before`, with an exact interval that assumes nothing of the noise.

A sample is the time of one process. Within a process times share its memory layout and its minute, so only processes
are independent. Samples that were taken as pairs, interleaved, are held pair against pair, so that what the machine did
in that minute cancels: the value is the median of the pairs' ratios, the interval that of the sign test, which neither
skew nor a few wild pairs upset. Samples of two separate runs are held each against each: the value is the median of all
those ratios (Hodges-Lehmann), the interval that of Mann-Whitney's test. Both are exact at any number of processes, so
that the smallest p they attain is known before anything is measured; a bootstrap of a handful of processes is neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

from ..interval import Interval

ALPHA = 0.05  # two-sided: the interval is to hold the true ratio in 95 of 100 comparisons


@dataclass(frozen=True)
class Ratio:
    """`value` is after over before, 1 where nothing changed. `interval` is None where so few `processes` a side attain
    no p as small as ALPHA. `standard_error` is relative, of the value, from the spread between processes."""

    value: float
    interval: Interval | None
    processes: int
    smallest_p: float
    standard_error: float


def of_pairs(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Seconds of processes that ran as pairs, in the order of the pairs. Raises ValueError where one has no partner,
    or there are none."""
    differences = sorted(math.log(b / a) for a, b in zip(before, after, strict=True))
    count = len(differences)
    interval = _interval(differences, [math.comb(count, above) for above in range(count + 1)])
    error = _spread(differences) * math.sqrt(math.pi / 2 / count) if count else 0.0
    return _ratio(differences, interval, count, smallest_p_of_pairs(count), error)


def of_separate(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Seconds of processes of two runs, one after the other. Raises ValueError where a side has none."""
    shifts = sorted(math.log(b / a) for a in before for b in after)
    sizes = len(before), len(after)
    interval = _interval(shifts, _rank_sum_counts(*sizes))
    sides = [[math.log(seconds) for seconds in side] for side in (before, after)]
    error = math.sqrt(sum(math.pi / 3 * _spread(side) ** 2 / len(side) for side in sides if side))
    return _ratio(shifts, interval, min(sizes), smallest_p_of_separate(*sizes), error)


def smallest_p_of_pairs(pairs: int) -> float:
    """The smallest two-sided p that the sign test attains: all pairs agree."""
    return min(1.0, 2 / 2**pairs)


def smallest_p_of_separate(before: int, after: int) -> float:
    """The smallest two-sided p that Mann-Whitney's test attains: every process of a side beats all of the other."""
    return min(1.0, 2 / math.comb(before + after, before))


def _ratio(
    logarithms: list[float], interval: tuple[float, float] | None, processes: int, smallest_p: float, error: float
) -> Ratio:
    if not logarithms:
        raise ValueError("no processes to compare")
    value = math.exp(median(logarithms))
    bounds = None if interval is None else Interval(value, math.exp(interval[0]), math.exp(interval[1]))
    return Ratio(value, bounds, processes, smallest_p, error)


def _interval(logarithms: list[float], counts: list[int]) -> tuple[float, float] | None:
    """Bounds of the truth from sorted logarithms of ratios. The test's statistic is how many of them are above it;
    `counts` says in how many of all equally likely cases that is 0, 1, 2 ..."""
    left_out, tail = 0, 0.0  # from either end
    for count in counts:
        tail += count / sum(counts)
        if tail > ALPHA / 2:
            break
        left_out += 1
    return (logarithms[left_out - 1], logarithms[-left_out]) if left_out else None


def _spread(logarithms: Sequence[float]) -> float:
    """The standard deviation, from the median deviation: that of normal noise, whatever a few wild values do."""
    middle = median(logarithms)
    return median(abs(value - middle) for value in logarithms) / NormalDist().inv_cdf(0.75)


def _rank_sum_counts(first: int, second: int) -> list[int]:
    """Orders of two groups by Mann-Whitney's U: the coefficients of the Gaussian binomial."""
    counts = [1] + [0] * (first * second)
    for k in range(1, first + 1):
        grow, shrink = second + k, k
        for u in range(len(counts) - 1, grow - 1, -1):  # times 1 - q^grow
            counts[u] -= counts[u - grow]
        for u in range(shrink, len(counts)):  # over 1 - q^shrink
            counts[u] += counts[u - shrink]
    return counts
