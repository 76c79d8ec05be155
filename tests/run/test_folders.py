"""Several results folders, of several machines or stacks, read as one set of trials."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro.record import Record
from repro.run.reading import read
from tests.support.command_line import ROOT, answer, record, refusal, repro, results_folder

TEXT, VISION = "results/h100/text", "results/h100/vision"
OLD = "results/cpu-2-cores"  # of repro 0.4.0, on a CPU
BOTH = ("--measured", TEXT, "--measured", VISION)
Row = dict[str, Any]


def of(started: float | None, days: float, **known: Any) -> Record:
    """A trial of ViT on one H100, by a stack that started then."""
    return record("vit", "free_lunch", days, gpu="H100", count=1, stack_started=started, **known)


def days(*folders: Path) -> tuple[float, str]:
    """What is taken for the days of ViT on one H100, and what is said on stderr."""
    named = [word for folder in folders for word in ("--measured", str(folder))]
    done = repro("cost", "vit", *named, "--format", "json")
    assert done.returncode == 0, done.stderr
    [row] = [row for row in json.loads(done.stdout)["rows"] if row["origin"] == "measured"]
    return row["days"], done.stderr


# --- Each trial is what it is in its own folder ---


@pytest.mark.parametrize("table", ["1", "4", "j"])
def test_a_table_has_the_cells_of_all_folders(table: str) -> None:
    def measured(*named: str) -> list[Row]:
        rows = answer("table", table, *named)
        return [row for row in rows if row.get("measured_settings") or row.get("verdict") not in (None, "not_measured")]

    def key(row: Row) -> str:
        return str(row["model"])

    both = measured(*BOTH)
    assert sorted(both, key=key) == sorted([*measured(*BOTH[:2]), *measured(*BOTH[2:])], key=key)
    assert {row["model"] for row in both} > {"ViT", "Pythia-1B"}


def test_an_audit_has_the_days_of_all_folders() -> None:
    def audited(*named: str) -> list[Row]:
        return [row for row in answer("audit", *named) if row["table"] == "measured"]

    alone = [*audited("--measured", TEXT), *audited("--measured", VISION)]
    assert len(alone) == 2 * 13, "by each clock"
    both = audited(*BOTH)
    assert all(row in both for row in alone)
    assert len(both) == len(alone)


def test_claims_are_checked_on_the_records_of_all_folders() -> None:
    reasons = {row["id"]: row["reason"] for row in answer("claims", *BOTH)}
    for table, cells in (("1", 144), ("4", 143)):
        assert reasons[f"table-{table}-cells"].partition(
            f"; 7 of its {cells} cells were compared; by the authors' clock "
        )[2]


def test_each_trial_is_predicted_by_the_traces_of_its_own_folders_stack(tmp_path: Path) -> None:
    older = shutil.copytree(ROOT / VISION, tmp_path / "older")
    environment = json.loads((older / "environment.json").read_text())
    environment["packages"] |= {"transformers": "4.44.2", "torch": "2.3.1", "timm": "1.0.8"}
    (older / "environment.json").write_text(json.dumps(environment))
    asked = ("predict", "--gpu", "H100", "--models", "vit,roberta")
    rows = answer(*asked, "--measured", TEXT, "--measured", str(older))
    assert rows == answer(*asked, "--measured", TEXT) + answer(*asked, "--measured", str(older))
    traced = {row["recipe"]: row["traced_transformers"] for row in rows}
    assert traced["vit"] != traced["roberta"]
    output = repro(*asked, "--measured", TEXT, "--measured", str(older)).stdout
    assert f"trials of {TEXT} from traces of the models of transformers {traced['roberta']} " in output
    assert f"trials of {older} from traces of the models of transformers {traced['vit']}" in output


def test_days_name_the_folder_that_they_are_of() -> None:
    for model, folder in (("mamba", TEXT), ("vit", VISION)):
        done = answer("cost", model, "--gpu", "H100", "--gpus", "1", *BOTH)
        assert {row["source"].partition(",")[0] for row in done["rows"]} == {folder}


def test_a_folder_of_an_older_version_is_read_beside_others() -> None:
    done = repro("table", "3", "--measured", OLD, *BOTH, "--format", "json")
    assert done.returncode == 0, done.stderr
    measured = [row["model"] for row in json.loads(done.stdout) if row["measured_parameters"] is not None]
    assert {"Pythia-1B", "ViT"} <= set(measured)


# --- The same trial in several folders ---


def test_of_a_trial_that_several_folders_have_the_newer_record_counts_and_it_is_said(tmp_path: Path) -> None:
    older = results_folder(tmp_path / "older", of(1000.0, 40.0), record("mamba", "naive", 90.0, gpu="H100", count=1))
    newer = results_folder(tmp_path / "newer", of(2000.0, 30.0))
    said = (
        f"repro: Of a trial that several folders have the newest record counts: 1 record of {newer}, not of {older} "
        "(vit/paper/1xH100/free_lunch).\n"
    )
    for folders in ((older, newer), (newer, older)):
        found, output = days(*folders)
        assert found == pytest.approx(30.0)
        assert said in output
        assert output.count("newest record counts") == 1
    assert "newest" not in days(older)[1]


def test_a_record_without_a_start_is_as_old_as_the_one_before_it_in_its_folder(tmp_path: Path) -> None:
    other = record("mamba", "naive", 90.0, gpu="H100", count=1, stack_started=1500.0)
    folders = results_folder(tmp_path / "a", other, of(None, 30.0)), results_folder(tmp_path / "b", of(1000.0, 40.0))
    assert days(*folders)[0] == pytest.approx(30.0)
    later = results_folder(tmp_path / "c", of(1600.0, 20.0))
    assert days(later, *folders)[0] == pytest.approx(20.0)


def test_of_records_without_any_start_that_of_the_folder_named_last_counts(tmp_path: Path) -> None:
    first, second = results_folder(tmp_path / "a", of(None, 40.0)), results_folder(tmp_path / "b", of(None, 30.0))
    assert days(first, second)[0] == pytest.approx(30.0)
    assert days(second, first)[0] == pytest.approx(40.0)
    dated = results_folder(tmp_path / "dated", of(1000.0, 20.0))
    assert days(dated, second)[0] == pytest.approx(20.0), "what kept no starts is older"


def test_what_was_skipped_later_takes_the_place_of_no_measurement(tmp_path: Path) -> None:
    measured = results_folder(tmp_path / "measured", of(1000.0, 30.0))
    skipped = record("vit", "free_lunch", None, gpu="H100", count=1, status="skipped", reason="slower")
    later = results_folder(tmp_path / "later", replace(skipped, stack_started=2000.0))
    assert days(measured, later)[0] == pytest.approx(30.0)


def test_a_settings_measured_again_with_more_rounds_counts_for_its_cell(tmp_path: Path) -> None:
    newer = results_folder(tmp_path / "newer", replace(of(2000.0, 30.0), id="vit/paper/1xH100/free_lunch/9-rounds"))
    older = results_folder(tmp_path / "older", of(1000.0, 20.0))
    for folders in ((older, newer), (newer, older)):
        assert days(*folders)[0] == pytest.approx(30.0), "the last that ran"


# --- What is refused ---


def test_a_folder_is_named_once_also_by_another_name(tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to(ROOT / TEXT)
    said = f"repro: {link} is the same folder as {TEXT}: name each results folder once\n"
    assert refusal("report", TEXT, str(link), "--out", str(tmp_path / "out")) == said
    assert not (tmp_path / "out").exists()


def test_a_folder_without_trials_is_named_among_several(tmp_path: Path) -> None:
    (empty := tmp_path / "empty").mkdir()
    for words in (("report", TEXT, str(empty)), ("table", "1", "--measured", str(empty), "--measured", TEXT)):
        assert f"{empty}/trials.jsonl is missing, where a run keeps its trials" in repro(*words).stderr


# --- One report ---


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """A file of the report of both folders, or, as `stderr`, what is said of it."""
    out = tmp_path_factory.mktemp("both")
    done = repro("report", TEXT, VISION, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return lambda name: done.stderr if name == "stderr" else (out / name).read_text()


def test_it_is_of_the_trials_of_all_and_says_where_each_was_measured(reported: Callable[[str], str]) -> None:
    for name in ("report.md", "report.html"):
        text = reported(name)
        assert "Report of 2 runs on 1 x H100" in text
        assert "The 2 runs have 26 trials at paper scale: 13 ok, 11 skipped, 2 out of memory." in text
        assert text.count(f"Measured in {TEXT}.") == 6
        assert text.count(f"Measured in {VISION}.") == 2


def test_it_shows_the_environment_of_each(reported: Callable[[str], str]) -> None:
    text, page = reported("report.md"), reported("report.html")
    for folder, transformers in ((TEXT, "5.17.0"), (VISION, "5.23.0")):
        part = text.partition(f"### {folder}\n")[2].partition("\n#")[0]
        assert f"transformers {transformers}" in part
        assert "driver: 580.159.04" in part
        assert f"<h3>{folder}</h3>" in page
        assert f", transformers {transformers}, " in page


def test_it_names_the_problems_of_each_with_its_folder(reported: Callable[[str], str]) -> None:
    for folder in (TEXT, VISION):
        problem = f"{folder}/trials.jsonl: "
        for name in ("report.md", "report.html", "stderr"):
            assert problem in reported(name)


def test_it_says_how_to_make_it_again(reported: Callable[[str], str]) -> None:
    assert f"report {TEXT} {VISION}`: this report, from the records alone" in reported("report.md")
    assert f"table 1 --measured {TEXT} --measured {VISION}`: Table 1" in reported("report.md")


@pytest.mark.slow
def test_it_lies_in_none_of_the_folders_and_it_is_said_where(tmp_path: Path) -> None:
    for each in (TEXT, VISION):
        folder = tmp_path / Path(each).name
        results_folder(folder, *read(ROOT / each).records)
    done = repro("report", "text", "vision", "--format", "csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("repro: the report is results/report/report.html\n")
    assert (tmp_path / "results" / "report" / "report.md").is_file()
    assert not [*tmp_path.glob("text/report.*"), *tmp_path.glob("vision/report.*")]
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert {row["recipe"]: row["folder"] for row in rows}["vit"] == "vision"
    assert {row["recipe"]: row["folder"] for row in rows}["mamba"] == "text"


def test_each_folder_has_its_table_of_trials_beside_the_papers_gpu_like_its_own(
    tmp_path: Path,
) -> None:
    cards = {"A6000": "NVIDIA RTX A6000", "H100": "NVIDIA H100 80GB HBM3"}
    environment = json.loads((ROOT / TEXT / "environment.json").read_text())
    for gpu, driver_name in cards.items():
        folder = results_folder(tmp_path / gpu, record("vit", "naive", 199.0, gpu=gpu, count=1))
        gpus = [{"name": gpu, "driver_name": driver_name, "memory_bytes": 10**10}]
        (folder / "environment.json").write_text(json.dumps(environment | {"gpus": gpus}))
    repro("report", "A6000", "H100", cwd=tmp_path)
    text = (tmp_path / "results/report/report.md").read_text()
    for gpu in cards:
        assert f"| paper, {gpu} " in text.partition(f"### ViT on 1 x {gpu} ")[2].partition("\n### ")[0]
    assert "Report of 2 runs on 1 x A6000 and 1 x H100" in text


def test_cells_are_judged_within_the_least_tolerance_that_a_run_asked_for(tmp_path: Path) -> None:
    named = []
    for name, tolerance in (("wide", 0.5), ("narrow", 0.1)):
        environment = json.loads((ROOT / TEXT / "environment.json").read_text())
        environment["options"] |= {"tolerance": tolerance}
        one = record("vit" if name == "wide" else "mamba", "naive", 120.0, gpu="H100", count=1)
        folder = results_folder(tmp_path / name, one, **environment)
        named += ["--measured", str(folder)]
    done = repro("table", "4", *named, "--format", "json")
    assert "The runs asked for tolerances of 10% and 50%: cells are judged within 10%." in done.stderr
    verdicts = {
        verdict: [row["verdict"] for row in answer("table", "4", *words) if row["model"] == "ViT" and row["true_days"]]
        for verdict, words in (("alone", named[:2]), ("both", named))
    }
    assert verdicts == {"alone": ["reproduced"], "both": ["slower"]}, "120 days for 93"
