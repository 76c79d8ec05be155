"""What a person sees while a run goes on, on stderr: how many trials there are, then a line for each with the time that
is left."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

from ..console import say, visible
from ..formats import counted, duration, significant
from ..record import Record, Trial
from ..validity import cpu_disturbance
from .estimate import LOADING, REPORTING
from .plan import measurement

if TYPE_CHECKING:
    from .run import Run


class Progress:
    """Tells of trials, or parts of a check, as they are done. `seconds` are what each should take, and `after` those of
    what comes behind them, which a time budget ends no sooner; the budget's seconds count from now."""

    def __init__(self, seconds: dict[str, float], after: float, budget: float = math.inf) -> None:
        self._seconds, self._waiting, self._after = seconds, dict(seconds), after
        self._took = self._estimated = 0.0  # by those that ran
        self._deadline = time.monotonic() + max(0.0, budget)

    @classmethod
    def of_run(cls, run: Run) -> Progress:
        """Return that of a run's trials. What could be imported is known by now: a trial that cannot run takes no
        time."""
        return cls(run.seconds, REPORTING, run.left)

    def expect(self, name: str, seconds: float) -> None:
        """Add a trial that was not planned, as a search may."""
        if name not in self._seconds:
            self._seconds[name] = self._waiting[name] = seconds

    def tell(self, trial: Trial, record: Record | None, earlier: bool, number: int = 1) -> None:
        """Print what became of a trial, measured for the how manyth time: its record, which may be an earlier run's, or
        None where it was left out."""
        took = None if record is None or earlier else record.wall_seconds
        text = "" if earlier and number > 1 else _summary(record, earlier)
        self._tell(measurement(trial, number), took, text, time_left=not earlier)

    def tell_part(self, part: str, took: float | None) -> None:
        """Print that a part took so many seconds; nothing where an earlier check had done it, which is None."""
        self._tell(part, took, "" if took is None else f"{took:.0f} s", time_left=True)

    def _tell(self, name: str, took: float | None, text: str, time_left: bool) -> None:
        del self._waiting[name]
        if took is not None:
            self._took, self._estimated = self._took + took, self._estimated + self._seconds[name]
        if not text:
            return
        total, done = len(self._seconds), len(self._seconds) - len(self._waiting)
        left = f"; about {duration(self._left())} left" if time_left and self._waiting else ""
        print(f"[{done:>{len(str(total))}}/{total}] {visible(f'{name}: {text}')}{left}", file=sys.stderr, flush=True)

    def _left(self) -> float:
        """Return the seconds to go at the pace so far, to which a tenth of the estimate counts as run; no more than the
        budget leaves."""
        pace = 1.0
        if self._took and self._estimated:
            believed = sum(self._seconds.values()) / 10
            pace = (self._took + believed) / (self._estimated + believed)
        left = pace * (sum(self._waiting.values()) + self._after)
        return min(left, max(0.0, self._deadline - time.monotonic()) + self._after)


def announce(run: Run) -> None:
    """Say how many trials a run has, and how long they should take."""
    waiting, budget = len(run.waiting), run.options.budget
    seconds = (LOADING if run.loads else 0.0) + sum(run.seconds.values())
    kept = f", {len(run.chosen) - waiting} of them done by an earlier run" if waiting < len(run.chosen) else ""
    # The report is no matter of the budget.
    allowed = f", of which the budget allows {duration(budget)}" if budget is not None and budget < seconds else ""
    times = f", each {run.options.repeat} times" if run.options.repeat > 1 else ""
    plan = f"{counted(len(run.chosen), 'trial')}{times}{kept}; about {duration(seconds + REPORTING)} to go, by estimate"
    devices = ", ".join(device.driver_name for device in run.devices) or "the CPU"
    say(f"{plan}{allowed}; on {devices}, results in {run.results.folder}")


def _summary(record: Record | None, earlier: bool) -> str:
    if record is None:
        return "not measured, the time budget would not suffice"
    again = " (from an earlier run)" if earlier else f" ({record.wall_seconds:.1f} s)"
    if record.derived.true_step is None:
        return f"{record.status}, {record.reason}{again}"
    others = cpu_disturbance(record.observed.busy_cpus)
    if record.modern is not None and record.modern.part:
        again = f"; without {record.modern.part}{again}"
    text = f"{significant(record.derived.true_step)} s a training step, MBS {record.batch.micro_batch}{again}"
    return text if others is None else f"{text}, while {others}"
