"""The beginning of a report: what its records decide of the abstract and the conclusion, as its certificate has it."""

from __future__ import annotations

from .. import command
from ..formats import shell_words
from ..run.reading import Joined
from ..run.results import CERTIFICATE
from ..verify.certificate import NOBODY, Certificate
from .blocks import Block, Facts, Fold, Heading, Sentence


def certified(certificate: Certificate, runs: Joined) -> list[Block]:
    """Return what the certificate decides, each claim once, and how to recompute it."""
    whose = "These records" if certificate.origin == "measured" else "The raw results, which the authors measured,"
    named = [run.folder for run in runs.runs]
    words = shell_words(named if len(named) == 1 and named[0].is_dir() else [CERTIFICATE, *named])
    says = (
        f"{whose} decide {certificate.summary} of the paper. {CERTIFICATE} has each verdict with the hashes of its "
        f"records, and {command()} verify {words} recomputes it. {NOBODY}"
    )
    pairs = {
        row.statement: f"printed {row.printed}; by the printed numbers it {_words(row.by_printed)}, by the "
        f"{certificate.origin} ones it {_words(row.verdict)}"
        for row in certificate.claims
    }
    title = "Claims of the abstract and the conclusion"
    facts = Fold(title, [Facts([*pairs.items()])], f"{len(certificate.decided)} of {len(pairs)} decided")
    return [Heading("What these records decide", "certificate", "Certificate"), Sentence(says), facts]


def _words(verdict: str) -> str:
    return {
        "not_measured": "is not decided",
        "needs_measurement": "is not decided",
        "not_checkable": "cannot be checked",
        "holds_by_rounding": "holds by rounding",
    }.get(verdict, verdict)
