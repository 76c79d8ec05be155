"""A figure as rows of data: its panels, their order, the look of each series, and a panel's table and description."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any, Literal

from .. import command, models
from ..formats import from_to, listing
from ..paper.gpus import paper_gpus
from ..paper.settings import NAIVE, Settings, search_space
from ..record import BY_CLOCK, Clock, OnMachine, Record
from ..run.settings_search import Search

Origin = Literal[
    "measured", "published", "measured and published", "computed", "predicted", "measured and predicted", "answered"
]
Draw = Literal["strips", "bars", "pairs", "grid", "trades", "lines", "stacks", "spans"]
State = Literal["feasible", "infeasible", "naive", "free lunch", "memory saving", "lost", "not known"]
SEARCH = f"{command()} --gpus all --methods all"  # command that measures whole searches, which some figures need


@dataclass(frozen=True)
class Point:
    """A dot: a value of a series in a group. `note` says what it is the value of."""

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
    """A machine with its cost in US dollars and its days. `kind` is "beaten" where another of the paper's machines is
    both cheaper and faster, else "best"; "here" where the days were measured here."""

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


@dataclass(frozen=True)
class Span:
    """A value of a series in a group, with its bounds, which are equal to it where there are none."""

    group: str
    series: str
    value: float
    low: float
    high: float


Row = Point | Mark | Trade | Curve | Span


@dataclass(frozen=True)
class Reference:
    """A value marked by a dashed line, and its name."""

    value: float
    name: str


@dataclass(frozen=True)
class Panel:
    """One chart. `draw` names its kind in charts.py. `x` titles the value axis, with the unit; `y` titles the vertical
    axis where it has values too. `reference` is marked on the value axis, for lines on the vertical one. `machines` are
    all machines of the run, in order. `groups` and `notes` name the columns of points' groups and notes."""

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
    """A figure. `number` is the paper's, empty where the paper has no such figure; `says` describes the result with its
    numbers, `lacking` what the paper does not print; `measured_by` is the command that measures it."""

    number: str
    title: str
    says: str
    panels: Sequence[Panel]
    lacking: str = ""
    measured_by: str = ""

    @property
    def name(self) -> str:
        """Return the paper's name of the figure, empty if it has none."""
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
    """Return a panel of measured rows by this clock (None: that of the searches), or none where there are no rows."""
    if not rows:
        return []
    scales = {search.scale for search in searches}
    source = f"trials.jsonl, {BY_CLOCK[clock or searches[0].clock]}"
    if scales == {"tiny"}:
        source += "; tiny twins of the recipes, which say nothing of the paper's"
    elif len(scales) > 1:
        source += "; some of the recipes are tiny twins"
    return [Panel("measured", title, draw, x, rows, source, reference, "", machines(searches), groups, "machine")]


@dataclass(frozen=True)
class Look:
    """A colour, and a shape of Vega's or an outline within -1 to 1."""

    colour: str
    shape: str


# Okabe and Ito's palette, for people with any kind of colour vision.
_BLUE, _RED, _GREEN, _PURPLE, _ORANGE, _SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_ONE_BY_ONE = (
    Look(_BLUE, "circle"),
    Look(_RED, "square"),
    Look(_GREEN, "triangle-up"),
    Look(_PURPLE, "diamond"),
    Look(_ORANGE, "cross"),
    Look(_SKY, "triangle-down"),
)
_X = "M-1,-.8L-.8,-1L0,-.2L.8,-1L1,-.8L.2,0L1,.8L.8,1L0,.2L-.8,1L-1,.8L-.2,0Z"

# In the order of legends.
_LOOKS = {
    "free lunch alone": Look(_SKY, "triangle-down"),
    "original training": Look(_RED, "square"),
    "best settings": Look(_BLUE, "circle"),
    "best settings, 8 A100": Look(_BLUE, "circle"),
    "analytic estimate": Look(_RED, "square"),
    "faster": Look(_BLUE, "circle"),
    "slower": Look(_RED, "square"),
    "ZeRO": Look(_PURPLE, "diamond"),
    "no sharding": Look(_ORANGE, "cross"),
    "FSDP": Look(_GREEN, "triangle-up"),
    "paper": Look(_RED, "square"),
    "paper, figure 9": Look(_RED, "square"),
    "closed form": Look(_BLUE, "circle"),
    "data sheet": Look(_BLUE, "circle"),
    "owning": Look(_BLUE, "circle"),
    "renting": Look(_RED, "square"),
    "people": Look(_BLUE, "circle"),
    "answers": Look(_BLUE, "circle"),
    # Of stacked bars: colours on which dark numbers are read, in the light and in the dark.
    "Hours": Look(_SKY, "square"),
    "Days": Look(_GREEN, "square"),
    "Weeks": Look(_ORANGE, "square"),
    "Months": Look(_PURPLE, "square"),
    "Indefinitely": Look(_RED, "square"),
    "naively": Look(_ORANGE, "square"),
    "with the free lunch": Look(_SKY, "square"),
    "with everything": Look(_GREEN, "square"),
    "not shown": Look("#8a8a8a", "square"),
}


