"""The report of the lab's experiment: predictions from one epoch, why the first one differs, and machines compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from statistics import mean
from typing import Any

from .. import models
from ..datafile import of_another
from ..formats import Format, as_json, prose, render, significant
from ..models import gan
from ..paper.gpus import Gpu, by_name
from ..paper.tables import quantities
from ..printout import people
from ..run.results import REPORT
from ..validity import cpu_disturbance
from .specification import T4, T4_2_CPUS, T4_16_CPUS, V100, TimedTraining, Training, lab_runs

Row = dict[str, Any]
_FIRST_BATCHES = 10
# A DGX has SXM2 GPUs. The report does not state the memory size; both sizes have the same peaks.
_GPUS = {"T4": (T4, "T4"), "V100": (V100, "V100 32 GB")}
_FIGURES = {"fp32_tflops": "fp32 TFLOP/s", "fp16_tflops": "fp16 tensor TFLOP/s", "bandwidth_gb_s": "memory GB/s"}


def report(first: TimedTraining, all: TimedTraining, gpu: Gpu | None, format: Format) -> str:
    """Return the results of the experiment. Text and CSV have only the predictions."""
    predicted, epochs, compared = predictions(first, all), epochs_of(first, all), ratios(first, all, gpu)
    if format == "csv":
        return render(predicted, "csv")
    if format == "json":
        tables = {"predictions": predicted, "epochs": epochs, "why": reasons(all), "ratios": compared}
        return as_json({"trainings": [asdict(first), asdict(all)], **tables})

    def shown(rows: list[Row]) -> list[Row]:
        return [row | ({"error": f"{row['error']:+.1%}"} if "error" in row else {}) for row in rows]

    def table(title: str, rows: list[Row]) -> list[str]:
        return [f"## {title}", render(shown(rows), format)]

    ours, busy = predicted[-1], [cpu_disturbance(each.busy_cpus) for each in (first, all)]
    one, many, took = (significant(ours[key]) for key in ("first_epoch_s", "predicted_s", "measured_s"))
    answer = f"One epoch of {one} s predicts {many} s for {ours['epochs']}, which took {took} s: {ours['error']:+.1%}."
    disturbed = [f"Meanwhile {others}: an epoch may have taken longer than alone." for others in busy if others]
    if format == "text":
        more = f"{REPORT} and --format markdown say why the first epoch differs, and compare two machines."
        return people(answer, shown(predicted), [reasons(all)[0], more, *disturbed[:1]], format)
    parts = [
        "# The lab's experiment",
        answer,
        prose(what(first.what, all.what.epochs), format),
        *(prose(f"Note: {another}.", format) for another in [of_another()] if another),
        *disturbed,
        *table("Prediction", predicted),
        "later epoch: the mean of those after the first. The last row was measured here, the others are the report's.",
        *table("Why the first epoch differs", epochs),
        *reasons(all),
        *table("Two machines", compared),
        "predicted: by what the machines can do; error: that of the prediction, against the time of all epochs.",
    ]
    return "\n\n".join(parts)


def what(training: Training, epochs: int) -> str:
    """Describe the experiment: model size, machine, images and batches, and what is smaller than in the lab."""
    size = "its tiny twin" if training.scale == "tiny" else "as large as in the lab, we believe"
    numbers = f"{training.images:,} images an epoch in batches of {training.batch}"
    lab = {"images": gan.IMAGES, "a batch": models.find("gan").batch_size, "epochs": gan.EPOCHS}
    here = (training.images, training.batch, epochs)
    smaller = [f"{ours:,} of {lab[name]:,} {name}" for name, ours in zip(lab, here, strict=True) if ours < lab[name]]
    whole = f"--scale paper --images {gan.IMAGES} --epochs {gan.EPOCHS} is the lab's"
    scaled = f" Scaled down: {', '.join(smaller)}; {whole}." if smaller else ""
    return f"The lab's GAN, {size}, on {training.machine}: {numbers}.{scaled}"


def predictions(first: TimedTraining, all: TimedTraining) -> list[Row]:
    """Return the report's four predictions, and ours: so many epochs take so many times the first."""
    runs, ours = lab_runs(), all.what
    # The report does not state the first epoch of its long trainings: the one-epoch training stands for it.
    found = [
        _prediction(run.resources, run.epochs, runs[run.resources, 1].seconds, run.predicted_seconds, run.seconds)
        for run in runs.values()
        if run.predicted_seconds is not None
    ]
    [one], seconds = first.seconds, sum(all.seconds)
    here = _prediction(ours.machine, ours.epochs, one, ours.epochs * one, seconds)
    return [*found, here | {"later_epoch_s": mean(all.seconds[1:])}]


