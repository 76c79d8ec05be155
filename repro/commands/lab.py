"""`repro lab`: predict a training's runtime from one epoch, then train it and compare."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from .. import files, models
from ..console import FAILED, OK, say
from ..formats import add_format, count, counted, duration, significant
from ..lab.report import Report, named, scaled_down, what
from ..lab.specification import TimedTraining, Training
from ..machine import nvml
from ..machine.devices import Device, gpu_of
from ..machine.host import limited_cpus, usable_cpus
from ..models import gan
from ..models.gan import EPOCHS
from ..models.recipe import Scale
from ..run.plan import default_scale
from ..run.results import REPORT
from ..validity import cpu_disturbance
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
    add("--skip-warmup", action="store_true", help="also time an epoch after a warm-up, and predict with it")
    add_cpus(parser)
    add_out(parser, "results/local/lab")
    add_format(parser)


@resumable("finished trainings are kept")
def main(given: argparse.Namespace) -> int:
    with limited_cpus(cpus_of(given)):
        return _train(given)


def _train(given: argparse.Namespace) -> int:
    check_packages("torch")
    from ..lab.experiment import Experiment, TrainingFailedError, check_room
    from ..measure.launcher import ServerDiedError

    devices = nvml.visible_devices()[:1]
    check_cuda(devices)
    epochs, first = _checked(given, devices)
    check_disk(given.out, REPORT)
    wanted = {"first": first}
    if given.skip_warmup:
        wanted["warm"] = replace(first, warm=True)
    wanted["all"] = replace(first, epochs=epochs)
    for training in wanted.values():
        check_room(given.out, training)
    stop_on_sigterm()
    done: dict[str, TimedTraining] = {}
    try:
        with Experiment(given.out, devices) as experiment:
            say(f"{what(first)}; results in {given.out}")
            for line in scaled_down(first, epochs):
                say(line)
            for name, training in wanted.items():
                say(f"training {named(training)}{_predicted(done, training)}")
                done[name], earlier = experiment.train(training)
                others = cpu_disturbance(done[name].busy_cpus)
                beside = "" if others is None else f", while {others}"
                again = " (from an earlier run)" if earlier else ""
                say(f"took {significant(sum(done[name].seconds), 4)} s{again}{beside}")
            found_report = Report(done["first"], done["all"], done.get("warm"), gpu_of(devices))
            files.replace(given.out / REPORT, found_report.text("markdown") + "\n")
    except (TrainingFailedError, ServerDiedError) as error:
        say(str(error).splitlines()[0])
        return FAILED
    print(found_report.text(given.format))
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


def _predicted(done: dict[str, TimedTraining], training: Training) -> str:
    return f", about {duration(training.epochs * done['first'].seconds[0])}" if done else ""
