"""report.html and survey.html: each one file that needs no network and is readable without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from .. import __version__
from ..claims import CLAIMS
from ..formats import cell_text
from ..paper.tables import COUNTS
from ..predict.audit import WITHOUT_QUEUE
from ..run.corrected import MEASURED_ELSEWHERE
from .charts import svg
from .content import AUDIT, VERDICTS, Content
from .panels import numbers, unit
from .survey import SurveyPage

# The symbol before a coloured word.
_SYMBOLS = {kind: symbol for kind, (symbol, _) in (VERDICTS | AUDIT | CLAIMS).items()} | {
    "ok": "✓",
    "out_of_memory": "✗",
    "unsupported": "—",
    "crashed": "!",
    "timed_out": "…",
    "skipped": "»",
    "interrupted": "…",
    "not_measured": "?",
}


def page(content: Content | SurveyPage) -> str:
    """Return the page of a report, or of a survey, as HTML."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": partial(cell_text, nothing="—"), "numeric": _numeric}
    template = "survey.html" if isinstance(content, SurveyPage) else "report.html"
    return environment.get_template(template).render(
        content=content,
        version=__version__,
        counts=COUNTS,
        measured_elsewhere=MEASURED_ELSEWHERE,
        without_queue=WITHOUT_QUEUE,
        symbols=_SYMBOLS,
        draw=lambda panel, id: Markup(svg(panel, id)),
        numbers=numbers,
        unit=unit,
    )


def _numeric(rows: Sequence[dict[str, Any]], column: str) -> bool:
    """Return whether a column has only numbers, which are aligned to the right."""
    return all(isinstance(row[column], (int, float)) or row[column] is None for row in rows)
