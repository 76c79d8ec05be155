"""Commands that read print what they printed: the files of tests/golden/, which `python -m tests.goldens` renews."""

from __future__ import annotations

from difflib import unified_diff

from tests.goldens import COMMANDS, FOLDER, golden, output

_SHOWN = 12  # lines of a difference


def test_outputs_are_those_of_the_golden_files() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {golden(command).name for command in COMMANDS}
    different = []
    for command in COMMANDS:
        before, now = golden(command).read_text(), output(command)
        if now != before:
            lines = unified_diff(before.splitlines(), now.splitlines(), "golden", "now", n=0, lineterm="")
            different.append("\n    ".join([command, *list(lines)[:_SHOWN]]))
    assert not different, "python -m tests.goldens renews them\n" + "\n".join(different)
