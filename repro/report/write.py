"""Puts a report into a folder: report.md always, report.html where the libraries that draw it are installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .. import command, files
from ..clocks import DEFAULT
from ..devices import Device
from ..environment import Environment
from ..errors import UserError
from ..escape import each, visible
from ..formats import Format
from ..installation import way_to_install
from ..reading import Reading
from ..results import PAGE, REPORT, TRIALS, lack
from ..trial import Record
from ..units import shell_words
from ..verdict import Verdict
from .content import WITHOUT_TRIALS, Content
from .drawing import NotDrawnError, drawn
from .markdown import markdown
from .text import report

_DRAWING = {"altair": "altair", "vl_convert": "vl-convert-python", "jinja2": "jinja2"}


@dataclass(frozen=True)
class Written:
    """Where a report's Markdown is; `told` says where the page is, or why it is not drawn."""

    text: Path
    told: str


def payload(
    written: Written,
    records: Sequence[Record],
    verdicts: Sequence[Verdict],
    devices: Sequence[Device] | None,
    format: Format,
    runs: Sequence[Reading] = (),
    environments: Sequence[Environment] = (),
) -> str:
    """What goes to stdout beside the files: in Markdown it is report.md. `runs` are those of the records,
    `environments` what they ran on."""
    if format == "markdown":
        return written.text.read_text(encoding="utf-8").rstrip("\n")
    return report(records, verdicts, devices, format, runs, environments)


def refuse_to_lose(content: Content, runs: Sequence[Path], folder: Path) -> None:
    """Raises UserError where the report of runs that lost their trials would replace one of trials in the folder."""
    there = folder / REPORT
    if content.title != WITHOUT_TRIALS or not there.is_file():
        return
    with there.open(encoding="utf-8", errors="replace") as file:
        if file.readline().strip() == f"# {WITHOUT_TRIALS}":
            return
    run = runs[0]
    what = f"is {lack(run)}" if lack(run) else "has no whole record"
    raise UserError(
        f"{run / TRIALS} {what}: a report of no trial would take the place of {there}, which tells more; put the "
        "trials back, or name another folder with --out"
    )


def write(content: Content, folder: Path, draw: bool = True, again: Sequence[object] = ()) -> Written:
    """Writes both files, each whole or not at all; a page that is not drawn does not stay from before. `again` are the
    arguments that write them again, where these are not those of a report of the folder.

    Raises UserError where the folder cannot be written.
    """
    files.inside(folder, REPORT, PAGE)
    content = each(visible, content)
    text = files.replace(folder / REPORT, markdown(content))
    files.remove(folder / PAGE)  # the page of before says something else, and to draw takes seconds
    missing = [package for module, package in _DRAWING.items() if find_spec(module) is None]
    way = f"run: {command()} {shell_words(again or ['report', folder])}"
    way += "" if content.clock == DEFAULT else f" --clock {content.clock}"
    if missing or not draw:
        first = f"install {', '.join(missing)} ({way_to_install()}), then " if missing else ""
        return Written(text, f"the report is {text}; for the page with the figures {first}{way}")
    try:
        page = drawn(content)
    except NotDrawnError as error:
        return Written(text, f"the report is {text}; its page was not drawn: {error}; once that is fixed {way}")
    path = files.replace(folder / PAGE, page)
    return Written(text, f"the report is {path}")
