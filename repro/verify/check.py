"""Recompute a certificate from the folders that it names, and say what differs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import datafile
from ..console import UserError
from ..formats import counted
from ..run.reading import Reading, alone, join, read, refuse_twice
from ..run.results import CERTIFICATE, TRIALS
from .certificate import Certificate, build, hashed


@dataclass(frozen=True)
class Difference:
    """What of a certificate does not follow from its folders: where, and how."""

    where: str
    what: str


def read_certificate(path: Path) -> Certificate:
    """Return the certificate in a file. Raise UserError where it is none."""
    try:
        return datafile.read(path, Certificate)
    except datafile.NotAsDeclaredError as error:
        raise UserError(f"{path} is no certificate ({error}): name a {CERTIFICATE} that report wrote") from None


def readings(kept: Certificate, folders: Sequence[Path]) -> list[Reading]:
    """Return the folders in the order of the certificate: for each of its own, the one with most of its lines. Raise
    UserError where there are more or fewer."""
    refuse_twice(folders)
    if len(folders) != len(kept.folders):
        named = ", ".join(kept.names)
        raise UserError(f"the certificate is of {counted(len(kept.folders), 'folder')}, {named}: expected as many")
    left = [read(folder, kept.clock) for folder in folders]
    found = []
    for number in range(1, len(folders) + 1):
        wanted = {each.sha256 for each in kept.records if each.folder == number}
        best = max(left, key=lambda run: len(wanted & {each.sha256 for each in hashed(run, number)}))
        found.append(best)
        left.remove(best)
    return list(alone(found))


def differences(kept: Certificate, runs: Sequence[Reading]) -> list[Difference]:
    """Return each record that is not the certificate's; where all are, each value that does not follow from them."""
    found = [each for number, run in enumerate(runs, 1) for each in _of_records(kept, number, run)]
    if found:
        return found
    made = build(join(*runs))
    if made is None:
        return [Difference("the certificate", "its records decide no cell and no claim")]
    then, now = datafile.to_json(kept), datafile.to_json(made)
    for each, name in zip(now["folders"], kept.names, strict=True):
        each["name"] = name  # a copy of a folder may have another
    del then["repro"], now["repro"]
    return _of_values(then, now, "")


def _of_records(kept: Certificate, number: int, run: Reading) -> list[Difference]:
    """Return how a folder's lines differ from the certificate's."""
    file = run.folder if run.released else run.folder / TRIALS
    then = {each.line: each for each in kept.records if each.folder == number}
    now = {each.line: each for each in hashed(run, number)}
    found = []
    for line in sorted({*then, *now}):
        old, new = then.get(line), now.get(line)
        trial = (old or new).trial  # type: ignore[union-attr]
        where = f"{file}, line {line}, {trial}" if line else str(file)
        if old is None:
            found.append(Difference(where, "the certificate has no such line"))
        elif new is None:
            found.append(Difference(where, "the line is missing, or is no record any more"))
        elif old.sha256 != new.sha256:
            text = f"changed since the certificate was made: its sha256 was {old.sha256[:12]}, is {new.sha256[:12]}"
            found.append(Difference(where, text))
    return found


def _of_values(then: Any, now: Any, where: str) -> list[Difference]:
    """Return where two JSON values differ, by their path; a row of a list goes by its cell, claim or folder."""
    if isinstance(then, dict) and isinstance(now, dict):
        pairs = [(str(key), then.get(key), now.get(key)) for key in {**then, **now}]
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        pairs = [(_name(old, at), old, new) for at, (old, new) in enumerate(zip(then, now, strict=True))]
    else:
        what = f"{_short(then)} in the certificate, {_short(now)} by the records"
        return [] if then == now else [Difference(where, what)]
    return [each for key, old, new in pairs for each in _of_values(old, new, f"{where}, {key}" if where else key)]


def _name(row: Any, at: int) -> str:
    named = [row[key] for key in ("cell", "claim", "name") if key in row] if isinstance(row, dict) else []
    return str(named[0] if named else at + 1)


def _short(value: Any) -> str:
    return f"{len(value)} rows" if isinstance(value, list) else "nothing" if value is None else str(value)
