"""`repro lab`: predict a training's runtime from one epoch, then train it and compare."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from .. import files, models
from ..console import FAILED, OK, say
from ..formats import add_format, count, counted, duration, significant
from ..lab.report import report, what
from ..lab.specification import TimedTraining, Training
from ..machine import nvml
from ..machine.devices import Device, gpu_of
from ..machine.host import limited_cpus, usable_cpus
from ..models import gan
from ..models.gan import EPOCHS
from ..models.recipe import Scale
from ..run.plan import default_scale
from ..run.results import REPORT
from .devices import add_cpus, cpus_of
from .preflight import add_out, check_cuda, check_disk, check_packages
from .stopping import resumable, stop_on_sigterm


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--epochs",
        default=str(EPOCHS),
        metavar="N",
        help=f"epochs to predict from one, and then to train (default {EPOCHS})",
    )
    add("--images", metavar="N", help="images in an epoch (default: as many batches as the lab's 40,597 images make)")
    add("--scale", choices=get_args(Scale), help="size of the GAN (default: paper on a GPU, tiny on a CPU)")
    add_cpus(parser)
    add_out(parser, "results/local/lab")
    add_format(parser)


@resumable("finished trainings are kept")
def main(given: argparse.Namespace) -> int:
    with limited_cpus(cpus_of(given.cpus)):
        return _train(given)


def _train(given: argparse.Namespace) -> int:
    check_packages("torch")
    from ..lab.experiment import TrainingFailedError, experiment
    from ..measure.launcher import ServerDiedError

    devices = nvml.visible_devices()[:1]
    check_cuda(devices)
    epochs, first = _checked(given, devices)
    check_disk(given.out, REPORT)
    stop_on_sigterm()
    done: list[TimedTraining] = []
    try:
        with experiment(given.out, devices) as train:
            say(f"{what(first, epochs)} Results in {given.out}")
            for training in (first, replace(first, epochs=epochs)):
                about = f", about {duration(training.epochs * done[0].seconds[0])}" if done else ""
                say(f"training {counted(training.epochs, 'epoch')}{about}")
                timed, earlier = train(training)
                done.append(timed)
                again = " (from an earlier run)" if earlier else ""
                say(f"took {significant(sum(timed.seconds), 4)} s{again}")
            first_, all_ = done
            files.replace(given.out / REPORT, report(first_, all_, gpu_of(devices), "markdown") + "\n")
    except (TrainingFailedError, ServerDiedError) as error:
        say(str(error).splitlines()[0])
        return FAILED
    print(report(first_, all_, gpu_of(devices), given.format))
    return OK


def _checked(given: argparse.Namespace, devices: Sequence[Device]) -> tuple[int, Training]:
    """Return the epochs to predict, and the training of one epoch. Raise UserError for values out of range."""
    scale = given.scale or default_scale(bool(devices))
    recipe = models.find("gan", scale)
    batch = recipe.batch_size
    images = round(gan.IMAGES * batch / models.find("gan").batch_size)
    if given.images is not None:
        images = count(given.images, "--images", 2 * batch, f"two batches of {batch}, the first and another")
    cpus = usable_cpus()
    machine = devices[0].name if devices else counted(cpus, "CPU")
    epochs = count(given.epochs, "--epochs", 2, "one epoch predicts several")
    return epochs, Training(machine, scale, batch, images, epochs=1)
