"""The check that a part trains as the settings without it: losses of twenty steps, the gradient of the first, and
counts of weights and moments, against runs without the part that differ by rounding alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from repro.datafile import from_json
from repro.formats import significant
from repro.measure.jobs import Job
from repro.measure.trial import Bench
from repro.paper.settings import Settings
from repro.parts import exact
from repro.record import Trial

# Half the distance of neighbouring numbers, relative: as far as rounding moves a weight.
_ROUNDING = {"fp32": 2.0**-24, "tf32": 2.0**-12, "fp16": 2.0**-12, "bf16": 2.0**-9, "fp8": 2.0**-4}
_TIMES = 4.0  # how much further than runs that differ by rounding an exact part may be off
# Least bands, relative. In fp32 they are sums in another order: of 1,000 terms these differ by up to 1e-6.
_EXACT_LOSS, _EXACT_GRADIENT = 2e-6, 2e-5
# Bands of fewer bits. A product of numbers that are rounded by r is off by about r in each element, at random: so a
# gradient of bf16 (r = 0.2 %) keeps its direction within a few percent through tens of layers, and one of FP8 (6 %)
# less. A part that drops or shifts something turns a block's gradient, or takes it away.
_LOSS, _COSINE, _BLOCK = {"bf16": 0.01, "fp8": 0.02}, {"bf16": 0.98, "fp8": 0.9}, 0.5


@dataclass(frozen=True)
class Trained:
    """The losses of a rank's steps, the `gradient` of the first one as a sketch of each of its blocks, the weights and
    moments that the rank holds, and the precision it ran in."""

    losses: list[float]
    gradient: list[list[float]]
    weights: int
    moments: int
    precision: str


@dataclass(frozen=True)
class TrainingCheck:
    """What a check found: the largest relative difference of the losses, and of two runs without the part whose
    weights differ by rounding; the cosine of the gradients of the first step; and why the part changes the training,
    empty where it does not."""

    losses: list[float]
    apart: float
    rounding: float
    allowed: float
    cosine: float
    fault: str = ""

    @property
    def text(self) -> str:
        """Return the check as a sentence."""
        if self.fault:
            return f"changes the training: {self.fault}"
        return (
            f"the same training: losses of {len(self.losses)} steps differ by at most {self.apart:.1e} (allowed "
            f"{self.allowed:.1e}; rounding alone {self.rounding:.1e}), cosine of the gradients {self.cosine:.6f}"
        )


@dataclass
class SameTraining:
    """The checks of one recipe on one machine against its settings `without` parts, whose runs, of so many steps, are
    kept."""

    bench: Bench
    without: Trial
    tf32: bool
    micro_batch: int
    steps: int = 20
    _runs: dict[tuple[bool, float, bool], list[Trained]] = field(default_factory=dict)

    def of(self, settings: str, compiled: bool) -> TrainingCheck:
        """Check settings with parts. Raise RuntimeError, in one line, where a run fails."""
        parts = Settings.parse(settings).parts
        usual = self._usual(compiled, 0.0)
        rounding = _ROUNDING["fp8" if "fp8" in parts else self._arithmetic(parts, usual)]
        twins = [self._usual(compiled, 0.0, again=True), self._usual(compiled, rounding)]
        return compared(self.train(settings, compiled, 0.0), usual, twins, parts)

    def _arithmetic(self, parts: Sequence[str], usual: Sequence[Trained]) -> str:
        if not exact(parts):
            return "bf16"
        return "tf32" if self.tf32 and usual[0].precision == "fp32" else usual[0].precision

    def _usual(self, compiled: bool, nudge: float, again: bool = False) -> list[Trained]:
        key = (compiled, nudge, again)
        if key not in self._runs:
            self._runs[key] = self.train(self.without.settings, compiled, nudge)
        return self._runs[key]

    def train(self, settings: str, compiled: bool, nudge: float = 0.0) -> list[Trained]:
        """Return what each rank of a training found. Raise RuntimeError, in one line, where one fails."""
        trial = self.without
        arguments = {
            "recipe": trial.recipe,
            "scale": trial.scale,
            "settings": settings,
            "tf32": self.tf32,
            "compiled": compiled,
            "micro_batch": self.micro_batch,
            "nudge": nudge,
            "steps": self.steps,
        }
        outcomes = self.bench.server.call(
            Job(
                "tests.support.trained:train",
                arguments,
                ranks=trial.count,
                log=str(self.bench.logs / f"{trial.id.replace('/', '_')}_training.log"),
                timeout=trial.timeout,
                cuda=self.bench.cuda,
                memory=trial.memory_limit,
            )
        )
        for outcome in outcomes:
            if outcome.status not in ("ok", "stopped"):
                raise RuntimeError(f"the training of {settings} {outcome.status}: {outcome.error}")
        return [from_json(Trained, outcome.value) for outcome in outcomes]


def compared(
    ran: Sequence[Trained], usual: Sequence[Trained], twins: Sequence[Sequence[Trained]], parts: Sequence[str]
) -> TrainingCheck:
    """Compare the ranks of a run with parts with those of one without. `twins` are runs without, of which one repeats
    it and one starts from weights that are rounded otherwise."""
    losses, without = _losses(ran), _losses(usual)
    apart, rounding = _apart(losses, without), max(_apart(_losses(twin), without) for twin in twins)
    own, theirs, *others = ([block for rank in run for block in rank.gradient] for run in (ran, usual, *twins))
    all_exact = exact(parts)
    bits = "fp8" if "fp8" in parts else "bf16"
    allowed = max(_EXACT_LOSS if all_exact else _LOSS[bits], _TIMES * rounding)
    cosine = _cosine(own, theirs) if len(own) == len(theirs) else math.nan
    fault = ""
    counts = [("weights", [each.weights for each in ran], [each.weights for each in usual])]
    counts.append(("moments", [each.moments for each in ran], [each.moments for each in usual]))
    different = next(((what, sum(has), sum(had)) for what, has, had in counts if has != had), None)
    if different is not None:
        fault = "{} are {:,}, without it {:,}".format(*different)
    elif len(own) != len(theirs):
        fault = f"the gradient has {len(own)} blocks, without it {len(theirs)}"
    elif not all(map(math.isfinite, losses)) or apart > allowed:
        step = max(range(len(losses)), key=lambda step: _off(losses[step], without[step]))
        fault = (
            f"the loss of step {step + 1} is {significant(losses[step], 6)}, without it "
            f"{significant(without[step], 6)}: {apart:.1e} apart, {allowed:.1e} is allowed and rounding alone makes "
            f"{rounding:.1e}"
        )
    elif not all_exact and not cosine >= _COSINE[bits]:
        fault = f"the cosine of the gradients after one step is {cosine:.4f}, at least {_COSINE[bits]} is expected"
    elif (turned := _turned(own, theirs, others, all_exact)) is not None:
        fault = (
            f"a part of the gradient after one step is {turned:.1e} of its length off (the cosine of all of it is "
            f"{cosine:.6f}), more than rounding makes"
        )
    return TrainingCheck(losses, apart, rounding, allowed, cosine, fault)


def _losses(ranks: Sequence[Trained]) -> list[float]:
    """Return the mean loss of each step over the ranks."""
    return [sum(losses) / len(losses) for losses in zip(*(rank.losses for rank in ranks), strict=True)]


def _off(loss: float, usual: float) -> float:
    off = abs(loss - usual) / abs(usual) if usual else abs(loss)
    return off if math.isfinite(off) else math.inf


def _apart(losses: Sequence[float], usual: Sequence[float]) -> float:
    return max(map(_off, losses, usual))


def _cosine(own: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """Return the cosine of two gradients, by their sketches."""
    product = sum(a * b for one, other in zip(own, theirs, strict=True) for a, b in zip(one, other, strict=True))
    lengths = [math.hypot(*(each for block in blocks for each in block)) for blocks in (own, theirs)]
    return product / (lengths[0] * lengths[1]) if all(lengths) else float(lengths[0] == lengths[1])


def _turned(
    own: Sequence[Sequence[float]],
    theirs: Sequence[Sequence[float]],
    twins: Sequence[Sequence[Sequence[float]]],
    all_exact: bool,
) -> float | None:
    """Return how far the most different block of a gradient is off, relative to its length, where that is more than
    rounding makes; None where no block is. Rounding alone makes blocks whose gradient cancels out."""
    whole = math.hypot(*(each for block in theirs for each in block))
    worst: float | None = None
    for number, (one, other) in enumerate(zip(own, theirs, strict=True)):
        off, length = math.dist(one, other), math.hypot(*other)
        by_rounding = max(math.dist(twin[number], other) for twin in twins)
        least = _EXACT_GRADIENT * length + 1e-8 * whole if all_exact else _BLOCK * length + 1e-4 * whole
        if not off <= least + (_TIMES if all_exact else 2 * _TIMES) * by_rounding:
            worst = max(worst or 0.0, off / length if length else math.inf)
    return worst
