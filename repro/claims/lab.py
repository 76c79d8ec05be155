"""The lab report: a GAN on CPUs, a T4 and a V100."""

from __future__ import annotations

from ..interval import Interval
from ..lab import T4, T4_2_CPUS, T4_16_CPUS, V100
from . import facts
from .registry import recomputes
from .working import Row, Working, count, shown

_TENTH = 0.1  # all times are printed to a tenth of a second
_SECONDS = {"min": 60, "h": 3600}


@recomputes("lab-v100-double-precision")
def v100_double() -> Working:
    s_single, s_double = (facts.quantity(f"v100s/{precision}_tflops") for precision in ("fp32", "fp64"))
    return facts.quantity("v100/fp64_tflops").told(
        f"{shown(s_single.value.value)} TFLOP/s are the V100S's in single precision, which the DGX has not; in double "
        f"precision that part has {shown(s_double.value.value)}"
    )


@recomputes("lab-t4-single-precision")
def t4_single() -> Working:
    return facts.figure("T4", "fp32_tflops", "TFLOP/s")


@recomputes("lab-specification-ratio")
@recomputes("lab-twice-as-long")
def specification_ratio() -> Working:
    """The lab's own figures."""
    return facts.quantity("lab/v100_tflops", _TENTH) / facts.quantity("lab/t4_tflops", _TENTH)


@recomputes("lab-specification-ratio-in-single-precision")
def single_precision_ratio() -> Working:
    v100, t4 = (facts.figure(gpu, "fp32_tflops", "TFLOP/s") for gpu in ("V100 32 GB", "T4"))
    return (v100 / t4).told("both in single precision, the V100 of a DGX")


@recomputes("lab-observed-ratio")
@recomputes("lab-hypothesis-supported")
@recomputes("lab-almost-three-times")
def observed_ratio() -> Working:
    """Seconds of 20 epochs on the T4 over those on the V100."""
    return _seconds(T4) / _seconds(V100)


@recomputes("lab-prediction-t4-2-cpus", resources=T4_2_CPUS)
@recomputes("lab-prediction-t4-16-cpus", resources=T4_16_CPUS)
@recomputes("lab-prediction-t4", resources=T4)
@recomputes("lab-prediction-v100", resources=V100)
def prediction(resources: str) -> Working:
    """20 times the seconds of one epoch."""
    return _seconds(resources, epochs=1) * 20


@recomputes("lab-prediction-met-t4-2-cpus", resources=T4_2_CPUS)
@recomputes("lab-prediction-met-t4-16-cpus", resources=T4_16_CPUS)
@recomputes("lab-prediction-met-t4", resources=T4)
@recomputes("lab-prediction-met-v100", resources=V100)
def measured(resources: str) -> Working:
    """The seconds that 20 epochs took."""
    run, _ = facts.lab(resources, 20)
    assert run.predicted_seconds is not None  # lab_runs says so of more epochs than one
    error = run.predicted_seconds / run.seconds - 1
    return _seconds(resources).told(f"the prediction is {abs(error):.1%} too {'long' if error > 0 else 'short'}")


@recomputes("lab-cpus-underestimated", sign=-1, resources=(T4_2_CPUS, T4_16_CPUS))
@recomputes("lab-gpus-overestimated", sign=1, resources=(T4, V100))
def errors(sign: int, resources: tuple[str, ...]) -> Working:
    """Predictions that are off in the other direction."""
    found, wrong = [], 0
    for name in resources:
        run, row = facts.lab(name, 20)
        assert run.predicted_seconds is not None
        off = run.predicted_seconds - run.seconds
        wrong += sign * off <= 0
        step = f"{name}: {shown(run.predicted_seconds)} - {shown(run.seconds)} = {shown(off)} s"
        found.append(Working(Interval.exact(off), (row,), (step,)))
    return count(wrong, found, "predictions are off in the other direction")


@recomputes("lab-2-cpus-hours", resources=T4_2_CPUS, unit="h")
@recomputes("lab-16-cpus-hours", resources=T4_16_CPUS, unit="h")
@recomputes("lab-t4-minutes", resources=T4, unit="min")
@recomputes("lab-v100-minutes", resources=V100, unit="min")
def duration(resources: str, unit: str) -> Working:
    return (_seconds(resources) / _SECONDS[unit]).called(unit)


@recomputes("lab-rate-t4-2-cpus-1-epoch", resources=T4_2_CPUS, epochs=1)
@recomputes("lab-rate-t4-16-cpus-1-epoch", resources=T4_16_CPUS, epochs=1)
@recomputes("lab-rate-t4-1-epoch", resources=T4, epochs=1)
@recomputes("lab-rate-v100-1-epoch", resources=V100, epochs=1)
@recomputes("lab-rate-t4-2-cpus-20-epochs", resources=T4_2_CPUS, epochs=20)
@recomputes("lab-rate-t4-16-cpus-20-epochs", resources=T4_16_CPUS, epochs=20)
@recomputes("lab-rate-t4-20-epochs", resources=T4, epochs=20)
@recomputes("lab-rate-v100-20-epochs", resources=V100, epochs=20)
def rate(resources: str, epochs: int) -> Working:
    """Images a second in the last epoch."""
    run, row = facts.lab(resources, epochs)
    epoch = Row(row.file, f"{row.row}, the last", f"{run.last_epoch_seconds} s", row.source)
    return facts.quantity("lab/images") / Working.read(run.last_epoch_seconds, epoch, _TENTH)


@recomputes("lab-epoch-t4-2-cpus", resources=T4_2_CPUS)
@recomputes("lab-epoch-t4-16-cpus", resources=T4_16_CPUS)
@recomputes("lab-epoch-t4", resources=T4)
@recomputes("lab-epoch-v100", resources=V100)
def epoch(resources: str) -> Working:
    """The mean of 20 epochs."""
    return _seconds(resources) / 20


@recomputes("lab-stamps-t4-2-cpus-1-epoch", resources=T4_2_CPUS, epochs=1)
@recomputes("lab-stamps-t4-16-cpus-1-epoch", resources=T4_16_CPUS, epochs=1)
@recomputes("lab-stamps-t4-1-epoch", resources=T4, epochs=1)
@recomputes("lab-stamps-v100-1-epoch", resources=V100, epochs=1)
@recomputes("lab-stamps-t4-2-cpus-20-epochs", resources=T4_2_CPUS, epochs=20)
@recomputes("lab-stamps-t4-16-cpus-20-epochs", resources=T4_16_CPUS, epochs=20)
@recomputes("lab-stamps-t4-20-epochs", resources=T4, epochs=20)
@recomputes("lab-stamps-v100-20-epochs", resources=V100, epochs=20)
def stamps(resources: str, epochs: int) -> Working:
    """Seconds between the local time stamps, which are whole seconds each, less what clocks went forward between."""
    run, row = facts.lab(resources, epochs)
    between = (run.ended - run.started).total_seconds()
    found = Working(
        Interval.rounded(between, 2),
        (Row(row.file, row.row, f"{run.started} to {run.ended}, local", row.source),),
        (f"from {run.started} to {run.ended} the clock went on by {shown(between)} s",),
    )
    if not run.clock_change_seconds:
        return found
    elapsed = (found - run.clock_change_seconds).called("summer time began that night")
    return elapsed.told(f"the stamps read as they stand give {shown(between)} s, an hour more: summer time began")


def _seconds(resources: str, epochs: int = 20) -> Working:
    run, row = facts.lab(resources, epochs)
    return Working.read(run.seconds, row, _TENTH)
