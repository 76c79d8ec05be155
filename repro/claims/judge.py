"""A recomputed number held against the published one."""

from __future__ import annotations

from math import inf
from typing import Literal

from .claim import Claim
from .working import Working, shown

ClaimVerdict = Literal["holds", "holds_by_rounding", "differs", "not_checkable", "needs_measurement"]
_EXACT = 1e-9  # relative: what floating point leaves of a number on the edge of rounding
_HOLDS = {"equals": "rounds to", "at_most": "is at most", "at_least": "is at least"}
_DIFFERS = {"equals": "is not", "at_most": "is more than", "at_least": "is less than"}


def judge(claim: Claim, working: Working) -> tuple[ClaimVerdict, str]:
    """The verdict, and why.

    A number holds if it rounds to the published one, or keeps to the published bound. It holds by rounding if it does
    not but may, given how the numbers that it came from were rounded.
    """
    value, published = working.value, float(claim.published)
    low, high = _accepted(claim)
    slack = abs(published) * _EXACT
    number, printed = shown(value.value), claim.with_unit(shown(published))
    if low - slack <= value.value <= high + slack:
        if claim.relation == "equals" and number == shown(published):
            return "holds", _with_note(f"{printed}, as published", working)
        return "holds", _with_note(f"{number} {_HOLDS[claim.relation]} {printed}", working)
    off = f"{number} {_DIFFERS[claim.relation]} {printed}"
    # Bounds that only touch are no overlap: what lies on both rounds to one of them.
    if value.low < high - slack and low + slack < value.high:
        bounds = f"{shown(value.low)} to {shown(value.high)}"
        reason = f"{off}, but what it is computed from is rounded, which leaves {bounds}"
        return "holds_by_rounding", _with_note(reason, working)
    if published:
        off += f": {abs(value.value / published - 1):.1%} {'more' if value.value > published else 'less'}"
    return "differs", _with_note(off, working)


def _accepted(claim: Claim) -> tuple[float, float]:
    if claim.relation == "equals":
        return claim.printed.low, claim.printed.high
    bound = float(claim.published)
    return (-inf, bound) if claim.relation == "at_most" else (bound, inf)


def _with_note(reason: str, working: Working) -> str:
    return f"{reason}; {working.note}" if working.note else reason
