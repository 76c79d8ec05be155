"""What tests of commands share: the command line as people call it, and a results folder with given records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import models
from repro.recipe import Scale
from repro.results import Results
from repro.settings import Settings
from repro.trial import Record, Status, Trial

ROOT = Path(__file__).resolve().parent.parent


def repro(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m repro` with these arguments."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-m", "repro", *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


def answer(*arguments: str) -> Any:
    """What a command answers as JSON."""
    done = repro(*arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refusal(*arguments: str) -> str:
    """The one line with which a command refuses bad input."""
    done = repro(*arguments)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr.strip()


def record(
    model: str,
    settings: str,
    days: float | None,
    gpu: str = "A100",
    count: int = 4,
    status: Status = "ok",
    scale: Scale = "paper",
    **known: Any,
) -> Record:
    """The record of a trial that took `days` by both clocks, unless `known` says otherwise."""
    if days is not None:
        step = days * 86_400 / models.find(model, scale).training_steps
        known = {
            "authors_step": step,
            "true_step": step,
            "step_rounds": [step] * 3,
            "authors_days": days,
            "true_days": days,
            "micro_batch": 4,
            "accumulation": models.find(model, scale).batch_size // 4 // count,
            **known,
        }
    return Record.of(Trial(model, scale, Settings.parse(settings).id, gpu, count), status, **known)


def results_folder(folder: Path, *records: Record) -> Path:
    """A results folder that holds these records."""
    with Results(folder) as results:
        for each in records:
            results.append(each)
    return folder
