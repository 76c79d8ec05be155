"""A file is written whole or stays as it was, and a disk that does not take it is one line."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from repro import files
from repro.errors import UserError
from repro.predict import calibration, traces
from repro.predict.machine import Probed
from repro.predict.probed import Probes

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
    [PROBES.save, lambda file: calibration.save(calibration.load(), file), _save_traces],
    ids=["probes", "calibration", "traces"],
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
