"""Each reading command answers in a sentence, one table that fits a screen, and at most three notes of a sentence."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.command_line import ROOT, on_a_screen, repro
from tests.survey_files import export, people

UPGRADE = "results/upgrade-transformers-4.57"
COMMANDS = [
    *(f"table {number}" for number in "134567j"),
    *(f"table {number} --by {by}" for number in "14" for by in ("printed", "true", "authors")),
    "table 1 --by true --methods modern",
    "table 1 --measured results/h100/text --measured results/h100/vision",
    *(f"table {number} --measured results/h100/text" for number in "34j"),
    *(f"table {number} --by true --measured results/h100/text" for number in "14"),
    "table 1 --by true --stack today",
    "audit",
    "audit --stack today",
    "audit --measured results/h100/text",
    "claims",
    "claims --measured results/h100/text",
    "claims --survey ANSWERS",
    "claims mean-speedup",
    "claims comment-electricity",
    "predict",
    "predict --stack today",
    "predict --measured results/h100/text",
    "predict --methods modern",
    "predict --validate",
    "predict --models pythia-1b --gpu 'RTX 3090' --gpus 2",
    "predict --models pythia-1b,vit --gpu 'RTX 3090' --gpus 2",
    "predict --gpu H100",
    "predict --gpu H100 --models pythia-1b --methods modern",
    "predict --gpu docs/own-gpu.toml --gpus 4 --models pythia-410m --methods free-lunch",
    "predict --gpu docs/own-gpu.toml --models pythia-6.9b",
    "predict --gpu A100 --gpus 8 --nodes 2 --network 25Gb/s --models pythia-1b --methods free-lunch",
    "predict --gpu H100 --measured results/h100/text",
    "predict --gpu H100 --gpus 4 --models pythia-1b --measured results/h100/text",
    "cost",
    "cost --machine 200000 --rent 25 --hours 700..800 --pue 1.2 --co2 400",
    *(f"cost pythia-1b --terms {terms}" for terms in ("own", "rent", "either")),
    "cost pythia-1b --budget 40000",
    "cost vit --terms either --deadline 60d --gpu H100",
    "cost mamba --gpu H100",
    "cost pythia-410m --gpu docs/own-gpu.toml --budget 20000",
    f"compare {UPGRADE}/before {UPGRADE}/after",
    f"compare {UPGRADE}/before {UPGRADE}/again",
    "compare results/h100/text results/h100/text",
    "compare results/cpu-2-cores results/cpu-2-cores",
    "survey --questions",
    "survey --train",
    "survey --train --by printed",
    "survey ANSWERS",
    "survey ANSWERS --train",
    *(f"list {what}" for what in ("recipes", "gpus", "settings")),
]
_WIDTH, _ROWS, _NOTES = 100, 20, 3
_RULE = re.compile("-{2,}( +-+)*")
_SENTENCES = re.compile(r"[.!?] [A-Z]")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("survey") / "answers.csv"
    file.write_text(export(people(100)))
    return file


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_answers_in_a_sentence_one_table_and_three_notes(line: str, answers: Path) -> None:
    done = on_a_screen(_WIDTH, *shlex.split(line.replace("ANSWERS", str(answers))))
    assert done.returncode in (0, 1, 3), done.stderr
    assert max(map(len, done.stdout.splitlines())) <= _WIDTH
    answer, *blocks = done.stdout.rstrip("\n").split("\n\n")
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
