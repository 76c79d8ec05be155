"""The lab's experiment: one epoch timed, more predicted and run, the first epoch explained, two machines compared."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from repro import datafile
from repro.cli import main
from repro.console import UserError
from repro.lab.experiment import Experiment, batches, check_room
from repro.lab.report import Report
from repro.lab.specification import (
    TimedTraining,
    Training,
    epochs_of,
    lab_predictions,
    lab_ratios,
    predictions,
    ratios,
    reasons,
)
from repro.machine import nvml
from repro.measure.launcher import ForkServer
from repro.measure.server import RankOutcome
from repro.paper.gpus import find
from tests.command_line import ROOT, one_line, process, record, refusal, repro, results_folder, started

InRanks = Callable[..., list[Any]]
SMALL = ["--epochs", "3", "--images", "200"]  # 13 batches of 16, the last of 8


def trained(epochs: int, first: float, later: float, warm: bool = False, machine: str = "2 CPUs") -> TimedTraining:
    """A training of 12 batches an epoch at the paper's scale. A tenth of each epoch is reading; what the first one
    takes more is half its first batch's training, half the reading of all."""
    more = first - later
    reading = [[later / 120] * 12 for _ in range(epochs)]
    training = [[later * 0.9 / 12] * 12 for _ in range(epochs)]
    reading[0] = [time + more / 24 for time in reading[0]]
    training[0][0] += more / 2
    what = Training(machine, "paper", 256, 40_597, epochs, warm)
    return TimedTraining(what, 0.5, reading, training, [first] + [later] * (epochs - 1))


# --- What the report measured ---


def test_the_reports_four_predictions_missed_by_3_percent_on_cpus_and_by_13_and_20_on_gpus() -> None:
    found = {row.machine: row for row in lab_predictions()}
    assert len(found) == 4
    assert [row.predicted for row in found.values()] == [29734.0, 9996.0, 1730.0, 668.0]
    for row in found.values():
        assert row.predicted == pytest.approx(20 * row.first)
        assert row.first + 19 * row.later == pytest.approx(row.measured)
        assert row.source.startswith("lab report")
    errors = [round(row.error, 3) for row in found.values()]
    assert errors == [-0.026, -0.031, 0.132, 0.200]


def test_the_reports_gpus_take_a_shorter_epoch_after_the_first_and_its_cpus_a_longer_one() -> None:
    for row in lab_predictions():
        assert (row.later < row.first) == ("GPU" in row.machine)


def test_the_reports_v100_is_faster_than_its_flops_promise_and_slower_than_its_memory() -> None:
    found = {row.specification: row for row in lab_ratios()}
    printed, catalogue, memory = found["TFLOP/s"], found["fp32 TFLOP/s"], found["memory GB/s"]
    assert printed.predicted == pytest.approx(2.02, abs=0.01)
    assert catalogue.predicted == pytest.approx(15.7 / 8.1)
    assert memory.predicted == pytest.approx(3.0)
    for row in (printed, catalogue, memory):
        assert row.measured_n == pytest.approx(2.746, abs=0.001)
        assert row.measured_1 == pytest.approx(86.5 / 33.4)
    assert catalogue.error < printed.error < 0 < memory.error
    assert found["CPUs"].predicted == 8
    assert found["CPUs"].measured_n == pytest.approx(2.96, abs=0.01)


# --- What follows from measurements of our own ---


def test_the_plain_prediction_counts_the_first_epochs_surplus_every_time_and_the_remedy_once() -> None:
    first, all, warm = trained(1, 15.0, 10.0), trained(20, 15.0, 10.0), trained(1, 10.0, 10.0, warm=True)
    plain, remedied = predictions(first, all, warm)
    assert plain.predicted == 20 * 15.0
    assert plain.error == pytest.approx(300 / 205 - 1)
    assert remedied.predicted == pytest.approx(205.0)
    assert remedied.error == pytest.approx(0.0)
    assert [row.method for row in predictions(first, all, None)] == [plain.method]


