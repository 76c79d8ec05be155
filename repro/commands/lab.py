"""`repro lab`: predict a training's runtime from one epoch, then train it and compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_args

from .. import files, models
from ..console import FAILED, OK, UserError, say
from ..formats import Format, count, counted, duration, significant
from ..lab.report import report, what
from ..lab.specification import TimedTraining, Training
from ..machine import nvml
from ..machine.devices import Device, gpu_of
from ..machine.host import limited_cpus, usable_cpus
from ..models import gan
from ..models.gan import EPOCHS
from ..models.recipe import Scale
from ..options import Options, format_option, option
from ..run.plan import default_scale
from ..run.results import REPORT
from .devices import cpus_option
from .preflight import check_cuda, check_disk, check_packages, out_option
from .stopping import resumable, stop_on_sigterm


@dataclass(frozen=True, kw_only=True)
class Asked(Options):
    epochs: int = option(
        f"epochs to predict from one, and then to train (default {EPOCHS})",
        "N",
        partial(count, least=2, why="one epoch predicts several"),
        default=EPOCHS,
    )
    images: int | None = option(
        "images in an epoch (default: as many batches as the lab's 40,597 images make)", "N", count
    )
    scale: Scale | None = option("size of the GAN (default: paper on a GPU, tiny on a CPU)", choices=get_args(Scale))
    cpus: int | None = cpus_option()
    out: Path = out_option("results/local/lab")
    format: Format = format_option()


@resumable("finished trainings are kept")
def main(asked: Asked) -> int:
    with limited_cpus(asked.cpus):
        return _train(asked)


def _train(asked: Asked) -> int:
    check_packages("torch")
    from ..lab.experiment import TrainingFailedError, experiment
    from ..measure.launcher import ServerDiedError

    devices = nvml.visible_devices()[:1]
    check_cuda(devices)
    first = _one_epoch(asked, devices)
    check_disk(asked.out, REPORT)
    stop_on_sigterm()
    done: list[TimedTraining] = []
    try:
        with experiment(asked.out, devices) as train:
            say(f"{what(first, asked.epochs)} Results in {asked.out}")
            for training in (first, replace(first, epochs=asked.epochs)):
                about = f", about {duration(training.epochs * done[0].seconds[0])}" if done else ""
                say(f"training {counted(training.epochs, 'epoch')}{about}")
                timed, earlier = train(training)
                done.append(timed)
                again = " (from an earlier run)" if earlier else ""
                say(f"took {significant(sum(timed.seconds), 4)} s{again}")
            first_, all_ = done
            files.replace(asked.out / REPORT, report(first_, all_, gpu_of(devices), "markdown") + "\n")
    except (TrainingFailedError, ServerDiedError) as error:
        say(str(error).splitlines()[0])
        return FAILED
    print(report(first_, all_, gpu_of(devices), asked.format))
    return OK


def _one_epoch(asked: Asked, devices: Sequence[Device]) -> Training:
    """Return the training of one epoch. Raise UserError for too few images."""
    scale = asked.scale or default_scale(bool(devices))
    batch = models.find("gan", scale).batch_size
    if asked.images is not None and asked.images < 2 * batch:
        reason = f"two batches of {batch}, the first and another"
        raise UserError(f"--images {asked.images}: expected at least {2 * batch:,}: {reason}")
    images = asked.images or round(gan.IMAGES * batch / models.find("gan").batch_size)
    machine = devices[0].name if devices else counted(usable_cpus(), "CPU")
    return Training(machine, scale, batch, images, epochs=1)
