"""Writing of a report into its folder: report.md, and the page, which a separate process draws.

The drawing library is native code that can crash its process when memory is short or on an unusual string. The report
is written despite that.
"""

from __future__ import annotations

import pickle
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from .. import command, files
from ..console import UserError, map_strings, visible
from ..formats import end_of, shell_words
from ..installation import way_to_install
from ..record import DEFAULT
from ..run.results import PAGE, REPORT, TRIALS, lack
from .content import WITHOUT_TRIALS, Content
from .markdown import markdown
from .survey import PAGE as SURVEY_PAGE
from .survey import SurveyPage

_DRAWING = {"altair": "altair", "vl_convert": "vl-convert-python", "jinja2": "jinja2"}


@dataclass(frozen=True)
class Written:
    """The path of a report's Markdown; `message` says where the page is, or why it is not drawn."""

    text: Path
    message: str

    def markdown(self) -> str:
        """Return the report's Markdown."""
        return self.text.read_text(encoding="utf-8").rstrip("\n")


def refuse_to_lose(content: Content, runs: Sequence[Path], folder: Path) -> None:
    """Raise UserError where the report of runs that lost their trials would replace one with trials in the folder."""
    there = folder / REPORT
    if content.title != WITHOUT_TRIALS or not there.is_file():
        return
    with there.open(encoding="utf-8", errors="replace") as file:
        if file.readline().strip() == f"# {WITHOUT_TRIALS}":
            return
    run = runs[0]
    what = f"is {lack(run)}" if lack(run) else "has no whole record"
    raise UserError(
        f"{run / TRIALS} {what}: a report of no trial would take the place of {there}, which says more; put the "
        "trials back, or name another folder with --out"
    )


def write(content: Content, folder: Path, draw: bool = True, again: Sequence[object] = ()) -> Written:
    """Write both files, each complete or not at all; an old page is removed where no new one is drawn. `again` are the
    arguments that write them again, if not those of a report of the folder.

    Raise UserError where the folder cannot be written.
    """
    files.inside(folder, REPORT, PAGE)
    content = map_strings(visible, content)
    text = files.replace(folder / REPORT, markdown(content))
    files.remove(folder / PAGE)  # the old page differs, and drawing takes seconds
    missing = [package for module, package in _DRAWING.items() if find_spec(module) is None]
    way = f"run: {command()} {shell_words(again or ['report', folder])}"
    way += "" if content.clock == DEFAULT else f" --by {content.clock}"
    if missing or not draw:
        first = f"install {', '.join(missing)} ({way_to_install('report')}), then " if missing else ""
        return Written(text, f"the report is {text}; for the page with the figures {first}{way}")
    try:
        page = drawn(content)
    except NotDrawnError as error:
        return Written(text, f"the report is {text}; its page was not drawn: {error}; once that is fixed {way}")
    path = files.replace(folder / PAGE, page)
    return Written(text, f"the report is {path}")


def write_survey(content: SurveyPage, folder: Path) -> str:
    """Write the page of a survey into a folder, and return the sentence that says where it is. Raise UserError where it
    cannot be drawn or written."""
    files.inside(folder, SURVEY_PAGE)
    if missing := [package for module, package in _DRAWING.items() if find_spec(module) is None]:
        raise UserError(
            f"--out: the page is drawn by {', '.join(missing)}, not installed here: {way_to_install('report')}"
        )
    try:
        page = drawn(map_strings(visible, content))
    except NotDrawnError as error:
        raise UserError(f"{folder / SURVEY_PAGE} was not drawn: {error}") from None
    return f"the page is {files.replace(folder / SURVEY_PAGE, page)}"


_TIME_LIMIT = 600  # seconds; a page takes a few
# Code of the drawing process. Its parent sends it sys.path, then the content.
_DRAW = """
import os, pickle, resource, sys
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what libraries print is no part of the page
# Where it is killed it leaves no file of its memory.
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
sys.path[:] = pickle.load(sys.stdin.buffer)
try:
    from repro.console import one_line
    from repro.report.page import page
    drawn = page(pickle.load(sys.stdin.buffer))
except Exception as error:
    sys.exit(one_line(error))
out.write(drawn.encode(errors="surrogatepass"))
out.close()
"""


class NotDrawnError(Exception):
    """The page could not be drawn. The message is the short reason."""


def drawn(content: Content | SurveyPage) -> str:
    """Return the page. Raise NotDrawnError where the process that draws it fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DRAW],
            input=pickle.dumps(sys.path) + pickle.dumps(content),
            capture_output=True,
            timeout=_TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise NotDrawnError(f"it took longer than {_TIME_LIMIT} s") from None
    except OSError as error:
        raise NotDrawnError(f"no process could be started ({error.strerror})") from None
    if done.returncode == 0:
        return done.stdout.decode(errors="surrogatepass")
    said = done.stderr.decode(errors="replace").strip().splitlines()
    reason = said[-1] if said and done.returncode > 0 else f"the process that draws it {end_of(done.returncode)}"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    short = "" if limit == resource.RLIM_INFINITY else f", with its memory limited to {limit >> 20} MiB by ulimit -v"
    raise NotDrawnError(f"{reason}{short}")
