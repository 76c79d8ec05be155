"""Commands that read print what they printed: the files of tests/golden/, which `python -m tests.goldens` renews."""

from __future__ import annotations

from difflib import unified_diff

from tests.goldens import COMMANDS, FOLDER, REFUSED, golden, output, refusals

_SHOWN = 12  # lines of a difference


def test_outputs_are_those_of_the_golden_files() -> None:
    assert {*FOLDER.iterdir()} == {REFUSED, *map(golden, COMMANDS)}
    different = []
    for command in COMMANDS:
        before, now = golden(command).read_text(), output(command)
        if now != before:
            lines = unified_diff(before.splitlines(), now.splitlines(), "golden", "now", n=0, lineterm="")
            different.append("\n    ".join([command, *list(lines)[:_SHOWN]]))
    assert not different, "python -m tests.goldens renews them\n" + "\n".join(different)


def test_commands_are_refused_by_the_lines_of_the_golden_file() -> None:
    assert refusals().splitlines() == REFUSED.read_text().splitlines(), "python -m tests.goldens renews it"
