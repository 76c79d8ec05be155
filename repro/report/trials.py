"""Trials as rows of a table, and what is to be noted on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from .. import models
from ..formats import counted, first, significant
from ..machine.devices import Device
from ..paper.arithmetic import by_place
from ..paper.gpus import most_like
from ..paper.settings import NAIVE
from ..paper.tables import Table
from ..record import Record
from ..trial_warnings import warnings

GIB = 2**30


Column = tuple[str, Callable[[Record], Any], str]  # heading, value of a record, explanation


def columns(nearest: str | None) -> list[Column]:
    """Return the columns of trials, at most 8 of which are filled, with the paper's days on its GPU `nearest`."""
    return [
        ("settings", settings_text, ""),
        ("status", lambda record: record.status, ""),
        (
            "MBS",
            lambda record: record.batch.micro_batch,
            "MBS: micro-batch size, the examples that each device takes in a micro-step.",
        ),
        (
            "step s",
            lambda record: None if record.derived.true_days else record.derived.true_step,
            "step s: seconds of a training step, extrapolated from a few micro-steps.",
        ),
        (
            "true days",
            lambda record: record.derived.true_days,
            "true days: by device time, what one would wait. authors' days: by the authors' clock, host time without "
            "waiting for the device.",
        ),
        ("authors' days", lambda record: record.derived.authors_days, ""),
        (
            f"paper, {nearest}",
            lambda record: _paper_days(record, nearest) if nearest else None,
            "paper: its days with these settings; - infeasible, ? a mark that is illegible in our copy of the paper.",
        ),
        (
            "MFU",
            lambda record: None if (share := record.derived.utilisation) is None else f"{share:.0%}",
            "MFU: model FLOPs utilisation of the true step, as a share of the GPU's dense peak.",
        ),
        (
            "peak GiB",
            lambda record: peak / GIB if (peak := record.observed.peak_memory) is not None else None,
            "peak GiB: on a GPU what was allocated, which is less than --memory limits; on a CPU what was resident, "
            "with libraries and shared memory, which --memory leaves out.",
        ),
    ]


def trial_rows(records: Sequence[Record], nearest: str | None) -> list[dict[str, Any]]:
    """Return a row for each trial, all with the same columns, with the paper's days on its GPU `nearest`."""
    every = [{name: get(record.as_published) for name, get, _ in columns(nearest)} for record in records]
    return [{name: row[name] for name in row if any(each[name] is not None for each in every)} for row in every]


def legend(there: Sequence[str], nearest: str | None) -> list[str]:
    """Return explanations of these columns of trials, a line each."""
    return [explained for name, _, explained in columns(nearest) if name in there and explained]


def settings_text(record: Record) -> str:
    """Return the settings and the optional parts of the id, such as other rounds, which distinguish trials of a
    search."""
    words = record.id.partition(f"/{record.settings}/")[2].replace("projected-from-", "projected from ").split("/")
    more = ", ".join(words if record.memory_limit is None else words[1:])  # the machine's text has its limit
    return f"{record.settings} ({more})" if more else record.settings


def nearest_paper_gpu(devices: Sequence[Device]) -> str | None:
    """Return the paper's GPU most similar to these, whose settings a run uses; None for no GPU or an unknown one."""
    gpu = devices[0].gpu if devices else None
    return None if gpu is None else most_like(gpu).paper_name


def _paper_days(record: Record, gpu: str) -> str | None:
    """Return the paper's days in the table for these settings on its GPU, for display beside the measured ones; they
    are never compared. None for a machine unlike the paper's."""
    if not record.like_papers:
        return None
    table: Table = "4" if record.settings == NAIVE.id else "1"
    name = models.find(record.recipe).name
    cell = by_place(table).get((name, gpu, record.count))
    return None if cell is None else f"{cell.printed} (Table {table})"


def notes(records: Sequence[Record]) -> list[str]:
    """Return notes on trials without times, and on deviations from what was asked for; each note once, with its
    trials."""
    found: dict[str, list[str]] = {}
    for record in records:
        for note in notes_on(record):
            found.setdefault(note, []).append(f"{record.recipe}, {record.machine}, {settings_text(record)}")
    told = [f"{note} ({first(trials)})" for note, trials in found.items()]
    return told + _extrapolation_errors(records)


def _extrapolation_errors(records: Sequence[Record]) -> list[str]:
    """Return a sentence on the trials that timed whole training steps too; none where no trial did."""
    errors = [error for record in records if (error := record.observed.extrapolation_error) is not None]
    if not errors:
        return []
    ran = sum(record.timed and record.origin == "measured" for record in records)
    spread = f" in the median, from {min(errors):+.1%} to {max(errors):+.1%}" if len(errors) > 1 else ""
    return [
        f"Whole training steps were timed too in {len(errors)} of {counted(ran, 'trial')}: the extrapolated step is "
        f"{median(errors):+.1%} off{spread}."
    ]


def notes_on(record: Record) -> list[str]:
    """Return why a trial has no times, and deviations from what was asked for. Searches report skipped trials."""
    about = []
    of_part = record.modern is not None and record.status == "unsupported"  # the ablation has the reason
    if not record.timed and record.status != "skipped" and not of_part:
        about.append(f"{record.status}, {record.reason}; {record.remedy}")
    return about + warnings(record)


def projection_errors(records: Sequence[Record]) -> list[str]:
    """Return a sentence on each projected trial that was measured too: both steps, micro batches and peaks."""
    measured = {record.id: record for record in records if record.origin == "measured"}
    lines = []
    for record in records:
        beside = measured.get(record.id.replace(f"/projected-from-{record.measured_on}", ""))
        if record.origin == "measured" or beside is None or not (record.derived.true_step and beside.derived.true_step):
            continue
        step, true = record.derived.true_step, beside.derived.true_step
        peaks = [significant(peak / GIB) for each in (record, beside) if (peak := each.observed.peak_memory)]
        held = f"; peak {peaks[0]} and {peaks[1]} GiB" if len(peaks) == 2 else ""
        lines.append(
            f"{record.recipe}, {record.machine}, {record.settings}: a step of {significant(step)} s is projected, "
            f"{significant(true)} s measured ({step / true - 1:+.0%}); MBS {record.batch.micro_batch} and "
            f"{beside.batch.micro_batch}{held}."
        )
    return lines
