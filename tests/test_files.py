"""A file is written whole or stays as it was, and a disk that does not take it is one line."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from repro import files
from repro.console import UserError
from repro.predict import traces
from repro.predict.fits import Probes
from repro.predict.hardware import Probed
from tests.support.command_line import KEPT, ROOT, process, refusal, repro

PROBES = Probes("cpu", 2**30, None, {1: Probed(1.0, None, 1.0, None, 1.0, 1.0, 1e-6, None, None)}, 1.0)
TRACE = next(iter(traces.load(traces.PAPER_STACK).values()))


@contextmanager
def full_disk() -> Iterator[None]:
    """No file takes a byte, as where the disk is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def _save_traces(file: Path) -> None:
    traces.save([TRACE], file.parent)


@pytest.mark.parametrize(
    "save",
    [PROBES.save, _save_traces],
    ids=["probes", "traces"],
)
def test_what_predictions_read_is_replaced_whole_or_not_at_all(save: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / traces._file(TRACE.stack, tmp_path).name
    file.write_text("the last")
    with full_disk(), pytest.raises(UserError, match="no space left in"):
        save(file)
    assert file.read_text() == "the last"
    assert list(tmp_path.iterdir()) == [file]
    save(file)
    assert file.read_text() != "the last"
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_one_and_a_device_that_a_person_named_is_written_to(tmp_path: Path) -> None:
    (tmp_path / "file.md").write_text("the last")
    (tmp_path / "link.md").symlink_to(tmp_path / "file.md")
    files.replace(tmp_path / "link.md", "this")
    assert (tmp_path / "file.md").read_text() == "this"
    (tmp_path / "null.md").symlink_to("/dev/null")
    files.replace(tmp_path / "null.md", "this", named=True)
    assert (tmp_path / "null.md").is_char_device()


def test_a_link_to_itself_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file.md").symlink_to(tmp_path / "file.md")
    files.replace(tmp_path / "file.md", "this")
    assert (tmp_path / "file.md").read_text() == "this"


def test_a_file_that_cannot_be_removed_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=f"cannot write to {tmp_path}: {tmp_path}/folder is a folder, not a file; move"):
        files.remove(tmp_path / "folder")
    files.remove(tmp_path / "nothing")


def test_a_file_of_the_largest_size_is_read_and_none_of_a_byte_more(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)
    assert files.read(file, most=100) == b"x" * 100
    with pytest.raises(OSError, match="larger than 99 bytes"):
        files.read(file, most=99)


# Pipes and devices in the place of files


@pytest.fixture
def pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipe to which nobody writes."""
    monkeypatch.setattr(files, "_PIPE_SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


NOTHING_CAME = "cannot be read (it is no file, and nothing came from it for 0.1 s)"


@pytest.mark.parametrize(
    "command",
    [
        *("cost vit --prices", "cost --prices", "predict --models vit --probes"),
    ],
)
def test_a_pipe_to_which_nobody_writes_is_one_line(command: str, pipe: Path) -> None:
    assert f"{pipe}" in (output := refusal(*command.split(), str(pipe)))
    assert NOTHING_CAME in output


def test_a_pipe_in_the_place_of_reference_data_is_one_line(pipe: Path) -> None:
    folder = pipe.parent / "expected"
    shutil.copytree(ROOT / "expected", folder)
    pipe.rename(folder / "table1.csv")
    assert NOTHING_CAME in refusal("table", "1", REPRO_EXPECTED=str(folder))


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("report {folder} --out {out}", name) for name in ("environment.json", "verdicts.json")),
        *(("compare {folder} {kept}", name) for name in ("trials.jsonl", "benchmark.json")),
    ],
)
def test_a_pipe_in_a_results_folder_holds_nobody_up(command: str, name: str, pipe: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for each in KEPT.iterdir():
        if each.name != name and each.is_file():
            (folder / each.name).write_bytes(each.read_bytes())
    pipe.rename(folder / name)
    words = command.format(folder=folder, out=tmp_path / "out", kept=KEPT).split()
    done = repro(*words)
    assert done.returncode in (0, 2, 3)
    assert all(line.startswith("repro: ") for line in done.stderr.splitlines())


def test_what_a_shell_makes_of_a_command_is_read_whole(tmp_path: Path) -> None:
    code = "import time; time.sleep(0.5); print('# a price\\n' * 20_000)"
    line = f'"$0" -m repro cost vit --prices <("$0" -c "{code}")'
    done = subprocess.run(["bash", "-c", line, sys.executable], cwd=ROOT, capture_output=True, text=True)
    ours = process("cost", "vit")
    assert (done.returncode, done.stderr, done.stdout) == (0, ours.stderr, ours.stdout)
