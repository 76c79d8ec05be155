"""The guide of a search: predictions for one recipe's settings on one machine, corrected by measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean

from repro.formats import significant
from repro.machine.support import compiles
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings
from repro.record import BY_CLOCK, DEFAULT, Clock, Record

from .. import models
from ..models.recipe import Recipe, divisors
from .fits import Constants
from .forecast import trace_of
from .hardware import Machine
from .launch_queue import authors_step
from .memory import largest_micro_batch, peak_memory, usable, workspace
from .time import StepModel
from .traces import Trace, Traced

_ALWAYS = (NAIVE, FREE_LUNCH)  # Table 4's cell, and the reference for memory-saving methods
# Settings that do no less than measured ones under the same library share their measured/predicted ratio, times this.
_ALIKE = 0.9
_SLOPE = (0.5, 4.0)  # limits of measured bytes per predicted byte: beyond, two close points are noise


@dataclass(frozen=True)
class _Measured:
    """Measured settings: micro batch, seconds of a step, and these over the predicted seconds. If it was not worth
    compiling them, the seconds are their bound."""

    settings: Settings
    compiled: bool
    size: int
    seconds: float
    ratio: float


class Guide:
    """Predictions and measurements of one recipe on one machine. The traces of `stack` predict; `clock` decides which
    settings are fastest."""

    def __init__(
        self, recipe: Recipe, machine: Machine, constants: Constants, stack: Traced, clock: Clock = DEFAULT
    ) -> None:
        self.clock = clock
        self._recipe, self._machine, self._constants, self._stack = recipe, machine, constants, stack
        self._share = recipe.batch_size // machine.world
        self._sizes = divisors(models.micro_batch_limit(recipe, machine.world))
        self._measured: list[_Measured] = []
        self._peaks: dict[str, dict[float, float]] = {}  # by library: predicted to measured bytes
        self._gains: list[float] = []  # seconds of compiled steps over uncompiled ones
        self._uncompilable: list[Settings] = []
        self._best = math.inf
        self._by = ""

    def ordered(self, space: Iterable[Settings]) -> list[Settings]:
        """Return settings in the order to measure them: first those always measured, then by predicted seconds, last
        those that should not fit."""

        def place(settings: Settings) -> tuple[int, float]:
            first = _ALWAYS.index(settings.base) if settings.base in _ALWAYS else len(_ALWAYS)
            size = self.size(settings)
            return first, self.seconds(settings, size) if size else math.inf

        return sorted(space, key=place)

    def size(self, settings: Settings) -> int:
        """Return the largest micro batch that should fit, 0 for none: by the memory model, or, after peaks were
        measured under the same library, or else without sharding, by a straight line through these."""
        gpu, allowance, world = self._machine.gpu, self._constants.allowance, self._machine.world
        known = self._peaks.get(settings.library) or self._peaks.get("torch")
        if not known:
            return largest_micro_batch(self._recipe, self._trace(settings), settings, gpu, world, allowance)
        fixed, slope = _line(known)
        room = usable(gpu, allowance) - workspace(allowance, world)
        fitting = (each for each in reversed(self._sizes) if fixed + slope * self._tensors(settings, each) <= room)
        return next(fitting, 0)

    def seconds(self, settings: Settings, size: int) -> float:
        """Return the predicted seconds of a training step at a micro batch, by the clock that decides."""
        rates = self._constants.rates
        step = StepModel(self._recipe, self._trace(settings), settings, self._machine, rates).step(size)
        if self.clock == "true" or self._machine.capability is None:  # a CPU has no queue: both clocks agree
            return step.seconds
        return authors_step(step, self._constants.queue)

    def learn(self, record: Record) -> None:
        """Add a finished trial: its peaks, and the ratio of its measured to predicted seconds."""
        settings = Settings.parse(record.settings)
        for size, peak in record.batch.peaks:
            self._peaks.setdefault(settings.library, {})[self._tensors(settings, size)] = float(peak)
        if record.skipped_by(self.clock) and record.guidance.bound is not None and record.guidance.uncompiled:
            self._note(settings, record.batch.peaks[-1][0], record.guidance.bound)
        timed, seconds = record.micro_batch_by(self.clock), record.step_by(self.clock)
        if timed is None or seconds is None:
            return
        if record.as_run.compiled and (uncompiled := self._uncompiled(record, timed)) is not None:
            self._gains.append(seconds / uncompiled)
        if compiles(self._recipe, settings) and not record.as_run.compiled:
            self._uncompilable.append(settings)
        self._note(settings, timed, seconds)
        if settings != NAIVE and seconds < self._best:
            self._best, self._by = seconds, record.settings

    def _note(self, settings: Settings, size: int, seconds: float) -> None:
        ratio = seconds / self.seconds(settings, size)
        self._measured.append(_Measured(settings, compiles(self._recipe, settings), size, seconds, ratio))

    def bound(self, settings: Settings) -> float:
        """Return the optimistic prediction, in seconds of a training step.

        It is predicted at the micro batch that should fit, or, before anything ran under that library, at that or twice
        that, whichever is faster. It is multiplied by the lowest ratio of measured to predicted seconds of settings
        that do no more under the same library, less 10 %. Without such settings, it is multiplied by the lowest ratio
        of settings compiled likewise, or else of all, and by the low end of the calibration's interval. A machine
        unlike those that were held out has no interval: the bound is 0 before anything ran there under that library,
        and the worst held-out GPU's error takes the interval's place after that.
        Checkpointing and offloading only add to a step: it is no faster than the same without, at no smaller a batch.
        """
        size = max(1, self.size(settings))
        larger = next((each for each in self._sizes if each > size), size)
        sizes = {size} if settings.library in self._peaks else {size, larger}
        seconds = min(self.seconds(settings, size) for size in sizes)
        like = [one for one in self._measured if one.compiled == compiles(self._recipe, settings)]
        alike = [one for one in like if _does_no_more(one.settings, settings)]
        if alike:
            # Mamba is never compiled, so its naive settings also do no more; but their scan may be slower.
            kin = [one for one in alike if one.settings.free_lunch == settings.free_lunch]
            same = [one for one in kin if one.settings.stage == settings.stage and one.size >= max(sizes)]
            return max([seconds * min(one.ratio for one in alike) * _ALIKE, *(one.seconds for one in same)])
        interval = self._constants.interval(self._machine)
        if interval is None and settings.library not in {one.settings.library for one in self._measured}:
            return 0.0
        low = interval[0] if interval else 1 / self._constants.errors.worst_factor
        return seconds * min((one.ratio for one in like or self._measured), default=1.0) * low

    def skips(self, settings: Settings) -> tuple[float, str] | None:
        """Return the bound, and why these settings need not be measured; None if they must be."""
        if settings.base in _ALWAYS:
            return None
        bound = self.bound(settings)
        if bound < self._best:
            return None
        return bound, f"predicted at best {significant(bound)} s a training step, {self._fastest()}"

    def weigh(self, record: Record, size: int) -> tuple[float, str] | None:
        """Return a bound, and why settings that ran uncompiled at a micro batch need not be compiled; None if they must
        be. The bound is the uncompiled step times the lowest compiled/uncompiled ratio so far, at most 1, less 10 %.
        The ratio is 1 if settings that do no more could not be compiled."""
        settings, uncompiled = Settings.parse(record.settings), self._uncompiled(record, size)
        if settings.base in _ALWAYS or uncompiled is None:
            return None
        in_vain = any(_does_no_more(other, settings) for other in self._uncompilable)
        if not in_vain and not self._gains:
            return None
        bound = uncompiled * (1.0 if in_vain else min(1.0, *self._gains)) * _ALIKE
        if bound < self._best:
            return None
        took = f"took {significant(uncompiled)} s a training step uncompiled, compiled at best {significant(bound)} s"
        return bound, f"{took}, {self._fastest()}"

    def _fastest(self) -> str:
        return f"{self._by} was measured at {significant(self._best)} s {BY_CLOCK[self.clock]}"

    def _uncompiled(self, record: Record, size: int) -> float | None:
        """Return the seconds of an uncompiled training step; None if none was timed at this micro batch."""
        for timed, micro_step, update in record.guidance.uncompiled:
            if timed == size:
                return micro_step * (self._share // size) + update
        return None

    def _trace(self, settings: Settings) -> Trace:
        return trace_of(self._recipe, self._machine, settings, self._stack)

    def _tensors(self, settings: Settings, size: int) -> float:
        """Return the predicted peak bytes of tensors, without those of CUDA and its libraries."""
        allowance = replace(self._constants.allowance, context=0.0, group=0.0)
        return peak_memory(self._recipe, self._trace(settings), settings, self._machine.world, size, allowance).peak


def _does_no_more(measured: Settings, other: Settings) -> bool:
    return (
        measured.library == other.library
        and measured.stage <= other.stage
        and measured.checkpointing <= other.checkpointing
        and measured.offloading <= other.offloading
    )


def _line(peaks: dict[float, float]) -> tuple[float, float]:
    """Fit measured to predicted bytes by least squares: (fixed, slope). One point shifts the prediction only."""
    x, y = fmean(peaks), fmean(peaks.values())
    spread = sum((predicted - x) ** 2 for predicted in peaks)
    slope = sum((p - x) * (m - y) for p, m in peaks.items()) / spread if spread else 1.0
    slope = min(max(slope, _SLOPE[0]), _SLOPE[1])
    return y - slope * x, slope
