"""What guides a search: predictions for each settings of one recipe on one machine, corrected by what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from repro.machine.rules import compiles
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings
from repro.record import BY_CLOCK, DEFAULT, Clock, Record
from repro.text import figures

from ..models.recipe import Recipe
from .calibration import Calibration
from .forecast import trace_of
from .hardware import Machine
from .memory import largest_micro_batch, peak_memory, usable, workspace
from .queue import authors_step
from .time import timed_step
from .traces import Trace, Traced

_ALWAYS = (NAIVE, FREE_LUNCH)  # Table 4's cell, and what memory-saving methods are held against
# A settings that shares its library with a measured one, and does no less, is off by about as much: less this.
_ALIKE = 0.9
_SLOPE = (0.5, 4.0)  # measured bytes for a predicted one: beyond, two points that lie close are noise


@dataclass(frozen=True)
class _Measured:
    """A measured settings: its micro batch, its seconds, and those over the predicted ones. Of what was not worth
    compiling the seconds are its bound."""

    settings: Settings
    compiled: bool
    size: int
    seconds: float
    ratio: float


class Guide:
    """Holds what is known of one recipe on one machine. `stack` names the traces that predict, `clock` decides which
    settings are the fastest."""

    def __init__(
        self, recipe: Recipe, machine: Machine, calibration: Calibration, stack: Traced, clock: Clock = DEFAULT
    ) -> None:
        self.clock = clock
        self._recipe, self._machine, self._calibration, self._stack = recipe, machine, calibration, stack
        self._share = recipe.batch_size // machine.world
        self._measured: list[_Measured] = []
        self._peaks: dict[str, dict[float, float]] = {}  # by library: predicted bytes to measured ones
        self._gains: list[float] = []  # what compiling left of a step, as a share
        self._uncompilable: list[Settings] = []
        self._best = math.inf
        self._by = ""

    def ordered(self, space: Iterable[Settings]) -> list[Settings]:
        """Those that are measured whatever is predicted, then the rest, the fastest first, what should not fit last."""

        def place(settings: Settings) -> tuple[int, float]:
            first = _ALWAYS.index(settings.base) if settings.base in _ALWAYS else len(_ALWAYS)
            size = self.size(settings)
            return first, self.seconds(settings, size) if size else math.inf

        return sorted(space, key=place)

    def size(self, settings: Settings) -> int:
        """The largest micro batch that should fit, 0 for none: the memory model's, and once peaks were measured here
        under the same library, or else torch's, a straight line through those."""
        gpu, allowance, world = self._machine.gpu, self._calibration.allowance, self._machine.world
        known = self._peaks.get(settings.library) or self._peaks.get("torch")
        if not known:
            return largest_micro_batch(self._recipe, self._trace(settings), settings, gpu, world, allowance)
        fixed, slope = _line(known)
        room = usable(gpu, allowance) - workspace(allowance, world)
        size = 0
        while 2 * size <= self._share and fixed + slope * self._tensors(settings, 2 * size or 1) <= room:
            size = 2 * size or 1
        return size

    def seconds(self, settings: Settings, size: int) -> float:
        """The predicted training step at a micro batch, by the clock that decides."""
        rates = self._calibration.rates
        step = timed_step(self._recipe, self._trace(settings), settings, self._machine, size, rates)
        if self.clock == "true" or self._machine.capability is None:  # a CPU has no queue, and one clock
            return step.seconds
        return authors_step(step, self._calibration.queue)

    def learn(self, record: Record) -> None:
        """Takes in a finished trial: its peaks, and how far its step lies from the prediction."""
        settings = Settings.parse(record.settings)
        for size, peak in record.peaks:
            self._peaks.setdefault(settings.library, {})[self._tensors(settings, size)] = float(peak)
        if record.skipped_by(self.clock) and record.bound is not None and record.uncompiled:
            self._note(settings, record.peaks[-1][0], record.bound)
        timed, seconds = record.micro_batch_by(self.clock), record.step_by(self.clock)
        if timed is None or seconds is None:
            return
        if record.compiled and (uncompiled := self._uncompiled(record, timed)) is not None:
            self._gains.append(seconds / uncompiled)
        if compiles(self._recipe, settings) and not record.compiled:
            self._uncompilable.append(settings)
        self._note(settings, timed, seconds)
        if settings != NAIVE and seconds < self._best:
            self._best, self._by = seconds, record.settings

    def _note(self, settings: Settings, size: int, seconds: float) -> None:
        ratio = seconds / self.seconds(settings, size)
        self._measured.append(_Measured(settings, compiles(self._recipe, settings), size, seconds, ratio))

    def bound(self, settings: Settings) -> float:
        """The optimistic prediction, in seconds a training step.

        Taken at the micro batch that should fit, or, before anything ran under that library, at that or twice that,
        whichever is faster. Times the lowest ratio of measured to predicted among settings that do no more under the
        same library, less 10 %; or among those that are compiled likewise; or among all; and times the low end of the
        calibration's interval. A machine like none that was held out has no interval: 0 before anything ran there under
        that library.
        Checkpointing and offloading only add to a step: it is no faster than the same without, at no smaller a batch.
        """
        size = max(1, self.size(settings))
        sizes = {size} if settings.library in self._peaks else {size, min(2 * size, self._share)}
        seconds = min(self.seconds(settings, size) for size in sizes)
        low = self._calibration.interval(self._machine)[0]
        like = [one for one in self._measured if one.compiled == compiles(self._recipe, settings)]
        alike = [one for one in like if _does_no_more(one.settings, settings)]
        if alike:
            # Of Mamba nothing is compiled, and its naive scan, too, does no more; but it may be slower.
            kin = [one for one in alike if one.settings.free_lunch == settings.free_lunch]
            same = [one for one in kin if one.settings.stage == settings.stage and one.size >= max(sizes)]
            return max([seconds * min(one.ratio for one in alike) * _ALIKE, *(one.seconds for one in same)])
        if not (self._machine.held_out or settings.library in {one.settings.library for one in self._measured}):
            return 0.0
        return seconds * min((one.ratio for one in like or self._measured), default=1.0) * low

    def skips(self, settings: Settings) -> tuple[float, str] | None:
        """The bound, and why the settings need not be measured; None where they must."""
        if settings.base in _ALWAYS:
            return None
        bound = self.bound(settings)
        if bound < self._best:
            return None
        return bound, f"predicted at best {figures(bound)} s a training step, {self._fastest()}"

    def weigh(self, record: Record, size: int) -> tuple[float, str] | None:
        """The same of a settings that has run uncompiled at its micro batch, before it is compiled: it gains by that at
        most as much as another settings did, and 10 % more; no other's loss is held against it. Where one that does no
        more could not be compiled it gains nothing."""
        settings, uncompiled = Settings.parse(record.settings), self._uncompiled(record, size)
        if settings.base in _ALWAYS or uncompiled is None:
            return None
        in_vain = any(_does_no_more(other, settings) for other in self._uncompilable)
        if not in_vain and not self._gains:
            return None
        bound = uncompiled * (1.0 if in_vain else min(1.0, *self._gains)) * _ALIKE
        if bound < self._best:
            return None
        took = f"took {figures(uncompiled)} s a training step uncompiled, compiled at best {figures(bound)} s"
        return bound, f"{took}, {self._fastest()}"

    def _fastest(self) -> str:
        return f"{self._by} was measured at {figures(self._best)} s {BY_CLOCK[self.clock]}"

    def _uncompiled(self, record: Record, size: int) -> float | None:
        """Seconds of a training step by what was timed uncompiled; None where nothing was at this micro batch."""
        for timed, micro_step, update in record.uncompiled:
            if timed == size:
                return micro_step * (self._share // size) + update
        return None

    def _trace(self, settings: Settings) -> Trace:
        return trace_of(self._recipe, self._machine, settings, self._stack)

    def _tensors(self, settings: Settings, size: int) -> float:
        """Predicted peak bytes of tensors, without what CUDA and its libraries take."""
        allowance = replace(self._calibration.allowance, context=0.0, group=0.0)
        return peak_memory(self._recipe, self._trace(settings), settings, self._machine.world, size, allowance).peak


def _does_no_more(measured: Settings, other: Settings) -> bool:
    return (
        measured.library == other.library
        and measured.stage <= other.stage
        and measured.checkpointing <= other.checkpointing
        and measured.offloading <= other.offloading
    )


def _line(peaks: dict[float, float]) -> tuple[float, float]:
    """Least squares of measured on predicted bytes: (fixed, slope). One point moves the prediction as it is."""
    x, y = fmean(peaks), fmean(peaks.values())
    spread = sum((predicted - x) ** 2 for predicted in peaks)
    slope = sum((p - x) * (m - y) for p, m in peaks.items()) / spread if spread else 1.0
    slope = min(max(slope, _SLOPE[0]), _SLOPE[1])
    return y - slope * x, slope
