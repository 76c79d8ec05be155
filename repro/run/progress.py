"""What a person sees while a run goes on, on stderr: a line a trial, and below it a bar with the time left, or the time
left in each line where stderr is no terminal."""

from __future__ import annotations

import math
import sys
import threading
import time

from ..console import visible
from ..formats import duration, significant
from ..record import Record, Trial
from ..validity import cpu_disturbance


class Progress:
    """A bar over trials, or parts of a check, in their order, weighted by how long each should take, and what comes
    `after` them, which a time budget ends no sooner. It moves while one runs, and names it. A context manager, of which
    the budget's seconds count from its start."""

    def __init__(self, seconds: dict[str, float], after: float, budget: float = math.inf) -> None:
        self._seconds, self._waiting, self._after = seconds, dict(seconds), after
        self._budget = max(0.0, budget)
        self._estimate = sum(seconds.values())
        self._total = self._estimate + after
        self._took = self._estimated = 0.0  # by those that ran
        self._began = time.monotonic()
        self._closing = threading.Event()

    def __enter__(self) -> Progress:
        from tqdm import tqdm

        self._bar = tqdm(
            total=self._total,
            bar_format="{percentage:3.0f}% |{bar}| {elapsed}{postfix}",
            file=sys.stderr,
            disable=None,  # no bar where stderr is no terminal
            dynamic_ncols=True,
            leave=False,
        )
        self._began = time.monotonic()
        self._deadline = self._began + self._budget
        self._mover = threading.Thread(target=self._keep_moving, daemon=True)
        self._mover.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._mover.join()
        self._bar.close()

    def expect(self, name: str, seconds: float) -> None:
        """Add a trial that was not planned, as a search may."""
        if name not in self._seconds:
            self._seconds[name] = self._waiting[name] = seconds
            self._estimate += seconds
            self._total += seconds

    def tell(self, trial: Trial, record: Record | None, earlier: bool) -> None:
        """Print a trial that is done in one line, and move the bar."""
        self._count(trial.id, None if record is None or earlier else record.wall_seconds)
        self._write(f"{trial.id}: {_summary(record, earlier)}", time_left=not earlier)

    def tell_part(self, part: str, took: float | None) -> None:
        """The same of a part that took so many seconds; None where an earlier check had done it, which needs no line
        and says nothing of the pace."""
        if took is None:
            self._total -= self._seconds[part]
        self._count(part, took)
        if took is not None:
            self._write(f"{part}: {took:.0f} s", time_left=True)

    def _count(self, name: str, took: float | None) -> None:
        del self._waiting[name]
        self._began = time.monotonic()
        if took is not None:
            self._took, self._estimated = self._took + took, self._estimated + self._seconds[name]
        self._move()

    def _left(self) -> tuple[float, float]:
        """Seconds to go, as estimated, and at the pace so far, to which a tenth of the estimate counts as run; neither
        more than the budget leaves."""
        pace = 1.0
        if self._took and self._estimated:
            believed = self._estimate / 10
            pace = (self._took + believed) / (self._estimated + believed)
        running = next(iter(self._waiting.values()), self._after)
        left = sum(self._waiting.values()) + self._after
        now = time.monotonic()
        left -= min((now - self._began) / pace, running)
        allowed = max(0.0, self._deadline - now) + self._after
        return min(left, allowed), min(left * pace, allowed)

    def _move(self) -> None:
        estimated, left = self._left()
        total = min(self._total, self._budget + self._after)
        self._bar.total, self._bar.n = total, total - estimated
        running = next(iter(self._waiting), "the report")
        self._bar.set_postfix_str(f"about {duration(left)} left; {running}", refresh=False)

    def _keep_moving(self) -> None:
        while not (self._bar.disable or self._closing.wait(1.0)):
            self._move()
            self._bar.refresh()

    def _write(self, text: str, time_left: bool) -> None:
        total, done = len(self._seconds), len(self._seconds) - len(self._waiting)
        if self._bar.disable and time_left and self._waiting:
            text += f"; about {duration(self._left()[1])} left"
        self._bar.write(f"[{done:>{len(str(total))}}/{total}] {visible(text)}", file=sys.stderr)
        sys.stderr.flush()


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
