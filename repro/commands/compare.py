"""`repro compare`: compare two runs trial by trial, or this software stack with another on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import command, formats
from ..compare import report, side, trials
from ..compare.decision import ALPHA
from ..compare.side import Side, read_side
from ..compare.trials import Compared
from ..console import UserError
from ..formats import path, percent, shell_words
from ..machine.packages import without_build
from ..options import argument, declared, given, option
from .against_options import Against

_FEW = 6  # packages that a command names


def _share(text: str, option: str) -> float:
    """Parse a share in percent, from 0% to 100%."""
    share = formats.number(text.removesuffix("%"), f"{option} {text}") if text.endswith("%") else None
    if share is None or share > 100:
        raise UserError(f"{option} {text}: expected a share from 0% to 100%, such as 10%")
    return share / 100


@dataclass(frozen=True, kw_only=True)
class Asked(Against):
    epilog = (
        "BEFORE and AFTER: a results folder, or a folder of such folders (each is one more start of its trials). The "
        "folders before and after of --against are compared in its pairs.\n"
        "exit codes: 0 nothing regressed; 1 something regressed or broke; 2 usage, or a stack that cannot be built or "
        "imported; 3 inconclusive, or too little for --accept; 130 interrupted (the same command resumes)"
    )
    before: Path | None = argument("", "BEFORE", path, nargs="?")
    after: Path | None = argument("", "AFTER", path, nargs="?")
    drift: float | None = option(
        f"what one stack may differ from itself from run to run (default {percent(trials.DRIFT)}%); the pairs of "
        "--against have none",
        "10%",
        _share,
    )


def main(asked: Asked) -> int:
    if asked.against is not None:
        if useless := given(asked, ("before", "drift")):
            reason = "changes nothing with --against, which measures both stacks"
            raise UserError(f"{useless[0]} {reason}: leave one of them out")
        from .against import measure

        return measure(asked)
    if asked.before is None or asked.after is None:
        raise UserError("expected BEFORE and AFTER, two results, or --against LOCK, another software stack")
    if useless := given(asked, declared(Against)):
        raise UserError(f"{useless[0]} changes nothing without --against: leave it out; BEFORE and AFTER are measured")
    drift = trials.DRIFT if asked.drift is None else asked.drift
    before, after = read_side(asked.before), read_side(asked.after)
    compared = trials.compare(before, after, drift=drift)
    found = side.differences(before, after)
    alone, notes = trials.alone(before, after), _notes(before, after, compared)
    print(report.report(compared, found, before.name, after.name, notes, asked.format, alone, every=asked.all))
    return report.exit_code(compared)


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
    words = shell_words(["compare", "--against", against])
    return f"To decide it, interleave both stacks: {command()} {words}, on the stack of {before.name}."
