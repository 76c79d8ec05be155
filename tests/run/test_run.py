"""A whole run through the command line: measured for real on this CPU, interrupted, resumed, reported."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from repro.machine import environment
from repro.record import Record, Trial
from repro.run.plan import Options
from repro.run.progress import Progress
from repro.run.reading import read
from repro.run.results import Results
from repro.run.run import Run
from tests.machine.test_environment import git
from tests.support import command_line
from tests.support.command_line import (
    PATIENCE,
    ROOT,
    altered,
    record,
    refusal,
    results_folder,
    started,
    trial_lines,
    wait_for,
)

pytestmark = pytest.mark.slow

ONE = ["--models", "vit", "--methods", "naive", "--processes", "2"]
TWO = ["--models", "convnext,vit", "--methods", "naive", "--processes", "2"]
FOUR = [*TWO[:-1], "1,2"]
IMPATIENT = [sys.executable, "-m", "tests.support.soon_gone"]


repro = partial(command_line.process, CUDA_VISIBLE_DEVICES="")


MEASURED = """
import sys
from contextlib import redirect_stdout
from pathlib import Path
import repro.run.run
from repro.commands import driver
from repro.machine.devices import Device
from repro.paper.gpus import find
from repro.run.plan import Options
from repro.run.reading import read
from repro.run.run import Run
from tests.support.command_line import record

def measured(trial, *_, **__):
    return record(trial.recipe, trial.settings, days, trial.device, trial.count, true_days=true_days)

repro.run.run.run_trial, Run.load = measured, lambda run: None
folder, methods, count, clock, *times = sys.argv[1:]
days, true_days = map(float, times)
devices = [Device(number, number, "", "A100", find("A100"), 80 * 2**30, (8, 0)) for number in range(int(count))]
run = Run(Path(folder), Options(("pythia-1b",), methods, "paper", (int(count),), clock=clock), devices)
driving = driver.Driver(run)
with redirect_stdout(sys.stderr):
    code = driving.finish(driver.go_through(driving, ()))
print(sorted(verdict.verdict for verdict in read(run.results.folder, clock).verdicts if verdict.compared))
sys.exit(code)
"""


def measured(folder: Path, *words: str, program: str = MEASURED) -> subprocess.CompletedProcess[str]:
    """Runs Pythia-1B on A100s that are not here; each trial takes the days that are given."""
    command = [sys.executable, "-c", program, str(folder), *words]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("days", "verdicts", "runs"), [("900", ["slower", "slower"], 1), ("72", ["faster", "reproduced"], 2)]
)
def test_a_cell_is_judged_after_its_trials_also_in_the_first_run_of_a_folder(
    tmp_path: Path, days: str, verdicts: list[str], runs: int
) -> None:
    """Of Pythia-1B on one A100, which takes 160 days with naive settings and 72 with the best."""
    for _ in range(runs):
        done = measured(tmp_path, "published", "1", "true", days, days)
        assert (done.returncode, done.stdout) == (1, f"{verdicts}\n"), done.stderr


def test_a_folder_that_is_removed_between_two_trials_does_not_come_back(tmp_path: Path) -> None:
    removing = MEASURED.replace("    return", "    if run.timed_ids:\n        shutil.rmtree(folder)\n    return")
    done = measured(tmp_path / "run", "published", "1", "true", "72", "72", program=f"import shutil\n{removing}")
    reason = f"repro.console.UserError: {tmp_path / 'run' / 'trials.jsonl'} was moved, removed or replaced"
    assert done.stderr.splitlines()[-1].startswith(reason)
    assert not (tmp_path / "run").exists()


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in trial_lines(folder)] if (folder / "trials.jsonl").is_file() else []


Finished = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """Started in a folder of another repository; git takes this checkout for one of another user, by its own words."""
    elsewhere, folder = tmp_path_factory.mktemp("elsewhere"), tmp_path_factory.mktemp("finished")
    if shutil.which("git") is not None:  # an image has none
        git(elsewhere, "init", "--quiet")
        git(elsewhere, "commit", "--quiet", "--allow-empty", "--message", "of another repository")
    variables = {"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1", "GIT_DIR": str(elsewhere / ".git")}
    return folder, repro(*FOUR, "--out", str(folder), cwd=elsewhere, **variables)


@pytest.fixture
def folder(finished: Finished, tmp_path: Path) -> Path:
    """A copy of that folder, to run in again."""
    return shutil.copytree(finished[0], tmp_path / "run")


@pytest.fixture(scope="module")
def extended(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A copy of that folder, into which another run measured one of its trials with other rounds."""
    folder = shutil.copytree(finished[0], tmp_path_factory.mktemp("extended") / "run")
    return folder, repro(*ONE, "--steps", "4", "--out", str(folder))


