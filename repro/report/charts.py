"""Charts as SVG, without scripts, fonts or libraries: dots, bars, fields, and marks of two values.

Text and axes have the colour of the surrounding text, for light pages, dark ones and paper. Colour is never the only
distinction: marks differ in shape, fields have a symbol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from textwrap import wrap

from ..paper.gpus import paper_gpus
from .blocks import Kind, Panel
from .html import Html, h

_WIDTH = 360  # that of a phone: text keeps its size there
_RIGHT, _AXIS = 12, 34  # pixels right of the axis, and below the chart for ticks and title
_CHAR = 5.9  # pixels of a character, rather more than less
_LANE = 11  # pixels of a series among the dots of a group
_LOG_BEYOND = 30  # largest over smallest value, above which the axis is logarithmic
_UPRIGHT = 210  # height of a chart of two values
_STATES = {
    "feasible": "✓",
    "naive": "✓",
    "free lunch": "F",
    "memory saving": "M",
    "infeasible": "✗",
    "lost": "?",
    "not known": "?",
}
_GLYPHS = "●■▲◆✚▼"
# Outlines within -1 to 1.
_SHAPES = (
    "M-1,0A1,1,0,1,0,1,0A1,1,0,1,0,-1,0Z",
    "M-.9,-.9H.9V.9H-.9Z",
    "M0,-1L1,.8H-1Z",
    "M0,-1.2L1,0L0,1.2L-1,0Z",
    "M-.35,-1H.35V-.35H1V.35H.35V1H-.35V.35H-1V-.35H-.35Z",
    "M0,1L1,-.8H-1Z",
)
# The place among colours (style.css) and shapes of series with a name of their own, in the order of legends.
_LOOKS = {
    "free lunch alone": 5,
    "original training": 1,
    "best settings": 0,
    "best settings, 8 A100": 0,
    "analytic estimate": 1,
    "faster": 0,
    "slower": 1,
    "median": 3,
    "worst": 1,
    "ZeRO": 3,
    "no sharding": 4,
    "FSDP": 2,
    "paper": 1,
    "paper, figure 9": 1,
    "closed form": 0,
    "data sheet": 0,
    "people": 0,
    "Hours": 5,
    "Days": 2,
    "Weeks": 4,
    "Months": 3,
    "Indefinitely": 1,
    "Other": 0,
    "naively": 4,
    "with the free lunch": 5,
    "with everything": 2,
}


def looks(series: Iterable[str], machines: Sequence[str]) -> dict[str, int]:
    """Return the place of each of these series among colours and shapes, in the order of legends. A machine's is its
    place among the run's `machines`."""
    every = (
        _LOOKS | {gpu: at for at, gpu in enumerate(paper_gpus())} | {each: at % 6 for at, each in enumerate(machines)}
    )
    return {name: every[name] for name in sorted(set(series), key=list(every).index)}


def chart(panel: Panel, id: str = "panel") -> Html:
    """Return the panel as an SVG element with its legend; `id` is that of its name and description for screen
    readers."""
    marks, height, legend = _DRAWN[panel.kind](panel)
    axes = " by ".join(filter(None, (panel.y, panel.x)))
    drawn = h(
        "svg",
        h("title", f"{panel.title}: {axes} ({panel.origin})", id=f"{id}-name"),
        h("desc", "The numbers follow as a table.", id=f"{id}-text"),
        *marks,
        viewBox=f"0 0 {_WIDTH} {round(height)}",
        role="img",
        aria_labelledby=f"{id}-name",
        aria_describedby=f"{id}-text",
    )
    return Html(drawn + h("p", *legend, class_="legend"))


