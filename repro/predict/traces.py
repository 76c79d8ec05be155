"""Traces as data: what a micro-step of a recipe costs, linear in its micro batch, layer by layer. Needs no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from repro import command, files
from repro.errors import UserError
from repro.packages import numbers
from repro.recipe import Scale

Variant = Literal["naive", "custom", "half"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
FOLDER = Path(__file__).parent / "traces"
PAPER_STACK = "4.42.3"  # transformers at the paper's release
Costs = dict[str, float]


@dataclass(frozen=True)
class Linear:
    """A cost of a micro-step: what does not depend on the micro batch, and what each example adds."""

    fixed: float
    each: float

    def at(self, examples: float) -> float:
        return self.fixed + self.each * examples

    def __add__(self, other: Linear) -> Linear:
        return Linear(self.fixed + other.fixed, self.each + other.each)

    def __mul__(self, times: float) -> Linear:
        return Linear(times * self.fixed, times * self.each)


NOTHING = Linear(0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Part:
    """`count` equal layers, or the rest of the model (count 1); costs are of one. `units` of them are checkpointed
    each on its own: as many as layers, except ConvNeXt's, whose stage is one unit.

    Costs by name: `phase/kind/unit`, with phase forward or backward, kind an operator's class, unit flops, bytes or
    kernels (kind `fused` is what `memory` becomes under torch.compile); `saved` bytes for the backward pass, `head` and
    `body` the peaks above them, `copies` half-precision copies of weights, `inputs` the input of a checkpointed unit,
    and `parameters`.
    """

    name: str
    count: int
    units: int
    costs: dict[str, Linear]

    def cost(self, key: str) -> Linear:
        """A cost by name, nothing where the part has none."""
        return self.costs.get(key, NOTHING)


@dataclass(frozen=True, eq=False)
class Trace:
    """A recipe's costs at a scale, in one variant: `naive` eager kernels and `custom` ones under autocast, `half`
    custom kernels in half precision throughout, as DeepSpeed runs. `stack` maps packages to the versions that were
    traced."""

    recipe: str
    scale: Scale
    variant: Variant
    stack: dict[str, str]
    parts: tuple[Part, ...]

    def total(self, key: str) -> Linear:
        """A cost of the whole model."""
        return sum((part.cost(key) * part.count for part in self.parts), NOTHING)

    @property
    def parameters(self) -> float:
        return self.total("parameters").fixed

    @property
    def layers(self) -> tuple[Part, ...]:
        return self.parts[1:]

    @property
    def rest(self) -> Part:
        return self.parts[0]


def save(traces: Iterable[Trace], folder: Path = FOLDER) -> Path:
    """Writes one stack's traces, a line each, into the file that its transformers names; returns the file.

    Raises UserError where it cannot be written.
    """
    found = list(traces)
    file = _file(found[0].stack["transformers"], folder)
    lines = [json.dumps(_plain(trace), separators=(",", ":")) for trace in found]
    return files.replace(file, "[\n" + ",\n".join(lines) + "\n]\n")


@cache
def load(transformers: str, folder: Path = FOLDER) -> dict[tuple[str, Scale, Variant], Trace]:
    """One stack's traces, by recipe, scale and variant. Raises UserError where they cannot be read."""
    file = _file(transformers, folder)
    try:
        found = [_trace(plain) for plain in json.loads(file.read_text())]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: no traces ({error}); {command()} predict --rebuild-traces makes them") from None
    return {(trace.recipe, trace.scale, trace.variant): trace for trace in found}


def find(recipe: str, variant: Variant, transformers: str = PAPER_STACK, scale: Scale = "paper") -> Trace:
    """The trace of a recipe under that transformers. A recipe whose variants are alike has one of them.

    Raises UserError for a recipe that was never traced.
    """
    known = load(transformers)
    candidates: tuple[Variant, ...] = (variant, "custom")
    for candidate in candidates:
        if (recipe, scale, candidate) in known:
            return known[recipe, scale, candidate]
    raise UserError(
        f"{recipe} ({scale}) has no trace under transformers {transformers}: {command()} predict "
        "--rebuild-traces makes those of the installed stack"
    )


def shipped() -> list[str]:
    """The versions of transformers whose models were traced, oldest first."""
    prefix = "transformers-"
    return sorted((file.stem.removeprefix(prefix) for file in FOLDER.glob(f"{prefix}*.json")), key=numbers)


def versions(transformers: str) -> dict[str, str]:
    """The packages that one stack's traces were made with."""
    return next(iter(load(transformers).values())).stack


def nearest(installed: str | None) -> str:
    """The shipped stack nearest to an installed transformers, the newest where none is installed: the last of the same
    major version that is not newer, else its first; where none is of that version, the same of all."""
    known = shipped()
    if installed is None or installed in known:
        return installed or known[-1]
    alike = [version for version in known if numbers(version)[0] == numbers(installed)[0]] or known
    older = [version for version in alike if numbers(version) <= numbers(installed)]
    return older[-1] if older else alike[0]


def _file(transformers: str, folder: Path) -> Path:
    return folder / f"transformers-{transformers}.json"


def _plain(trace: Trace) -> dict[str, Any]:
    parts = [
        {
            "name": part.name,
            "count": part.count,
            "units": part.units,
            "costs": {key: [_short(line.fixed), _short(line.each)] for key, line in part.costs.items()},
        }
        for part in trace.parts
    ]
    return {
        "recipe": trace.recipe,
        "scale": trace.scale,
        "variant": trace.variant,
        "stack": trace.stack,
        "parts": parts,
    }


def _short(value: float) -> float:
    return int(value) if value == int(value) else float(f"{value:.7g}")


def _trace(plain: dict[str, Any]) -> Trace:
    parts = (
        Part(
            part["name"],
            part["count"],
            part["units"],
            {key: Linear(float(fixed), float(each)) for key, (fixed, each) in part["costs"].items()},
        )
        for part in plain["parts"]
    )
    return Trace(plain["recipe"], plain["scale"], plain["variant"], plain["stack"], tuple(parts))
