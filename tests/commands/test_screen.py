"""Each reading command answers in a sentence, one table that fits a screen, and at most three notes of a sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.goldens import SCREENS, printed
from tests.support.command_line import ROOT, on_a_screen, repro
from tests.support.survey_files import export, people

OF_ANSWERS = ["claims --survey ANSWERS", "survey ANSWERS", "survey ANSWERS --train"]
_WIDTH, _ROWS, _NOTES = 100, 20, 3
_RULE = re.compile("-{2,}( +-+)*")
_SENTENCES = re.compile(r"[.!?] [A-Z]")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("survey") / "answers.csv"
    file.write_text(export(people(100)))
    return file


@pytest.mark.parametrize("line", OF_ANSWERS)
def test_an_answer_on_a_survey_fits_a_screen(line: str, answers: Path) -> None:
    done = on_a_screen(_WIDTH, *line.replace("ANSWERS", str(answers)).split())
    assert done.returncode == 0, done.stderr
    assert_fits(done.stdout)


@pytest.mark.parametrize("line", SCREENS)
def test_an_answer_fits_a_screen(line: str) -> None:
    """As tests/test_goldens.py holds it to be printed."""
    assert_fits(printed(line))


def assert_fits(text: str) -> None:
    """Hold that an answer is a sentence, one table, and at most three notes of a sentence."""
    assert max(map(len, text.splitlines())) <= _WIDTH
    answer, *blocks = text.rstrip("\n").split("\n\n")
    assert answer.endswith(".")
    assert not _SENTENCES.search(" ".join(answer.split()))
    tables = [block for block in blocks if any(map(_RULE.fullmatch, block.split("\n")))]
    assert len(tables) <= 1
    assert all(len(_rows(table)) <= _ROWS for table in tables)
    notes = [note for block in blocks if block.startswith("- ") for note in block[2:].split("\n- ")]
    assert len(notes) <= _NOTES
    for note in notes:
        assert note.endswith(".")
        assert not _SENTENCES.search(" ".join(note.split())), note
    left = [block for block in blocks if block not in tables and not block.startswith("- ")]
    assert all(re.fullmatch(r"[0-9,]+ more rows?: --all shows all\.", block) for block in left)


@pytest.mark.parametrize("folders", ["", "results/h100/text results/h100/vision", "results/cpu-2-cores"])
def test_a_report_of_kept_folders_fits_a_screen_too(folders: str, tmp_path: Path) -> None:
    done = on_a_screen(_WIDTH, "report", *folders.split(), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= _WIDTH
    blocks = done.stdout.rstrip("\n").split("\n\n")
    tables = [block for block in blocks if any(map(_RULE.fullmatch, block.split("\n")))]
    assert len(tables) <= 1
    assert all(len(_rows(table)) <= _ROWS for table in tables)
    assert len(re.findall("^- ", done.stdout, re.MULTILINE)) <= _NOTES


@pytest.mark.parametrize("words", [(), ("--format", "text")])
def test_what_a_machine_is_fit_for_fits_a_screen_too(words: tuple[str, ...]) -> None:
    assert max(map(len, on_a_screen(_WIDTH, "doctor", *words).stdout.splitlines())) <= _WIDTH


def _rows(table: str) -> list[str]:
    """The rows of a table, without the further lines of cells that wrap."""
    lines = table.split("\n")
    rule = next(place for place, line in enumerate(lines) if _RULE.fullmatch(line))
    first = len(lines[rule].split(" ")[0])
    return [line for line in lines[rule + 1 :] if line[:first].strip()]


@pytest.mark.parametrize("line", ["audit", "table j", "claims", "list gpus"])
def test_all_shows_the_rows_that_a_screen_leaves_out(line: str) -> None:
    short, whole = (repro(*line.split(), *more, "--format", "markdown").stdout for more in ((), ("--all",)))
    assert "--all shows all" in short
    assert len(re.findall(r"^\|", short, re.MULTILINE)) == 2 + _ROWS
    assert len(re.findall(r"^\|", whole, re.MULTILINE)) > 2 + _ROWS
    assert "--all shows all" not in whole


GONE = [
    *("without a reference", "copy at hand", "verdict then", "in proportion, as is known", "70.5; 41", "Verdict on"),
    *(
        "of a reserved instance",
        "each half of which",
        "As the comment computes",
        "the days' bounds",
        "may cost no more",
    ),
]


@pytest.mark.parametrize("phrase", GONE)
def test_no_phrase_that_a_stranger_cannot_read_is_printed(phrase: str) -> None:
    assert [file for file in (ROOT / "repro").rglob("*.py") if phrase in file.read_text()] == []
