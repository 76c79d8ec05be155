"""The rule: when a difference in speed counts as a change.

Two stacks that were interleaved give pairs of samples, and each pair a ratio of step times. The estimate is Hodges and
Lehmann's, on logarithms, so that 3 % faster is as far as 3 % slower. Its interval is that of a signed-rank test.

- changed: the 99.5 % interval excludes 1, and the estimate is beyond 3 %;
- unchanged: the 95 % interval lies within 3 % of 1;
- inconclusive: neither, with how many more pairs would decide it.

Who looks while pairs still come in has more chances to be wrong, so a check stops early by stricter levels only.

Runs that were not interleaved also differ by what the machine did meanwhile, which no number of runs cures. Between
them a change is called only where the interval of a rank-sum test lies beyond an allowance for that drift.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from statistics import fmean, median
from typing import Literal

from ..formats import Interval, counted, percent

Call = Literal["regressed", "improved", "unchanged", "inconclusive"]
SMALLEST_CHANGE = 0.03


@dataclass(frozen=True)
class Levels:
    """How often an interval may miss the true ratio, by what it is to show."""

    changed: float
    unchanged: float


def _fewest(alpha: float) -> int:
    """Return the fewest pairs that have an interval: as all of them may agree by chance with 2 in 2 ** pairs."""
    return math.ceil(math.log2(2 / alpha))


FINAL = Levels(changed=0.005, unchanged=0.05)
EARLY = Levels(changed=0.001, unchanged=0.01)
FIRST_LOOK = 12  # pairs: the fewest by which EARLY may stop a check
BLOCK = 2  # pairs between two looks: one in each order
FEWEST = _fewest(FINAL.changed)  # pairs that can call a change
ALPHA = FINAL.unchanged  # of the interval that is printed beside a ratio
_MOST = 1000  # more pairs than that are not counted


@dataclass(frozen=True)
class Decision:
    """A call and its reason, with the ratio of times after over before. `interval` is that of ALPHA, None where the
    samples are too few for one. `samples` are pairs or, where `interleaved` is false, starts of the side with fewer.
    `allowance` is the relative difference that is not called a change. `may_stop` is true where a check that looks
    while it goes on may end here."""

    call: Call
    reason: str
    ratio: float
    interval: Interval | None
    samples: int
    interleaved: bool
    allowance: float
    may_stop: bool = False


def decide(ratios: Sequence[float]) -> Decision:
    """Apply the rule to the ratios of pairs, after over before. Raises ValueError where there are none."""
    pairs = Pairs(ratios)
    call, early = _call(pairs, FINAL), _call(pairs, EARLY)
    alpha = FINAL.changed if call in ("regressed", "improved") else FINAL.unchanged
    reason = f"{change(pairs.value)} ({_bounds(pairs.interval(alpha), alpha)}) in {counted(len(pairs), 'pair')}"
    if call == "unchanged":
        reason += f": a change of {SMALLEST_CHANGE:.0%} is excluded"
    if call == "inconclusive":
        reason += f": neither a change beyond {SMALLEST_CHANGE:.0%} nor within it; {_more(pairs)} would decide it"
    # FINAL, which is less strict, gives the same call as EARLY.
    may_stop = len(pairs) >= FIRST_LOOK and early != "inconclusive"
    return Decision(call, reason, pairs.value, pairs.interval(ALPHA), len(pairs), True, SMALLEST_CHANGE, may_stop)


def _call(pairs: Pairs, levels: Levels) -> Call:
    strict, loose = pairs.interval(levels.changed), pairs.interval(levels.unchanged)
    if strict and _beyond(pairs.value) and (strict.low > 1 or strict.high < 1):
        return "regressed" if pairs.value > 1 else "improved"
    if loose and not _beyond(loose.low) and not _beyond(loose.high):
        return "unchanged"
    return "inconclusive"


def decide_apart(before: Sequence[float], after: Sequence[float], drift: float) -> Decision:
    """Judge the seconds of two runs that were not interleaved: a change is what lies beyond a relative `drift`. Raises
    ValueError where a side has none."""
    value, interval = of_separate(before, after)
    limit = 1 + drift
    allowed = f"an allowance of {percent(drift)} for drift from run to run (--drift)"
    reason = f"{change(value)} ({_bounds(interval, ALPHA)}), not interleaved"
    call: Call = "inconclusive"
    if interval is None:
        reason += f"; it would have to lie beyond {allowed}"
    elif interval.low > limit or interval.high < 1 / limit:
        call = "regressed" if value > 1 else "improved"
        reason += f": all of the interval lies beyond {allowed}"
    else:
        reason += f": the interval reaches into {allowed}"
    return Decision(call, reason, value, interval, min(len(before), len(after)), False, drift)


def change(ratio: float) -> str:
    """Return a ratio of times in words: slower or faster by a share of the time before."""
    word = "slower" if ratio > 1 else "faster"
    return "the same" if f"{ratio:.3f}" == "1.000" else f"{abs(ratio - 1):.1%} {word}"


def _beyond(ratio: float) -> bool:
    return abs(math.log(ratio)) > math.log1p(SMALLEST_CHANGE)


def _bounds(interval: Interval | None, alpha: float) -> str:
    if interval is None:
        return "too few for an interval"
    return f"{percent(1 - alpha)} interval {interval.low - 1:+.1%} to {interval.high - 1:+.1%}"


def _more(pairs: Pairs) -> str:
    """Estimate how many more pairs decide it: an interval narrows with the square root of their number."""
    off, limit = abs(math.log(pairs.value)), math.log1p(SMALLEST_CHANGE)
    alpha, room = (FINAL.changed, off) if off > limit else (FINAL.unchanged, limit - off)
    interval = pairs.interval(alpha)
    if interval is None:
        return f"at least {counted(_fewest(alpha) - len(pairs), 'more pair')}"
    reach = max(math.log(interval.high / pairs.value), math.log(pairs.value / interval.low))
    wanted = len(pairs) * ((reach / room) ** 2 - 1) if room else math.inf
    if wanted > _MOST:
        return f"more than {_MOST} more pairs"
    return f"about {counted(max(1, math.ceil(wanted)), 'more pair')}"


class Pairs:
    """The ratios of pairs, after over before, by a signed-rank test. Raises ValueError where there are none."""

    def __init__(self, ratios: Sequence[float]) -> None:
        if not ratios:
            raise ValueError("no samples to compare")
        self._differences = sorted(map(math.log, ratios))

    def __len__(self) -> int:
        return len(self._differences)

    @cached_property
    def value(self) -> float:
        """Hodges and Lehmann's estimate: the ratio at which the test finds as much above as below."""
        whole = sum(_scores(len(self)))
        middle = self._first(lambda above: 2 * above <= whole), self._first(lambda above: 2 * above < whole)
        return math.exp(fmean(middle))

    def interval(self, alpha: float) -> Interval | None:
        """Return the ratios that the test does not reject at `alpha`; None where so few pairs reject none."""
        shares = _signed_rank_shares(len(self))
        whole, left_out = len(shares) - 1, _left_out(shares, alpha)
        if not left_out:
            return None
        low = self._first(lambda above: whole - above >= left_out)
        high = self._first(lambda above: above < left_out)
        return Interval(self.value, math.exp(low), math.exp(high))

    @cached_property
    def _places(self) -> list[float]:
        """The means of two differences each: only there does the test's statistic change with the assumed shift."""
        known = self._differences
        return sorted({(x + y) / 2 for place, x in enumerate(known) for y in known[place:]})

    @cached_property
    def _gaps(self) -> list[float]:
        return [*map(fmean, pairwise(self._places)), math.inf]

    def _first(self, holds: Callable[[int], bool]) -> float:
        """Return the smallest shift above which this holds of the test's statistic."""
        return self._places[bisect_left(self._gaps, True, key=lambda shift: holds(self._evidence(shift)))]

    def _evidence(self, shift: float) -> int:
        """Return the test's statistic if `shift` were the truth: the sum of the scores of the pairs above it."""
        by_size = sorted(self._differences, key=lambda difference: abs(difference - shift))
        return sum(score for score, each in zip(_scores(len(by_size)), by_size, strict=True) if each > shift)


