"""Tracking: trials, verdicts and report of a results folder, and a training's steps, through the tracker's library."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from repro.models.recipe import Scale
from repro.run.records import history
from repro.run.results import Results
from repro.run.tracking import TRACKERS, StepLog
from tests.support.command_line import ROOT, process, record, refusal, repro, results_folder

KEPT = ROOT / "results" / "cpu-2-cores"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a kept run's results."""
    return shutil.copytree(KEPT, tmp_path / "out")


def track(folder: Path, name: str) -> None:
    found = process("track", str(folder), "--to", name, CUDA_VISIBLE_DEVICES="", WANDB_API_KEY="", HOME=str(folder))
    assert found.returncode == 0, found.stderr
    assert f"repro: tracked with {name}, " in found.stderr


# --- What the trackers get of a kept folder ---


@pytest.mark.slow
def test_wandb_gets_trials_verdicts_and_report_offline(folder: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is not installed")
    track(folder, "wandb")
    [run] = (folder / "wandb").glob("offline-run-*")
    logged, summary = _wandb_records(next(run.glob("run-*.wandb")))
    first = history(KEPT)[0]
    trial = next(row for row in logged if row.get("id") == first.id)
    assert trial["status"] == "ok"
    assert trial["true_step"] == pytest.approx(first.derived.true_step)
    assert summary["cells/not_measured"] == 288
    assert (run / "files" / "verdicts.md").read_text().count("\n") >= 288
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


@pytest.mark.slow
def test_tensorboard_gets_trials_verdicts_and_report(folder: Path) -> None:
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="tensorboard is not installed"
    )
    track(folder, "tensorboard")
    [place] = (folder / "tensorboard").iterdir()
    records = history(KEPT)
    events = accumulator.EventAccumulator(str(place)).Reload()
    assert events.Scalars("cells/not_measured")[0].value == 288
    texts = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}
    assert texts["report/text_summary"] == (folder / "report.md").read_text()
    assert texts["verdicts/text_summary"].count("\n") >= 288
    trials = {path.name: path for path in place.iterdir() if path.is_dir()}
    assert len(trials) == len(records)
    metrics = accumulator.EventAccumulator(str(trials[records[0].id.replace("/", "_")])).Reload()
    assert metrics.Scalars("true_step")[0].value == pytest.approx(records[0].derived.true_step)


# --- With a stand-in for wandb ---

LOGS = """
import json
from pathlib import Path
login = lambda prompt: False
Settings = dict
class init:
    def __init__(self, dir, **given): self.dir = dir
    def log(self, row, step=None): print("logged", json.dumps(row))
    def save(self, file, **how): print("saved", Path(file).read_text())
    def finish(self): pass
"""
FAILURES = {
    "raise RuntimeError('no such luck')": "RuntimeError: no such luck",
    LOGS.replace('print("logged", json.dumps(row))', "raise OSError('disk full')"): "OSError: disk full",
}


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module that is imported as wandb."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    return tmp_path / "wandb.py"


def test_a_folder_is_tracked_while_its_run_goes_on(folder: Path, stand_in: Path) -> None:
    stand_in.write_text(LOGS)
    (folder / "report.md").unlink()
    with Results(folder):
        done = repro("track", str(folder), "--to", "wandb")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"status": "ok"') == len(history(KEPT))
    assert "saved The run has written no report yet." in done.stdout


@pytest.mark.parametrize(("scale", "days"), [("tiny", set()), ("paper", {"authors", "true", "synchronised"})])
def test_a_tracker_gets_no_days_of_a_tiny_model(tmp_path: Path, stand_in: Path, scale: Scale, days: set[str]) -> None:
    stand_in.write_text(LOGS)
    one = record("vit", "naive", 7.0, gpu="cpu", count=1, scale=scale)
    done = repro("track", str(results_folder(tmp_path / "run", one)), "--to", "wandb")
    row = json.loads(done.stdout.splitlines()[1].removeprefix("logged "))
    assert row["true_step"] > 0
    assert {name.removesuffix("_days") for name in row if name.endswith("_days")} == days


@pytest.mark.parametrize(("body", "output"), FAILURES.items(), ids=("at import", "in the middle"))
def test_a_tracker_that_fails_is_reported_in_one_line(folder: Path, stand_in: Path, body: str, output: str) -> None:
    stand_in.write_text(body)
    assert refusal("track", str(folder), "--to", "wandb") == f"repro: --to wandb: {output}\n"


@pytest.mark.parametrize(("body", "output"), FAILURES.items(), ids=("at import", "in the middle"))
def test_a_tracker_that_fails_costs_a_training_one_warning(
    tmp_path: Path, stand_in: Path, capsys: pytest.CaptureFixture[str], body: str, output: str
) -> None:
    stand_in.write_text(body)
    with StepLog("wandb", tmp_path, {}) as tracker:
        for step in (1, 2):
            tracker.log(step, loss=1.0)
    warning = f"warning: --track wandb: {output}; the training goes on untracked"
    assert capsys.readouterr().err == f"repro: {warning}\n"


def test_a_tracker_that_is_not_installed_is_named_with_the_way_to_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("repro.run.tracking.find_spec", lambda name: None)
    missing = "the package wandb is not installed (./run_all.sh --with-tracking installs it)"
    assert missing in refusal("track", str(folder), "--to", "wandb")


def test_an_unknown_tracker_is_reported_with_those_there_are(folder: Path) -> None:
    refused = refusal("track", str(folder), "--to", "mlflow")
    assert all(name in refused for name in TRACKERS)


def test_a_report_that_is_a_link_out_of_the_folder_is_not_logged(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (folder / "report.md").unlink(missing_ok=True)
    (folder / "report.md").symlink_to(tmp_path / "secret")
    assert "is a link that leaves the folder" in refusal("track", str(folder))
    assert not (folder / "tensorboard").exists()


def test_a_tracker_writes_through_no_link_that_leaves_the_folder(folder: Path, tmp_path: Path) -> None:
    (folder / "tensorboard").symlink_to(tmp_path)
    assert "is a link that leaves the folder" in refusal("track", str(folder))
