"""Formulas of claims.csv: arithmetic on named numbers, which keeps their sources and records its steps.

`kWh of a run = [comment/hours_charged] * [comment/power]; [kWh of a run] * [comment/electricity]` has two steps. A name
in brackets is that of an earlier step, of a claim above, of a row of quantities.csv, or one of `numbers.NAMES`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from operator import add, mul, sub, truediv
from typing import Any

from ..formats import Interval
from . import numbers, special  # noqa: F401  # special names further numbers
from .working import Working, added, applied, shown

Number = Callable[[], Working]
Note = Callable[[], str]
_Part = Callable[[Mapping[str, Working]], Working]
_SIGNS: dict[type[ast.operator], Callable[[Any, Any], Working]] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: truediv,
}
_OF_SEVERAL: dict[str, Callable[..., float]] = {"min": min, "max": max, "sum": added}
LANGUAGE = "numbers, names in brackets, + - * / ** and min, max, round, sum, abs"


class RefusedError(ValueError):
    """An error of a formula: what was expected, and which part is something else."""


@dataclass(frozen=True)
class Formula:
    """A formula that was parsed: its steps, each with its name, or none. It reads its numbers when it is evaluated."""

    text: str
    steps: tuple[tuple[str, _Part], ...] = field(repr=False, compare=False)

    def value(self) -> Working:
        """Return the number of the last step. A number as it was read is a step, too. Raises ArithmeticError."""
        known: dict[str, Working] = {}
        for name, part in self.steps:
            found = part(known)
            known[name] = found = found.called(name) if name else found
        if not all(map(isfinite, (found.value.value, found.value.low, found.value.high))):
            raise OverflowError("the number is too large")
        return found if found.steps else found.called(self.text.strip("[]"))


def parse(text: str, claims: Mapping[str, Number]) -> Formula:
    """Parse a formula; `claims` are those that it may name. Raises RefusedError for all that is none of `LANGUAGE`."""
    names: set[str] = set()
    steps = []
    for step in text.split(";"):
        name, _, expression = step.strip().rpartition(" = ")
        quoted = re.sub(r"\[([^\[\]]*)\]", lambda found: repr(found[1]), expression)
        try:
            part = _part(ast.parse(quoted, mode="eval").body, frozenset(names), claims)
        except (SyntaxError, RecursionError):
            raise RefusedError(f"{LANGUAGE}, not {expression}") from None
        names.add(name)
        steps.append((name, part))
    return Formula(text, tuple(steps))


def parse_note(text: str, claims: Mapping[str, Number]) -> Note:
    """Parse a remark with formulas in braces, such as {[a-claim] / 2}, or {[a-claim]:.1%} in percent, like `parse`.
    Return the function that words it, which raises ArithmeticError."""
    parts: list[Note] = []
    for place, part in enumerate(re.split(r"\{([^{}]*)\}", text)):
        formula, percent, _ = part.partition(":.1%")
        parts.append(partial(_number, parse(formula, claims), bool(percent)) if place % 2 else partial(str, part))
    return lambda: "".join(part() for part in parts)


def _number(formula: Formula, percent: bool) -> str:
    number = formula.value().value.value
    return f"{number:.1%}" if percent else shown(number)


def _part(node: ast.expr, steps: frozenset[str], claims: Mapping[str, Number]) -> _Part:
    match node:
        case ast.Constant(value=str() as name) if name in steps:
            return lambda known: known[name]
        case ast.Constant(value=str() as name):
            number = claims.get(name) or numbers.find(name)
            if number is None:
                raise RefusedError(f"the name of a number, a step or a claim above, not [{name}]")
            return lambda _: number()
        case ast.Constant(value=int() | float() as constant) if not isinstance(constant, bool):
            return lambda _: Working(Interval.exact(constant))
        case ast.BinOp(left, ast.Pow(), ast.Constant(value=int() as power)) if 0 < power < 10:
            base = _part(left, steps, claims)
            return lambda known: _applied(f"{{}} ** {power}", lambda value: float(value) ** power, [base(known)])
        case ast.BinOp(left, operator, right) if type(operator) in _SIGNS:
            one, by, other = _part(left, steps, claims), _SIGNS[type(operator)], _part(right, steps, claims)
            return lambda known: by(one(known), other(known))
        case ast.Call(ast.Name("round"), [value], []):
            part = _part(value, steps, claims)
            return lambda known: _applied("round({})", lambda value: float(round(value)), [part(known)])
        case ast.Call(ast.Name("abs"), [value], []):
            # It falls and then rises: its bounds are those of the larger of the number and its negative.
            sides: list[ast.expr] = [value, ast.BinOp(ast.Constant(0), ast.Sub(), value), ast.Constant(0)]
            return _part(ast.Call(ast.Name("max"), sides, []), steps, claims)
        case ast.Call(ast.Name(name), [_, *_] as values, []) if name in _OF_SEVERAL:
            parts = [_part(each, steps, claims) for each in values]
            return lambda known: _applied(f"{name}({{}})", _OF_SEVERAL[name], [part(known) for part in parts])
    raise RefusedError(f"{LANGUAGE}, not {ast.unparse(node)}")


def _applied(step: str, by: Callable[..., float], of: list[Working]) -> Working:
    return applied(by, of, f"{step.format(', '.join(shown(each.value.value) for each in of))} =")
