"""The number of a script's steps, from the loops around its optimizer's step, with the line that says so."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

from . import place

Loop = ast.For | ast.While

_NAMES = (
    *("max_iters", "max_steps", "num_steps", "total_steps", "train_steps", "num_training_steps", "max_train_steps"),
    *("num_iterations", "training_steps", "n_steps", "num_iters", "total_iters", "n_iters", "iterations", "steps"),
)
_PASSING = ("tqdm", "enumerate", "progress_bar", "track", "iter", "zip", "reversed", "list")
_CONFIGURATIONS = ("arg", "conf", "cfg", "opt", "hp", "param")  # in names of what holds arguments
# What is evaluated of the script's expressions, and the functions that it may call there.
_EVALUATED = (
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Call),
    *(ast.operator, ast.unaryop, ast.expr_context),
)
_FUNCTIONS = ("len", "int", "max", "min")


@dataclass(frozen=True)
class Steps:
    """A number of steps, and where it comes from in words."""

    number: float
    source: str


def found(learning: Counter[tuple[str, int]], batches: int | None) -> Steps | None:
    """Return the number of steps of the loops that run around this call; None where nothing tells it. `learning` counts
    the backward passes of a step by file and line; the running data loader has `batches`."""
    backwards = max(learning.values(), default=1)
    total, sources, limits = 1.0, list[str](), list[Steps]()
    is_known, divided = True, backwards == 1
    for frame in place.frames():
        for loop in _loops(frame):
            limits += _limits(loop, frame)
            number, text = _iterations(loop, frame)
            if number is None and isinstance(loop, ast.For) and batches is not None:
                number, text, batches = float(batches), f"the data loader's {batches:,} batches", None
            if number is None:
                is_known = False
                continue
            if not divided:
                divided = True
                if not any(each is not loop for _, line in learning for each in _around(line, loop)):
                    number /= backwards
                    text += f" by {backwards} backward passes a step"
            total *= number
            sources.append(f"{text} at {_name(frame)}:{loop.lineno}")
    counted = [Steps(max(1.0, float(int(total))), " x ".join(reversed(sources)))] if sources and is_known else []
    return min([*counted, *limits], key=lambda steps: steps.number, default=None) or _by_name()


def _name(frame: FrameType) -> str:
    return str(Path(frame.f_code.co_filename).relative_to(place.ROOT))


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text())


def _around(line: int, tree: ast.AST) -> list[Loop]:
    """Return the loops of a tree that contain a line."""
    loops = (each for each in ast.walk(tree) if isinstance(each, ast.For | ast.While))
    return [each for each in loops if each.lineno <= line <= (each.end_lineno or 0)]


def _loops(frame: FrameType) -> list[Loop]:
    """Return the loops of its own function in which a frame runs, the innermost first."""
    code = frame.f_code
    around = _around(frame.f_lineno, _tree(code.co_filename))
    return sorted((each for each in around if each.lineno >= code.co_firstlineno), key=lambda each: -each.lineno)


def _iterations(loop: Loop, frame: FrameType) -> tuple[float | None, str]:
    if not isinstance(loop, ast.For):
        return None, ""
    given: ast.expr = loop.iter
    while isinstance(given, ast.Call) and _named(given.func) in _PASSING and given.args:
        given = given.args[0]
    text = ast.unparse(given)
    if isinstance(given, ast.Call) and _named(given.func) in ("range", "trange"):
        bounds = [_value(each, frame) for each in given.args]
        if all(isinstance(each, int) for each in bounds):
            whole = range(*bounds)
            first = len(given.args) > 1 and not isinstance(given.args[0], ast.Constant)
            return float(len(range(*bounds[1:]) if first else whole)), text
        return None, ""
    iterated = _value(given, frame)
    try:
        return float(len(iterated)), f"len({text})"
    except TypeError:
        return None, ""


def _named(node: ast.AST) -> str:
    """Return the name that a name or an attribute ends with; "" for what is neither."""
    return getattr(node, "id", getattr(node, "attr", ""))


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of an expression of the script: of names, attributes, numbers and arithmetic on them alone."""
    for each in ast.walk(node):
        if not isinstance(each, _EVALUATED) or (isinstance(each, ast.Call) and _named(each.func) not in _FUNCTIONS):
            return None
    try:
        return eval(compile(ast.Expression(node), "", "eval"), frame.f_globals, frame.f_locals)
    except Exception:
        return None


def _number(value: Any) -> float | None:
    """Return a value that may be a number of steps; None for any other."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 1 else None


def _limits(loop: Loop, frame: FrameType) -> Iterator[Steps]:
    """Yield the limits that a loop compares a counter with, where their names say so."""
    for compare in (each for each in ast.walk(loop) if isinstance(each, ast.Compare)):
        for side in (compare.left, *compare.comparators):
            name = _named(side)
            if name.lower() in _NAMES and (number := _number(_value(side, frame))):
                yield Steps(number, f"{name} at {_name(frame)}:{compare.lineno}")


def _by_name() -> Steps | None:
    """Return a variable or argument of the running functions whose name says the number of steps."""
    for frame in place.frames():
        for holder, where in _holders(frame):
            for name in _NAMES[:-1]:
                if number := _number(holder.get(name)):
                    return Steps(number, f"{where}{name} at {place.named(frame)}")
    return None


def _holders(frame: FrameType) -> Iterator[tuple[dict[str, Any], str]]:
    for scope in (frame.f_locals, frame.f_globals):
        yield scope, ""
        for name, value in list(scope.items()):
            if hasattr(value, "__dict__") and any(word in name for word in _CONFIGURATIONS):
                yield vars(value), f"{name}."
