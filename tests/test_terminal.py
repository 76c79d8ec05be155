"""Tables on a terminal: whole where they fit, wrapped where they do not; in a pipe always whole."""

import contextlib
import csv
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from itertools import pairwise

import pytest

from repro.console import folded, wrapped
from tests.support.command_line import ROOT, repro

# Each with the columns of a terminal that its words leave room for.
COMMANDS = [
    (["table", "1"], 84),
    (["audit"], 80),
    (["claims"], 90),
    (["predict", "--validate"], 100),
]


def on_a_terminal(width: int, *arguments: str, height: int = 40) -> list[str]:
    """What a command prints to a terminal of that size, line by line."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for name in ("COLUMNS", "LINES"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "repro", *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.PIPE, env=environment) as process:
        os.close(theirs)
        printed = b""
        with contextlib.suppress(OSError):  # the terminal's other end is closed
            while more := os.read(ours, 1 << 16):
                printed += more
    os.close(ours)
    assert process.returncode == 0
    return printed.decode().replace("\r\n", "\n").splitlines()


def tables_of(lines: list[str]) -> list[list[list[str]]]:
    """The tables among these lines, as rows of cells; what wraps is a row of its own."""
    found = []
    for place, line in enumerate(lines):
        if set(line) == {"-", " "}:
            starts = [at for at, letter in enumerate(line) if letter == "-" and line[at - 1 : at] in ("", " ")]
            rows = lines[place + 1 : lines.index("", place)]
            edges = [*starts, None]
            found.append([[row[a:b].strip() for a, b in pairwise(edges)] for row in rows])
    return found


@pytest.mark.parametrize(
    ("command", "width"), COMMANDS, ids=lambda value: " ".join(value) if isinstance(value, list) else None
)
def test_no_row_of_a_table_is_longer_than_the_terminal(command: list[str], width: int) -> None:
    assert max(map(len, repro(*command).stdout.splitlines())) > width
    lines = on_a_terminal(width, *command)
    rules = [place for place, line in enumerate(lines) if set(line) == {"-", " "}]
    assert rules
    for place in rules:
        end = next((at for at in range(place, len(lines)) if not lines[at]), len(lines))
        assert max(map(len, lines[place:end])) <= width


def test_a_table_whose_words_are_wider_than_the_terminal_holds_every_cell() -> None:
    printed = list(csv.DictReader(io.StringIO(repro("table", "1", "--format", "csv").stdout)))
    (rows,) = tables_of(on_a_terminal(40, "table", "1"))
    for place, model in enumerate(dict.fromkeys(row["model"] for row in printed), 1):
        cells = [row[place].rstrip("!") for row in rows if row[place]]
        assert cells == [row["days"] or "-" for row in printed if row["model"] == model]


@pytest.mark.parametrize("command", [["audit"], ["cost"], ["--help"], ["doctor"]], ids=" ".join)
def test_what_is_reported_between_tables_wraps_too_and_in_a_pipe_does_not(command: list[str]) -> None:
    piped = repro(*command, COLUMNS="80").stdout
    assert max(map(len, piped.splitlines())) > 80
    lines = on_a_terminal(80, *command)
    assert max(len(line) for line in lines if "  " not in line.strip()) <= 80
    output = [line for line in piped.splitlines() if len(line) > 80 and "  " not in line.strip()]
    assert [line for line in output if " ".join(line.split()) not in " ".join(" ".join(lines).split())] == []


def test_what_wraps_goes_on_below_its_beginning() -> None:
    assert folded("- one two three\n\n  For: four five\n2. sixteen of\n  name   of its help", 12).split("\n") == [
        *("- one two", "  three", "", "  For: four", "  five", "2. sixteen", "   of"),
        *("  name   of", "         its", "         help"),
    ]
    table = "head  another head\n----  ------------\na     a long cell"
    assert folded(table, 10) == table


def test_a_table_that_fits_and_one_in_a_pipe_are_whole() -> None:
    assert on_a_terminal(80, "table", "5") == repro("table", "5").stdout.splitlines()


def test_machines_are_reported_the_same_on_a_terminal() -> None:
    assert (
        on_a_terminal(40, "table", "1", "--format", "csv") == repro("table", "1", "--format", "csv").stdout.splitlines()
    )


def test_the_widest_column_wraps_first_and_words_stay_whole() -> None:
    word = "free_lunch+checkpointing+fsdp_2+offloading"
    what, output = wrapped([["what", "a", "b"], ["output", "word " * 20, "short"]], 40)
    assert what == ["what", "a", "b"]
    assert max(map(len, output[1].splitlines())) <= 40 - len("what  ")
    assert output[1].split() == ["word"] * 20
    settings, _ = wrapped([["settings", word], ["days", "1"]], 30)
    assert settings == ["settings", "free_lunch+\ncheckpointing+fsdp_2+\noffloading"]
    assert wrapped([["value", "1.983e+12"]], 4) == [["value", "1.983e+12"]]
