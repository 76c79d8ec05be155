"""Checks of the papers' claims: each gets one verdict from the number that its formula or function recomputes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import command
from ..console import UserError, suggest_names
from ..datafile import expected_folder
from ..formats import listing
from ..predict.traces import PAPER_STACK, Traced
from ..record import BY_DAYS, DEFAULT, Clock, Record, other
from ..survey.answers import Answers
from . import measured, special  # noqa: F401  # importing them registers their functions
from .claim import MEASURED, RECOMPUTED, SURVEYED, Claim, ClaimVerdict, Missing, Settled, judge, listed
from .survey import without_answers
from .true_days import ByTrueDays, TrueDays
from .working import Working, shown

CLAIMS: dict[ClaimVerdict, tuple[str, str]] = {
    "holds": ("✓", "hold"),
    "holds_by_rounding": ("≈", "hold by rounding"),
    "differs": ("✗", "differ"),
    "needs_measurement": ("…", "need a measurement"),
    "not_checkable": ("—", "cannot be checked"),
}
_NEAREST = 8  # most suggestions for an unknown id
_STEPS = 6  # of a longer calculation only the last step is shown


@dataclass(frozen=True)
class Checked:
    """A claim and its verdict. `working` holds the recomputed number, None where nothing was recomputed. A claim that
    rests on printed days also has its number by true ones, which its verdict leaves out."""

    claim: Claim
    verdict: ClaimVerdict
    reason: str
    working: Working | None
    by_true_days: ByTrueDays | None = None

    @property
    def how(self) -> str:
        """Return the arithmetic in one line; `working` has all steps."""
        steps = self.working.steps if self.working else ()
        return "; ".join(steps if len(steps) <= _STEPS else steps[-1:])

    @property
    def off(self) -> float | None:
        """Return the share by which the number is off the published one, infinite where that is 0; None without
        both."""
        if self.working is None or self.claim.precision is None:
            return None
        published, value = float(self.claim.published), self.working.value.value
        return value / published - 1 if published else math.inf if value else 0.0

    def row(self) -> dict[str, Any]:
        """Return a row for CSV and JSON. Missing numbers are None; a published value that is not a number is text."""
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
            "off": self.off if self.off is not None and math.isfinite(self.off) else None,
            "by_true_days": self.by_true_days.value if self.by_true_days else None,
            "true_days": self.by_true_days.origin if self.by_true_days else None,
            "unit": self.claim.unit,
            "verdict": self.verdict,
            "reason": self.reason,
            "formula": self.claim.formula.text if self.claim.formula else None,
            "how": self.how,
        }


def check_all(
    records: Sequence[Record] | None = None,
    clock: Clock = DEFAULT,
    answers: Answers | None = None,
    stack: Traced = PAPER_STACK,
) -> list[Checked]:
    """Return the verdict on every claim, in the order of the papers. Claims that need a run are checked on `records` by
    `clock`; their reason adds the other clock's number where it differs. `records` is None without a run. Claims about
    the survey are checked on `answers`, None without any. True days are predicted for `stack` where no record has them.

    Raises UserError where a file of expected/ is broken.
    """
    true = TrueDays.of(records or (), stack)
    return [_check(claim, records or (), clock, answers, true) for claim in listed()]


def check(
    id: str,
    records: Sequence[Record] | None = None,
    clock: Clock = DEFAULT,
    answers: Answers | None = None,
    stack: Traced = PAPER_STACK,
) -> Checked:
    """Return the verdict on one claim. Raises UserError for an unknown id, with suggestions."""
    claims = {claim.id: claim for claim in listed()}
    if id not in claims:
        meant = suggest_names(id, claims)[:_NEAREST]
        hint = f"did you mean {', '.join(meant)}? " if meant else ""
        raise UserError(f"unknown claim {id!r}: {hint}{command()} claims lists all {len(claims)}")
    return _check(claims[id], records or (), clock, answers, TrueDays.of(records or (), stack))


def counts_text(checked: Sequence[Checked]) -> str:
    """Return a sentence on how many claims hold, differ, and so on."""
    counts = Counter(one.verdict for one in checked)
    message = ", ".join(f"{counts[verdict]} {words}" for verdict, (_, words) in CLAIMS.items())
    return f"Of {len(checked)} claims {message}."


def origins(checked: Sequence[Checked]) -> str:
    """Return a sentence on the true days behind the numbers by them."""
    found = dict.fromkeys(one.by_true_days.origin for one in checked if one.by_true_days)
    return f"By true days: with days that one would really wait, {listing([*found])}, in place of the printed ones."


def _check(claim: Claim, records: Sequence[Record], clock: Clock, answers: Answers | None, true: TrueDays) -> Checked:
    if claim.not_checkable is not None:
        return Checked(claim, "not_checkable", claim.not_checkable, None)
    if claim.formula or claim.id in RECOMPUTED:
        working = claim.recomputed()
        return Checked(claim, *judge(claim, working), working, true.of_claim(claim))
    if claim.id in SURVEYED:
        return _measured(claim, SURVEYED[claim.id](answers) if answers else without_answers(claim.id))
    if claim.id not in MEASURED:
        raise UserError(f"{expected_folder() / 'claims.csv'}: no function here checks the claim {claim.id}; remove it")
    by_clock = MEASURED[claim.id]
    checked = _measured(claim, by_clock(records, clock))
    beside = _measured(claim, by_clock(records, other(clock)))
    if checked.working is None or beside.working is None or checked.working.value == beside.working.value:
        return checked
    number, verdict = claim.with_unit(shown(beside.working.value.value)), beside.verdict.replace("_", " ")
    text = f"{BY_DAYS[other(clock)]} {number}{f' ({verdict})' if beside.verdict != checked.verdict else ''}"
    return replace(checked, reason=f"{checked.reason}; {text}")


def _measured(claim: Claim, found: Working | Missing | Settled) -> Checked:
    """Return the verdict on what the records of a run, or answers to the survey, give."""
    if isinstance(found, Settled):
        return Checked(claim, found.verdict, found.reason, found.working)
    if not isinstance(found, Missing):
        return Checked(claim, *judge(claim, found), found)
    if found.largest_so_far and found.so_far and found.so_far.value.value > float(claim.published):
        verdict, reason = judge(claim, found.so_far)
        if verdict == "differs":
            return Checked(claim, verdict, reason, found.so_far)
    return Checked(claim, "needs_measurement", found.reason, found.so_far)
