"""What holds whatever is given: parsers take a text or refuse it in one line, what is written is read back, estimates
lie in their intervals, and a spoiled file of expected/ is named by its line and column."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from html import unescape
from itertools import cycle, islice
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from repro import datafile, formats
from repro.cli import parser
from repro.commands.devices import parse_gpus
from repro.commands.run import parsed
from repro.compare.decision import decide
from repro.console import UserError, code, csv_field, markdown, visible
from repro.datafile import NotAsDeclaredError, expected_folder, parse
from repro.formats import Interval
from repro.machine.environment import FILE as ENVIRONMENT
from repro.machine.environment import Environment
from repro.models import specification
from repro.money import amounts
from repro.paper.settings import Settings
from repro.record import MUST_AGREE, RawTimes, Record
from repro.run.reading import read
from repro.run.results import TRIALS
from tests.paper.test_expected import READERS
from tests.support.command_line import ROOT, repro
from tests.test_hostile import STEERS

hypothesis = pytest.importorskip("hypothesis", reason="needs hypothesis (./run_all.sh test installs it)")
from hypothesis import assume, example, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

# The same examples each time: what fails here fails everywhere.
few = settings(max_examples=60, deadline=None, derandomize=True, database=None)
# Texts of what options are made of, and any text.
PIECES = "0 1 2 16 1e9 -4 . .. , ; @ = : / + - % ( ) [ ] ' \" \\ s h d k B GiB Gb/s USD all none vit H100 naive zero_3"
PIECES_OF_TEXT = [*PIECES.split(), " ", "\n", "\x1b", "\u202e", "\udcff"]
TEXTS = st.text(st.characters(exclude_characters="\0"), max_size=12) | st.lists(
    st.sampled_from(PIECES_OF_TEXT), max_size=6
).map("".join)
NUMBERS = st.floats(1e-6, 1e6)


def refusal_of(call: Callable[[], object]) -> str | None:
    """Return what a call is refused with; None where it is not."""
    try:
        call()
    except (UserError, NotAsDeclaredError) as error:
        return str(error)
    return None


# --- Parsers ---

PARSERS: dict[str, Callable[[str], object]] = {
    "seconds": lambda text: formats.seconds(text, "--budget"),
    "bytes": lambda text: formats.bytes_(text, "--memory"),
    "budget": lambda text: amounts.budget(text, "--budget"),
    "amount": lambda text: formats.amount(text, "--tokens"),
    "network": lambda text: formats.network(text, "--network"),
    "count": lambda text: formats.count(text, "--steps"),
    "interval": lambda text: amounts.interval(text, "--pue"),
    "money": lambda text: amounts.Sum.parse(text, "--rent"),
    "gpus": lambda text: parse_gpus(text, 4),
    "settings": Settings.parse,
    "models": specification.split,
    "JSON": lambda text: parse(text.encode("utf-8", "surrogatepass")),
}


@pytest.mark.parametrize("name", PARSERS)
@few
@given(text=TEXTS)
def test_a_parser_takes_a_text_or_refuses_it(name: str, text: str) -> None:
    assert refusal_of(lambda: PARSERS[name](text)) != ""


# Commands with options, quick where an option is taken: no one measures, writes or asks a network.
BASES = {
    "table": ["table", "3"],
    "audit": ["audit", "--format", "csv"],
    "claims": ["claims", "mean-speedup"],
    "predict": ["predict", "--models", "vit", "--gpu", "H100", "--methods", "naive"],
    "cost": ["cost", "vit", "--gpu", "H100"],
    "compare": ["compare", "no-such-folder", "nor-this"],
    "survey": ["survey", "--train"],
    "slurm": ["slurm", "--gpus-per-node", "1", "--time", "1h", "--", "run"],
    "run": ["run"],
}
_CALCULATOR = {"--machine", "--rent", "--hours", "--power", "--resale", "--pue", "--co2"}  # of cost without a model
_WRITES = {"--out", "--against", "--help", "--with"}  # and --with runs a file
OPTIONS = [
    (name, option, str(action.metavar))
    for name in BASES
    for action in parser(name)._actions
    for option in action.option_strings[-1:]
    if action.nargs is None and not action.choices and option not in _WRITES
]
TYPED = [(name, option) for name, option, _ in OPTIONS]
# What is read after another option, which would build a stack, or where the processes are.
_LATER = {("compare", "--gpus")}
OF_NUMBERS = [
    (name, option)
    for name, option, kind in OPTIONS
    if re.search(r"[0-9]|\bN\b|^(SUM|G|H|KW|X)$", kind) and (name, option) not in _LATER
]
NO_NUMBERS = ["-1", "nan", "inf", "1e400", "\uff13", "1_000", "4 potatoes", "much", "4\nand a line", "\x1b[2J\x854h"]


def test_options_are_found() -> None:
    assert len(TYPED) > 40
    assert {("cost", "--budget"), ("run", "--micro-batches"), ("predict", "--network")} <= set(TYPED)


@settings(few, max_examples=300)
@given(option=st.sampled_from(TYPED), text=TEXTS)
@example(("cost", "--budget"), "1e400")
@example(("run", "--tolerance"), "nan")
@example(("predict", "--gpus"), "\u0663")
def test_an_option_takes_a_text_or_refuses_it_in_one_line(option: tuple[str, str], text: str) -> None:
    told = refused(*option, text)
    assert told is None or (told and visible(told) == told)


@pytest.mark.parametrize(("command", "option"), OF_NUMBERS, ids=map(" ".join, OF_NUMBERS))
def test_what_is_no_number_is_refused_with_the_name_of_the_option(command: str, option: str) -> None:
    for text in NO_NUMBERS:
        assert (refused(command, option, text) or "").startswith(f"repro: {option} {visible(text)}"), text


def refused(command: str, option: str, text: str) -> str | None:
    """Return the line with which a command refuses an option; None where it takes it."""
    given = f"{option}={text}"
    if command == "run":  # as far as it goes without measuring
        message = refusal_of(lambda: parsed(parser("run").parse_args([given])))
        return None if message is None else f"repro: {visible(message)}"
    _, *words = BASES[command]
    if command == "cost" and option in _CALCULATOR:
        words = []
    if option in words:
        del words[words.index(option) : words.index(option) + 2]
    done = repro(command, given, *words)
    assert done.returncode in (0, 1, 2, 3)
    assert done.returncode != 2 or done.stdout == ""
    return done.stderr.removesuffix("\n") if done.returncode == 2 else None


# --- What is written is read back ---


@few
@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8), max_size=4))
def test_shell_words_are_read_back_by_bash(words: list[str]) -> None:
    line = formats.shell_words(words)
    assert visible(line) == line
    done = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == (words or [""])


@few
@given(st.text(max_size=20))
def test_markdown_has_no_markup_and_its_text(text: str) -> None:
    written = str(markdown(text))
    assert unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", written)) == unescape(visible(text))
    assert not re.search(r"(?<!\\)[<`*~]", written)
    assert markdown(markdown(text)) == written
    assert "\n" not in code(text)


ROWS = st.lists(st.fixed_dictionaries({"a b": st.text(max_size=9), "c": st.none() | NUMBERS | st.text(max_size=9)}))


@few
@given(ROWS)
def test_a_table_has_its_rows_whatever_is_in_them(rows: list[dict[str, Any]]) -> None:
    assert json.loads(formats.render(rows, "json")) == rows
    found = list(csv.DictReader(io.StringIO(formats.render(rows, "csv"))))
    assert [row["a b"] for row in found] == [csv_field(row["a b"]) for row in rows]
    if not rows:
        return
    assert len(formats.render(rows, "markdown").splitlines()) == 2 + len(rows)
    head, rule, *lines = formats.render(rows, "text").splitlines()
    assert set(rule) <= {"-", " "}
    assert len(lines) >= len(rows)
    assert all(visible(line) == line for line in [head, *lines])


@few
@given(st.sets(st.integers(0, 7)), st.booleans())
def test_gpus_are_those_that_are_listed(asked: set[int], prefixed: bool) -> None:
    listed = list(asked)
    assume(len(listed) > 1 or (listed and prefixed))
    assert parse_gpus("device=" * prefixed + ",".join(map(str, listed)), 8) == listed
    if max(listed) > 0:
        with pytest.raises(UserError, match="there is no GPU"):
            parse_gpus("device=" + ",".join(map(str, listed)), max(listed))


# --- Records, by the types of their classes ---

KEPT = ROOT / "results" / "h100" / "text"

st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(TEXTS, some, max_size=3),
    max_leaves=4,
)


def types_of(kind: type) -> dict[str, Any]:
    """Return the types of the fields that a data class has in a file, where those of its parts stand beside its own."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        metadata = {each.name: each.metadata for each in fields(kind)}[name]
        parts = types_of(hint) if "flat" in metadata else {name: hint}
        found |= {metadata.get("flat", {}).get(part, part): type for part, type in parts.items()}
    return found


