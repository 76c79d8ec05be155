"""The text that a run prints at its end: trials, compared cells, and what was not verified and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from .. import datafile, models
from ..claims import check_all
from ..formats import Format, are, as_json, counted, first, from_to, listing, percent, render, significant, were
from ..machine.devices import Device
from ..machine.environment import Environment
from ..paper.arithmetic import by_place, paper_gpu
from ..paper.gpus import find, most_like, paper_gpus
from ..paper.settings import NAIVE
from ..paper.tables import TABLES, TOLERANCE, Table
from ..predict.audit import audit
from ..record import BY_DAYS, DAYS, DEFAULT, Record, other
from ..run.corrected import corrected_table, headline
from ..run.reading import Reading
from ..run.settings_search import Search, searches
from ..run.verdict import FAILED, PROJECTED, PROJECTED_FAILED, Verdict, Word, differing, explain
from ..validity import Answer, cpu_disturbance
from .ablation import ABLATION, ablation_rows, ablation_text
from .methods import LEGEND, method_losses, method_rows

_GIB = 2**30
_NEARLY = 0.9  # least limit over the paper card's memory: CUDA takes part of a card's memory, but not of a limit
_CLOCKS_DIFFER = 0.1
_HAD_NO_NUMBER = "had no printed number to compare with"
_DISTURBED = 2.0  # slowest over fastest round, above which another process is likely


_CLOCKS = (
    "authors: the authors' clock, host time without waiting for the device, every micro-step with gradient reduction, "
    "the mean of the rounds; true: device time, what one would wait, gradients reduced once a step unless they are "
    "sharded, the median round; synchronised: as true, in host time, waiting for the device after each part. A CPU has "
    "one clock for all three."
)
_EXPLAINED = {
    "MBS": "MBS: micro-batch size, the examples that each device takes in a micro-step.",
    "GAS": "GAS: gradient accumulation steps, the micro-steps in a training step.",
    "step s": "step s: seconds of a training step, by the true clock.",
    "authors s": "authors s, true s, synchronised s: seconds of a training step by three clocks.",
    "true s": _CLOCKS,
    "days (true)": _CLOCKS,
    "authors/true": "authors/true: the ratio of these two; a CPU has none.",
    "examples/s": "examples/s: over all devices, by the true clock.",
    "MFU": "MFU: model FLOPs utilisation of the true step, as a share of the GPU's dense peak.",
    "peak GiB": "peak GiB: on a GPU what was allocated (--memory limits what is reserved, which is more); on a CPU "
    "what was resident (--memory limits the data segment, which has no libraries and no shared memory).",
    "paper": "In the paper's column - is infeasible, and ? a mark that is lost.",
}


def legend(columns: Iterable[str]) -> list[str]:
    """Return explanations of these columns of trials, a line each."""
    there = {column.partition(",")[0] for column in columns}  # the paper's column contains its GPU's name
    explained = dict.fromkeys(explained for column, explained in _EXPLAINED.items() if column in there)
    return [
        "Times are extrapolated from one training step. Vision models are timm's. A dash: not measured.",
        *explained,
    ]


_IN_CSV = (
    *("id", "recipe", "scale", "machine", "settings", "status", "reason"),
    *("micro_batch", "accumulation", "authors_micro_batch"),
    *("authors_step", "true_step", "synchronised_step", "authors_days", "true_days", "synchronised_days"),
    *("examples_per_second", "utilisation", "peak_memory"),
)


def _csv_row(record: Record) -> dict[str, Any]:
    known = {**datafile.to_json(record), "machine": record.machine}
    return {name: known[name] for name in _IN_CSV}


def report(
    records: Sequence[Record],
    verdicts: Sequence[Verdict],
    devices: Sequence[Device] | None,
    format: Format,
    runs: Sequence[Reading] = (),
    environments: Sequence[Environment] = (),
) -> str:
    """Return the report as text, Markdown, CSV or JSON. `devices` is None where there was no run. CSV has one row a
    trial or, without any, one a cell; JSON has trials, verdicts and summary. With several `runs`, each trial has its
    folder. `environments` are those of the runs."""
    published = [record.as_published for record in records]
    tables = [("TRIALS", records, devices)]
    folders: dict[str, dict[str, str]] = {}
    if len(runs) > 1:
        tables = [(f"TRIALS OF {run.folder}", run.records, run.devices) for run in runs]
        folders = {record.id: {"folder": str(run.folder)} for run in runs for record in run.records}
    if format == "csv":
        of_trials = [_csv_row(each) | folders.get(each.id, {}) for each in published]
        return render(of_trials or [verdict.row() for verdict in verdicts], "csv")
    if format == "json":
        return as_json(
            {
                "trials": [datafile.to_json(record) | folders.get(record.id, {}) for record in published],
                "verdicts": [verdict.row() for verdict in verdicts],
                "headline": " ".join(opening(verdicts, records)),
                "tolerance": verdicts[0].tolerance,
                "summary": summary(verdicts, devices, records, environments),
                "searches": [_search(each) for each in searches(records) if each.skipped],
                "methods": method_rows(records),
                "ablation": ablation_rows(records),
            }
        )
    parts = ["\n".join(opening(verdicts, records)), *summary(verdicts, devices, records, environments)]
    compared = compared_rows(verdicts)
    if compared:
        parts += ["CELLS COMPARED WITH THE PAPER", render(compared, "text"), *_bullets(failures(verdicts))]
    if projected := projected_rows(verdicts):
        parts += ["CELLS PROJECTED, WHICH VERIFIES NOTHING", render(projected, "text")]
    columns: list[str] = []
    for title, ran, on in tables:
        if rows := trial_rows(ran, nearest_paper_gpu(on)):
            parts += [title, render(rows, "text")]
            columns += rows[0]
    if columns:
        parts.append("\n".join(_bullets(legend(columns))))
    if methods := method_rows(records):
        lines = [LEGEND, *(f"{line}." for line in method_losses(records))]
        parts += ["METHODS OF YOUR OWN", render(methods, "text"), "\n".join(_bullets(lines))]
    skipping = [f"{each.model} on {each.machine}: {each.skipping}." for each in searches(records) if each.skipped]
    if skipping:
        parts += ["SEARCH AMONG THE BEST PREDICTED", "\n".join(_bullets(skipping))]
    if errors := projection_errors(records):
        parts += ["PROJECTED AGAINST MEASURED", "\n".join(_bullets(errors))]
    if found := [*notes(records), *extrapolation_errors(records)]:
        parts += ["NOTES", "\n".join(_bullets(found))]
    if ablation := ablation_rows(records):
        table = render([{key: value for key, value in row.items() if key != "reason"} for row in ablation], "text")
        reasons = dict.fromkeys(f"{row['model']}, {row['part']}: {row['reason']}." for row in ablation if row["reason"])
        parts += [ABLATION.upper(), "\n".join(_bullets([*ablation_text(records), *reasons])), table]
    return "\n\n".join(parts)


def settings_text(record: Record) -> str:
    """Return the settings and the optional parts of the id, such as other rounds, which distinguish trials of a
    search."""
    words = record.id.partition(f"/{record.settings}/")[2].replace("projected-from-", "projected from ").split("/")
    more = ", ".join(words if record.memory_limit is None else words[1:])  # the machine's text has its limit
    return f"{record.settings} ({more})" if more else record.settings


def _search(search: Search) -> dict[str, Any]:
    return {
        "recipe": search.recipe,
        "machine": search.machine,
        "tried": len(search.tried),
        "skipped": len(search.skipped),
        "seconds": search.seconds,
    }


def opening(verdicts: Sequence[Verdict], records: Sequence[Record]) -> list[str]:
    """Return the sentences with which a report begins: the days of models of one's own; what ran, where it was all on
    CPUs; else how the cells of Tables 1 and 4 compare."""
    if own := [each for each in searches(records, verdicts[0].clock) if models.is_own(each.recipe)]:
        return list(filter(None, map(_days, own)))
    if records and all(record.device == "cpu" for record in records):
        return [_everything_works(records), without_gpu()]
    return list(filter(None, sentences(verdicts)))


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
    ran = sum(Answer.of(record).was_timed for record in records)
    scale = " at tiny scale" if all(record.scale == "tiny" for record in records) else ""
    well = "everything works here" if ran == len(records) else f"{len(records) - ran} did not, for the reasons below"
    return (
        f"{ran} of {len(records)} settings ran on this CPU{scale}: {well}. No number of the paper was measured; that "
        "needs one of its GPUs."
    )


def without_gpu() -> str:
    """Return a sentence on what this checkout finds without a GPU."""
    verdicts = Counter(claim.verdict for claim in check_all(None, DEFAULT))
    audited = audit()
    impossible = sum(row.verdict == "impossible" for row in audited)
    holding = verdicts["holds"] + verdicts["holds_by_rounding"]
    waited = headline("1", DEFAULT, corrected_table("1")).rstrip(".")
    return (
        f"Without a GPU: {holding} of the papers' claims hold and {verdicts['differs']} differ (claims); {impossible} "
        f"of {len(audited)} printed numbers of days cannot be true (audit); {waited} (table 1 --by true)."
    )


def sentences(verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """Return one sentence that counts the cells of Tables 1 and 4 by the judging clock, and one by the other, empty
    where that compares none. The first has the tolerance if it is not the default."""
    clock, tolerance = verdicts[0].clock, verdicts[0].tolerance
    counts, beside = (Counter(verdict.by(each).verdict for verdict in verdicts) for each in (clock, other(clock)))
    compared, missing = _compared(counts), counts["not_measured"]
    quote = f"Of the {len(verdicts)} cells of Tables 1 and 4, {compared or 'none'} {were(compared or 1)} compared"
    if compared:
        quote += f" {BY_DAYS[clock]}: {_held(counts)}"
    if missing:
        quote += f"; {missing} {were(missing)} not measured"
    if counts["no_reference"]:
        quote += f", {counts['no_reference']} {_HAD_NO_NUMBER}"
    if projected := projected_text(counts):
        quote += f"; {projected}"
    if tolerance != TOLERANCE:
        quote += f". The tolerance is {percent(tolerance)}, not the default of {percent(TOLERANCE)}"
    by_other = f"{BY_DAYS[other(clock)].capitalize()}, of {counted(_compared(beside), 'cell')}: {_held(beside)}."
    return f"{quote}.", by_other if _compared(beside) else ""


def projected_text(counts: Mapping[Word, int]) -> str:
    """Return the count of the projected cells, and how they compare, which verifies none; empty without one."""
    if not (cells := sum(counts[word] for word in PROJECTED)):
        return ""
    failed = sum(counts[word] for word in PROJECTED_FAILED)
    differ = f"{failed} differing{f' ({differing(counts, PROJECTED_FAILED)})' if failed else ''}"
    text = f"{cells} {were(cells)} projected, not measured: {counts['projected_reproduced']} reproduced, {differ}"
    if lost := counts["projected_no_reference"]:
        text += f", {lost} {_HAD_NO_NUMBER}"
    return text


def _compared(counts: Mapping[Word, int]) -> int:
    return counts["reproduced"] + sum(counts[word] for word in FAILED)


def _held(counts: Mapping[Word, int]) -> str:
    """Return how many cells agree, and how the others differ."""
    failed = sum(counts[word] for word in FAILED)
    return f"{counts['reproduced']} reproduced, {failed} differing{f' ({differing(counts)})' if failed else ''}"


def summary(
    verdicts: Sequence[Verdict],
    devices: Sequence[Device] | None,
    records: Sequence[Record],
    environments: Sequence[Environment] = (),
) -> list[str]:
    """Return sentences on what was verified, each with the counts by both clocks; nothing where all was on CPUs, or of
    models of one's own. Then come the stack of what was compared, and differences of the stack from its versions or
    lock."""
    lines = []
    on_cpus = bool(records) and all(record.device == "cpu" for record in records)
    papers = not records or not all(on_cpus or models.is_own(record.recipe) for record in records)
    for table in TABLES if papers else ():
        rows = [verdict for verdict in verdicts if verdict.table == table]
        clock = rows[0].clock
        counts, beside = (Counter(verdict.by(each).verdict for verdict in rows) for each in (clock, other(clock)))
        reproduced, compared = counts["reproduced"], _compared(counts)
        if compared == 0:
            text = f"Table {table}: none of its {len(rows)} cells was verified"
        else:
            text = f"Table {table}: of {counted(compared, 'cell')} compared {reproduced} {are(reproduced)} reproduced "
            text += f"{BY_DAYS[clock]}{f' ({differing(counts)})' if reproduced < compared else ''} and "
            text += f"{beside['reproduced']} {BY_DAYS[other(clock)]}"
        text += f"; {counts['not_measured']} not measured"
        if projected := projected_text(counts):
            text += f"; {projected}"
        if counts["no_reference"]:  # of measured cells: an unmeasured cell with a lost mark counts as not measured
            text += f", {counts['no_reference']} {_HAD_NO_NUMBER}"
        lines.append(f"{text}.")
    stacks = dict.fromkeys(each.stack for each in environments if each.stack)
    if stacks and any(verdict.compared or verdict.projected for verdict in verdicts):
        lines.append(f"Measured on {' and on '.join(stacks)}; the printed days are of the paper's stack.")
    unverified = [table for table in TABLES if not any(v.compared for v in verdicts if v.table == table)]
    if not papers:
        pass
    elif devices is None:
        lines.append("Why not: there is no run here, these are the published numbers alone.")
    elif not records:
        lines.append("None of its trials was measured.")
    elif devices and not any(device.gpu and device.gpu.paper_name for device in devices):
        lines.append(f"Why not: the paper has no {devices[0].name}; its four are {listing(paper_gpus())}.")
    elif unverified:
        of = "" if len(unverified) == len(TABLES) else f" of Table {unverified[0]}"
        lines.append(
            f"Why not{of}: a trial can be compared with a cell at the paper's scale, on one node, with all "
            "of the GPU's memory, with naive or Appendix J's settings and their TF32, once it runs or runs out of "
            "memory; none here did, or its cell has no reference."
        )
    if another := datafile.of_another():
        lines.append(f"{another[0].upper()}{another[1:]}.")
    for reason in dict.fromkeys(each.lock.reason for each in environments if each.lock.reason):
        lines.append(f"The stack is not a lock's, whatever its versions: {reason}.")
    return lines


def nearest_paper_gpu(devices: Sequence[Device] | None) -> str | None:
    """Return the paper's GPU most similar to these, whose settings a run uses; None for no GPU or an unknown one."""
    gpu = devices[0].gpu if devices else None
    return None if gpu is None else most_like(gpu).paper_name


