"""The modules of this project: which layer each is in, and what it imports.

python -m tests.modules  prints how many files and lines there are
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# From the ground up: each takes only from those above it in this list, and never from one on its own line.
LAYERS = (
    ("repro.console", "repro.installation"),
    ("repro.files",),
    ("repro.datafile", "repro.formats"),
    ("repro.options",),
    ("repro.printout",),
    ("repro.models", "repro.parts"),
    ("repro.paper",),
    ("repro.machine", "repro.record"),
    ("repro.steps",),
    ("repro.validity",),
    ("repro.trial_warnings",),
    ("repro.released",),
    ("repro.measure", "repro.predict"),
    ("repro.run",),
    ("repro.money", "repro.train"),
    ("repro.compare", "repro.export", "repro.lab", "repro.plan", "repro.survey"),
    ("repro.claims",),
    ("repro.verify",),
    ("repro.report",),
    ("repro.commands",),
    ("repro.cli",),
    ("repro.__main__", "repro.web"),
)
DEPTH = {name: depth for depth, names in enumerate(LAYERS) for name in names}
UPWARD = {("repro.commands.slurm", "repro.cli")}  # it has all commands' parser check the command that a job is to run


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "repro" else ("repro", *parts)).removesuffix(".__init__")


FILES = {_module(path): path for folder in ("repro", "models") for path in sorted((ROOT / folder).rglob("*.py"))}


def room(module: str) -> str:
    """The package of `repro`, or the module on its ground floor, that a module is in."""
    return ".".join(module.split(".")[:2])


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
    package = module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]
    return taken_by(FILES[module], package, late)


@cache
def taken_by(path: Path, package: str = "", late: bool = True) -> set[str]:
    """The same of a file; relative imports are from `package`."""
    found = set[str]()
    for each in _imports(ast.parse(path.read_text()), late):
        if isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
            continue
        start = package.split(".")[: len(package.split(".")) - each.level + 1] if each.level else []
        place = ".".join([*start, *([each.module] if each.module else [])])
        found |= {name if (name := f"{place}.{alias.name}") in FILES else place for alias in each.names}
    return found


def loaded(module: str, late: bool = False) -> set[str]:
    """The modules of ours that importing one loads, itself and its packages among them."""
    found, waiting = set[str](), {module}
    while waiting:
        each = waiting.pop()
        found.add(each)
        above = {each.rsplit(".", count)[0] for count in range(1, each.count(".") + 1)}
        waiting |= (taken(each, late) | above) & FILES.keys() - found
    return found


def counts() -> str:
    """How many files and lines there are, as a line each: of all, of each part, and what importing a run loads."""
    tests = list((ROOT / "tests").rglob("*.py"))
    all_ = {"repro/ and models/": list(FILES.values()), "tests/": tests}
    entries = [path for path in (ROOT / "repro").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    of_part = Counter[str]()
    for path in tests:
        of_part[_part_of_test(path)] += _lines([path])
    return "\n".join(
        [
            *(f"{name}: {len(of)} Python files, {_lines(of)} lines" for name, of in all_.items()),
            *(f"{part}: {_lines(_files(*PARTS[part]))} lines, {of_part[part]} of tests" for part in PARTS),
            f"tests of no part: {of_part['']} lines",
            f"repro/: {len(entries)} entries",
            *(f"import {module}: {len(loaded(module))} modules" for module in ("repro.run.run", "repro.run.reading")),
        ]
    )


# Files and folders of each part, and apart from them what is newer.
PARTS = {
    "predicting": (
        *("models", "repro/predict", "repro/paper", "repro/released", "repro/export", "repro/train", "repro/parts.py"),
        *("benchmarks", "tools"),
    ),
    "answers": (
        *(
            "repro/report",
            "repro/claims",
            "repro/survey",
            "repro/money",
            "repro/compare",
            "repro/lab",
            "repro/printout.py",
        ),
        *("repro/commands", "repro/cli.py", "repro/__main__.py", "repro/__init__.py"),
        *("repro/console.py", "repro/formats.py", "repro/datafile.py", "repro/options.py", "repro/printout.py"),
    ),
    "measuring": (
        *("repro/measure", "repro/run", "repro/machine", "repro/record.py", "repro/steps.py", "repro/validity.py"),
        *("repro/trial_warnings.py", "repro/files.py"),
        *("repro/installation.py", "run_all.sh", "locks", "images"),
    ),
    "plan, verify and web": ("repro/plan", "repro/verify", "repro/web.py", "web"),
}


def part_of(place: str) -> str:
    """The part that a file or folder of the checkout belongs to; "" for none."""
    return next((part for part, of in PARTS.items() if any(Path(place).is_relative_to(each) for each in of)), "")


def _part_of_test(path: Path) -> str:
    """The part that a test takes most modules of; "" where it takes none."""
    places = (
        str(FILES[each].relative_to(ROOT)) if each in FILES else each.replace(".", "/") for each in taken_by(path)
    )
    parts = Counter(filter(None, map(part_of, sorted(places))))
    return parts.most_common(1)[0][0] if parts else ""


def _files(*places: str) -> list[Path]:
    """The files of code at these places."""
    found = [path for place in places for path in (ROOT / place, *(ROOT / place).rglob("*"))]
    return [path for path in found if path.is_file() and path.suffix in (".py", ".sh", ".js", ".html", ".template")]


def _lines(files: Iterable[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in files)


if __name__ == "__main__":
    print(counts())
