"""The faults of tests/mutants.py are those of this checkout, and one that no test finds is called a survivor."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from tests.mutants import MUTANTS, ROOT, Mutant, changed, problems, survivors
from tests.random_faults import sample

DOUBLED = Mutant("code.py", "2 * number", "3 * number", "test_code.py")
UNTESTED = Mutant("code.py", "number + 1", "number + 2", "test_code.py -k doubled")
LISTED = {"doubled": DOUBLED, "untested": UNTESTED}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "code.py").write_text(
        "def doubled(number):\n    return 2 * number\n\n\ndef more(number):\n    return number + 1\n"
    )
    (folder / "test_code.py").write_text(
        "import importlib.util\nimport pytest\n"
        'spec = importlib.util.spec_from_file_location("tried", "code.py")\n'
        "tried = importlib.util.module_from_spec(spec)\nspec.loader.exec_module(tried)\n\n\n"
        "def test_doubled():\n    assert tried.doubled(4) == 8\n\n\n"
        "def test_less():\n    assert tried.more(1) < 0\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    slow: takes long\n")
    return folder


def test_each_fault_has_one_place_and_tests_that_exist() -> None:
    assert problems(ROOT, MUTANTS) == []
    assert len(MUTANTS) >= 40
    assert len({mutant.file for mutant in MUTANTS.values()}) >= 40


@pytest.mark.slow
def test_a_fault_is_found_where_a_test_fails_with_it_alone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (project / "code.py").read_text()
    listed = {
        "doubled": DOUBLED._replace(tests="test_code.py -k doubled"),
        "failing": DOUBLED._replace(tests="test_code.py -k less"),
        "untested": UNTESTED,
    }
    assert survivors(project, listed) == ["failing", "untested"]
    output = capsys.readouterr().out
    assert "doubled: found by test_code.py::test_doubled (" in output
    assert "failing: SURVIVES, as its tests fail without it, too" in output
    assert "untested: SURVIVES (" in output
    assert (project / "code.py").read_text() == before, "faults go into copies"


def test_a_list_that_is_not_of_the_checkout_is_refused_before_anything_runs(project: Path) -> None:
    listed = {
        "twice": DOUBLED._replace(old="number"),
        "gone": DOUBLED._replace(old="5 * number"),
        "no-file": DOUBLED._replace(tests="test_gone.py"),
        "no-test": DOUBLED._replace(tests="test_code.py -k 'doubled or halved'"),
    }
    assert problems(project, listed) == [
        "twice: 'number' stands 4 times in code.py, expected once",
        "gone: '5 * number' stands 0 times in code.py, expected once",
        "no-file: no tests in test_gone.py",
        "no-test: no test in test_code.py is named halved",
    ]
    assert problems(project, LISTED) == []


def test_a_change_concerns_the_faults_of_its_files_and_of_their_tests(project: Path) -> None:
    def git(*words: str) -> None:
        named = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *named, *words], cwd=project, check=True, capture_output=True)

    listed = LISTED | {"other": Mutant("other.py", "1", "2", "test_other.py")}
    for name in ("other.py", "test_other.py"):
        (project / name).write_text("")
    git("init", "--initial-branch", "main")
    git("add", ".")
    git("commit", "-m", "Begin")
    assert changed(project, "main", listed) == []
    git("switch", "-c", "change")
    (project / "test_other.py").write_text("x = 1\n")
    git("commit", "-am", "Change a test")
    assert changed(project, "main", listed) == ["other"]
    (project / "code.py").write_text("")
    assert changed(project, "main", listed) == ["doubled", "untested", "other"]
    assert changed(project, "HEAD", listed) == ["doubled", "untested"]
    with pytest.raises(SystemExit, match="--changed none: expected a commit"):
        changed(project, "none", listed)


@pytest.mark.slow
def test_random_faults_are_code_with_tests_and_the_same_for_a_seed() -> None:
    drawn = sample(9, seed=1)
    assert len(drawn) == 9
    assert sample(9, seed=1) == drawn
    for file, text, faulty, tests in drawn.values():
        assert (ROOT / file).read_text() == text
        assert ast.dump(ast.parse(faulty)) != ast.dump(ast.parse(text))
        assert all((ROOT / each).is_file() for each in tests.split())
