"""`repro compare`: compare two runs, trial by trial."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from .. import command, formats
from ..compare import report, side, trials
from ..compare.decision import ALPHA
from ..compare.side import Side, read_side
from ..compare.trials import Compared
from ..console import UserError
from ..formats import add_format, path, percent, shell_words
from ..machine.packages import without_build

_PLACES = (
    "BEFORE and AFTER: a results folder, a folder of such folders (each is one more start of its trials), or "
    "pytest-benchmark's JSON of a run. The folders before and after of an upgrade-check are compared in its pairs.\n"
    "exit codes: 0 nothing regressed; 1 something regressed or broke; 2 usage; 3 inconclusive"
)
_FEW = 6  # packages that a command names


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _PLACES
    parser.add_argument("before", type=path, metavar="BEFORE")
    parser.add_argument("after", type=path, metavar="AFTER")
    parser.add_argument(
        "--drift",
        default=percent(trials.DRIFT),
        metavar="10%",
        help="what one stack may differ from itself from run to run (default 10%%); upgrade-check's pairs have none",
    )
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    drift = _share(given.drift, "--drift")
    before, after = read_side(given.before), read_side(given.after)
    compared = trials.compare(before, after, drift=drift)
    found = side.differences(before, after)
    only = trials.only_in(before, after), trials.only_in(after, before)
    notes = _notes(before, after, compared)
    print(report.report(compared, found, before.name, after.name, notes, given.format, *only))
    return report.exit_code(compared)


def _share(text: str, option: str) -> float:
    """Parse a share in percent, from 0% to 100%."""
    share = formats.number(text.removesuffix("%"), f"{option} {text}") if text.endswith("%") else None
    if share is None or share > 100:
        raise UserError(f"{option} {text}: expected a share from 0% to 100%, such as 10%")
    return share / 100


def _notes(before: Side, after: Side, compared: Sequence[Compared]) -> list[str]:
    """Say what the ratios are and, where runs that were not interleaved leave an answer open, what would decide it."""
    judged = [each.judged for each in compared if each.judged]
    notes = [f"ratio: after over before, of seconds of a training step, with its {percent(1 - ALPHA)} interval."]
    if any(each.interleaved for each in judged):
        notes[0] += " Interleaved rows are judged in the pairs of their upgrade-check, as it judged them."
    if any(not each.interleaved for each in judged):
        notes[0] += (
            " Rows that are not interleaved are compared start by start, each the median of its processes (Hodges-"
            "Lehmann, rank sums): more runs make the interval narrower, and none of them shows how far the machine "
            "drifted between the two."
        )
    if any(not each.interleaved and each.call == "inconclusive" for each in judged):
        notes.append(_deciding(before, after))
    return notes


def _deciding(before: Side, after: Side) -> str:
    """Return the command that interleaves the two stacks, with the packages of AFTER that differ where they are few."""
    old, new = (each.environment.packages for each in (before, after))
    if old is not None and old == new:
        return "Both sides have the same packages, so there is no upgrade to decide on."
    changed = [f"{name}=={without_build(to)}" for name, to in (new or {}).items() if (old or {}).get(name, to) != to]
    against = " ".join(changed) if 0 < len(changed) <= _FEW else f"the lock of the stack of {after.name}"
    words = shell_words(["upgrade-check", "--against", against])
    return f"To decide it, interleave both stacks: {command()} {words}, on the stack of {before.name}."
