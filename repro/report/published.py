"""The report on the published numbers: claims, impossible days, and the days that one would wait."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from .. import command, datafile
from ..claims import Checked, check_all, origins
from ..claims.working import shown
from ..paper.tables import TABLES, TOLERANCE
from ..paper.tables import Table as TableNumber
from ..predict.audit import (
    WITHOUT_QUEUE,
    Audited,
    audit,
    queue_rows,
    queue_summary,
    without_queue,
)
from ..predict.audit import summary as audit_summary
from ..record import DEFAULT
from ..run import corrected
from ..run.corrected import Corrected, corrected_table
from ..run.verdict import (
    judge_tables,
)
from .again import rerun
from .blocks import Block, Bullets, Counts, Facts, Fold, Heading, Report, Sentence, Table
from .causes import causes
from .figures import of_published
from .grids import audit_grid, corrected_grid


def published() -> Report:
    verdicts, rows = judge_tables((), TOLERANCE, DEFAULT), without_queue(audit())
    checked = check_all(None, DEFAULT)
    days: dict[TableNumber, list[Corrected]] = {table: corrected_table(table) for table in TABLES}
    differ = [_claim(one) for one in checked if one.verdict == "differs"]
    waited = [f"Table {table}: {line}" for table, each in days.items() for line in corrected.summary(each)]
    elsewhere = [{"table": table} | row for table, each in days.items() for row in corrected.measured_elsewhere(each)]
    why = [
        Fold(
            f"{cause.cause[0].upper()}{cause.cause[1:]}",
            [
                Facts(
                    [
                        ("for", cause.evidence_for),
                        ("against", cause.evidence_against),
                        (cause.state.lower(), cause.settled_by),
                    ]
                )
            ],
        )
        for cause in causes(rows, ())
    ]
    counted_claims = Counter(one.verdict for one in checked)
    impossible, implausible = (sum(row.verdict == word for row in rows) for word in ("impossible", "implausible"))
    counts = [
        ("holds", "claims hold", counted_claims["holds"] + counted_claims["holds_by_rounding"]),
        ("differs", "claims differ", counted_claims["differs"]),
        ("impossible", "days cannot be true", impossible),
        ("implausible", "days are implausible", implausible),
    ]
    blocks: list[Block] = [
        *(Sentence(f"{line}.", leads=True) for line in findings(checked, rows, days["1"])),
        Counts(counts),
        Bullets(
            [
                *another(),
                origins(checked),
                f"No run is part of this report: {command()} measures, and {command()} report DIR compares a run.",
            ],
            notes=True,
        ),
        Heading("What differs from the papers", "differs", "Claims that differ"),
        Table("Claims that differ", differ, stacked=True, brief=("id", "published", "recomputed", "by true days")),
        Heading("Printed days that cannot be true", "audit", "Impossible days"),
        Sentence(audit_summary(rows)),
        *map(Sentence, queue_summary(rows)),
        Heading("What may be behind it"),
        *why,
        *(audit_grid(table, rows) for table in TABLES),
        Table(WITHOUT_QUEUE, queue_rows(rows), folded=True),
        Heading("Days that one would really wait", "corrected", "True days"),
        Sentence("Predicted, not the paper's numbers."),
        *map(Sentence, waited),
        *(corrected_grid(table, each) for table, each in days.items()),
        *([Table(corrected.MEASURED_ELSEWHERE, elsewhere, folded=True)] if elsewhere else []),
        Heading("Figures", "figures"),
        *of_published(),
        Heading("Every claim", "claims"),
        *(
            Table(heading, rows_, folded=True, stacked=True)
            for paper, heading in _PAPERS.items()
            if (rows_ := [_claim(one) for one in checked if one.claim.paper == paper])
        ),
        Heading("Run it again", "again"),
        Facts(rerun((), verdicts, DEFAULT), commands=True),
    ]
    return Report("Report on the published numbers", blocks, verdicts)


_PAPERS = {
    "paper": "The paper",
    "review": "The review of it",
    "comment": "The comment on renting or buying",
    "lab": "The lab report on predicting runtimes",
    "thesis": "The thesis on rented GPUs",
}


def findings(checked: Sequence[Checked], rows: Sequence[Audited], days: Sequence[Corrected]) -> list[str]:
    """Return what this checkout finds without a GPU."""
    words = Counter(claim.verdict for claim in checked)
    impossible = sum(row.verdict == "impossible" for row in rows)
    return [
        f"{words['holds'] + words['holds_by_rounding']} of the papers' {len(checked)} claims hold and "
        f"{words['differs']} differ",
        f"{impossible} of {len(rows)} printed numbers of days cannot be true",
        corrected.headline("1", DEFAULT, days).rstrip("."),
    ]


def without_gpu() -> str:
    """Return a sentence on what this checkout finds without a GPU."""
    found = findings(check_all(None, DEFAULT), audit(), corrected_table("1"))
    commands = ("claims", "audit", "table 1 --by true")
    return f"Without a GPU: {'; '.join(f'{text} ({how})' for text, how in zip(found, commands, strict=True))}."


def _claim(one: Checked) -> dict[str, Any]:
    claim = one.claim
    return {
        "claim": claim.statement,
        "verdict": one.verdict,
        "published": claim.text,
        "recomputed": claim.with_unit(shown(one.working.value.value)) if one.working else None,
        "by true days": claim.with_unit(one.by_true_days.shown) if one.by_true_days else None,
        "why": one.reason,
        "where": claim.source,
        "id": claim.id,
    }


def another() -> list[str]:
    """Return a sentence where the paper's numbers are not those that come with repro."""
    text = datafile.of_another()
    return [f"{text[0].upper()}{text[1:]}."] if text else []