def test_a_slow_epoch_of_another_process_makes_no_later_epoch_shorter() -> None:
    for row in predictions(trained(1, 90.0, 90.0), trained(4, 15.0, 10.0), trained(1, 10.0, 10.0, warm=True)):
        assert (row.first, row.later) == (90.0, 10.0)


def test_the_first_epochs_surplus_is_reported_by_what_it_went_into() -> None:
    first, all = trained(1, 16.0, 10.0), trained(20, 16.0, 10.0)
    surplus, parts, *rest = reasons(first, all)
    assert "+6 s (+60.0%)" in surplus
    assert "batches took +3 s against a later epoch's" in parts
    assert "reading took +3 s" in parts
    assert not any("not out of their line" in line for line in rest)


def test_epochs_of_few_batches_are_reported_by_those_that_there_are() -> None:
    first, all = trained(1, 16.0, 10.0), trained(20, 16.0, 10.0)
    short = replace(all, reading=[[*times[:4]] for times in all.reading], training=[[*t[:4]] for t in all.training])
    assert "training on its first 4 batches took" in reasons(first, short)[1]
    assert "training on its first 10 batches took" in reasons(first, all)[1]


def test_epochs_of_hours_are_reported_in_plain_digits() -> None:
    output = " ".join(reasons(trained(1, 16_000.0, 10_000.0), trained(20, 16_000.0, 10_000.0)))
    assert "took 16000 s, a later one 10000 s: +6000 s" in output
    assert "e+" not in output


def test_a_first_epoch_within_the_later_ones_spread_is_called_so() -> None:
    all = trained(4, 10.5, 10.0)
    all.seconds[2] = 11.0
    assert any("not out of their line" in line for line in reasons(trained(1, 10.5, 10.0), all))


def test_batches_of_the_first_epoch_stand_beside_the_later_ones() -> None:
    rows = {row.epoch: row for row in epochs_of(trained(1, 16.0, 10.0), trained(3, 16.0, 10.0), None)}
    assert rows["first"].batch_1 == pytest.approx(1e3 * (10 / 12 + 3 + 0.25))
    assert rows["later (2, mean)"].batch_1 == pytest.approx(1e3 * 10 / 12)
    assert rows["first"].reading == pytest.approx(1 + 3)


def test_a_known_gpu_is_held_against_the_reports_two_and_anything_else_against_none() -> None:
    a100 = find("A100 80 GB")
    first, all = trained(1, 8.65, 7.641, machine="A100"), trained(20, 8.65, 7.5884, machine="A100")
    rows = [row for row in ratios(first, all, a100) if row.machines == "A100 80 GB : T4"]
    assert {row.specification for row in rows} == {"fp32 TFLOP/s", "fp16 tensor TFLOP/s", "memory GB/s"}
    for row in rows:
        assert row.measured_1 == pytest.approx(10.0)  # 86.5 s there
        assert row.measured_n == pytest.approx(1528.2 / sum(all.seconds))
    assert ratios(first, all, None) == []


# --- What a training does ---


def test_each_epoch_takes_every_image_once_in_an_order_of_its_own(in_ranks: InRanks, tmp_path: Path) -> None:
    [found] = in_ranks("lab_training", folder=str(tmp_path), images=40, epochs=2, warm=False)
    one, two = ([image for batch in found["reads"][first : first + 3] for image in batch] for first in (0, 3))
    assert sorted(one) == sorted(two) == [*range(40)]
    assert len({tuple(one), tuple(two), tuple(range(40))}) == 3
    batch = ["read", "wait", "step", "update", "wait"]
    assert found["output"] == ["started", *batch * 6, "cpu_use"]
    assert [len(batch) for batch in found["reads"]] == [16, 16, 8] * 2
    assert found["asked"] == ["gan", 16, "naive", 1, {"compiled": False, "tf32": False}]
    assert found["bar"] == 6, "a byte a batch"
    assert (found["reading"], found["training"]) == ([[1.0] * 3] * 2, [[3.0] * 3] * 2)
    assert found["seconds"] == [12.0, 12.0]


