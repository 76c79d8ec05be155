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
from ..formats import path, percent, shell_words
from ..machine.packages import without_build
from ..printout import add_output

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
    add_output(parser)


def main(given: argparse.Namespace) -> int:
    drift = _share(given.drift, "--drift")
    before, after = read_side(given.before), read_side(given.after)
    compared = trials.compare(before, after, drift=drift)
    found = side.differences(before, after)
    only = trials.only_in(before, after), trials.only_in(after, before)
    notes = _notes(before, after, compared)
    print(report.report(compared, found, before.name, after.name, notes, given.format, *only, every=given.all))
    return report.exit_code(compared)


def _share(text: str, option: str) -> float:
    """Parse a share in percent, from 0% to 100%."""
    share = formats.number(text.removesuffix("%"), f"{option} {text}") if text.endswith("%") else None
    if share is None or share > 100:
        raise UserError(f"{option} {text}: expected a share from 0% to 100%, such as 10%")
    return share / 100


def _notes(before: Side, after: Side, compared: Sequence[Compared]) -> list[str]:
    """Describe the ratios or, where runs that were not interleaved leave an answer open, what would decide it."""
    apart = [each.judged for each in compared if each.judged and not each.judged.interleaved]
    if any(each.call == "inconclusive" for each in apart):
        return [_deciding(before, after)]
    how = ", start by start as these runs were not interleaved" if apart else ""
    return [
        f"A ratio is after over before, of seconds of a training step, with its {percent(1 - ALPHA)} interval{how}."
    ]


def _deciding(before: Side, after: Side) -> str:
    """Return the command that interleaves the two stacks, with the packages of AFTER that differ where they are few."""
    old, new = (each.environment.packages for each in (before, after))
    if old is not None and old == new:
        return "Both sides have the same packages, so there is no upgrade to decide on."
    changed = [f"{name}=={without_build(to)}" for name, to in (new or {}).items() if (old or {}).get(name, to) != to]
    against = " ".join(changed) if 0 < len(changed) <= _FEW else f"the lock of the stack of {after.name}"
    words = shell_words(["upgrade-check", "--against", against])
    return f"To decide it, interleave both stacks: {command()} {words}, on the stack of {before.name}."
