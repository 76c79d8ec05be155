"""A results folder that is not whole: what is wrong is named with its place, and what is sound is still used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro.console import UserError
from repro.paper.gpus import find
from repro.record import Derived, Trial
from repro.report.sections import compose
from repro.run.reading import read
from repro.run.records import history
from repro.validity import contradiction
from tests.support.command_line import (
    ROOT,
    altered,
    answer,
    of_more_rounds,
    record,
    refusal,
    repro,
    results_folder,
)

KEPT = ROOT / "results" / "cpu-2-cores"
OPTIONS = json.loads((KEPT / "environment.json").read_text())["options"]
Row = dict[str, Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a whole run."""
    return shutil.copytree(KEPT, tmp_path / "run")


def change(folder: Path, number: int, how: Callable[[Row], Row]) -> Row:
    """Changes a line of trials.jsonl, counted from 1; the row as it was."""
    trials = folder / "trials.jsonl"
    lines = trials.read_text().splitlines()
    was = json.loads(lines[number - 1])
    lines[number - 1] = json.dumps(how(dict(was)))
    trials.write_text("\n".join(lines) + "\n")
    return was


def output(folder: Path) -> list[str]:
    return [str(problem) for problem in read(folder).problems]


def test_a_whole_run_has_no_problem() -> None:
    found = read(KEPT)
    assert found.problems == ()
    assert len(found.records) == 57
    assert found.options is not None
    assert found.options.counts == (1, 2)
    assert [verdict.verdict for verdict in found.verdicts] == ["not_measured"] * 288


def test_there_must_be_a_folder_with_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere holds no trials, there is no such folder: name the results folder"):
        read(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"report\.md holds no trials, it is a file: name the results folder of a run"):
        read(KEPT / "report.md")
    with pytest.raises(UserError, match=r"/dev/null holds no trials, it is a file: name the results folder of a run"):
        read(Path("/dev/null"))
    with pytest.raises(
        UserError, match=r"/trials\.jsonl is missing, where a run keeps its trials: name the results folder of a run"
    ):
        read(tmp_path)
    with pytest.raises(UserError, match=r"cannot be read: File name too long"):
        read(tmp_path / ("x" * 300))


@pytest.mark.parametrize("broken", ["{broken", "42", '{"id": "only"}', "\x00\x00"])
def test_a_line_that_is_no_record_is_named_and_left_out(folder: Path, broken: str) -> None:
    trials = folder / "trials.jsonl"
    lines = trials.read_text().splitlines()
    lines.insert(16, broken)
    trials.write_text("\n".join(lines) + "\n")
    (problem,) = output(folder)
    assert problem.startswith("trials.jsonl, line 17: not a trial's record (")
    assert problem.endswith("; the line was left out")
    assert len(read(folder).records) == 57


def test_of_lines_that_are_no_records_the_first_is_named_and_others_counted(folder: Path) -> None:
    trials = folder / "trials.jsonl"
    trials.write_text("{broken\n" * 1_500 + trials.read_text())
    (problem,) = output(folder)
    assert problem.startswith("trials.jsonl, line 1: not a trial's record (not JSON")
    assert problem.endswith(", and 1,499 more lines are invalid; these lines were left out")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("micro_batch", 4),
        ("micro_batch", -1),
        ("authors_micro_batch", 3),
        ("settings", "free_lunch"),
        ("settings", "sorcery"),
        ("recipe", "gpt-5"),
        ("count", 2),
        ("device", "H100"),
        ("host", []),
        ("accumulation", None),
        ("host", [{"with": [0.1] * 3, "without": [0.1] * 3}]),
        ("device_times", [{"with": [-1.0], "without": [0.1], "update": [0.1]}]),
        ("device_times", [{"with": [1e300] * 3, "without": [0.1] * 3, "update": [0.1] * 3}]),
        ("mean_power", [-1.0]),
    ],
)
def test_a_record_that_contradicts_itself_is_named_as_tampered_and_not_used(
    folder: Path, field: str, value: object
) -> None:
    was = change(folder, 1, lambda row: row | {field: value})
    tampered, missing = output(folder)
    assert tampered.startswith(f"trials.jsonl, line 1: {was['id']} was tampered with or damaged: ")
    assert tampered.endswith("; the record was left out")
    assert "1 of the 57 trials that the last command asked for has no valid record" in missing
    assert was["id"] not in {record.id for record in read(folder).records}


