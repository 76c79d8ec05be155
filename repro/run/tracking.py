"""Tracking with TensorBoard or Weights & Biases: of the trials in a folder, or of a training's steps."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import files
from ..console import INSTALLED, UserError, one_line, say
from ..formats import render
from ..installation import way_to_install

NONE = "none"

Row = dict[str, Any]


class WeightsAndBiases:
    """A run of wandb: online with a key and a network, else offline, for `wandb sync`. WANDB_MODE takes precedence."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        import wandb

        def start(mode: Any) -> None:
            # System metrics and captured output would disturb a training.
            settings = wandb.Settings(silent=True, console="off", x_disable_stats=True, init_timeout=30)
            self._run = wandb.init(
                project="repro", name=name, dir=str(folder), config=config, mode=mode, settings=settings
            )
            uploads = "; wandb sync uploads it" if mode == "offline" else ""
            self.at = f"wandb, {mode}, in {folder / 'wandb'}{uploads}"

        self._wandb = wandb
        try:
            start(os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline"))
        except Exception:
            start("offline")

    def log(self, number: int, values: Row) -> None:
        """Log the values of a training's `number`th step."""
        self._run.log(values, step=number)

    def trial(self, number: int, record: Row) -> None:
        """Log the `number`th record of a folder, as in a file, but for its lists."""
        self.log(number, _scalars(record))

    def end(self, verdicts: Sequence[Row], report: str) -> None:
        """Log a verdict for each cell, and the report in Markdown."""
        table = self._wandb.Table(columns=list(verdicts[0]), data=[list(row.values()) for row in verdicts])
        self._run.log({"verdicts": table})
        self._run.summary.update(_counts(verdicts))
        file = Path(self._run.dir, "report.md")
        file.write_text(report, encoding="utf-8")
        self._run.save(str(file), base_path=self._run.dir, policy="now")

    def finish(self) -> None:
        """Write all remaining data."""
        self._run.finish()


class TensorBoard:
    """Event files: the rounds of each trial's step, its settings and metrics as hyper-parameters, texts. It has the
    methods of WeightsAndBiases."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = folder / "tensorboard"
        self._writer = SummaryWriter(str(place / name))
        self._writer.add_text("environment", f"```json\n{json.dumps(config, indent=1)}\n```")
        self.at = f"tensorboard, in {place}; tensorboard --logdir shows it"

    def log(self, number: int, values: Row) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def trial(self, number: int, record: Row) -> None:
        for round, seconds in enumerate(record["step_rounds"]):
            self.log(round, {f"step_seconds/{record['id']}": seconds})
        scalars = _scalars(record)
        measured = {name: value for name, value in scalars.items() if isinstance(value, float)}
        chosen = {name: value for name, value in scalars.items() if name not in measured}
        self._writer.add_hparams(chosen, measured, run_name=record["id"].replace("/", "_"))

    def end(self, verdicts: Sequence[Row], report: str) -> None:
        self.log(0, _counts(verdicts))
        self._writer.add_text("verdicts", render(verdicts, "markdown"))
        self._writer.add_text("report", report)

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
    """A training's log of its steps. A tracker that fails costs a warning: the training goes on. With the name `none`
    it does nothing. A context manager: leaving it writes all remaining data."""

    def __init__(self, name: str, folder: Path, config: Row) -> None:
        self._name, self._tracker = name, None
        if name != NONE:
            with self._warning():
                self._tracker = tracker(name, folder, config)

    def __enter__(self) -> StepLog:
        return self

    def __exit__(self, *_: object) -> None:
        with self._warning():
            if self._tracker is not None:
                self._tracker.finish()
                say(f"tracked with {self._tracker.at}")

    def log(self, number: int, **values: float) -> None:
        """Log what a step came to."""
        with self._warning():
            if self._tracker is not None:
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


def _scalars(record: Row) -> Row:
    return {name: value for name, value in record.items() if value != "" and isinstance(value, str | int | float)}


def _counts(verdicts: Sequence[Row]) -> dict[str, int]:
    """Return the number of cells with each verdict."""
    return {f"cells/{word}": count for word, count in Counter(row["verdict"] for row in verdicts).items()}
