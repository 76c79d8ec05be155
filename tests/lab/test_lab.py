"""The lab's experiment: one epoch timed, more predicted and run, the first epoch explained, two machines compared."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from repro import datafile
from repro.cli import main
from repro.console import UserError
from repro.lab.experiment import experiment
from repro.lab.report import epochs_of, predictions, ratios, reasons, report
from repro.lab.specification import TimedTraining, Training
from repro.machine import nvml
from repro.measure.jobs import RankOutcome
from repro.measure.launcher import ForkServer
from repro.paper.gpus import find
from tests.support.command_line import (
    PATIENCE,
    ROOT,
    one_line,
    process,
    record,
    repro,
    results_folder,
    started,
    wait_for,
)

InRanks = Callable[..., list[Any]]
SMALL = ["--epochs", "3", "--images", "200"]  # 13 batches of 16, the last of 8


def trained(epochs: int, first: float, later: float, machine: str = "2 CPUs") -> TimedTraining:
    """A training of 12 batches an epoch at the paper's scale. A tenth of each epoch is reading; what the first one
    takes more is half its first batch's training, half the reading of all."""
    more = first - later
    reading = [[later / 120] * 12 for _ in range(epochs)]
    training = [[later * 0.9 / 12] * 12 for _ in range(epochs)]
    reading[0] = [time + more / 24 for time in reading[0]]
    training[0][0] += more / 2
    what = Training(machine, "paper", 256, 40_597, epochs)
    return TimedTraining(what, reading, training, [first] + [later] * (epochs - 1))


ONE, ALL = trained(1, 16.0, 10.0), trained(20, 16.0, 10.0)


# --- What the report measured ---


def test_the_reports_four_predictions_missed_more_on_gpus_than_on_cpus() -> None:
    *found, _ = predictions(ONE, ALL)
    assert [row["predicted_s"] for row in found] == [29734.0, 9996.0, 1730.0, 668.0]
    for row in found:
        assert row["predicted_s"] == pytest.approx(20 * row["first_epoch_s"])
        assert row["first_epoch_s"] + 19 * row["later_epoch_s"] == pytest.approx(row["measured_s"])
        assert (row["later_epoch_s"] < row["first_epoch_s"]) == ("GPU" in row["machine"])
    assert [round(row["error"], 3) for row in found] == [-0.026, -0.031, 0.132, 0.200]


def test_the_reports_v100_is_between_what_its_flops_and_its_memory_promise() -> None:
    found = {row["by"]: row for row in ratios(ONE, ALL, None)}
    printed, catalogue, memory = found["TFLOP/s, as printed"], found["fp32 TFLOP/s"], found["memory GB/s"]
    assert printed["predicted"] == pytest.approx(2.02, abs=0.01)
    assert catalogue["predicted"] == pytest.approx(15.7 / 8.1)
    assert memory["predicted"] == pytest.approx(3.0)
    for row in (printed, catalogue, memory):
        assert row["all_epochs"] == pytest.approx(2.746, abs=0.001)
        assert row["1_epoch"] == pytest.approx(86.5 / 33.4)
    assert catalogue["error"] < printed["error"] < 0 < memory["error"]
    assert found["CPUs"]["predicted"] == 8
    assert found["CPUs"]["all_epochs"] == pytest.approx(2.96, abs=0.01)


# --- What follows from measurements of our own ---


def test_the_prediction_counts_the_first_epochs_surplus_every_time() -> None:
    row = predictions(trained(1, 15.0, 10.0), trained(20, 15.0, 10.0))[-1]
    assert (row["predicted_s"], row["measured_s"]) == (20 * 15.0, 205.0)
    assert row["error"] == pytest.approx(300 / 205 - 1)


def test_a_slow_epoch_of_another_process_makes_no_later_epoch_shorter() -> None:
    row = predictions(trained(1, 90.0, 90.0), trained(4, 15.0, 10.0))[-1]
    assert (row["first_epoch_s"], row["later_epoch_s"]) == (90.0, 10.0)


def test_the_first_epochs_surplus_is_reported_by_what_it_went_into() -> None:
    surplus, parts = reasons(ALL)
    assert surplus.startswith(
        "The first of 20 epochs took +6 s (+60.0%) against a later one; these differ by up to 0 s."
    )
    assert "training on its first 10 batches took +3 s against a later epoch's" in parts
    assert "reading took +3 s" in parts
    short = replace(ALL, reading=[times[:4] for times in ALL.reading], training=[t[:4] for t in ALL.training])
    assert "training on its first 4 batches took" in reasons(short)[1]
    hours = reasons(trained(20, 16_000.0, 10_000.0))[0]
    assert "took +6000 s" in hours, "in plain digits"


def test_the_first_epoch_stands_beside_the_later_ones() -> None:
    alone, first, later = epochs_of(ONE, trained(3, 16.0, 10.0))
    assert [row["epoch"] for row in (alone, first, later)] == ["alone", "first", "later (2, mean)"]
    assert first["reading_s"] == pytest.approx(1 + 3)
    assert later["epoch_s"] == 10.0


