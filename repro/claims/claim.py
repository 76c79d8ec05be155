"""A claim, a sentence of one of the papers with a number (expected/claims.csv), and the rule for its verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from typing import Annotated, Literal, TypeVar, cast, get_args

from msgspec import Meta

from ..console import UserError
from ..datafile import CsvRow, Positive, absent, csv_rows, expected_folder, read_once
from ..formats import Interval
from . import formulas
from .formulas import Formula, Note, Number, RefusedError
from .survey import SETTLED
from .working import DRAWS, Working, shown

Paper = Literal["paper", "review", "comment", "lab", "thesis"]
Relation = Literal["equals", "at_most", "at_least"]


@dataclass(frozen=True)
class Claim:
    """A paper's statement about a number, in our words, and the number as printed.

    `published` is a number where `precision`, the unit of its last digit, is not None. `formula` recomputes the number;
    it is None where a function does, or nothing: then `not_checkable` is the reason why it cannot be recomputed here.
    `source` is the paper and the place in it.
    """

    id: str
    source: str
    statement: str
    relation: Relation
    published: str
    precision: float | None
    unit: str
    formula: Formula | None
    note: Note | None
    not_checkable: str | None

    @property
    def paper(self) -> Paper:
        """Return which of the five papers makes the claim."""
        return cast(Paper, self.source.split(", ")[0])

    @property
    def where(self) -> str:
        """Return the section, figure or table."""
        return self.source.split(", ", 1)[1]

    @property
    def text(self) -> str:
        """Return the published number with its unit, for display; of several, each with its own unit."""
        if self.published == "-":
            return self.published
        numbers, units = self.published.split("; "), self.unit.split("; ")
        if len(units) > 1:
            return "; ".join(_with_unit(number, unit) for number, unit in zip(numbers, cycle(units), strict=False))
        grouped = re.sub("^[0-9]{5,}", lambda digits: f"{int(digits[0]):,}", self.published)
        return self.with_unit(re.sub("e6$", " million", re.sub("e9$", " billion", grouped)))

    def with_unit(self, number: str) -> str:
        """Return a number with the claim's unit, which is singular for 1."""
        return _with_unit(number, self.unit)

    def recomputed(self) -> Working:
        """Return what the formula, which there must be, computes from expected/, with the note. Raises UserError where
        it cannot be computed."""
        assert self.formula is not None
        try:
            found = self.formula.value()
            return found.with_note(self.note()) if self.note else found
        except ArithmeticError as error:
            raise UserError(f"{expected_folder() / 'claims.csv'}: the formula of {self.id}: {error}") from None

    @property
    def printed(self) -> Interval:
        """Return the interval of all numbers that round to the published one. The claim must have a precision."""
        assert self.precision is not None
        return Interval.rounded(float(self.published), self.precision)


def _with_unit(number: str, unit: str) -> str:
    return f"{number} {re.sub('(?<=[A-Za-z]{2})s$', '', unit) if number == '1' else unit}"


@read_once
def listed() -> tuple[Claim, ...]:
    """Return every claim. Raises UserError where the file is broken, or where a claim to be checked has no number."""
    file = "claims.csv"
    seen: dict[Hashable, int] = {}
    found: dict[str, Claim] = {}
    for row, line in csv_rows(expected_folder() / file, _Line):
        row.once("id", line.id, seen)
        if line.precision is not None and not re.fullmatch(r"[0-9]+(\.[0-9]+)?(e[0-9]+)?", row["published"]):
            row.problem("published", "a number, as its precision is one")
        if line.precision is None and line.not_checkable is None and line.id not in SETTLED:
            row.problem("precision", "a positive number, as the claim is to be checked")
        above = {id: claim.formula.value for id, claim in found.items() if claim.formula}
        formula = _formula(row, "formula", formulas.parse, above)
        if formula and line.not_checkable:
            row.problem("not_checkable", "-, as the claim has a formula")
        claim = Claim(
            **asdict(line) | {"published": row["published"], "unit": row["unit"], "formula": formula, "note": None}
        )
        note = _formula(row, "note", formulas.parse_note, above | ({claim.id: formula.value} if formula else {}))
        found[claim.id] = replace(claim, note=note)
    if not found:
        absent(file, "row", "a claim")
    return tuple(found.values())


