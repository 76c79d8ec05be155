"""All that a report says, as data: a page and a Markdown file show the same."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import models

from .. import audit as audits
from .. import command
from ..audit import Audited, Cause, audit, audit_measured, causes
from ..claims import Checked, check_all
from ..claims.working import shown
from ..expected import COUNTS, TOLERANCE, cells, printed
from ..formats import counted, figures, listing
from ..plan import Options
from ..reading import Problem, Reading
from ..search import Search, searches
from ..settings import NAIVE, Settings, search_space
from ..stack import PACKAGES
from ..trial import Record
from ..verdict import FAILED, Verdict, differing, judge_tables
from .figures import Figure
from .figures import figures as drawn
from .further import further
from .text import compared_rows, failures, nearest_paper_gpu, notes_on, summary, trial_rows


@dataclass(frozen=True)
class Headline:
    """What a reviewer quotes: the counts of the cells of Tables 1 and 4, in one sentence, and what stands behind it."""

    quote: str
    behind: Sequence[str]
    compared: int
    reproduced: int
    differing: int
    not_measured: int


@dataclass(frozen=True)
class Entry:
    """A field of a grid: what is printed, a second line below, the word that colours it, and that word's symbol.
    `told` says it in full."""

    text: str
    below: str
    kind: str
    symbol: str
    told: str


@dataclass(frozen=True)
class Grid:
    """A table laid out like the paper's Table 1: a line a model, a column a machine. `kinds` explains the colours that
    occur: word, symbol, meaning."""

    title: str
    caption: str
    gpus: Sequence[str]
    lines: Sequence[tuple[str, Sequence[Entry]]]
    kinds: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Place:
    """One recipe on one machine: the settings that were searched, and every trial. `told` is all of it in a line."""

    title: str
    told: str
    says: Sequence[str]
    trials: Sequence[dict[str, Any]]
    notes: Sequence[str]


@dataclass(frozen=True)
class Content:
    """A report. `claims` are tables with a title each, those that differ first; `rerun` are commands, and what each
    gives."""

    title: str
    headline: Headline
    verdicts: Sequence[Verdict]
    problems: Sequence[Problem]
    grids: Sequence[Grid]
    compared: Sequence[dict[str, Any]]
    failures: Sequence[str]
    environment: Sequence[tuple[str, str]]
    packages: Sequence[tuple[str, str]]
    places: Sequence[Place]
    figures: Sequence[Figure]
    claims_told: str
    claims: Sequence[tuple[str, Sequence[dict[str, Any]]]]
    audit: Sequence[str]
    audit_grids: Sequence[Grid]
    causes: Sequence[Cause]
    rerun: Sequence[tuple[str, str]]


def compose(reading: Reading | None) -> Content:
    """The report of a run, or, without one, of the published numbers alone."""
    records = reading.records if reading else ()
    verdicts = reading.verdicts if reading else judge_tables((), TOLERANCE)
    devices = reading.devices if reading else None
    found = searches(records)
    rows, measured = audit(), audit_measured(records)
    checked = check_all(records if reading else None)
    return Content(
        title=_title(reading),
        headline=_headline(verdicts, summary(verdicts, devices, records), records),
        verdicts=verdicts,
        problems=reading.problems if reading else (),
        grids=[_verdict_grid(table, verdicts) for table in ("1", "4")],
        compared=compared_rows(verdicts),
        failures=failures(verdicts),
        environment=_environment(reading) if reading else [],
        packages=sorted(reading.environment.get("packages", {}).items()) if reading else [],
        places=[_place(search, verdicts, nearest_paper_gpu(devices)) for search in found],
        figures=[*drawn(found), *further()],
        claims_told=_claims_told(checked),
        claims=_claims(checked),
        audit=audits.summary((*rows, *measured)),
        audit_grids=[_audit_grid(table, rows) for table in ("1", "4")],
        causes=causes(rows, records),
        rerun=_rerun(reading, verdicts),
    )


def _title(reading: Reading | None) -> str:
    if reading is None:
        return "Report on the published numbers"
    if not reading.records:
        return "Report of a run without a finished trial"
    devices = list(dict.fromkeys(record.device for record in reading.records))

    def place(record: Record) -> tuple[int, int, int, int]:
        return devices.index(record.device), record.nodes, record.memory_limit or 0, record.count

    machines = dict.fromkeys(record.machine for record in sorted(reading.records, key=place))
    return f"Report of a run on {listing(list(machines))}"


def _headline(verdicts: Sequence[Verdict], lines: Sequence[str], records: Sequence[Record]) -> Headline:
    counts = Counter(verdict.verdict for verdict in verdicts)
    reproduced, failed = counts["reproduced"], sum(counts[word] for word in FAILED)
    compared, missing = reproduced + failed, counts["not_measured"]
    quote = f"Of the {len(verdicts)} cells of Tables 1 and 4, {compared or 'none'} {_was(compared)} compared"
    if compared:
        quote += f": {reproduced} reproduced, {failed} differing{f' ({differing(counts)})' if failed else ''}"
    if missing:
        quote += f"; {missing} {_was(missing)} not measured"
    if counts["no_reference"]:
        quote += f", {counts['no_reference']} has no legible reference"
    behind = list(lines)
    if records:
        statuses = Counter(record.status.replace("_", " ") for record in records)
        told = ", ".join(f"{count} {status}" for status, count in statuses.items())
        scales = " and ".join(sorted({f"{record.scale} scale" for record in records}))
        behind.append(f"The run has {counted(len(records), 'trial')} at {scales}: {told}.")
    return Headline(f"{quote}.", behind, compared, reproduced, failed, missing)


def _was(count: int) -> str:
    return "was" if count in (0, 1) else "were"


# Tables laid out like Table 1


# What colours a field: its symbol, and what it means.
VERDICTS = {
    "reproduced": ("✓", "reproduced: measured days agree within the tolerance"),
    "faster": ("▼", "faster than printed"),
    "slower": ("▲", "slower than printed"),
    "feasibility_differs": ("✗", "feasible in one, out of memory in the other"),
    "no_reference": ("?", "the paper's mark is lost"),
    "not_measured": ("", "not measured"),
}
AUDIT = {
    "impossible": ("✗", "impossible: above the GPU's dense peak, however the days were rounded"),
    "implausible": ("!", f"implausible: above {audits.IMPLAUSIBLE:.0%} of peak, beyond any published training run"),
    "plausible": ("", "plausible"),
    "no_days": ("", "no days to audit"),
}


def _verdict_grid(table: str, verdicts: Sequence[Verdict]) -> Grid:
    entries = {(v.model, v.gpu, v.gpus): _verdict_entry(v) for v in verdicts if v.table == table}
    what = "the best settings found" if table == "1" else "naive settings"
    caption = f"Days of training with {what}: as printed, and below it as measured by the authors' clock."
    return _grid(f"Table {table}", caption, entries, VERDICTS)


def _verdict_entry(verdict: Verdict) -> Entry:
    measured = ""
    if verdict.measured_days is not None:
        measured = figures(verdict.measured_days)
    elif verdict.verdict != "not_measured":
        measured = "-"
    symbol, _ = VERDICTS[verdict.verdict]
    told = f"{verdict.cell}: {verdict.verdict.replace('_', ' ')}"
    told += f" with {verdict.settings}" if verdict.settings else ""
    told += f", {verdict.reason}" if verdict.reason else ""
    return Entry(printed(verdict.expected, verdict.expected_days), measured, verdict.verdict, symbol, told)


def _audit_grid(table: str, rows: Sequence[Audited]) -> Grid:
    audited = {(row.model, row.gpu, row.gpus): _audit_entry(row) for row in rows if row.table == table}
    none = Entry("-", "", "no_days", "", "no days to audit")
    entries = {place: audited.get(place, none) for place in [(c.model, c.gpu, c.gpus) for c in cells(table)]}  # type: ignore[arg-type]
    caption = "Model FLOP/s that the printed days imply, as a share of the GPU's dense peak at the recipe's precision."
    return _grid(f"Table {table}, % of peak", caption, entries, AUDIT)


def _audit_entry(row: Audited) -> Entry:
    share = row.utilisation
    symbol, _ = AUDIT[row.verdict]
    told = (
        f"Table {row.table}, {row.model} on {row.gpus} {row.gpu}: {row.days:g} days are {share.value:.0%} of peak "
        f"({share.low:.0%} to {share.high:.0%}), {row.verdict}"
    )
    return Entry(f"{share.value:.0%}".rstrip("%"), "", row.verdict, symbol, told)


def _grid(
    title: str, caption: str, entries: dict[tuple[str, str, int], Entry], kinds: dict[str, tuple[str, str]]
) -> Grid:
    gpus = list(dict.fromkeys(gpu for _, gpu, _ in entries))
    lines = [
        (model, [entries[model, gpu, count] for gpu in gpus for count in COUNTS])
        for model in dict.fromkeys(model for model, _, _ in entries)
    ]
    there = {entry.kind for entry in entries.values()}
    return Grid(
        title,
        caption,
        gpus,
        lines,
        [(kind, symbol, meaning) for kind, (symbol, meaning) in kinds.items() if kind in there],
    )


# The environment


def _environment(reading: Reading) -> list[tuple[str, str]]:
    found = reading.environment
    if not found:
        return []
    host, lock = found.get("host", {}), found.get("lock", {})
    gpus = Counter(gpu["name"] for gpu in found.get("gpus", []))
    packages = found.get("packages", {})
    differences = len(lock.get("differences", {}))
    facts = {
        "GPUs": ", ".join(f"{count} x {name}" for name, count in gpus.items()) or "none",
        "driver": found.get("driver"),
        "CPU": f"{host.get('cpu')}, {host.get('physical_cores')} cores, {host.get('memory_bytes', 0) / 2**30:.0f} GiB",
        "system": f"{host.get('os')}, Linux {host.get('kernel')}",
        "Python": found.get("python"),
        "repro": f"{found.get('repro')}, commit {found.get('commit') or 'unknown'}",
        "packages": f"{lock.get('file')}, all as locked"
        if lock.get("is_the_lock")
        else f"not a lock: {differences} packages differ from {lock.get('file')}",
        "stack": ", ".join(f"{name} {packages[name]}" for name in PACKAGES if name in packages),
        "seed": found.get("seed"),
        "variables": " ".join(
            f"{name}={value}" for name, value in found.get("variables", {}).items() if not name.endswith("_DIR")
        ),
        "tolerance": f"{reading.options.tolerance:.0%}, and half a day of rounding" if reading.options else None,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]


# Each recipe on each machine


def _place(search: Search, verdicts: Iterable[Verdict], nearest: str | None) -> Place:
    twin = " (tiny twin)" if search.scale == "tiny" else ""
    space = set(search_space(search.world))
    tried = {Settings.parse(trial.settings).base for trial in search.tried}
    naive = ", and naive settings" if NAIVE in tried else ""
    says = [f"{len(tried & space)} of the {len(space)} settings of the paper's search were tried{naive}."]
    if search.guided:
        says.append(f"Guided by predictions: {search.guided}.")
    if search.fastest is not None:
        best = search.steps[search.fastest]
        says.append(f"The fastest is {search.fastest}, {figures(best)} s a training step by the authors' clock.")
    for verdict in verdicts if search.stands_for_paper else ():
        if (verdict.model, verdict.gpu, verdict.gpus) == (search.model, search.device, search.count):
            says.append(f"{_verdict_entry(verdict).told}.")
    rows = [_trial(*both) for both in zip(search.trials, trial_rows(search.trials, nearest), strict=True)]
    return Place(f"{search.model}{twin} on {search.machine}", _told(search), says, rows, _notes(search))


def _notes(search: Search) -> list[str]:
    found: dict[str, list[str]] = {}
    for trial in search.trials:
        for note in notes_on(trial):
            found.setdefault(note, []).append(trial.settings)
    return [f"{', '.join(settings)}: {note}" for note, settings in found.items()]


def _told(search: Search) -> str:
    statuses = Counter(trial.status.replace("_", " ") for trial in search.trials)
    told = [", ".join(f"{count} {status}" for status, count in statuses.items())]
    if search.best is not None:
        told.append(f"fastest {figures(search.best)} s a step")
    ratios = [ratio for trial in search.trials if (ratio := trial.clocks_ratio) is not None]
    if ratios:
        told.append(f"authors' clock {min(ratios):.2f} to {max(ratios):.2f} of the true one")
    return "; ".join(told)


def _trial(record: Record, row: dict[str, Any]) -> dict[str, Any]:
    """The trial's line, with a step by each clock."""
    steps = {
        "authors s": record.authors_step,
        "true s": record.true_step,
        "synchronised s": record.synchronised_step,
        "authors/true": record.clocks_ratio,
    }
    settled = {name: row.pop(name) for name in ("settings", "status", "MBS", "GAS")}
    return settled | steps | {name: value for name, value in row.items() if name not in ("model", "machine", "step s")}


