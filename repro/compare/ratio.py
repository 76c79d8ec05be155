"""How many times longer `after` takes than `before`, with an exact interval that assumes nothing of the noise.

A sample is the time of one process, or of a few that share a start: within it times share a memory layout and a minute,
so only samples are independent. Those that were taken as pairs, interleaved, are held pair against pair, so that what
the machine did in that minute cancels; the interval is that of Wilcoxon's signed-rank test, which asks only that both
of a pair be equally noisy. Those of two separate runs are held each against each, and the interval is that of
Mann-Whitney's test. The value is the median that belongs to the test (Hodges-Lehmann), which a few wild samples do not
upset. Both tests are exact at any number of samples, so that the smallest p they attain is known before anything is
measured; a bootstrap of a handful of samples is neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist, median

from ..interval import Interval

ALPHA = 0.05  # two-sided: the interval is to hold the true ratio in 95 of 100 comparisons


@dataclass(frozen=True)
class Ratio:
    """`value` is after over before, 1 where nothing changed. `interval` is None where so few `samples` a side attain no
    p as small as ALPHA. `standard_error` is relative, of the value, from the spread between samples."""

    value: float
    interval: Interval | None
    samples: int
    smallest_p: float
    standard_error: float


def of_pairs(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Seconds of samples that were taken as pairs, in the order of the pairs. Raises ValueError where one has no
    partner, or there are none."""
    differences = [math.log(b / a) for a, b in zip(before, after, strict=True)]
    count = len(differences)
    means = sorted((x + y) / 2 for place, x in enumerate(differences) for y in differences[place:])
    error = math.sqrt(math.pi / 3 / count) * _spread(differences) if count else 0.0
    return _ratio(means, _interval(means, _left_out_of_pairs(count)), count, smallest_p_of_pairs(count), error)


def of_separate(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Seconds of samples of two runs, one after the other. Raises ValueError where a side has none."""
    shifts = sorted(math.log(b / a) for a in before for b in after)
    sizes = len(before), len(after)
    interval = _interval(shifts, _left_out(_rank_sum_counts(*sizes)))
    sides = [[math.log(seconds) for seconds in side] for side in (before, after)]
    error = math.sqrt(sum(math.pi / 3 * _spread(side) ** 2 / len(side) for side in sides if side))
    return _ratio(shifts, interval, min(sizes), smallest_p_of_separate(*sizes), error)


def smallest_p_of_pairs(pairs: int) -> float:
    """The smallest two-sided p that the signed-rank test attains: all pairs agree."""
    return min(1.0, 2 / 2**pairs)


def smallest_p_of_separate(before: int, after: int) -> float:
    """The smallest two-sided p that Mann-Whitney's test attains: every sample of a side beats all of the other."""
    return min(1.0, 2 / math.comb(before + after, before))


def _ratio(
    logarithms: list[float], interval: tuple[float, float] | None, samples: int, smallest_p: float, error: float
) -> Ratio:
    if not logarithms:
        raise ValueError("no samples to compare")
    value = math.exp(median(logarithms))
    bounds = None if interval is None else Interval(value, math.exp(interval[0]), math.exp(interval[1]))
    return Ratio(value, bounds, samples, smallest_p, error)


def _interval(logarithms: list[float], left_out: int) -> tuple[float, float] | None:
    """Bounds of the truth: sorted logarithms of ratios without so many at either end; None where that leaves none."""
    return (logarithms[left_out - 1], logarithms[-left_out]) if left_out else None


def _left_out(counts: Sequence[float]) -> int:
    """How many values to leave out at either end for ALPHA. The test's statistic is how many are above the truth;
    `counts` says in how many of all equally likely cases that is 0, 1, 2 ..."""
    all_cases, tail = sum(counts), 0.0
    for left_out, count in enumerate(counts):
        tail += count / all_cases
        if tail > ALPHA / 2:
            return left_out
    return 0


@cache
def _left_out_of_pairs(pairs: int) -> int:
    return _left_out(_signed_rank_counts(pairs))


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


def _signed_rank_counts(pairs: int) -> list[float]:
    """Signs of the pairs by Wilcoxon's statistic, the sum of the ranks with a plus: as shares, which no number of pairs
    makes too large to add."""
    shares = [1.0]
    for rank in range(1, pairs + 1):
        apart = [0.0] * rank
        shares = [(without + with_it) / 2 for without, with_it in zip(shares + apart, apart + shares, strict=True)]
    return shares