def test_a_run_measures_every_trial_and_succeeds(finished: Finished) -> None:
    folder, run = finished
    assert run.returncode == 0, run.stderr
    found = records(folder)
    assert [(row["recipe"], row["count"], row["status"]) for row in found] == [
        ("convnext", 1, "ok"), ("convnext", 2, "ok"), ("vit", 1, "ok"), ("vit", 2, "ok"),
    ]  # fmt: skip
    assert all(row["true_step"] > 0 for row in found)


def test_a_disk_that_is_full_at_the_end_is_one_line_and_tears_no_file(
    folder: Path,
) -> None:
    file = folder / "benchmark.json"
    output = json.loads(file.read_text())
    output["benchmarks"][0]["extra_info"]["padding"] = "x" * 2**19  # of a trial that is not gone through again
    file.write_text(json.dumps(output))
    whole = file.read_bytes()
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 400; exec "$@"', "bash", sys.executable, "-m", "repro", *ONE, "--out", str(folder)],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    *_, last = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert last == f"repro: no space left in {folder}: free some and run the same command again"
    assert file.read_bytes() == whole


def test_progress_and_time_left_are_on_stderr_and_the_report_alone_on_stdout(finished: Finished) -> None:
    _, run = finished
    assert "4 trials; about 18 s to go" in run.stderr.splitlines()[0], "6 to load, 8 of trials, 4 to report"
    assert "[4/4] vit/tiny/2xcpu/naive" in run.stderr
    assert len(re.findall(r"^\[[123]/4\] .*; about .* left$", run.stderr, re.M)) == 3, "as stderr is no terminal"
    assert "everything works here" in run.stdout
    assert "passed" not in run.stdout


