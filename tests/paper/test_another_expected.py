"""With REPRO_EXPECTED every command, and each report, says that the paper's numbers are another's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from repro.datafile import expected_folder
from repro.report.markdown import markdown
from repro.report.page import page
from repro.report.sections import compose
from tests.support.command_line import ROOT, process, repro

KEPT = str(ROOT / "results" / "h200" / "whole-steps")
COMMANDS = (
    *(["table", "1"], ["claims"], ["audit"], ["table", "4", "--measured", KEPT], ["predict", "--gpu", "H100"]),
    *(["cost", "pythia-1b"], ["cost"], ["compare", KEPT, KEPT], ["report", "{out}/no-such-run"]),
)


def said(folder: Path) -> str:
    return f"the paper's numbers are those in {folder} (REPRO_EXPECTED), not those that come with repro"


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_every_command_says_so_in_one_line_on_stderr(words: list[str], expected: Path, tmp_path: Path) -> None:
    given = [word.format(out=tmp_path) for word in words]
    output = repro(*given).stderr.splitlines()
    assert output.count(f"repro: {said(expected)}") == 1
    assert sum("REPRO_EXPECTED" in line for line in output) == 1


def test_without_it_or_with_the_folder_of_repro_nothing_is_said() -> None:
    assert "REPRO_EXPECTED" not in repro("table", "1").stderr
    assert "REPRO_EXPECTED" not in repro("table", "1", REPRO_EXPECTED=str(ROOT / "docs" / ".." / "expected")).stderr


def test_a_folders_name_steers_no_terminal(tmp_path: Path) -> None:
    folder = shutil.copytree(expected_folder(), tmp_path / "\x1b[2J\n<b>*none*</b>")
    (line,) = process("table", "1", REPRO_EXPECTED=str(folder)).stderr.splitlines()
    assert r"\x1b[2J\n<b>*none*</b> (REPRO_EXPECTED)" in line


def test_the_report_and_its_page_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(expected_folder(), tmp_path / "<b>theirs")
    monkeypatch.setenv("REPRO_EXPECTED", str(folder))
    report = compose()
    assert "(REPRO\\_EXPECTED)" in markdown(report) or "(REPRO_EXPECTED)" in markdown(report)
    assert "&lt;b>theirs" in markdown(report)
    assert f"The paper&#x27;s numbers are those in {tmp_path}/&lt;b&gt;theirs (REPRO_EXPECTED)" in page(report)
