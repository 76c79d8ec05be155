"""What the paper says of the original trainings and of compute: figures 6(a) and 9, and its analytic peaks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .datafile import records


@dataclass(frozen=True)
class Original:
    """What first trained a model, figure 6(a). None where the original does not say."""

    model: str
    gpus: int | None
    gpu: str
    days: int | None
    source: str


@dataclass(frozen=True)
class TrainingCompute:
    """FLOPs of a whole training as figure 9 prints them, two figures."""

    model: str
    training_flops: float
    source: str


@dataclass(frozen=True)
class AnalyticPeaks:
    """TFLOP/s of a GPU in the paper's analytic estimate."""

    gpu: str
    fp16_tflops: float
    tf32_tflops: float
    source: str


def originals(folder: Path | None = None) -> list[Original]:
    """Figure 6(a). Raises UserError where the file is broken."""
    return records(Original, "figure6.csv", ("model",), folder)


def training_compute(folder: Path | None = None) -> list[TrainingCompute]:
    """Figure 9(a). Raises UserError where the file is broken."""
    return records(TrainingCompute, "figure9.csv", ("model",), folder)


def analytic_peaks(folder: Path | None = None) -> list[AnalyticPeaks]:
    """The peaks behind figures 2 and 9(b). Raises UserError where the file is broken."""
    return records(AnalyticPeaks, "analytic_peaks.csv", ("gpu",), folder)
