"""Checks of the papers' claims: each gets one verdict, from the number that its formula or a run gives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from .. import command
from ..console import UserError, suggest_names
from ..datafile import expected_folder
from ..formats import listing
from ..paper.tables import Cell
from ..predict.traces import PAPER_STACK, Traced
from ..record import BY_DAYS, DEFAULT, Clock, Record, other
from ..survey.counts import Answers
from .claim import Claim, ClaimVerdict, judge, listed
from .measured import MEASURED, Measurements
from .survey import SURVEYED, surveyed
from .true_days import ByTrueDays, by_true_days, true_days
from .working import Missing, Settled, Working, shown

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
    ids: Sequence[str] | None = None,
) -> list[Checked]:
    """Return the verdict on every claim, in the order of the papers, or on those with these `ids`. Claims that need a
    run are checked on `records` by `clock`; their reason adds the other clock's number where it differs. Claims about
    the survey are checked on `answers`. True days are predicted for `stack` where no record has them.

    Raises UserError where a file of expected/ is broken, or for an unknown id.
    """
    claims = {claim.id: claim for claim in listed()}
    if unknown := next((id for id in ids or () if id not in claims), None):
        meant = suggest_names(unknown, claims)[:_NEAREST]
        hint = f"did you mean {', '.join(meant)}? " if meant else ""
        raise UserError(f"unknown claim {unknown!r}: {hint}{command()} claims lists all {len(claims)}")
    measured = [Measurements(records or (), each) for each in (clock, other(clock))]
    days = true_days(records or (), stack)
    return [_check(claims[id], measured, answers, days) for id in ids or claims]


def counts_text(checked: Sequence[Checked]) -> str:
    """Return a sentence on how many claims hold, differ, and so on."""
    counts = Counter(one.verdict for one in checked)
    message = ", ".join(f"{counts[verdict]} {words}" for verdict, (_, words) in CLAIMS.items())
    return f"Of {len(checked)} claims {message}."


def origins(checked: Sequence[Checked]) -> str:
    """Return a sentence on the true days behind the numbers by them."""
    found = dict.fromkeys(one.by_true_days.origin for one in checked if one.by_true_days)
    return f"By true days: with days that one would really wait, {listing([*found])}, in place of the printed ones."


def _check(
    claim: Claim, measured: Sequence[Measurements], answers: Answers | None, days: Callable[[Cell], Working]
) -> Checked:
    """Return the verdict on a claim. `measured` has the clock that counts first, and the other."""
    if claim.not_checkable is not None:
        return Checked(claim, "not_checkable", claim.not_checkable, None)
    if claim.formula:
        working = claim.recomputed()
        return Checked(claim, *judge(claim, working), working, by_true_days(working, claim.formula.value, days))
    if claim.id in SURVEYED:
        return _measured(claim, partial(surveyed, claim.id, claim.published, claim.unit, answers))
    if claim.id not in MEASURED:
        raise UserError(f"{expected_folder() / 'claims.csv'}: no function here checks the claim {claim.id}; remove it")
    checked, beside = (_measured(claim, partial(MEASURED[claim.id], each)) for each in measured)
    if checked.working is None or beside.working is None or checked.working.value == beside.working.value:
        return checked
    number, verdict = claim.with_unit(shown(beside.working.value.value)), beside.verdict.replace("_", " ")
    text = f"{BY_DAYS[measured[1].clock]} {number}{f' ({verdict})' if beside.verdict != checked.verdict else ''}"
    return replace(checked, reason=f"{checked.reason}; {text}")


def _measured(claim: Claim, find: Callable[[], Working | Settled]) -> Checked:
    """Return the verdict on what the records of a run, or answers to the survey, give."""
    try:
        found = find()
    except Missing as missing:
        so_far = missing.so_far
        if missing.largest_so_far and so_far and so_far.value.value > float(claim.published):
            verdict, reason = judge(claim, so_far)
            if verdict == "differs":
                return Checked(claim, verdict, reason, so_far)
        return Checked(claim, "needs_measurement", missing.reason, so_far)
    if isinstance(found, Settled):
        return Checked(claim, "holds" if found.holds else "differs", found.reason, found.working)
    return Checked(claim, *judge(claim, found), found)
