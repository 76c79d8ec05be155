"""Data of the lab's experiment: a GAN is trained for 1 epoch and for 20; the first training predicts the second.

The report's measurements (on CPUs, a T4 and a V100), ours, and the values computed from each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import mean, median

from ..datafile import CsvRow, Positive, read_csv, read_once
from ..formats import significant
from ..models.gan import EPOCHS
from ..models.recipe import Scale
from ..paper.gpus import Gpu, find
from ..paper.tables import quantities

_FIRST_BATCHES = 10
# Resources of the report's runs; the first two trained on CPUs only.
T4_2_CPUS, T4_16_CPUS = "T4 node with 2 CPUs", "T4 node with 16 CPUs"
T4, V100 = "T4 node with 1 GPU and 8 CPUs", "DGX node with 1 GPU and 8 CPUs"
# A DGX has SXM2 GPUs. The report does not state the memory size; both sizes have the same peaks.
_CATALOGUE_NAMES = {"V100": "V100 32 GB"}


@dataclass(frozen=True)
class LabRun:
    """A training in the report. `gpu` is None for training on CPUs. Times are local; the clocks went forward by
    `clock_change_seconds` during the run."""

    resources: str
    gpu: str | None
    cpus: int
    epochs: int
    seconds: Positive
    predicted_seconds: Positive | None
    last_epoch_seconds: Positive
    started: datetime
    ended: datetime
    clock_change_seconds: float
    source: str


@dataclass(frozen=True)
class Training:
    """A training of our own, on a `machine`. With `warm`, an unmeasured warm-up precedes the first epoch."""

    machine: str
    scale: Scale
    batch: int
    images: int
    epochs: int
    warm: bool = False

    @property
    def id(self) -> str:
        """Return the name used in messages and as the file name, by which a later run finds it."""
        epochs = f"{self.epochs}-epoch{'s' if self.epochs > 1 else ''}{'-warm' if self.warm else ''}"
        return f"{self.machine.replace(' ', '-')}_{self.scale}_{self.images}-images_{epochs}"


@dataclass(frozen=True)
class TimedTraining:
    """Measured seconds of a training: reading and training of each batch, by epoch, and each epoch. `started` is the
    time from sending the job to the first epoch. `busy_cpus` is the number of CPUs that other processes used during the
    epochs, at least."""

    what: Training
    started: float
    reading: list[list[float]]
    training: list[list[float]]
    seconds: list[float]
    busy_cpus: float | None = None


@dataclass(frozen=True)
class Prediction:
    """A training's seconds predicted from one epoch. `later` is the mean epoch after the first. The report does not
    state the first epoch of its long trainings: there `first` is the one-epoch training. `error` is relative to the
    measured seconds; `source` is who measured."""

    machine: str
    method: str
    images: int
    epochs: int
    first: float
    later: float
    predicted: float
    measured: float
    error: float
    images_per_second: float
    source: str


@dataclass(frozen=True)
class Epoch:
    """Seconds of an epoch's reading and training, and milliseconds of its batches (reading and training together): the
    first, the mean of the next nine, and the median of the rest (None if there are no more)."""

    epoch: str
    reading: float
    training: float
    total: float
    batch_1: float
    batches_2_to_10: float
    other_batches: float | None


@dataclass(frozen=True)
class Ratio:
    """Speed of one machine over another's: predicted by a specification, and measured in 1 and in N epochs. `error` is
    that of the specification's ratio relative to the one of N epochs."""

    machines: str
    specification: str
    one: float
    other: float
    predicted: float
    measured_1: float
    measured_n: float
    error: float
    source: str


@read_once
def lab_runs() -> Mapping[tuple[str, int], LabRun]:
    """Return the report's eight runs, by resources and epochs; all except one-epoch runs were predicted. Raise
    UserError if the file is broken."""

    def check(row: CsvRow) -> None:
        row.choice("gpu", ("-", "T4", "V100"))
        if row["epochs"] != "1" and row["predicted_seconds"] == "-":
            row.problem("predicted_seconds", "a number above 0, as one epoch was trained to predict more")

    return read_csv(LabRun, "lab.csv", ("resources", "epochs"), check)


def lab_predictions() -> list[Prediction]:
    """Return the report's four predictions."""
    images, runs = int(quantities()["lab/images"].value), lab_runs()
    return [
        _prediction(
            run.resources, "epochs x first epoch", images, run.epochs, first, run.predicted_seconds, run.seconds,
            (run.seconds - first) / (run.epochs - 1), run.source,
        )
        for run in runs.values()
        if run.epochs > 1 and run.predicted_seconds is not None
        for first in [runs[run.resources, 1].seconds]
    ]  # fmt: skip


def predictions(first: TimedTraining, all: TimedTraining, warm: TimedTraining | None) -> list[Prediction]:
    """Return ours: by the report's method and, given `warm`, by one that counts the warm-up once, not each epoch."""
    epochs, [one] = all.what.epochs, first.seconds
    later = mean(all.seconds[1:])
    methods = {"epochs x first epoch": epochs * one}
    if warm is not None:
        methods["first epoch + (epochs - 1) x epoch after a warm-up"] = one + (epochs - 1) * warm.seconds[0]
    return [
        _prediction(
            all.what.machine, method, all.what.images, epochs, one, predicted, sum(all.seconds), later, "measured here"
        )
        for method, predicted in methods.items()
    ]


def epochs_of(first: TimedTraining, all: TimedTraining, warm: TimedTraining | None) -> list[Epoch]:
    """Return the epochs that the predictions use, and those that they predict."""
    found = [_epoch("alone", first, [0]), _epoch("first", all, [0])]
    found.append(_epoch(f"later ({len(all.seconds) - 1}, mean)", all, range(1, len(all.seconds))))
    return [*found, _epoch("alone, after a warm-up", warm, [0])] if warm else found


