"""report.html and survey.html: each one file that needs no network, no script and no library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from .. import __version__
from ..claims import CLAIMS
from ..formats import cell_text, counted
from ..paper.tables import COUNTS
from ..printout import MOST_NOTES
from .blocks import (
    Block,
    Bullets,
    Entry,
    Facts,
    Figure,
    Fold,
    Grid,
    Heading,
    Report,
    Rows,
    Sentence,
    Table,
)
from .charts import chart
from .grids import AUDIT, KINDS
from .html import Html, h, text

# The symbol before a coloured word.
_SYMBOLS = {kind: symbol for kind, (symbol, _) in (KINDS | AUDIT | CLAIMS).items()} | {
    "ok": "✓",
    "out_of_memory": "✗",
    "unsupported": "—",
    "crashed": "!",
    "timed_out": "…",
    "skipped": "»",
    "interrupted": "…",
    "not_measured": "?",
}
_PAPER = "$100K or 100 Days: Trade-offs when Pre-Training with Academic Resources"


def page(report: Report) -> str:
    """Return the page of a report as HTML."""
    tiles = (h("div", h("dt", name), h("dd", number), class_=kind) for kind, name, number in report.counts)
    first, *others = report.answer or [""]
    head = [
        *([h("blockquote", first, *(h("small", line) for line in others))] if first else []),
        *([h("dl", *tiles, class_="tiles")] if report.counts else []),
        h("ul", *(h("li", line) for line in report.notes[:MOST_NOTES])),
    ]
    if more := report.notes[MOST_NOTES:]:
        head.append(_details(counted(len(more), "more note"), [_block(Bullets(more))]))
    over = f"$100K or 100 Days, run again by repro {__version__}"
    sources = "Every number here was measured, computed, or read from a file of expected/ that names its source."
    return _page(over, report.title, head, report.blocks, sources)


def survey_page(headline: str, blocks: Sequence[Block]) -> str:
    """Return the page of a survey as HTML."""
    sources = "Answers are private: this page holds counts of people alone."
    over = f"The survey of $100K or 100 Days, asked again and counted by repro {__version__}"
    return _page(over, headline, [], blocks, sources)


def _page(over: str, title: str, head: Sequence[Html], blocks: Sequence[Block], sources: str) -> str:
    """Return a page whose sections begin at headings with an id; blocks before the first stand in its head."""
    starts = [at for at, block in enumerate(blocks) if isinstance(block, Heading) and block.id]
    headings = [block for block in blocks if isinstance(block, Heading) and block.id]
    unbroken = title.replace(" x ", "\u00a0x\u00a0").replace("-", "\u2011")
    figures = [block for block in blocks if isinstance(block, Figure)]  # their charts have ids of their own
    drawn = [_figure(each, figures.index(each) + 1) if isinstance(each, Figure) else _block(each) for each in blocks]
    sections = [
        h("section", *drawn[start:end], id=heading.id)
        for heading, start, end in zip(headings, starts, [*starts[1:], len(blocks)], strict=True)
    ]
    links = (h("a", each.short or each.text, href=f"#{each.id}") for each in headings)
    authors = "The paper: Khandelwal, Yun, Nayak, Merullo, Bach, Sun and Pavlick, "
    style = Html(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))
    top = [h("div", over, class_="over"), h("h1", unbroken), *head, *drawn[: starts[0]]]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            h("title", title),
            h("style", style),
            "</head><body>",
            h("header", *top, h("nav", *links, aria_label="sections")),
            h("main", *sections),
            h("footer", h("p", authors, h("i", _PAPER), f" (2024). {sources}")),
            "</body></html>\n",
        ]
    )


def _block(block: Block) -> Html:
    match block:
        case Heading():
            return h("h2" if block.id else "h3", block.text)
        case Sentence():
            return h("p", block.text)
        case Bullets():
            return h("ul", *(h("li", line) for line in block.lines))
        case Facts(commands=True):
            pairs = (h("div", h("code", words), h("span", gives)) for words, gives in block.pairs)
            return h("div", *pairs, class_="commands")
        case Facts():
            return h("dl", *chain(*((h("dt", name), h("dd", value)) for name, value in block.pairs)), class_="facts")
        case Table():
            table = _table(block.title, block.rows, "rows stack" if block.stacked else "rows")
            return _details(block.title, [table], counted(len(block.rows), "row")) if block.folded else table
        case Fold():
            return _details(block.title, map(_block, block.blocks), block.summary)
        case Grid():
            return _grid(block)
        case Figure():
            return _figure(block, 0)


def _details(title: str, inside: Any, summary: str = "") -> Html:
    return h("details", h("summary", title, " ", h("span", summary)), *inside)


def _region(name: str, table: Html, class_: str = "scroll") -> Html:
    return h("div", table, class_=class_, tabindex=0, role="region", aria_label=name)


def _table(name: str, rows: Rows, class_: str | None = None) -> Html:
    """Return rows as a table; columns that have only numbers are aligned to the right."""
    numeric = {
        name: "number" if all(isinstance(row[name], (int, float)) or row[name] is None for row in rows) else None
        for name in rows[0]
    }
    head = (h("th", _broken(name), scope="col", class_=numeric[name]) for name in rows[0])
    body = (
        h("tr", *(h("td", _shown(name, value), data_name=name, class_=numeric[name]) for name, value in row.items()))
        for row in rows
    )
    return _region(name, h("table", h("thead", h("tr", *head)), h("tbody", *body), class_=class_))


def _shown(name: str, value: Any) -> Html:
    if name.startswith(("status", "verdict")):
        return h("span", f"{_SYMBOLS.get(value, '')} {value.replace('_', ' ')}", class_=f"chip {value}")
    return _broken(cell_text(value, nothing="—"))


def _broken(words: str) -> Html:
    """Return text whose lines may break at signs without blanks."""
    return Html(text(words).replace("+", "+<wbr>").replace("/", "/<wbr>"))


def _grid(grid: Grid) -> Html:
    """Return the table, and for narrow screens a block for each GPU, those with a coloured field first."""
    coloured = {gpu for (_, gpu, _), entry in grid.entries.items() if entry.symbol}
    blocks = sorted(grid.gpus, key=lambda gpu: gpu not in coloured)
    narrow = (_region(f"{grid.title}, {gpu}", _of_gpus(grid, [gpu]), "scroll narrow") for gpu in blocks)
    key = (h("li", h("i", symbol or "\u00a0", class_=kind), meaning) for kind, symbol, meaning in grid.legend)
    parts = [
        h("h3", grid.title),
        h("p", grid.caption, class_="soft"),
        _region(grid.title, _of_gpus(grid, grid.gpus), "scroll wide"),
        *narrow,
        h("ul", *key, class_="key"),
    ]
    return Html("".join(parts))


def _of_gpus(grid: Grid, gpus: Sequence[str]) -> Html:
    names = (h("th", gpu, class_="first", scope="colgroup", colspan=len(COUNTS)) for gpu in gpus)
    counts = (h("th", count, scope="col", class_=_first(at)) for _ in gpus for at, count in enumerate(COUNTS))
    corner = h("th", h("span", "model", class_="hidden"), scope="col", rowspan=2)
    body = (
        h("tr", h("th", model, scope="row"), *(_field(at, entry) for at, entry in enumerate(entries)))
        for model, entries in grid.lines(gpus)
    )
    return h("table", h("thead", h("tr", corner, *names), h("tr", *counts)), h("tbody", *body), class_="grid")


def _first(at: int) -> str | None:
    return None if at % len(COUNTS) else "first"


def _field(at: int, entry: Entry) -> Html:
    parts = [
        Html(f"{h('b', entry.symbol)} ") if entry.symbol and not entry.below else "",
        entry.text,
        h("b", f"{entry.symbol} {entry.below}", class_="below") if entry.below else "",
        h("span", entry.beside, class_="beside") if entry.beside else "",
        h("span", f", {entry.kind.replace('_', ' ')}", class_="hidden"),
    ]
    return h("td", *parts, class_=" ".join(filter(None, (entry.kind, _first(at)))), title=entry.message)


def _figure(figure: Figure, number: int) -> Html:
    name = [h("span", figure.name), " "] if figure.name else []
    panels = h("div", *_panels(figure, number), class_="panels many" if len(figure.panels) > 4 else "panels")
    how = [f"{figure.lacking} To measure them: ", h("code", figure.measured_by)]
    return h(
        "figure",
        h("h3", *name, figure.title),
        h("figcaption", figure.says),
        *([panels] if figure.panels else []),
        *([h("p", *how, class_="lacking")] if figure.lacking else []),
    )


def _panels(figure: Figure, number: int) -> Iterator[Html]:
    for at, panel in enumerate(figure.panels, 1):
        numbers = h("summary", "The numbers", h("span", f" of {panel.title}", class_="hidden"))
        yield h(
            "div",
            h("h4", panel.title, h("span", panel.origin, class_=f"origin {panel.origin}")),
            chart(panel, f"f{number}-{at}"),
            h("p", f"Source: {panel.source}."),
            h("details", numbers, _table(f"the numbers of {panel.title}", panel.table), class_="numbers"),
            class_="panel",
        )
