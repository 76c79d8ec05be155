"""Each claim held against what its function recomputes: one verdict each."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..errors import UserError
from ..trial import Record
from . import comment, lab, paper, paper_costs, paper_models, review, search, thesis
from .claim import Claim, listed
from .facts import Facts
from .registry import MEASURED, RECOMPUTED, Missing
from .working import Working, shown

Verdict = Literal["holds", "holds_by_rounding", "differs", "not_checkable", "needs_measurement"]
FUNCTIONS = (paper, paper_costs, paper_models, search, review, comment, lab, thesis)  # whose claims are registered
_EXACT = 1e-9  # relative: what floating point leaves of a number that stands on the edge of rounding
_STEPS = 5  # more than these are told by the last alone


@dataclass(frozen=True)
class Checked:
    """A claim and its verdict. `working` is what was recomputed, None where nothing was."""

    claim: Claim
    verdict: Verdict
    reason: str
    working: Working | None

    @property
    def how(self) -> str:
        """The arithmetic in one line; all its steps are in `working`."""
        steps = self.working.steps if self.working else ()
        return "; ".join(steps if len(steps) <= _STEPS else steps[-1:])

    def row(self) -> dict[str, Any]:
        """As machines read it. Numbers are None where there are none; a published value that is none is text."""
        value = self.working.value if self.working else None
        return {
            "id": self.claim.id,
            "paper": self.claim.paper,
            "where": self.claim.where,
            "statement": self.claim.statement,
            "relation": self.claim.relation,
            "published": self.claim.published if self.claim.precision is None else float(self.claim.published),
            "precision": self.claim.precision,
            "recomputed": value.value if value else None,
            "low": value.low if value else None,
            "high": value.high if value else None,
            "unit": self.claim.unit,
            "verdict": self.verdict,
            "reason": self.reason,
            "how": self.how,
        }


def check_all(records: Sequence[Record] | None = None) -> list[Checked]:
    """Every claim, in the order of the papers. Those that need a run are checked on `records`; None is no run.

    Raises UserError where a file of expected/ is broken.
    """
    facts = Facts()
    return [_check(claim, facts, records) for claim in listed()]


def check(id: str, records: Sequence[Record] | None = None) -> Checked:
    """One claim. Raises UserError for an unknown id, which names the nearest."""
    claims = {claim.id: claim for claim in listed()}
    if id not in claims:
        near = difflib.get_close_matches(id, claims, n=3, cutoff=0.4)
        told = f"; the nearest are {', '.join(near)}" if near else ""
        raise UserError(f"unknown claim {id!r}{told}; repro claims lists all {len(claims)}")
    return _check(claims[id], Facts(), records)


def judge(claim: Claim, working: Working) -> tuple[Verdict, str]:
    """The verdict on a recomputed number, and why.

    It holds if the number rounds to the published one, and by rounding if it does not but may, given how the
    numbers that it came from were rounded. A bound holds where the number keeps to it.
    """
    value, printed = working.value, claim.printed
    slack = abs(float(claim.published)) * _EXACT
    if claim.relation == "equals":
        holds = printed.low - slack <= value.value <= printed.high + slack
        # Touching bounds are no overlap: what lies on both was rounded to one of them.
        may = value.low < printed.high - slack and printed.low + slack < value.high
        word = "is not"
    else:
        bound = float(claim.published)
        sign = 1 if claim.relation == "at_most" else -1
        holds = sign * value.value <= sign * bound + slack
        may = min(sign * value.low, sign * value.high) <= sign * bound + slack
        word = "is more than" if sign == 1 else "is less than"
    if holds:
        return "holds", _with(working, f"{shown(value.value)} {_agreement(claim)} {_printed(claim)}")
    off = f"{shown(value.value)} {word} {_printed(claim)}"
    if may:
        bounds = f"{shown(value.low)} to {shown(value.high)}"
        return "holds_by_rounding", _with(working, f"{off}, but what it came from is rounded and leaves {bounds}")
    return "differs", _with(working, off + _by(value.value, float(claim.published)))


def _by(value: float, published: float) -> str:
    """How far off, where a share says it."""
    return f": {abs(value / published - 1):.1%} {'more' if value > published else 'less'}" if published else ""


def _check(claim: Claim, facts: Facts, records: Sequence[Record] | None) -> Checked:
    if claim.not_checkable is not None:
        return Checked(claim, "not_checkable", claim.not_checkable, None)
    if claim.id in RECOMPUTED:
        working = RECOMPUTED[claim.id](facts)
        return Checked(claim, *judge(claim, working), working)
    if claim.id not in MEASURED:
        raise UserError(f"{claim.id}: expected/claims.csv has this claim, and no function here checks it; remove it")
    found = MEASURED[claim.id](records or ())
    if isinstance(found, Missing):
        return Checked(claim, "needs_measurement", found.reason, found.so_far)
    return Checked(claim, *judge(claim, found), found)


def _printed(claim: Claim) -> str:
    return f"{shown(float(claim.published))} {claim.unit}"


def _agreement(claim: Claim) -> str:
    return {"equals": "rounds to", "at_most": "is at most", "at_least": "is at least"}[claim.relation]


def _with(working: Working, reason: str) -> str:
    return f"{reason}; {working.note}" if working.note else reason