def test_the_problems_of_a_history_are_printed_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(folder, 2, lambda row: row | {"count": 3})
    assert [len(history(folder)) for _ in range(2)] == [56, 56]
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"repro: {folder}/trials.jsonl, line 2: ")
    assert "was tampered with or damaged: its id is " in line


@pytest.mark.parametrize("value", [0.5, None])
@pytest.mark.parametrize("field", ["authors_step", "true_step", "true_days", "examples_per_second", "utilisation"])
def test_what_follows_from_raw_times_is_derived_whatever_a_record_says(
    folder: Path, field: str, value: float | None
) -> None:
    change(folder, 1, lambda row: row | {field: value, "step_rounds": []})
    assert read(folder).records == read(KEPT).records
    change(folder, 1, lambda row: row | {"status": "out_of_memory"})
    assert read(folder).records[0].derived == Derived()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("micro_batch", "many", "Expected `int | null`, got `str` - at `$.micro_batch`"),
        ("micro_batch", 10**400, "not JSON (a whole number of more than 64 bits)"),
        ("true_step", float("nan"), "not JSON (JSON is malformed: invalid character (byte "),
        ("host", {}, "Expected `array`, got `object` - at `$.host`"),
        ("status", "great", "Invalid enum value 'great' - at `$.status`"),
        ("gpu_state", [{"power_w": "x"}], "Expected `int | float | null`, got `str` - at `$.gpu_state[0][...]`"),
    ],
)
def test_a_value_of_the_wrong_kind_makes_a_line_no_record(folder: Path, field: str, value: object, reason: str) -> None:
    change(folder, 2, lambda row: row | {field: value})
    assert f"trials.jsonl, line 2: not a trial's record ({reason}" in output(folder)[0]


def test_a_line_says_which_field_it_lacks(folder: Path) -> None:
    change(folder, 2, lambda row: {"id": row["id"], "recipe": row["recipe"], "scale": row["scale"]})
    assert "line 2: not a trial's record (Object missing required field `settings`);" in output(folder)[0]


def test_an_earlier_sound_record_of_the_trial_stands(folder: Path) -> None:
    trials = folder / "trials.jsonl"
    again = json.loads(trials.read_text().splitlines()[4]) | {"accumulation": 0}
    trials.write_text(trials.read_text() + json.dumps(again) + "\n")
    (problem,) = output(folder)
    assert problem.startswith("trials.jsonl, line 58: ")
    assert problem.endswith("line 5 stands for the trial")
    assert len(read(folder).records) == 57


def test_the_latest_sound_record_of_a_trial_counts(tmp_path: Path) -> None:
    runs = [
        record("vit", "naive", None, status="crashed"),
        record("vit", "naive", 127.0),
        record("vit", "naive", 128.0),
    ]
    assert read(results_folder(tmp_path / "run", *runs)).records == (runs[-1],)


def test_a_torn_last_line_is_reported(folder: Path) -> None:
    trials = folder / "trials.jsonl"
    trials.write_bytes(trials.read_bytes()[:-40])
    torn, missing = output(folder)
    assert torn == "trials.jsonl: the last line is torn, its trial was stopped; it was left out"
    assert "1 of the 57 trials" in missing


def test_a_run_that_was_stopped_says_how_much_of_it_there_is(folder: Path) -> None:
    trials = folder / "trials.jsonl"
    trials.write_text("".join(trials.read_text().splitlines(keepends=True)[:10]))
    (problem,) = output(folder)
    assert (
        "47 of the 57 trials that the last command asked for have no valid record, the first is pythia-1b/tiny/2xcpu"
        in problem
    )
    assert "10 records were used" in problem
    trials.write_text(trials.read_text().splitlines(keepends=True)[0])
    assert "1 record was used" in output(folder)[0]


