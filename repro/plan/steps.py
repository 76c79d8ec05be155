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

NAMES = (
    *("max_iters", "max_steps", "num_steps", "total_steps", "train_steps", "num_training_steps", "max_train_steps"),
    *("num_iterations", "training_steps", "n_steps", "num_iters", "total_iters", "n_iters", "iterations", "steps"),
)
_PASSING = ("tqdm", "enumerate", "trange", "progress_bar", "track", "iter", "zip", "reversed", "list")


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
        file = frame.f_code.co_filename
        for loop in _loops(file, frame.f_lineno):
            limits += _limits(loop, frame)
            number, text = _iterations(loop, frame)
            if number is None and isinstance(loop, ast.For) and batches is not None:
                number, text, batches = float(batches), f"the data loader's {batches:,} batches", None
            if number is None:
                is_known = False
                continue
            if not divided:
                divided = True
                if not any(_in_inner(loop, line) for _, line in learning):
                    number /= backwards
                    text += f" by {backwards} backward passes a step"
            total *= number
            sources.append(f"{text} at {_name(file)}:{loop.lineno}")
    counted = [Steps(max(1.0, float(int(total))), " x ".join(reversed(sources)))] if sources and is_known else []
    return min([*counted, *limits], key=lambda steps: steps.number, default=None) or _by_name()


def _name(file: str) -> str:
    return str(Path(file).relative_to(place.ROOT))


@cache
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text())


def _loops(file: str, line: int) -> list[ast.For | ast.While]:
    """Return the loops that contain a line, of its own function, the innermost first."""
    inside = [
        each
        for each in ast.walk(_tree(file))
        if each.__dict__.get("lineno", line + 1) <= line <= (getattr(each, "end_lineno", 0) or 0)
    ]
    functions = [each.lineno for each in inside if isinstance(each, ast.FunctionDef)]
    start = max(functions, default=0)
    loops = [each for each in inside if isinstance(each, ast.For | ast.While) and each.lineno > start]
    return sorted(loops, key=lambda each: -each.lineno)


def _in_inner(loop: ast.For | ast.While, line: int) -> bool:
    """Return whether a line is in a loop inside this one."""
    return any(
        isinstance(each, ast.For | ast.While) and each is not loop and each.lineno <= line <= (each.end_lineno or 0)
        for each in ast.walk(loop)
    )


def _iterations(loop: ast.For | ast.While, frame: FrameType) -> tuple[float | None, str]:
    if not isinstance(loop, ast.For):
        return None, ""
    given: ast.expr = loop.iter
    while isinstance(given, ast.Call) and _called(given) in _PASSING and given.args:
        if _called(given) == "trange":
            break
        given = given.args[0]
    text = ast.unparse(given)
    if isinstance(given, ast.Call) and _called(given) in ("range", "trange"):
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


def _called(call: ast.Call) -> str:
    return (
        call.func.id
        if isinstance(call.func, ast.Name)
        else call.func.attr
        if isinstance(call.func, ast.Attribute)
        else ""
    )


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of an expression of the script: of names, attributes, numbers and arithmetic on them alone."""
    allowed = (
        ast.Name,
        ast.Attribute,
        ast.Constant,
        ast.BinOp,
        ast.UnaryOp,
        ast.operator,
        ast.unaryop,
        ast.Load,
        ast.Subscript,
        ast.Call,
    )
    if not all(isinstance(each, allowed) for each in ast.walk(node)):
        return None
    if any(isinstance(each, ast.Call) and _called(each) not in ("len", "int", "max", "min") for each in ast.walk(node)):
        return None
    try:
        return eval(compile(ast.Expression(node), "", "eval"), frame.f_globals, frame.f_locals)
    except Exception:
        return None


def _limits(loop: ast.For | ast.While, frame: FrameType) -> Iterator[Steps]:
    """Yield the limits that a loop compares a counter with, where their names say so."""
    for compare in (each for each in ast.walk(loop) if isinstance(each, ast.Compare)):
        for side in (compare.left, *compare.comparators):
            name = side.id if isinstance(side, ast.Name) else side.attr if isinstance(side, ast.Attribute) else ""
            value = _value(side, frame) if name.lower() in NAMES else None
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
                yield Steps(float(value), f"{name} at {_name(frame.f_code.co_filename)}:{compare.lineno}")


def _by_name() -> Steps | None:
    """Return a variable or argument of the running functions whose name says the number of steps."""
    for frame in place.frames():
        for holder, where in _holders(frame):
            for name in NAMES[:-1]:
                value = holder.get(name)
                if isinstance(value, int | float) and not isinstance(value, bool) and value > 1:
                    return Steps(float(value), f"{where}{name} at {place.named(frame)}")
    return None


def _holders(frame: FrameType) -> Iterator[tuple[dict[str, Any], str]]:
    for scope in (frame.f_locals, frame.f_globals):
        yield scope, ""
        for name, value in list(scope.items()):
            if hasattr(value, "__dict__") and any(
                word in name for word in ("arg", "conf", "cfg", "opt", "hp", "param")
            ):
                yield vars(value), f"{name}."
