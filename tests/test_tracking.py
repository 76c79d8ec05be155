"""Tracking a run: trials, verdicts and report through the tracker's own library, and never at a result's cost."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from repro.models.recipe import Scale
from repro.run import tracking
from repro.run.reading import history
from repro.run.tracking import NAMES, Tracker
from tests.command_line import ROOT, process, record, refusal, results_folder, started, stderr_of

pytestmark = pytest.mark.slow

RUN = ["--models", "vit", "--methods", "naive", "--processes", "1"]
EARLIER = ROOT / "results" / "cpu-2-cores"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run without a tracker: what is measured there is what later runs of a copy tell theirs."""
    folder = tmp_path_factory.mktemp("tracking") / "measured"
    found = process(*RUN, "--out", str(folder), CUDA_VISIBLE_DEVICES="")
    assert found.returncode == 0, found.stderr
    assert not {"wandb", "tensorboard", "trackio"} & {path.name for path in folder.iterdir()}
    return folder


def tracked(name: str, measured: Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The same run again in a copy of that folder, with a tracker."""
    shutil.copytree(measured, folder, dirs_exist_ok=True)
    variables = {"CUDA_VISIBLE_DEVICES": "", "WANDB_API_KEY": "", "HOME": str(folder.parent), **variables}
    return process(*RUN, "--out", str(folder), "--track", name, cwd=ROOT, **variables)


# --- What the trackers got ---


def test_wandb_gets_trials_verdicts_and_report_offline(measured: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    folder = tmp_path / "out"
    found = tracked("wandb", measured, folder)
    assert found.returncode == 0, found.stderr
    assert "repro: tracked with wandb, offline, in " in found.stderr
    assert "wandb sync" in found.stderr
    assert "wandb" not in found.stdout

    [run] = (folder / "wandb").glob("offline-run-*")
    [record] = history(measured)
    logged, summary = _wandb_records(next(run.glob("run-*.wandb")))
    trial = next(row for row in logged if row.get("id") == record.id)
    assert trial["status"] == "ok"
    assert trial["true_step"] == pytest.approx(record.derived.true_step)
    assert summary["cells/not_measured"] == 288
    [table] = (run / "files" / "media" / "table").glob("verdicts*.json")
    assert len(json.loads(table.read_text())["data"]) == 288
    assert (run / "files" / "report.md").read_text() == (folder / "report.md").read_text()


def _wandb_records(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of history, and the summary, that an offline run's file holds."""
    from wandb.proto import wandb_internal_pb2

    messages: Any = wandb_internal_pb2  # made at run time

    def values(items: Any) -> dict[str, Any]:
        return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}

    history, summary = [], {}
    for data in _log_records(path.read_bytes()):
        record = messages.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            history.append(values(record.history.item))
        if record.WhichOneof("record_type") == "summary":
            summary.update(values(record.summary.update))
    return history, summary


def _log_records(data: bytes) -> Iterator[bytes]:
    """LevelDB's log format behind wandb's 7 bytes: blocks of 32 KiB, in them parts of records, each behind a checksum
    (4 bytes), a length (2) and whether it is a whole record or the first, a middle or the last part of one (1)."""
    place, record = 7, b""
    while place < len(data):
        if (left := 2**15 - place % 2**15) < 7:
            place += left
            continue
        length, part = struct.unpack("<HB", data[place + 4 : place + 7])
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if part in (1, 4):
            yield record
            record = b""