def test_a_run_that_only_began_can_be_read(folder: Path) -> None:
    trials = folder / "trials.jsonl"
    trials.write_text("")
    for lack in ("empty", "missing"):
        assert output(folder) == [
            f"trials.jsonl: {lack}: no trial of the run ended, or the folder is not whole; the same command again "
            "measures what is missing"
        ]
        assert read(folder).records == ()
        trials.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "broken", "missing"),
    [
        (
            "environment.json",
            "it describes no run (not JSON (",
            "the folder is not whole; nothing is known of machine, stack and options: put back the one that the run "
            "wrote",
        ),
    ],
)
def test_a_missing_or_broken_file_is_named(folder: Path, name: str, broken: str, missing: str) -> None:
    (folder / name).write_text("{")
    assert output(folder)[0].startswith(f"{name}: {broken}")
    (folder / name).write_text("null")
    assert output(folder)[0].startswith(f"{name}: it ")
    (folder / name).unlink()
    (problem,) = output(folder)
    assert problem == f"{name}: missing: {missing}"
    assert len(read(folder).records) == 57


NO_RUN = "environment.json: it describes no run ("


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"options": {"models": []}}, "environment.json: its options are none that this version has"),
        ({"options": {**OPTIONS, "models": [3]}}, "environment.json: its options are none that this version has"),
        ({"options": {**OPTIONS, "tolerance": 1.0}}, "environment.json: its options are none that this version has"),
        ({"options": {**OPTIONS, "tolerance": 0.0}}, "environment.json: its options are none that this version has"),
        ({"options": {**OPTIONS, "counts": [0]}}, "environment.json: its options are none that this version has"),
        ({"options": {**OPTIONS, "nodes": 0}}, "environment.json: its options are none that this version has"),
        ({"gpus": [{}]}, f"{NO_RUN}Object missing required field `name` - at `$.gpus[0]`)"),
        ({"host": 3}, f"{NO_RUN}Expected `object`, got `int` - at `$.host`)"),
        ({"host": {"memory_bytes": "much"}}, f"{NO_RUN}Expected `int`, got `str` - at `$.host.memory_bytes`)"),
        ({"lock": {"differences": 3}}, f"{NO_RUN}Expected `object`, got `int` - at `$.lock.differences`)"),
        ({"packages": 3}, f"{NO_RUN}Expected `object | null`, got `int` - at `$.packages`)"),
        ({"variables": 3}, f"{NO_RUN}Expected `object | null`, got `int` - at `$.variables`)"),
    ],
)
def test_a_run_of_another_version_is_read_as_far_as_it_goes(folder: Path, changed: Row, what: str) -> None:
    path = folder / "environment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    (problem,) = output(folder)
    assert problem.startswith(what)
    assert len(read(folder).records) == 57
    compose(read(folder))


def test_a_run_without_a_clock_in_its_options_was_asked_for_none(folder: Path) -> None:
    environment = json.loads((folder / "environment.json").read_text())
    environment["options"].pop("clock", None)
    (folder / "environment.json").write_text(json.dumps(environment))
    found = read(folder)
    assert found.options is not None
    assert found.options.clock == "true"
    environment["options"]["clock"] = "host"
    (folder / "environment.json").write_text(json.dumps(environment))
    assert "its options are none that this version has" in "".join(map(str, read(folder).problems))