def changes(kind: type) -> st.SearchStrategy[dict[str, Any]]:
    """Draw values for one to three fields of a data class in a file, of their types or any other."""
    values = {name: ANY if "Any" in str(hint) else st.from_type(hint) | ANY for name, hint in types_of(kind).items()}
    one = st.sampled_from(sorted(values)).flatmap(lambda name: st.tuples(st.just(name), values[name]))
    return st.lists(one, min_size=1, max_size=3).map(dict)


@settings(few, max_examples=30)
@given(st.from_type(Record))
def test_a_record_is_read_back_as_it_was_and_what_it_lacks_is_a_default(record: Record) -> None:
    written = json.loads(json.dumps(datafile.to_json(record)))
    assert datafile.from_json(Record, written) == record
    usual = datafile.to_json(Record("", "", "paper", "", "", 1, "ok"))
    lacking = {name: value for name, value in written.items() if value != usual[name] or name in MUST_AGREE}
    needed = {"id": record.id, "device": record.device, "status": record.status}
    assert datafile.from_json(Record, lacking | needed | {"of another version": 1}) == record


READING = [
    *(["audit", "--measured", "{}"], ["table", "4", "--measured", "{}", "--format", "json"]),
    *(["claims", "--measured", "{}"], ["compare", str(KEPT), "{}"], ["cost", "vit", "--measured", "{}"]),
]
# Days follow from these fields alone.
RAW = {*types_of(RawTimes), "authors_micro_batch", "micro_batch", "accumulation"}


