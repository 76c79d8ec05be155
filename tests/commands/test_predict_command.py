"""`repro predict`: both tables at once and without torch, any GPU of the catalogue, and how good it is."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest

from repro.console import UserError
from repro.paper.tables import cells
from repro.predict import fits, traces
from repro.predict.report import from_traces
from repro.predict.traces import nearest_here, shipped
from tests.support.command_line import ROOT, answer, one_line, process, record, refusal, repro, results_folder

EVERYTHING = fits.fitted_constants()[fits.EVERYTHING]
PREDICTION = ROOT / "docs" / "prediction.md"
DOUBTED = "impossible or implausible"  # a subset of cells


def test_both_tables_are_predicted_beside_the_printed_days() -> None:
    rows = answer("predict")
    printed = {(cell.table, cell.model, cell.gpu, cell.gpus): cell for table in ("1", "4") for cell in cells(table)}
    assert len(rows) == len(printed) == 288
    for row in rows:
        cell = printed[row["table"], row["model"], row["gpu"], row["gpus"]]
        assert row["printed_days"] == cell.days
        days, low, high = (row[f"predicted_days{bound}"] for bound in ("", "_low", "_high"))
        assert low < days < high if row["predicted_settings"] else days is low is high is None
        if row["table"] == "4" and row["predicted_settings"]:
            assert row["predicted_settings"] == "naive"


def test_people_are_reported_that_numbers_are_predicted_and_how_sure_they_are() -> None:
    tables = repro("predict").stdout
    assert tables.startswith("Table 1 predicted for the paper's stack, with the fastest settings of the search: ")
    assert "predicted from traces of the models of transformers 4.42.3, the paper's (timm 1.0.31" in tables
    assert tables.count("1 x RTX 3090") == 1
    one = repro("predict", "--gpu", "RTX 3090", "--gpus", "2", "--models", "pythia-1b").stdout
    assert "Pythia-1B on 2 x RTX 3090: predicted" in one
    assert "8 of 10 unseen cells and trials lie in such an interval" in one
    assert "with free_lunch+fsdp_3, on today's stack (transformers 5.23.0)." in one
    assert "- Days are predicted for today's stack (transformers 5.23.0), from traces" in one


def test_a_training_of_less_than_a_day_is_told_in_hours_with_its_speed() -> None:
    asked = ("predict", "--models", "gpt2@tokens=1B,batch=512", "--gpu", "H100")
    [best, *_] = answer(*asked)
    tokens = 512 * 1024 / best["step_seconds"]
    hours, minutes = divmod(round(best["days"] * 24 * 60), 60)
    output = repro(*asked).stdout
    assert f"predicted {hours} h {minutes} min (" in output
    told = re.search(r"\), ([0-9,]+) tokens/s, with", output)
    assert told
    assert float(told[1].replace(",", "")) == pytest.approx(tokens, rel=0.005)
    images = repro("predict", "--models", "vit-s", "--gpu", "H100", "--gpus", "8").stdout
    assert " images/s, with " in images
    assert "speed" not in repro("predict", "--gpu", "RTX 3090", "--models", "pythia-1b").stdout


def test_a_cell_shows_its_predicted_days() -> None:
    [row] = [
        row
        for row in answer("predict", "--models", "pythia-1b")
        if (row["table"], row["gpu"], row["gpus"]) == ("1", "A100", 4)
    ]
    line = next(line for line in repro("predict", "--models", "pythia-1b").stdout.splitlines() if "4 x A100" in line)
    assert float(line.split()[-1]) == pytest.approx(row["predicted_days"], rel=0.02)
    assert row["printed_days"] == 18


def test_people_see_memory_in_gib_and_what_takes_most_of_a_step() -> None:
    asked = ("predict", "--gpu", "A100", "--gpus", "4", "--models", "pythia-1b", "--methods", "free-lunch")
    [found] = answer(*asked)
    lines = [line.split("|")[1:-1] for line in repro(*asked, "--format", "markdown").stdout.splitlines() if "|" in line]
    shown = dict(zip(*([cell.strip() for cell in line] for line in (lines[0], lines[2])), strict=True))
    assert float(shown["GiB"]) == pytest.approx(found["peak_memory"] / 2**30, rel=0.01)
    parts = ("compute", "memory", "launches", "communication", "offload", "update")
    most = max(parts, key=lambda name: found[f"seconds_{name}"])
    assert shown["most time"] == f"{most} {found[f'seconds_{most}'] / found['step_seconds']:.0%}"


def test_predictions_are_for_a_stack_that_is_named_and_not_for_what_is_installed(tmp_path: Path) -> None:
    for package, version in {"transformers": "4.46.0", "torch": "2.3.1"}.items():
        folder = tmp_path / f"{package}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    asked = ("predict", "--gpu", "A100", "--models", "vit")
    elsewhere = process(*asked, PYTHONPATH=f"{tmp_path}:{ROOT}").stdout
    assert elsewhere == repro(*asked).stdout
    assert "on today's stack (transformers 5.23.0)" in elsewhere


def test_every_reason_why_settings_are_infeasible_is_reported() -> None:
    none = repro("predict", "--gpu", "H100", "--models", "pythia-6.9b").stdout
    assert (
        "infeasible with every combination of settings: not even a micro batch of 1 fits (3 settings); "
        "a host of 64 GB a GPU does not hold what is offloaded (10 settings).\n"
    ) in none
    some = repro("predict", "--gpu", "RTX 4090", "--gpus", "2", "--models", "pythia-1b").stdout
    assert "\n- Infeasible: not even a micro batch of 1 fits.\n" in some
    assert "Infeasible" not in repro("predict", "--gpu", "H100", "--models", "pythia-1b").stdout


def test_the_fastest_of_what_cannot_train_is_none() -> None:
    output = repro("predict", "--gpu", "T4", "--models", "pythia-6.9b,vit").stdout
    assert output.startswith("1 of 2 models train on 1 x T4.\n")
    lines = output.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith(("pythia-6.9b", "vit"))] == [
        ["pythia-6.9b", "-"],
        ["vit", "free_lunch"],
    ]


def test_a_machine_that_nothing_like_it_was_held_against_has_no_interval() -> None:
    command = ("predict", "--gpu", "A100", "--models", "pythia-1b", "--methods", "free-lunch")
    assert all(row["days_low"] < row["days"] < row["days_high"] for row in answer(*command))
    rows = answer(*command, "--nodes", "2")
    assert {(row["days_low"], row["days_high"]) for row in rows} == {(None, None)}
    unsure = "no interval is known: the paper measured no such machine"
    on_nodes = repro(*command, "--gpus", "8", "--nodes", "2").stdout
    assert on_nodes.startswith("Pythia-1B on 2 nodes of 8 x A100 80 GB: predicted ")
    assert unsure in on_nodes
    assert unsure in repro(*command, "--gpus", "16").stdout
    assert unsure not in repro(*command, "--gpus", "8").stdout


def test_measured_days_stand_beside_predicted_ones(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("pythia-1b", "free_lunch+zero_1", 17.5, tf32=True))
    found = answer("predict", "--measured", str(folder))
    (row,) = [row for row in found if row["measured_days"] is not None and row["gpu"] == "A100"]
    assert (row["table"], row["model"], row["gpu"], row["gpus"]) == ("1", "Pythia-1B", "A100", 4)
    assert row["measured_days"] == 17.5
    assert "8 cells were measured on another stack: " in repro("predict", "--measured", str(folder)).stdout
    assert "18m" in repro("predict", "--measured", str(folder), "--stack", "today").stdout


def test_the_name_of_a_recipe_and_its_id_have_columns_as_in_tables(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("pythia-1b", "free_lunch+zero_1", 17.5))
    asked = ("predict", "--gpu", "A100", "--gpus", "4", "--models", "pythia-1b")
    for command in (asked, (*asked, "--measured", str(folder))):
        assert {(row["recipe"], row["model"]) for row in answer(*command)} == {("pythia-1b", "Pythia-1B")}


def test_a_run_of_none_of_the_tables_cells_is_reported(tmp_path: Path) -> None:
    tiny = results_folder(tmp_path / "run", record("vit", "naive", 1.0, scale="tiny"))
    found = repro("predict", "--measured", str(tiny))
    assert (found.returncode, found.stdout) == (2, "")
    assert "has measured days of no cell of Tables 1 and 4: with --gpu or" in found.stderr


def test_a_run_stands_beside_the_prediction_of_its_machine(tmp_path: Path) -> None:
    asked = ("predict", "--gpu", "A100", "--gpus", "4", "--models", "pythia-1b,vit")
    every = {(row["recipe"], row["settings"]): row for row in answer(*asked)}
    first, second = every["pythia-1b", "free_lunch+zero_1"], every["vit", "free_lunch"]
    folder = results_folder(
        tmp_path / "run",
        record("pythia-1b", "free_lunch+zero_1", 1.99 * first["predicted_days"]),
        record("vit", "free_lunch", second["predicted_days"]),
        record("vit", "free_lunch+zero_3", None, status="out_of_memory"),
        record("vit", "free_lunch", None, status="out_of_memory", memory=2**30),
        record("vit", "free_lunch+zero_1", None, status="out_of_memory", gpu_state=[{"processes": 2}]),
        record("vit", "naive", 300.0, count=1),
        record("vit", "free_lunch+checkpointing", 100.0, nodes=2),
        record("roberta", "naive", 100.0),
    )
    rows = answer(*asked, "--measured", str(folder))
    assert [(row["recipe"], row["settings"], row["status"]) for row in rows] == [
        ("pythia-1b", "free_lunch+zero_1", "ok"),
        ("vit", "free_lunch", "ok"),
        ("vit", "free_lunch+zero_3", "out_of_memory"),
        ("vit", "free_lunch", "out_of_memory"),
    ]
    assert [row["memory_limit"] for row in rows] == [None, None, None, 2**30]
    assert rows[3]["predicted_micro_batch"] is None, "a limit is one of the prediction too"
    assert [row["predicted_over_measured"] for row in rows] == [pytest.approx(1 / 1.99), pytest.approx(1), None, None]
    assert [row["inside_interval"] for row in rows] == [False, True, None, None]
    assert rows[0]["predicted_micro_batch"] == first["micro_batch"]
    output = repro(*asked, "--measured", str(folder)).stdout
    assert "off by 25% in the median; of 2 it is within 25 % in 1, within 2x in 2, " in output
    assert output.split("\n")[0].endswith(", 3 of 4 are feasible or not as predicted.")
    assert "vit, 1GiB" in output
    assert from_traces(shipped()[-1]) in " ".join(output.split()), "where the folder does not say what it had"
    on_two = answer(*asked, "--nodes", "2", "--measured", str(folder))
    assert [row["settings"] for row in on_two] == ["free_lunch+checkpointing"]
    elsewhere = repro("predict", "--gpu", "H200", "--measured", str(folder))
    assert (elsewhere.returncode, elsewhere.stdout) == (2, "")
    assert (
        "no trial of these models that ran on 1 x H200: it has vit on 1 x A100; vit on 2 nodes of" in elsewhere.stderr
    )
    assert "pythia-1b, vit, roberta on 4 x A100; vit on 4 x A100 of 1GiB" in elsewhere.stderr
    on_nodes = repro(*asked[:-1], "roberta", "--nodes", "2", "--measured", str(folder))
    assert "that ran on 2 nodes of 4 x A100: it has " in on_nodes.stderr


def test_what_ran_is_held_against_its_prediction_by_true_steps(
    tmp_path: Path,
) -> None:
    asked = ("predict", "--gpu", "A100", "--gpus", "4", "--models", "vit")
    [predicted] = answer(*asked, "--methods", "free-lunch")
    by_clock = record("vit", "free_lunch", 10 * predicted["authors_days"], true_days=predicted["predicted_days"])
    folder = str(results_folder(tmp_path / "run", by_clock, record("vit", "naive", 100.0, memory=2**30)))
    row, limited = answer(*asked, "--measured", folder)
    assert row["predicted_step"] == predicted["step_seconds"]
    assert (row["predicted_over_measured"], row["inside_interval"]) == (pytest.approx(1), True)
    assert row["measured_authors_step"] == pytest.approx(10 * row["predicted_authors_step"])
    assert (limited["predicted_step"], limited["predicted_over_measured"]) == (None, None)
    output = repro(*asked, "--measured", folder).stdout
    assert (
        "; of 1 it is within 25 % in 1, within 2x in 1, the measured days are within the interval in 1 of 1, " in output
    )
    assert output.split("\n")[0].endswith(", 1 of 2 are feasible or not as predicted.")
    infeasible = record("vit", "naive", None, status="out_of_memory", memory=2**30)
    both = str(results_folder(tmp_path / "both", by_clock, infeasible))
    assert "micro batch is as predicted in 0 of 1, " in repro(*asked, "--measured", both).stdout
    full = str(results_folder(tmp_path / "full", record("vit", "naive", None, status="out_of_memory", memory=2**30)))
    assert repro(*asked, "--measured", full).stdout.startswith("1 of 1 are feasible or not as predicted.\n")
    slower = str(results_folder(tmp_path / "slower", record("vit", "free_lunch", predicted["predicted_days"] / 1.28)))
    assert "; of 1 it is within 25 % in 0, within 2x in 1, " in repro(*asked, "--measured", slower).stdout


def test_what_ran_had_the_host_that_it_took(tmp_path: Path) -> None:
    """Pythia-6.9B's states take more than the 64 GB of the paper's jobs."""
    folder = results_folder(tmp_path / "run", record("pythia-6.9b", "free_lunch+zero_3+offloading", 900.0, count=1))
    [row] = answer("predict", "--gpu", "A100", "--models", "pythia-6.9b", "--measured", str(folder))
    assert row["predicted_step"] is not None


def test_the_fastest_of_several_models_stand_in_one_table() -> None:
    asked = ("predict", "--gpu", "A100", "--methods", "naive")
    both = repro(*asked, "--models", "vit,pythia-160m").stdout
    rows = [line.split() for line in both.splitlines() if "naive" in line]
    assert [row[0] for row in rows] == ["vit", "pythia-160m"]
    everything = repro(*asked, "--models", "vit,pythia-160m", "--all").stdout
    assert len(everything.splitlines()) == len(both.splitlines()) - 1, "of one settings each"


def test_settings_are_not_asked_for_beside_a_run_whose_trials_say_theirs(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("vit", "naive", 300.0, count=1))
    asked = ("predict", "--gpu", "A100", "--measured", str(folder))
    assert "--methods naive changes nothing beside --measured" in refusal(*asked, "--methods", "naive")


def test_every_settings_is_ranked_with_memory_and_time_by_part() -> None:
    arguments = ("predict", "--gpu", "A100", "--gpus", "4", "--models", "pythia-1b, vit,vit")
    rows = answer(*arguments)
    assert len(rows) == 2 * 23
    for row in rows:
        assert row["origin"] == "predicted"
        if not row["feasible"]:
            assert row["days"] is None
            continue
        memory = [value for key, value in row.items() if key.startswith("memory_")]
        seconds = [value for key, value in row.items() if key.startswith("seconds_")]
        assert len(memory) == len(seconds) == 6
        assert sum(memory) == pytest.approx(row["peak_memory"])
        assert sum(seconds) == pytest.approx(row["step_seconds"])
        assert row["days_low"] < row["days"] < row["days_high"]
        traced = (row["traced_transformers"], row["traced_timm"], row["traced_torch"])
        assert traces.Traced(*traced) == nearest_here()
    ours = [row["days"] for row in rows if row["recipe"] == "pythia-1b" and row["feasible"]]
    assert ours == sorted(ours)
    as_csv = list(csv.DictReader(io.StringIO(repro(*arguments, "--format", "csv").stdout)))
    assert [row["settings"] for row in as_csv] == [row["settings"] for row in rows]


def test_a_gpu_unlike_all_measured_has_no_interval_and_the_worst_error() -> None:
    errors = EVERYTHING.errors
    output = repro("predict", "--gpu", "B200", "--models", "vit").stdout
    assert (
        "days (no GPU of this kind was measured: of those held out the worst, "
        f"{errors.worst_gpu}, was off by a factor of {errors.worst_factor:.2f} in the median) with"
    ) in output
    rows = answer("predict", "--gpu", "B200", "--models", "vit")
    assert {row["days_low"] for row in rows} == {row["days_high"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not JSON"),
        ('{"fitted": 1}', r"Expected `object`, got `int` - at `\$.fitted`"),
    ],
)
def test_broken_fits_are_reported_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, why: str
) -> None:
    monkeypatch.setattr(fits, "FILE", tmp_path / "fits.json")
    fits.FILE.write_text(content)
    with pytest.raises(UserError, match=rf"no fits \({why}.*restore it"):
        fits.fitted_constants.__wrapped__()


def test_a_gpu_without_what_a_prediction_needs_names_the_catalogue_that_is_read(expected: Path) -> None:
    catalogue = expected / "gpus.csv"
    whole = catalogue.read_text()
    for row, without, what in [
        ("154.8,1800,768,", "154.8,1800,,", "bandwidth_gb_s"),
        ("154.8,154.8,1800,768,", ",154.8,1800,768,", "fp16 peak"),
    ]:
        assert row in whole
        catalogue.write_text(whole.replace(row, without))
        lacking = one_line(process("predict", "--gpu", "A6000", "--models", "pythia-160m"))
        assert lacking.endswith(f"RTX A6000 has no {what} in {catalogue}, which a prediction needs: add it\n")
    assert f"a row in {catalogue} adds one" in refusal("predict", "--gpu", "RTX 4091")


BAD_INPUT = [
    (["--gpu", "RTX 4091"], ["unknown GPU 'RTX 4091'", "RTX 4090", "expected/gpus.csv"]),
    (
        ["--gpu", "V100"],
        ["GPU 'V100' may be any of V100 16 GB, V100 16 GB PCIe, V100 32 GB, V100 32 GB PCIe: name one"],
    ),
    (["--gpu", "V100-SXM2"], ["GPU 'V100-SXM2' may be any of V100 16 GB, V100 32 GB: name one"]),
    (["--gpu", "3090"], ["unknown GPU '3090': did you mean RTX 3090? python -m repro list gpus has all"]),
    (["--gpu", "HBM3"], ["unknown GPU 'HBM3': did you mean H100 SXM? python"]),  # a word of its driver's name
    (
        ["--gpu", "banana"],
        ["unknown GPU 'banana': python -m repro list gpus has all", "gpus.csv adds one"],
    ),
    (["--gpu", "A100", "--gpus", "3"], ["1024, does not divide by 3 GPUs", "1, 2, 4 or 8"]),
    (
        ["--gpu", "A100", "--gpus", "8", "--nodes", "64", "--models", "mamba"],
        ["by 512 GPUs (64 nodes of 8): "],
    ),
    (["--gpu", "A100", "--gpus", "0"], ["--gpus 0: expected a whole number from 1 to "]),
    (["--gpu", "A100", "--gpus", "\uff12"], ["--gpus \uff12: expected a whole number"]),  # a full-width 2
    (["--gpu", "A100", "--nodes", ""], ["--nodes : expected a whole number from 1 to "]),
    (["--gpus", "2"], ["--gpu"]),
    (["--models", "gpt-5"], ["unknown model 'gpt-5': did you mean gpt2", "one of pythia-160m, "]),
    (["--models", "vitt"], ["unknown model 'vitt': did you mean vit"]),
    (["--models", "Pythia 1B"], ["did you mean pythia-1b? It is one of"]),
    (["--methods", "best"], ["--methods"]),
    (["--methods", "naive"], ["--methods naive needs --gpu"]),
    (["--validate", "--gpu", "A100"], ["--gpu changes nothing of --validate"]),
    (["--validate", "--measured", "results/cpu-2-cores"], ["--measured changes nothing of --validate"]),
    (["--fit"], ["unrecognized arguments: --fit"]),
    (["--rebuild-traces"], ["unrecognized arguments: --rebuild-traces"]),
    (["--gpu", "A100", "--measured", "x"], ["x holds no trials"]),
]


@pytest.mark.parametrize(("arguments", "output"), BAD_INPUT, ids=lambda value: " ".join(value)[:40])
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments: list[str], output: list[str]) -> None:
    refused = refusal("predict", *arguments)
    for part in output:
        assert part in refused


@pytest.mark.parametrize("command", [("audit",), ("table", "1", "--by", "true"), ("table", "4", "--by", "true")])
def test_the_page_on_predictions_quotes_what_the_queue_says_of_the_paper(command: tuple[str, ...]) -> None:
    printed = " ".join(repro(*command, *(["--all"] if command == ("audit",) else [])).stdout.split())
    page = re.sub(r"\s(> )?", " ", " ".join(PREDICTION.read_text().split()))
    said = re.findall(r"With the launch queue taken out, .+?(?=\. With|\. Candidate |$)", printed)
    if command[0] == "table":
        said = re.findall(r"one waits [\d.]+ times the printed days in the median \([\d.]+ to [\d.]+\)", printed)
    assert len(said) == (2 if command == ("audit",) else 1)
    for sentence in said:
        assert f"Table {command[1]} by true days: {sentence}" in page if command[0] == "table" else sentence in page


def test_a_trial_that_is_no_fair_sample_is_named_beside_its_prediction(
    tmp_path: Path,
) -> None:
    taken = {"memory_bytes": 80e9, "taken_bytes": 20e9}
    disturbed = record("pythia-1b", "naive", 160.0, count=1, full=[taken])
    run = str(results_folder(tmp_path / "run", disturbed))
    output = repro("predict", "--gpu", "A100", "--measured", run).stdout
    assert f"nor what fits: {disturbed.id}, a larger micro batch ran out of memory as others had 20.0 GB" in output
    assert "micro batch is as predicted" not in output
