"""Charts drawn with Altair as SVG, without scripts or fonts of their own, so that a page needs no network.

Text and axes have the colour of the surrounding text, for light pages, dark ones and paper. Colour is never the only
distinction: marks differ in shape, fields have a symbol. The only file that imports Altair and vl-convert.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from itertools import pairwise
from typing import Any, Literal

import altair as alt
import vl_convert
from altair.utils.schemapi import debug_mode

from .panels import Draw, Look, Panel, State, described, looks

_WIDTH = 340  # pixels, the width of a phone: text keeps its size there
_WIDE_LABELS = {"left": 18, "right": 3, "top": 3, "bottom": 3}
_LINE = 17  # pixels of a line of bars or fields
_INK = "currentColor"
_STATES: dict[State, tuple[str, str, str]] = {
    "feasible": ("✓", "feasible", "#8fd3b6"),
    "naive": ("✓", "naive settings", "#8fd3b6"),
    "free lunch": ("F", "free lunch alone", "#9cc9ea"),
    "memory saving": ("M", "with memory saving", "#f3c77f"),
    "infeasible": ("✗", "infeasible", "#c9c9c9"),
    "lost": ("?", "mark lost", "#eeeeee"),
    "not known": ("?", "not known", "#eeeeee"),
}
# Outlines in a legend, within -1 to 1.
_MEAN = "M-.2,-1H.2V1H-.2Z"
_DASHES = {"x": "M-.15,-1H.15V-.2H-.15ZM-.15,.2H.15V1H-.15Z", "y": "M-1,-.02H-.4V.02H-1ZM.4,-.02H1V.02H.4Z"}
_ACROSS, _UPRIGHT = 280, 210  # pixels of a chart of costs against days; the width is approximate
# Upper right first. A number is within 8 pixels of its mark, and so nearer to it than to marks clear of it.
_AROUND = [(7, -7), (8, 0), (7, 7), (0, -9), (0, 9), (-7, -7), (-8, 0), (-7, 7)]
_CLEAR = 11.0
_Spot = tuple[float, float]
_LOG_BEYOND = 30  # largest over smallest value, above which the axis is logarithmic

_ROWS = alt.NamedData("rows")  # Altair copies charts often: the data are added at the end

Rows = list[dict[str, Any]]
Axis = Literal["x", "y"]
Looks = Mapping[str, Look]  # of the series, in the order of a legend
Inked = Sequence[tuple[str, str]]  # marks other than the series, in the text's colour: name in a legend, outline


def vega_lite(panel: Panel) -> dict[str, Any]:
    """Return the panel as Vega-Lite, not validated by its schema, which is slow."""
    with debug_mode(False):
        rows = [asdict(row) for row in panel.rows]
        chart = _styled(_DRAWN[panel.draw](panel, rows)).properties(width=_WIDTH)
        return chart.to_dict(validate=False) | {"datasets": {_ROWS.name: rows}}


def svg(panel: Panel, id: str = "panel") -> str:
    """Return the panel as an SVG element, with a name and a description for screen readers under `id`."""
    text = vl_convert.vegalite_to_svg(vega_lite(panel), allowed_base_urls=[])
    opening, rest = re.sub(_NEEDLESS, "", text).split(">", 1)
    axes = " by ".join(filter(None, (panel.y, panel.x)))
    name = escape(": ".join(filter(None, (panel.title, axes))) + f" ({panel.origin})")
    return (
        f'{opening} role="img" aria-labelledby="{id}-name" aria-describedby="{id}-text">'
        f'<title id="{id}-name">{name}</title><desc id="{id}-text">{escape(described(panel))}</desc>{rest}'
    )


# Markup for Vega's own scripts, and fonts, which the page sets.
_NEEDLESS = re.compile(
    r'<path class="(background|foreground)"[^>]* (d=""|display="none")[^>]*/>'
    r'| (class|role|aria-[a-z]+|pointer-events|font-family)="[^"]*"'
    r'| xmlns:xlink="[^"]*"| (opacity|stroke-width)="1"'
)


def _strips(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw a dot for every point, and a line at the mean of each group and series that has several."""
    series, groups = _series(panel, rows), _names(rows, "group")
    offset = alt.YOffset("series:N", sort=list(series))
    base = alt.Chart().encode(y=alt.Y("group:N", sort=groups, title=None), x=_value(panel, rows), yOffset=offset)
    inked, means = _dashes(panel), None
    if len({(row["group"], row["series"]) for row in rows}) < len(rows):
        inked = [("mean", _MEAN), *inked]
        means = base.mark_tick(thickness=2, size=13, color=_INK, opacity=1).encode(x=alt.X("mean(value):Q"))
    dots = base.mark_point(filled=True, size=36, opacity=0.8).encode(
        color=_colour("series", series, inked=inked), shape=_shape("series", series, inked)
    )
    return _layer(_reference(panel), dots, means).properties(height=len(groups) * (8 + 11 * len(series)))


