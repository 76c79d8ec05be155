"""Tables on a terminal: whole where they fit, wrapped and then split where they do not; in a pipe always whole."""

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

from repro.console import Column, folded, laid_out
from tests.command_line import ROOT, process

COMMANDS = [
    ["table", "1"],
    ["table", "3"],
    ["gpus"],
    ["audit"],
    ["claims"],
    ["predict"],
    ["predict", "--gpu", "A100", "--models", "pythia-1b"],
    ["predict", "--validate"],
    ["recommend", "--model", "pythia-1b", "--either"],
    ["breakeven"],
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


def parts_of(lines: list[str]) -> list[list[list[str]]]:
    """The tables among these lines, as rows of cells; what wraps is a row of its own."""
    found = []
    for place, line in enumerate(lines):
        if set(line) == {"-", " "}:
            starts = [at for at, letter in enumerate(line) if letter == "-" and line[at - 1 : at] in ("", " ")]
            rows = lines[place + 1 : lines.index("", place)]
            edges = [*starts, None]
            found.append([[row[a:b].strip() for a, b in pairwise(edges)] for row in rows])
    return found


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_row_of_a_table_is_longer_than_the_terminal(command: list[str], width: int) -> None:
    lines = on_a_terminal(width, *command)
    rules = [place for place, line in enumerate(lines) if set(line) == {"-", " "}]
    assert rules
    for place in rules:
        end = next((at for at in range(place, len(lines)) if not lines[at]), len(lines))
        assert max(map(len, lines[place:end])) <= width


def test_the_parts_of_a_split_table_hold_every_cell_behind_what_tells_its_row() -> None:
    printed = list(csv.DictReader(io.StringIO(process("table", "1", "--format", "csv").stdout)))
    parts = parts_of(on_a_terminal(80, "table", "1"))
    assert len(parts) > 1
    for rows in zip(*parts, strict=True):
        model = rows[0][0]
        assert {row[0] for row in rows} == {model}
        assert [cell for row in rows for cell in row[1:]] == [
            row["days"] or "-" for row in printed if row["model"] == model
        ]


@pytest.mark.parametrize("command", [["audit"], ["breakeven"], ["table", "1"], ["--help"], ["doctor"]], ids=" ".join)
def test_what_is_told_between_tables_wraps_too_and_in_a_pipe_does_not(command: list[str]) -> None:
    piped = process(*command, COLUMNS="80").stdout
    assert max(map(len, piped.splitlines())) > 80
    lines = on_a_terminal(80, *command)
    assert max(map(len, lines)) <= 80
    told = [line for line in piped.splitlines() if len(line) > 80 and "  " not in line.strip()]
    assert [line for line in told if " ".join(line.split()) not in " ".join(" ".join(lines).split())] == []


def test_what_wraps_goes_on_below_its_beginning() -> None:
    assert folded("- one two three\n\n  For: four five\n2. sixteen of\n  name   of its help", 12).split("\n") == [
        *("- one two", "  three", "", "  For: four", "  five", "2. sixteen", "   of"),
        *("  name   of", "         its", "         help"),
    ]
    table = "head  another head\n----  ------------\na     a long cell"
    assert folded(table, 10) == table


def test_a_table_that_fits_and_one_in_a_pipe_are_whole() -> None:
    piped = process("table", "1").stdout.splitlines()
    assert len(parts_of(piped)) == 1
    assert on_a_terminal(max(map(len, piped)), "table", "1") == piped
    assert on_a_terminal(80, "table", "5") == process("table", "5").stdout.splitlines()


def test_an_answer_that_the_table_below_it_would_scroll_off_a_terminal_comes_last() -> None:
    asked = ("recommend", "--model", "pythia-1b", "--budget", "40000")
    tall, low = on_a_terminal(300, *asked, height=60), on_a_terminal(300, *asked, height=20)
    assert tall[0] == process(*asked).stdout.splitlines()[0]
    assert low[-2] == tall[0]
    assert sorted(low) == sorted(tall)
    assert on_a_terminal(300, *asked, "--format", "markdown", height=20)[0] == tall[0]


def test_machines_are_told_the_same_on_a_terminal() -> None:
    assert (
        on_a_terminal(40, "table", "1", "--format", "csv")
        == process("table", "1", "--format", "csv").stdout.splitlines()
    )


def test_long_cells_wrap_before_a_table_is_split() -> None:
    table = [Column("what", ("a", "b"), False), Column("told", ("word " * 20, "short"), False)]
    (part,) = laid_out(table, 40)
    assert max(len(line) for cell in part[1].cells for line in cell.splitlines()) <= 40 - len("what  ") - 2
    assert " ".join(part[1].cells[0].split()) == ("word " * 20).strip()


def test_a_column_that_is_the_same_in_all_rows_tells_none_apart() -> None:
    model = Column("model", ("pythia-2.8b", "pythia-2.8b"), False)
    settings = Column("settings", ("free_lunch+checkpointing", "free_lunch+zero_1"), False)
    numbers = (Column(f"column{n}", ("1", "2"), True) for n in range(4))
    first, *more = laid_out([model, settings, *numbers], 60)
    assert first[:2] == [model, settings]
    assert [part[0] for part in more] == [settings]


def test_rows_are_numbered_where_what_tells_them_apart_is_too_wide_for_every_part() -> None:
    model = Column("model", ("roberta", "roberta", "mamba"), False)
    settings = Column("settings", ("free_lunch+checkpointing", "free_lunch+zero_1", "free_lunch+zero_1"), False)
    numbers = (Column(f"column{n}", ("1", "2", "3"), True) for n in range(4))
    first, *more = laid_out([model, settings, *numbers], 40)
    row = Column("row", ("1", "2", "3"), True)
    assert first[:3] == [row, model, settings]
    assert more
    assert all(part[:2] == [row, model] for part in more)


def test_parts_are_about_as_wide_as_each_other() -> None:
    table = [Column("key", ("a", "b"), False), *(Column(f"column{n}", ("1", "2"), True) for n in range(10))]
    parts = laid_out(table, 95)
    assert [len(part) for part in parts] == [6, 6]  # not 9 and 2, as would fit, and the key in each


def test_a_word_that_is_longer_than_the_terminal_stays_whole() -> None:
    word = "free_lunch+checkpointing+fsdp_2+offloading"
    parts = laid_out([Column("settings", (word,), False), Column("days", ("1",), True)], 20)
    assert [part[0].cells for part in parts] == [(word,)] * len(parts)
