"""The content of a report as data, from which the page and the Markdown file are written."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from .. import command, models
from ..claims import Checked, check_all, counts_text, origins
from ..claims.working import shown
from ..formats import counted, from_to, listing, percent, shell_words, significant, size, tallied, were
from ..machine.cluster import launch
from ..machine.environment import Environment
from ..machine.packages import PACKAGES
from ..paper.settings import NAIVE, Settings, search_space
from ..paper.tables import COUNTS, TABLES, TOLERANCE, Table, cells, printed
from ..predict.audit import IMPLAUSIBLE, Audited, audit, audit_measured, queue_rows, queue_summary, without_queue
from ..predict.audit import summary as audit_summary
from ..record import BY_CLOCK, BY_DAYS, DAYS, DEFAULT, Clock, Record, days_text, other
from ..run.corrected import MODERN, Corrected, basis, corrected_table, measured_elsewhere, others, shown_days, title
from ..run.corrected import summary as corrected_summary
from ..run.plan import Options, default_scale
from ..run.reading import Joined, Problem, Reading, join
from ..run.settings_search import Search, searches
from ..run.verdict import FAILED, PROJECTED, Verdict, judge_tables, ran_uncompiled
from .ablation import ablation_rows, ablation_text
from .causes import Cause, causes
from .figures import all_figures, further
from .methods import LEGEND, method_losses, method_rows
from .panels import Figure, in_order, machines
from .terminal import (
    compared_rows,
    extrapolation_errors,
    failures,
    legend,
    nearest_paper_gpu,
    notes_on,
    opening,
    projected_rows,
    projection_errors,
    settings_text,
    summary,
    trial_rows,
)


@dataclass(frozen=True)
class Headline:
    """The summary for a reviewer: the counts of the cells of Tables 1 and 4 as a sentence by the judging clock,
    `quote`, and one by the other clock, `beside`, empty where that compares no cell. `behind` are the details."""

    quote: str
    beside: str
    behind: Sequence[str]
    compared: int
    reproduced: int
    differing: int
    not_measured: int
    projected: int


@dataclass(frozen=True)
class Ran:
    """The environment of a run. `folder` is empty in a report of one run."""

    folder: str
    facts: Sequence[tuple[str, str]]
    packages: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Content:
    """A report. `legend` explains the columns of the trials; `claims` are tables with titles, first the claims that
    differ; `rerun` are commands with descriptions."""

    title: str
    clock: Clock
    headline: Headline
    verdicts: Sequence[Verdict]
    problems: Sequence[Problem]
    grids: Sequence[Grid]
    compared: Sequence[dict[str, Any]]
    projected: Sequence[dict[str, Any]]
    failures: Sequence[str]
    environments: Sequence[Ran]
    rerun: Sequence[tuple[str, str]]
    places: Sequence[Place] = ()
    legend: Sequence[str] = ()
    methods: Sequence[dict[str, Any]] = ()
    methods_text: Sequence[str] = ()
    ablation: Sequence[dict[str, Any]] = ()
    ablation_text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    audit: Sequence[str] = ()
    corrected: Sequence[Grid] = ()
    corrected_text: Sequence[str] = ()
    measured_elsewhere: Sequence[dict[str, Any]] = ()
    claims_text: str = ""
    claims: Sequence[tuple[str, Sequence[dict[str, Any]]]] = ()
    audit_without_queue: Sequence[dict[str, Any]] = ()
    audit_grids: Sequence[Grid] = ()
    causes: Sequence[Cause] = ()


WITHOUT_TRIALS = "Report of a run without a finished trial"


def compose(*readings: Reading) -> Content:
    """Return the report of one or several runs, by the clock that judges them: measurements beside printed numbers.
    Without a run, report the published numbers alone: claims, corrected tables, audit and costs."""
    if not readings:
        return _published()
    runs = join(*readings)
    found, projected = in_order(searches(runs.records, runs.clock)), searches(runs.records, runs.clock, "projected")
    audited = audit_measured(runs.records)
    return replace(
        _judged(runs.verdicts, runs.records, runs.clock, runs),
        places=(places := [place_of(search, runs.verdicts, runs) for search in in_order([*found, *projected])]),
        legend=legend(column for place in places for column in place.trials[0]),
        methods=(methods := method_rows(runs.records)),
        methods_text=[LEGEND, *(f"{line}." for line in method_losses(runs.records))] if methods else (),
        ablation=(ablation := ablation_rows(runs.records)),
        ablation_text=ablation_text(runs.records) if ablation else (),
        figures=[figure for figure in all_figures(found) if any("measured" in panel.origin for panel in figure.panels)],
        audit=[audit_summary(audited)] if audited else (),
    )


def _published() -> Content:
    rows = without_queue(audit())
    corrected = {table: corrected_table(table, modern=True) for table in TABLES}
    checked = check_all(None, DEFAULT)
    return replace(
        _judged(judge_tables((), TOLERANCE, DEFAULT), (), DEFAULT),
        corrected=[corrected_grid(table, rows) for table, rows in corrected.items()],
        corrected_text=[
            f"Table {table}: {line}" for table, rows in corrected.items() for line in corrected_summary(rows)
        ],
        measured_elsewhere=[
            {"table": table} | row for table, rows in corrected.items() for row in measured_elsewhere(rows)
        ],
        figures=[*all_figures(()), *further()],
        claims_text=f"{counts_text(checked)} {origins(checked)}",
        claims=tables(checked),
        audit=[audit_summary(rows), *queue_summary(rows)],
        audit_without_queue=queue_rows(rows),
        audit_grids=[audit_grid(table, rows) for table in TABLES],
        causes=causes(rows, ()),
    )


def _judged(
    verdicts: Sequence[Verdict], records: Sequence[Record], clock: Clock, runs: Joined | None = None
) -> Content:
    """Return the parts of every report: the verdict on each cell, its basis, and the commands that run it again."""
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
        projected=projected_rows(verdicts),
        failures=failures(verdicts),
        environments=_environments(runs) if runs else (),
        rerun=rerun(runs.runs if runs else (), verdicts, clock),
    )


def _title(runs: Joined | None) -> str:
    if runs is None:
        return "Report on the published numbers"
    if not runs.records:
        return WITHOUT_TRIALS
    measured = machines([record for record in runs.records if record.origin == "measured"])
    projected = [each for each in machines(runs.records) if each not in measured]
    named = (("on", measured), ("projected to", projected))
    places = ", ".join(f"{word} {listing(there)}" for word, there in named if there)
    return f"Report of {f'{len(runs.runs)} runs' if runs.several else 'a run'} {places}"


def _headline(verdicts: Sequence[Verdict], lines: Sequence[str], runs: Joined | None) -> Headline:
    counts = Counter(verdict.verdict for verdict in verdicts)
    reproduced, failed = counts["reproduced"], sum(counts[word] for word in FAILED)
    quote, *others = opening(verdicts, runs.records if runs else ())
    behind = list(lines)
    if runs and (records := runs.records):
        statuses = Counter(record.status.replace("_", " ") for record in records)
        message = ", ".join(f"{count} {status}" for status, count in statuses.items())
        scales = " and ".join(sorted({f"{record.scale} scale" for record in records}))
        uncompiled = sum(map(ran_uncompiled, records))
        crashed = f", {uncompiled} of them uncompiled, as compiling crashed" if uncompiled else ""
        alone = sum(record.origin == "projected" for record in records)
        projected = f", {alone} of them projected from one device" if alone else ""
        subject = f"The {len(runs.runs)} runs have" if runs.several else "The run has"
        behind.append(f"{subject} {counted(len(records), 'trial')} at {scales}: {message}{crashed}{projected}.")
        behind += runs.notes
    by_projection = sum(counts[word] for word in PROJECTED)
    return Headline(
        quote, " ".join(others), behind, reproduced + failed, reproduced, failed, counts["not_measured"], by_projection
    )


def _commits(reading: Reading) -> str:
    """Return the run's commit or, where its trials differ, each commit with its number of trials; short for a phone."""
    commits = [_short(record.commit) for record in reading.records if record.commit]
    if len(set(commits)) > 1:
        return ", ".join(f"{each} ({counted(count, 'trial')})" for each, count in Counter(commits).items())
    return _short(reading.environment.commit or "unknown")


