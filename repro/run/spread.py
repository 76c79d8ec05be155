"""How far the same trial is off itself from run to run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..formats import counted
from ..record import Record
from ..validity import undisturbed
from .reading import Joined


@dataclass(frozen=True)
class Spread:
    """The true steps of a trial in seconds, one for each start of the stack, of which `record` is one."""

    record: Record
    steps: tuple[float, ...]

    @property
    def relative(self) -> float:
        """Return how far the slowest is from the fastest, relative to their median."""
        return (max(self.steps) - min(self.steps)) / median(self.steps)


def of_runs(runs: Joined) -> list[Spread]:
    """Return the spread of each trial that one of these runs measured several times."""
    return [spread for run in runs.runs for spread in spreads(run.every)]


def spreads(records: Iterable[Record]) -> tuple[Spread, ...]:
    """Return the spread of each trial that was measured from several starts of the stack. Of one start, whose processes
    share what it decided, the median counts; what was disturbed does not."""
    found: dict[str, tuple[Record, dict[float, list[float]]]] = {}
    for record in records:
        step, start = record.derived.true_step, record.stack_started
        if undisturbed(record) and record.origin == "measured" and step is not None and start is not None:
            found.setdefault(record.id, (record, {}))[1].setdefault(start, []).append(step)
    return tuple(
        Spread(record, tuple(map(median, starts.values()))) for record, starts in found.values() if len(starts) > 1
    )


def summary(found: Sequence[Spread]) -> str:
    """Return a sentence on the spreads of several trials; empty for none."""
    if not found:
        return ""
    apart = [each.relative for each in found]
    times = sorted({len(each.steps) for each in found})
    often = " to ".join(dict.fromkeys(map(str, (times[0], times[-1]))))
    middle = f", {median(apart):.1%} in the median" if len(apart) > 1 else ""
    return (
        f"Run to run, in {counted(len(found), 'trial')} measured from {often} starts of the stack, the slowest step is "
        f"off the fastest by at most {max(apart):.1%} of their median{middle}."
    )
