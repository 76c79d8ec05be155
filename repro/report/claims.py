"""The papers' claims as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..claims import Checked
from ..claims.judge import ClaimVerdict
from ..claims.working import shown

CLAIMS: dict[ClaimVerdict, tuple[str, str]] = {
    "holds": ("✓", "hold"),
    "holds_by_rounding": ("≈", "hold by rounding"),
    "differs": ("✗", "differ"),
    "needs_measurement": ("…", "need a measurement"),
    "not_checkable": ("—", "cannot be checked"),
}
_PAPERS = {
    "paper": "The paper",
    "review": "The review of it",
    "comment": "The comment on renting or buying",
    "lab": "The lab report on predicting runtimes",
    "thesis": "The thesis on rented GPUs",
}


def counts_told(checked: Sequence[Checked]) -> str:
    """How many hold, differ, and so on, in a sentence."""
    counts = Counter(one.verdict for one in checked)
    told = ", ".join(f"{counts[verdict]} {words}" for verdict, (_, words) in CLAIMS.items())
    return f"Of {len(checked)} claims {told}."


def tables(checked: Sequence[Checked]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Titled tables: those that differ, then all, paper by paper."""
    found = [("What differs", [_claim(one) for one in checked if one.verdict == "differs"])]
    for paper, title in _PAPERS.items():
        found.append((title, [_claim(one) for one in checked if one.claim.paper == paper]))
    return [(title, rows) for title, rows in found if rows]


def _claim(one: Checked) -> dict[str, Any]:
    claim = one.claim
    return {
        "claim": claim.statement,
        "verdict": one.verdict,
        "published": claim.told,
        "recomputed": claim.with_unit(shown(one.working.value.value)) if one.working else None,
        "why": one.reason,
        "where": claim.source,
        "id": claim.id,
    }
