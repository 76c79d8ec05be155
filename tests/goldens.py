"""Keep what commands that read print, as files of tests/golden/, which tests/test_goldens.py compares byte for byte.

    .venv/cpu/bin/python -m tests.goldens

renews the files; `git diff tests/golden` then shows what a change altered. Numbers have nine digits there: those after
them are of the C library and of the order of a sum.
"""

from __future__ import annotations

import re
import tempfile
from datetime import date
from pathlib import Path

import pytest

from repro.commands import cost
from tests.command_line import ROOT, repro

FOLDER = ROOT / "tests" / "golden"
_TEXT, _VISION, _CPU = "results/h100/text", "results/h100/vision", "results/cpu-2-cores"
_UPGRADE = "results/upgrade-transformers-4.57"
_TABLES = [
    *(f"table {number}" for number in "134567j"),
    *("table 1 --by true", "table 4 --by true", "table 1 --by authors", f"table 1 --measured {_CPU}"),
    *(f"table {name} --measured {_TEXT}" for name in "1j"),
    *("audit", f"audit --measured {_TEXT}", "claims", f"claims --measured {_TEXT}"),
    *("predict --models pythia-1b --gpu H100 --gpus 4", "predict --validate", f"predict --measured {_TEXT} --gpu H100"),
    *("cost", "cost pythia-1b --budget 20000", "cost pythia-1b --terms either --deadline 30d"),
    *("cost pythia-1b --by printed", "cost mamba --gpu H100 --stack paper --electricity 0.2"),
    *(f"list {what}" for what in ("settings", "gpus", "recipes")),
    f"compare {_UPGRADE}/before {_UPGRADE}/after",
]
# What stands in no CSV, or is an arrangement of the same values.
_OTHERS = [
    *(f"{line} --format json" for line in ("table 3", "table 6", "predict --models pythia-1b --gpu H100 --gpus 4")),
    *(f"{line} --format json" for line in ("cost pythia-1b --budget 20000", "list settings", "claims mean-speedup")),
    *(f"{line} --format markdown" for line in ("table 3", "audit", "cost pythia-1b --budget 20000")),
    *(f"claims {claim}" for claim in ("four-h100-days", "lab-rate-t4-20-epochs", "comment-electricity")),
    *("table 1 --by true --methods modern", "table 1 --by true --stack today"),
    f"claims --measured {_TEXT} --by authors",
    *("predict --methods modern", "predict --gpu docs/own-gpu.toml --models pythia-6.9b"),
    "predict --gpu A100 --gpus 8 --nodes 2 --network 25Gb/s --models pythia-1b --methods free-lunch",
    *("cost --hours 100..200 --resale 2000 --co2 400", "cost vit --terms either --deadline 60d --gpu H100"),
    *(f"compare {_CPU} {_CPU}", f"compare {_UPGRADE}/before {_UPGRADE}/again"),
    *("survey --questions", "survey --train", f"table 1 --measured {_TEXT} --measured {_VISION}"),
    *("report --out OUT --format markdown", f"report {_TEXT} {_VISION} --out OUT --format markdown"),
    *(f"{name} --help" for name in ("run", "predict", "cost", "report", "compare", "lab", "audit", "export")),
]
COMMANDS = [f"{line} --format {kind}" for line in _TABLES for kind in ("csv", "text")] + _OTHERS
_LONG = re.compile(r"\d+\.\d{7,}(e-?\d+)?")


def golden(command: str) -> Path:
    """Return the file of a command's output."""
    return FOLDER / (re.sub(r"[^\w.+-]+", "_", command) + ".txt")


def output(command: str) -> str:
    """Return the exit code of a command, stdout and stderr, on a fixed day and 100 columns."""

    class Day(date):
        @classmethod
        def today(cls) -> Day:
            return cls(2026, 11, 29)

    with tempfile.TemporaryDirectory() as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "date", Day)
        done = repro(*command.replace("OUT", out).split(), COLUMNS="100")
    text = f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return _LONG.sub(lambda number: f"{float(number[0]):.9g}", text.replace(out, "OUT").replace(str(ROOT), "ROOT"))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for gone in {*FOLDER.iterdir()} - {golden(command) for command in COMMANDS}:
        gone.unlink()
    for command in COMMANDS:
        golden(command).write_text(output(command))