def looks(series: Collection[str], machines: Sequence[str]) -> dict[str, Look]:
    """Return the look of each of these series, in the order of legends. A machine's look depends on its position in the
    run's `machines`. A GPU measured here has its paper colour and an x; a GPU that the paper does not have also has an
    x."""
    gpus = dict(zip(paper_gpus(), _ONE_BY_ONE, strict=False))
    here = {f"{gpu}, here": Look(look.colour, _X) for gpu, look in gpus.items()}
    measured_on = {machine: _ONE_BY_ONE[number % len(_ONE_BY_ONE)] for number, machine in enumerate(machines)}
    every = _LOOKS | gpus | here | measured_on
    others = [name for name in series if name not in every]
    every |= {name: Look(look.colour, _X) for name, look in zip(others, cycle(_ONE_BY_ONE), strict=False)}
    return {name: every[name] for name in sorted(series, key=list(every).index)}


Table = list[dict[str, Any]]

_DRAWN: dict[Draw, str] = {
    "strips": "Dots by {groups}",
    "bars": "Bars by {groups}",
    "pairs": "Pairs of dots by {groups}",
    "grid": "Fields by model and machine",
    "trades": "Marks by cost and days, the days",
    "lines": "Lines",
    "stacks": "Stacked bars by {groups}",
    "spans": "Dots with intervals by {groups}",
}


def described(panel: Panel) -> str:
    """Describe the panel's kind, and the range of each series."""
    ends: dict[str, list[float]] = {}
    for row in panel.rows:
        if isinstance(row, Trade):
            ends.setdefault(row.gpu, []).append(row.days)
        elif not isinstance(row, Mark):
            ends.setdefault(row.series, []).append(row.y if isinstance(row, Curve) else row.value)
    between = [f"{name} {from_to(ends[name])}" for name in looks(ends, panel.machines)]
    counts = Counter(row.state for row in panel.rows if isinstance(row, Mark))
    states = [f"{state} {count}" for state, count in counts.items()]
    line = f" A dashed line marks {panel.reference.name}, {panel.reference.value:g}." if panel.reference else ""
    drawn = _DRAWN[panel.draw].format(groups=panel.groups)
    return f"{drawn}: {', '.join(between or states)}.{line} The numbers follow as a table."


def unit(panel: Panel) -> str:
    """Return the unit of the series' columns, where no column says it."""
    of_x = dict.fromkeys(("strips", "pairs", "stacks", "spans"), panel.x)
    return (of_x | {"lines": panel.y}).get(panel.draw, "")


def numbers(panel: Panel) -> Table:
    """Return the panel as a table. Values of the same group, model or x share a row; each series or machine is a
    column."""
    found: Table = []
    for row in panel.rows:
        match row:
            case Trade():
                rival = {"best": "no", "beaten": "yes", "here": None}[row.kind]
                found.append(
                    {"GPU": row.gpu, "GPUs": row.gpus, panel.x: row.cost, panel.y: row.days, "has a rival": rival}
                )
            case Mark():
                _line(found, {"model": row.model}, row.machine)[row.machine] = row.state
            case Curve():
                _line(found, {panel.x.removesuffix(", log scale"): row.x}, row.series)[row.series] = row.y
            case Span():
                line = _line(found, {panel.groups: row.group}, row.series)
                line[row.series] = row.value
                if row.low < row.high:
                    line |= {f"{row.series} from": row.low, f"{row.series} to": row.high}
            case Point() if panel.draw == "bars":
                found.append({panel.groups: row.group, "kind": row.series, panel.x: row.value})
            case Point() if panel.draw == "strips":
                of = {panel.groups: row.group} | ({panel.notes: row.note} if row.note else {})
                _line(found, of, row.series)[row.series] = row.value
            case Point():
                line = _line(found, {panel.groups: row.group}, row.series)
                line |= {row.series: row.value} | ({panel.notes: row.note} if row.note else {})
    named = list(dict.fromkeys(column for line in found for column in line))
    order = [column for column in named if column not in panel.machines]
    order += [machine for machine in panel.machines if machine in named]
    return [{column: line.get(column) for column in order} for line in found]


def _line(found: Table, start: dict[str, Any], column: str) -> dict[str, Any]:
    """Return the row that begins so and has no value in this column; add one if there is none."""
    for line in found:
        if line.items() >= start.items() and column not in line:
            return line
    found.append(start)
    return start


def in_order(found: Sequence[Search]) -> list[Search]:
    """Return the searches with recipes in the paper's order, each by machine, with naive settings before the others."""
    known = (*models.IDS, *models.OTHERS)
    recipes = [*known, *sorted({search.recipe for search in found} - {*known})]  # last those of one's own
    ordered = [replace(search, trials=tuple(sorted(search.trials, key=_by_settings))) for search in found]
    return sorted(ordered, key=lambda search: (recipes.index(search.recipe), search.scale, _by_size(search)))


def machines(found: Iterable[OnMachine]) -> list[str]:
    """Return the names of the machines by ascending count; those of several nodes or of limited memory come last."""
    return list(dict.fromkeys(one.machine for one in sorted(found, key=_by_size)))


def _by_size(one: OnMachine) -> tuple[str, int, int, int]:
    return one.device, one.nodes, one.memory_limit or 0, one.count


def _by_settings(trial: Record) -> tuple[int, bool]:
    """Return a sort key: settings outside the search space come last, flash attention after the same settings
    without."""
    settings = Settings.parse(trial.settings)
    space = [NAIVE, *search_space(trial.world)]
    return space.index(settings.base) if settings.base in space else len(space), settings.attention != "sdpa"
