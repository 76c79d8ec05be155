"""A record is believed as far as its folder supports it: what is made up verifies nothing, and says why it does not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro import datafile
from repro.machine.environment import Environment, keep
from repro.machine.environment import read as read_environment
from repro.paper.gpus import find
from repro.record import Record, Trial
from repro.run.reading import join, read
from repro.run.results import TRIALS
from repro.steps import derive
from tests.support.command_line import ROOT, answer, listed, record, repro, results_folder

KEPT = ROOT / "results"
H100 = {"name": "H100", "driver_name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85_520_809_984}
WORDS = ("reproduced", "faster", "slower", "feasibility_differs")
Forge = Callable[[dict[str, Any], dict[str, Any]], object]


def forged(folder: Path, records: list[dict[str, Any]], environment: dict[str, Any]) -> Path:
    folder.mkdir()
    (folder / TRIALS).write_text("".join(f"{json.dumps(each)}\n" for each in records))
    (folder / "environment.json").write_text(json.dumps(environment))
    return folder


def kept(folder: str, id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A record of a kept folder, and its environment."""
    lines = (KEPT / folder / TRIALS).read_text().splitlines()
    (found,) = [each for line in lines if (each := json.loads(line))["id"] == id]
    return found, json.loads((KEPT / folder / "environment.json").read_text())


def among_trials(folder: Path) -> Path:
    """The folder with its environment in a line before its trials, as runs write it now, and without its file."""
    file = folder / "environment.json"
    line = json.dumps({"environment": json.loads(file.read_text())})
    (folder / TRIALS).write_text(f"{line}\n{(folder / TRIALS).read_text()}")
    file.unlink()
    return folder


def verified(folder: Path) -> list[str]:
    return [verdict.cell for verdict in read(folder).verdicts if verdict.verdict in WORDS]


def derived_again(found: dict[str, Any]) -> dict[str, Any]:
    """The record with all derived numbers redone from what it says now."""
    one = datafile.from_json(Record, found)
    return datafile.to_json(replace(one, derived=derive(one, find(one.device))))


def named(found: dict[str, Any]) -> dict[str, Any]:
    trial = Trial(**{name: found[name] for name in ("recipe", "scale", "settings", "device", "count", "nodes")})
    return found | {"id": trial.id}


# What is kept


@pytest.mark.parametrize("path", sorted(KEPT.rglob(TRIALS)), ids=lambda path: str(path.parent.relative_to(KEPT)))
def test_every_record_that_is_kept_is_believed(path: Path) -> None:
    reading = read(path.parent)
    assert reading.records
    assert [record.reason for record in reading.records if record.status == "not_measured"] == []


@pytest.mark.parametrize(("folder", "cells"), [("h100/text", 11), ("h100/vision", 3)])
def test_the_verdicts_of_what_is_kept_stay(folder: str, cells: int) -> None:
    assert len(verified(KEPT / folder)) == cells


# Seven fields


SEVEN = {
    "id": "pythia-6.9b/paper/1xH100/naive",
    "recipe": "pythia-6.9b",
    "scale": "paper",
    "settings": "naive",
    "device": "H100",
    "count": 1,
    "status": "out_of_memory",
}


def test_seven_fields_verify_no_cell(tmp_path: Path) -> None:
    environment = json.loads((KEPT / "cpu-2-cores" / "environment.json").read_text())
    folder = forged(tmp_path / "run", [SEVEN], environment)
    assert verified(folder) == []
    why = "its machine is 1 x H100, and the run's environment lists no GPU"
    (cell,) = [one for one in read(folder).verdicts if one.cell == "Table 4, Pythia-6.9B on 1 H100"]
    assert (cell.verdict, cell.reason) == ("not_measured", why)


def test_nor_do_they_where_the_gpu_and_the_commit_are_made_up_too(tmp_path: Path) -> None:
    folder = forged(tmp_path / "run", [SEVEN], {"gpus": [H100]})
    assert verified(folder) == []
    (left,) = read(folder).records
    assert left.reason.startswith("it ran out of memory without what the GPU said of its memory")


@pytest.mark.parametrize("environment", [{}, {"repro": "0.1.0"}, {"repro": "0.4.0", "gpus": []}, {"gpus": None}])
def test_a_folder_that_pretends_to_be_old_or_empty_passes_nothing(environment: dict[str, Any], tmp_path: Path) -> None:
    found, _ = kept("h100/text", "pythia-410m/paper/1xH100/naive")
    assert verified(forged(tmp_path / "run", [found, SEVEN], environment)) == []


