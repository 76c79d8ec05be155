"""A sentence of one of the papers that says a number (expected/claims.csv), and how its verdict is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from math import inf
from typing import Any, Literal, TypeVar, cast, get_args

from ..datafile import columns, expected_folder, number, optional, positive, problem, read_once, rows
from ..record import Clock, Record
from ..text import Interval
from .facts import Working, shown

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


@dataclass(frozen=True)
class Missing:
    """Why records do not settle a claim: what they lack, and what they give so far.

    With `largest_so_far`, more records can only raise the number: it refutes the claim once it is above the published
    one.
    """

    reason: str
    so_far: Working | None = None
    largest_so_far: bool = False


Function = TypeVar("Function", bound=Callable[..., Any])

RECOMPUTED: dict[str, Callable[[], Working]] = {}
MEASURED: dict[str, Callable[[Sequence[Record], Clock], Working | Missing]] = {}


def recomputes(id: str, **arguments: Any) -> Callable[[Callable[..., Working]], Callable[..., Working]]:
    """Marks the function of a claim that follows from expected/: `function(**arguments)`."""
    return _registers(RECOMPUTED, id, arguments)


def measures(
    id: str, **arguments: Any
) -> Callable[[Callable[..., Working | Missing]], Callable[..., Working | Missing]]:
    """Marks the function of a claim that needs a run: `function(records, clock, **arguments)`."""
    return _registers(MEASURED, id, arguments)


def _registers(functions: dict[str, Any], id: str, arguments: dict[str, Any]) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        if id in RECOMPUTED or id in MEASURED:
            raise ValueError(f"two functions for the claim {id}")
        functions[id] = partial(function, **arguments)
        return function

    return register