def trial_rows(records: Sequence[Record], nearest: str | None) -> list[dict[str, Any]]:
    """Return a row for each trial, all with the same columns, with the paper's days on its GPU `nearest`."""
    paper = any(record.scale == "paper" for record in records)
    utilised = paper or any(record.derived.utilisation is not None for record in records)
    return [_trial_row(record.as_published, nearest, paper, utilised) for record in records]


def _trial_row(record: Record, nearest: str | None, paper: bool, utilised: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": record.recipe,
        "machine": record.machine,
        "settings": settings_text(record),
        "status": record.status,
        "MBS": record.batch.micro_batch,
        "GAS": record.batch.accumulation,
        "step s": record.derived.true_step,
    }
    if paper:
        row |= {
            "days (true)": record.derived.true_days,
            "days (authors)": record.derived.authors_days,
            "days (synchronised)": record.derived.synchronised_days,
            "authors/true": record.clocks_ratio if record.scale == "paper" else None,
        }
    row["examples/s"] = record.derived.examples_per_second
    if utilised:
        row["MFU"] = None if record.derived.utilisation is None else f"{record.derived.utilisation:.0%}"
    if nearest is not None:
        row[f"paper, {nearest}"] = _paper_days(record, nearest)
    row["peak GiB"] = record.observed.peak_memory / _GIB if record.observed.peak_memory is not None else None
    return row