def test_a_folder_without_an_environment_passes_nothing(tmp_path: Path) -> None:
    found, environment = kept("h100/text", "pythia-410m/paper/1xH100/naive")
    folder = forged(tmp_path / "run", [found, SEVEN], environment)
    (folder / "environment.json").unlink()
    assert verified(folder) == []


@pytest.mark.parametrize("file", [None, '{"repro": "0.', "{}"], ids=["missing", "torn", "of nothing"])
@pytest.mark.parametrize("name", ["cpu-2-cores", "h100/text"])
def test_an_environment_among_the_trials_supports_them_whatever_its_file_says(
    name: str, file: str | None, tmp_path: Path
) -> None:
    folder = among_trials(shutil.copytree(KEPT / name, tmp_path / "run"))
    if file is not None:
        (folder / "environment.json").write_text(file)
    before, after = read(KEPT / name), read(folder)
    assert (after.records, after.environment, after.verdicts) == (before.records, before.environment, before.verdicts)
    assert after.problems == before.problems


@pytest.mark.parametrize("cut", [1, 40, 4000])
def test_the_last_whole_environment_among_the_trials_counts(cut: int, tmp_path: Path) -> None:
    folder = among_trials(shutil.copytree(KEPT / "h100" / "text", tmp_path / "run"))
    before = read(folder)
    line, _ = (folder / TRIALS).read_text().split("\n", 1)
    with (folder / TRIALS).open("a") as file:
        file.write(line[:-cut])
    after = read(folder)
    assert (after.records, after.environment) == (before.records, before.environment)
    assert {problem.what for problem in after.problems} - {problem.what for problem in before.problems} == {
        "the last line is torn, its trial was stopped"
    }


# One change to an honest folder. Each verified its cell before.


OK, FULL = "pythia-410m/paper/1xH100/naive", "mamba/paper/1xH100/naive"


def set_(**values: Any) -> Forge:
    return lambda record, _: record.update(values)


def around(**values: Any) -> Forge:
    return lambda _, environment: environment.update(values)


def gpu(**values: Any) -> Forge:
    return lambda _, environment: environment.update(gpus=[H100 | values])


def rank_state(**values: Any) -> Forge:
    return set_(gpu_state=[dict.fromkeys(("sm_mhz", "processes", "power_w"), None) | values])


def full_of(**values: Any) -> Forge:
    return lambda record, _: record.update(full=[values], gpu_state=None)


FORGED: dict[str, tuple[str, Forge, str]] = {
    "no GPU": (OK, around(gpus=[]), "lists no GPU"),
    "no GPU said": (OK, around(gpus=None), "lists no GPU"),
    "a GPU of another name": (OK, gpu(name="A100", driver_name="NVIDIA A100-SXM4-80GB"), "lists 1 x A100"),
    "another driver's name": (OK, gpu(driver_name="NVIDIA GeForce GTX 1050"), "lists 1 x unknown GPU (NVIDIA GeForce"),
    "another card's driver name": (OK, gpu(driver_name="NVIDIA H200"), "lists 1 x unknown GPU (NVIDIA H200)"),
    "a smaller GPU": (OK, gpu(memory_bytes=2**34), "bytes of a GPU that has 17,179,869,184"),
    "no memory": (OK, gpu(memory_bytes=0), "bytes of a GPU that has 0"),
    "another commit": (
        OK,
        set_(commit="1" * 40),
        f"it was written by commit {'1' * 40}, and the run's environment lists",
    ),
    "no commit": (OK, set_(commit=None), "it was written by no known commit"),
    "a clean commit": (OK, around(commit=None, commits=[]), "environment lists no known commit"),
    "other commits": (OK, around(commit=None, commits=["2" * 40]), f"lists commit {'2' * 40} and no known commit"),
    "no state": (OK, set_(gpu_state=None), "in which state the GPU of each rank was"),
    "an empty state": (OK, set_(gpu_state=[]), "in which state the GPU of each rank was"),
    "a state of nothing": (OK, set_(gpu_state=[{}]), "in which state the GPU of each rank was"),
    "an unknown state": (OK, rank_state(), "in which state the GPU of each rank was"),
    "no rank's state": (OK, set_(gpu_state=[None]), "in which state the GPU of each rank was"),
    "a rank too many": (OK, set_(gpu_state=[{"sm_mhz": 1980}] * 2), "in which state the GPU of each rank was"),
    "a peak beyond the GPU": (OK, set_(peak_memory=10**11), "it took 100,000,000,000 bytes of a GPU that has"),
    "a size beyond the GPU": (OK, set_(peaks=[[4, 10**11]]), "it took 100,000,000,000 bytes of a GPU that has"),
    "the host's clock": (
        OK,
        lambda one, _: one.update(derived_again(one | {"device_times": one["host"]})),
        "as on a CPU",
    ),
    "full, no GPU": (FULL, around(gpus=[]), "lists no GPU"),
    "full, no commit": (FULL, set_(commit=None), "it was written by no known commit"),
    "full, nothing said": (FULL, set_(full=[], gpu_state=None), "without what the GPU said of its memory"),
    "full, no memory said": (FULL, full_of(sm_mhz=1980), "without what the GPU said of its memory"),
    "full, memory unknown": (FULL, full_of(memory_bytes=None), "without what the GPU said of its memory"),
    "full, another GPU's": (FULL, full_of(memory_bytes=2**34), "of a GPU of 17,179,869,184 bytes"),
    "full, a little more": (
        FULL,
        full_of(memory_bytes=95 * 10**9),
        "and the run's environment lists one of 85,520,809,984",
    ),
    "full, a size of nothing": (FULL, set_(full=[], gpu_state=None, peaks=[[1, 0]]), "a size that fitted before"),
    "full, half a size": (FULL, set_(full=[], gpu_state=None, peaks=[[1]]), "a size that fitted before"),
    "full, too large a size": (FULL, set_(peaks=[[1, 10**11]]), "it took 100,000,000,000 bytes of a GPU that has"),
    "full, of the host": (FULL, set_(host_ran_out=True, full=[], gpu_state=None), "what the GPU said of its memory"),
}


