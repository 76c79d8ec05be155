"""The authors' raw results: read exactly and safely, and beside their tables."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from repro.paper.settings import FREE_LUNCH, NAIVE, Settings
from repro.predict import observations
from repro.released import archive
from repro.released.results import Archive, read
from repro.released.steps import every_setting, steps_of
from tests.support import released_archive as released
from tests.support.command_line import answer, refusal, repro
from tests.support.survey_files import as_printed, authors_file

IDS = Path(__file__).parents[1] / "support" / "released_ids.csv"
MODELS = {"convnext-xlarge-22k": "convnext"}
GPUS = {"geforce3090": "RTX 3090", "a6000": "A6000", "a100": "A100", "h100": "H100"}
_MARKS = ("free_lunch", "checkpointing", "offloading")
SHARDINGS = {"": "none", "fsdp_shard_grad_op": "fsdp_2", "fsdp_full_shard": "fsdp_3"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return released.write(tmp_path_factory.mktemp("released") / "artifacts.tar", released.results())


@pytest.fixture(scope="module")
def known(whole: Path) -> Archive:
    return read(whole)


def first() -> released.Setting:
    return released.settings()[1]  # free lunch alone on one A100


# Ids


def test_ids_are_those_that_tango_gave() -> None:
    lines = IDS.read_text().splitlines()[1:]
    rows = list(csv.DictReader(lines))
    for row in rows:
        free_lunch, checkpointing, offloading = (row[name] == "True" for name in _MARKS)
        sharding: Any = SHARDINGS.get(row["sharding"], row["sharding"])
        settings = Settings(free_lunch, checkpointing, sharding, offloading)
        recipe = MODELS.get(row["model"], row["model"])
        ids = steps_of(recipe, GPUS[row["gpu"]], int(row["gpus"]), settings)
        assert ids == (row["largest"], row["timing"], row["days"])
    assert len(rows) == 159
    assert any("-001-1" in row["timing"] for row in rows)  # of a digest that starts with a zero byte


def test_every_setting_of_their_sweeps_has_ids_of_its_own() -> None:
    settings = list(every_setting())
    assert len(settings) == 2952
    assert sum(setting[3] == NAIVE for setting in settings) == 144
    some = settings[::37]
    assert len(set(itertools.chain.from_iterable(itertools.starmap(steps_of, some)))) == 3 * len(some)


# Reading


def unpacked(path: Path, folder: Path) -> Path:
    with tarfile.open(path) as outer:
        outer.extractall(folder, filter="data")
    return folder / "artifacts"


def test_the_tar_the_tgz_in_it_and_the_unpacked_folders_say_the_same(
    whole: Path, known: Archive, tmp_path: Path
) -> None:
    inner = unpacked(whole, tmp_path) / "tango_workspace.tgz"
    with tarfile.open(inner) as workspace:
        workspace.extractall(tmp_path, filter="data")
    assert len(known.records) == 164
    for path in (inner, inner.parent, tmp_path / "tango_workspace"):
        assert archive.is_archive(path)
        assert read(path).records == known.records


def test_a_record_is_released_and_by_the_authors_clock(known: Archive) -> None:
    naive, fastest = known.records[0], known.records[1]
    assert (naive.id, fastest.id) == ("vit/paper/1xA100/naive", "vit/paper/1xA100/free_lunch")
    assert {record.origin for record in known.records} == {"released"}
    assert fastest.derived.authors_step == pytest.approx(1.2012)
    assert fastest.derived.authors_days == pytest.approx(1.2012 * 311948 / 86400)
    assert fastest.derived.true_days is None
    assert (fastest.batch.micro_batch, fastest.batch.accumulation) == (16, 256)
    assert (fastest.as_run.compiled, naive.as_run.compiled) == (True, False)
    assert (fastest.as_run.asked_tf32, naive.as_run.asked_tf32) == (True, False)


def test_a_step_that_never_ended_has_no_result(tmp_path: Path) -> None:
    results = released.results()
    steps = released.steps(first())
    ended = {id: content for id, content in results.items() if id != steps.timing}
    files = [*released.members(ended), (f"x/cache/{steps.timing}/data.dill.gz", results[steps.timing])]
    path = tmp_path / "workspace.tgz"
    path.write_bytes(released.tar(iter(files), "w:gz"))
    found = read(path)
    assert len(found.records) == 163
    assert found.missing[-1].id == "vit/paper/1xA100/free_lunch"
    assert not found.other


def test_links_are_not_followed(tmp_path: Path) -> None:
    results, steps = released.results(), released.steps(first())
    outside = tmp_path / "outside"
    outside.write_bytes(results[steps.timing])
    folder = tmp_path / "tango_workspace"
    for name, content in released.members(results):
        path = tmp_path / name
        path.parent.mkdir(parents=True) if not path.parent.exists() else None
        path.write_bytes(content)
    linked = folder / "cache" / steps.timing / "data.dill.gz"
    linked.unlink()
    linked.symlink_to(outside)
    assert len(read(folder).records) == 163
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as out:
        out.add(folder, "tango_workspace")
    (tmp_path / "links.tgz").write_bytes(buffer.getvalue())
    assert len(read(tmp_path / "links.tgz").records) == 163


# Damage


def refused(tmp_path: Path, **changed: Any) -> str:
    """The line with which an archive is refused, of which one step of a setting has other bytes."""
    results, steps = released.results(), released.steps(first())
    for name, content in changed.items():
        results[getattr(steps, name)] = content
    path = released.write(tmp_path / "artifacts.tar", results)
    line = refusal("table", "1", "--measured", str(path))
    assert f"{path}: " in line
    assert any(step in line for step in steps)
    return line


def test_days_that_do_not_follow_are_refused_with_their_id(tmp_path: Path) -> None:
    line = refused(tmp_path, days=released.packed(4.0))
    assert f"{released.steps(first()).timing}: its days do not follow from its step time" in line
    assert "do not follow" in refused(tmp_path, days=released.packed(None))
    assert "its timing is not" in refused(tmp_path, timing=released.packed(None))
    for step in (math.nan, math.inf, 0.0, -1.0):
        results = released.results_of(first(), released.timing(step))
        steps = released.steps(first())
        assert "do not follow" in refused(tmp_path, timing=results[steps.timing], days=results[steps.days])


@pytest.mark.parametrize(
    ("step", "value"),
    [
        ("timing", {**released.timing(), "step_time": 2}),
        ("timing", {**released.timing(), "micro_batch_size": True}),
        ("timing", {"step_time": 2.0}),
        ("timing", "2.0"),
        ("largest", 16.0),
        ("largest", False),
        ("largest", -1),
        ("largest", 8192),
        ("largest", 8),
        ("timing", released.timing(micro_batch=3)),
        ("timing", released.timing(micro_batch=0)),
    ],
)
def test_results_of_odd_types_and_sizes_are_refused_with_their_id(step: str, value: Any, tmp_path: Path) -> None:
    assert "micro batch" in (line := refused(tmp_path, **{step: released.packed(value)})) or "its timing is not" in line


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (released.packed(2.0)[:-9], "its gzip is cut off"),
        (gzip.compress(b"\x80\x04."), "it is damaged"),
        (gzip.compress(bytes(5000)), "unpacks to more than 1024 bytes"),
        (b"days", "it is damaged"),
        (gzip.compress(gzip.decompress(released.packed(2.0)).replace(b"001", b"002")), "is not Tango's DillFormat 001"),
        (bytes(5000), "has 5,000 bytes, more than 1,024"),
    ],
    ids=["cut", "empty", "bomb", "no gzip", "another format", "large"],  # the bytes have the time of their making
)
def test_damaged_results_are_refused_with_their_id(content: bytes, reason: str, tmp_path: Path) -> None:
    assert reason in refused(tmp_path, days=content)


def test_a_result_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    results = released.results()
    files = [*released.members(results), *released.members({released.steps(first()).days: b""})]
    path = tmp_path / "workspace.tgz"
    path.write_bytes(released.tar(iter(files), "w:gz"))
    assert f"{released.steps(first()).days} is there twice" in refusal("table", "1", "--measured", str(path))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
@pytest.mark.parametrize("name", ["artifacts.tar", "tango_workspace.tgz"])
def test_a_cut_archive_is_refused(share: float, name: str, whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes() if name == "artifacts.tar" else (unpacked(whole, tmp_path) / name).read_bytes()
    if name == "artifacts.tar":
        content = content.rstrip(b"\0")
    cut = tmp_path / name
    cut.write_bytes(content[: int(share * len(content))])
    assert "is damaged or cut off after" in refusal("table", "4", "--measured", str(cut))


def test_a_changed_archive_is_refused(whole: Path, tmp_path: Path) -> None:
    content = bytearray((unpacked(whole, tmp_path) / "tango_workspace.tgz").read_bytes())
    content[len(content) // 2] ^= 0x55
    changed = tmp_path / "tango_workspace.tgz"
    changed.write_bytes(bytes(content))
    assert "is damaged or cut off after" in refusal("table", "4", "--measured", str(changed))


def test_an_archive_without_results_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.tgz"
    path.write_bytes(released.tar(iter([("readme", b"")]), "w:gz"))
    assert "holds no results of a Tango workspace" in refusal("table", "1", "--measured", str(path))


# Tables


def test_a_cell_is_the_fastest_of_its_settings_rounded_as_the_authors_do(tmp_path: Path) -> None:
    results = released.results()
    one, two = (
        each
        for each in released.settings()
        if each[1:3] == ("A100", 8) and each[3].id in ("free_lunch", "free_lunch+zero_1")
    )
    for setting in (one, two):
        results |= released.results_of(setting, released.timing(0.1))
    for setting in (each for each in released.settings() if each[1:3] == ("H100", 1)):
        results |= released.results_of(setting, None)
    path = str(released.write(tmp_path / "artifacts.tar", results))
    rows = {(row["gpu"], row["gpus"]): row for row in answer("table", "1", "--measured", path) if row["model"] == "ViT"}
    assert rows["A100", 8]["released_settings"] == "free_lunch = free_lunch+zero_1"
    assert rows["A100", 8]["next_longer_by"] == 0
    assert rows["A100", 8]["released"] == "0"
    assert (rows["H100", 1]["released"], rows["H100", 1]["released_days"]) == ("-", None)
    assert (rows["A6000", 1]["released"], rows["A6000", 1]["settings_without_result"]) == (".", 12)
    assert rows["A100", 1]["released"] == "4"
    assert rows["A100", 1]["next_longer_by"] == pytest.approx(0.001 / 1.001)
    naive = {
        (row["gpu"], row["gpus"]): row for row in answer("table", "4", "--measured", path) if row["model"] == "ViT"
    }
    assert naive["A100", 2]["released_days"] == pytest.approx(0.9 * 311948 / 86400)
    assert naive["A100", 4]["released"] == "2"  # of 1.6


def test_tables_show_released_cells_with_a_sign_where_they_are_not_printed(whole: Path) -> None:
    found = repro("table", "1", "--measured", str(whole)).stdout
    assert "Of the 144 cells of Table 1, the raw results give" in found
    assert "4≠" in found
    assert "2,788 settings of 2,952 have no result" in found
    assert "they were not measured here, and verify no cell" in found
    found = repro("table", "j", "--measured", str(whole), "--all").stdout
    assert "rows of Appendix J" in found
    assert "free_lunch, MBS 16" in found


def test_released_days_are_a_further_column_of_true_days(whole: Path) -> None:
    row = next(
        r
        for r in answer("table", "1", "--by", "true", "--measured", str(whole))
        if (r["model"], r["gpu"], r["gpus"]) == ("ViT", "H100", 2)
    )
    assert row["origin"] == "predicted"
    assert row["released_days"] is not None
    assert row["days"] != row["released_days"]


def test_an_archive_of_another_commit_says_nothing_of_the_tables(tmp_path: Path) -> None:
    strangers = {id.replace("-001-", "-002-"): content for id, content in released.results().items()}
    path = released.write(tmp_path / "artifacts.tar", strangers)
    found = repro("table", "1", "--measured", str(path))
    assert found.returncode == 0
    assert "Table 1 is not recomputed" in found.stdout
    assert "Results of no known setting: 164 of benchmark_step_time-002" in found.stdout
    assert "the ids are likely of another commit of the authors' code" in " ".join(found.stdout.split())


# The other commands


SECONDS = {"pythia-160m": 8, "pythia-410m": 25, "pythia-1b": 40, "pythia-2.8b": 200, "pythia-6.9b": 500}


def searched(path: Path) -> Path:
    """An archive in which all settings of Pythia on A100 have results, of which one is impossible."""
    results = dict[str, bytes]()
    settings = [each for each in every_setting() if each[0] in SECONDS and each[1] == "A100"]
    for number, setting in enumerate(settings):
        recipe, _, count, chosen = setting
        slower = 2 if not chosen.free_lunch else 1.2 + number % 7 / 20 if chosen.saves_memory else 1
        step = SECONDS[recipe] / count * slower
        timed = released.timing(step, compile_disabled=chosen.id == "free_lunch+zero_1")
        results |= released.results_of(setting, timed)
    one = ("pythia-160m", "A100", 1, Settings(free_lunch=True))
    results |= released.results_of(one, released.timing(0.5))
    return released.write(path / "artifacts.tar", results)


@pytest.fixture(scope="module")
def of_a100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return searched(tmp_path_factory.mktemp("searched"))


def test_a_report_of_the_archive_begins_with_four_answers(of_a100: Path, tmp_path: Path) -> None:
    done = repro("report", str(of_a100), "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out" / "report.md").read_text()
    for answers in (done.stdout, text):
        begins = ("Do the printed", "How sure is", "Can they be true?", "What do the")
        places = [answers.index(begin) for begin in begins]
        assert places == sorted(places)
    assert "5 of the 410 raw step times need more FLOP/s than the GPU has" in done.stdout
    assert "Compiling had failed for 15 settings" in done.stdout
    assert "2,542 settings have no result, which the tables leave out in silence" in done.stdout
    assert "best-over-median" in done.stdout
    assert "Gains of memory-saving settings** (released)" in text
    assert "against median and worst** (released)" in text
    assert (tmp_path / "out" / "report.html").is_file()


def test_claims_about_the_search_are_recomputed_and_no_cell_is_verified(of_a100: Path) -> None:
    [one] = answer("claims", "best-over-median", "--measured", str(of_a100))
    assert "released in 15 cells of A100" in one["reason"]
    assert one["rows"][0]["file"] == "artifacts.tar"
    [cells] = answer("claims", "table-1-cells", "--measured", str(of_a100))
    assert cells["verdict"] == "needs_measurement"
    [clock] = answer("claims", "timed-passes", "--measured", str(of_a100))
    assert "410 are released by the authors" in clock["reason"]


def test_an_audit_names_raw_steps_above_the_peak_and_what_the_queue_explains(of_a100: Path) -> None:
    found = repro("audit", "--measured", str(of_a100)).stdout
    assert "5 of the 410 raw step times need more FLOP/s than the GPU has; with the launch queue 4 of them are" in found
    assert "possible, not Pythia-160M on 1 x A100 with free_lunch: 1308% of the peak." in found
    rows = answer("audit", "--measured", str(of_a100))
    assert len(rows) == 410
    above = [row for row in rows if row["of_peak"] > 1]
    assert {(row["settings"], row["origin"]) for row in above} == {("free_lunch", "released")}
    assert above[1]["implied_true_days"] > above[1]["released_days"]
    waiting = next(row for row in rows if row["settings"] == "free_lunch+zero_3")
    assert waiting["implied_true_days"] == pytest.approx(waiting["released_days"])


def test_predictions_are_validated_on_raw_steps_that_no_fit_has_seen(of_a100: Path) -> None:
    found = repro("predict", "--validate", "--measured", str(of_a100)).stdout
    assert "410 raw step times" in found
    assert "nothing was fitted to them" in found
    for which in ("Pythia-160M", "A100", "ZeRO, offloading", "free lunch alone", "timed uncompiled"):
        assert which in found
    row = answer("predict", "--validate", "--measured", str(of_a100))[0]
    assert row["ratio"] == pytest.approx(row["predicted_authors_step_seconds"] / row["released_step_seconds"])


def test_a_fit_may_take_raw_steps_each_at_its_own_settings(known: Archive) -> None:
    found = observations.released(known.records)
    assert len(found) == 164
    assert [each.cell.table for each in found[:2] if each.cell] == ["4", "1"]
    assert (found[1].readings, found[1].micro_batch) == ((FREE_LUNCH,), 16)
    assert found[1].days == known.records[1].derived.authors_days


def test_released_days_change_no_prediction(of_a100: Path) -> None:
    words = ("predict", "--gpu", "A100", "--models", "pythia-1b")
    alone, beside = answer(*words), answer(*words, "--measured", str(of_a100))
    assert [{name: value for name, value in row.items() if name != "released_days"} for row in beside] == alone
    assert beside[0]["released_days"] is not None
    assert "released" in repro(*words, "--measured", str(of_a100)).stdout
    cells = answer("predict", "--models", "pythia-1b", "--measured", str(of_a100))
    there = {(row["table"], row["gpu"], row["gpus"]): row["released_days"] for row in cells}
    assert there["4", "A100", 1] == pytest.approx(80 * 143000 / 86400)
    assert there["4", "H100", 1] is None


def test_an_archive_stands_beside_no_run(of_a100: Path) -> None:
    for words in (("table", "1", "--measured"), ("claims", "--measured"), ("audit", "--measured")):
        line = refusal(*words, str(of_a100), "--measured", "results/cpu-2-cores")
        assert f"{of_a100} is the authors' archive, which stands beside no run: name it alone" in line
    assert "stands beside no run" in refusal("report", str(of_a100), "results/cpu-2-cores")


def test_their_survey_is_read_from_the_archive(of_a100: Path, tmp_path: Path) -> None:
    assert "it holds no artifacts/survey.csv" in refusal("survey", str(of_a100))
    path = released.write(tmp_path / "artifacts.tar", released.results(), survey=authors_file(as_printed()).encode())
    plain = tmp_path / "survey.csv"
    plain.write_text(authors_file(as_printed()))
    of_archive, of_plain = (repro("survey", str(each), "--format", "csv").stdout for each in (path, plain))
    assert of_archive == of_plain
    assert "Counts are exact" in repro("survey", str(path)).stdout


def test_a_commit_and_versions_are_all_that_is_shown_of_who_measured(tmp_path: Path) -> None:
    commit = "0123456789abcdef" * 2 + "01234567"
    info = {"git": {"commit": commit}, "host": "secret-host", "packages": [("torch", "2.3.1"), ("dill", "0.3.9")]}
    steps = ("w/stepinfo.sqlite", bytes(2**20 - 40) + pickle.dumps(info, 4))  # across the end of what is read at once
    files = [*released.members({f"other-001-{'1' * 32}": b""}), steps]
    path = tmp_path / "tango_workspace.tgz"
    path.write_bytes(released.tar(iter(files), "w:gz"))
    found = " ".join(repro("table", "1", "--measured", str(path)).stdout.split())
    assert f"Its stepinfo.sqlite names commit {commit}; dill 0.3.9; torch 2.3.1." in found
    assert "secret-host" not in found
