"""report.md: the report as text. A sentence describes each figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..claims import CLAIMS
from ..console import code, map_strings
from ..console import markdown as escaped
from ..formats import by_machine, render
from ..predict.audit import WITHOUT_QUEUE
from ..run.corrected import MEASURED_ELSEWHERE
from .ablation import ABLATION
from .content import Content, Entry, Grid


def markdown(content: Content) -> str:
    """Return the whole file. Raise UserError where tabulate is not installed."""
    commands = [(code(words), escaped(gives)) for words, gives in content.rerun]
    to_measure = [code(figure.measured_by) for figure in content.figures]
    content = map_strings(escaped, content)
    headline = content.headline
    quoted = "\n>\n".join(f"> {sentence}" for sentence in (headline.quote, headline.beside) if sentence)
    parts = [f"# {content.title}", quoted, *headline.behind]
    if content.problems:
        parts += ["## What is wrong, and what was used", _bullets([str(problem) for problem in content.problems])]
    parts.append("## Verdicts")
    for grid in content.grids:
        parts += _grid(grid)
    if content.compared:
        parts += ["### Cells compared with the paper", render(content.compared, "markdown")]
    if content.projected:
        parts += ["### Cells projected, which verifies nothing", render(content.projected, "markdown")]
    parts.append(_bullets(content.failures))
    if content.environments:
        parts.append("## Environment")
    for ran in content.environments:
        parts += [
            f"### {ran.folder}" if ran.folder else "",
            _bullets([f"{name}: {value}" for name, value in ran.facts]),
        ]
    if content.places:
        parts += ["## Trials", _bullets(content.legend)]
    for place in content.places:
        rows = render(place.trials, "markdown")
        parts += [f"### {place.title}", " ".join(place.says), rows, _bullets(place.notes)]
    if content.methods:
        parts += ["## Methods of your own", render(content.methods, "markdown"), _bullets(content.methods_text)]
    if content.ablation:
        parts += [f"## {ABLATION}", render(content.ablation, "markdown"), _bullets(content.ablation_text)]
    if content.corrected:
        parts += ["## Days that one would really wait", *content.corrected_text]
    for grid in content.corrected:
        parts += _grid(grid)
    if content.measured_elsewhere:
        parts += [f"### {MEASURED_ELSEWHERE}", render(content.measured_elsewhere, "markdown")]
    if content.figures:
        parts.append("## Figures")
    for figure, words in zip(content.figures, to_measure, strict=True):
        origins = " and ".join(dict.fromkeys(panel.origin for panel in figure.panels)) or "not published"
        said = [figure.says]
        if figure.lacking:
            said.append(f"{figure.lacking} To measure them: {words}.")
        title = ", ".join(filter(None, (figure.name, figure.title)))
        parts.append(f"**{title}** ({origins}). {' '.join(said)}")
    if content.claims:
        parts += ["## Claims", content.claims_text]
    for title, claims in content.claims:
        parts += [f"### {title}", _bullets([_claim(row) for row in claims])]
    if content.audit:
        parts += ["## Audit", *content.audit]
    for grid in content.audit_grids:
        parts += _grid(grid)
    if content.audit_without_queue:
        parts += [f"### {WITHOUT_QUEUE}", render(content.audit_without_queue, "markdown")]
    for cause in content.causes:
        parts.append(
            f"**{cause.cause}.** For: {cause.evidence_for}. Against: {cause.evidence_against}. "
            f"{cause.state}: {cause.settled_by}."
        )
    parts += ["## Run it again", _bullets([f"{words}: {gives}" for words, gives in commands])]
    return "\n\n".join(filter(None, parts)) + "\n"


def _grid(grid: Grid) -> list[str]:
    rows = by_machine({place: _entry(entry) for place, entry in grid.entries.items()})
    legend = "; ".join(f"{symbol} {meaning}" for _, symbol, meaning in grid.kinds if symbol)
    caption = f"{grid.caption} {legend}." if legend else grid.caption
    return [f"### {grid.title}", caption, render(rows, "markdown")]


def _claim(row: dict[str, Any]) -> str:
    verdict = f"{CLAIMS[row['verdict']][0]} {row['verdict'].replace('_', ' ')}"
    recomputed = f", recomputed {row['recomputed']}" if row["recomputed"] else ""
    true = f" (by true days {row['by true days']})" if row["by true days"] else ""
    text = f"{row['claim']}: {verdict}. Published {row['published']}{recomputed}{true}; {row['why']}"
    return f"{text} ({row['where']}; {row['id']})"


def _entry(entry: Entry) -> str:
    beside = f" / {entry.beside}" if entry.beside else ""
    measured = f" ({entry.below}{beside})" if entry.below else ""
    return f"{entry.text}{measured} {entry.symbol}".strip()


def _bullets(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
