"""A results folder of somebody else: its check, its README, and its row of results/index.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from .. import command, datafile, files
from ..console import UserError
from ..formats import counted, listing, shell_words, tallied
from ..predict.audit import audit_measured
from ..record import Record
from ..run.reading import Reading, read
from ..run.records import Problem, all_valid_records, latest_of
from ..run.results import TRIALS, read_trials
from .certificate import Certificate

INDEX = "index.csv"


@dataclass(frozen=True)
class Entry:
    """A row of index.csv: a contributed folder, its machine and stack, and what its check found."""

    folder: str
    gpus: str
    stack: str | None
    repro: str | None
    records: int
    decides: str
    checked: str


def raw_times(record: Record) -> str:
    """Return the raw times of a record, which no two measurements have alike; empty where nothing was timed."""
    times = record.times
    return json.dumps([times.host, times.device_times, times.synchronised]) if record.timed else ""


def check(run: Reading, kept: Iterable[Path]) -> list[str]:
    """Return what a stranger's records fail in: raw times that contradict each other, physics that no GPU has, and
    raw times that are those of another record, in the folder or in the `kept` ones."""
    problems: list[Problem] = []
    latest_of(all_valid_records(run.folder, problems), run.environment, problems)
    found = [f"{problem.where}: {problem.what}" for problem in problems]
    beyond = [each for each in audit_measured(run.records) if each.clock == "true" and each.verdict != "plausible"]
    found += [f"{each.model} on {each.machine}: {each.days:.1f} true days are {each.verdict}" for each in beyond]
    known: dict[str, str] = {}
    for folder in kept:
        lines = read_trials(folder).lines
        known |= {raw_times(each.record): f"{folder.name}, line {each.number}" for each in lines if each.record}
    for line in read_trials(run.folder).lines:
        times = raw_times(line.record) if line.record else ""
        if times and times in known:
            found.append(f"{TRIALS}, line {line.number}: the raw times of {known[times]}, to the last digit: a copy")
        known.setdefault(times, f"line {line.number}")
    return found


def entry(run: Reading, certificate: Certificate | None, failed: list[str]) -> Entry:
    """Return the row of a checked folder."""
    return Entry(
        run.folder.name,
        tallied(gpu.name for gpu in run.environment.gpus or []) if run.environment.gpus else "CPUs",
        run.environment.stack or None,
        run.environment.repro,
        len(run.records),
        certificate.summary if certificate else "nothing",
        f"{counted(len(failed), 'finding')}, see README.md" if failed else "nothing found",
    )


def readme(row: Entry, failed: list[str], doubtful: int) -> str:
    """Return the README of a contributed folder."""
    where = shell_words([Path("results", row.folder)])
    findings = "\n".join(f"- {each}" for each in failed) or "- Nothing."
    return f"""# {row.folder}

Measured by somebody else, on {row.gpus}, with repro {row.repro} and {row.stack or "an unnamed stack"}:
{counted(row.records, "trial")}. The folder decides {row.decides} of the paper.

`{command()} contribute` took out names of people and machines, and made `report.md`, `report.html` and the certificate
anew. {counted(doubtful, "place")} that no rule covers were listed for a person to look at.

What the check of raw times, physics and copies found:

{findings}

To read it: `./run_all.sh report {where}`.
"""


def listed(folder: Path) -> list[Entry]:
    """Return the contributed folders of a folder of results, by its index.csv; none without one."""
    file = folder / INDEX
    return [row for _, row in datafile.csv_rows(file, Entry)] if file.is_file() else []


def add(row: Entry, folder: Path) -> None:
    """Write a row into index.csv of a folder of results, in place of one of the same name."""
    rows = [each for each in listed(folder) if each.folder != row.folder] + [row]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(datafile.columns(Entry))
    for each in rows:
        values = [getattr(each, column.name) for column in fields(Entry)]
        writer.writerow(["-" if value is None else value for value in values])
    files.replace(folder / INDEX, text.getvalue(), named=True)


def refuse_changed(before: Reading, after: Reading, taken_out: Iterable[str]) -> None:
    """Raise UserError where taking names out changed what the records say, as a name such as `naive` does."""

    def said(run: Reading) -> list[object]:
        records = [(each.id, each.status, raw_times(each)) for each in run.records]
        return [records, run.environment.stack, run.environment.gpus, run.environment.commits]

    if said(before) != said(after):
        lost = {each.id for each in before.records} - {each.id for each in after.records}
        what = f"{listing(sorted(lost)[:3])} would be lost" if lost else "its times or its stack would be others"
        names = listing(list(dict.fromkeys(taken_out)))
        raise UserError(f"{before.folder}: {what} without {names}, of which one is also a word of results")


def read_again(folder: Path, texts: dict[str, str]) -> Reading:
    """Write these files into a folder, and read it as results."""
    for name, text in texts.items():
        files.replace(folder / name, text, named=True)
    return read(folder)
