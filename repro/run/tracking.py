"""Tracking of a run with Weights & Biases, TensorBoard or Trackio, without effect on its results.

    python -m repro.run.tracking NAME FOLDER SOCKET

starts the tracker process, which loads the tracker's library and receives a description of the run, and each trial
after its record is on disk, or each step of a training. If it fails, the run prints a one-line warning and goes on.
Every call of `repro run` is one run of the tracker, with all trials of the folder, and so is every start of an exported
train.py. The output of the libraries goes to logs/tracker.log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from .. import datafile, files
from ..console import INSTALLED, one_line, say
from ..formats import end_of, render
from ..installation import way_to_install
from ..machine import environment
from ..record import Record
from . import results

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
    """A run in a tracker's library. Opening it may take seconds. `at` describes the tracker and where its data is."""

    at: str

    @abstractmethod
    def trial(self, number: int, record: Row) -> None:
        """Log a trial's record, the run's `number`th."""

    @abstractmethod
    def step(self, number: int, values: Row) -> None:
        """Log the values of a training's `number`th step."""

    @abstractmethod
    def end(self, verdicts: Sequence[Row], report: Path) -> None:
        """Log a verdict for each cell, and the report, a Markdown file."""

    @abstractmethod
    def finish(self) -> None:
        """Write all remaining data."""


class WeightsAndBiases(Library):
    """A run of wandb: online with a key and a network, else offline, for `wandb sync`. WANDB_MODE takes precedence."""

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

    def step(self, number: int, values: Row) -> None:
        self._run.log(values, step=number)

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

    def step(self, number: int, values: Row) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)

    def end(self, verdicts: Sequence[Row], report: Path) -> None:
        for word, count in counts(verdicts).items():
            self._writer.add_scalar(word, count)
        self._writer.add_text("verdicts", render(verdicts, "markdown"))
        self._writer.add_text("report", report.read_text(encoding="utf-8"))

    def finish(self) -> None:
        self._writer.close()


class Trackio(Library):
    """A database in the results folder, or as TRACKIO_DIR, TRACKIO_SPACE_ID or TRACKIO_SERVER_URL set."""

    def __init__(self, folder: Path, name: str, config: Row) -> None:
        place = os.environ.setdefault("TRACKIO_DIR", str(folder / "trackio"))  # trackio reads it on import
        import trackio

        self._trackio = trackio
        trackio.init(project=PROJECT, name=name, config=config, embed=False, auto_log_gpu=False, auto_log_cpu=False)
        self.at = f"trackio, in {place}; TRACKIO_DIR={place} trackio show --project {PROJECT} shows it"

    def trial(self, number: int, record: Row) -> None:
        self._trackio.log({"id": record["id"], **labels(record), **metrics(record)}, step=number)

    def step(self, number: int, values: Row) -> None:
        self._trackio.log(values, step=number)

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
    """Return the description and status of a trial."""
    return {name: record[name] for name in _LABELS if record[name] != ""}


def metrics(record: Row) -> Row:
    """Return the measured values of a trial."""
    return {name: record[name] for name in _METRICS if record[name] is not None}


def counts(verdicts: Sequence[Row]) -> dict[str, int]:
    """Return the number of cells with each verdict."""
    return {f"cells/{word}": count for word, count in Counter(row["verdict"] for row in verdicts).items()}


def serve(name: str, folder: Path, stream: socket.socket) -> None:
    """Log all messages until the stream ends, then answer in a line of JSON: where the data is, or an error."""
    try:
        messages = map(json.loads, stream.makefile("r"))
        described = next(messages)["described"] or json.loads((folder / environment.FILE).read_text())
        library = LIBRARIES[name](folder, f"{folder.resolve().name}-{time.strftime('%Y%m%d-%H%M%S')}", described)
        number = 0
        for message in messages:
            if "trial" in message:
                library.trial(number, message["trial"])
                number += 1
            elif "step" in message:
                library.step(message["step"], message["values"])
            else:
                library.end(json.loads((folder / results.VERDICTS).read_text()), folder / results.REPORT)
        library.finish()
        answer = {"at": library.at}
    except BaseException as error:
        stream.sendall(json.dumps({"error": one_line(error)}).encode() + b"\n")
        raise
    stream.sendall(json.dumps(answer).encode() + b"\n")


