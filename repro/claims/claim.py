"""A sentence of one of the papers that says a number: expected/claims.csv."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import cycle
from typing import Literal, cast, get_args

from ..datafile import columns, expected_folder, number, optional, positive, problem, read_once, rows
from ..interval import Interval

Paper = Literal["paper", "review", "comment", "lab", "thesis"]
Relation = Literal["equals", "at_most", "at_least"]


@dataclass(frozen=True)
class Claim:
    """What a paper says of a number, in our words, and the number as it prints it.

    `published` is a number where `precision` is one: the unit of its last printed place. `not_checkable` says why
    nothing here can recompute it, and is None for the others. `source` is the paper and the place in it.
    """

    id: str
    source: str
    statement: str
    relation: Relation
    published: str
    precision: float | None
    unit: str
    not_checkable: str | None

    @property
    def paper(self) -> Paper:
        """Which of the five it is."""
        return cast(Paper, self.source.split(", ")[0])

    @property
    def where(self) -> str:
        """Section, figure or table."""
        return self.source.split(", ", 1)[1]

    @property
    def told(self) -> str:
        """The published number with its unit, as people write it; several of several units each with its own."""
        if self.published == "-":
            return self.published
        numbers, units = self.published.split("; "), self.unit.split("; ")
        if len(units) > 1:
            return "; ".join(_with_unit(number, unit) for number, unit in zip(numbers, cycle(units), strict=False))
        return self.with_unit(re.sub("e6$", " million", re.sub("e9$", " billion", self.published)))

    def with_unit(self, number: str) -> str:
        """A number of what is claimed, of which there may be one."""
        return _with_unit(number, self.unit)

    @property
    def printed(self) -> Interval:
        """All that rounds to the published number. The claim must have one."""
        assert self.precision is not None
        return Interval.rounded(float(self.published), self.precision)


def _with_unit(number: str, unit: str) -> str:
    return f"{number} {re.sub('(?<=[A-Za-z]{2})s$', '', unit) if number == '1' else unit}"


@read_once
def listed() -> tuple[Claim, ...]:
    """Every claim. Raises UserError where the file is broken, or a number that is to be checked is none."""
    file = expected_folder() / "claims.csv"
    seen: dict[Hashable, int] = {}
    found = []
    for row in rows(file, columns(Claim)):
        row.once("id", row.parse("id", _id, "lower-case words joined by hyphens"), seen)
        precision = row.parse("precision", optional(positive), "a positive number, or - where the published is none")
        if precision is not None:
            row.parse("published", number, "a number, as its precision is one")
        reason = None if row["not_checkable"] == "-" else row.text("not_checkable")
        if precision is None and reason is None:
            row.problem("precision", "a positive number, as the claim is to be checked")
        found.append(
            Claim(
                row["id"],
                row.parse("source", _source, f"one of {', '.join(get_args(Paper))}, a comma, and the place in it"),
                row.text("statement"),
                cast(Relation, row.choice("relation", get_args(Relation))),
                row.text("published"),
                precision,
                row.text("unit"),
                reason,
            )
        )
    if not found:
        problem(file, 2, 1, "id", "the end of the file", "a claim")
    return tuple(found)


def _id(text: str) -> str:
    words = text.split("-")
    if not all(word and word.replace(".", "").isalnum() and word.islower() | word.isdigit() for word in words):
        raise ValueError
    return text


def _source(text: str) -> str:
    paper, _, where = text.partition(", ")
    if paper not in get_args(Paper) or not where.strip():
        raise ValueError
    return text
