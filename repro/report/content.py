"""All that a report says, as data: a page and a Markdown file show the same."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..audit import audit, audit_measured, queue_rows, queue_summary, without_queue
from ..audit import summary as audit_summary
from ..causes import Cause, causes
from ..claims import check_all
from ..clocks import DEFAULT, Clock
from ..corrected import corrected_table, measured_elsewhere
from ..corrected import summary as corrected_summary
from ..environment import Environment
from ..expected import TABLES, TOLERANCE
from ..formats import counted, listing, percent, tallied
from ..packages import PACKAGES
from ..reading import Joined, Problem, Reading, join
from ..search import searches
from ..trial import Record
from ..verdict import FAILED, Verdict, judge_tables, ran_uncompiled
from . import claims
from .figures import figures
from .further import further
from .grids import Grid, audit_grid, corrected_grid, verdict_grid
from .order import in_order, machines
from .panels import Figure
from .places import Place, place_of
from .rerun import rerun
from .text import compared_rows, failures, legend, sentences, summary


@dataclass(frozen=True)
class Headline:
    """What a reviewer quotes: the counts of the cells of Tables 1 and 4, in one sentence by the clock that judges and,
    where it compares any, in one by the other, `beside`; and what stands behind them."""

    quote: str
    beside: str
    behind: Sequence[str]
    compared: int
    reproduced: int
    differing: int
    not_measured: int


@dataclass(frozen=True)
class Ran:
    """What a run ran on. `folder` is empty where the report is of one run."""

    folder: str
    facts: Sequence[tuple[str, str]]
    packages: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Content:
    """A report. `legend` explains the columns of the places' trials; `claims` are tables with a title each, those that
    differ first; `rerun` are commands, and what each gives."""

    title: str
    clock: Clock
    headline: Headline
    verdicts: Sequence[Verdict]
    problems: Sequence[Problem]
    grids: Sequence[Grid]
    compared: Sequence[dict[str, Any]]
    failures: Sequence[str]
    environments: Sequence[Ran]
    rerun: Sequence[tuple[str, str]]
    places: Sequence[Place] = ()
    legend: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    audit: Sequence[str] = ()
    corrected: Sequence[Grid] = ()
    corrected_told: Sequence[str] = ()
    measured_elsewhere: Sequence[dict[str, Any]] = ()
    claims_told: str = ""
    claims: Sequence[tuple[str, Sequence[dict[str, Any]]]] = ()
    audit_without_queue: Sequence[dict[str, Any]] = ()
    audit_grids: Sequence[Grid] = ()
    causes: Sequence[Cause] = ()


WITHOUT_TRIALS = "Report of a run without a finished trial"


def compose(*readings: Reading) -> Content:
    """The report of one or several runs, by the clock that judges them: what was measured, beside what is printed of
    it; or, without one, of the published numbers alone: claims, corrected tables, audit and costs."""
    if not readings:
        return _published()
    runs = join(*readings)
    found = in_order(searches(runs.records, runs.clock))
    audited = audit_measured(runs.records)
    return replace(
        _judged(runs.verdicts, runs.records, runs.clock, runs),
        places=(places := [place_of(search, runs.verdicts, runs) for search in found]),
        legend=legend(column for place in places for column in place.trials[0]),
        figures=[figure for figure in figures(found) if any("measured" in panel.origin for panel in figure.panels)],
        audit=audit_summary(audited) if audited else (),
    )


def _published() -> Content:
    rows = without_queue(audit())
    corrected = {table: corrected_table(table) for table in TABLES}
    checked = check_all(None, DEFAULT)
    return replace(
        _judged(judge_tables((), TOLERANCE, DEFAULT), (), DEFAULT),
        corrected=[corrected_grid(table, rows) for table, rows in corrected.items()],
        corrected_told=[
            f"Table {table}: {line}" for table, rows in corrected.items() for line in corrected_summary(rows)
        ],
        measured_elsewhere=[
            {"table": table} | row for table, rows in corrected.items() for row in measured_elsewhere(rows)
        ],
        figures=[*figures(()), *further()],
        claims_told=claims.counts_told(checked),
        claims=claims.tables(checked),
        audit=[*audit_summary(rows), *queue_summary(rows)],
        audit_without_queue=queue_rows(rows),
        audit_grids=[audit_grid(table, rows) for table in TABLES],
        causes=causes(rows, ()),
    )


def _judged(
    verdicts: Sequence[Verdict], records: Sequence[Record], clock: Clock, runs: Joined | None = None
) -> Content:
    """What every report has: the verdict on each cell, what they stand on, and how to run it again."""
    environments = [run.environment for run in runs.runs] if runs else []
    lines = summary(verdicts, runs.devices if runs else None, records, environments)
    return Content(
        title=_title(runs),
        clock=clock,
        headline=_headline(verdicts, lines, runs),
        verdicts=verdicts,
        problems=runs.problems if runs else (),
        grids=[verdict_grid(table, verdicts) for table in TABLES],
        compared=compared_rows(verdicts),
        failures=failures(verdicts),
        environments=_environments(runs) if runs else (),
        rerun=rerun(runs.runs if runs else (), verdicts, clock),
    )


def _title(runs: Joined | None) -> str:
    if runs is None:
        return "Report on the published numbers"
    if not runs.records:
        return WITHOUT_TRIALS
    return f"Report of {f'{len(runs.runs)} runs' if runs.several else 'a run'} on {listing(machines(runs.records))}"


def _headline(verdicts: Sequence[Verdict], lines: Sequence[str], runs: Joined | None) -> Headline:
    counts = Counter(verdict.verdict for verdict in verdicts)
    reproduced, failed = counts["reproduced"], sum(counts[word] for word in FAILED)
    quote, beside = sentences(verdicts)
    behind = list(lines)
    if runs and (records := runs.records):
        statuses = Counter(record.status.replace("_", " ") for record in records)
        told = ", ".join(f"{count} {status}" for status, count in statuses.items())
        scales = " and ".join(sorted({f"{record.scale} scale" for record in records}))
        uncompiled = sum(map(ran_uncompiled, records))
        crashed = f", {uncompiled} of them uncompiled, as compiling crashed" if uncompiled else ""
        subject = f"The {len(runs.runs)} runs have" if runs.several else "The run has"
        behind.append(f"{subject} {counted(len(records), 'trial')} at {scales}: {told}{crashed}.")
        behind += runs.notes
    return Headline(quote, beside, behind, reproduced + failed, reproduced, failed, counts["not_measured"])


def _commits(reading: Reading) -> str:
    """That of the run, and, where trials are of others, of how many each is; short enough for a phone."""
    commits = [_short(record.commit) for record in reading.records if record.commit]
    if len(set(commits)) > 1:
        return ", ".join(f"{each} ({counted(count, 'trial')})" for each, count in Counter(commits).items())
    return _short(reading.environment.commit or "unknown")


def _short(commit: str) -> str:
    """12 digits of a whole hash, which name it too; the records have it whole."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", commit)


def _environments(runs: Joined) -> list[Ran]:
    """What each run ran on, those left out that do not say it."""
    return [
        Ran(
            str(run.folder) if runs.several else "",
            _facts(run),
            sorted((run.environment.versions or {}).items()),
        )
        for run in runs.runs
        if run.environment != Environment()
    ]


def _facts(reading: Reading) -> list[tuple[str, str]]:
    found = reading.environment
    host, lock, packages = found.host, found.lock, found.versions or {}
    facts = {
        "GPUs": tallied(gpu.name for gpu in found.gpus or []),
        "driver": found.driver,
        "CPU": str(host),
        "system": f"{host.os}, Linux {host.kernel}" if host.kernel else host.os,
        "Python": found.python,
        "repro": f"{found.repro}, commit {_commits(reading)}",
        "packages": lock.summary,
        "stack": ", ".join(f"{name} {packages[name]}" for name in PACKAGES if name in packages),
        "seed": found.seed,
        "variables": " ".join(f"{name}={value}" for name, value in (found.variables or {}).items()),
        "tolerance": f"{percent(reading.options.tolerance)}, and half a day of rounding" if reading.options else None,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]