def test_a_warm_up_reads_all_images_batch_by_batch_and_trains_on_ten_before_the_first_epoch(
    in_ranks: InRanks, tmp_path: Path
) -> None:
    [found] = in_ranks("lab_training", folder=str(tmp_path), images=200, epochs=1, warm=True)
    assert [image for batch in found["reads"][:13] for image in batch] == [*range(200)]
    epoch = [16] * 12 + [8]
    assert [len(batch) for batch in found["reads"]] == epoch + [16] * 10 + epoch, "memory has no room for all of them"
    before = found["output"][: found["output"].index("started")]
    assert (before.count("read"), before.count("update")) == (13 + 10, 10)
    assert [len(times[0]) for times in (found["reading"], found["training"])] == [13, 13]
    assert found["bar"] == 10 + 13


@pytest.mark.parametrize(("images", "warm"), [(200, True), (40, True), (40, False)])
def test_the_bar_ends_with_the_last_batch(in_ranks: InRanks, images: int, warm: bool, tmp_path: Path) -> None:
    [found] = in_ranks("lab_training", folder=str(tmp_path), images=images, epochs=2, warm=warm)
    assert found["bar"] == batches(Training("1 CPU", "tiny", 16, images, 2, warm))


def test_images_are_random_colours_in_a_file_that_the_page_cache_has_forgotten(
    in_ranks: InRanks, tmp_path: Path
) -> None:
    [found] = in_ranks("image_file", folder=str(tmp_path), images=1100)
    assert found == {
        "shape": [1100, 3, 2, 2],
        "from": [-1.0, 1.0],
        "different": 1100,
        "overlap": False,
        "as_chosen": True,
        "output": ["written", "forgotten"],
        "left": [],
        "closed": True,
    }


# --- On the command line ---


Finished = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("lab") / "out"
    return folder, process("lab", *SMALL, "--skip-warmup", "--out", str(folder), CUDA_VISIBLE_DEVICES="")


def test_the_experiment_runs_on_a_cpu_and_says_what_it_scaled_down(finished: Finished) -> None:
    folder, run = finished
    assert run.returncode == 0, run.stderr
    scaled = next(line for line in run.stderr.splitlines() if "Scaled down" in line)
    for what in ("the tiny twin", "200 of 40,597 images", "16 of 256 a batch", "3 of 20 epochs"):
        assert what in scaled
    assert "training 3 epochs, about " in run.stderr
    for text in (run.stdout, (folder / "report.md").read_text()):
        assert "first epoch + (epochs - 1) x epoch after a warm-up" in text
        assert "lab report, sections III and IV" in text
        assert "Caching: reading took" in text
        assert str(folder) not in text


def test_every_number_of_the_report_is_in_the_trainings_that_are_kept(finished: Finished) -> None:
    folder, _ = finished
    kept = [datafile.read(path, TimedTraining) for path in sorted(folder.glob("*-images_*.json"))]
    assert sorted((each.what.epochs, each.what.warm) for each in kept) == [(1, False), (1, True), (3, False)]
    for each in kept:
        assert each.started > 0
        assert each.busy_cpus is not None, "others may have kept CPUs busy"
        assert len(each.seconds) == len(each.reading) == len(each.training) == each.what.epochs
        for total, read, train in zip(each.seconds, each.reading, each.training, strict=True):
            assert len(read) == len(train) == 13
            assert min(*read, *train) > 0
            assert sum(read) + sum(train) == pytest.approx(total, rel=0.1)
    assert {path.name for path in folder.iterdir()} - {"logs", ".lock", "environment.json", "report.md"} == {
        f"{each.what.id}.json" for each in kept
    }  # the images have left no file


