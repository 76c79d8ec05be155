"""The decision rule: when a difference in speed counts as a change.

1. Real. The interval of the ratio excludes 1, and the ratio differs from 1 by more than the threshold: the
   larger of 3 % and three times the noise floor.
2. Noise floor. How far from 1 the ratio of a stack to itself was, or one standard error of that ratio, whichever is
   larger. Interleaved runs measure it at the same time, with a copy of the first stack.
3. Confirmed. A second round of other samples shows the same, in the same direction, by itself. If only one of two
   rounds shows a change, the result is inconclusive.
4. Enough samples. Where no p as small as 0.05 can be attained, the result is inconclusive: interleaved pairs need 6 a
   round, separate runs 4.
5. Unchanged. The interval over all rounds lies within 3 % of 1, so a change of that size is excluded. Everything else
   is inconclusive: a noisy machine never makes a stack unchanged.

Ratios are judged on logarithms, so 3 % faster is as far as 3 % slower, and the same rule applies to improvements.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import NormalDist, fmean, median
from typing import Literal

from ..formats import Interval, counted

Call = Literal["regressed", "improved", "unchanged", "inconclusive"]
SMALLEST_CHANGE = 0.03
_FLOORS = 3
PAIRS_A_ROUND, SEPARATE_A_ROUND = 6, 4  # the fewest that attain ALPHA, see tests


@dataclass(frozen=True)
class Decision:
    """A call and its reason. `threshold` is relative: a ratio had to differ from 1 by more than this."""

    call: Call
    reason: str
    threshold: float


def noise_floor(same: Ratio) -> float:
    """Return the relative noise floor, from a comparison of a stack with itself."""
    return max(abs(math.log(same.value)), same.standard_error)


def threshold(floor: float | None) -> float:
    """Return the relative difference from 1 that a ratio has to exceed; `floor` is None without a known noise floor."""
    return SMALLEST_CHANGE if floor is None else max(SMALLEST_CHANGE, _FLOORS * floor)


def suspected(round: Ratio, threshold: float) -> Literal[-1, 0, 1]:
    """Return what one round suggests: 1 slower, -1 faster, 0 neither. Only another round can make it a call."""
    if round.interval is None or abs(math.log(round.value)) <= math.log1p(threshold):
        return 0
    if round.interval.low > 1:
        return 1
    return -1 if round.interval.high < 1 else 0


def decide(rounds: Sequence[Ratio], together: Ratio, floor: float | None) -> Decision:
    """Return the decision. `rounds` are one or two ratios of disjoint samples, `together` is that of all of them."""
    limit = threshold(floor)
    said = [suspected(round, limit) for round in rounds]
    text = f"{change(together.value)} ({_bounds(together)})"
    if any(round.interval is None for round in rounds):
        samples = min(round.samples for round in rounds)
        p = max(round.smallest_p for round in rounds)
        few = f"with {counted(samples, 'sample')} a side no p below {p:.2g} is attained, {ALPHA} is needed"
        return Decision("inconclusive", f"{text}; {few}", limit)
    if len(rounds) > 1 and said[0] and all(word == said[0] for word in said):
        call: Call = "regressed" if said[0] > 0 else "improved"
        return Decision(call, f"{text}, in each of {len(rounds)} rounds; the threshold is {limit:.1%}", limit)
    if any(said):
        return Decision("inconclusive", f"{text}{_unconfirmed(said, limit)}", limit)
    if settled(together):
        return Decision("unchanged", f"{text}: a change of {SMALLEST_CHANGE:.0%} is excluded", limit)
    return Decision(
        "inconclusive",
        f"{text}: neither a change above the threshold of {limit:.1%} nor within {SMALLEST_CHANGE:.0%}; take more "
        "samples, or a quieter machine",
        limit,
    )


def _unconfirmed(said: Sequence[int], limit: float) -> str:
    """Explain why rounds give no call although at least one of them suspects a change."""
    above = f"above the threshold of {limit:.1%}"
    if len(said) == 1:
        return f", {above}, but a second round has to confirm it"
    if all(said):
        return f": slower in one round and faster in the other, both {above}"
    return f": {above} in only one of two rounds"


def settled(ratio: Ratio) -> bool:
    """Return True where a change of 3 % is excluded. Where a first round does so, a second cannot call a change."""
    limit = math.log1p(SMALLEST_CHANGE)
    return (
        ratio.interval is not None and -limit < math.log(ratio.interval.low) and math.log(ratio.interval.high) < limit
    )


def change(ratio: float) -> str:
    """Return a ratio of times in words: slower or faster by a share of the time before."""
    word = "slower" if ratio > 1 else "faster"
    return "the same" if f"{ratio:.3f}" == "1.000" else f"{abs(ratio - 1):.1%} {word}"


def _bounds(ratio: Ratio) -> str:
    if ratio.interval is None:
        return "no interval"
    return f"{1 - ALPHA:.0%} interval {ratio.interval.low - 1:+.1%} to {ratio.interval.high - 1:+.1%}"


# Variance of the value from many pairs of normal noise, times their number, over the noise's own variance: 7/81 over
# the square of erf(0.4307) / sqrt(pi). Wilcoxon's is pi / 3, the sign test's pi / 2.
_VARIANCE = 1.30
ALPHA = 0.05  # two-sided: the interval contains the true ratio in 95 of 100 comparisons


@dataclass(frozen=True)
class Ratio:
    """The ratio of times after over before: `value` is 1 where nothing changed. `interval` is None where `samples` a
    side are too few to attain a p as small as ALPHA. `standard_error` is relative, from the spread between samples."""

    value: float
    interval: Interval | None
    samples: int
    smallest_p: float
    standard_error: float


def of_pairs(ratios: Sequence[float]) -> Ratio:
    """Return the ratio from paired samples, given each pair's seconds after over seconds before. Raises ValueError
    where there are none."""
    differences = [math.log(ratio) for ratio in ratios]
    count = len(differences)
    if not count:
        raise ValueError("no samples to compare")
    places = sorted({(x + y) / 2 for place, x in enumerate(differences) for y in differences[place:]})
    gaps = [*map(fmean, pairwise(places)), math.inf]  # between two of `places` the statistic is constant
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
    """Return the ratio from seconds of samples of two separate runs. Raises ValueError where a side has none."""
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
    """Return the smallest two-sided p that the signed-rank test attains: all pairs agree."""
    return min(1.0, 2 / 2**pairs)


def smallest_p_of_separate(before: int, after: int) -> float:
    """Return the smallest two-sided p that Mann-Whitney's test attains: all samples of a side exceed the other's."""
    return min(1.0, 2 / math.comb(before + after, before))


def _ratio(value: float, bounds: tuple[float, float] | None, samples: int, smallest_p: float, error: float) -> Ratio:
    """Return the ratio from logarithms of its value and bounds."""
    interval = None if bounds is None else Interval(value, *bounds).mapped(math.exp)
    return Ratio(math.exp(value), interval, samples, smallest_p, error)


def _left_out(counts: Sequence[float]) -> int:
    """Return how many values of a test's statistic, from either end, are too rare for ALPHA. `counts` has the number of
    equally likely cases where it is 0, 1, 2 ..."""
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
    """Return the score of each pair, by the rank of its size: the rank, up to a third of the pairs."""
    return [min(rank, -(-pairs // 3)) for rank in range(1, pairs + 1)]


def _evidence(differences: Sequence[float], shift: float) -> int:
    """Return the test's statistic if `shift` were the truth: the sum of the scores of the pairs above it."""
    by_size = sorted(differences, key=lambda difference: abs(difference - shift))
    return sum(score for score, each in zip(_scores(len(by_size)), by_size, strict=True) if each > shift)


def _signed_rank_shares(pairs: int) -> list[float]:
    """Return the share of all sign patterns in which that statistic is 0, 1, 2 ..."""
    shares = [1.0]
    for score in _scores(pairs):
        apart = [0.0] * score
        shares = [(without + with_it) / 2 for without, with_it in zip(shares + apart, apart + shares, strict=True)]
    return shares


def _spread(logarithms: Sequence[float]) -> float:
    """Return normal noise's standard deviation, estimated by the median deviation, which outliers hardly change."""
    middle = median(logarithms)
    return median(abs(value - middle) for value in logarithms) / NormalDist().inv_cdf(0.75)


def _rank_sum_counts(first: int, second: int) -> list[int]:
    """Return the number of orders of two groups by Mann-Whitney's U: the coefficients of the Gaussian binomial."""
    counts = [1] + [0] * (first * second)
    for k in range(1, first + 1):
        grow, shrink = second + k, k
        for u in range(len(counts) - 1, grow - 1, -1):  # times 1 - q^grow
            counts[u] -= counts[u - grow]
        for u in range(shrink, len(counts)):  # over 1 - q^shrink
            counts[u] += counts[u - shrink]
    return counts
