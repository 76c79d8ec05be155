"""What a person sees while a run goes on, on stderr: a line a trial, and below it a bar with the time left, or the time
left in each line where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .formats import counted, figures
from .trial import Record, Trial
from .units import duration


class Progress:
    """A bar over the trials, weighted by how long each should take, and what comes `after` them. A context manager."""

    def __init__(self, seconds: dict[str, float], after: float) -> None:
        self._seconds, self._done, self._left = seconds, 0, sum(seconds.values()) + after
        self._took = self._reckoned = 0.0  # by the trials that ran

    def __enter__(self) -> Progress:
        from tqdm import tqdm

        self._bar = tqdm(
            total=round(self._left),
            bar_format="{percentage:3.0f}% |{bar}| {elapsed}, about {remaining} left",
            file=sys.stderr,
            disable=None,  # no bar where stderr is no terminal
            dynamic_ncols=True,
            leave=False,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def tell(self, trial: Trial, record: Record | None, earlier: bool) -> None:
        """A trial is done: says so in one line, and moves the bar."""
        self._done += 1
        count = f"[{self._done:>{len(str(len(self._seconds)))}}/{len(self._seconds)}]"
        self._left -= self._seconds[trial.id]
        if record is not None and not earlier:
            self._took, self._reckoned = self._took + record.wall_seconds, self._reckoned + self._seconds[trial.id]
        told = f"{count} {trial.id}: {_told(record, earlier)}"
        if self._bar.disable and not earlier and self._done < len(self._seconds):
            pace = self._took / self._reckoned if self._took and self._reckoned else 1.0  # the bar keeps it by itself
            told += f"; about {duration(self._left * pace)} left"
        self._bar.write(told, file=sys.stderr)
        sys.stderr.flush()
        self._bar.update(round(self._seconds[trial.id]))


def _told(record: Record | None, earlier: bool) -> str:
    if record is None:
        return "not measured, the time budget would not suffice"
    again = " (from an earlier run)" if earlier else f" ({record.wall_seconds:.1f} s)"
    if record.status != "ok" or record.true_step is None:
        return f"{record.status}, {record.reason}{again}"
    return f"{figures(record.true_step)} s a training step, MBS {record.micro_batch}{again}"


def first_line(trials: Sequence[Trial], waiting: Sequence[Trial], seconds: float) -> str:
    """What a run says before its first trial."""
    done = len(trials) - len(waiting)
    kept = f", {done} of them done by an earlier run" if done else ""
    return f"{counted(len(trials), 'trial')}{kept}; about {duration(seconds)} to go, by estimate"