def _short(commit: str) -> str:
    """Shorten full hashes to 12 digits, which are unique too. The records have them in full."""
    return re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", commit)


def _environments(runs: Joined) -> list[Ran]:
    """Return the environment of each run that recorded one."""
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


_PAPERS = {
    "paper": "The paper",
    "review": "The review of it",
    "comment": "The comment on renting or buying",
    "lab": "The lab report on predicting runtimes",
    "thesis": "The thesis on rented GPUs",
}


def tables(checked: Sequence[Checked]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return tables with titles: the claims that differ, then all claims by paper."""
    found = [("What differs", [_claim(one) for one in checked if one.verdict == "differs"])]
    for paper, heading in _PAPERS.items():
        found.append((heading, [_claim(one) for one in checked if one.claim.paper == paper]))
    return [(title, rows) for title, rows in found if rows]


def _claim(one: Checked) -> dict[str, Any]:
    claim = one.claim
    return {
        "claim": claim.statement,
        "verdict": one.verdict,
        "published": claim.text,
        "recomputed": claim.with_unit(shown(one.working.value.value)) if one.working else None,
        "by true days": claim.with_unit(one.by_true_days.shown) if one.by_true_days else None,
        "why": one.reason,
        "where": claim.source,
        "id": claim.id,
    }


@dataclass(frozen=True)
class Entry:
    """A field of a grid: the printed value, the line `below` it and the small text `beside`, the word that selects its
    colour and the word's symbol. `message` is the complete text."""

    text: str
    below: str
    kind: str
    symbol: str
    message: str
    beside: str = ""


@dataclass(frozen=True)
class Grid:
    """A table laid out like the paper's Table 1: a row for each model, a column for each machine. `kinds` explains the
    colours that occur: word, symbol, meaning."""

    title: str
    caption: str
    entries: Mapping[tuple[str, str, int], Entry]
    kinds: Sequence[tuple[str, str, str]]

    @property
    def gpus(self) -> list[str]:
        return list(dict.fromkeys(gpu for _, gpu, _ in self.entries))

    @property
    def lines(self) -> list[tuple[str, list[Entry]]]:
        """Each model with its entries, in the order of the machines."""
        models = dict.fromkeys(model for model, _, _ in self.entries)
        return [(model, [self.entries[model, gpu, count] for gpu in self.gpus for count in COUNTS]) for model in models]


# The words that select a field's colour, each with its symbol and meaning.
VERDICTS = {
    "reproduced": ("✓", "reproduced: days agree within the tolerance, or neither can train it"),
    "faster": ("▼", "faster than printed"),
    "slower": ("▲", "slower than printed"),
    "feasibility_differs": ("✗", "feasible in one, out of memory in the other"),
    "no_reference": ("?", "no reference: the paper's mark is lost, or its jobs had too little host memory"),
    "not_measured": ("", "not measured"),
    "projected_reproduced": ("≈✓", "projected, and agrees within the tolerance: verifies nothing"),
    "projected_faster": ("≈▼", "projected, faster than printed"),
    "projected_slower": ("≈▲", "projected, slower than printed"),
    "projected_feasibility_differs": ("≈✗", "projected: feasible in one, out of memory in the other"),
    "projected_no_reference": ("≈?", "projected, without a printed number to compare with"),
}
AUDIT = {
    "impossible": ("✗", "impossible: above the GPU's dense peak, however the days were rounded"),
    "implausible": ("!", f"implausible: above {IMPLAUSIBLE:.0%} of peak, beyond any published training run"),
    "plausible": ("", "plausible"),
    "no_days": ("-", "no days to audit"),
}

CORRECTED = {
    "predicted": ("", "predicted days, (printed days), interval"),
    "predicted_infeasible": ("-", "predicted infeasible"),
}


def verdict_grid(table: Table, verdicts: Sequence[Verdict]) -> Grid:
    """Return Table 1 or 4: printed days, and below them the measured ones by the judging and by the other clock."""
    clock = verdicts[0].clock
    entries = {v.place: verdict_entry(v) for v in verdicts if v.table == table}
    what = "the best settings found" if table == "1" else "naive settings"
    caption = (
        f"Days of training with {what}, on 1 to {max(COUNTS)} GPUs: as printed, - infeasible and ? a mark that "
        "is illegible in our copy of the paper"
    )
    if any(entry.below for entry in entries.values()):
        caption += (
            f"; beside a verdict's symbol, {DAYS[clock]} here and, smaller or after a slash, {DAYS[other(clock)]}, - "
            "where nothing fitted"
        )
    caption += "."
    return _grid(f"Table {table}", caption, entries, VERDICTS)


def verdict_entry(verdict: Verdict) -> Entry:
    """Return a cell, coloured by its verdict."""
    clock = other(verdict.clock)
    chosen, beside = verdict.chosen, verdict.by(clock)
    measured = ""
    if chosen.days is not None:
        measured = significant(chosen.days)
    elif chosen.verdict != "not_measured":
        measured = "-"
    symbol, _ = VERDICTS[chosen.verdict]
    message = f"{verdict.cell}: {chosen.verdict.replace('_', ' ')}"
    message += f" with {chosen.settings}" if chosen.settings else ""
    message += f", {days_text(chosen.days, verdict.clock)}" if chosen.days is not None else ""
    message += f", {chosen.reason}" if chosen.reason else ""
    if chosen.days is not None and beside.days is not None:
        message += f"; {BY_DAYS[clock]} {beside.verdict.replace('_', ' ')}, {beside.days:.1f} days"
    small = significant(beside.days) if measured and beside.days is not None else ""
    return Entry(printed(verdict.expected, verdict.expected_days), measured, chosen.verdict, symbol, message, small)


def audit_grid(table: Table, rows: Sequence[Audited]) -> Grid:
    """Return the utilisation, in per cent of the GPU's peak, that the days of Table 1 or 4 imply."""
    audited = {row.place: _audit_entry(row) for row in rows if row.table == table}
    symbol, meaning = AUDIT["no_days"]
    none = Entry(symbol, "", "no_days", "", meaning)
    entries = {cell.place: audited.get(cell.place, none) for cell in cells(table)}
    caption = (
        f"Model FLOP/s that the printed days imply, on 1 to {max(COUNTS)} GPUs, as a share of the GPU's dense peak at "
        "the recipe's precision."
    )
    return _grid(f"Table {table}, % of peak", caption, entries, AUDIT)


def _audit_entry(row: Audited) -> Entry:
    share = row.utilisation
    symbol, _ = AUDIT[row.verdict]
    message = (
        f"Table {row.table}, {row.model} on {row.machine}: {row.days:g} days are {share.value:.0%} of peak "
        f"({share.low:.0%} to {share.high:.0%}), {row.verdict}"
    )
    if row.corrected_share:
        message += f"; with the launch queue taken out {row.corrected_share}, {row.corrected_verdict}"
    return Entry(f"{share.value:.0%}".rstrip("%"), "", row.verdict, symbol, message)


def corrected_grid(table: Table, rows: Sequence[Corrected]) -> Grid:
    """Return the predicted true days of Table 1 or 4, and below them their interval."""
    entries = {row.place: _corrected_entry(row) for row in rows}
    note = f" {MODERN}" if any(row.modern_days is not None for row in rows) else ""
    return _grid(title(table), basis(table) + note, entries, CORRECTED)


def _corrected_entry(row: Corrected) -> Entry:
    kind = "predicted" if row.feasible else "predicted_infeasible"
    interval = row.interval.replace("-", "\u2013")  # a page may break a line after an en dash
    return Entry(f"{shown_days(row)} ({row.printed})", interval, kind, "", row.message, ", ".join(others(row)))


def _grid(
    title: str, caption: str, entries: dict[tuple[str, str, int], Entry], kinds: dict[str, tuple[str, str]]
) -> Grid:
    there = {entry.kind for entry in entries.values()}
    listed = [(kind, symbol, meaning) for kind, (symbol, meaning) in kinds.items() if kind in there]
    return Grid(title, caption, entries, listed)


@dataclass(frozen=True)
class Place:
    """One recipe on one machine: the settings that were searched, and every trial. `message` is a one-line summary."""

    title: str
    message: str
    says: Sequence[str]
    trials: Sequence[dict[str, Any]]
    notes: Sequence[str]


def place_of(search: Search, verdicts: Iterable[Verdict], runs: Joined) -> Place:
    """Return a search of these runs with the verdicts on its cells. Its trials are shown with the paper's days on the
    most similar of the paper's GPUs."""
    twin, of_one = " (tiny twin)" if search.scale == "tiny" else "", search.origin == "projected"
    space = set(search_space(search.world))
    tried = {Settings.parse(trial.settings).base for trial in search.tried}
    naive = ", and naive settings" if NAIVE in tried else ""
    searched = len(tried & space)
    says = [f"{searched} of the {len(space)} settings of the paper's search {were(searched)} tried{naive}."]
    if search.skipped:
        says.append(f"Of the best predicted: {search.skipping}.")
    if search.fastest is not None:
        best = (
            f"{search.fastest}: {significant(search.steps[search.fastest])} s a training step {BY_CLOCK[search.clock]}"
        )
        slower = "" if search.naive is None else f"; naive settings take {significant(search.naive)} s"
        says.append(f"The fastest apart from naive settings is {best}{slower}.")
    for verdict in verdicts if search.comparable_with_paper else ():
        if verdict.place == (search.model, search.device, search.count) and verdict.projected == of_one:
            says.append(f"{verdict_entry(verdict).message}.")
    if of_one:
        says.append("One device was measured, what the others add is modelled: these times verify nothing.")
        says += projection_errors([*search.trials, *(record for record in runs.records if record.origin == "measured")])
    if runs.several:
        says.append(f"Measured in {_folders(search, runs)}.")
    nearest = nearest_paper_gpu(runs.run_of(search.trials[0]).devices)
    rows = [_trial(*both) for both in zip(search.trials, trial_rows(search.trials, nearest), strict=True)]
    title = f"{search.model}{twin} on {search.machine}{', projected' if of_one else ''}"
    return Place(title, _summary(search), says, rows, _notes(search))


def _folders(search: Search, runs: Joined) -> str:
    """Return the folder in which the trials were measured; with several, the settings in each."""
    found: dict[str, list[str]] = {}
    for trial in search.trials:
        found.setdefault(str(runs.run_of(trial).folder), []).append(settings_text(trial))
    if len(found) == 1:
        return next(iter(found))
    return listing([f"{folder} ({', '.join(settings)})" for folder, settings in found.items()])


def _notes(search: Search) -> list[str]:
    found: dict[str, list[str]] = {}
    for trial in search.trials:
        for note in notes_on(trial):
            found.setdefault(note, []).append(settings_text(trial))
    return [f"{', '.join(settings)}: {note}" for note, settings in found.items()] + extrapolation_errors(search.trials)


def _summary(search: Search) -> str:
    statuses = Counter(trial.status.replace("_", " ") for trial in search.trials)
    message = [", ".join(f"{count} {status}" for status, count in statuses.items())]
    if search.best is not None:
        message.append(
            f"the fastest apart from naive takes {significant(search.best)} s a step {BY_CLOCK[search.clock]}"
        )
    ratios = [ratio for trial in search.trials if (ratio := trial.clocks_ratio) is not None]
    if ratios:
        message.append(f"authors' clock {from_to(ratios, '.2f')} of the true one")
    return "; ".join(message)


def _trial(record: Record, row: dict[str, Any]) -> dict[str, Any]:
    """Return the trial's row, with a step by each clock."""
    steps = {
        "true s": record.derived.true_step,
        "authors s": record.derived.authors_step,
        "synchronised s": record.derived.synchronised_step,
        "authors/true": record.clocks_ratio,
    }
    settled = {name: row.pop(name) for name in ("settings", "status", "MBS", "GAS")}
    return settled | steps | {name: value for name, value in row.items() if name not in ("model", "machine", "step s")}


def rerun(runs: Sequence[Reading], verdicts: Sequence[Verdict], clock: Clock) -> list[tuple[str, str]]:
    """Return the commands that reproduce the report, each with a description."""
    found, front = [], command()
    folders = [run.folder for run in runs]
    judged = "" if clock == DEFAULT else f" --by {clock}"
    measured = "".join(f" --measured {shell_words([folder])}" for folder in folders)
    beside = f"{measured}{judged}" if folders else ""
    for run in runs:
        for earlier in run.earlier:
            words = run_words(earlier, run.environment, run.folder)
            found.append((f"{launch(earlier.nodes)} {words}", "a run before this one, into the same folder"))
        if run.options:
            words, nodes = run_words(run.options, run.environment, run.folder), run.options.nodes
            where = f", on each of its {nodes} nodes" if nodes > 1 else ""
            found.append((f"{launch(nodes)} {words}", f"this run: it resumes{where}"))
    if folders:
        found.append((f"{front} report {shell_words(folders)}{judged}", "this report, from the records alone"))
    else:
        found.append((f"{front} report", "this report"))
    found += [
        # tables 5, 6 and 7 have prices, which no run measures
        (f"{front} table 1{beside}", "Table 1; also 3, 4 and j" if measured else "Table 1; also 3, 4, 5, 6, 7 and j"),
        (f"{front} claims{beside}", "the claims; with an id the rows and the arithmetic of one"),
        (f"{front} audit{measured}", "the audit, with its arithmetic"),
    ]
    if any(verdict.verdict == "not_measured" for verdict in verdicts):
        found += [
            (f"{front} --gpus all", "measures naive and Appendix J's settings of every recipe on the GPUs here"),
            (f"{front} --gpus all --methods all", "measures the whole search, for figures 4, 5, 10 and 11"),
        ]
    return found


def run_words(options: Options, environment: Environment, folder: Path) -> str:
    """Return the command-line arguments of a run with these options."""
    on_gpus = bool(environment.gpus)  # GPUs of the folder's last run; earlier runs may have had more
    words = ["--gpus", str(max(options.counts))] if on_gpus else ["--processes", ",".join(map(str, options.counts))]
    if options.projected:
        words += ["--project", ",".join(map(str, options.projected))]
    if options.models != models.IDS:
        words += ["--models", ",".join(options.models)]
    if options.scale != default_scale(on_gpus):
        words += ["--scale", options.scale]
    flags = {field.name: field.default for field in fields(Options)}
    plain = ("methods", "search", "steps", "tolerance", "clock", "memory", "budget")
    for name in (*plain, "trial_timeout"):
        value = getattr(options, name)
        if value is not None and value != flags.get(name):
            unit = "s" if name in ("budget", "trial_timeout") else ""
            message = size(value) if name == "memory" else str(value)
            if isinstance(value, float):
                message = f"{Decimal(message):f}".removesuffix(".0") + unit  # options take no exponents
            if name == "methods" and options.parts:
                message = "+".join(["modern", *options.parts])
            words += [f"--{'by' if name == 'clock' else name.replace('_', '-')}", message]
    if options.attention != "sdpa":
        words += ["--with", f"attention={options.attention}"]
    for added in options.added:
        words += ["--with", f"{added.file}:{'+'.join(added.methods)}"]
    if options.micro_batch is not None:
        words += ["--micro-batches", str(options.micro_batch)]
    return shell_words([*words, "--out", folder])