def days_of(folder: Path) -> set[tuple[str, float | None, float | None]]:
    """Return the days that a folder's records tell, each with what of it."""
    return {(each.id, each.derived.authors_days, each.derived.true_days) for each in read(folder).records if each.timed}


@pytest.mark.slow
@settings(few, max_examples=100)
@given(changes(Record), st.just({}) | changes(Environment), st.sampled_from([None, None, *READING]))
def test_a_forged_record_gets_no_days_and_takes_none_from_another(
    tmp_path_factory: pytest.TempPathFactory,
    record: dict[str, Any],
    environment: dict[str, Any],
    command: Sequence[str] | None,
) -> None:
    honest, folder = tmp_path_factory.mktemp("honest"), tmp_path_factory.mktemp("forged")
    lines = [line for line in (KEPT / TRIALS).read_text().splitlines() if '"status": "ok"' in line][:2]
    listed = json.loads((KEPT / ENVIRONMENT).read_text())
    for place, first, around in ((honest, {}, {}), (folder, record, environment)):
        written = [json.dumps(json.loads(lines[0]) | first, default=datafile.to_json), lines[1]]
        (place / TRIALS).write_text("".join(f"{line}\n" for line in written))
        (place / ENVIRONMENT).write_text(json.dumps(listed | around, default=datafile.to_json))
    told, forged = days_of(honest), days_of(folder)
    assert len(told) == 2
    assert forged <= told or record.keys() & RAW
    assert environment or {each for each in told if each[0] == json.loads(lines[1])["id"]} <= forged
    if command is not None:
        done = repro(*(word.format(folder) for word in command))
        assert done.returncode in (0, 1, 2, 3)
        assert not STEERS.search(done.stdout + done.stderr)
        assert done.returncode != 2 or done.stdout == ""


# --- Numbers ---

INTERVALS = st.lists(NUMBERS, min_size=3, max_size=3).map(sorted).map(lambda it: Interval(it[1], it[0], it[2]))


@few
@given(INTERVALS, INTERVALS)
def test_an_interval_holds_its_estimate_through_arithmetic(one: Interval, other: Interval) -> None:
    found = [
        one + other,
        one - other,
        one * other,
        one / other,
        2.0 / one,
        formats.mean([one, other]),
        one.mapped(round),
    ]
    assert all(each.low <= each.value <= each.high for each in found)
    assert one.overlaps(one)
    assert one.overlaps(other) == other.overlaps(one)


OPPOSITE = {"regressed": "improved", "improved": "regressed", "unchanged": "unchanged", "inconclusive": "inconclusive"}


@few
@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=30))
def test_the_rule_is_symmetric_in_before_and_after(ratios: list[float]) -> None:
    there, back = decide(ratios), decide([1 / ratio for ratio in ratios])
    assert back.call == OPPOSITE[there.call]
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert there.interval is None or there.interval.low <= there.ratio <= there.interval.high


# --- The files of expected/, spoiled value by value ---

SPOILED = ["", "?", "-", "x", "-1", "0", "1e400", "nan", "=1+1", "1,5", "2024-13-01", "\x1b[2J", "\u0663", "x" * 10**4]


def spoil(folder: Path, file: str, row: int, column: int, value: str) -> str:
    """Write another value into a cell of a file of this copy of expected/; returns the name of its column."""
    with (expected_folder() / file).open(newline="") as opened:
        lines = list(csv.reader(opened))
    lines[row][column] = value
    (folder / file).unlink()
    with (folder / file).open("w", newline="") as opened:
        csv.writer(opened, lineterminator="\n").writerows(lines)
    return lines[0][column]


def spoiled_cells(file: str) -> Iterator[tuple[str, int, int]]:
    """Yield five values for a cell of each column of a file, by its row and column: of three columns all of them."""
    with (expected_folder() / file).open(newline="") as opened:
        lines = list(csv.reader(opened))
    values = cycle(SPOILED)
    for column in range(len(lines[0])):
        yield from ((value, 1 + column % (len(lines) - 1), column) for value in islice(values, 5))


def test_every_file_of_expected_is_spoiled() -> None:
    assert {path.name for path in expected_folder().glob("*.csv")} == {*READERS}


@pytest.mark.parametrize("file", READERS)
def test_a_spoiled_value_is_another_value_or_named_by_file_line_and_column(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, (value, row, column) in enumerate(spoiled_cells(file)):
        copy = tmp_path / str(number)  # what was read of a folder is kept
        shutil.copytree(expected_folder(), copy, copy_function=os.symlink)
        name = spoil(copy, file, row, column, value)
        with monkeypatch.context() as patch:
            patch.setenv("REPRO_EXPECTED", str(copy))
            message = refusal_of(READERS[file])
        named = rf"{re.escape(str(copy))}/\w+\.csv(, line [0-9]+, \$\.{name}: found .*, expected |: found no row )"
        assert message is None or re.match(named, message), message
