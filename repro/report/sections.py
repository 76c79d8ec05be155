"""The sections of a report: what was found, why, and what it was measured on, as a list of blocks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from statistics import median
from typing import Any

from .. import command, models
from ..formats import counted, from_to, listing, percent, shell_words, significant, tallied, were
from ..machine.environment import Environment
from ..machine.packages import PACKAGES
from ..paper.gpus import paper_gpus
from ..paper.settings import NAIVE, Settings, search_space
from ..paper.tables import TABLES, TOLERANCE
from ..predict.audit import audit_measured
from ..predict.audit import summary as audit_summary
from ..record import BY_CLOCK, BY_DAYS, DAYS, Record, other
from ..run.reading import Joined, Reading, alone, join
from ..run.results import CERTIFICATE
from ..run.settings_search import Search, searches
from ..run.spread import of_runs as spreads_of
from ..run.spread import summary as spread_summary
from ..run.verdict import (
    FAILED,
    Verdict,
    Word,
    differing,
    explain,
    ran_uncompiled,
)
from ..verify.certificate import NOBODY, Certificate, build
from .again import rerun
from .blocks import Block, Bullets, Facts, Fold, Heading, Report, Sentence, Table
from .figures import in_order, machines, of_run
from .grids import kind_of, verdict_grid
from .methods import ABLATION, LEGEND, PARTS_LEGEND, ablations, losses, method_row, pairs
from .published import another, published, without_gpu
from .released import of_archive
from .trials import legend, nearest_paper_gpu, notes, projection_errors, settings_text, trial_rows

WITHOUT_TRIALS = "Report of a run without a finished trial"
_HAD_NO_NUMBER = "had no printed number to compare with"


def compose(*readings: Reading) -> Report:
    """Return the report of one or several runs, by the clock that judges them. Without a run, report the published
    numbers alone: claims, audit, and the days that one would wait."""
    if not readings:
        return published()
    runs = join(*alone(readings))
    certificate = build(runs)
    decided = _certified(certificate, runs) if certificate else []
    if runs.released:
        return replace(of_archive(runs, runs.released, decided), certificate=certificate)
    records, verdicts = runs.records, runs.verdicts
    found, projected = (in_order(searches(records, runs.clock, origin)) for origin in ("measured", "projected"))
    why = [explain(verdict) for verdict in verdicts if verdict.differs]
    parts: list[Sequence[Block]] = [
        decided,
        _section(Heading("Why cells differ", "why"), [Bullets(why)] if why else []),
        _of_methods(records),
        _of_cells(verdicts),
        _of_trials([*found, *projected], runs),
        _of_spreads(runs),
        _section(Heading("Figures", "figures"), of_run(found)),
        _section(Heading("Environment", "environment"), _environments(runs)),
        [Heading("Run it again", "again"), Facts(rerun(runs.runs, verdicts, runs.clock), commands=True)],
    ]
    if runs.problems:  # last, unless one changes a verdict
        place = 0 if any(problem.changes_verdicts for problem in runs.problems) else len(parts)
        heading = Heading("What is wrong, and what was used", "wrong", "What is wrong")
        parts.insert(place, [heading, Bullets([str(each) for each in runs.problems])])
    counts, answer = _counts(verdicts, records), _answer(verdicts, records)
    return Report(
        _title(runs),
        answer,
        counts if len(counts) > 1 else [],
        _notes(runs),
        [*chain(*parts)],
        verdicts,
        runs,
        certificate,
    )


def _certified(certificate: Certificate, runs: Joined) -> list[Block]:
    """Return what the records decide of the abstract and the conclusion, each claim once, and how to recompute it."""
    whose = "These records" if certificate.origin == "measured" else "The raw results, which the authors measured,"
    named = [run.folder for run in runs.runs]
    words = shell_words(named if len(named) == 1 and named[0].is_dir() else [CERTIFICATE, *named])
    says = (
        f"{whose} decide {certificate.summary} of the paper. {CERTIFICATE} has each verdict with the hashes of its "
        f"records, and {command()} verify {words} recomputes it. {NOBODY}"
    )
    pairs = {
        row.statement: f"printed {row.printed}; by the printed numbers it {_verdict_words(row.by_printed)}, by the "
        f"{certificate.origin} ones it {_verdict_words(row.verdict)}"
        for row in certificate.claims
    }
    title = "Claims of the abstract and the conclusion"
    facts = Fold(title, [Facts([*pairs.items()])], f"{len(certificate.decided)} of {len(pairs)} decided")
    return [Heading("What these records decide", "certificate", "Certificate"), Sentence(says), facts]


def _verdict_words(verdict: str) -> str:
    return {
        "not_measured": "is not decided",
        "needs_measurement": "is not decided",
        "not_checkable": "cannot be checked",
        "holds_by_rounding": "holds by rounding",
    }.get(verdict, verdict)


def _section(heading: Heading, blocks: Sequence[Block]) -> Sequence[Block]:
    return [heading, *blocks] if blocks else []


def _title(runs: Joined) -> str:
    if not runs.records:
        return WITHOUT_TRIALS
    measured = machines([record for record in runs.records if record.origin == "measured"])
    projected = [each for each in machines(runs.records) if each not in measured]
    named = (("on", measured), ("projected to", projected))
    places = ", ".join(f"{word} {listing(there)}" for word, there in named if there)
    return f"Report of {f'{len(runs.runs)} runs' if runs.several else 'a run'} {places}"


def _answer(verdicts: Sequence[Verdict], records: Sequence[Record]) -> list[str]:
    """Return the sentences with which a report begins: the days of models of one's own; what ran, where it was all on
    CPUs; else how the cells of Tables 1 and 4 compare."""
    if own := [each for each in searches(records, verdicts[0].clock) if models.is_own(each.recipe)]:
        return list(filter(None, map(_days, own)))
    if _on_cpus(records):
        return [_everything_works(records), without_gpu()]
    return list(filter(None, sentences(verdicts)))


def _on_cpus(records: Sequence[Record]) -> bool:
    return bool(records) and all(record.device == "cpu" for record in records)


def _days(search: Search) -> str:
    """Return a sentence on the days of a model of one's own on a machine; empty where nothing was timed."""
    ran = {
        id: search.standing[id].derived.true_days
        for id in dict.fromkeys((NAIVE.id, *search.standing))
        if id in search.standing
    }
    known = {id: days for id, days in ran.items() if days is not None}
    if not known:
        return ""
    first, *others = known if NAIVE.id in known else sorted(known, key=known.__getitem__)
    where = search.machine.replace("1 x cpu", "this CPU").replace("x cpu", "processes of this CPU")
    text = f"{search.recipe} takes {significant(known[first], 2)} days on {where} with {first} settings"
    best = min(others, key=known.__getitem__, default=None)
    return f"{text}{f'; with {best} {significant(known[best], 2)}' if best else ''}."