def reasons(first: TimedTraining, all: TimedTraining) -> list[str]:
    """Explain in sentences how much longer the first epoch took than a later one, and in which part."""
    alone, begin, later = epochs_of(first, all, None)
    surplus, reading = begin.total - later.total, begin.reading - later.reading
    early = slice(0, min(_FIRST_BATCHES, len(all.training[0])))
    warm_up = sum(all.training[0][early]) - mean(sum(times[early]) for times in all.training[1:])
    reasons = [
        f"The first of {len(all.seconds)} epochs took {significant(begin.total)} s, a later one "
        f"{significant(later.total)} s: {_signed(surplus)} s ({surplus / later.total:+.1%}).",
        f"Warm-up: training on its first {early.stop} batches took {_signed(warm_up)} s against a later epoch's, "
        f"on the others {_signed(surplus - reading - warm_up)} s. Caching: reading took {_signed(reading)} s; "
        "the image file was out of the page cache when the first epoch began, and in it later.",
    ]
    spread = max(all.seconds[1:]) - min(all.seconds[1:])
    if abs(surplus) <= spread:
        reasons.append(
            f"Later epochs differ by up to {significant(spread, 2)} s among themselves: the first is not out of their "
            "line."
        )
    apart = alone.total - begin.total
    reasons.append(
        f"The epoch that predicted, in a process of its own, took {_signed(apart)} s against that first one."
    )
    return reasons


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{significant(abs(seconds), 2)}"


def lab_ratios() -> list[Ratio]:
    """Return V100 over T4, by the report's own figures and by the catalogue's, and its CPUs, by their number."""
    given, source = quantities(), "lab report, section I (as printed; double and single precision)"
    sheets = [("TFLOP/s", given["lab/v100_tflops"].value, given["lab/t4_tflops"].value, source)]
    v100, t4 = _gpu("V100"), _gpu("T4")
    if v100 is not None and t4 is not None:
        sheets += _specifications(v100, t4)
    runs = lab_runs()

    def times(slow: str, fast: str) -> list[float]:
        return [runs[slow, epochs].seconds / runs[fast, epochs].seconds for epochs in (1, EPOCHS)]

    found = [_ratio("V100 : T4", figure, *times(T4, V100)) for figure in sheets]
    small, large = runs[T4_2_CPUS, 1].cpus, runs[T4_16_CPUS, 1].cpus
    counted = ("CPUs", float(large), float(small), "lab report, section II (hyper-threaded)")
    return [*found, _ratio(f"{large} : {small} CPUs", counted, *times(T4_2_CPUS, T4_16_CPUS))]


def ratios(first: TimedTraining, all: TimedTraining, gpu: Gpu | None) -> list[Ratio]:
    """Return our GPU over the report's GPUs, per image; nothing on a CPU, an unknown GPU or for the tiny version."""
    if gpu is None or first.what.scale != "paper":
        return []
    images, found = quantities()["lab/images"].value, []
    one = first.seconds[0] / first.what.images
    mean_n = sum(all.seconds) / all.what.epochs / all.what.images
    for run in lab_runs().values():
        other = _gpu(run.gpu) if run.gpu else None
        if other is not None and run.epochs > 1:
            theirs = lab_runs()[run.resources, 1].seconds / images, run.seconds / run.epochs / images
            found += [
                _ratio(f"{gpu.name} : {run.gpu}", figure, theirs[0] / one, theirs[1] / mean_n)
                for figure in _specifications(gpu, other)
            ]
    return found


def _prediction(
    machine: str, method: str, images: int, epochs: int, first: float, predicted: float, measured: float,
    later: float, source: str,
) -> Prediction:  # fmt: skip
    return Prediction(
        machine, method, images, epochs, first, later,
        predicted=predicted,
        measured=measured,
        error=predicted / measured - 1,
        images_per_second=images * epochs / measured,
        source=source,
    )  # fmt: skip


def _epoch(name: str, trained: TimedTraining, which: Sequence[int] | range) -> Epoch:
    """Return the mean over the epochs `which`."""
    batches = [
        mean(times)
        for times in zip(
            *([a + b for a, b in zip(trained.reading[n], trained.training[n], strict=True)] for n in which),
            strict=True,
        )
    ]
    rest = batches[_FIRST_BATCHES:]
    return Epoch(
        name,
        reading=mean(sum(trained.reading[n]) for n in which),
        training=mean(sum(trained.training[n]) for n in which),
        total=mean(trained.seconds[n] for n in which),
        batch_1=1e3 * batches[0],
        batches_2_to_10=1e3 * mean(batches[1:_FIRST_BATCHES]),
        other_batches=1e3 * median(rest) if rest else None,
    )


def _gpu(name: str) -> Gpu | None:
    return find(_CATALOGUE_NAMES.get(name, name))


_Figure = tuple[str, float, float, str]


def _specifications(one: Gpu, other: Gpu) -> list[_Figure]:
    """Return both GPUs' figures in the catalogue: possible limits of fp32 training, and the unused tensor cores."""
    pairs = {
        "fp32 TFLOP/s": (one.fp32_tflops, other.fp32_tflops),
        "fp16 tensor TFLOP/s": (one.fp16_tflops, other.fp16_tflops),
        "memory GB/s": (one.bandwidth_gb_s, other.bandwidth_gb_s),
    }
    return [(name, a, b, "gpus.csv") for name, (a, b) in pairs.items() if a is not None and b is not None]


def _ratio(machines: str, figure: _Figure, measured_1: float, measured_n: float) -> Ratio:
    specification, one, other, source = figure
    predicted = one / other
    return Ratio(
        machines, specification, one, other, predicted, measured_1, measured_n, predicted / measured_n - 1, source
    )