def test_a_known_gpu_is_held_against_the_reports_two_and_anything_else_against_none() -> None:
    a100 = find("A100 80 GB")
    first, all = trained(1, 8.65, 7.641, machine="A100"), trained(20, 8.65, 7.5884, machine="A100")
    rows = [row for row in ratios(first, all, a100) if row["machines"] == "A100 80 GB : T4"]
    assert {row["by"] for row in rows} == {"fp32 TFLOP/s", "fp16 tensor TFLOP/s", "memory GB/s"}
    for row in rows:
        assert row["1_epoch"] == pytest.approx(10.0)  # 86.5 s there
        assert row["all_epochs"] == pytest.approx(1528.2 / sum(all.seconds))
    assert len(ratios(first, all, None)) == len(ratios(first, all, a100)) - 2 * len(rows)


# --- What a training does ---


def test_each_epoch_takes_every_image_once_in_an_order_of_its_own(in_ranks: InRanks, tmp_path: Path) -> None:
    [found] = in_ranks("lab_training", folder=str(tmp_path), images=40, epochs=2)
    one, two = ([image for batch in found["reads"][first : first + 3] for image in batch] for first in (0, 3))
    assert sorted(one) == sorted(two) == [*range(40)]
    assert len({tuple(one), tuple(two), tuple(range(40))}) == 3
    batch = ["read", "wait", "step", "update", "wait"]
    assert found["output"] == [*batch * 6, "cpu_use"]
    assert [len(batch) for batch in found["reads"]] == [16, 16, 8] * 2
    assert found["asked"] == ["gan", 16, "naive", 1, {"compiled": False, "tf32": False}]
    assert (found["reading"], found["training"]) == ([[1.0] * 3] * 2, [[3.0] * 3] * 2)
    assert found["seconds"] == [12.0, 12.0]


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
    return folder, process("lab", *SMALL, "--out", str(folder), CUDA_VISIBLE_DEVICES="")


def test_the_experiment_runs_on_a_cpu_and_says_what_it_scaled_down(finished: Finished) -> None:
    folder, run = finished
    assert run.returncode == 0, run.stderr
    scaled = next(line for line in run.stderr.splitlines() if "Scaled down" in line)
    for what in ("its tiny twin", "200 of 40,597 images", "16 of 256 a batch", "3 of 20 epochs"):
        assert what in scaled
    assert "training 3 epochs, about " in run.stderr
    for text in (run.stdout, (folder / "report.md").read_text()):
        assert re.search(r"^One epoch of .* predicts .* for 3, which took .*: [-+][0-9.]+%\.$", text, re.MULTILINE)
        assert str(folder) not in text
    assert "Caching: reading took" in (folder / "report.md").read_text()


def test_every_number_of_the_report_is_in_the_trainings_that_are_kept(finished: Finished) -> None:
    folder, _ = finished
    kept = [datafile.read(path, TimedTraining) for path in sorted(folder.glob("*-images_*.json"))]
    assert sorted(each.what.epochs for each in kept) == [1, 3]
    for each in kept:
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
    ours = found["predictions"][-1]
    assert ours["predicted_s"] == pytest.approx(3 * sum(found["trainings"][0]["seconds"]))
    assert ours["measured_s"] == pytest.approx(sum(found["trainings"][1]["seconds"]))
    as_csv = repro("lab", *SMALL, "--out", str(folder), "--format", "csv", CUDA_VISIBLE_DEVICES="").stdout
    assert len(list(csv.DictReader(io.StringIO(as_csv)))) == 4 + 1


@pytest.mark.slow
def test_an_interrupted_experiment_leaves_no_process_and_says_how_to_resume(tmp_path: Path) -> None:
    run = started("lab", "--out", str(tmp_path))
    try:
        wait_for(lambda: list((tmp_path / "logs").glob("*epoch.log")), run)  # a rank is training
        family = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGTERM)  # as Ctrl-C does
        out, output = run.communicate(timeout=PATIENCE)
    finally:
        run.kill()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
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
    trainings = (f"1-CPU_tiny_2537-images_{name}.json" for name in ("1-epoch", "20-epochs"))
    first, whole = (datafile.read(kept / name, TimedTraining) for name in trainings)
    assert report(first, whole, None, "markdown") + "\n" == (kept / "report.md").read_text()
    answer, table, notes = report(first, whole, None, "text").split("\n\n")
    assert answer.startswith("One epoch of ")
    assert max(map(len, table.splitlines())) <= 100
    assert notes.count("\n- ") <= 2


@pytest.mark.parametrize(
    ("changed", "output"),
    [
        ({"seconds": [1.0, "long"]}, "Expected `float`, got `str` - at `$.seconds[1]`"),
        ({"what": {"machine": "cpu"}}, "Object missing required field `scale` - at `$.what`"),
        ({"training": []}, "it does not have the times of 2 epochs"),
        ({"seconds": [0.6, 0.0]}, "it does not have the times of 2 epochs"),
        ({"what": asdict(Training("cpu", "tiny", 16, 48, 2))}, "they are of cpu_tiny_48-images_2-epochs"),
    ],
)
def test_a_kept_training_that_is_none_is_one_clear_line(changed: dict[str, Any], output: str, tmp_path: Path) -> None:
    what = Training("cpu", "tiny", 16, 32, 2)
    kept = asdict(TimedTraining(what, [[0.1, 0.1]] * 2, [[0.2, 0.2]] * 2, [0.6, 0.6]))
    with experiment(tmp_path, []) as train:
        path = tmp_path / f"{what.id}.json"
        path.write_text(json.dumps(kept))
        assert train(what) == (datafile.read(path, TimedTraining), True)
        path.write_text(json.dumps(kept | changed))
        with pytest.raises(UserError) as refused:
            train(what)
    assert str(refused.value) == f"{path}: not a training's times ({output}); remove the file"


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