def test_the_same_folder_again_trains_nothing_twice_in_any_format(finished: Finished) -> None:
    folder, _ = finished
    began = time.monotonic()
    again = repro("lab", *SMALL, "--out", str(folder), "--format", "json", CUDA_VISIBLE_DEVICES="")
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("(from an earlier run)") == 2
    assert time.monotonic() - began < 30  # the stack is not even loaded
    found = json.loads(again.stdout)
    ours = [row for row in found["predictions"] if row["source"] == "measured here"]
    assert len(ours) == 1
    assert ours[0]["predicted"] == pytest.approx(3 * sum(found["trainings"][0]["seconds"]))
    assert ours[0]["measured"] == pytest.approx(sum(found["trainings"][1]["seconds"]))
    as_csv = repro("lab", *SMALL, "--out", str(folder), "--format", "csv", CUDA_VISIBLE_DEVICES="").stdout
    assert len(list(csv.DictReader(io.StringIO(as_csv)))) == 4 + 1


@pytest.mark.slow
def test_an_interrupted_experiment_leaves_no_process_and_says_how_to_resume(tmp_path: Path) -> None:
    run = started("lab", "--out", str(tmp_path))
    try:
        deadline = time.monotonic() + 240
        while not list((tmp_path / "logs").glob("*epoch.log")):  # a rank is training
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.05)
        family = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGTERM)  # as Ctrl-C does
        out, output = run.communicate(timeout=60)
    finally:
        run.kill()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert family
    assert alive == []
    assert run.returncode == 130
    assert out == ""
    assert "resume with: " in output
    assert not list(tmp_path.glob("*-images_*.json"))


def test_another_machines_trainings_are_not_taken_for_this_ones(finished: Finished) -> None:
    folder, _ = finished
    path = folder / "environment.json"
    kept = path.read_text()
    changed = json.loads(kept)
    changed["host"]["cpu"] = "Another CPU"
    path.write_text(json.dumps(changed))
    try:
        found = repro("lab", *SMALL, "--out", str(folder), CUDA_VISIBLE_DEVICES="")
        assert found.returncode == 2
        assert "the CPU was Another CPU" in found.stderr
    finally:
        path.write_text(kept)


def test_the_lab_and_a_run_leave_each_others_folders_as_they_are(finished: Finished, tmp_path: Path) -> None:
    trainings, _ = finished
    run = results_folder(tmp_path / "run", record("vit", "naive", 5.0))
    (run / "environment.json").write_text("{}")
    with (run / "trials.jsonl").open("a") as trials:
        trials.write('{"id": ')  # torn: only a run may mend it
    for arguments, folder, output in [
        (["lab", *SMALL], run, "holds a run's trials; name another folder with --out"),
        (["run", "--models", "vit", "--processes", "1"], trainings, "holds trainings of repro lab; name another"),
    ]:
        kept = _contents(folder)
        refused = repro(*arguments, "--out", str(folder), CUDA_VISIBLE_DEVICES="")
        assert f"{folder} {output}" in one_line(refused)
        assert kept == _contents(folder)


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_kept_experiments_report_is_what_its_times_give() -> None:
    kept = ROOT / "results" / "lab-cpu-1-core"
    trainings = (f"1-CPU_tiny_2537-images_{name}.json" for name in ("1-epoch", "20-epochs", "1-epoch-warm"))
    first, whole, warm = (datafile.read(kept / name, TimedTraining) for name in trainings)
    found = Report(first, whole, warm, None)
    assert found.text("markdown") + "\n" == (kept / "report.md").read_text()


