"""Keep what commands that read print, as files of tests/golden/, which tests/test_goldens.py compares byte for byte.

    .venv/cpu/bin/python -m tests.goldens

renews the files; refused.txt has what commands are refused with. `git diff tests/golden` then shows what a
change altered. Numbers have nine digits there: those after them are of the C library and of the order of a sum.
"""

from __future__ import annotations

import re
import shlex
import tempfile
from datetime import date
from pathlib import Path

import pytest

from repro.commands import cost
from tests.support.command_line import ROOT, on_a_screen, refusal

FOLDER = ROOT / "tests" / "golden"
REFUSED = FOLDER / "refused.txt"  # what commands are refused with: add one as `$ COMMAND`
_TEXT, _VISION, _CPU = "results/h100/text", "results/h100/vision", "results/cpu-2-cores"
_UPGRADE = "results/upgrade-transformers-4.57"
# What people see of them, on a terminal of 100 columns: tests/commands/test_screen.py holds that it fits one screen.
SCREENS = [
    *(f"table {number}" for number in "134567j"),
    *(f"table {number} --by {by}" for number in "14" for by in ("true", "authors")),
    *("table 1 --by true --methods modern", "table 1 --by true --stack today"),
    *(f"table {number} --measured {_TEXT}" for number in "34j"),
    *(f"table {number} --by true --measured {_TEXT}" for number in "14"),
    f"table 1 --measured {_TEXT} --measured {_VISION}",
    *("audit", "audit --stack today", f"audit --measured {_TEXT}"),
    *("claims", "claims mean-speedup", "claims comment-electricity", "claims four-h100-days"),
    *(f"claims --measured {_TEXT}", f"claims --measured {_TEXT} --by authors"),
    *("predict", "predict --stack today", "predict --methods modern", "predict --validate"),
    *("predict --gpu H100", "predict --gpu H100 --models pythia-1b --methods modern"),
    *(f"predict --models {models} --gpu 'RTX 3090' --gpus 2" for models in ("pythia-1b", "pythia-1b,vit")),
    "predict --gpu docs/own-gpu.toml --gpus 4 --models pythia-410m --methods free-lunch",
    "predict --gpu docs/own-gpu.toml --models pythia-6.9b",
    "predict --gpu A100 --gpus 8 --nodes 2 --network 25Gb/s --models pythia-1b --methods free-lunch",
    *(f"predict --gpu H100 {more}--measured {_TEXT}" for more in ("", "--gpus 4 --models pythia-1b ")),
    f"predict --measured {_TEXT}",
    *("cost", "cost --hours 100..200 --resale 2000 --co2 400"),
    "cost --machine 200000 --rent 25 --hours 700..800 --pue 1.2 --co2 400",
    *(f"cost pythia-1b --terms {terms}" for terms in ("own", "rent", "either")),
    *("cost pythia-1b --budget 40000", "cost pythia-1b --by printed"),
    *("cost vit --terms either --deadline 60d --gpu H100", "cost mamba --gpu H100"),
    "cost pythia-410m --gpu docs/own-gpu.toml --budget 20000",
    *(f"compare {_UPGRADE}/before {_UPGRADE}/{other}" for other in ("after", "again")),
    *(f"compare {folder} {folder}" for folder in (_TEXT, _CPU)),
    *("survey --questions", "survey --train", "survey --train --by printed"),
    *(f"list {what}" for what in ("recipes", "gpus", "settings")),
    *("verify --budget 20", "verify --minutes 30 --gpu A100", f"verify {_TEXT}"),
]
_ROWS = [
    *(f"table {number}" for number in "134567j"),
    *("table 1 --by true", "table 4 --by true", "table 1 --by authors", f"table 1 --measured {_CPU}"),
    *(f"table {name} --measured {_TEXT}" for name in "1j"),
    *("audit", f"audit --measured {_TEXT}", "claims", f"claims --measured {_TEXT}"),
    *("predict --models pythia-1b --gpu H100 --gpus 4", "predict --validate", f"predict --measured {_TEXT} --gpu H100"),
    *("cost", "cost pythia-1b --budget 20000", "cost mamba --gpu H100 --stack paper --electricity 0.2"),
    *(f"list {what}" for what in ("settings", "gpus", "recipes")),
    f"compare {_UPGRADE}/before {_UPGRADE}/after",
]
COMMANDS = [
    *SCREENS,
    *(f"{line} --format csv" for line in _ROWS),
    *(f"{line} --format json" for line in ("table 3", "table 6", "predict --models pythia-1b --gpu H100 --gpus 4")),
    *(f"{line} --format json" for line in ("cost pythia-1b --budget 20000", "list settings", "claims mean-speedup")),
    *(f"{line} --format markdown" for line in ("table 3", "audit", "cost pythia-1b --budget 20000")),
    *("table 1 --format latex", "audit --all"),
    *("report --out OUT --format markdown", f"report {_TEXT} {_VISION} --out OUT --format markdown"),
    *(f"{name} --help" for name in ("run", "predict", "cost", "report", "compare", "lab", "audit", "export")),
]
_STDERR = "--- stderr\n"
_LONG = re.compile(r"\d+\.\d{7,}(e-?\d+)?")


def golden(command: str) -> Path:
    """Return the file of a command's output."""
    return FOLDER / (re.sub(r"[^\w.+-]+", "_", command) + ".txt")


def output(command: str) -> str:
    """Return the exit code of a command, stdout and stderr, on a fixed day and a terminal of 100 columns."""

    class Day(date):
        @classmethod
        def today(cls) -> Day:
            return cls(2026, 11, 29)

    with tempfile.TemporaryDirectory() as out, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "date", Day)
        done = on_a_screen(100, *shlex.split(command.replace("OUT", out)))
    text = f"exit {done.returncode}\n{done.stdout}{_STDERR}{done.stderr}"
    return _LONG.sub(lambda number: f"{float(number[0]):.9g}", text.replace(out, "OUT").replace(str(ROOT), "ROOT"))


def printed(command: str) -> str:
    """Return what a command's golden file has of stdout."""
    return golden(command).read_text().partition(_STDERR)[0].partition("\n")[2]


def refusals() -> str:
    """Return the commands of tests/golden/refused.txt, each with the one line that refuses it."""
    found = []
    for command in re.findall(r"(?m)^\$ (.*)$", REFUSED.read_text()):
        with tempfile.TemporaryDirectory() as folder:
            out = f"{folder}/out"
            line = refusal(*shlex.split(command.replace("OUT", out)), CUDA_VISIBLE_DEVICES="")
            assert not Path(out).exists(), f"{command}: it made a folder"
        found.append(f"$ {command}\n{line.replace(out, 'OUT').replace(str(ROOT), 'ROOT')}")
    return "".join(found)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    REFUSED.write_text(refusals())
    for gone in {*FOLDER.iterdir()} - {REFUSED, *(golden(command) for command in COMMANDS)}:
        gone.unlink()
    for command in COMMANDS:
        golden(command).write_text(output(command))
