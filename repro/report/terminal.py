"""What a report prints: on a terminal the answer, one table and three notes; CSV, JSON and Markdown in whole."""

from __future__ import annotations

from typing import Any

from .. import datafile
from ..formats import Format, as_json, render
from ..printout import MOST_NOTES, people
from ..record import Record
from ..run.results import REPORT
from ..run.settings_search import searches
from .blocks import Fold, Report, Table
from .markdown import markdown
from .methods import ablations, method_row, pairs
from .trials import notes


def printed(report: Report, format: Format) -> str:
    """Return the report as text, Markdown, CSV or JSON. CSV has one row a trial or, without any, one a cell; JSON has
    trials, verdicts and notes. With several runs, each trial has its folder."""
    if format == "markdown":
        return markdown(report).rstrip("\n")
    if format == "text":
        return _screen(report)
    runs, verdicts = report.runs, [verdict.row() for verdict in report.verdicts]
    records = runs.records if runs else ()
    folders = [{"folder": str(runs.run_of(each).folder)} if runs and runs.several else {} for each in records]
    published = [(record.as_published, folder) for record, folder in zip(records, folders, strict=True)]
    if format == "csv":
        return render([_row(record) | folder for record, folder in published] or verdicts, "csv")
    skipping = [search for search in searches(records) if search.skipped]
    return as_json(
        {
            "trials": [datafile.to_json(record) | folder for record, folder in published],
            "verdicts": verdicts,
            "headline": " ".join(report.answer),
            "tolerance": report.verdicts[0].tolerance,
            "summary": report.notes,
            "searches": [
                {
                    "recipe": search.recipe,
                    "machine": search.machine,
                    "tried": len(search.tried),
                    "skipped": len(search.skipped),
                    "seconds": search.seconds,
                }
                for search in skipping
            ],
            "methods": [method_row(*pair) for pair in pairs(records)],
            "ablation": [row for each in ablations(records) for row in each.rows()],
        }
    )


_IN_CSV = (
    *("id", "recipe", "scale", "machine", "settings", "status", "reason"),
    *("micro_batch", "accumulation", "authors_micro_batch"),
    *("authors_step", "true_step", "synchronised_step", "authors_days", "true_days", "synchronised_days"),
    *("examples_per_second", "utilisation", "peak_memory"),
)


def _row(record: Record) -> dict[str, Any]:
    known = {**datafile.to_json(record), "machine": record.machine}
    return {name: known[name] for name in _IN_CSV}


def _screen(report: Report) -> str:
    """Return the answer, the report's first table, or all trials where it has none, and the first notes."""
    table = next((block for block in report.blocks if isinstance(block, Table)), None)
    rows = [{name: row[name] for name in table.brief or row} for row in table.rows] if table else _trials(report)
    told = [*report.notes, *notes(report.runs.records if report.runs else ())][:MOST_NOTES]
    return people("\n".join(report.answer), rows, told, "text", whole=f"{REPORT} has all that was found")


def _trials(report: Report) -> list[dict[str, Any]]:
    """Return the trials of all places as rows of one table."""
    found = [
        {"trial of": fold.title} | row
        for fold in report.blocks
        if isinstance(fold, Fold)
        for table in fold.blocks
        if isinstance(table, Table)
        for row in table.rows
    ]
    names = dict.fromkeys(name for row in found for name in row)
    return [{name: row.get(name) for name in names} for row in found]
