"""What the paper says of the original trainings and of compute: figures 6(a) and 9, and its analytic peaks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import models

from .datafile import Positive, Row, read_once, records
from .gpus import known_gpu


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
    training_flops: Positive
    source: str


@dataclass(frozen=True)
class AnalyticPeaks:
    """TFLOP/s of a GPU in the paper's analytic estimate."""

    gpu: str
    fp16_tflops: Positive
    tf32_tflops: Positive
    source: str


@read_once
def originals() -> Mapping[str, Original]:
    """Figure 6(a), by model. Raises UserError where the file is broken."""
    return records(Original, "figure6.csv", ("model",), _known_model)


@read_once
def training_compute() -> Mapping[str, TrainingCompute]:
    """Figure 9(a), by model. Raises UserError where the file is broken."""
    return records(TrainingCompute, "figure9.csv", ("model",), _known_model)


@read_once
def analytic_peaks() -> Mapping[str, AnalyticPeaks]:
    """The peaks behind figures 2 and 9(b), by GPU. Raises UserError where the file is broken."""
    return records(AnalyticPeaks, "analytic_peaks.csv", ("gpu",), known_gpu)


def _known_model(row: Row) -> None:
    row.choice("model", models.NAMES)
