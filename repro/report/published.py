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
from ..predict.audit import WITHOUT_QUEUE, Audited, audit, queue_rows, queue_summary, without_queue
from ..predict.audit import summary as audit_summary
from ..record import DEFAULT
from ..run import corrected
from ..run.corrected import Corrected, corrected_table
from ..run.verdict import judge_tables
from .again import rerun
from .blocks import Block, Facts, Fold, Heading, Report, Sentence, Table
from .causes import Cause, causes
from .figures import of_published
from .grids import audit_grid, corrected_grid

_PAPERS = {
    "paper": "The paper",
    "review": "The review of it",
    "comment": "The comment on renting or buying",
    "lab": "The lab report on predicting runtimes",
    "thesis": "The thesis on rented GPUs",
}


def published() -> Report:
    """Return the report on the published numbers."""
    verdicts, rows = judge_tables((), TOLERANCE, DEFAULT), without_queue(audit())
    checked = check_all()
    days: dict[TableNumber, list[Corrected]] = {table: corrected_table(table) for table in TABLES}
    elsewhere = [{"table": table} | row for table, each in days.items() for row in corrected.measured_elsewhere(each)]
    claims = Counter(one.verdict for one in checked)
    audited = Counter(row.verdict for row in rows)
    counts = [
        ("holds", "claims hold", claims["holds"] + claims["holds_by_rounding"]),
        ("differs", "claims differ", claims["differs"]),
        ("impossible", "days cannot be true", audited["impossible"]),
        ("implausible", "days are implausible", audited["implausible"]),
    ]
    notes = [
        *another(),
        origins(checked),
        f"No run is part of this report: {command()} measures, and {command()} report DIR compares a run.",
    ]
    differ = [_claim(one) for one in checked if one.verdict == "differs"]
    blocks: list[Block] = [
        Heading("What differs from the papers", "differs", "Claims that differ"),
        Table("Claims that differ", differ, stacked=True, brief=("id", "published", "recomputed", "by true days")),
        Heading("Printed days that cannot be true", "audit", "Impossible days"),
        Sentence(audit_summary(rows)),
        *map(Sentence, queue_summary(rows)),
        Heading("What may be behind it"),
        *map(_cause, causes(rows, ())),
        *(audit_grid(table, rows) for table in TABLES),
        Table(WITHOUT_QUEUE, queue_rows(rows), folded=True),
        Heading("Days that one would really wait", "corrected", "True days"),
        Sentence("Predicted, not the paper's numbers."),
        *(Sentence(f"Table {table}: {line}") for table, each in days.items() for line in corrected.summary(each)),
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
    answer = [f"{line}." for line in _findings(checked, rows, days["1"])]
    return Report("Report on the published numbers", answer, counts, notes, blocks, verdicts)


def _cause(cause: Cause) -> Fold:
    facts = [("for", cause.evidence_for), ("against", cause.evidence_against), (cause.state.lower(), cause.settled_by)]
    return Fold(f"{cause.cause[0].upper()}{cause.cause[1:]}", [Facts(facts)])


def _findings(checked: Sequence[Checked], rows: Sequence[Audited], days: Sequence[Corrected]) -> list[str]:
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
    found = _findings(check_all(), audit(), corrected_table("1", fastest=False))
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