def _paper_days(record: Record, gpu: str) -> str | None:
    """Return the paper's days in the table for these settings on its GPU, for display beside the measured ones; they
    are never compared. None for a machine unlike the paper's; a larger card with a memory limit can be similar."""
    if not record.like_papers and not _is_larger_under_limit(record, gpu):
        return None
    table: Table = "4" if record.settings == NAIVE.id else "1"
    name = models.find(record.recipe).name
    cell = by_place(table).get((name, gpu, record.count))
    return None if cell is None else f"{cell.printed} (Table {table})"


def _is_larger_under_limit(record: Record, gpu: str) -> bool:
    """Return whether the limit is about the memory of the paper's GPU, on one node at the paper's scale."""
    card, memory = find(record.device), paper_gpu(gpu).memory_gb
    larger = card is not None and card.memory_gb > memory and record.scale == "paper" and record.nodes == 1
    return larger and record.memory_limit is not None and _NEARLY <= record.memory_limit / 2**30 / memory <= 1


def compared_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the cells that were compared with the paper, a row each."""
    return [_verdict_row(verdict) for verdict in verdicts if verdict.compared]


def projected_rows(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return the cells whose days are projected, a row each."""
    return [_verdict_row(verdict) for verdict in verdicts if verdict.projected]


def failures(verdicts: Sequence[Verdict]) -> list[str]:
    """Return a sentence for each cell that differs."""
    return [explain(verdict) for verdict in verdicts if verdict.verdict in FAILED]


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    beside = other(verdict.clock)
    return {
        "table": verdict.table,
        "model": verdict.model,
        "GPUs": f"{verdict.gpus} x {verdict.gpu}",
        "printed days": verdict.expected_days if verdict.expected_days is not None else verdict.expected,
        DAYS[verdict.clock]: verdict.chosen.days,
        "verdict": verdict.verdict,
        DAYS[beside]: verdict.by(beside).days,
        f"verdict {BY_DAYS[beside]}": verdict.by(beside).verdict,
        "settings": verdict.chosen.settings,
    }


