"""A panel for those who do not see it: what is drawn, in a sentence, and all its numbers as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..formats import figures
from .looks import looks
from .panels import Curve, Draw, Mark, Panel, Point, Trade

Table = list[dict[str, Any]]

_DRAWN: dict[Draw, str] = {
    "strips": "Dots by {groups}",
    "bars": "Bars by {groups}",
    "pairs": "Pairs of dots by {groups}",
    "grid": "Fields by model and machine",
    "trades": "Marks by cost and days, the days",
    "lines": "Lines",
}


def described(panel: Panel) -> str:
    """What is drawn, and between which ends each series lies."""
    ends: dict[str, list[float]] = {}
    for row in panel.rows:
        if isinstance(row, Trade):
            ends.setdefault(row.gpu, []).append(row.days)
        elif not isinstance(row, Mark):
            ends.setdefault(row.series, []).append(row.y if isinstance(row, Curve) else row.value)
    between = [_between(name, ends[name]) for name in looks(ends, panel.machines)]
    counts = Counter(row.state for row in panel.rows if isinstance(row, Mark))
    states = [f"{state} {count}" for state, count in counts.items()]
    line = f" A dashed line marks {panel.reference.name}, {panel.reference.value:g}." if panel.reference else ""
    drawn = _DRAWN[panel.draw].format(groups=panel.groups)
    return f"{drawn}: {', '.join(between or states)}.{line} The numbers follow as a table."


def _between(name: str, values: Sequence[float]) -> str:
    low, high = figures(min(values)), figures(max(values))
    return f"{name} {low}" if low == high else f"{name} {low} to {high}"


def unit(panel: Panel) -> str:
    """What the columns of the series hold, where no column says it."""
    return {"strips": panel.x, "pairs": panel.x, "lines": panel.y}.get(panel.draw, "")


def numbers(panel: Panel) -> Table:
    """Every row of the panel; what belongs together stands in one line, with a column for each series or machine."""
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
    """The line that begins so and has nothing in this column yet, a new one where there is none."""
    for line in found:
        if line.items() >= start.items() and column not in line:
            return line
    found.append(start)
    return start
