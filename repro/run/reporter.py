"""Reports a run on stderr while it goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..console import say
from ..formats import counted, duration
from ..record import Record, Trial
from .estimate import LOADING, REPORTING
from .progress import Progress

if TYPE_CHECKING:
    from .run import Run


class Reporter:
    """Reports a run, first by `start`, then within `trials` by `trial`."""

    _bar: Progress

    def start(self, run: Run) -> None:
        """Say how many trials there are, and how long they should take."""
        devices = ", ".join(device.driver_name for device in run.devices) or "the CPU"
        say(f"{_plan(run)}; on {devices}, results in {run.results.folder}")

    @contextmanager
    def trials(self, run: Run) -> Iterator[None]:
        """Show a bar meanwhile. What could be imported is known by now: a trial that cannot run takes no time."""
        with Progress(run.seconds, REPORTING, run.left) as self._bar:
            yield

    def expect(self, trial: Trial, seconds: float) -> None:
        """Have the bar count a trial that a search chose, which should take so many seconds."""
        self._bar.expect(trial.id, seconds)

    def trial(self, trial: Trial, record: Record | None, earlier: bool) -> None:
        """Report what became of a trial: its record, which may be an earlier run's, or None where it was left out."""
        self._bar.tell(trial, record, earlier)


def _plan(run: Run) -> str:
    waiting, budget = len(run.waiting), run.options.budget
    seconds = (LOADING if run.loads else 0.0) + sum(run.seconds.values())
    kept = f", {len(run.chosen) - waiting} of them done by an earlier run" if waiting < len(run.chosen) else ""
    # The report is no matter of the budget.
    allowed = f", of which the budget allows {duration(budget)}" if budget is not None and budget < seconds else ""
    total = duration(seconds + REPORTING)
    return f"{counted(len(run.chosen), 'trial')}{kept}; about {total} to go, by estimate{allowed}"
