"""How many times longer `after` takes than `before`, with an exact interval that assumes nothing of the noise.

A sample is a process, or a few that share a start: within it times share a memory layout and a minute, so only samples
are independent. Those that were taken as pairs, interleaved, are told as their ratio, in which what the machine did in
that minute cancels; the interval is that of a signed-rank test, which asks only that both of a pair be equally noisy.
Its ranks are Wilcoxon's, but none counts for more than a third of the pairs: where no pair is wild it tells nearly as
much as his, and a few wild ones upset it no more than the sign test. Those of two separate runs are held each against
each, and the interval is that of Mann-Whitney's test. The value is the median that belongs to the test
(Hodges-Lehmann). Both tests are exact at any number of samples, so that the smallest p they attain is known before
anything is measured; a bootstrap of a handful of samples is neither.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import NormalDist, fmean, median

from ..interval import Interval

# Of the value of many pairs of normal noise, times their number, over the noise's own: 7/81 by the square of
# erf(0.4307) / sqrt(pi). Wilcoxon's is pi / 3, the sign test's pi / 2.
_VARIANCE = 1.30
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


def of_pairs(ratios: Sequence[float]) -> Ratio:
    """Of samples that were taken as pairs, from the ratio of each: seconds after over seconds before. Raises ValueError
    where there are none."""
    differences = [math.log(ratio) for ratio in ratios]
    count = len(differences)
    if not count:
        raise ValueError("no samples to compare")
    places = sorted({(x + y) / 2 for place, x in enumerate(differences) for y in differences[place:]})
    gaps = [*map(fmean, pairwise(places)), math.inf]  # between places the evidence stays the same
    whole, left_out = sum(_scores(count)), _left_out_of_pairs(count)

    def first(holds: Callable[[int], bool]) -> float:
        return places[bisect_left(gaps, True, key=lambda shift: holds(_evidence(differences, shift)))]

    value = (first(lambda above: 2 * above <= whole) + first(lambda above: 2 * above < whole)) / 2
    bounds = None
    if left_out:
        bounds = first(lambda above: whole - above >= left_out), first(lambda above: above < left_out)
    error = math.sqrt(_VARIANCE / count) * _spread(differences)
    return _ratio(value, bounds, count, smallest_p_of_pairs(count), error)


def of_separate(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Seconds of samples of two runs, one after the other. Raises ValueError where a side has none."""
    shifts = sorted(math.log(b / a) for a in before for b in after)
    if not shifts:
        raise ValueError("no samples to compare")
    sizes = len(before), len(after)
    left_out = _left_out(_rank_sum_counts(*sizes))
    bounds = (shifts[left_out - 1], shifts[-left_out]) if left_out else None
    sides = [[math.log(seconds) for seconds in side] for side in (before, after)]
    error = math.sqrt(sum(math.pi / 3 * _spread(side) ** 2 / len(side) for side in sides))
    return _ratio(median(shifts), bounds, min(sizes), smallest_p_of_separate(*sizes), error)


def smallest_p_of_pairs(pairs: int) -> float:
    """The smallest two-sided p that the signed-rank test attains: all pairs agree."""
    return min(1.0, 2 / 2**pairs)


def smallest_p_of_separate(before: int, after: int) -> float:
    """The smallest two-sided p that Mann-Whitney's test attains: every sample of a side beats all of the other."""
    return min(1.0, 2 / math.comb(before + after, before))


def _ratio(value: float, bounds: tuple[float, float] | None, samples: int, smallest_p: float, error: float) -> Ratio:
    """From logarithms."""
    interval = None if bounds is None else Interval(value, *bounds).mapped(math.exp)
    return Ratio(math.exp(value), interval, samples, smallest_p, error)


def _left_out(counts: Sequence[float]) -> int:
    """How many values of a test's statistic, from either end, are too rare for ALPHA. `counts` says in how many of all
    equally likely cases it is 0, 1, 2 ..."""
    all_cases, tail = sum(counts), 0.0
    for left_out, count in enumerate(counts):
        tail += count / all_cases
        if tail > ALPHA / 2:
            return left_out
    return 0


@cache
def _left_out_of_pairs(pairs: int) -> int:
    return _left_out(_signed_rank_shares(pairs))


def _scores(pairs: int) -> list[int]:
    """What a pair counts for, by the rank of its size: the rank, up to a third of the pairs."""
    return [min(rank, -(-pairs // 3)) for rank in range(1, pairs + 1)]


def _evidence(differences: Sequence[float], shift: float) -> int:
    """The test's statistic, were `shift` the truth: what the pairs above it count for."""
    by_size = sorted(differences, key=lambda difference: abs(difference - shift))
    return sum(score for score, each in zip(_scores(len(by_size)), by_size, strict=True) if each > shift)


def _signed_rank_shares(pairs: int) -> list[float]:
    """In which share of all signs that statistic is 0, 1, 2 ..."""
    shares = [1.0]
    for score in _scores(pairs):
        apart = [0.0] * score
        shares = [(without + with_it) / 2 for without, with_it in zip(shares + apart, apart + shares, strict=True)]
    return shares


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
