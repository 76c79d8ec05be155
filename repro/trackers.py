"""The far end of tracking: hears of trials on a socket, and logs them through the tracker's own library.

    python -m repro.trackers NAME FOLDER SOCKET

Every call of `repro run` is one run of the tracker, with all its trials, those of earlier calls in that folder, too.
What the libraries print goes to logs/tracker.log.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from . import environment, results
from .errors import one_line
from .formats import render

PROJECT = "repro"
_LABELS = ("recipe", "scale", "settings", "device", "count", "nodes", "status", "reason", "ran_precision", "compiled")
_METRICS = (
    "true_step",
    "authors_step",
    "synchronised_step",
    "authors_days",
    "true_days",
    "synchronised_days",
    "examples_per_second",
    "utilisation",
    "peak_memory",
    "micro_batch",
    "accumulation",
    "wall_seconds",
)

Row = dict[str, Any]


class Library(ABC):
    """A run in a tracker's library. Opening it may take seconds; `at` says what it tracks with, and where."""

    at: str

    @abstractmethod
    def trial(self, number: int, record: Row) -> None:
        """Logs a trial's record, the run's `number`th."""

    @abstractmethod
    def end(self, verdicts: Sequence[Row], report: Path) -> None:
        """Logs a verdict for each cell, and the report, a Markdown file."""

    @abstractmethod
    def finish(self) -> None:
        """Writes what is left to write."""


class WeightsAndBiases(Library):
    """Online where there is a key and a network, else offline, for `wandb sync`; WANDB_MODE overrules."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        import wandb

        self._wandb = wandb
        # System metrics and captured output would disturb what is measured.
        settings: Row = {"silent": True, "console": "off", "x_disable_stats": True, "init_timeout": 30}
        wanted: Any = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        for mode in dict.fromkeys((wanted, "offline")):
            try:
                self._run = wandb.init(
                    project=PROJECT, name=name, dir=str(folder), config=config, mode=mode,
                    settings=wandb.Settings(**settings),
                )  # fmt: skip
                break
            except Exception:
                if mode == "offline":
                    raise
        where = f"wandb, {mode}, in {folder / 'wandb'}"
        self.at = where + ("; wandb sync uploads it" if mode == "offline" else "")

    def trial(self, number: int, record: Row) -> None:
        self._run.log({"id": record["id"], **labels(record), **metrics(record)}, step=number)

    def end(self, verdicts: Sequence[Row], report: Path) -> None:
        columns: list[str | int] = list(verdicts[0])
        table = self._wandb.Table(columns=columns, data=[list(row.values()) for row in verdicts])
        self._run.log({"verdicts": table})
        self._run.summary.update(counts(verdicts))
        self._run.save(str(report), base_path=str(report.parent), policy="now")

    def finish(self) -> None:
        self._run.finish()


class TensorBoard(Library):
    """Event files: the rounds of each trial's step, its settings and metrics as hyper-parameters, texts."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        from torch.utils.tensorboard import SummaryWriter

        place = folder / "tensorboard"
        self._writer = SummaryWriter(str(place / name))
        self._writer.add_text("environment", f"```json\n{json.dumps(config, indent=1)}\n```")
        self.at = f"tensorboard, in {place}; tensorboard --logdir shows it"

    def trial(self, number: int, record: Row) -> None:
        for round, seconds in enumerate(record["step_rounds"]):
            self._writer.add_scalar(f"step_seconds/{record['id']}", seconds, round)
        self._writer.add_hparams(labels(record), metrics(record), run_name=record["id"].replace("/", "_"))

    def end(self, verdicts: Sequence[Row], report: Path) -> None:
        for word, count in counts(verdicts).items():
            self._writer.add_scalar(word, count)
        self._writer.add_text("verdicts", render(verdicts, "markdown"))
        self._writer.add_text("report", report.read_text(encoding="utf-8"))

    def finish(self) -> None:
        self._writer.close()


class Trackio(Library):
    """A database in the results folder, or wherever TRACKIO_DIR, TRACKIO_SPACE_ID or TRACKIO_SERVER_URL say."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        place = os.environ.setdefault("TRACKIO_DIR", str(folder / "trackio"))  # read when it is imported
        import trackio

        self._trackio = trackio
        trackio.init(project=PROJECT, name=name, config=config, embed=False, auto_log_gpu=False, auto_log_cpu=False)
        self.at = f"trackio, in {place}; TRACKIO_DIR={place} trackio show --project {PROJECT} shows it"

    def trial(self, number: int, record: Row) -> None:
        self._trackio.log({"id": record["id"], **labels(record), **metrics(record)}, step=number)

    def end(self, verdicts: Sequence[Row], report: Path) -> None:
        texts = {"verdicts": render(verdicts, "markdown"), "report": report.read_text(encoding="utf-8")}
        self._trackio.log({**counts(verdicts), **{name: self._trackio.Markdown(text) for name, text in texts.items()}})

    def finish(self) -> None:
        self._trackio.finish()


LIBRARIES: dict[str, Callable[[Path, str, Row], Library]] = {
    "wandb": WeightsAndBiases,
    "tensorboard": TensorBoard,
    "trackio": Trackio,
}


def labels(record: Row) -> Row:
    """What a trial was, and what became of it."""
    return {name: record[name] for name in _LABELS if record[name] != ""}


def metrics(record: Row) -> Row:
    """What was measured of it."""
    return {name: record[name] for name in _METRICS if record[name] is not None}


def counts(verdicts: Sequence[Row]) -> dict[str, int]:
    """How many cells have each verdict."""
    return {f"cells/{word}": count for word, count in Counter(row["verdict"] for row in verdicts).items()}


def serve(name: str, folder: Path, stream: socket.socket) -> None:
    """Logs what comes until the stream ends, then answers where it is, or what went wrong, in a line of JSON."""
    try:
        config = json.loads((folder / environment.FILE).read_text())
        library = LIBRARIES[name](folder, f"{folder.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}", config)
        number = 0
        for line in stream.makefile("r"):
            message = json.loads(line)
            if "trial" in message:
                library.trial(number, message["trial"])
                number += 1
            else:
                library.end(json.loads((folder / results.VERDICTS).read_text()), folder / results.REPORT)
        library.finish()
        answer = {"at": library.at}
    except BaseException as error:
        stream.sendall(json.dumps({"error": one_line(error)}).encode() + b"\n")
        raise
    stream.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), socket.socket(fileno=int(sys.argv[3])))
