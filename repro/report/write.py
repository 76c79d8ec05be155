"""Writing of a report into its folder: report.md and report.html."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import datafile, files
from ..console import UserError
from ..run.results import CERTIFICATE, PAGE, REPORT, TRIALS, lack
from .blocks import Block, Report
from .markdown import markdown
from .page import page, survey_page
from .sections import WITHOUT_TRIALS
from .survey import PAGE as SURVEY_PAGE


def refuse_to_lose(report: Report, runs: Sequence[Path], folder: Path) -> None:
    """Raise UserError where the report of runs that lost their trials would replace one with trials in the folder."""
    there = folder / REPORT
    if report.title != WITHOUT_TRIALS or not there.is_file():
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


def write(report: Report, folder: Path) -> str:
    """Write both files, each complete or not at all, and the certificate of a report that has one; return the sentence
    that says where they are. Raise UserError where the folder cannot be written."""
    files.inside(folder, REPORT, PAGE, CERTIFICATE)
    files.replace(folder / REPORT, markdown(report))
    if report.certificate is None:
        files.remove(folder / CERTIFICATE)  # of other records, which were in the folder before
    else:
        datafile.write(folder / CERTIFICATE, datafile.to_json(report.certificate))
    return f"the report is {files.replace(folder / PAGE, page(report))}"


def write_survey(headline: str, blocks: Sequence[Block], folder: Path) -> str:
    """Write the page of a survey into a folder, and return the sentence that says where it is. Raise UserError where it
    cannot be written."""
    files.inside(folder, SURVEY_PAGE)
    return f"the page is {files.replace(folder / SURVEY_PAGE, survey_page(headline, blocks))}"
