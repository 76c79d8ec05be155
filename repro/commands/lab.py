"""`repro lab`: predict a training's runtime from one epoch, then train it and see."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..exit_codes import FAILED, INTERRUPTED, OK
from ..formats import Format, add_format, counted, render
from ..lab import EPOCHS, Epoch, Prediction, Ratio, Trained, Training
from ..recipe import Scale
from ..stderr import say
from ..units import count, path


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--epochs", default=str(EPOCHS), metavar="N", help=f"to predict from one, and then to run (default {EPOCHS})")
    add("--images", metavar="N", help="an epoch has (default: as many batches as the lab's 40,597 images make)")
    add("--scale", choices=("paper", "tiny"), help="size of the GAN (default: paper on a GPU, tiny on a CPU)")
    add("--skip-warmup", action="store_true", help="also time an epoch after a warm-up, and predict with it")
    add("--out", type=path, default=Path("results/local/lab"), metavar="DIR", help="default results/local/lab")
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    from .. import command, nvml
    from ..experiment import Experiment, TrainingFailedError
    from ..measure.launcher import ServerDiedError
    from .preflight import check_disk, check_packages, stop_on_sigterm

    check_packages()
    devices = nvml.visible_devices()[:1]
    epochs, first = _checked(given, devices)
    check_disk(given.out)
    wanted = {"first": first}
    if given.skip_warmup:
        wanted["warm"] = _like(first, warm=True)
    wanted["all"] = _like(first, epochs=epochs)
    say(f"{_what(first)}; results in {given.out}")
    for line in _scaled_down(first, epochs):
        say(line)
    stop_on_sigterm()
    done: dict[str, Trained] = {}
    try:
        with Experiment(given.out, devices) as experiment:
            for name, training in wanted.items():
                say(f"training {_named(training)}{_predicted(done, training)}")
                done[name], earlier = experiment.run(training)
                say(f"took {sum(done[name].seconds):.4g} s{' (from an earlier run)' if earlier else ''}")
            told = _Told(done["first"], done["all"], done.get("warm"), devices[0].gpu if devices else None)
            experiment.results.write("report.md", told.text("markdown") + "\n")
    except (TrainingFailedError, ServerDiedError) as error:
        say(str(error).splitlines()[0])
        return FAILED
    except KeyboardInterrupt:
        say(f"interrupted; finished trainings are kept, resume with: {command()} {shlex.join(sys.argv[1:])}")
        return INTERRUPTED
    print(told.text(given.format))
    return OK


def _checked(given: argparse.Namespace, devices: list[Any]) -> tuple[int, Training]:
    """The epochs to predict, and the training of one epoch. Raises UserError for what is out of range."""
    import os

    import models
    from models import gan

    scale: Scale = given.scale or ("paper" if devices else "tiny")
    recipe = models.find("gan", scale)
    batch = recipe.batch_size
    images = round(gan.IMAGES * batch / models.find("gan").batch_size)
    if given.images is not None:
        images = count(given.images, "--images", 2 * batch, f"two batches of {batch}, the first and another")
    cpus = len(os.sched_getaffinity(0))
    machine = devices[0].name if devices else counted(cpus, "CPU")
    epochs = count(given.epochs, "--epochs", 2, "one epoch predicts several")
    return epochs, Training(machine, scale, batch, images, epochs=1)


def _like(training: Training, **changes: Any) -> Training:
    return Training(**{**asdict(training), **changes})


def _what(training: Training) -> str:
    from models import gan

    batches = gan.batches(training.images, training.batch)
    return (
        f"The lab's GAN, {'its tiny twin' if training.scale == 'tiny' else 'as large as in the lab, we believe'}, on "
        f"{training.machine}: {training.images:,} images an epoch in {batches} batches of {training.batch}"
    )


def _scaled_down(training: Training, epochs: int) -> list[str]:
    """What is smaller here than in the lab, and how to have it whole."""
    import models
    from models import gan

    from ..lab import lab_runs
    from ..progress import duration

    batch = models.find("gan").batch_size
    longest = max(lab_runs().values(), key=lambda run: run.seconds)
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


def _named(training: Training) -> str:
    return f"{counted(training.epochs, 'epoch')}{', after a warm-up' if training.warm else ''}"


def _predicted(done: dict[str, Trained], training: Training) -> str:
    from ..progress import duration

    return f", about {duration(training.epochs * done['first'].seconds[0])}" if done else ""


class _Told:
    """What the experiment found, in any format; CSV is the predictions alone."""

    def __init__(self, first: Trained, all: Trained, warm: Trained | None, gpu: Any) -> None:
        from .. import lab

        self.trained = [each for each in (first, warm, all) if each is not None]
        self.scaled_down = _scaled_down(first.what, all.what.epochs)
        self.predictions = [*lab.lab_predictions(), *lab.predictions(first, all, warm)]
        self.epochs = lab.epochs_of(first, all, warm)
        self.why = lab.why(first, all)
        self.ratios = [*lab.lab_ratios(), *lab.ratios(first, all, gpu)]

    def text(self, format: Format) -> str:
        if format == "json":
            return json.dumps(
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
        parts += [". ".join([_what(self.trained[0].what), *self.scaled_down]) + "."]
        parts += [title("Prediction"), render([_prediction(row) for row in self.predictions], format)]
        parts += [
            "later epoch: the mean of those after the first, (measured - first) / (epochs - 1). error: predicted "
            "against measured. Ours reads raw images from one file, and trains with joint updates: models/gan.py."
        ]
        parts += [title("Why the first epoch differs"), render([_epoch(row) for row in self.epochs], format), *self.why]
        parts += [title("Two machines"), render([_ratio(row) for row in self.ratios], format)]
        parts += ["error: the ratio that the specification predicts, against the one measured over all epochs."]
        return "\n\n".join(filter(None, parts))


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
