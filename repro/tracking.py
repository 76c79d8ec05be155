"""Tracking a run with Weights & Biases, TensorBoard or Trackio, at no cost to its results.

The tracker's library lives in a process of its own (see repro/trackers.py), which is told of each trial after its
record is on disk. Whatever becomes of that process, the run goes on, with one line of warning.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from . import files
from .stderr import say
from .trial import Record

Name = Literal["wandb", "tensorboard", "trackio", "none"]
NAMES: tuple[Name, ...] = get_args(Name)


class Tracker:
    """Tells a tracker of a run in `folder`. A context manager: leaving it waits for the tracker to finish, `patience`
    seconds at most, as does every word to it. With the name `none`, and once it has failed, it does nothing."""

    def __init__(self, name: Name, folder: Path, patience: float = 120.0) -> None:
        self._name, self._folder, self._patience = name, folder, patience
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Tracker:
        if self._name == "none":
            return self
        if find_spec(self._name) is None:
            way = "pip install it" if self._name == "trackio" else "./run_all.sh --with-tracking installs it"
            self._give_up(f"the package {self._name} is not installed ({way})")
            return self
        files.inside(self._folder, self._name)  # each tracker keeps what it is told in a folder of its name
        self._near, far = socket.socketpair()
        self._near.settimeout(self._patience)
        with open(files.open_to_append(self._folder, "logs/tracker.log"), "ab") as log, far:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "repro.trackers", self._name, str(self._folder), str(far.fileno())],
                pass_fds=[far.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is not for it: what the run tells at its end still gets there
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            self._near.shutdown(socket.SHUT_WR)
        try:
            told = self._answer()
            self._process.wait(self._patience)
        except (TimeoutError, subprocess.TimeoutExpired):
            self._give_up(f"it did not finish within {self._patience:g} s")
            return
        except KeyboardInterrupt:  # who stops a run leaves no process
            self._give_up("interrupted before it had finished")
            raise
        if "at" in told:
            self._near.close()
            say(f"tracked with {told['at']}")
        else:
            self._give_up(told.get("error") or _end(self._process.returncode))

    def trial(self, record: Record) -> None:
        """A trial's record is on disk."""
        self._send({"trial": asdict(record.as_told)})

    def end(self) -> None:
        """The run's verdicts.json and report.md are on disk."""
        self._send({"end": True})

    def _send(self, message: dict[str, Any]) -> None:
        if self._process is None:
            return
        try:
            self._near.sendall(json.dumps(message).encode() + b"\n")
        except TimeoutError:
            self._give_up(f"it did not listen for {self._patience:g} s")
        except OSError:  # it has ended
            told = self._answer()
            self._give_up(told.get("error") or _end(self._process.wait()))

    def _answer(self) -> dict[str, str]:
        """The tracker's last word, where it had one: `at`, what it tracked with and where, or an `error`."""
        line = b""
        with contextlib.suppress(ConnectionError):
            while chunk := self._near.recv(1 << 16):
                line += chunk
        return json.loads(line) if line.endswith(b"\n") else {}

    def _give_up(self, reason: str) -> None:
        """Warns, and ends the tracker with all that it started."""
        log = "" if self._process is None else f"; see {self._folder / 'logs' / 'tracker.log'}"
        say(f"warning: --track {self._name}: {reason}; the run goes on untracked{log}")
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._near.close()
            self._process = None


def _end(code: int) -> str:
    return f"its process was killed by signal {-code}" if code < 0 else f"its process ended with exit code {code}"
