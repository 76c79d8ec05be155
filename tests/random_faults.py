"""Faults at random places of repro/ and models/: another operator or constant, an argument dropped, a condition
negated."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.modules import FILES, ROOT, taken_by

_PAIRS = [
    *[(ast.Add(), ast.Sub()), (ast.Mult(), ast.Div()), (ast.Mult(), ast.FloorDiv()), (ast.And(), ast.Or())],
    *[(ast.Lt(), ast.LtE()), (ast.Gt(), ast.GtE()), (ast.Eq(), ast.NotEq()), (ast.Is(), ast.IsNot())],
    (ast.In(), ast.NotIn()),
]
_OPPOSITE: dict[type, Any] = {type(one): other for one, other in [*((b, a) for a, b in _PAIRS), *_PAIRS]}
_UNSEEN = ("annotation", "returns", "decorator_list")  # fields in which nobody would find a fault


def sample(number: int, seed: int) -> dict[str, tuple[str, str, str, str]]:
    """Draw so many faults, at most one a line. Return, by a name that says where and what each is, its file, the file's
    text without and with it, and the tests that should find it."""
    drawn = random.Random(seed)
    places = [(path, *fault) for path in FILES.values() for fault in _faults(ast.parse(path.read_text()))]
    found: dict[str, tuple[str, str, str, str]] = {}
    lines: set[tuple[Path, int]] = set()
    for path, node, faulty in drawn.sample(places, len(places)):
        if len(found) == number:
            break
        if (path, node.lineno) not in lines:
            lines.add((path, node.lineno))
            file, text = str(path.relative_to(ROOT)), path.read_text()
            change = f"{ast.unparse(node)} -> {ast.unparse(faulty)}"
            found[f"{file}:{node.lineno}, {change}"] = file, text, _replaced(text, node, faulty), _tests(path)
    return found


def _faults(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the expressions of a module that a fault can be in, each with it."""
    if isinstance(tree, ast.If | ast.IfExp | ast.While):
        yield tree.test, ast.UnaryOp(ast.Not(), tree.test)
    for name, value in ast.iter_fields(tree):
        if name in _UNSEEN or isinstance(tree, ast.JoinedStr):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr) and (faulty := _faulty(child)) is not None:
                yield child, faulty
            if isinstance(child, ast.AST):
                yield from _faults(child)


def _faulty(node: ast.expr) -> ast.expr | None:
    """Return an expression with a fault; None where there is none for it."""
    faulty = copy.copy(node)
    match faulty:
        case ast.BinOp() | ast.BoolOp() if type(faulty.op) in _OPPOSITE:
            faulty.op = _OPPOSITE[type(faulty.op)]
        case ast.Compare(ops=[op]) if type(op) in _OPPOSITE:
            faulty.ops = [_OPPOSITE[type(op)]]
        case ast.Constant(value=bool() as value):
            faulty.value = not value
        case ast.Constant(value=int() | float() as value):
            faulty.value = value + 1
        case ast.Call(keywords=[_, *_]):
            faulty.keywords = faulty.keywords[:-1]
        case ast.Call(args=[_, *_, ast.expr()]):
            faulty.args = faulty.args[:-1]
        case _:
            return None
    return faulty


def _replaced(text: str, node: ast.expr, faulty: ast.expr) -> str:
    """Return a module's text with one expression in place of another."""
    lines = text.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return f"{before.decode()}({ast.unparse(faulty)}){after.decode()}"


def _tests(path: Path) -> str:
    """Return the test files that take a module or have its name, and that of all outputs."""
    module = next(name for name, each in FILES.items() if each == path)
    tests = ROOT / "tests"
    files = [each for each in tests.rglob("test_*.py") if tests / "benchmark" not in each.parents]
    found = {each for each in files if module in taken_by(each) or each.name.startswith(f"test_{path.stem}")}
    found.add(tests / "test_goldens.py")
    if module.startswith("repro.models."):
        found |= {tests / "models" / "test_flops.py", tests / "models" / "test_recipes.py"}
    return " ".join(sorted(str(each.relative_to(ROOT)) for each in found))