@pytest.mark.parametrize(
    ("changed", "output"),
    [
        ({"seconds": [1.0, "long"]}, 'seconds[1] is "long"'),
        ({"what": {"machine": "cpu"}}, "what lacks scale, batch, images, epochs"),
        ({"training": []}, "it does not have the times of 2 epochs"),
        ({"reading": [[0.1], [0.1, 0.1]]}, "epoch 1 does not have the times of 2 batches"),
        ({"seconds": [0.6, 0.0]}, "epoch 2 cannot take 0 s where its batches take 0.6 s"),
        ({"seconds": [0.6, 1e308]}, "epoch 2 cannot take 1e+308 s where its batches take 0.6 s"),
        ({"training": [[-0.2, 0.2]] * 2}, "epoch 1 cannot take 0.6 s where its batches take 0.2 s"),
        ({"what": asdict(Training("cpu", "tiny", 16, 48, 2))}, "they are of cpu_tiny_48-images_2-epochs"),
    ],
)
def test_a_kept_training_that_is_none_is_one_clear_line(changed: dict[str, Any], output: str, tmp_path: Path) -> None:
    what = Training("cpu", "tiny", 16, 32, 2)
    kept = asdict(TimedTraining(what, 0.5, [[0.1, 0.1]] * 2, [[0.2, 0.2]] * 2, [0.6, 0.6]))
    with Experiment(tmp_path, []) as experiment:
        path = tmp_path / f"{what.id}.json"
        path.write_text(json.dumps(kept))
        assert experiment.train(what) == (datafile.read(path, TimedTraining), True)
        path.write_text(json.dumps(kept | changed))
        with pytest.raises(UserError) as refused:
            experiment.train(what)
    assert str(refused.value) == f"{path}: not a training's times ({output}); remove the file"


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--epochs", "1"], ["--epochs 1: expected a whole number from 2 to 1,000,000,000: one epoch predicts "]),
        (["--epochs", "-3"], ["--epochs -3", "from 2 to "]),
        (["--epochs", "many"], ["--epochs many"]),
        (["--images", "16"], ["--images 16", "two batches of 16", "from 32 to "]),
        (["--images", "300", "--scale", "paper"], ["--images 300", "from 512 to "]),
        (["--images", "9" * 14], [f"--images {'9' * 14}: expected a whole number from 32 to 1,000,000,000"]),
        (["--scale", "huge"], ["--scale", "tiny"]),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], output: list[str], tmp_path: Path) -> None:
    refused = refusal("lab", *arguments, "--out", str(tmp_path / "out"), CUDA_VISIBLE_DEVICES="")
    for part in output:
        assert part in refused
    assert not (tmp_path / "out").exists()


def test_where_the_images_have_no_room_nothing_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out"
    monkeypatch.setattr(nvml, "visible_devices", list)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=257 << 20, total=1 << 30))
    assert main(["lab", "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"repro: {out}: 257 MiB of disk are free, the images take 29 while it runs; free some, or take fewer --images\n"
    )
    assert [*tmp_path.iterdir()] == []
    what = Training("cpu", "tiny", 16, 2537, 1)
    (tmp_path / f"{what.id}.json").touch()
    check_room(tmp_path, what)  # it is trained already


@pytest.mark.parametrize(
    ("outcome", "output"),
    [
        (RankOutcome(0, "crashed", error="ValueError: no luck"), "crashed, ValueError: no luck"),
        (RankOutcome(0, "timed_out"), "timed_out, no reason given"),
    ],
)
def test_a_training_that_fails_is_reported_with_its_log_and_nothing_is_kept_of_it(
    outcome: RankOutcome,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(nvml, "visible_devices", list)
    monkeypatch.setattr(ForkServer, "start", lambda server: None)
    monkeypatch.setattr(ForkServer, "call", lambda server, job: [outcome])
    assert main(["lab", "--out", str(tmp_path)]) == 1
    out, beside = capsys.readouterr()
    [log] = re.findall(rf"_1-epoch: {re.escape(output)}; see (.*_1-epoch\.log)\n$", beside)
    assert (out, Path(log).parent) == ("", tmp_path / "logs")
    assert not [*tmp_path.glob("*-images_*.json")]


def test_what_is_refused_is_refused_without_loading_torch() -> None:
    code = "import sys; from repro.cli import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", code, "lab", "--out", "/proc/foo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert found.stderr.startswith("repro: cannot write to /proc/foo: ")
    assert found.stdout == "False\n"


def test_a_broken_training_file_is_reported(finished: Finished) -> None:
    folder, _ = finished
    path = next(folder.glob("*_1-epoch.json"))
    kept = path.read_text()
    path.write_text("{}")
    try:
        found = repro("lab", *SMALL, "--out", str(folder), CUDA_VISIBLE_DEVICES="")
        assert found.returncode == 2
        assert f"{path}: not a training's times" in found.stderr
    finally:
        path.write_text(kept)
