"""The folder of a run: what is finished is on disk, whatever becomes of the run, and one run at a time is in it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from repro import datafile
from repro.console import UserError
from repro.record import Record, Trial
from repro.run.results import Results, read_trials
from tests.support.command_line import PATIENCE, altered, started, stderr_of

ROOT = Path(__file__).resolve().parents[2]


def record(settings: str = "naive", **known: Any) -> Record:
    return altered(Record.of(Trial("pythia-160m", "tiny", settings, "cpu", 1), "ok"), **known)


def records(folder: Path) -> list[Record | None]:
    return [line.record for line in read_trials(folder).lines]


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs this code beside the test, its output a pipe."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Finishes trials without end in the folder given, and says so of each.
FINISHING = """
import resource, sys
from pathlib import Path
from repro.console import UserError
from repro.run.results import Results
from repro.record import Record, Trial

folder, limit = Path(sys.argv[1]), int(sys.argv[2])
if limit >= 0:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with Results(folder) as results:
        for number in range(10_000):
            trial = Trial("pythia-160m", "tiny", "naive", "cpu", number)
            results.append(Record.of(trial, "ok", reason="é" * 500))
            print(trial.id, flush=True)
except UserError as error:
    sys.exit(f"one line: {error}")
"""


# --- On disk ---


def test_a_record_is_on_disk_before_the_next_trial(tmp_path: Path) -> None:
    with Results(tmp_path) as results:
        for settings in ("naive", "free_lunch"):
            results.append(record(settings, host=[{"with": [0.125, 0.25]}], warnings=["tight, très tight"]))
            [*_, last] = records(tmp_path)
            assert last is not None
            assert last.times.host == [{"with": [0.125, 0.25]}]


def test_a_record_is_synced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, fsync = [], os.fsync

    def watched(file: int) -> None:
        fsync(file)
        synced.append(os.fstat(file).st_size)

    monkeypatch.setattr(os, "fsync", watched)
    with Results(tmp_path) as results:
        results.append(record())
        results.append(record("free_lunch"))
        lines = (tmp_path / "trials.jsonl").read_bytes().splitlines(keepends=True)
        assert synced == [len(lines[0]), len(lines[0] + lines[1])]


def test_a_folder_without_trials_has_no_records(tmp_path: Path) -> None:
    assert records(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    "kept", sorted((ROOT / "results").glob("*/**/trials.jsonl")), ids=lambda path: path.parent.name
)
def test_a_record_that_is_written_again_has_its_fields_in_their_order(kept: Path) -> None:
    for line in kept.read_text().splitlines():
        read = json.loads(line)
        if "id" not in read:  # the run's environment
            continue
        read["id"] = read["id"].removesuffix("/checked")  # of records before every run checked its extrapolation
        again = datafile.to_json(datafile.from_json(Record, read))
        assert [(name, again[name]) for name in again if name in read] == [
            (name, value) for name, value in read.items() if name in again
        ]


# --- After a kill ---


def test_a_last_record_that_an_editor_left_without_its_newline_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Results(tmp_path) as results:
        for settings in ("naive", "free_lunch"):
            results.append(record(settings))
    trials = tmp_path / "trials.jsonl"
    whole = trials.read_bytes()
    trials.write_bytes(whole.removesuffix(b"\n"))
    assert records(tmp_path) == [record("naive"), record("free_lunch")]
    with Results(tmp_path) as results:
        assert trials.read_bytes() == whole
        results.append(record("checkpointing"))
    assert len(records(tmp_path)) == 3
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("torn", [b'{"id": "x", "reci', '{"id": "é'.encode()[:-1], b"{}", b"\0" * 100])
def test_a_torn_last_line_loses_that_trial_only_and_is_reported(
    tmp_path: Path, torn: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with Results(tmp_path) as results:
        results.append(record("naive"))
        results.append(record("free_lunch"))
    trials = tmp_path / "trials.jsonl"
    whole = trials.read_bytes()
    trials.write_bytes(whole + torn)
    assert len(records(tmp_path)) == 2
    assert capsys.readouterr().err == ""
    with Results(tmp_path) as results:
        assert trials.read_bytes() == whole
        printed = f"repro: {trials}: the last line was torn, its trial was stopped; it was cut off\n"
        assert capsys.readouterr().err == printed
        results.append(record("checkpointing"))
    assert [found and found.settings for found in records(tmp_path)] == ["naive", "free_lunch", "checkpointing"]


def test_a_run_killed_at_any_time_keeps_all_it_finished(tmp_path: Path) -> None:
    finished: list[str] = []
    for _ in range(3):
        run = python(FINISHING, str(tmp_path), "-1")
        assert run.stdout is not None
        finished += [run.stdout.readline().strip() for _ in range(30)]
        run.kill()
        finished += run.communicate()[0].split("\n")[:-1]
        with Results(tmp_path):
            assert set(finished) <= {found and found.id for found in records(tmp_path)}


# --- A full disk ---


def test_a_file_that_can_grow_no_more_loses_nothing(tmp_path: Path) -> None:
    run = python(FINISHING, str(tmp_path), "20000")
    output, error = run.communicate(timeout=PATIENCE)
    finished = output.split()
    assert run.returncode == 1
    assert error == (
        f"one line: no space left in {tmp_path}: free some and run the same command again; what was finished is kept\n"
    )
    assert finished
    assert (tmp_path / "trials.jsonl").read_bytes().endswith(b"\n")
    with Results(tmp_path) as results:  # there is space again
        assert [found and found.id for found in records(tmp_path)] == finished
        results.append(record("free_lunch"))
    assert len(records(tmp_path)) == len(finished) + 1


def test_a_disk_that_is_full_from_the_start_is_one_clear_line(tmp_path: Path) -> None:
    run = python(FINISHING, str(tmp_path), "0")
    _, error = run.communicate(timeout=PATIENCE)
    assert error.startswith(f"one line: no space left in {tmp_path}")
    assert error.count("\n") == 1


@pytest.mark.parametrize("there", [True, False], ids=["of a file", "of nothing yet"])
def test_a_record_goes_through_no_link_that_was_put_there_while_the_run_went_on(there: bool, tmp_path: Path) -> None:
    victim, folder = tmp_path / ".bashrc", tmp_path / "run"
    if there:
        victim.write_text("its owner's")
    with Results(folder) as results:
        (folder / "trials.jsonl").unlink()
        (folder / "trials.jsonl").symlink_to(victim)
        with pytest.raises(UserError, match=r"trials\.jsonl was moved, removed or replaced"):
            results.append(record())
    assert victim.exists() == there
    assert not there or victim.read_text() == "its owner's"


def test_a_folder_is_not_opened_where_its_trials_are_a_device_or_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match="is a link that leaves the folder, to /dev/full"):
        Results(tmp_path).__enter__()
    (tmp_path / "trials.jsonl").unlink()
    os.mkfifo(tmp_path / "trials.jsonl")
    with pytest.raises(UserError, match="is no file"):
        Results(tmp_path).__enter__()


# --- A folder that is not to be had ---


def test_a_folder_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot write to .*/file/out: .*/file is a file, not a folder; name another"):
        Results(tmp_path / "file" / "out").__enter__()


def test_trials_that_cannot_be_read_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").symlink_to("/proc/self/mem")  # a file of which nobody, root neither, reads the start
    with pytest.raises(UserError, match=r"trials\.jsonl cannot be read \(Input/output error\); make it readable"):
        read_trials(tmp_path)


def test_where_trials_cannot_be_mended_the_folder_is_free_again(tmp_path: Path) -> None:
    text = json.dumps(datafile.to_json(record()))  # without its newline
    (tmp_path / "trials.jsonl").write_text(text)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(text), limits[1]))
    try:
        with pytest.raises(UserError, match="no space left"):
            Results(tmp_path).__enter__()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with Results(tmp_path):
        pass


def test_a_second_run_in_a_folder_is_refused(tmp_path: Path) -> None:
    holder = python(FINISHING, str(tmp_path), "-1")
    assert holder.stdout is not None
    holder.stdout.readline()
    os.kill(holder.pid, signal.SIGSTOP)  # it holds the folder, and finishes no more
    try:
        with pytest.raises(UserError, match=rf"{tmp_path} is held by another run: wait for it, or name another"):
            Results(tmp_path).__enter__()
    finally:
        holder.kill()
        holder.communicate()
    with Results(tmp_path):  # a killed run holds nothing
        assert records(tmp_path)
        with pytest.raises(UserError, match=rf"{tmp_path} is held by another run"):
            Results(tmp_path).__enter__()


# --- A folder that goes elsewhere meanwhile ---


def test_a_run_whose_folder_was_moved_writes_there_and_not_into_another_runs(tmp_path: Path) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    with Results(folder) as first:
        first.append(record())
        folder.rename(moved)
        with Results(folder) as second:
            second.append(record("checkpointing"))
            with pytest.raises(UserError) as error:
                first.append(record("free_lunch"))
            second.append(record("fsdp_3"))
    assert str(error.value).startswith(f"{folder}/trials.jsonl was moved, removed or replaced while the run went on: ")
    assert [found and found.settings for found in records(moved)] == ["naive", "free_lunch"]
    assert [found and found.settings for found in records(folder)] == ["checkpointing", "fsdp_3"]


@pytest.mark.parametrize("again", [True, False])
def test_a_moved_folder_is_reported_before_anything_is_written_by_its_name(tmp_path: Path, again: bool) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    with Results(folder) as results:
        results.check()
        folder.rename(moved)
        if again:
            folder.mkdir()
        with pytest.raises(UserError, match=rf"{folder}/trials.jsonl was moved, "):
            results.check()


def test_a_folder_that_was_removed_and_made_again_gets_no_record_of_before(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Results(folder) as results:
        shutil.rmtree(folder)
        folder.mkdir()
        for write in (results.check, lambda: results.append(record())):
            with pytest.raises(UserError, match=f"^{folder}/trials.jsonl was moved, removed or replaced"):
                write()
    assert list(folder.iterdir()) == []


def test_a_file_system_that_shows_no_two_times_the_same_number_stops_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "samestat", lambda *_: False)
    with Results(tmp_path) as results:
        results.append(record())
        results.check()
    assert len(records(tmp_path)) == 1


@pytest.mark.slow
def test_a_run_whose_folder_is_moved_while_it_measures_ends_with_one_line(tmp_path: Path) -> None:
    folder, moved = tmp_path / "run", tmp_path / "moved"
    wanted = ["--models", "vit", "--methods", "all", "--processes", "1", "--steps", "1"]
    with started(*wanted, "--out", str(folder), "--", "-k", "naive or checkpointing") as run:
        printed = []
        for line in stderr_of(run):
            printed.append(line)
            if line.startswith("[1/"):
                folder.rename(moved)
                folder.mkdir()
        output, _ = run.communicate()
    assert (run.returncode, output) == (2, ""), printed
    assert printed[-1].startswith(
        f"repro: {folder}/trials.jsonl was moved, removed or replaced while the run went on: "
    )
    assert records(moved)
    assert list(folder.iterdir()) == []


# --- What killed runs leave ---


def test_parts_of_files_that_killed_runs_left_are_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    ours = [f"{name}.{ended.pid}.part" for name in ("verdicts.json", "report.md", "report.html")]
    others = [
        f"verdicts.json.{os.getpid()}.part",  # being written
        "verdicts.json.part",
        f"film.mkv.{ended.pid}.part",
        "verdicts.json.x1.part",
    ]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    (tmp_path / f"folder.json.{ended.pid}.part").mkdir()
    (tmp_path / f"link.json.{ended.pid}.part").symlink_to(tmp_path / "trials.jsonl")
    with Results(tmp_path):
        pass
    left = {path.name for path in tmp_path.iterdir()} - {"trials.jsonl", "logs"}
    assert left == {*others, f"folder.json.{ended.pid}.part"}


def test_who_does_not_hold_the_folder_removes_no_parts(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    part = tmp_path / f"verdicts.json.{ended.pid}.part"
    with Results(tmp_path):
        part.touch()
        with pytest.raises(UserError, match="is held by"):
            Results(tmp_path).__enter__()
        assert part.exists()