def notes(records: Sequence[Record]) -> list[str]:
    """Return notes on trials without times, on deviations from what was asked for and on differences between the
    clocks; each note once, with its trials."""
    found: dict[str, list[str]] = {}
    for record in records:
        for note in [*notes_on(record), *_clocks_note(record)]:
            found.setdefault(note, []).append(f"{record.recipe}, {record.machine}, {settings_text(record)}")
    return [f"{note} ({first(trials)})" for note, trials in found.items()]


def notes_on(record: Record) -> list[str]:
    """Return why a trial has no times, and deviations from what was asked for. Searches report skipped trials."""
    about, answer = [], Answer.of(record)
    of_part = record.modern is not None and record.status == "unsupported"  # the ablation has the reason
    if not answer.was_timed and answer is not Answer.SKIPPED and not of_part:
        about.append(f"{record.status}, {record.reason}; {record.remedy}")
    about += record.warnings
    if (others := cpu_disturbance(record.observed.busy_cpus)) is not None:
        about.append(f"{others} while it was timed: its steps may have taken longer than alone")
    return about + _noise_note(record)


def _noise_note(record: Record) -> list[str]:
    """Return a note where rounds of the same step, or both clocks of a CPU, differ by more than a factor of two."""
    seconds = list(record.derived.step_rounds)
    if record.device == "cpu" and record.derived.synchronised_step is not None:
        seconds.append(record.derived.synchronised_step)
    if not seconds or max(seconds) <= _DISTURBED * min(seconds):
        return []
    return [f"its steps took {from_to(seconds)} s: what else ran on this machine?"]