def _everything_works(records: Sequence[Record]) -> str:
    """Return a sentence on how many settings ran on a CPU, which verifies no number of the paper."""
    ran = sum(record.timed for record in records)
    scale = " at tiny scale" if all(record.scale == "tiny" for record in records) else ""
    well = "everything works here" if ran == len(records) else f"{len(records) - ran} did not, for the reasons below"
    return (
        f"{ran} of {len(records)} settings ran on this CPU{scale}: {well}. No number of the paper was measured; that "
        "needs one of its GPUs."
    )


def sentences(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """Return one sentence that counts the cells of Tables 1 and 4 by the judging clock, and one by the other, empty
    where that compares none. The first has the tolerance if it is not the default."""
    clock, tolerance = verdicts[0].clock, verdicts[0].tolerance
    judged = ([verdict.by(each) for verdict in verdicts] for each in (clock, other(clock)))
    counts, beside = (Counter(each.verdict for each in of_clock if not each.projected) for of_clock in judged)
    compared, missing = _compared(counts), counts["not_measured"]
    quote = f"Of the {len(verdicts)} cells of Tables 1 and 4, {compared or 'none'} {were(compared or 1)} compared"
    if compared:
        quote += f" {BY_DAYS[clock]}: {_held(counts)}"
    if missing:
        quote += f"; {missing} {were(missing)} not measured"
    if counts["no_reference"]:
        quote += f", {counts['no_reference']} {_HAD_NO_NUMBER}"
    if projected := Counter(verdict.verdict for verdict in verdicts if verdict.projected):
        cells = projected.total()
        quote += f"; {cells} {were(cells)} projected, not measured: {_held(projected)}"
        if lost := projected["no_reference"]:
            quote += f", {lost} {_HAD_NO_NUMBER}"
    if tolerance != TOLERANCE:
        quote += f". The tolerance is {percent(tolerance)}, not the default of {percent(TOLERANCE)}"
    by_other = f"{BY_DAYS[other(clock)].capitalize()}, of {counted(_compared(beside), 'cell')}: {_held(beside)}."
    return f"{quote}.", by_other if _compared(beside) else ""


def _compared(counts: Mapping[Word, int]) -> int:
    return counts["reproduced"] + sum(counts[word] for word in FAILED)


def _held(counts: Mapping[Word, int]) -> str:
    """Return how many cells agree, and how the others differ."""
    failed = sum(counts[word] for word in FAILED)
    return f"{counts['reproduced']} reproduced, {failed} differing{f' ({differing(counts)})' if failed else ''}"


def _counts(verdicts: Sequence[Verdict], records: Sequence[Record]) -> list[tuple[str, str, int]]:
    if _of_the_paper(records):
        counts = Counter(verdict.verdict for verdict in verdicts if not verdict.projected)
        projected = sum(verdict.projected for verdict in verdicts)
        return [
            ("", "cells compared", _compared(counts)),
            ("reproduced", "✓ reproduced", counts["reproduced"]),
            ("differing", "✗ differing", sum(counts[word] for word in FAILED)),
            *([("projected", "≈ projected", projected)] if projected else []),
            ("", "not measured", counts["not_measured"]),
        ]
    statuses = Counter(record.status for record in records)
    return [(status, status.replace("_", " "), number) for status, number in statuses.items()]


def _of_the_paper(records: Sequence[Record]) -> bool:
    """Return whether a report is about the paper's cells: not where all was on CPUs, or of models of one's own."""
    return not records or not (_on_cpus(records) or all(models.is_own(record.recipe) for record in records))


def _notes(runs: Joined) -> list[str]:
    """Return what limits the answer, the most important first."""
    records, verdicts, environments = runs.records, runs.verdicts, [run.environment for run in runs.runs]
    lines = another()
    lines += [
        f"The stack is not a lock's, whatever its versions: {reason}."
        for reason in dict.fromkeys(each.lock.reason for each in environments if each.lock.reason)
    ]
    if not records:
        return [*lines, "None of its trials was measured."]
    if _of_the_paper(records) and (reason := _why_not(runs)):
        lines.append(reason)
    statuses = Counter(record.status.replace("_", " ") for record in records)
    message = ", ".join(f"{count} {status}" for status, count in statuses.items())
    scales = " and ".join(sorted({f"{record.scale} scale" for record in records}))
    uncompiled = sum(map(ran_uncompiled, records))
    crashed = f", {uncompiled} of them uncompiled, as compiling crashed" if uncompiled else ""
    alone = sum(record.origin == "projected" for record in records)
    projected = f", {alone} of them projected from one device" if alone else ""
    subject = f"The {len(runs.runs)} runs have" if runs.several else "The run has"
    lines.append(f"{subject} {counted(len(records), 'trial')} at {scales}: {message}{crashed}{projected}.")
    lines += filter(None, [spread_summary(spreads_of(runs))])
    lines += runs.notes
    stacks = dict.fromkeys(each.stack for each in environments if each.stack)
    if stacks and any(verdict.compared or verdict.projected for verdict in verdicts):
        lines.append(f"Measured on {' and on '.join(stacks)}; the printed days are of the paper's stack.")
    lines += [f"{each.model} on {each.machine}: {each.skipping}." for each in searches(records) if each.skipped]
    lines += [audit_summary(audited)] if (audited := audit_measured(records)) else []
    return [*lines, *projection_errors(records)]


def _why_not(runs: Joined) -> str:
    """Return why a table has no cell that was compared; empty where both have."""
    unverified = [table for table in TABLES if not any(v.compared for v in runs.verdicts if v.table == table)]
    if (devices := runs.devices) and not any(device.gpu and device.gpu.paper_name for device in devices):
        return f"Why not: the paper has no {devices[0].name}; its four are {listing(paper_gpus())}."
    if not unverified:
        return ""
    of = "" if len(unverified) == len(TABLES) else f" of Table {unverified[0]}"
    return (
        f"Why not{of}: a trial can be compared with a cell at the paper's scale, on one node, with all of the GPU's "
        "memory, with naive or Appendix J's settings and their TF32, once it runs or runs out of memory; none here "
        "did, or its cell has no reference."
    )


_METHODS = ("settings", "status", "speed", "peak GiB", "peak GiB without", "losses differ by")
_PARTS = ("part", "here", "speed", "peak GiB", "peak GiB without", "reason")


def _of_methods(records: Sequence[Record]) -> list[Block]:
    blocks: list[Block] = []
    if found := pairs(records):
        blocks += [
            Heading("Methods of your own", "methods"),
            Table("methods", [method_row(*pair) for pair in found], brief=_METHODS),
            Bullets([LEGEND, *filter(None, (losses(*pair) for pair in found))]),
        ]
    if modern := ablations(records):
        rows = [row for each in modern for row in each.rows()]
        blocks += [
            Heading(ABLATION, "ablation", "Modern settings"),
            Table("parts", rows, brief=_PARTS),
            Bullets([PARTS_LEGEND, *(each.text for each in modern)]),
        ]
    return blocks


def _of_cells(verdicts: Sequence[Verdict]) -> list[Block]:
    compared, projected = ([v for v in verdicts if getattr(v, which)] for which in ("compared", "projected"))
    if not any(verdict.verdict != "not_measured" for verdict in verdicts):
        return []
    blocks: list[Block] = [Heading("Does each cell hold?", "verdicts", "Verdicts")]
    blocks += [verdict_grid(table, verdicts) for table in TABLES]
    if compared:
        blocks.append(Table("The cells that were compared, one by one", list(map(_cell, compared)), folded=True))
    if projected:
        title = "The cells that are projected, which verifies nothing, one by one"
        blocks.append(Table(title, list(map(_cell, projected)), folded=True))
    return blocks


def _cell(verdict: Verdict) -> dict[str, Any]:
    beside = other(verdict.clock)
    return {
        "table": verdict.table,
        "model": verdict.model,
        "GPUs": verdict.machine,
        "printed days": verdict.expected_days if verdict.expected_days is not None else verdict.expected,
        DAYS[verdict.clock]: verdict.chosen.days,
        "verdict": kind_of(verdict.chosen),
        DAYS[beside]: verdict.by(beside).days,
        f"verdict {BY_DAYS[beside]}": kind_of(verdict.by(beside)),
    }


def _of_trials(found: Sequence[Search], runs: Joined) -> list[Block]:
    """Return the trials of each recipe on each machine, with what their columns mean."""
    if not found:
        return []
    nearest = nearest_paper_gpu(runs.devices)
    places = [_place(search, runs) for search in in_order(found)]
    tables = [block for place in places for block in place.blocks if isinstance(block, Table)]
    there = list(dict.fromkeys(column for table in tables for column in table.rows[0]))
    noted = [Bullets(lines)] if (lines := notes(runs.records)) else []
    return [Heading("Every trial", "trials", "Trials"), Bullets(legend(there, nearest)), *places, *noted]


def _of_spreads(runs: Joined) -> Sequence[Block]:
    """Return how far trials that were measured several times are off themselves."""
    found = spreads_of(runs)
    lines = [
        f"{each.record.recipe}, {each.record.machine}, {settings_text(each.record)}: {each.relative:.1%} of "
        f"{significant(median(each.steps))} s, the median of {len(each.steps)} starts"
        for each in found
    ]
    heading = Heading("Run-to-run variation", "variation", "Variation")
    return _section(heading, [Sentence(spread_summary(found)), Bullets(lines)] if found else [])


def _place(search: Search, runs: Joined) -> Fold:
    """Return the trials of a search, with the paper's days on the most similar of its GPUs beside each."""
    twin = " (tiny twin)" if search.scale == "tiny" else ""
    space = set(search_space(search.world))
    tried = {Settings.parse(trial.settings).base for trial in search.tried}
    naive = ", and naive settings" if NAIVE in tried else ""
    searched = len(tried & space)
    says = [f"{searched} of the {len(space)} settings of the paper's search {were(searched)} tried{naive}."]
    if search.origin == "projected":
        says.append("One device was measured, what the others add is modelled: these times verify nothing.")
    if runs.several:
        folders = dict.fromkeys(str(runs.run_of(trial).folder) for trial in search.trials)
        says.append(f"Measured in {listing(list(folders))}.")
    title = f"{search.model}{twin} on {search.machine}{', projected' if search.origin == 'projected' else ''}"
    rows = trial_rows(search.trials, nearest_paper_gpu(runs.run_of(search.trials[0]).devices))
    return Fold(title, [Sentence(" ".join(says)), Table(title, rows)], _summary(search))


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


def _environments(runs: Joined) -> list[Block]:
    """Return the environment of each run that recorded one."""
    blocks: list[Block] = []
    for run in runs.runs:
        if run.environment == Environment():
            continue
        packages = sorted((run.environment.versions or {}).items())
        blocks += [Heading(str(run.folder))] if runs.several else []
        blocks.append(Facts(_facts(run)))
        listed = ", ".join(f"{name} {version}" for name, version in packages)
        blocks += [Fold(f"All {len(packages)} packages", [Sentence(listed)])] if packages else []
    return blocks


def _facts(reading: Reading) -> list[tuple[str, str]]:
    found = reading.environment
    commits = list(dict.fromkeys(record.commit for record in reading.records if record.commit))
    commit = ", ".join(commits) if len(commits) > 1 else found.commit or "unknown"
    commit = re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", commit)  # a whole hash breaks on a phone
    host, lock, packages = found.host, found.lock, found.versions or {}
    facts = {
        "GPUs": tallied(gpu.name for gpu in found.gpus or []),
        "driver": found.driver,
        "CPU": str(host),
        "system": f"{host.os}, Linux {host.kernel}" if host.kernel else host.os,
        "Python": found.python,
        "repro": f"{found.repro or 'a version that it does not name'}, commit {commit}",
        "packages": lock.summary,
        "stack": ", ".join(f"{name} {packages[name]}" for name in PACKAGES if name in packages),
        "seed": found.seed,
        "variables": " ".join(f"{name}={value}" for name, value in (found.variables or {}).items()),
        "tolerance": f"{percent(reading.options.tolerance)}, and half a day of rounding" if reading.options else None,
    }
    return [(name, str(value)) for name, value in facts.items() if value not in (None, "")]
