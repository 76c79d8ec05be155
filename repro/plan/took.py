"""The speed that a user measured against the predicted one: whether it is normal, and what explains best that it is
not, of the causes of `causes.py` or others."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from ..console import UserError
from ..formats import number, significant
from ..predict.fits import Constants
from ..predict.hardware import Machine

Kind = Literal["step", "training", "steps", "tokens", "examples"]
_SECONDS = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_OF_A_STEP = ("ms", "s", "sec")
_A_SECOND: dict[str, Kind] = {
    **dict.fromkeys(("it/s", "iter/s", "step/s", "steps/s"), "steps"),
    **dict.fromkeys(("tok/s", "token/s", "tokens/s"), "tokens"),
    **dict.fromkeys(("example/s", "examples/s", "sample/s", "samples/s", "image/s", "images/s"), "examples"),
    **dict.fromkeys(("seq/s", "sequence/s", "sequences/s"), "examples"),
}
_EXPECTED = "13.8s or 580ms (a step), 7h (the whole training), 1.2 it/s, 45000 tokens/s or 300 images/s"
_TENTH = 1.2816  # standard deviations beyond which a tenth of a normal distribution lies


@dataclass(frozen=True)
class Took:
    """A measured speed: seconds of a step or of the whole training, or steps, tokens or examples a second."""

    text: str
    kind: Kind
    value: float

    @classmethod
    def parse(cls, text: str) -> Took:
        """Return what a text such as `13.8s` or `45000 tokens/s` says: seconds are a step's, longer units the whole
        training's. Raise UserError for any other text."""
        found = re.fullmatch(r"([0-9][0-9,]*\.?[0-9]*|\.[0-9]+) *((?:[km] )?[a-z]+(?:/[a-z]+)?)", text.strip().lower())
        value = number(found[1].replace(",", ""), "--took") if found else None
        if not found or not value:
            raise UserError(f"--took {text}: expected {_EXPECTED}")
        unit, thousands = found[2].replace(" ", ""), {"k": 1e3, "m": 1e6}
        if unit not in _A_SECOND and unit[1:] in _A_SECOND and unit[0] in thousands:
            unit, value = unit[1:], value * thousands[unit[0]]
        each = unit.partition("/")[0] if unit.endswith(("/it", "/step")) else unit
        if unit in _A_SECOND:
            return cls(text, _A_SECOND[unit], value)
        if each not in _SECONDS:
            raise UserError(f"--took {text}: expected {_EXPECTED}")
        return cls(text, "step" if each in _OF_A_STEP or each != unit else "training", value * _SECONDS[each])

    def step(self, batch: float, tokens: int | None, steps: int | None) -> float:
        """Return the seconds of a step of `batch` examples of so many tokens, of which the training has `steps`. Raise
        UserError where what is needed is None."""
        if (self.kind == "training" and steps is None) or (self.kind == "tokens" and tokens is None):
            what = "the training's number of steps" if self.kind == "training" else "an example's number of tokens"
            raise UserError(f"--took {self.text}: {what} is not known: give the seconds of a step")
        if self.kind in ("step", "training"):
            return self.value / (steps or 1) if self.kind == "training" else self.value
        units = {"steps": 1.0, "examples": batch, "tokens": batch * (tokens or 1)}
        return units[self.kind] / self.value


@dataclass(frozen=True)
class Cause:
    """What may be otherwise than predicted, as a sentence, and between which seconds a step would then take."""

    text: str
    low: float
    high: float


@dataclass(frozen=True)
class Normal:
    """Between which multiples of the prediction a measurement is normal, and why."""

    low: float
    high: float
    reason: str

    @classmethod
    def on(cls, machine: Machine, fitted: Constants, known: bool = True) -> Normal:
        """Return that of a machine. Not `known` is a training unlike all that were measured."""
        errors, interval = fitted.errors, fitted.interval(machine)
        if interval and known:
            low, high = interval
            reason = f"8 of 10 trainings on {machine.kind} took {low:.2f} to {high:.2f} times as long as predicted"
            return cls(low, high, reason)
        worst = errors.worst_factor
        reason = f"nothing of this kind was measured: normal is a factor of {worst:.2f} both ways, by which the worst "
        return cls(1 / worst, worst, f"{reason}GPU held out, {errors.worst_gpu}, was off in the median")

    @property
    def deviation(self) -> float:
        return math.log(self.high / self.low) / (2 * _TENTH)

    def away(self, took: float, low: float, high: float) -> float:
        """Return how many standard deviations a time is from those predicted between two, 0 within them."""
        at = math.log(took / math.sqrt(self.low * self.high))
        return max(math.log(low) - at, at - math.log(high), 0.0) / self.deviation