def test_a_utilisation_is_of_the_peak_that_the_catalogue_has_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever mends a wrong peak, as a report asks for, keeps what was measured."""
    a100 = find("A100")
    assert a100 is not None
    assert a100.bf16_tflops is not None
    assert a100.fp16_tflops is not None
    folder = results_folder(tmp_path / "run", record("pythia-1b", "free_lunch+zero_1", 18.0, true_days=22.0))
    [before] = read(folder).records
    cleaned = replace(a100, fp16_tflops=a100.fp16_tflops / 1.2, bf16_tflops=a100.bf16_tflops / 1.2)
    monkeypatch.setattr("repro.run.records.find", lambda device: cleaned)
    after = read(folder)
    assert before.derived.utilisation is not None
    assert after.records[0].derived.utilisation == pytest.approx(1.2 * before.derived.utilisation)


def test_records_without_times_are_read(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("vit", "naive", None, status="out_of_memory"))
    assert len(read(folder).records) == 1


@pytest.mark.parametrize("unknown", [{"wrapper": ""}, {"weights_held": None}, {"micro_batch": None}])
def test_a_record_that_ran_says_what_ran(unknown: dict[str, Any]) -> None:
    sound = record("pythia-1b", "free_lunch+zero_1", 18.0)
    assert contradiction(sound) is None
    assert contradiction(altered(sound, **unknown)) is not None


@pytest.mark.parametrize("clock", ["host", "device_times", "synchronised"])
def test_a_record_has_the_raw_times_of_every_rank_and_all_are_positive(clock: str) -> None:
    sound = record("pythia-1b", "free_lunch+zero_1", 18.0)
    ranks = getattr(sound.times, clock)
    output = contradiction(altered(sound, **{clock: ranks[:1]}))
    assert output == f"{clock} has the times of 1 ranks, 4 took part"
    stopped: Any = [*ranks[:3], ranks[3] | {"without": [0.0, 1.0, 1.0]}]
    assert contradiction(altered(sound, **{clock: stopped})) == "a raw time of it is not positive"


@pytest.mark.parametrize("clock", ["host", "device_times", "synchronised"])
@pytest.mark.parametrize("part", ["without", "with", "update"])
@pytest.mark.parametrize(("rank", "times"), [(0, 4), (3, 4), (3, 2)])
def test_every_rank_has_as_many_rounds_of_every_part(clock: str, part: str, rank: int, times: int) -> None:
    sound = record("pythia-1b", "free_lunch+zero_1", 18.0)
    ranks = list(getattr(sound.times, clock))
    ranks[rank] = ranks[rank] | {part: ranks[rank][part][:1] * times}
    changed: dict[str, Any] = {clock: ranks}
    both = " and ".join(map(str, sorted((3, times))))
    assert contradiction(altered(sound, **changed)) == (
        f"its raw times are of {both} rounds, every rank times as many of each part"
    )


def test_utilisation_is_of_the_peak_with_tf32_only_where_it_ran() -> None:
    naive, free_lunch = (record("vit", settings, 100.0) for settings in ("naive", "free_lunch"))
    assert free_lunch.derived.utilisation is not None
    assert naive.derived.utilisation == pytest.approx(free_lunch.derived.utilisation * 156 / 19.5)


def test_a_record_whose_id_names_a_memory_limit_had_one() -> None:
    """Without it, it would stand for a cell."""
    sound = record("pythia-1b", "free_lunch+zero_1", 18.0, memory=2**30)
    for more in ("", "/8-rounds", "/checked", "/micro-batch-4", "/8-rounds/checked/micro-batch-4"):
        assert contradiction(replace(sound, id=sound.id + more)) is None
    output = contradiction(replace(sound, memory_limit=None))
    assert output == f"its id is {sound.id}, what it says of itself makes {sound.id.removesuffix('/1GiB')}"


def test_a_record_of_settings_that_there_are_not_is_none() -> None:
    sound = record("pythia-1b", "free_lunch", 18.0)
    output = contradiction(replace(sound, settings="sorcery", id=sound.id.replace("free_lunch", "sorcery")))
    assert str(output).startswith("unknown settings 'sorcery'")


def test_devices_of_several_nodes_all_took_part() -> None:
    one = record("pythia-1b", "free_lunch+zero_1", 18.0)
    two = replace(one, count=2, nodes=2, id=Trial(one.recipe, "paper", one.settings, "A100", 2, nodes=2).id)
    assert contradiction(two) is None
    assert str(contradiction(replace(two, nodes=1))).startswith("its id is ")


@pytest.mark.parametrize("command", ["table 1", "audit", "claims"])
def test_commands_that_put_a_run_beside_the_paper_say_what_is_wrong_with_it(folder: Path, command: str) -> None:
    change(folder, 1, lambda row: row | {"accumulation": 0})
    found = repro(*command.split(), "--measured", str(folder))
    assert found.returncode == 0
    trials = folder / "trials.jsonl"
    assert f"repro: {trials}, line 1: pythia-160m/tiny/1xcpu/naive was tampered with or damaged" in found.stderr
    trials.write_text("{}\n")
    nothing = repro(*command.split(), "--measured", str(folder))
    assert nothing.returncode == 2
    assert "holds no trials that can be used" in nothing.stderr.splitlines()[-1]


READING = (
    "table 1 --measured {}",
    "audit --measured {}",
    "claims --measured {}",
    "predict --measured {}",
    "cost pythia-1b --measured {}",
    f"compare {KEPT} {{}}",
)


@pytest.mark.parametrize("command", READING)
def test_whoever_reads_a_folder_names_its_trials_where_they_are_missing(folder: Path, command: str) -> None:
    trials = folder / "trials.jsonl"
    trials.unlink()
    assert refusal(*command.format(folder).split()) == lacks(trials, "missing")


def test_trials_that_are_empty_or_alone_are_named_too(folder: Path) -> None:
    trials = folder / "trials.jsonl"
    trials.write_text("")
    assert refusal(*READING[0].format(folder).split()) == lacks(trials, "empty")
    (folder / "environment.json").unlink()
    for command in (READING[0], "report {}"):
        assert refusal(*command.format(folder).split()) == lacks(trials, "empty")


def lacks(trials: Path, what: str) -> str:
    """The line that names a missing or empty file of trials."""
    return f"repro: {trials} is {what}, where a run keeps its trials: name the results folder of a run (its --out)\n"


@pytest.mark.parametrize(
    ("command", "damage"),
    [*((command, "missing") for command in (*READING, "report {}")), (READING[0], "torn"), (READING[0], "a folder")],
)
def test_whoever_reads_a_folder_names_its_environment_where_it_is_missing_or_damaged(
    folder: Path, command: str, damage: str
) -> None:
    environment = folder / "environment.json"
    if damage == "torn":
        environment.write_text("{")
    else:
        environment.unlink()
    if damage == "a folder":
        environment.mkdir()
    output = repro(*command.format(folder).split()).stderr.splitlines()
    (line,) = [line for line in output if str(environment) in line]
    assert line.startswith(
        (f"repro: {environment}: missing: the folder", f"repro: {environment}: it describes no run (")
    )
    assert line.endswith("; nothing is known of machine, stack and options: put back the one that the run wrote")


def test_a_report_of_a_run_without_trials_names_the_file_that_it_lacks(folder: Path) -> None:
    trials = folder / "trials.jsonl"
    trials.unlink()
    (folder / "report.md").unlink()
    output = repro("report", str(folder)).stderr.splitlines()
    assert output[0].startswith(f"repro: {trials}: missing: no trial of the run ended, or the folder is not whole; ")
    assert len(output) == 2, "and where the report is"


def test_a_folder_of_lab_is_no_runs_and_keeps_its_own_report(tmp_path: Path) -> None:
    lab = shutil.copytree(ROOT / "results" / "lab-cpu-1-core", tmp_path / "lab")
    before = (lab / "report.md").read_bytes()
    for command in (("report", str(lab)), ("table", "1", "--measured", str(lab))):
        assert "holds trainings of repro lab" in refusal(*command)
    assert (lab / "report.md").read_bytes() == before
    assert not (lab / "report.html").exists()


def test_of_trials_with_other_rounds_the_last_that_ran_stands(
    tmp_path: Path,
) -> None:
    crashed = record("pythia-1b", "naive", None, status="crashed")
    more, again = (record("pythia-1b", "naive", days) for days in (60.0, 41.0))
    folder = results_folder(tmp_path / "run", crashed, of_more_rounds(more), again)
    days = [row["true_days"] for row in answer("table", "4", "--measured", str(folder))]
    assert [each for each in days if each is not None] == [pytest.approx(41.0)]