@pytest.mark.parametrize("write", [forged, lambda *what: among_trials(forged(*what))], ids=["file", "line"])
@pytest.mark.parametrize("what", FORGED)
def test_what_its_folder_does_not_support_is_not_measured_and_says_why(
    what: str, write: Callable[..., Path], tmp_path: Path
) -> None:
    id, forge, why = FORGED[what]
    found, environment = kept("h100/text", id)
    honest = write(tmp_path / "honest", [found], environment)
    assert len(verified(honest)) == 1
    forge(found, environment)
    folder = write(tmp_path / "forged", [found], environment)
    reading = read(folder)
    assert verified(folder) == []
    (left,) = reading.records
    assert (left.status, left.derived.true_days, left.derived.authors_days, left.derived.utilisation) == (
        "not_measured",
        None,
        None,
        None,
    )
    assert why in left.reason
    assert any(f"1 record is not believed, as {left.reason} ({id})" in str(problem) for problem in reading.problems)
    assert any(left.reason in verdict.reason for verdict in reading.verdicts)


@pytest.mark.parametrize("factor", [0.001, 0.01, 0.05])
def test_more_than_the_gpus_peak_by_the_true_clock_is_not_measured(factor: float, tmp_path: Path) -> None:
    found, environment = kept("h100/text", OK)
    found["device_times"] = [
        {part: [factor * s for s in times] for part, times in one.items()} for one in found["device_times"]
    ]
    folder = forged(tmp_path / "run", [derived_again(found)], environment)
    (left,) = read(folder).records
    assert left.status == "not_measured"
    assert "of the GPU's dense peak, more than there is" in left.reason
    assert verified(folder) == []


def test_by_the_authors_clock_alone_an_honest_record_may_exceed_the_peak(tmp_path: Path) -> None:
    found, environment = kept("h100/text", "pythia-160m/paper/1xH100/free_lunch")
    found["host"] = [{part: [s / 5 for s in times] for part, times in one.items()} for one in found["host"]]
    (left,) = read(forged(tmp_path / "run", [derived_again(found)], environment)).records
    assert left.status == "ok"
    assert left.derived.utilisation is not None
    assert left.derived.true_step is not None
    assert left.derived.authors_step is not None
    assert left.derived.utilisation * left.derived.true_step / left.derived.authors_step > 1


def test_a_count_that_the_machine_does_not_have_is_not_measured(tmp_path: Path) -> None:
    found, environment = kept("h100/text", OK)
    for name in ("host", "device_times", "synchronised", "gpu_state"):
        found[name] *= 4
    found |= {"count": 4, "accumulation": found["accumulation"] // 4}
    folder = forged(tmp_path / "run", [derived_again(named(found))], environment)
    (left,) = read(folder).records
    assert left.reason == "its machine is 4 x H100, and the run's environment lists 1 x H100"
    assert verified(folder) == []


# A CPU's record, with its device renamed and all that follows from its times redone


def renamed(**more: Any) -> dict[str, Any]:
    """A record that a CPU left, as one of an H100 at the paper's scale."""
    found, _ = kept("cpu-2-cores", "pythia-410m/tiny/1xcpu/naive")
    recipe_size = {"scale": "paper", "accumulation": 1024 // found["micro_batch"], "tf32": False}
    return derived_again(named(found | recipe_size | {"device": "H100"}) | more)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "in which state the GPU of each rank was"),
        ({"gpu_state": [{"sm_mhz": 1980, "processes": 1}]}, "as on a CPU"),
    ],
    ids=["the device", "and a state"],
)
def test_a_cpus_record_that_is_renamed_verifies_nothing(more: dict[str, Any], why: str, tmp_path: Path) -> None:
    _, environment = kept("cpu-2-cores", "pythia-410m/tiny/1xcpu/naive")
    alone = forged(tmp_path / "alone", [renamed(**more)], environment)
    assert verified(alone) == []
    assert [left.reason for left in read(alone).records] == [
        "its machine is 1 x H100, and the run's environment lists no GPU"
    ]
    listing_it = forged(tmp_path / "listed", [renamed(**more)], environment | {"gpus": [H100]})
    assert verified(listing_it) == []
    (left,) = read(listing_it).records
    assert why in left.reason