# Claims


CLAIMS = {
    "holds": ("✓", "hold"),
    "holds_by_rounding": ("≈", "hold by rounding"),
    "differs": ("✗", "differ"),
    "needs_measurement": ("…", "need a measurement"),
    "not_checkable": ("—", "cannot be checked"),
}
_PAPERS = {
    "paper": "The paper",
    "review": "The review of it",
    "comment": "The comment on renting or buying",
    "lab": "The lab report on predicting runtimes",
    "thesis": "The thesis on rented GPUs",
}


def _claims_told(checked: Sequence[Checked]) -> str:
    counts = Counter(one.verdict for one in checked)
    told = ", ".join(f"{counts[verdict]} {words}" for verdict, (_, words) in CLAIMS.items())  # type: ignore[index]
    return f"Of {len(checked)} claims {told}."


def _claims(checked: Sequence[Checked]) -> list[tuple[str, list[dict[str, Any]]]]:
    tables = [("What differs", [_claim(one) for one in checked if one.verdict == "differs"])]
    for paper, title in _PAPERS.items():
        tables.append((title, [_claim(one) for one in checked if one.claim.paper == paper]))
    return [(title, rows) for title, rows in tables if rows]


def _claim(one: Checked) -> dict[str, Any]:
    claim = one.claim
    return {
        "claim": claim.statement,
        "verdict": one.verdict,
        "published": f"{claim.published} {claim.unit}",
        "recomputed": f"{shown(one.working.value.value)} {claim.unit}" if one.working else None,
        "why": one.reason,
        "where": claim.source,
        "id": claim.id,
    }


