"""The runner of the lab's experiment: each training runs once, in its own process, and is saved in a folder."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from .. import datafile, files, models
from ..console import UserError
from ..formats import SECONDS_A_DAY
from ..machine import environment
from ..machine.devices import Device
from ..machine.packages import installed_packages
from ..machine.stack import server_environment
from ..measure.launcher import ForkServer
from ..measure.rank import SEED
from ..measure.server import Job
from ..models import gan
from ..models.recipe import Generation
from ..run.results import TRAININGS, TRIALS, Results
from .specification import TimedTraining, Training

_TIME_LIMIT = 30.0 * SECONDS_A_DAY  # no limit in practice: the user watches the progress bar


class TrainingFailedError(RuntimeError):
    """A training that ended without times; the message is its status and error, in one line."""


class Experiment:
    """Trainings in a results folder, on the first of `devices`, or on the CPUs if there is none. A context manager: it
    locks the folder and ends all its processes."""

    def __init__(self, folder: Path, devices: Sequence[Device]) -> None:
        self.results, self._devices = Results(folder), list(devices[:1])
        self._variables = server_environment(self._devices)
        self._server = ForkServer(self.results.logs / "server.log", self._variables)

    def __enter__(self) -> Experiment:
        if (self.results.folder / TRIALS).is_file():
            raise UserError(f"{self.results.folder} holds a run's trials; name another folder with --out")
        with contextlib.ExitStack() as opened:
            opened.enter_context(self.results)
            opened.enter_context(self._server)
            self._environment = environment.describe(self._devices, installed_packages(), SEED, {}, self._variables)
            self._keep_environment()
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def _keep_environment(self) -> None:
        """Write environment.json. Raise UserError if the folder's trainings are from another stack."""
        if any(self.results.folder.glob(TRAININGS)):
            environment.refuse_another(self.results.folder, self._environment)
        environment.keep(self._environment, self.results.folder)

    def train(self, what: Training) -> tuple[TimedTraining, bool]:
        """Return the training's times, and whether an earlier run in this folder took them. Raise
        TrainingFailedError."""
        path = self.results.folder / f"{what.id}.json"
        if path.is_file():
            return _read(path, what), True
        check_room(self.results.folder, what)
        self._server.start()
        if self._server.imports is not None:
            self._environment = self._environment.with_imports(self._server.imports)
            self._keep_environment()
        with tempfile.TemporaryDirectory(prefix="repro-") as watched:
            progress, log = Path(watched) / "progress", self.results.logs / f"{what.id}.log"
            with _bar(progress, batches(what)):
                [outcome] = self._server.call(
                    Job(
                        call="repro.measure.epochs:train",
                        arguments={
                            "recipe": "gan",
                            "scale": what.scale,
                            "images": what.images,
                            "epochs": what.epochs,
                            "warm": what.warm,
                            "folder": str(self.results.folder.resolve()),
                            "progress": str(progress),
                        },
                        ranks=1,
                        log=str(log),
                        timeout=_TIME_LIMIT,
                        cuda=bool(self._devices),
                    )
                )
        if outcome.status != "ok":
            raise TrainingFailedError(f"{what.id}: {outcome.status}, {outcome.error or 'no reason given'}; see {log}")
        started = next(report.started for report in outcome.reports if report.started is not None)
        trained = TimedTraining(what, started, **outcome.value, busy_cpus=outcome.busy_cpus)
        files.replace(self.results.current / path.name, json.dumps(asdict(trained)) + "\n")
        self.results.check()
        return trained, False


def batches(what: Training) -> int:
    """Return the number of batches that a training takes, including its warm-up."""
    an_epoch = gan.batches(what.images, what.batch)
    return what.epochs * an_epoch + (min(gan.WARM_UP_BATCHES, an_epoch) if what.warm else 0)


def check_room(folder: Path, what: Training) -> None:
    """Raise UserError where the disk is too small for the images of a training not yet in the folder. Write nothing."""
    if (folder / f"{what.id}.json").is_file():
        return
    recipe = models.find("gan", what.scale)
    assert isinstance(recipe.inputs, Generation)
    size, free = what.images * 3 * recipe.inputs.size**2, files.free_bytes(files.nearest(folder))
    if free < size + 2**28:
        raise UserError(
            f"{folder}: {int(free) >> 20} MiB of disk are free, the images take {size >> 20} while it runs; free some, "
            "or take fewer --images"
        )


def _read(path: Path, what: Training) -> TimedTraining:
    """Return a training saved by an earlier run. Raise UserError if its times cannot be those of `what`."""
    try:
        found = datafile.read(path, TimedTraining)
        if problem := _contradiction(found, what):
            raise datafile.NotAsDeclaredError(problem)
        return found
    except datafile.NotAsDeclaredError as error:
        raise UserError(f"{path}: not a training's times ({error}); remove the file") from None


def _contradiction(found: TimedTraining, what: Training) -> str | None:
    batches = gan.batches(what.images, what.batch)
    if found.what != what:
        return f"they are of {found.what.id}"
    if not all(len(times) == what.epochs for times in (found.reading, found.training, found.seconds)):
        return f"it does not have the times of {what.epochs} epochs"
    for epoch, (reading, training, seconds) in enumerate(
        zip(found.reading, found.training, found.seconds, strict=True), 1
    ):
        if not len(reading) == len(training) == batches:
            return f"epoch {epoch} does not have the times of {batches} batches"
        rounding = 1e-6 * (2 * batches + 1)
        inside = sum(reading) + sum(training)
        if min(*reading, *training) < 0 or not 0 < seconds <= _TIME_LIMIT or inside > seconds + rounding:
            return f"epoch {epoch} cannot take {seconds:g} s where its batches take {inside:g} s"
    return None


@contextlib.contextmanager
def _bar(progress: Path, batches: int) -> Iterator[None]:
    """Show a progress bar with the time left on stderr; the file `progress` grows by one byte a batch."""
    from tqdm import tqdm

    over = threading.Event()
    with tqdm(total=batches, unit="batch", file=sys.stderr, disable=None, dynamic_ncols=True, leave=False) as bar:

        def follow() -> None:
            while not over.wait(0.5):
                with contextlib.suppress(OSError):
                    bar.update(os.stat(progress).st_size - bar.n)

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