def test_time_left_goes_by_how_long_trials_take_here(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is computed at 2 s, and what follows them at 4 s; the first takes 10 s, the second is an earlier run's."""
    trials = [Trial(recipe, "tiny", "naive", "cpu", 1) for recipe in ("vit", "roberta", "mamba", "convnext")]
    seconds = dict.fromkeys((trial.id for trial in trials), 2.0) | {trials[1].id: 0.0}
    bar = Progress(seconds, 4.0)
    for trial, took in zip(trials, (10.0, 99.0, 2.0, 2.0), strict=True):
        bar.tell(trial, altered(Record.of(trial, "crashed"), reason="as told", wall_seconds=took), took == 99.0)
    output = re.findall(r"about (.*) left", capsys.readouterr().err)
    assert output == ["33 s", "16 s"], "10.6 / 2.6 x (2 + 2 + 4), then 12.6 / 4.6 x (2 + 4)"


def test_what_takes_no_time_says_nothing_of_the_pace(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [Trial(recipe, "tiny", "naive", "cpu", 1) for recipe in ("vit", "mamba")]
    bar = Progress({trial.id: 30.0 for trial in trials}, 4.0)
    bar.tell(trials[0], altered(Record.of(trials[0], "unsupported"), reason="as told", wall_seconds=0.0), False)
    assert "about 34 s left" in capsys.readouterr().err


def test_no_more_time_is_left_than_the_budget_allows(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [Trial(recipe, "tiny", "naive", "cpu", 1) for recipe in ("vit", "roberta", "mamba")]
    bar = Progress({trial.id: 3000.0 for trial in trials}, 4.0, budget=1800.0)
    bar.tell(trials[0], altered(Record.of(trials[0], "crashed"), reason="as told", wall_seconds=6000.0), False)
    bar.tell(trials[1], None, False)
    assert re.findall(r"about (.*) left", capsys.readouterr().err) == ["30 min", "30 min"]


def test_a_part_that_an_earlier_check_had_done_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Progress({"one": 10.0, "two": 20.0}, 0.0)
    bar.tell_part("one", None)
    bar.tell_part("two", 7.0)
    assert capsys.readouterr().err == "[2/2] two: 7 s\n"


def test_a_line_a_trial_tells_what_became_of_it() -> None:
    measured = record("vit", "naive", 7.0, wall_seconds=12.34)
    trials = [Trial(recipe, "tiny", "naive", "cpu", 1) for recipe in ("vit", "roberta", "mamba", "convnext")]
    bar = Progress({trial.id: 10.0 for trial in trials}, 0.0)
    with redirect_stderr(io.StringIO()) as output:
        bar.tell(trials[0], measured, earlier=True)
        bar.tell(trials[1], measured, earlier=False)
        bar.tell(trials[2], altered(Record.of(trials[2], "crashed"), reason="as told", wall_seconds=2.0), earlier=False)
        bar.tell(trials[3], None, earlier=False)
    assert re.findall(r"\[./4\] [^;\n]*", output.getvalue()) == [
        f"[1/4] {trials[0].id}: {measured.derived.true_step:.3g} s a training step, MBS 4 (from an earlier run)",
        f"[2/4] {trials[1].id}: {measured.derived.true_step:.3g} s a training step, MBS 4 (12.3 s)",
        f"[3/4] {trials[2].id}: crashed, as told (2.0 s)",
        f"[4/4] {trials[3].id}: not measured, the time budget would not suffice",
    ]


def test_the_report_says_what_was_measured_and_that_nothing_was_verified(finished: Finished) -> None:
    folder, run = finished
    for text in (run.stdout, (folder / "report.md").read_text()):
        assert (
            "settings ran on this CPU at tiny scale: everything works here. No number of the paper was measured" in text
        )
        assert "of the papers' 236 claims hold and 39 differ" in text
        assert "288 cells" not in text
        assert text.lower().count("convnext") >= 2


def test_a_cell_nobody_measured_is_never_passed(finished: Finished) -> None:
    folder, run = finished
    verdicts = json.loads((folder / "verdicts.json").read_text())
    assert len(verdicts) == 288
    assert {row["verdict"] for row in verdicts} == {"not_measured"}
    assert set(verdicts[0]) >= {
        "table", "model", "gpu", "gpus", "expected_days", "clock", "verdict", "true_verdict", "true_days",
        "true_settings", "authors_verdict", "authors_days", "authors_settings",
    }  # fmt: skip
    assert "288 skipped" in run.stderr


def test_the_environment_is_kept_beside_the_results(finished: Finished) -> None:
    folder, _ = finished
    found = json.loads((folder / "environment.json").read_text())
    assert found["packages"]["torch"]
    assert {"commit", "lock", "seed", "host", "gpus", "driver"} <= set(found)


@pytest.mark.skipif(not (ROOT / ".git").exists() or shutil.which("git") is None, reason="needs a checkout")
def test_the_commit_is_this_checkout_s_whoever_owns_it_and_starts_the_run(finished: Finished) -> None:
    folder, run = finished
    commit = json.loads((folder / "environment.json").read_text())["commit"]
    assert commit is not None, run.stderr
    assert commit.removesuffix("-dirty") == git(ROOT, "rev-parse", "HEAD")
    info = json.loads((folder / "benchmark.json").read_text())["commit_info"]
    assert info["id"] + "-dirty" * info["dirty"] == commit


def test_pytest_benchmark_reads_the_measured_steps_and_not_the_launch(finished: Finished) -> None:
    folder, _ = finished
    content = json.loads((folder / "benchmark.json").read_text())
    steps = {row["id"]: row["step_rounds"] for row in records(folder)}
    assert len(content["benchmarks"]) == 4
    for case in content["benchmarks"]:
        assert case["stats"]["data"] == pytest.approx(steps[case["param"]])
        assert case["params"]["trial"].endswith("/naive")
        assert case["group"]
        assert case["extra_info"]["authors_days"] > 0
    tool = Path(sys.executable).parent / "pytest-benchmark"
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for place in (ROOT, folder):
        command = [str(tool), "compare", str(folder / "benchmark.json")]
        shown = subprocess.run(command, cwd=place, env=plain, capture_output=True, text=True, check=True)
        assert "convnext/tiny/2xcpu/naive" in shown.stdout


def test_a_run_begins_its_trials_with_its_environment(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    first, *others = map(json.loads, (copy / "trials.jsonl").read_text().splitlines())
    assert first["environment"]["options"]["models"] == ["convnext", "vit"]
    with_imports, *_ = (each["environment"] for each in others if "environment" in each)
    assert with_imports["imported"] == {}
    assert with_imports == json.loads((copy / "environment.json").read_text())
    (copy / "environment.json").write_text('{"repro": "0.')
    again = repro(*FOUR, "--out", str(copy))
    assert again.returncode == 0, again.stderr
    assert "4 of them done by an earlier run" in again.stderr
    assert (copy / "environment.json").read_text() == (folder / "environment.json").read_text()
    assert (copy / "trials.jsonl").read_bytes() == (folder / "trials.jsonl").read_bytes()


def test_the_same_folder_again_measures_nothing_twice(folder: Path) -> None:
    before = (folder / "trials.jsonl").read_bytes()
    (folder / "logs" / "server.log").unlink()
    again = repro(*FOUR, "--out", str(folder), "--format", "json")
    assert again.returncode == 0
    assert "4 of them done by an earlier run" in again.stderr
    assert (folder / "trials.jsonl").read_bytes() == before
    assert not (folder / "logs" / "server.log").exists(), "the stack is not even loaded"
    assert len(json.loads(again.stdout)["trials"]) == 4
    assert len(json.loads((folder / "benchmark.json").read_text())["benchmarks"]) == 4


def test_another_run_into_the_folder_keeps_what_was_measured_asked_and_where(
    finished: Finished, extended: Finished, tmp_path: Path
) -> None:
    before = {row["id"]: row for row in records(finished[0])}
    kept, other = extended
    assert other.returncode == 0, other.stderr
    folder = shutil.copytree(kept, tmp_path / "run")
    cases = json.loads((folder / "benchmark.json").read_text())["benchmarks"]
    ids = ["vit/tiny/2xcpu/naive/4-rounds", *before]
    assert sorted(case["extra_info"]["id"] for case in cases) == sorted(ids)
    assert {row["id"]: row for row in records(folder)}.items() >= before.items()
    assert all(row["commit"] for row in records(folder)) == bool(environment.commit())
    found = json.loads((folder / "environment.json").read_text())
    assert [options["models"] for options in found["earlier"]] == [["convnext", "vit"]]
    assert found["options"]["models"] == ["vit"]
    output = (folder / "report.md").read_text()
    assert re.search(r"`.* --models convnext,vit .*`: a run before this one, into the same folder", output)
    assert re.search(r"`.* --models vit .*`: this run: it resumes", output)
    chosen = repro(*FOUR, "--out", str(folder), "--", "-k", "convnext")
    assert chosen.returncode == 0, chosen.stderr
    assert len(json.loads((folder / "benchmark.json").read_text())["benchmarks"]) == 5


def test_trials_of_other_rounds_are_reported_apart(finished: Finished, extended: Finished) -> None:
    assert "4-rounds" not in finished[1].stdout
    folder, run = extended
    for output in (run.stdout, (folder / "report.md").read_text()):
        [row] = [line for line in output.splitlines() if "(4-rounds)" in line and " ok " in line]
        assert "naive (4-rounds)" in row


def test_what_is_no_sound_record_is_reported_kept_and_to_be_measured_again(folder: Path) -> None:
    whole = (folder / "trials.jsonl").read_text().splitlines()
    third = whole.index(trial_lines(folder)[2])
    (folder / "trials.jsonl").write_text("\n".join([*whole[:third], "{broken"]) + "\n")
    again = repro(*FOUR, "--out", str(folder), "--budget", "1s")
    assert again.returncode == 0, again.stderr
    broken, first, *rest = again.stderr.splitlines()
    assert broken.startswith(f"repro: {folder}/trials.jsonl, line {third + 1}: not a trial's record (")
    assert "2 of them done by an earlier run" in first
    assert (folder / "trials.jsonl").read_text().splitlines()[: third + 1] == [*whole[:third], "{broken"]
    assert len(trial_lines(folder)) == 3, "its options alone came to it"
    left = re.findall(r"\] (\S+): not measured, the time budget would not suffice", "\n".join(rest))
    assert left == ["vit/tiny/1xcpu/naive", "vit/tiny/2xcpu/naive"]


@pytest.mark.parametrize(
    ("known", "waits"),
    [({}, False), ({"host_ran_out": True}, True), ({"gpu_state": [{"processes": 2}]}, True)],
    ids=["its own", "the host's", "another's"],
)
def test_what_ran_out_of_memory_that_was_not_its_own_is_measured_again(
    known: dict[str, Any], waits: bool, tmp_path: Path
) -> None:
    full = altered(Record.of(Trial("vit", "tiny", "naive", "cpu", 1), "out_of_memory"), **known)
    options = Options(models=("vit",), methods="naive", scale="tiny", counts=(1,))
    with Run(results_folder(tmp_path / "run", full), options, []) as run:
        assert bool(run.waiting) == waits


@pytest.mark.parametrize(("full", "waits"), [([], False), ([{"processes": 1}], False), ([{"processes": 2}], True)])
def test_a_micro_batch_that_others_left_no_larger_room_for_is_measured_again(
    full: list[dict[str, float]], waits: bool, tmp_path: Path
) -> None:
    smaller = record("vit", "naive", 1.0, "cpu", 1, scale="tiny", full=full)
    options = Options(models=("vit",), methods="naive", scale="tiny", counts=(1,))
    with Run(results_folder(tmp_path / "run", smaller), options, []) as run:
        assert bool(run.waiting) == waits


def test_the_exit_code_follows_the_chosen_clock(tmp_path: Path) -> None:
    """Of a cell that agrees by true days alone, and is measured once."""
    folder = tmp_path / "run"

    true = measured(folder, "naive", "4", "true", "20", "41")
    assert true.returncode == 0, true.stderr
    assert "1 was compared by true days: 1 reproduced" in (folder / "report.md").read_text()
    authors = measured(folder, "naive", "4", "authors", "20", "41")
    assert authors.returncode == 1, authors.stderr
    assert "measured 20.0 days by the authors' clock (41.0 true days), faster" in authors.stderr
    (row,) = [one for one in json.loads((folder / "verdicts.json").read_text()) if one["verdict"] != "not_measured"]
    assert (row["clock"], row["verdict"], row["true_verdict"]) == ("authors", "faster", "reproduced")
    options = json.loads((folder / "environment.json").read_text())["options"]
    assert options["clock"] == "authors"
    assert read(folder).verdicts[0].clock == "true", "whoever reads it names a clock of their own"
    assert not [problem for problem in read(folder).problems if problem.where == "verdicts.json"]
    assert len(read(folder).records) == 1


def test_a_run_ends_by_writing_the_report_and_saying_where_it_is(finished: Finished) -> None:
    folder, run = finished
    assert run.stderr.splitlines()[-1] == f"repro: the report is {folder / 'report.html'}"
    for name in ("report.html", "report.md"):
        assert "No number of the paper was measured; that needs one of its GPUs." in (folder / name).read_text()
        assert "Report of a run on 1 x cpu and 2 x cpu" in (folder / name).read_text()
        assert "What is wrong" not in (folder / name).read_text()


def test_a_comparison_that_is_required_and_impossible_is_exit_code_3_in_every_format(folder: Path) -> None:
    found = repro(*FOUR, "--out", str(folder), "--format", "csv", "--require-comparison")
    assert found.returncode == 3
    assert "no cell of the paper could be compared" in found.stderr
    rows = csv.DictReader(io.StringIO(found.stdout))
    assert [row["recipe"] for row in rows] == ["convnext", "convnext", "vit", "vit"]


def test_pytests_own_options_stand_behind_two_dashes_and_in_no_variable(folder: Path) -> None:
    of_others = {"PYTEST_ADDOPTS": "--nonsense", "PYTEST_PLUGINS": "nonsense", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    found = repro(*FOUR, "--out", str(folder), "--", "-k", "test_trial and vit and 2xcpu", cwd=ROOT, **of_others)
    assert found.returncode == 0, found.stderr
    assert "1 passed" in found.stderr
    assert "repro: 1 trial, 1 of them done by an earlier run; about 4 s to go" in found.stderr, "for the report"
    assert "[1/1] vit/tiny/2xcpu" in found.stderr
    for expression, output in (("nonsense", "no case matches"), ("vit cell", "pytest does not understand this")):
        nothing = repro(*FOUR, "--out", str(folder), "--", "-k", expression)
        assert nothing.returncode == 2
        (line,) = nothing.stderr.splitlines()
        assert line.startswith(f"repro: -k {expression}: {output}")
    for option in ("--no-such-option", "-n2"):
        refused = repro(*FOUR, "--out", str(folder), "--", option)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.endswith(f"repro: pytest does not take -- {option}, see above\n")
    assert "vit: expected options; behind -- stand those of pytest" in refusal("run", "vit")


def test_processes_mean_the_cpu_whatever_gpus_are_asked_for(folder: Path) -> None:
    words = ("--gpus", "all", "--processes", "1,2", "--out", str(folder), "--", "-k", "test_trial")
    found = repro(*FOUR[:4], *words, REPRO_IMAGE="hopper", CUDA_VISIBLE_DEVICES="0")  # in an image too, for GPUs
    assert found.returncode == 0, found.stderr
    assert found.stderr.startswith("repro: --processes 1,2 runs on the CPU, so --gpus all is left out\n")


def test_a_spent_budget_starts_no_trial_loads_no_stack_and_says_so(tmp_path: Path) -> None:
    found = repro(*ONE, "--out", str(tmp_path), "--budget", "1s")
    assert found.returncode == 0
    assert re.match(r"repro: 1 trial; about .*, by estimate, of which the budget allows 1 s; on the CPU", found.stderr)
    assert "the time budget would not suffice" in found.stderr
    assert "Warning" not in found.stderr
    assert not (tmp_path / "logs" / "server.log").exists(), "the stack is not even loaded"
    assert records(tmp_path) == []
    assert "None of its trials was measured." in found.stdout


def test_a_trial_that_the_budget_cuts_short_has_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Run(tmp_path, Options(("vit",), "naive", "tiny", (1,), budget=1000.0), []) as run:

        def cut(trial: Trial, bench: object, *, fixed_size: bool, until: float, **_: object) -> Record:
            assert until - time.monotonic() <= 1000
            monkeypatch.setattr(time, "monotonic", lambda: until)
            return Record.of(trial, "timed_out")

        monkeypatch.setattr("repro.run.run.run_trial", cut)
        assert run.record(run.trials[0]) is None
        assert run.records() == []


@pytest.mark.parametrize(
    ("status", "seconds", "search", "stands"),
    [
        ("ok", 5.0, "exhaustive", True),
        ("out_of_memory", 5.0, "exhaustive", True),
        ("crashed", 5.0, "exhaustive", False),
        ("unsupported", 0.0, "exhaustive", False),
        ("interrupted", 5.0, "exhaustive", False),
        ("timed_out", 60.0, "exhaustive", True),
        ("timed_out", 59.0, "exhaustive", False),  # it had less time than it has now
        ("skipped", 0.0, "3", True),
        ("skipped", 0.0, "5", False),
        ("skipped", 0.0, "exhaustive", False),
    ],
)
def test_a_record_stands_unless_another_try_may_tell_more(
    status: Any, seconds: float, search: Any, stands: bool, tmp_path: Path
) -> None:
    options = Options(("mamba",), "all", "tiny", (1,), trial_timeout=60.0, search=search)
    run = Run(tmp_path, options, [])
    with Results(tmp_path) as results:
        days = 1.0 if status == "ok" else None
        settings = run.trials[3].settings
        known: dict[str, Any] = {"wall_seconds": seconds}
        if status == "skipped":
            known["reason"] = "it is not among the 3 best predicted"
        results.append(record("mamba", settings, days, "cpu", 1, status, "tiny", **known))
    with run:
        assert run.waiting == [trial for trial in run.trials if not (stands and trial == run.trials[3])]


@pytest.mark.parametrize("status", ["ok", "out_of_memory", "timed_out", "skipped"])
def test_what_another_machine_measured_keeps_its_folder_whatever_is_asked_for(status: Any, tmp_path: Path) -> None:
    results_folder(tmp_path, record("convnext", "naive", 3.0 if status == "ok" else None, status=status))
    described = '{"packages": {"torch": "2.0.0"}, "python": "3.11.0", "gpus": []}'
    (tmp_path / "environment.json").write_text(described)
    refused = command_line.repro(*ONE, "--out", str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert refused.returncode == 2
    assert "torch was 2.0.0" in refused.stderr
    assert (tmp_path / "environment.json").read_text() == described


@pytest.mark.parametrize("known", [{"host_ran_out": True}, {"gpu_state": [{"processes": 2}]}])
def test_another_stack_may_measure_again_what_ran_out_of_memory_that_was_not_its_own(
    known: dict[str, Any], tmp_path: Path
) -> None:
    full = record("vit", "naive", None, "cpu", 1, status="out_of_memory", scale="tiny", **known)
    results_folder(tmp_path, full)
    (tmp_path / "environment.json").write_text('{"packages": {"torch": "2.0.0"}, "python": "3.11.0", "gpus": []}')
    options = Options(models=("vit",), methods="naive", scale="tiny", counts=(1,))
    with Run(tmp_path, options, []) as run:
        assert len(run.waiting) == 1


def test_a_second_run_in_the_same_folder_is_reported_who_holds_it(tmp_path: Path) -> None:
    with Results(tmp_path):
        output = refusal(*FOUR, "--out", str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert "is held by another run" in output


def test_a_wish_to_stop_that_python_drops_after_a_fork_is_heard() -> None:
    program = """
import os, signal, time
from repro.commands.stopping import stop_on_sigterm
stop_on_sigterm()
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGTERM))
if not os.fork():
    os._exit(0)
os.wait()
try:
    time.sleep(30)
except KeyboardInterrupt:
    print("stopped")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


@pytest.mark.parametrize(
    ("ending", "pause"), [(signal.SIGINT, 0.05), (signal.SIGTERM, 0.7)], ids=["at once", "one after the other"]
)
def test_a_run_that_is_asked_to_stop_five_times_says_how_to_resume(
    ending: signal.Signals, pause: float, tmp_path: Path
) -> None:
    run = started(*ONE, "--out", str(tmp_path), program=IMPATIENT, REPRO_COMMAND="./run_all.sh")
    wait_for(lambda: (tmp_path / "logs" / "server.log").is_file())
    for _ in range(5):
        run.send_signal(ending)
        time.sleep(pause)
    _, output = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130, output
    assert "KeyboardInterrupt" not in output
    assert output.splitlines()[-1].startswith(
        "repro: interrupted: what is finished is kept; resume with: ./run_all.sh "
    )


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_nothing_running_and_resumes(
    ending: signal.Signals, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    temporary, later = tmp_path_factory.mktemp("temporary"), tmp_path_factory.mktemp("later")
    run = started(*TWO, "--out", str(tmp_path), program=IMPATIENT, REPRO_COMMAND="./run_all.sh", TMPDIR=str(temporary))
    wait_for(lambda: len(records(tmp_path)) >= 1)
    family = psutil.Process(run.pid).children(recursive=True)
    run.send_signal(ending)
    _, output = run.communicate(timeout=PATIENCE)
    if ending != signal.SIGKILL:
        assert run.returncode == 130
        assert "interrupted: what is finished is kept; resume with: ./run_all.sh " in output
        assert "KeyboardInterrupt" not in output
        assert (tmp_path / "report.md").is_file()
        assert (tmp_path / "report.html").is_file()
        assert " --models convnext,vit" in output
        assert [*temporary.iterdir()] == []
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
    if ending == signal.SIGTERM:
        return  # it resumes as after a Ctrl-C

    kept = [row for row in records(tmp_path) if row["status"] == "ok"]
    assert len(kept) >= 1
    budget = ["--budget", "1s"] if ending == signal.SIGINT else []
    resumed = repro(*TWO, "--out", str(tmp_path), *budget, TMPDIR=str(later))
    assert resumed.returncode == 0
    assert [*later.iterdir()] == []
    assert f"{len(kept)} of them done by an earlier run" in resumed.stderr
    if ending == signal.SIGINT:
        return
    done = [row["id"] for row in records(tmp_path) if row["status"] == "ok"]
    assert len(done) == len(set(done)) == 2
