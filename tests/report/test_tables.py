"""`repro table`: the paper's tables in every format, and a run's values beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repro.report.tables import NUMBERS
from repro.run.verdict import judge_tables
from tests.support.command_line import ROOT, answer, of_more_rounds, record, repro, results_folder

ENTRIES = {"1": 144, "3": 9, "4": 144, "5": 4, "6": 16, "7": 2, "j": 140}


def printed(*arguments: str) -> str:
    done = repro("table", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(*arguments: str) -> list[dict[str, Any]]:
    return answer("table", *arguments)


@pytest.mark.parametrize("number", NUMBERS)
def test_every_table_has_all_its_entries_each_with_its_source(number: str) -> None:
    found = rows(number)
    assert len(found) == ENTRIES[number]
    assert all(row["source"].startswith("paper, ") for row in found)


@pytest.fixture
def measured(tmp_path: Path) -> str:
    folder = results_folder(
        tmp_path / "run",
        record("pythia-1b", "naive", 60.0, true_days=62.0, weights=1_011_781_632, ran_precision="bf16"),
        record("pythia-1b", "free_lunch+zero_1", 17.6),
        record("pythia-1b", "free_lunch", 17.5),
        of_more_rounds(record("pythia-1b", "free_lunch", 19.0)),  # so this one stands
        record("pythia-1b", "free_lunch+fsdp_2", 17.5, memory=2**30),
        record("pythia-1b", "free_lunch+fsdp_2", 9.0, nodes=2),
        record("vit", "naive", None, status="out_of_memory", count=1),
        record("vit", "naive", 0.5, scale="tiny", count=2),
    )
    return str(folder)


def test_measured_days_stand_beside_the_expected_ones(measured: str) -> None:
    cells = {(row["model"], row["gpus"]): row for row in rows("4", "--measured", measured) if row["gpu"] == "A100"}
    pythia = cells["Pythia-1B", 4]
    assert (pythia["days"], pythia["true_days"], pythia["authors_days"]) == (41, 62.0, 60.0)
    assert (pythia["clock"], pythia["verdict"], pythia["true_settings"]) == ("true", "slower", "naive")
    assert (cells["ViT", 1]["days"], cells["ViT", 1]["verdict"]) == (246, "feasibility_differs")
    assert cells["ViT", 2]["verdict"] == "not_measured", "a tiny recipe stands for no cell"
    text = printed("4", "--measured", measured)
    assert text.startswith(
        "Table 4 as measured: by true days 142 not measured, 1 slower and 1 feasibility differs of 144"
    )
    lines = {" ".join(line.split()[:3]): line.split()[3:] for line in text.splitlines() if " x " in line}
    assert (lines["4 x A100"][2], lines["1 x A100"][8], lines["2 x A100"][8]) == ("62▲", "-✗", ".")


def test_the_clock_chooses_which_days_are_judged_and_come_first(tmp_path: Path) -> None:
    run = record("pythia-1b", "naive", 41.0, true_days=62.0)
    folder = str(results_folder(tmp_path / "run", run))
    text = printed("4", "--measured", folder, "--by", "authors")
    assert "  41✓  " in text
    assert "✓ reproduced: days agree within the tolerance" in text
    (row,) = [one for one in rows("4", "--measured", folder, "--by", "authors") if one["verdict"] != "not_measured"]
    assert (row["by"], row["verdict"], row["true_days"], row["authors_days"]) == ("authors", "reproduced", 62.0, 41.0)
    (row,) = [one for one in rows("4", "--measured", folder, "--by", "true") if one["verdict"] != "not_measured"]
    assert (row["by"], row["verdict"], row["days"]) == ("true", "slower", 62.0)


def test_the_clock_decides_which_settings_stand_beside_appendix_j(tmp_path: Path) -> None:
    launched_early = record("pythia-1b", "free_lunch", 5.0, true_days=30.0)
    folder = str(results_folder(tmp_path / "run", record("pythia-1b", "free_lunch+zero_1", 18.0), launched_early))

    def measured(*clock: str) -> Any:
        (row,) = [one for one in rows("j", "--measured", folder, *clock) if one["measured_settings"]]
        return row["measured_settings"], row["measured_true_days"], row["measured_authors_days"]

    assert measured() == ("free_lunch+zero_1", pytest.approx(18.0), pytest.approx(18.0))
    assert measured("--by", "authors") == ("free_lunch", pytest.approx(30.0), pytest.approx(5.0))


def test_the_best_measured_settings_stand_beside_appendix_j(measured: str) -> None:
    found = [row for row in rows("j", "--measured", measured) if row["measured_settings"]]
    assert [(row["model"], row["gpu"], row["gpus"]) for row in found] == [("Pythia-1B", "A100", 4)]
    assert found[0]["measured_settings"] == "free_lunch+zero_1"
    assert (found[0]["mbs"], found[0]["gas"]) == (16, 16)
    assert (found[0]["measured_mbs"], found[0]["measured_gas"]) == (4, 64)


def test_the_micro_batch_of_the_authors_clock_stands_beside_the_papers(tmp_path: Path) -> None:
    known: dict[str, Any] = {"micro_batch": 2, "authors_micro_batch": 16, "true_days": 25.0}
    one = record("pythia-1b", "free_lunch+zero_1", 18.0, **known)
    assert [one.derived.authors_days, one.derived.true_days] == pytest.approx([18, 25])
    assert one.clocks_ratio is None
    folder = str(results_folder(tmp_path / "run", one))
    (found,) = [row for row in rows("j", "--measured", folder) if row["measured_settings"]]
    assert (found["measured_mbs"], found["measured_gas"], found["measured_true_days"]) == (16, 16, pytest.approx(25))
    (verdict,) = [each for each in judge_tables([one], 0.15) if each.compared]
    assert (verdict.true.verdict, verdict.authors.verdict) == ("slower", "reproduced")
    assert verdict.true.micro_batch == verdict.authors.micro_batch == 16
    beside = ("predict", "--gpu", "A100", "--gpus", "4", "--measured", folder, "--models", "pythia-1b")
    (row,) = answer(*beside)
    assert row["measured_micro_batch"] == row["predicted_micro_batch"] == 16
    assert "the micro batch is as predicted in 1 of 1, " in repro(*beside).stdout


def test_counted_parameters_stand_beside_table_3(measured: str) -> None:
    pythia = next(row for row in rows("3", "--measured", measured) if row["model"] == "Pythia-1B")
    assert (pythia["parameters"], pythia["measured_parameters"]) == (10**9, 1_011_781_632)
    assert pythia["measured_precision"] == "bf16"


def test_a_run_on_a_cpu_stands_beside_no_cell() -> None:
    for number in ("1", "4"):
        found = rows(number, "--measured", str(ROOT / "results" / "cpu-2-cores"))
        assert {row["verdict"] for row in found} == {"not_measured"}
        assert {row["true_days"] for row in found} == {row["authors_days"] for row in found} == {None}


def test_measured_days_by_the_thousand_are_written_out(tmp_path: Path) -> None:
    run = record("pythia-6.9b", "naive", 1234.4)
    assert " 1234✗ " in printed("4", "--measured", str(results_folder(tmp_path / "run", run)))
