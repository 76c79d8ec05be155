"""Traces as data: the costs of a recipe's micro-step, linear in its micro batch, layer by layer. Needs no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from typing import Literal, get_args

import msgspec

from repro import datafile, files
from repro.console import UserError
from repro.datafile import NotAsDeclaredError, columns
from repro.installation import installed
from repro.machine.packages import numbers, without_build

from ..models.recipe import Scale

Variant = Literal["naive", "custom", "half"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
FOLDER = Path(__file__).parent / "traces"
Costs = dict[str, float]


@dataclass(frozen=True)
class Traced:
    """The versions of the packages whose code a trace depends on, the most important one first."""

    transformers: str
    timm: str
    torch: str

    def __str__(self) -> str:
        return ", ".join(f"{package} {version}" for package, version in asdict(self).items())


_PACKAGES = columns(Traced)
Stack = Literal["paper", "today"]  # the paper's, or the newest that is traced
PAPER_STACK = Traced("4.42.3", "1.0.31", "2.13.0")  # transformers of the paper's release
_WAY_OUT = "restore it, or in a checkout make those of the installed stack by python -m tools.traces"
TRACING_TORCH = "2.4"  # the first that supports custom operators


class Linear(msgspec.Struct, array_like=True, frozen=True):
    """A cost of a micro-step: a fixed part, and what each example adds."""

    fixed: float
    per_example: float

    def at(self, examples: float) -> float:
        return self.fixed + self.per_example * examples

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.fixed + other.fixed, self.per_example + other.per_example)

    def __mul__(self, times: float) -> Linear:
        return Linear(times * self.fixed, times * self.per_example)


NOTHING = Linear(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Block:
    """`count` equal layers, or the rest of the model (count 1); costs are of one layer. `units` of them are
    checkpointed separately: as many as there are layers, except in ConvNeXt, whose stage is one unit.

    Costs by name: `phase/kind/unit`, with phase forward, returned (outputs are copied) or backward, kind an operator's
    class, unit flops, bytes or kernels. Kind `fused` replaces `memory` under torch.compile. In bytes: `saved` for the
    backward pass, `head`, `returned` and `body` the peaks above it, `copies` half-precision copies of weights, `inputs`
    the input of a checkpointed unit. `parameters` counts weights, `tensors` the tensors that contain them.
    """

    name: str
    count: int
    units: int
    costs: dict[str, Linear]

    @cached_property
    def of_phases(self) -> tuple[tuple[str, str, str, Linear], ...]:
        """Return the costs of phases, each with its phase, kind and unit."""
        split = ((*key.partition("/")[::2], line) for key, line in self.costs.items())
        found = ((phase, *rest.rpartition("/")[::2], line) for phase, rest, line in split)
        return tuple(each for each in found if each[2])

    def cost(self, key: str) -> Linear:
        """Return a cost by name, zero if the part has none."""
        return self.costs.get(key, NOTHING)


@dataclass(frozen=True, eq=False)
class Trace:
    """A recipe's costs at one scale, in one variant: `naive` eager kernels and `custom` kernels under autocast, or
    `half` custom kernels in half precision throughout, as DeepSpeed runs."""

    recipe: str
    scale: Scale
    variant: Variant
    stack: Traced
    parts: tuple[Block, ...]

    def total(self, key: str) -> Linear:
        """Return a cost of the whole model."""
        return sum((part.cost(key) * part.count for part in self.parts), NOTHING)

    @cached_property
    def parameters(self) -> float:
        return self.total("parameters").fixed

    @property
    def layers(self) -> tuple[Block, ...]:
        return self.parts[1:]

    @property
    def rest(self) -> Block:
        return self.parts[0]


def save(traces: Iterable[Trace], folder: Path = FOLDER) -> Path:
    """Write one stack's traces, one per line, into the file that its versions name; return the file.

    Raise UserError if it cannot be written.
    """
    found = list(traces)
    file = _file(found[0].stack, folder)
    lines = [msgspec.json.encode(_rounded(trace)).decode() for trace in found]
    return files.replace(file, "[\n" + ",\n".join(lines) + "\n]\n")


@cache
def load(stack: Traced, folder: Path = FOLDER) -> dict[tuple[str, Scale, Variant], Trace]:
    """Return one stack's traces, by recipe, scale and variant. Raise UserError if they cannot be read."""
    file = _file(stack, folder)
    try:
        found = datafile.read(file, list[Trace])
    except NotAsDeclaredError as error:
        raise UserError(f"{file}: no traces ({error}); {_WAY_OUT}") from None
    return {(trace.recipe, trace.scale, trace.variant): trace for trace in found}