def _clocks_note(record: Record) -> list[str]:
    ratio = record.clocks_ratio if record.scale == "paper" else None
    if ratio is None or abs(ratio - 1) <= _CLOCKS_DIFFER:
        return []
    return [f"the authors' clock shows {ratio:.0%} of the true time"]


def extrapolation_errors(records: Sequence[Record]) -> list[str]:
    """Return a sentence on the trials that timed whole training steps too; none where no trial did."""
    errors = [error for record in records if (error := record.observed.extrapolation_error) is not None]
    if not errors:
        return []
    ran = sum(Answer.of(record).was_timed and record.origin == "measured" for record in records)
    spread = f", from {min(errors):+.1%} to {max(errors):+.1%}" if len(errors) > 1 else ""
    return [
        f"Whole training steps were timed too in {len(errors)} of {counted(ran, 'trial')}: the extrapolated step is "
        f"{median(errors):+.1%} off{' in the median' if spread else ''}{spread}."
    ]


def projection_errors(records: Sequence[Record]) -> list[str]:
    """Return a sentence on each projected trial that was measured too: both steps, micro batches and peaks."""
    measured = {_without_origin(record): record for record in records if record.origin == "measured"}
    lines = []
    for record in records:
        beside = measured.get(_without_origin(record))
        if record.origin == "measured" or beside is None or not (record.derived.true_step and beside.derived.true_step):
            continue
        steps = [each.derived.true_step or 0.0 for each in (record, beside)]
        peaks = [f"{significant(peak / _GIB)}" for each in (record, beside) if (peak := each.observed.peak_memory)]
        held = f"; peak {peaks[0]} and {peaks[1]} GiB" if len(peaks) == 2 else ""
        lines.append(
            f"{record.recipe}, {record.machine}, {record.settings}: a step of {significant(steps[0])} s is projected, "
            f"{significant(steps[1])} s measured ({steps[0] / steps[1] - 1:+.0%}); MBS {record.batch.micro_batch} and "
            f"{beside.batch.micro_batch}{held}."
        )
    return lines


def _without_origin(record: Record) -> str:
    return record.id.replace(f"/projected-from-{record.measured_on}", "")


def _bullets(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]