# Every command, and several folders


@pytest.fixture
def seven(tmp_path: Path) -> str:
    honest, environment = kept("h100/text", OK)
    return str(forged(tmp_path / "seven", [honest | {"commit": "3" * 40}, SEVEN], environment | {"commit": "4" * 40}))


@pytest.mark.parametrize("format", ["text", "markdown", "json", "csv"])
def test_a_report_shows_what_it_does_not_believe_with_its_reason(format: str, seven: str, tmp_path: Path) -> None:
    done = repro("report", seven, "--out", str(tmp_path / "out"), "--format", format)
    assert done.returncode == 0, done.stderr
    output = " ".join(done.stdout.split()).replace("\\_", "_")
    assert "not_measured" in output
    assert f"it was written by commit {'3' * 40}" in output
    assert "1 record is not believed" in done.stderr
    assert "none was compared" in done.stdout or format == "csv"


def test_tables_claims_and_audit_take_nothing_that_is_not_believed(seven: str) -> None:
    for table in ("1", "4"):
        rows = answer("table", table, "--measured", seven)
        assert {row["verdict"] for row in rows} == {"not_measured"}
        assert {row["true_days"] for row in rows} == {None}
    assert not [row for row in answer("table", "j", "--measured", seven) if row["measured_settings"]]
    assert "it settles no claim" in repro("claims", "--measured", seven).stderr
    assert OK not in repro("audit", "--measured", seven, "--format", "json").stdout


def test_of_joined_folders_what_is_believed_counts(seven: str) -> None:
    honest = read(KEPT / "h100" / "text")
    for folders in ((honest, read(Path(seven))), (read(Path(seven)), honest)):
        joined = join(*folders)
        assert [v.cell for v in joined.verdicts if v.verdict in WORDS] == verified(KEPT / "h100" / "text")
        (one,) = [record for record in joined.records if record.id == OK]
        assert one.status == "ok"


def test_a_forged_line_behind_an_honest_one_takes_nothing_away(tmp_path: Path) -> None:
    found, environment = kept("h100/text", OK)
    folder = forged(tmp_path / "run", [found, found | {"commit": "3" * 40}], environment)
    reading = read(folder)
    assert [record.status for record in reading.records] == ["ok"]
    assert any("where an earlier record stands for it" in str(problem) for problem in reading.problems)


# What a run writes


def test_environment_lists_every_commit_that_wrote_a_record(tmp_path: Path) -> None:
    for commit in ("a", "b", "a", None):
        keep(replace(Environment(), repro="0.4.0", commit=commit, commits=[commit]), tmp_path)
    found = read_environment(tmp_path)
    assert found is not None
    assert (found.commit, found.commits) == (None, ["a", "b", None])


def test_a_commit_of_a_version_that_kept_one_alone_stays_listed(tmp_path: Path) -> None:
    shutil.copy(KEPT / "h100" / "text" / "environment.json", tmp_path)
    before = read_environment(tmp_path)
    assert before is not None
    keep(replace(before, commit="b", commits=["b"]), tmp_path)
    after = read_environment(tmp_path)
    assert after is not None
    assert after.commits == [before.commit, "b"]


def test_a_run_on_fewer_gpus_keeps_those_of_the_run_before(tmp_path: Path) -> None:
    many, one = (listed(record("vit", "naive", 300.0, count=count)) for count in (4, 1))
    for each in (many, one):
        keep(each, tmp_path)
    found = read_environment(tmp_path)
    assert found is not None
    assert len(found.gpus or []) == 4


def test_a_folder_of_several_commits_is_believed_whole(tmp_path: Path) -> None:
    first, second = record("vit", "naive", 300.0, commit="a"), record("mamba", "naive", 900.0, commit="b")
    assert {each.status for each in read(results_folder(tmp_path / "run", first, second)).records} == {"ok"}