_Drawn = tuple[list[Html], float, list[Html]]


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high` that lies between two pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = map(math.log if self.log else float, (self.low, self.high, value))
        return self.start + (self.end - self.start) * (at - low) / ((high - low) or 1)

    @property
    def ticks(self) -> list[float]:
        """Return the values of the ticks: powers of ten where logarithmic, and between if few."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 3, 4, 5, 6, 8) if self.high / self.low < 12 else (1, 2, 5) if len(powers) <= 4 else (1,)
            every = [step * 10.0**power for power in powers for step in steps]
        else:
            size = 10.0 ** math.floor(math.log10((self.high - self.low) or 1))
            step = size * next(part for part in (0.2, 0.5, 1, 2, 5) if (self.high - self.low) / (part * size) <= 6)
            every = [step * number for number in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [tick for tick in every if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]


def _short(value: float, money: bool = False) -> str:
    if money:
        return f"${value / 1000:,g}k" if value >= 1000 else f"${value:g}"
    return f"{value:.0e}".replace("e+", "e") if value >= 1e6 else f"{value:,g}"


def _text(at: float, below: float, words: str, anchor: str = "middle", **more: str) -> Html:
    return h("text", words, x=f"{at:.1f}", y=f"{below:.1f}", text_anchor=anchor, **more)


def _line(start: tuple[float, float], end: tuple[float, float], class_: str) -> Html:
    return h("path", d=f"M{start[0]:.1f},{start[1]:.1f}L{end[0]:.1f},{end[1]:.1f}", class_=class_)


def _mark(look: int, at: float, below: float, hollow: bool = False) -> Html:
    place = f"translate({at:.1f},{below:.1f})scale(3.4)"
    return h("path", d=_SHAPES[look], transform=place, class_=f"c{look}{' hollow' if hollow else ''}")


def _key(panel: Panel, *others: tuple[str, str]) -> list[Html]:
    """Return the legend of the panel's series, and of other marks: glyph and name."""
    named = looks((row.series for row in panel.rows), panel.machines).items()
    glyphs = [h("span", h("i", _GLYPHS[look], class_=f"c{look}"), name) for name, look in named]
    inked = [*others, *([("┆", panel.reference[1])] if panel.reference else [])]
    return [*glyphs, *(h("span", h("i", glyph), name) for glyph, name in inked)]


def _across(scale: Scale, top: float, bottom: float, title: str, money: bool = False) -> list[Html]:
    """Return a horizontal axis with its grid; ticks whose numbers would touch have none."""
    drawn, last = [], -math.inf
    for tick in scale.ticks:
        at, words = scale(tick), _short(tick, money)
        drawn.append(_line((at, top), (at, bottom), "rule"))
        if at - len(words) * _CHAR / 2 > last + 6:
            drawn.append(_text(at, bottom + 13, words))
            last = at + len(words) * _CHAR / 2
    middle = max(len(title) * _CHAR / 2, min((scale.start + scale.end) / 2, _WIDTH - len(title) * _CHAR / 2))
    return [*drawn, _text(middle, bottom + 29, title)]


def _labels(panel: Panel) -> tuple[list[str], float]:
    """Return the groups in order, and the pixels that their names take."""
    groups = list(dict.fromkeys(str(row.y) for row in panel.rows))
    return groups, 8 + _CHAR * max(len(_cut(group)) for group in groups)


def _cut(name: str) -> str:
    return name if len(name) <= 34 else f"{name[:33]}…"


def _values(panel: Panel, left: float, right: float) -> Scale:
    """Return the scale of the value axis, logarithmic for a wide range."""
    found = [float(row.x) for row in panel.rows]
    found += [panel.reference[0]] if panel.reference else []
    low, high = min(found), max(found)
    if low > 0 and high / low > _LOG_BEYOND:
        return Scale(low / 1.35, high * 1.35, left, right, log=True)
    return Scale(min(0.0, low), max(high, 0.0) or 1.0, left, right)


def _dots(panel: Panel) -> _Drawn:
    """Draw a dot for every row, those of a series on a line below the others, and the mean where a line has several."""
    groups, left = _labels(panel)
    look = looks((row.series for row in panel.rows), panel.machines)
    room = _CHAR * max(len(row.label) for row in panel.rows)
    scale = _values(panel, left, _WIDTH - _RIGHT - room)
    tall = 8 + _LANE * len(look)
    bottom = float(len(groups) * tall)
    title = f"{panel.x}, log scale" if scale.log else panel.x
    drawn, means = _across(scale, 0, bottom, title), False
    if panel.reference:
        drawn.append(_line((scale(panel.reference[0]), 0), (scale(panel.reference[0]), bottom), "dashed"))
    for at, group in enumerate(groups):
        drawn.append(_text(left - 6, at * tall + tall / 2 + 4, _cut(group), "end"))
        for lane, series in enumerate(look):
            rows = [row for row in panel.rows if (str(row.y), row.series) == (group, series)]
            below = at * tall + 4 + _LANE * (lane + 0.5)
            for row in rows:
                drawn.append(_mark(look[series], scale(float(row.x)), below))
                if row.label:
                    drawn.append(_text(scale(float(row.x)) + 7, below + 4, row.label, "start"))
            if len(rows) > 1:
                mean, means = scale(fmean(float(row.x) for row in rows)), True
                drawn.append(_line((mean, below - 6), (mean, below + 6), "mean"))
    return drawn, bottom + _AXIS, _key(panel, *([("|", "mean")] if means else []))


def _bars(panel: Panel) -> _Drawn:
    """Draw a bar for every group, of a part for each of its rows. The number of a part is in its middle, that of a
    whole bar to its right, or to the right of zero for a negative one."""
    groups, left = _labels(panel)
    look = looks((row.series for row in panel.rows), panel.machines)
    parts = {group: [row for row in panel.rows if str(row.y) == group] for group in groups}
    stacked = any(len(rows) > 1 for rows in parts.values())
    sums = [sum(float(row.x) for row in rows) for rows in parts.values()]
    scale = Scale(min(0.0, *sums), max(0.0, *sums), left, _WIDTH - _RIGHT - (0 if stacked else 36))
    drawn = _across(scale, 0, len(groups) * 18.0, panel.x)
    for at, (group, rows) in enumerate(parts.items()):
        drawn.append(_text(left - 6, at * 18 + 13, _cut(group), "end"))
        end = 0.0
        for row in sorted(rows, key=lambda row: list(look).index(row.series)):
            start, end = end, end + float(row.x)
            low, high = sorted((scale(start), scale(end)))
            outline = f"M{low:.1f},{at * 18 + 3}H{high:.1f}V{at * 18 + 15}H{low:.1f}Z"
            drawn.append(h("path", d=outline, class_=f"c{look[row.series]}"))
            words = f"{round(float(row.x), 2):g}".replace("-", "\N{MINUS SIGN}")
            if not stacked:
                drawn.append(_text(max(high, scale(0)) + 4, at * 18 + 13, words, "start"))
            elif high - low > _CHAR * len(words):
                drawn.append(_text((low + high) / 2, at * 18 + 13, words, class_="on"))
    return drawn, len(groups) * 18 + _AXIS, _key(panel)


def _fields(panel: Panel) -> _Drawn:
    """Draw a field with a symbol for every model and machine."""
    groups, left = _labels(panel)
    machines = list(panel.machines) or list(dict.fromkeys(str(row.x) for row in panel.rows))
    wide = (_WIDTH - 2 - left) / len(machines)
    letters = max(1, int(wide / _CHAR))
    heads = [wrap(machine, letters, break_long_words=False, break_on_hyphens=False) for machine in machines]
    top = 6 + 12.0 * max(map(len, heads))
    drawn = []
    for at, head in enumerate(heads):
        drawn += [_text(left + (at + 0.5) * wide, 10 + 12 * line, words) for line, words in enumerate(head)]
    drawn += [_text(left - 6, top + at * 20 + 14, _cut(group), "end") for at, group in enumerate(groups)]
    for row in panel.rows:
        start, below = left + machines.index(str(row.x)) * wide, top + groups.index(str(row.y)) * 20
        state = row.series.replace(" ", "-")
        box = {"x": f"{start + 1:.1f}", "y": f"{below + 1:.1f}", "width": f"{wide - 2:.1f}", "height": "18", "rx": "2"}
        drawn.append(h("rect", class_=f"state {state}", **box))
        drawn.append(_text(start + wide / 2, below + 14, _STATES[row.series], class_="on"))
    there = [state for state in _STATES if any(row.series == state for row in panel.rows)]
    key = [h("span", h("i", _STATES[each], class_=f"state {each.replace(' ', '-')}"), each) for each in there]
    return drawn, top + len(groups) * 20 + 4, key


def _marks(panel: Panel) -> _Drawn:
    """Draw a mark for every row by two values on logarithmic axes, its label beside it. A mark that has a rival, which
    its note says, is hollow; a dotted line joins those that have none. Lines join the marks of each series."""
    look = looks((row.series for row in panel.rows), panel.machines)
    xs, ys = (
        [float(value) for value in values] for values in zip(*((row.x, row.y) for row in panel.rows), strict=True)
    )
    across = Scale(min(xs) / 1.35, max(xs) * 1.35, 40, _WIDTH - _RIGHT, log=True)
    up = Scale(min(ys) / 1.35, max(ys) * 1.35, 18 + _UPRIGHT, 18, log=True)
    drawn = _across(across, up.end, up.start, panel.x, money=panel.kind == "marks") + _up(up, panel.y)
    spots = [(across(x), up(y)) for x, y in zip(xs, ys, strict=True)]
    best = sorted(spot for row, spot in zip(panel.rows, spots, strict=True) if row.note == "no")
    drawn += [_line(one, other, "frontier") for one, other in pairwise(best)]
    if panel.kind == "lines":
        for (one, spot), (other, end) in pairwise(zip(panel.rows, spots, strict=True)):
            if one.series == other.series:
                drawn.append(_line(spot, end, f"c{look[one.series]} span"))
    for row, (at, below), (dx, dy) in zip(panel.rows, spots, beside(spots), strict=True):
        drawn.append(_mark(look[row.series], at, below, hollow=row.note == "yes"))
        drawn.append(_text(at + dx, below + dy + 3.5, row.label, class_="number"))
    return drawn, up.start + _AXIS, _key(panel)


def _up(scale: Scale, title: str) -> list[Html]:
    """Return a vertical axis, its title above it."""
    drawn = [_text(0, 10, f"↑ {title}", "start")]
    for tick in scale.ticks:
        drawn += [_line((40, scale(tick)), (_WIDTH - _RIGHT, scale(tick)), "rule")]
        drawn += [_text(35, scale(tick) + 4, _short(tick), "end")]
    return drawn


_Spot = tuple[float, float]
# Upper right first. A number is within 8 pixels of its mark, and so nearer to it than to marks clear of it.
_AROUND = [(7, -7), (8, 0), (7, 7), (0, -9), (0, 9), (-7, -7), (-8, 0), (-7, 7)]
_CLEAR = 11.0


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


_DRAWN: dict[Kind, Callable[[Panel], _Drawn]] = {
    "dots": _dots,
    "bars": _bars,
    "fields": _fields,
    "marks": _marks,
    "lines": _marks,
}
