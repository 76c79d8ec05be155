"""`repro verify certificate.json DIR ...`: recompute a certificate from the results folders that it is of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ..console import FAILED, OK, UserError, say
from ..formats import Format, counted, listing, significant
from ..printout import output


def check(files: Sequence[Path], format: Format, every: bool) -> int:
    """Print whether a certificate follows from its folders, and what of it does not; where folders alone are given, of
    the one in the first. Name each folder that decides nothing."""
    from ..claims.measured import unsettling
    from ..run.reading import read
    from ..run.results import CERTIFICATE
    from ..verify.certificate import NOBODY, hashed
    from ..verify.check import differences, read_certificate, readings

    first, *folders = files
    if first.is_dir():
        first, folders = first / CERTIFICATE, list(files)
    if not folders:
        raise UserError(f"{first}: expected the results folders that it is of behind it")
    found = [read(folder) for folder in folders]
    silent = {run.folder: reason for run in found if not run.released and (reason := unsettling(run.records))}
    for folder, reason in silent.items():
        say(f"{folder} decides nothing of the paper: {reason.removeprefix('it settles no claim, as ')}")
    kept = read_certificate(first) if first.is_file() else None
    ours = {each.sha256 for each in kept.records} if kept else set()
    if len(silent) == len(found) and not any(each.sha256 in ours for run in found for each in hashed(run, 1)):
        return OK
    if kept is None:
        raise UserError(f"{first} is not there: report writes it beside its page")
    runs = readings(kept, folders)
    places = listing([str(run.folder) for run in runs])
    if wrong := differences(kept, runs):
        answer = f"{first} does not follow from {places}: {counted(len(wrong), 'difference')}."
        rows = [asdict(each) for each in wrong]
        print(output(answer, rows, rows, [], format, every))
        return FAILED
    rows = kept.rows()
    shown = [{name: _short(value) for name, value in row.items()} for row in rows]
    print(output(f"{first} follows from {places}: it decides {kept.summary}.", rows, shown, [NOBODY], format, every))
    return OK


def _short(value: object) -> object:
    return significant(value) if isinstance(value, float) else value