def find(
    recipe: str, variant: Variant, stack: Traced = PAPER_STACK, scale: Scale = "paper", folder: Path = FOLDER
) -> Trace:
    """Return the trace of a recipe on this stack. `custom` is used if the recipe's variants do not differ.

    Raise UserError for a recipe that was never traced.
    """
    known = load(stack, folder)
    candidates: tuple[Variant, ...] = (variant, "custom")
    for candidate in candidates:
        if (recipe, scale, candidate) in known:
            return known[recipe, scale, candidate]
    raise UserError(
        f"{recipe} ({scale}) has no trace of {stack}: in a checkout python -m tools.traces makes those of the "
        "installed stack"
    )


def shipped(folder: Path = FOLDER) -> list[Traced]:
    """Return the stacks whose traces are shipped, oldest first."""
    pattern = "_".join(f"{package}-(.+)" for package in _PACKAGES)
    found = (re.fullmatch(pattern, file.stem) for file in folder.glob("*.json"))
    return sorted((Traced(*each.groups()) for each in found if each), key=_age)


def of_stack(stack: Stack) -> Traced:
    """Return the traced packages of the paper's stack, or of today's, the newest."""
    return PAPER_STACK if stack == "paper" else shipped()[-1]


def nearest(packages: Mapping[str, str], folder: Path = FOLDER) -> Traced:
    """Return the shipped stack nearest to these packages, by transformers, then timm, then torch. Of each: the same
    version; else the newest older one of the same major version, else that major version's oldest; without that major
    version, the same over all; for a missing package, the newest. Raise UserError if no traces are shipped."""
    known = shipped(folder)
    if not known:
        raise UserError(f"{folder}: no traces; {_WAY_OUT}")
    for package in _PACKAGES:
        version: Callable[[Traced], str] = attrgetter(package)
        wanted = _nearest(packages.get(package), [version(stack) for stack in known])
        known = [stack for stack in known if version(stack) == wanted]
    return known[0]


@cache
def nearest_here() -> Traced:
    """Return the shipped stack nearest to the installed one."""
    return nearest({package: version for package in _PACKAGES if (version := installed(package))})


def can_trace() -> bool:
    """Return whether the installed torch supports Mamba's scan, a custom operator; True if none is installed."""
    return numbers(installed("torch") or TRACING_TORCH) >= numbers(TRACING_TORCH)


def _nearest(version: str | None, known: Iterable[str]) -> str:
    ordered = sorted(known, key=numbers)
    if version is None or not numbers(version):  # a user's own file may contain any text
        return ordered[-1]
    if (public := without_build(version)) in ordered:
        return public
    alike = [each for each in ordered if numbers(each)[0] == numbers(public)[0]] or ordered
    older = [each for each in alike if numbers(each) <= numbers(public)]
    return older[-1] if older else alike[0]


def _age(stack: Traced) -> list[tuple[int, ...]]:
    return [numbers(getattr(stack, package)) for package in _PACKAGES]


def _file(stack: Traced, folder: Path) -> Path:
    return folder / ("_".join(f"{package}-{version}" for package, version in asdict(stack).items()) + ".json")


def _rounded(trace: Trace) -> Trace:
    """Return a trace whose costs have as many digits as its file."""

    def short(value: float) -> float:
        return int(value) if value == int(value) else float(f"{value:.7g}")

    parts = (
        replace(
            part, costs={key: Linear(short(line.fixed), short(line.per_example)) for key, line in part.costs.items()}
        )
        for part in trace.parts
    )
    return replace(trace, parts=tuple(parts))
