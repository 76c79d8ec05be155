"""JSON of files becomes data classes, or an error names the value that does not fit."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from repro import datafile, files
from repro.datafile import NotAsDeclaredError
from repro.predict.fits import FILE, Fits


@dataclass(frozen=True)
class Times:
    rounds: list[float] = field(default_factory=list)
    warm_up: float = 0.0


@dataclass(frozen=True)
class Measurement:
    name: str
    times: Times = field(default_factory=Times, metadata=datafile.flat(warm_up="first"))
    by_count: dict[int, Times] = field(default_factory=dict)
    traceback: str = ""
    other: Any = None


def test_fields_of_a_flat_part_stand_beside_the_others() -> None:
    one = Measurement("a", Times([1.0, 2.0], 3.0))
    plain = {"name": "a", "rounds": [1.0, 2.0], "first": 3.0, "by_count": {}, "traceback": "", "other": None}
    assert [*datafile.to_json(one).items()] == [*plain.items()]
    assert datafile.from_json(Measurement, plain | {"times": "unknown", "newer": 1}) == one
    assert datafile.from_json(Measurement, {"name": "a", "by_count": {"8": {}}}).by_count == {8: Times()}


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ([1], "Expected `object`, got `array`"),
        ({}, "Object missing required field `name`"),
        ({"name": "a", "rounds": [1.0, None]}, "Expected `float`, got `null` - at `$.rounds[1]`"),
        ({"name": "a", "first": "3"}, "Expected `float`, got `str` - at `$.first`"),
        ({"name": "a", "by_count": {"8": 1}}, "Expected `object`, got `int` - at `$.by_count[...]`"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_path_in_the_file(plain: Any, message: str) -> None:
    with pytest.raises(NotAsDeclaredError) as raised:
        datafile.from_json(Measurement, plain)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"\xff",
        b"",
        b"[" * 100_000,
        b"[" * 800 + b'"\\n"' + b"]" * 800,
        b"1" * 5000,
        b"[NaN]",
        b"[1e999]",
        b'"\\ud800"',
        b"[36893488147419103232]",
    ],
)
def test_what_is_no_json_is_reported(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_bytes(text)
    with pytest.raises(NotAsDeclaredError, match="not JSON"):
        datafile.load(tmp_path / "broken.json")
    with pytest.raises(NotAsDeclaredError, match="cannot be read \\(Is a directory\\)"):
        datafile.load(tmp_path)


@pytest.mark.parametrize("ends_line", ["\n", "\u2028", "\x7f", "\U000e0100"])
def test_text_is_escaped_where_it_is_read_but_lines_of_a_traceback(ends_line: str) -> None:
    plain = {"name": f"a{ends_line}b", "traceback": "line\nline\x1b", "other": [{f"a{ends_line}": f"{ends_line}b"}]}
    escaped = ends_line.encode("unicode_escape").decode()
    for content in (json.dumps(plain), json.dumps(plain, ensure_ascii=False)):
        read = datafile.from_json(Measurement, datafile.parse(content.encode()))
        assert read.name == f"a{escaped}b"
        assert read.traceback == "line\nline\\x1b"
        assert read.other == [{f"a{escaped}": f"{escaped}b"}]


def test_a_file_that_no_memory_would_take_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 2**20)
    with pytest.raises(NotAsDeclaredError, match=r"^cannot be read \(larger than 1,048,576 bytes\)$"):
        datafile.load(Path("/dev/zero"))


def test_the_shipped_fits_are_read_whole() -> None:
    assert json.loads(json.dumps(asdict(datafile.read(FILE, Fits)))) == json.loads(FILE.read_text())