def test_tensorboard_gets_trials_verdicts_and_report(measured: Path, tmp_path: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    folder = tmp_path / "out"
    found = tracked("tensorboard", measured, folder)
    assert found.returncode == 0, found.stderr
    assert "repro: tracked with tensorboard, in " in found.stderr

    [place] = (folder / "tensorboard").iterdir()
    [record] = history(measured)
    events = accumulator.EventAccumulator(str(place)).Reload()
    rounds = events.Scalars(f"step_seconds/{record.id}")
    assert [event.value for event in rounds] == pytest.approx(record.derived.step_rounds)
    assert events.Scalars("cells/not_measured")[0].value == 288
    texts = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}
    assert texts["report/text_summary"] == (folder / "report.md").read_text()
    assert texts["verdicts/text_summary"].count("\n") >= 288
    [trial] = (path for path in place.iterdir() if path.is_dir())
    metrics = accumulator.EventAccumulator(str(trial)).Reload()
    assert metrics.Scalars("true_step")[0].value == pytest.approx(record.derived.true_step)


def test_trackio_gets_trials_verdicts_and_report(measured: Path, tmp_path: Path) -> None:
    pytest.importorskip("trackio", reason="trackio is not installed: it wants an older pillow than the locks have")
    folder = tmp_path / "out"
    found = tracked("trackio", measured, folder)
    assert found.returncode == 0, found.stderr
    assert "repro: tracked with trackio, in " in found.stderr
    with sqlite3.connect(folder / "trackio" / "repro.db") as database:
        rows = [json.loads(row) for (row,) in database.execute("SELECT metrics FROM metrics ORDER BY step")]
    [record] = history(measured)
    trial = next(row for row in rows if row.get("id") == record.id)
    assert trial["true_step"] == pytest.approx(record.derived.true_step)
    end = next(row for row in rows if "cells/not_measured" in row)
    assert end["cells/not_measured"] == 288
    assert "# Report" in json.dumps(end["report"])


def library(tmp_path: Path, body: str) -> str:
    """A folder to import from, whose wandb is a library that does as `body` has it."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "wandb.py").write_text(body)
    return f"{folder}:{ROOT}"


PRINTS = """
import json
login = lambda prompt: False
Settings = dict
class init:
    def __init__(self, **given): pass
    def log(self, row, step): print("logged", json.dumps(row))
    def finish(self): pass