Name = Literal["wandb", "tensorboard", "trackio", "none"]
NAMES: tuple[Name, ...] = get_args(Name)
_PATIENCE = 120.0  # seconds


class Tracker:
    """The run's connection to the tracker process. A context manager: leaving it waits for the tracker to finish, at
    most `_PATIENCE`, as does each message to it. With the name `none`, and after a failure, it does nothing.
    `described` is what the tracker shows of the run, by default the folder's environment.json."""

    def __init__(self, name: Name, folder: Path, described: Row | None = None) -> None:
        self._name, self._folder, self._described = name, folder, described
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Tracker:
        if self._name == "none":
            return self
        if find_spec(self._name) is None:
            way = "pip install it" if self._name == "trackio" else "./run_all.sh --with-tracking installs it"
            if INSTALLED and self._name != "trackio":
                way = way_to_install("tracking")
            self._give_up(f"the package {self._name} is not installed ({way})")
            return self
        files.inside(self._folder, self._name)  # each tracker writes to a folder of its name
        self._near, far = socket.socketpair()
        self._near.settimeout(_PATIENCE)
        with open(files.open_to_append(self._folder, "logs/tracker.log"), "ab") as log, far:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "repro.run.tracking", self._name, str(self._folder), str(far.fileno())],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # protects it from Ctrl-C, so that it receives the run's last messages
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self._send({"described": self._described})
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_WR)
        try:
            answer = self._answer()
            self._process.wait(_PATIENCE)
        except (TimeoutError, subprocess.TimeoutExpired):
            self._give_up(f"it did not finish within {_PATIENCE:g} s")
            return
        except KeyboardInterrupt:  # an interrupted run leaves no process behind
            self._give_up("interrupted before it had finished")
            raise
        if "at" in answer:
            self._near.close()
            say(f"tracked with {answer['at']}")
        else:
            self._give_up(answer.get("error") or f"its process {end_of(self._process.returncode)}")

    def trial(self, record: Record) -> None:
        """Send a trial whose record is on disk."""
        self._send({"trial": datafile.to_json(record.as_published)})

    def step(self, number: int, **values: float) -> None:
        """Send what a step of a training came to."""
        self._send({"step": number, "values": values})

    def end(self) -> None:
        """Announce that the run's verdicts.json and report.md are on disk."""
        self._send({"end": True})

    def _send(self, message: dict[str, Any]) -> None:
        if self._process is None:
            return
        try:
            self._near.sendall(json.dumps(message).encode() + b"\n")
        except TimeoutError:
            self._give_up(f"it did not listen for {_PATIENCE:g} s")
        except OSError:  # it has ended
            answer = self._answer()
            self._give_up(answer.get("error") or f"its process {end_of(self._process.wait())}")

    def _answer(self) -> dict[str, str]:
        """Return the tracker's answer: `at`, the tracker and where its data is, or `error`; empty if there was none."""
        line = b""
        with contextlib.suppress(ConnectionError):
            while chunk := self._near.recv(1 << 16):
                line += chunk
        return json.loads(line) if line.endswith(b"\n") else {}

    def _give_up(self, reason: str) -> None:
        """Print a warning, and kill the tracker and all processes that it started."""
        log = "" if self._process is None else f"; see {self._folder / 'logs' / 'tracker.log'}"
        say(f"warning: --track {self._name}: {reason}; the run goes on untracked{log}")
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._near.close()
            self._process = None


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]), socket.socket(fileno=int(sys.argv[3])))
