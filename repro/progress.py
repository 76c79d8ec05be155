"""What a person sees while a run goes on, on stderr: a line a trial, and below it a bar with the time left, or the time
left in each line where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .formats import counted, figures
from .trial import Record, Trial
from .units import duration


class Progress:
    """A bar over trials, or parts of a check, weighted by how long each should take, and what comes `after` them. A
    context manager."""

    def __init__(self, seconds: dict[str, float], after: float) -> None:
        self._seconds, self._done, self._left = seconds, 0, sum(seconds.values()) + after
        self._took = self._reckoned = 0.0  # by those that ran

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
        self._count(trial.id, None if record is None or earlier else record.wall_seconds)
        self._write(f"{trial.id}: {_told(record, earlier)}", time_left=not earlier)
        self._bar.update(round(self._seconds[trial.id]))

    def tell_part(self, part: str, took: float | None) -> None:
        """The same of a part that took so many seconds; None where an earlier check had done it, which needs no line
        and says nothing of the pace."""
        self._count(part, took)
        if took is None:
            self._bar.total = (self._bar.total or 0) - round(self._seconds[part])
            return
        self._write(f"{part}: {took:.0f} s", time_left=True)
        self._bar.update(round(self._seconds[part]))

    def _count(self, name: str, took: float | None) -> None:
        self._done += 1
        self._left -= self._seconds[name]
        if took is not None:
            self._took, self._reckoned = self._took + took, self._reckoned + self._seconds[name]

    def _write(self, told: str, time_left: bool) -> None:
        count = f"[{self._done:>{len(str(len(self._seconds)))}}/{len(self._seconds)}]"
        if self._bar.disable and time_left and self._done < len(self._seconds):
            pace = self._took / self._reckoned if self._took else 1.0  # the bar keeps it by itself
            told += f"; about {duration(self._left * pace)} left"
        self._bar.write(f"{count} {told}", file=sys.stderr)
        sys.stderr.flush()


def _told(record: Record | None, earlier: bool) -> str:
    if record is None:
        return "not measured, the time budget would not suffice"
    again = " (from an earlier run)" if earlier else f" ({record.wall_seconds:.1f} s)"
    if record.true_step is None:
        return f"{record.status}, {record.reason}{again}"
    return f"{figures(record.true_step)} s a training step, MBS {record.micro_batch}{again}"


def first_line(trials: Sequence[Trial], waiting: Sequence[Trial], seconds: float) -> str:
    """What a run says before its first trial."""
    done = len(trials) - len(waiting)
    kept = f", {done} of them done by an earlier run" if done else ""
    return f"{counted(len(trials), 'trial')}{kept}; about {duration(seconds)} to go, by estimate"