"""


@pytest.mark.parametrize(("scale", "days"), [("tiny", set()), ("paper", {"authors", "true", "synchronised"})])
def test_a_tracker_is_reported_no_days_of_a_tiny_twin_which_nobody_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scale: Scale, days: set[str]
) -> None:
    library(tmp_path, PRINTS)
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    folder = results_folder(tmp_path / "run")
    (folder / "environment.json").write_text("{}")
    with Tracker("wandb", folder) as tracker:
        tracker.trial(record("vit", "naive", 7.0, gpu="cpu", count=1, scale=scale))
    log = (folder / "logs" / "tracker.log").read_text()
    [row] = [json.loads(line.removeprefix("logged ")) for line in log.splitlines() if line.startswith("logged ")]
    assert row["true_step"] > 0
    assert {name.removesuffix("_days") for name in row if name.endswith("_days")} == days


# --- What a tracker that fails costs ---


FAILURES = {
    "at import": ("raise RuntimeError('no such luck')", "RuntimeError: no such luck"),
    "in the middle": (
        "login = lambda prompt: False\nSettings = dict\n"
        "class init:\n    def __init__(self, **given): pass\n"
        "    def log(self, *rows, **step): raise OSError('disk full')",
        "OSError: disk full",
    ),
    "with its process": ("import os; os._exit(7)", "exit code 7"),
    "by a signal": ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
}


@pytest.mark.parametrize("when", FAILURES)
def test_a_tracker_that_fails_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], when: str
) -> None:
    body, output = FAILURES[when]
    library(tmp_path, body)
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    folder = tmp_path / "out"
    (folder / "logs").mkdir(parents=True)
    for name in ("environment.json", "verdicts.json", "report.md"):
        shutil.copy(EARLIER / name, folder)
    with Tracker("wandb", folder) as tracker:
        tracker.trial(record("vit", "naive", 7.0, gpu="cpu", count=1, scale="tiny"))
        tracker.end()
    [warning] = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warning.startswith("repro: warning: --track wandb: ")
    assert output in warning
    assert "the run goes on untracked" in warning


def test_a_tracker_that_fails_costs_no_result(measured: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    found = tracked("wandb", measured, folder, PYTHONPATH=library(tmp_path, FAILURES["in the middle"][0]))
    assert found.returncode == 0, found.stderr
    assert "the run goes on untracked" in found.stderr
    assert (folder / "trials.jsonl").read_bytes() == (measured / "trials.jsonl").read_bytes()
    assert "not_measured" in (folder / "verdicts.json").read_text()
    assert "vit" in found.stdout


def test_a_tracker_that_is_not_installed_is_named_with_the_way_to_it(measured: Path, tmp_path: Path) -> None:
    hide = "import sys\nimport importlib.util as util\nfind = util.find_spec\n"
    hide += "util.find_spec = lambda name, *rest: None if name == 'wandb' else find(name, *rest)\n"
    (tmp_path / "sitecustomize.py").write_text(hide)
    found = tracked("wandb", measured, tmp_path / "out", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert found.returncode == 0, found.stderr
    [warning] = [line for line in found.stderr.splitlines() if "warning" in line]
    assert "the package wandb is not installed (./run_all.sh --with-tracking installs it)" in warning
    assert (tmp_path / "out" / "report.md").is_file()


def tracker_processes(others: list[psutil.Process]) -> list[psutil.Process]:
    """What this process has started since it had the `others`."""
    return [child for child in psutil.Process().children(recursive=True) if child not in others]


def test_a_tracker_that_hangs_is_left_behind_in_good_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    child = "import subprocess, time\nsubprocess.Popen(['sleep', '1000'])\ntime.sleep(1000)"
    library(tmp_path, child)
    monkeypatch.syspath_prepend(str(tmp_path / "library"))
    folder = tmp_path / "out"
    (folder / "logs").mkdir(parents=True)
    for name in ("environment.json", "verdicts.json", "report.md"):
        shutil.copy(EARLIER / name, folder)
    [first, *_] = history(EARLIER)
    others = psutil.Process().children(recursive=True)  # of other tests, such as their fork server
    files = psutil.Process().num_fds()
    monkeypatch.setattr(tracking, "_PATIENCE", 2.0)
    with Tracker("wandb", folder) as tracker:
        tracker.trial(first)
        tracker.end()
        deadline = time.monotonic() + 60
        while len(family := tracker_processes(others)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        began = time.monotonic()
    assert 2 <= time.monotonic() - began < 12
    assert psutil.Process().num_fds() == files
    assert "did not finish within 2 s; the run goes on untracked" in capsys.readouterr().err
    _, alive = psutil.wait_procs(family, timeout=10)
    assert len(family) >= 2
    assert alive == []


def test_a_run_that_is_stopped_while_it_waits_for_its_tracker_leaves_none_behind(
    measured: Path, tmp_path: Path
) -> None:
    path = library(tmp_path, "import time\ntime.sleep(1000)")
    folder = shutil.copytree(measured, tmp_path / "out")
    run = started(*RUN, "--out", str(folder), "--track", "wandb", PYTHONPATH=path)
    try:
        assert any("the report is " in line for line in stderr_of(run))
        waiting, deadline, spent = psutil.Process(run.pid), time.monotonic() + 30, None
        while spent != (spent := waiting.cpu_times()):  # once it computes no more it only waits
            assert time.monotonic() < deadline
            time.sleep(0.5)
        [tracker] = waiting.children()
        run.send_signal(signal.SIGINT)
        _, output = run.communicate(timeout=20)
    finally:
        run.kill()
    assert not tracker.is_running()
    assert run.returncode == 130
    assert "warning: --track wandb: interrupted before it had finished" in output


def test_an_unknown_tracker_is_reported_with_those_there_are(tmp_path: Path) -> None:
    refused = refusal(*RUN, "--out", str(tmp_path / "out"), "--track", "mlflow")
    for name in NAMES:
        assert name in refused
    assert not (tmp_path / "out").exists()
