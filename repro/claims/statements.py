"""The sentences of the paper's abstract and conclusion (expected/statements.csv), and the claims that each rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..datafile import absent, csv_rows, expected_folder, read_once
from .claim import Claim, listed


@dataclass(frozen=True)
class Statement:
    """A sentence, quoted in part, and the claims in it that have a number."""

    id: str
    where: Literal["abstract", "conclusion"]
    sentence: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class _Line:
    """What the program reads of a row of the file; the other columns are for docs/artifact.md."""

    id: str
    where: Literal["abstract", "conclusion"]
    sentence: str
    claims: str | None


@read_once
def statements() -> tuple[Statement, ...]:
    """Return every sentence. Raise UserError where the file is broken or names an unknown claim."""
    known = {claim.id: claim for claim in listed()}
    found = []
    for row, line in csv_rows(expected_folder() / "statements.csv", _Line):
        ids = line.claims.split("; ") if line.claims else []
        if unknown := [id for id in ids if id not in known]:
            row.problem("claims", f"ids of claims.csv, and {unknown[0]!r} is none")
        found.append(Statement(line.id, line.where, line.sentence, tuple(known[id] for id in ids)))
    if not found:
        absent("statements.csv", "row", "a sentence")
    return tuple(found)