def _prediction(machine: str, epochs: int, first: float, predicted: float, measured: float) -> Row:
    later = (measured - first) / (epochs - 1)
    row = {"machine": machine, "epochs": epochs, "first_epoch_s": first, "later_epoch_s": later}
    return row | {"predicted_s": predicted, "measured_s": measured, "error": predicted / measured - 1}


def epochs_of(first: TimedTraining, all: TimedTraining) -> list[Row]:
    """Return the epoch that the prediction uses, and those that it predicts."""
    later = range(1, len(all.seconds))

    def row(name: str, trained: TimedTraining, which: Sequence[int]) -> Row:
        reading, training = (mean(sum(times[n]) for n in which) for times in (trained.reading, trained.training))
        seconds = mean(trained.seconds[n] for n in which)
        return {"epoch": name, "reading_s": reading, "training_s": training, "epoch_s": seconds}

    return [row("alone", first, [0]), row("first", all, [0]), row(f"later ({len(later)}, mean)", all, later)]


def reasons(all: TimedTraining) -> list[str]:
    """Explain in sentences how much longer the first epoch took than a later one, and in which part."""
    _, begin, later = epochs_of(all, all)
    surplus, reading = begin["epoch_s"] - later["epoch_s"], begin["reading_s"] - later["reading_s"]
    early = slice(0, min(_FIRST_BATCHES, len(all.training[0])))
    warm_up = sum(all.training[0][early]) - mean(sum(times[early]) for times in all.training[1:])
    spread = max(all.seconds[1:]) - min(all.seconds[1:])
    return [
        f"The first of {len(all.seconds)} epochs took {_signed(surplus)} s ({surplus / later['epoch_s']:+.1%}) against "
        f"a later one; these differ by up to {significant(spread, 2)} s.",
        f"Warm-up: training on its first {early.stop} batches took {_signed(warm_up)} s against a later epoch's, "
        f"on the others {_signed(surplus - reading - warm_up)} s. Caching: reading took {_signed(reading)} s; "
        "the image file was out of the page cache when the first epoch began, and in it later.",
    ]


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{significant(abs(seconds), 2)}"


def ratios(first: TimedTraining, all: TimedTraining, gpu: Gpu | None) -> list[Row]:
    """Return V100 over T4, 16 over 2 CPUs, and a known GPU that trained the whole GAN over these two, per image."""
    given, runs = quantities(), lab_runs()
    lab = {name: [runs[name, epochs].seconds / epochs for epochs in (1, gan.EPOCHS)] for name, _ in runs}
    printed = {"TFLOP/s, as printed": (given["lab/v100_tflops"].value, given["lab/t4_tflops"].value)}
    found = _ratios("V100 : T4", printed | _figures(by_name()["V100 32 GB"], "T4"), lab[T4], lab[V100])
    found += _ratios("16 : 2 CPUs", {"CPUs": (16, 2)}, lab[T4_2_CPUS], lab[T4_16_CPUS])
    if gpu is None or first.what.scale != "paper":
        return found
    more = given["lab/images"].value / first.what.images  # images of the report's epochs, in ours
    ours = [first.seconds[0] * more, mean(all.seconds) * more]
    for name, (resources, called) in _GPUS.items():
        found += _ratios(f"{gpu.name} : {name}", _figures(gpu, called), lab[resources], ours)
    return found


def _figures(gpu: Gpu, other: str) -> dict[str, tuple[float, float]]:
    """Return the numbers that the data sheets of both GPUs have."""
    pairs = {name: (getattr(gpu, field), getattr(by_name()[other], field)) for field, name in _FIGURES.items()}
    return {name: pair for name, pair in pairs.items() if None not in pair}


def _ratios(
    machines: str, figures: dict[str, tuple[float, float]], slow: Sequence[float], fast: Sequence[float]
) -> list[Row]:
    """Return the ratio that each figure predicts, beside those of the seconds of an epoch, alone and of many."""
    alone, many = (theirs / ours for theirs, ours in zip(slow, fast, strict=True))
    return [
        {"machines": machines, "by": by, "one": one, "other": other, "predicted": one / other}
        | {"1_epoch": alone, "all_epochs": many, "error": one / other / many - 1}
        for by, (one, other) in figures.items()
    ]
