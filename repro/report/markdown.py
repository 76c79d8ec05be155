"""report.md: the report as text. A sentence describes each figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..claims import CLAIMS
from ..console import code
from ..console import markdown as escaped
from ..formats import by_machine, render
from .blocks import Block, Bullets, Entry, Facts, Figure, Fold, Grid, Heading, Report, Sentence, Table


def markdown(report: Report) -> str:
    """Return the whole file. Raise UserError where tabulate is not installed."""
    leading = "\n>\n".join(f"> {escaped(sentence)}" for sentence in report.answer)
    parts = [f"# {escaped(report.title)}", leading, *map(_block, [Bullets(report.notes), *report.blocks])]
    return "\n\n".join(filter(None, parts)) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'##' if block.id else '###'} {escaped(block.text)}"
        case Sentence():
            return escaped(block.text)
        case Bullets():
            return _bullets([escaped(line) for line in block.lines])
        case Facts():
            named = ((code(name) if block.commands else escaped(name), escaped(value)) for name, value in block.pairs)
            return _bullets([f"{name}: {value}" for name, value in named])
        case Table():
            rows = _bullets(map(_claim, block.rows)) if "claim" in block.rows[0] else render(block.rows, "markdown")
            return f"### {escaped(block.title)}\n\n{rows}" if block.folded else rows
        case Fold():
            summary = f" ({escaped(block.summary)})" if block.summary else ""
            return "\n\n".join([f"### {escaped(block.title)}{summary}", *map(_block, block.blocks)])
        case Grid():
            return _grid(block)
        case Figure():
            return _figure(block)


def _grid(grid: Grid) -> str:
    rows = by_machine({place: _entry(entry) for place, entry in grid.entries.items()})
    legend = "; ".join(f"{symbol} {meaning}" for _, symbol, meaning in grid.legend if symbol)
    caption = f"{grid.caption} {legend}." if legend else grid.caption
    return f"### {escaped(grid.title)}\n\n{escaped(caption)}\n\n{render(rows, 'markdown')}"


def _entry(entry: Entry) -> str:
    beside = f" / {entry.beside}" if entry.beside else ""
    measured = f" ({entry.below}{beside})" if entry.below else ""
    return f"{entry.text}{measured} {entry.symbol}".strip()


def _figure(figure: Figure) -> str:
    origins = " and ".join(dict.fromkeys(panel.origin for panel in figure.panels)) or "not published"
    lacking = f" {escaped(figure.lacking)} To measure them: {code(figure.measured_by)}." if figure.lacking else ""
    title = escaped(", ".join(filter(None, (figure.name, figure.title))))
    return f"**{title}** ({origins}). {escaped(figure.says)}{lacking}"


def _claim(row: dict[str, Any]) -> str:
    verdict = f"{CLAIMS[row['verdict']][0]} {row['verdict'].replace('_', ' ')}"
    recomputed = f", recomputed {row['recomputed']}" if row["recomputed"] else ""
    true = f" (by true days {row['by true days']})" if row["by true days"] else ""
    text = f"{row['claim']}: {verdict}. Published {row['published']}{recomputed}{true}; {row['why']}"
    return escaped(f"{text} ({row['where']}; {row['id']})")


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
