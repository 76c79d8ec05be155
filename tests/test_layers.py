"""Data flows one way, from recipes to reports: no module takes anything from what is built on it, and those that need
torch stand apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter

from tests.command_line import ROOT

FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for folder in ("repro", "models")
    for path in (ROOT / folder).rglob("*.py")
}
# Each package takes from those further down alone.
LAYERS = {
    "repro.commands": 3,
    "repro.report": 2,
    "repro.claims": 1,
    "repro.compare": 1,
    "repro.economics": 1,
    "repro.tracing": 1,
    "repro.measure": 0,
    "repro.predict": 0,
}
ON_TORCH = ("repro.measure", "repro.tracing", "models.adversarial", "models.objective")


def _imports(node: ast.AST, late: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """Those of a module: all, or without those that come `late`, where a function needs them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif late or not isinstance(child, ast.FunctionDef | ast.If):  # what an `if` imports is for mypy
            yield from _imports(child, late)


@cache
def taken(module: str, late: bool = True) -> set[str]:
    """The modules of ours, and packages of others, that a module imports."""
    found = set[str]()
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    for each in _imports(ast.parse(FILES[module].read_text()), late):
        if isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
            continue
        start = package.split(".")[: len(package.split(".")) - each.level + 1] if each.level else []
        place = ".".join([*start, *([each.module] if each.module else [])])
        found |= {name if (name := f"{place}.{alias.name}") in FILES else place for alias in each.names}
    return found


def package(module: str) -> str:
    return next((name for name in LAYERS if module == name or module.startswith(f"{name}.")), "")


def test_no_module_takes_from_what_is_built_on_it() -> None:
    graph = {module: taken(module) & FILES.keys() for module in FILES}
    assert len(list(TopologicalSorter(graph).static_order())) == len(FILES), "a CycleError names the circle"


def test_no_package_takes_from_one_above_it() -> None:
    upward = [
        f"{module} takes from {other}"
        for module in FILES
        for other in taken(module)
        if package(module) != package(other) and package(module) and package(other)
        if LAYERS[package(module)] <= LAYERS[package(other)]
    ]
    assert upward == []


def test_outside_of_packages_the_command_line_alone_takes_from_one() -> None:
    takers = {
        (module, package(other))
        for module in FILES
        if not package(module)
        for other in taken(module)
        if LAYERS.get(package(other), 0) > 0
    }
    assert takers == {("repro.cli", "repro.commands")}


def test_what_neither_measures_nor_traces_imports_no_torch() -> None:
    apart = {module for module in FILES if not module.startswith(ON_TORCH)}
    assert {module: found for module in apart if (found := _on_torch(module, set()))} == {}


def _on_torch(module: str, seen: set[str]) -> str:
    """The module by which this one comes to import torch as it is imported itself; nothing where it does not."""
    seen.add(module)
    others = taken(module, late=False)
    if "torch" in {name.partition(".")[0] for name in others}:
        return module
    return next(filter(None, (_on_torch(other, seen) for other in sorted(others & FILES.keys() - seen))), "")
