"""Tracking with TensorBoard or Weights & Biases: of the trials in a folder, or of a training's steps."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import files
from ..console import INSTALLED, UserError, one_line, say
from ..installation import way_to_install

NONE = "none"

Row = dict[str, Any]


class WeightsAndBiases:
    """A run of wandb: online with a key and a network, else offline. WANDB_MODE takes precedence."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        import wandb

        # System metrics and captured output would disturb a training.
        settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, init_timeout=30)
        given: Row = {"project": "repro", "name": name, "dir": str(folder), "config": config, "settings": settings}
        try:
            mode: Any = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
            self._run = wandb.init(mode=mode, **given)
        except Exception:
            self._run = wandb.init(mode="offline", **given)
        self.at = f"wandb, in {folder / 'wandb'}; wandb sync uploads what is offline"

    def log(self, number: int, values: Row) -> None:
        """Log numbers and words of a training's `number`th step, or a folder's `number`th trial."""
        self._run.log(values, step=number)

    trial = log

    def text(self, name: str, text: str) -> None:
        """Log a text in Markdown."""
        file = Path(self._run.dir, f"{name}.md")
        file.write_text(text, encoding="utf-8")
        self._run.save(str(file), base_path=self._run.dir, policy="now")

    def finish(self) -> None:
        """Write all remaining data."""
        self._run.finish()


class TensorBoard:
    """Event files, with a trial's settings and results as hyper-parameters and metrics. It has the methods of
    WeightsAndBiases."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = folder / "tensorboard"
        self._writer = SummaryWriter(str(place / name))
        self.text("environment", f"```json\n{json.dumps(config, indent=1)}\n```")
        self.at = f"tensorboard, in {place}; tensorboard --logdir shows it"

    def log(self, number: int, values: Row) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def trial(self, number: int, values: Row) -> None:
        measured = {name: value for name, value in values.items() if isinstance(value, float)}
        chosen = {name: value for name, value in values.items() if name not in measured}
        self._writer.add_hparams(chosen, measured, run_name=values["id"].replace("/", "_"))

    def text(self, name: str, text: str) -> None:
        self._writer.add_text(name, text)

    def finish(self) -> None:
        self._writer.close()


Tracker = WeightsAndBiases | TensorBoard
TRACKERS: dict[str, type[Tracker]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases}


def tracker(name: str, folder: Path, config: Row) -> Tracker:
    """Return a new run of this tracker, whose data is in the folder. Raise UserError where it cannot be."""
    if find_spec(name) is None:
        way = way_to_install("tracking") if INSTALLED else "./run_all.sh --with-tracking installs it"
        raise UserError(f"the package {name} is not installed ({way})")
    files.inside(folder, name)  # each tracker writes to a folder of its name
    return TRACKERS[name](folder, f"{folder.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}", config)


class StepLog:
    """A training's log of its steps; with the name `none` of nothing. A tracker that fails costs a warning: the
    training goes on. A context manager: leaving it writes all remaining data."""

    def __init__(self, name: str, folder: Path, config: Row) -> None:
        self._name, self._tracker = name, None
        if name != NONE:
            with self._warning():
                self._tracker = tracker(name, folder, config)

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tracker is not None:
            with self._warning():
                self._tracker.finish()
                say(f"tracked with {self._tracker.at}")

    def log(self, number: int, **values: float) -> None:
        """Log what a step came to."""
        if self._tracker is not None:
            with self._warning():
                self._tracker.log(number, values)

    @contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._tracker = None
            say(f"warning: --track {self._name}: {failure(error)}; the training goes on untracked")


def failure(error: Exception) -> str:
    """Describe in a line why a tracker failed."""
    return str(error) if isinstance(error, UserError) else one_line(error)
