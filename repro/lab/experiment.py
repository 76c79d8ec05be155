"""The runner of the lab's experiment: each training runs once, in its own process, and is saved in a folder."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from .. import datafile, files
from ..console import UserError
from ..formats import SECONDS_A_DAY
from ..machine import environment
from ..machine.devices import Device
from ..machine.packages import installed_packages
from ..machine.stack import server_environment
from ..measure.jobs import SEED, Job
from ..measure.launcher import ForkServer
from ..run.results import TRAININGS, TRIALS, Results
from .specification import TimedTraining, Training

LOCK = ".lock"
_TIME_LIMIT = 20.0 * SECONDS_A_DAY  # no limit in practice; a pipe waits for at most 24 days


class TrainingFailedError(RuntimeError):
    """A training that ended without times; the message is its status and error, in one line."""


@contextlib.contextmanager
def experiment(folder: Path, devices: Sequence[Device]) -> Iterator[Callable[[Training], tuple[TimedTraining, bool]]]:
    """Lock a results folder, and yield a function that trains on the first device, or on the CPUs if there is none. It
    returns a training's times, and whether an earlier run in this folder took them, or raises TrainingFailedError.

    Raise UserError if the folder holds a run's trials, or trainings from another stack."""
    results = Results(folder, LOCK)
    if (folder / TRIALS).is_file():
        raise UserError(f"{folder} holds a run's trials; name another folder with --out")
    variables = server_environment(devices)
    with results, ForkServer(results.logs / "server.log", variables) as server:
        described = environment.describe(devices, installed_packages(), SEED, {}, variables)

        def keep_environment() -> None:
            found = described.with_imports(server.imports) if server.imports is not None else described
            if any(folder.glob(TRAININGS)):
                environment.refuse_another(folder, found)
            environment.keep(found, folder)

        def train(what: Training) -> tuple[TimedTraining, bool]:
            path = folder / f"{what.id}.json"
            if path.is_file():
                return _read(path, what), True
            server.start()
            keep_environment()
            log = results.logs / f"{what.id}.log"
            arguments = {name: getattr(what, name) for name in ("scale", "images", "epochs")}
            arguments["folder"] = str(folder.resolve())
            cuda = bool(devices)
            job = Job("repro.measure.epochs:train", arguments, 1, log=str(log), timeout=_TIME_LIMIT, cuda=cuda)
            [outcome] = server.call(job)
            if outcome.status != "ok":
                reason = f"{outcome.status}, {outcome.error or 'no reason given'}"
                raise TrainingFailedError(f"{what.id}: {reason}; see {log}")
            trained = TimedTraining(what, **outcome.value, busy_cpus=outcome.busy_cpus)
            results.check()
            files.replace(path, json.dumps(asdict(trained)) + "\n")
            return trained, False

        keep_environment()
        yield train


def _read(path: Path, what: Training) -> TimedTraining:
    """Return a training saved by an earlier run. Raise UserError if its times cannot be those of `what`."""
    try:
        found = datafile.read(path, TimedTraining)
        if found.what != what:
            raise datafile.NotAsDeclaredError(f"they are of {found.what.id}")
        if {len(found.reading), len(found.training), len(found.seconds)} != {what.epochs} or min(found.seconds) <= 0:
            raise datafile.NotAsDeclaredError(f"it does not have the times of {what.epochs} epochs")
        return found
    except datafile.NotAsDeclaredError as error:
        raise UserError(f"{path}: not a training's times ({error}); remove the file") from None