@dataclass(frozen=True)
class Verdict:
    """A measured and a predicted step in seconds, with what is normal and the causes, the likeliest first, each with
    its share of the likelihood of all."""

    took: float
    predicted: float
    normal: Normal
    causes: tuple[tuple[Cause, float], ...]

    @property
    def bounds(self) -> tuple[float, float]:
        """Return the seconds between which a step is normal."""
        return self.normal.low * self.predicted, self.normal.high * self.predicted

    @property
    def verdict(self) -> Literal["normal", "slower", "faster"]:
        low, high = self.bounds
        return "slower" if self.took > high else "faster" if self.took < low else "normal"

    @property
    def likely(self) -> list[str]:
        """Return the likeliest cause, and the next if half as likely, of those that alone make the time normal."""
        first, *_ = *(share for _, share in self.causes), 0.0
        near = [one for one, share in self.causes[:2] if share >= first / 2]
        return [one.text for one in near if self.normal.away(self.took, one.low, one.high) <= _TENTH]

    def sentence(self, what: str) -> str:
        """Return the verdict on what was trained, with the likeliest cause."""
        took, predicted, low, high = map(seconds_text, (self.took, self.predicted, *self.bounds))
        if self.verdict == "normal":
            return f"{what}: {took} a step is normal, as {low} to {high} are; predicted is {predicted}."
        ratio = self.took / self.predicted
        off = f"{significant(ratio)} times as long" if ratio > 1 else f"{significant(1 / ratio)} times as fast"
        cause = f"most likely {' or '.join(self.likely)}" if self.likely else "no single cause explains it"
        return f"{what}: {took} a step is {off} as predicted ({predicted}; {low} to {high} are normal): {cause}."

    def data(self) -> list[dict[str, Any]]:
        """Return the causes as rows for programs; the last one is not computed."""
        rows = [(one.text, one.low, one.high, share) for one, share in self.causes] + [(LOADING, None, None, None)]
        return [dict(zip(("cause", "seconds_low", "seconds_high", "likelihood"), row, strict=True)) for row in rows]

    def shown(self) -> list[dict[str, Any]]:
        """Return the causes as people see them."""
        found = list[dict[str, Any]]()
        for one, share in self.causes:
            ends = dict.fromkeys(map(seconds_text, (one.low, one.high)))
            times = dict.fromkeys(significant(end / self.predicted) for end in (one.low, one.high))
            row: dict[str, Any] = {
                "if": one.text,
                "a step takes": " to ".join(ends),
                "times predicted": " to ".join(times),
            }
            found.append(row | {"likelihood": None if self.verdict == "normal" else f"{share:.0%}"})
        last = {"if": LOADING, "a step takes": "not computed", "times predicted": None, "likelihood": None}
        return [*found, last]


LOADING = "it waits for its data"


def explain(took: float, predicted: float, causes: Iterable[Cause], normal: Normal) -> Verdict:
    """Judge the seconds of a step, and rank causes by their likelihood: log-normal about each prediction. A cause with
    a range of seconds pays for its width."""

    def likelihood(cause: Cause) -> float:
        width = max(math.log(cause.high / cause.low), math.sqrt(2 * math.pi) * normal.deviation)
        return -(normal.away(took, cause.low, cause.high) ** 2) / 2 - math.log(width)

    listed = sorted(((likelihood(cause), cause) for cause in causes), key=lambda each: -each[0])
    best = listed[0][0] if listed else 0.0
    whole = sum(math.exp(each - best) for each, _ in listed)
    return Verdict(took, predicted, normal, tuple((cause, math.exp(each - best) / whole) for each, cause in listed))


def seconds_text(seconds: float) -> str:
    """Return the seconds of a step for people: 580 ms, 13.8 s, 25 min, 3.5 h."""
    for below, unit, name in ((1, 1e-3, "ms"), (120, 1, "s"), (7200, 60, "min")):
        if seconds < below:
            return f"{significant(seconds / unit)} {name}"
    return f"{significant(seconds / 3600)} h"