# Commands


def _rerun(reading: Reading | None, verdicts: Sequence[Verdict]) -> list[tuple[str, str]]:
    found, front = [], command()
    folder = reading.folder if reading else None
    measured = f" --measured {shlex.quote(str(folder))}" if folder else ""
    if reading and reading.options and folder:
        found.append((f"{front} {run_words(reading.options, reading.environment, folder)}", "this run: it resumes"))
        found.append((f"{front} report {shlex.quote(str(folder))}", "this report, from the records alone"))
    else:
        found.append((f"{front} report", "this report"))
    found += [
        (f"{front} table 1{measured}", "Table 1; also 3, 4, 5, 6, 7 and j"),
        (f"{front} claims{measured}", "the claims; with an id the rows and the arithmetic of one"),
        (f"{front} audit{measured}", "the audit, with its arithmetic"),
    ]
    if any(verdict.verdict == "not_measured" for verdict in verdicts):
        found += [
            (f"{front} --gpus all", "measures naive and Appendix J's settings of every recipe on the GPUs here"),
            (f"{front} --gpus all --methods all", "measures the whole search, for figures 4, 5, 10 and 11"),
        ]
    return found


def run_words(options: Options, environment: dict[str, Any], folder: Path) -> str:
    """The arguments that give a run these options."""
    gpus = len(environment.get("gpus", []))
    words = ["--gpus", str(gpus)] if gpus else ["--processes", ",".join(map(str, options.counts))]
    if options.models != models.IDS:
        words += ["--models", ",".join(options.models)]
    if options.scale != ("paper" if gpus else "tiny"):
        words += ["--scale", options.scale]
    flags = {field.name: field.default for field in fields(Options)}
    for name in ("methods", "search", "attention", "nodes", "steps", "tolerance", "memory", "budget", "trial_timeout"):
        value = getattr(options, name)
        if value is not None and value != flags.get(name):
            unit = "s" if name in ("budget", "trial_timeout") else ""
            words += [f"--{name.replace('_', '-')}", f"{value:g}{unit}" if isinstance(value, float) else str(value)]
    if options.check_extrapolation:
        words.append("--check-extrapolation")
    return shlex.join([*words, "--out", str(folder)])
