"""A figure as rows of data: panels, measured here, from the numbers that the paper prints, or both, or computed from
other sources too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .. import command
from ..clocks import BY_CLOCK, Clock
from ..formats import listing
from ..search import Search
from .order import machines

Origin = Literal["measured", "published", "measured and published", "computed"]
Draw = Literal["strips", "bars", "pairs", "grid", "trades", "lines"]
State = Literal["feasible", "infeasible", "naive", "free lunch", "memory saving", "lost", "not known"]
SEARCH = f"{command()} --gpus all --methods all"  # measures what the figures on whole searches need


@dataclass(frozen=True)
class Point:
    """A dot: a value of a series in a group. `note` names what it stands for."""

    group: str
    series: str
    value: float
    note: str = ""


@dataclass(frozen=True)
class Mark:
    """A field of a grid of models by machines."""

    model: str
    machine: str
    state: State


@dataclass(frozen=True)
class Trade:
    """A machine: what it costs in US dollars, and the days that it takes. `kind` says whether another of the paper's
    is both cheaper and faster, or that the days were measured here."""

    gpu: str
    gpus: int
    cost: float
    days: float
    kind: Literal["best", "beaten", "here"]

    @property
    def aims(self) -> tuple[float, ...]:
        return self.cost, self.days


@dataclass(frozen=True)
class Curve:
    """A point of a line: `y` at `x` in a series."""

    series: str
    x: float
    y: float


Row = Point | Mark | Trade | Curve


@dataclass(frozen=True)
class Reference:
    """A value that a dashed line marks, and what has it."""

    value: float
    name: str


@dataclass(frozen=True)
class Panel:
    """One chart. `draw` names its kind in charts.py; `x` titles its value axis, with the unit, and `reference` is
    marked on it, on the upright axis of lines; `y` titles the upright axis where it has values too. `machines` are all
    that the run measured on, in order; `groups` and `notes` name what those of points are."""

    origin: Origin
    title: str
    draw: Draw
    x: str
    rows: Sequence[Row]
    source: str
    reference: Reference | None = None
    y: str = ""
    machines: Sequence[str] = ()
    groups: str = "model"
    notes: str = "note"


@dataclass(frozen=True)
class Figure:
    """A figure: `number` is the paper's, empty where the paper has no such figure, `says` what is to be seen, with its
    numbers, `lacking` what the paper does not print, and `measured_by` the command that measures it."""

    number: str
    title: str
    says: str
    panels: Sequence[Panel]
    lacking: str = ""
    measured_by: str = ""

    @property
    def name(self) -> str:
        """What the paper calls it, or nothing."""
        numbers = self.number.split(", ")
        return f"Figure{'s' if len(numbers) > 1 else ''} {listing(numbers)}" if self.number else ""


def measured_panels(
    title: str,
    draw: Draw,
    x: str,
    rows: Sequence[Row],
    searches: Sequence[Search],
    reference: Reference | None = None,
    groups: str = "model",
    clock: Clock | None = None,
) -> list[Panel]:
    """A panel of measured rows by this clock, None is that of the searches; none where there are no rows."""
    if not rows:
        return []
    scales = {search.scale for search in searches}
    source = f"trials.jsonl, {BY_CLOCK[clock or searches[0].clock]}"
    if scales == {"tiny"}:
        source += "; tiny twins of the recipes, which say nothing of the paper's"
    elif len(scales) > 1:
        source += "; some of the recipes are tiny twins"
    return [Panel("measured", title, draw, x, rows, source, reference, "", machines(searches), groups, "machine")]