T = TypeVar("T")


def _formula(
    row: CsvRow, column: str, parse: Callable[[str, dict[str, Number]], T], claims: dict[str, Number]
) -> T | None:
    """Parse a formula, or a note with formulas, which may name these claims; return None for a dash."""
    try:
        return None if row[column] == "-" else parse(row[column], claims)
    except RefusedError as error:
        row.problem(column, str(error))


_Id = Annotated[str, Meta(pattern=r"^[a-z0-9.]+(-[a-z0-9.]+)*\Z", description="lower-case words joined by hyphens")]
_Source = Annotated[
    str,
    Meta(
        pattern=rf"^({'|'.join(get_args(Paper))}), \S",
        description=f"one of {', '.join(get_args(Paper))}, a comma, and the place in it",
    ),
]


@dataclass(frozen=True)
class _Line:
    """A row of the file."""

    id: _Id
    source: _Source
    statement: str
    relation: Relation
    published: str | None
    precision: Positive | None
    unit: str | None
    formula: str | None
    note: str | None
    not_checkable: str | None


ClaimVerdict = Literal["holds", "holds_by_rounding", "differs", "not_checkable", "needs_measurement"]
_EXACT = 1e-9  # relative: floating-point error of a number at the edge of its rounding interval
_NEAR = 0.05  # relative: what rounds to a coarse number may still be far from it, as 127,500 from 100,000
_IS = {"equals": "rounds to", "at_most": "is at most", "at_least": "is at least"}
_IS_NOT = {"equals": "is not", "at_most": "is more than", "at_least": "is less than"}


def judge(claim: Claim, working: Working) -> tuple[ClaimVerdict, str]:
    """Return the verdict and its reason.

    A number holds if it rounds to the published one and is near it, or is within the published bound. It holds by
    rounding if it does not, but the published one is among the central 95 % of what the number would be if its inputs
    were rounded independently.
    """
    verdict, reason = _judged(claim, working)
    return verdict, f"{reason}; {working.note}" if working.note else reason


def _judged(claim: Claim, working: Working) -> tuple[ClaimVerdict, str]:
    value, published = working.value.value, float(claim.published)
    slack = abs(published) * _EXACT
    number, printed = shown(value), claim.with_unit(shown(published))
    exact = Interval.exact(published)
    accepted = claim.printed if claim.relation == "equals" else exact
    within = _allows(claim.relation, accepted, Interval.exact(value), slack)
    if within and (claim.relation != "equals" or abs(value - published) <= abs(published) * _NEAR + slack):
        as_published = claim.relation == "equals" and number == shown(published)
        return "holds", f"{printed}, as published" if as_published else f"{number} {_IS[claim.relation]} {printed}"
    off = f"{number} {(_IS if within else _IS_NOT)[claim.relation]} {printed}"
    # What all inputs rounded the worst way at once do not allow needs no draws.
    if _allows(claim.relation, exact, working.value, slack):
        likely = working.central()
        if _allows(claim.relation, exact, likely, slack):
            bounds = f"{shown(likely.low)} to {shown(likely.high)}"
            rounded = f"but what it is computed from is rounded, which leaves {bounds} in 95 % of {DRAWS:,} draws"
            return "holds_by_rounding", f"{off}, {rounded}"
    if published:
        off += f"{', but' if within else ':'} {_percent(abs(value / published - 1))} off"
    return "differs", off


def _allows(relation: Relation, printed: Interval, value: Interval, slack: float) -> bool:
    """Return whether a number may be the printed one, or within the printed bound."""
    above = relation == "at_least" or value.low <= printed.high + slack
    return above and (relation == "at_most" or value.high >= printed.low - slack)


def _percent(share: float) -> str:
    """Return a share in percent to one decimal, or one digit where that is less."""
    return f"{share:.1%}".replace("%", " %") if share >= 0.0005 else f"{100 * share:.1g} %"
