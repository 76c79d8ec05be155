"""The decision rule: when a difference in speed is called one.

1. Real. The interval of the ratio (see ratio.py) excludes 1, and the ratio is off 1 by more than the threshold: the
   larger of 3 % and three times the noise floor.
2. Noise floor. How far from 1 the same stack against itself was, or how far chance could have put it (one standard
   error), whichever is larger. Interleaved runs measure it in the same minutes, with a second copy of the first stack.
3. Confirmed. A second round of other samples says the same, in the same direction, by itself. One round that calls a
   change and one that does not are inconclusive.
4. Enough samples. Where no p as small as 0.05 can be attained nothing is called: interleaved pairs need 6 a round,
   separate runs 4.
5. Unchanged. The interval over all rounds lies within 3 % of 1, so a change of that size is excluded. What is neither
   is inconclusive: a noisy machine never makes a stack unchanged.

Ratios are judged on logarithms, so that 3 % faster is as far as 3 % slower: an improvement is held to the same rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..formats import counted
from .ratio import ALPHA, Ratio

Call = Literal["regressed", "improved", "unchanged", "inconclusive"]
SMALLEST_CHANGE = 0.03
_FLOORS = 3
PAIRS_A_ROUND, SEPARATE_A_ROUND = 6, 4  # the fewest that attain ALPHA, see tests


@dataclass(frozen=True)
class Decision:
    """What is called, and why. `threshold` is relative: by how much a ratio had to be off 1."""

    call: Call
    reason: str
    threshold: float


def noise_floor(same: Ratio) -> float:
    """Relative, from a comparison of a stack with itself."""
    return max(abs(math.log(same.value)), same.standard_error)


def threshold(floor: float | None) -> float:
    """By how much, relative, a ratio has to be off 1; `floor` None where no stack ran against itself."""
    return SMALLEST_CHANGE if floor is None else max(SMALLEST_CHANGE, _FLOORS * floor)


def suspected(round: Ratio, threshold: float) -> Literal[-1, 0, 1]:
    """What one round says: 1 slower, -1 faster, 0 neither. Never a call: another round has to confirm it."""
    if round.interval is None or abs(math.log(round.value)) <= math.log1p(threshold):
        return 0
    if round.interval.low > 1:
        return 1
    return -1 if round.interval.high < 1 else 0


def decide(rounds: Sequence[Ratio], together: Ratio, floor: float | None) -> Decision:
    """`rounds` are one or two ratios of disjoint samples, `together` that of all of them."""
    limit = threshold(floor)
    said = [suspected(round, limit) for round in rounds]
    told = f"{change(together.value)} ({_bounds(together)})"
    if any(round.interval is None for round in rounds):
        samples = min(round.samples for round in rounds)
        p = max(round.smallest_p for round in rounds)
        few = f"with {counted(samples, 'sample')} a side no p below {p:.2g} is attained, {ALPHA} is needed"
        return Decision("inconclusive", f"{told}; {few}", limit)
    if len(rounds) > 1 and said[0] and all(word == said[0] for word in said):
        call: Call = "regressed" if said[0] > 0 else "improved"
        return Decision(call, f"{told}, in each of {len(rounds)} rounds; the threshold is {limit:.1%}", limit)
    if any(said):
        return Decision("inconclusive", f"{told}{_unconfirmed(said, limit)}", limit)
    if settled(together):
        return Decision("unchanged", f"{told}: a change of {SMALLEST_CHANGE:.0%} is excluded", limit)
    return Decision(
        "inconclusive",
        f"{told}: neither a change above the threshold of {limit:.1%} nor within {SMALLEST_CHANGE:.0%}; take more "
        "samples, or a quieter machine",
        limit,
    )


def _unconfirmed(said: Sequence[int], limit: float) -> str:
    """Why what rounds say is no call, where one of them at least suspects a change."""
    above = f"above the threshold of {limit:.1%}"
    if len(said) == 1:
        return f", {above}, but a second round has to confirm it"
    if all(said):
        return f": slower in one round and faster in the other, both {above}"
    return f": {above} in only one of two rounds"


def settled(ratio: Ratio) -> bool:
    """Whether a change is excluded: where a first round does, unchanged is all that a second one can make of it."""
    limit = math.log1p(SMALLEST_CHANGE)
    return (
        ratio.interval is not None and -limit < math.log(ratio.interval.low) and math.log(ratio.interval.high) < limit
    )


def change(ratio: float) -> str:
    """A ratio of times as a person says it: by how much of the time before it is slower or faster."""
    word = "slower" if ratio > 1 else "faster"
    return "the same" if f"{ratio:.3f}" == "1.000" else f"{abs(ratio - 1):.1%} {word}"


def _bounds(ratio: Ratio) -> str:
    if ratio.interval is None:
        return "no interval"
    return f"{1 - ALPHA:.0%} interval {ratio.interval.low - 1:+.1%} to {ratio.interval.high - 1:+.1%}"