def _bars(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw a bar for every group, in the order of the rows. The value is to the right of the bar, or of zero for a
    negative one, as the axis is on the left."""
    series = _series(panel, rows)
    lowest, highest = (ends(0.0, *(row["value"] for row in rows)) for ends in (min, max))
    room = (highest - lowest) * 0.25  # for the numbers beside the bars
    scale = alt.Scale(domain=[lowest, highest + room], nice=False)
    base = alt.Chart().encode(
        y=alt.Y("group:N", sort=_names(rows, "group"), title=None, axis=alt.Axis(labelLimit=220)),
        x=alt.X("value:Q", title=panel.x, scale=scale),
    )
    numbers = base.transform_calculate(end="max(0, datum.value)").mark_text(align="left", dx=4, color=_INK)
    return _layer(
        base.mark_bar(height=11).encode(color=_colour("series", series, columns=2)),
        numbers.encode(x="end:Q", text=alt.Text("value:Q", format=".2~f")),
    ).properties(height=len(rows) * _LINE, padding=_WIDE_LABELS)


def _pairs(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw two dots for every group, one below the other as they may be equal, with a line between them, and the
    group's note beside the right one."""
    series, groups = _series(panel, rows), _names(rows, "group")
    notes = []
    for group in groups:
        there = [row for row in rows if row["group"] == group]
        notes.append(max(there, key=lambda row: row["value"]) | {"note": "".join(row["note"] for row in there)})
    base = alt.Chart().encode(y=alt.Y("group:N", sort=groups, title=None), x=_value(panel, rows, room=3.0))
    apart = base.encode(yOffset=alt.YOffset("series:N", sort=list(series)))
    return _layer(
        apart.mark_line(color=_INK, opacity=0.35).encode(detail="group:N"),
        apart.mark_point(filled=True, size=50, opacity=1).encode(
            color=_colour("series", series), shape=_shape("series", series)
        ),
        base.properties(data=alt.Data(values=notes)).mark_text(align="left", dx=8, color=_INK).encode(text="note:N"),
    ).properties(height=len(groups) * 26)


def _grid(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw a field with a symbol for every model and machine."""
    for row in rows:
        row |= {"symbol": _STATES[row["state"]][0], "words": _words(row["state"])}
    there = [state for state in _STATES if any(row["state"] == state for row in rows)]
    scale = alt.Scale(domain=[_words(state) for state in there], range=[_STATES[state][2] for state in there])
    legend = alt.Legend(title=None, orient="bottom", columns=2, columnPadding=26, symbolType="square")
    bare: dict[str, Any] = {"title": None, "domain": False, "ticks": False}
    models = _names(rows, "model")
    machines = list(panel.machines) or _names(rows, "machine")
    base = alt.Chart().encode(
        y=alt.Y("model:N", sort=models, axis=alt.Axis(**bare)),
        x=alt.X("machine:N", sort=machines, axis=alt.Axis(orient="top", labelAngle=0, **bare)),
    )
    return _layer(
        base.mark_rect(cornerRadius=2, stroke=_INK, strokeOpacity=0.25).encode(
            color=alt.Color("words:N", scale=scale, legend=legend)
        ),
        base.mark_text(color="#111111", fontSize=11).encode(text="symbol:N"),
    ).properties(height=len(models) * (_LINE + 3))


def _words(state: State) -> str:
    symbol, words, _ = _STATES[state]
    return f"{symbol} {words}"


def _trades(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw cost against days, both logarithmic, with the number of GPUs beside each mark. A mark is filled where no
    machine is both cheaper and faster."""
    gpus = _series(panel, rows, "gpu")
    for row, (dx, dy) in zip(rows, beside(_pixels(rows)), strict=True):
        row |= {"dx": dx, "dy": dy}
    base = alt.Chart().encode(
        x=_log("cost", panel.x, [row["cost"] for row in rows], "$~s"),
        y=_log("days", panel.y, [row["days"] for row in rows], ",~r"),
    )
    marks = base.encode(color=_colour("gpu", gpus), shape=_shape("gpu", gpus))
    best, beaten, here = (f"datum.kind == '{kind}'" for kind in ("best", "beaten", "here"))
    return _layer(
        base.transform_filter(best).mark_line(color=_INK, opacity=0.35, strokeDash=[3, 3]),
        marks.transform_filter(beaten).mark_point(size=45, strokeWidth=1.5, opacity=1),
        marks.transform_filter(best).mark_point(size=60, filled=True, opacity=1),
        marks.transform_filter(here).mark_point(size=110, filled=True, opacity=1),
        base.mark_text(dx=alt.expr("datum.dx"), dy=alt.expr("datum.dy"), color=_INK).encode(text="gpus:Q"),
    ).properties(height=_UPRIGHT)


def beside(marks: Sequence[_Spot]) -> list[tuple[int, int]]:
    """Return the offset of each mark's number from the mark, in pixels: the first of eight around it that is clear of
    all other marks and numbers, else the clearest one. Offsets with no other mark nearer are preferred. Every number is
    set twice, the second time with regard to all others."""
    shifts: dict[int, tuple[int, int]] = {}
    for number in [*range(len(marks))] * 2:
        others = [*marks[:number], *marks[number + 1 :]]
        placed = [(marks[one][0] + dx, marks[one][1] + dy) for one, (dx, dy) in shifts.items() if one != number]
        fits = [_fits(marks[number], place, others, placed) for place in _AROUND]
        shifts[number] = _AROUND[fits.index(max(fits))]
    return list(shifts.values())


def _fits(mark: _Spot, shift: tuple[int, int], others: Sequence[_Spot], placed: Sequence[_Spot]) -> tuple[bool, float]:
    """Return whether a number at this offset is nearest to its own mark, and its distance from all others."""
    spot = (mark[0] + shift[0], mark[1] + shift[1])
    own = all(math.dist(spot, other) > math.hypot(*shift) for other in others)
    return own, min([_CLEAR, *(max(abs(spot[0] - x), abs(spot[1] - y)) for x, y in (*others, *placed))])


def _pixels(rows: Rows) -> list[tuple[float, float]]:
    """Return the approximate positions of the marks of trades."""

    def along(field: str, size: float) -> list[float]:
        low, high = _ends([row[field] for row in rows])
        return [size * math.log(row[field] / low) / math.log(high / low) for row in rows]

    return list(zip(along("cost", _ACROSS), (-y for y in along("days", _UPRIGHT)), strict=True))


def _lines(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw a line for every series with its points, which are hollow as many share a first point."""
    series = _series(panel, rows)
    values = [row["y"] for row in rows] + _referred(panel)
    inked = _dashes(panel, "y")
    across = sorted({row["x"] for row in rows})
    doubling = len(across) > 1 and all(after == 2 * before for before, after in pairwise(across))
    base = alt.Chart().encode(
        x=alt.X(
            "x:Q",
            title=panel.x,
            scale=alt.Scale(type="log", base=2) if doubling else alt.Scale(),
            axis=alt.Axis(values=across, format="d") if doubling else alt.Axis(format="d"),
        ),
        y=alt.Y("y:Q", title=panel.y, scale=alt.Scale(domain=[0, max(values) * 1.05])),
        color=_colour("series", series, inked=inked),
    )
    points = base.mark_point(size=45, strokeWidth=1.5, opacity=1).encode(shape=_shape("series", series, inked))
    return _layer(base.mark_line(strokeWidth=1.5), _reference(panel, "y"), points).properties(height=190)


def _stacks(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw a bar for every group, in the order of the rows, of a part for each series with its number."""
    series, groups = _series(panel, rows), _names(rows, "group")
    ends = dict.fromkeys(groups, 0.0)
    for row in sorted(rows, key=lambda row: list(series).index(row["series"])):
        row |= {"start": ends[row["group"]], "end": ends[row["group"]] + row["value"]}
        row |= {"middle": (row["start"] + row["end"]) / 2}
        ends[row["group"]] = row["end"]
    most = max(ends.values())
    for row in rows:
        row["number"] = f"{row['value']:g}" if row["value"] >= most / 18 else ""  # a narrower part has no room
    scale = alt.Scale(domain=[0, most], nice=False)
    base = alt.Chart().encode(y=alt.Y("group:N", sort=groups, title=panel.y or None, axis=alt.Axis(labelLimit=220)))
    return _layer(
        base.mark_bar(height=15).encode(
            x=alt.X("start:Q", title=panel.x, scale=scale), x2="end:Q", color=_colour("series", series, columns=3)
        ),
        base.mark_text(color="#111111").encode(x="middle:Q", text="number:N"),
    ).properties(height=len(groups) * 20, padding=_WIDE_LABELS)


def _spans(panel: Panel, rows: Rows) -> alt.LayerChart:
    """Draw a mark for every group and series, with a line from its lower to its upper bound."""
    series, groups = _series(panel, rows), _names(rows, "group")
    low, high = min(row["low"] for row in rows), max(row["high"] for row in rows)
    scale = alt.Scale(domain=[min(0.0, low), high])
    base = alt.Chart().encode(
        y=alt.Y("group:N", sort=groups, title=None, axis=alt.Axis(labelLimit=220)),
        color=_colour("series", series),
        yOffset=alt.YOffset("series:N", sort=list(series)),
    )
    return _layer(
        base.mark_rule(strokeWidth=2, opacity=0.8).encode(x=alt.X("low:Q", title=panel.x, scale=scale), x2="high:Q"),
        base.mark_point(filled=True, size=50, opacity=1).encode(
            x=alt.X("value:Q", title=panel.x), shape=_shape("series", series)
        ),
    ).properties(height=len(groups) * 26, padding=_WIDE_LABELS)


_DRAWN: dict[Draw, Callable[[Panel, Rows], alt.LayerChart]] = {
    "strips": _strips,
    "bars": _bars,
    "pairs": _pairs,
    "grid": _grid,
    "trades": _trades,
    "lines": _lines,
    "stacks": _stacks,
    "spans": _spans,
}


def _names(rows: Rows, field: str) -> list[str]:
    return list(dict.fromkeys(row[field] for row in rows))


def _series(panel: Panel, rows: Rows, field: str = "series") -> Looks:
    return looks(_names(rows, field), panel.machines)


def _layer(*layers: alt.Chart | None) -> alt.LayerChart:
    return alt.LayerChart(layer=[layer for layer in layers if layer is not None], data=_ROWS)


def _value(panel: Panel, rows: Rows, room: float = 1.0) -> alt.X:
    """Return the value axis, logarithmic for a wide range; `room` times the highest value is left free."""
    values = [row["value"] for row in rows] + _referred(panel)
    low, high = min(values), max(values)
    if low > 0 and high / low > _LOG_BEYOND:
        return _log("value", f"{panel.x}, log scale", [low, high * room], ",~r" if high < 1e6 else ".0e")
    return alt.X("value:Q", title=panel.x, scale=alt.Scale(domain=[0, high * (1 + (room - 1) / 5)]))


def _log(field: str, title: str, values: Sequence[float], format: str) -> Any:
    """Return a logarithmic axis, alt.X for costs and values, alt.Y for days, with lines at powers of ten, and between
    if few."""
    low, high = _ends(values)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 3, 4, 5, 6, 8) if high / low < 12 else (1, 2, 5) if len(powers) <= 4 else (1,)
    ticks = [step * 10.0**power for power in powers for step in steps if low <= step * 10.0**power <= high]
    channel = alt.Y if field == "days" else alt.X
    return channel(
        f"{field}:Q",
        title=title,
        scale=alt.Scale(type="log", domain=[low, high], nice=False),
        axis=alt.Axis(values=ticks, format=format, labelOverlap=True),
    )


def _ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis."""
    return min(values) / 1.35, max(values) * 1.35


def _reference(panel: Panel, axis: Axis = "x") -> alt.Chart | None:
    if panel.reference is None:
        return None
    at = alt.Chart(alt.Data(values=[{"at": panel.reference.value}]))
    return at.mark_rule(color=_INK, strokeDash=[4, 3], opacity=0.6).encode(**{axis: "at:Q"})


def _referred(panel: Panel) -> list[float]:
    return [panel.reference.value] if panel.reference else []


def _dashes(panel: Panel, axis: Axis = "x") -> Inked:
    """Return the legend entry of the reference line."""
    return [(panel.reference.name, _DASHES[axis])] if panel.reference else []


def _colour(field: str, series: Looks, columns: int = 4, inked: Inked = ()) -> alt.Color:
    chosen = [(name, look.colour) for name, look in series.items()] + [(name, _INK) for name, _ in inked]
    return alt.Color(f"{field}:N", scale=_scale(chosen), legend=_legend(series, inked, columns))


def _shape(field: str, series: Looks, inked: Inked = ()) -> alt.Shape:
    chosen = [*((name, look.shape) for name, look in series.items()), *inked]
    return alt.Shape(f"{field}:N", scale=_scale(chosen), legend=_legend(series, inked))


def _scale(chosen: Sequence[tuple[str, str]]) -> alt.Scale:
    domain, range_ = zip(*chosen, strict=True)
    return alt.Scale(domain=domain, range=range_)


def _legend(series: Looks, inked: Inked, columns: int = 4) -> alt.Legend:
    wide = sum(map(len, [*series, *dict(inked)])) >= 30
    return alt.Legend(
        title=None, orient="bottom", columns=min(2, columns) if wide else columns, columnPadding=16, symbolOpacity=1
    )


def _styled(chart: alt.LayerChart) -> alt.LayerChart:
    line: dict[str, Any] = {"domainColor": _INK, "tickColor": _INK, "domainOpacity": 0.5, "tickOpacity": 0.5}
    return chart.properties(autosize=alt.AutoSizeParams(type="fit-x", contains="padding")).configure(
        background="transparent",
        padding=3,
        axis=alt.AxisConfig(
            labelColor=_INK,
            titleColor=_INK,
            gridColor=_INK,
            gridOpacity=0.12,
            titleFontWeight="normal",
            labelFlush=False,
            labelSeparation=5,
            **line,
        ),
        axisLeft=alt.AxisConfig(titlePadding=10),  # the page's font is wider than the one used for measuring labels
        legend=alt.LegendConfig(labelColor=_INK, labelLimit=220),
        view=alt.ViewConfig(stroke=None),
        text=alt.MarkConfig(fontSize=10),
        aria=False,
    )