def of_separate(before: Sequence[float], after: Sequence[float]) -> tuple[float, Interval | None]:
    """Return the Hodges-Lehmann ratio of seconds of two separate runs, with the ALPHA interval of a rank-sum test, None
    where the samples are too few. Raises ValueError where a side has none."""
    shifts = sorted(math.log(b / a) for a in before for b in after)
    if not shifts:
        raise ValueError("no samples to compare")
    value, left_out = math.exp(median(shifts)), _left_out(_rank_sum_counts(len(before), len(after)), ALPHA)
    if not left_out:
        return value, None
    return value, Interval(value, math.exp(shifts[left_out - 1]), math.exp(shifts[-left_out]))


def _left_out(counts: Sequence[float], alpha: float) -> int:
    """Return how many values of a test's statistic, from either end, are too rare for `alpha`. `counts` has the number
    of equally likely cases where it is 0, 1, 2 ..."""
    limit, tail = alpha / 2 * sum(counts), 0.0
    for left_out, count in enumerate(counts):
        tail += count
        if tail > limit:
            return left_out
    return 0


@cache
def _scores(pairs: int) -> list[int]:
    """Return the score of each pair, by the rank of its size: the rank, up to half of the pairs."""
    # Wilcoxon's ranks have no cap, and one outlier may weigh as much as two pairs. Where one process in twenty takes 10
    # to 80 % longer, 18 pairs of single processes call 81 % of 10 % slowdowns with them and 95 % with these; of 5 %
    # slowdowns in the pool of real samples they call 97.8 and 96.1 %. A cap of a third calls 92 % there.
    return [min(rank, -(-pairs // 2)) for rank in range(1, pairs + 1)]


@cache
def _signed_rank_shares(pairs: int) -> list[float]:
    """Return the share of all sign patterns in which that statistic is 0, 1, 2 ..."""
    shares = [1.0]
    for score in _scores(pairs):
        apart = [0.0] * score
        shares = [(without + with_it) / 2 for without, with_it in zip(shares + apart, apart + shares, strict=True)]
    return shares


@cache
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
