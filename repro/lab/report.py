"""The report of the lab's experiment, as text, Markdown, JSON and CSV."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .. import models
from ..datafile import of_another
from ..formats import Format, as_json, counted, duration, prose, render
from ..models import gan
from ..models.gan import EPOCHS
from ..paper.gpus import Gpu
from ..validity import cpu_disturbance
from . import specification
from .specification import Epoch, Prediction, Ratio, TimedTraining, Training


class Report:
    """The results of the experiment. CSV has only the predictions."""

    def __init__(self, first: TimedTraining, all: TimedTraining, warm: TimedTraining | None, gpu: Gpu | None) -> None:
        self.trained = [each for each in (first, warm, all) if each is not None]
        self.scaled_down = scaled_down(first.what, all.what.epochs)
        self.predictions = [*specification.lab_predictions(), *specification.predictions(first, all, warm)]
        self.epochs = specification.epochs_of(first, all, warm)
        self.why = specification.reasons(first, all)
        self.ratios = [*specification.lab_ratios(), *specification.ratios(first, all, gpu)]

    def text(self, format: Format) -> str:
        if format == "json":
            return as_json(
                {
                    "trainings": [asdict(trained) for trained in self.trained],
                    "scaled_down": self.scaled_down,
                    "predictions": [asdict(row) for row in self.predictions],
                    "epochs": [asdict(row) for row in self.epochs],
                    "why": self.why,
                    "ratios": [asdict(row) for row in self.ratios],
                }
            )
        if format == "csv":
            return render([asdict(row) for row in self.predictions], "csv")
        title = (lambda text: f"## {text}") if format == "markdown" else str.upper
        parts = ["# The lab's experiment" if format == "markdown" else ""]
        parts += [prose(". ".join([what(self.trained[0].what), *self.scaled_down]) + ".", format)]
        if another := of_another():
            parts += [prose(f"{another[0].upper()}{another[1:]}.", format)]
        parts += [
            f"While {named(each.what)} ran, {others}: it may have taken longer than alone."
            for each in self.trained
            if (others := cpu_disturbance(each.busy_cpus)) is not None
        ]
        parts += [title("Prediction"), render([_prediction(row) for row in self.predictions], format)]
        parts += [
            "later epoch: the mean of those after the first; the lab's by (measured - first) / (epochs - 1). "
            "error: predicted against measured. Ours reads raw images from one file, and trains with joint updates: "
            "models/gan.py."
        ]
        parts += [title("Why the first epoch differs"), render([_epoch(row) for row in self.epochs], format), *self.why]
        parts += [title("Two machines"), render([_ratio(row) for row in self.ratios], format)]
        parts += ["error: the ratio that the specification predicts, against the one measured over all epochs."]
        return "\n\n".join(filter(None, parts))


def named(training: Training) -> str:
    """Return the words that tell a training from the others of its experiment."""
    return f"{counted(training.epochs, 'epoch')}{', after a warm-up' if training.warm else ''}"


def what(training: Training) -> str:
    """Describe a training: model size, machine, images and batches."""
    batches = gan.batches(training.images, training.batch)
    return (
        f"The lab's GAN, {'its tiny twin' if training.scale == 'tiny' else 'as large as in the lab, we believe'}, on "
        f"{training.machine}: {training.images:,} images an epoch in {batches} batches of {training.batch}"
    )


def scaled_down(training: Training, epochs: int) -> list[str]:
    """Return a sentence on what is smaller here than in the lab and which options run it in full, or nothing."""
    batch = models.find("gan").batch_size
    longest = max(specification.lab_runs().values(), key=lambda run: run.seconds)
    pairs = [("images", training.images, gan.IMAGES), ("a batch", training.batch, batch), ("epochs", epochs, EPOCHS)]
    smaller = [f"{here:,} of {there:,} {what}" for what, here, there in pairs if here < there]
    if training.scale == "tiny":
        smaller.insert(0, "the tiny twin")
    if not smaller:
        return []
    return [
        f"Scaled down: {', '.join(smaller)}; --scale paper --images {gan.IMAGES} --epochs {EPOCHS} is the lab's, "
        f"which took its {longest.cpus} CPUs {duration(longest.seconds)}"
    ]


def _prediction(row: Prediction) -> dict[str, Any]:
    return {
        "machine": row.machine,
        "images": row.images,
        "epochs": row.epochs,
        "first epoch s": row.first,
        "later epoch s": row.later,
        "predicted by": row.method,
        "predicted s": row.predicted,
        "measured s": row.measured,
        "error": f"{row.error:+.1%}",
        "images/s": row.images_per_second,
        "source": row.source,
    }


def _epoch(row: Epoch) -> dict[str, Any]:
    return {
        "epoch": row.epoch,
        "reading s": row.reading,
        "training s": row.training,
        "epoch s": row.total,
        "batch 1, ms": row.batch_1,
        "2 to 10, ms": row.batches_2_to_10,
        "others, ms": row.other_batches,
    }


def _ratio(row: Ratio) -> dict[str, Any]:
    return {
        "machines": row.machines,
        "by": row.specification,
        "one": row.one,
        "other": row.other,
        "predicted": row.predicted,
        "measured, 1 epoch": row.measured_1,
        "measured, all": row.measured_n,
        "error": f"{row.error:+.0%}",
        "source": row.source,
    }
