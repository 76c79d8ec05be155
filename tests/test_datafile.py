"""JSON of files becomes data classes, or it is said which value is none."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from repro import datafile, files
from repro.datafile import NotAsDeclaredError
from repro.predict.fits import FILE, Fits


@dataclass(frozen=True)
class Part:
    name: str
    share: float | None = None


@dataclass(frozen=True)
class Whole:
    count: int
    kind: Literal["large", "small"] = "small"
    pair: tuple[int, float] | None = None
    names: tuple[str, ...] = ()
    parts: dict[int, Part] = field(default_factory=dict)
    rounds: list[list[float]] = field(default_factory=list)
    done: bool = False
    other: Any = None


def test_an_object_becomes_a_data_class_and_what_is_unknown_is_left_out() -> None:
    plain = {
        "count": 3, "kind": "large", "pair": [1, 2], "names": ["a", "b"], "parts": {"8": {"name": "x", "share": 0.5}},
        "rounds": [[1.0, 2], []], "done": True, "other": {"any": None}, "unknown": 1,
    }  # fmt: skip
    known = Whole(3, "large", (1, 2), ("a", "b"), {8: Part("x", 0.5)}, [[1.0, 2], []], True, {"any": None})
    assert datafile.from_json(Whole, plain) == known
    assert datafile.from_json(Whole, json.loads(json.dumps(asdict(known)))) == known
    assert datafile.from_json(Whole, {"count": 1}) == Whole(1)
    assert datafile.from_json(dict[str, Part], {"a": {"name": "b"}}) == {"a": Part("b")}


@dataclass(frozen=True)
class Times:
    rounds: list[float] = field(default_factory=list)
    warm_up: float = 0.0


@dataclass(frozen=True)
class Measurement:
    name: str
    times: Times = field(default_factory=Times, metadata=datafile.FLAT)
    part: Part | None = None


def test_the_fields_of_a_flat_part_stand_beside_the_others_in_their_order() -> None:
    one = Measurement("a", Times([1.0, 2.0], 3.0), Part("b"))
    plain = {"name": "a", "rounds": [1.0, 2.0], "warm_up": 3.0, "part": {"name": "b", "share": None}}
    assert [*datafile.to_json(one).items()] == [*plain.items()]
    assert datafile.from_json(Measurement, plain | {"times": "unknown"}) == one
    assert datafile.from_json(Measurement, {"name": "a"}) == Measurement("a")
    with pytest.raises(datafile.NotAsDeclaredError, match=r"^rounds\[1\] is null$"):
        datafile.from_json(Measurement, plain | {"rounds": [1.0, None]})
    with pytest.raises(datafile.NotAsDeclaredError, match=r"^it lacks name$"):
        datafile.from_json(Measurement, {"warm_up": 3.0})


@pytest.mark.parametrize(
    ("plain", "output"),
    [
        ([1], "no JSON object"),
        (None, "no JSON object"),
        ({}, "it lacks count"),
        ({"count": "3"}, 'count is "3"'),
        ({"count": 3.0}, "count is 3.0"),
        ({"count": True}, "count is true"),
        ({"count": 10**400}, "count is 1000000"),
        ({"count": None}, "count is null"),
        ({"count": 1, "kind": "huge"}, 'kind is "huge"'),
        ({"count": 1, "kind": []}, "kind is []"),
        ({"count": 1, "pair": [1]}, "pair is [1]"),
        ({"count": 1, "names": "ab"}, 'names is "ab"'),
        ({"count": 1, "names": ["\ud800"]}, r'names is "\ud800"'),  # half a character, which no file and no pipe takes
        ({"count": 1, "parts": []}, "parts is []"),
        ({"count": 1, "parts": {"two": {"name": "x"}}}, 'parts has the key "two", no whole number'),
        ({"count": 1, "parts": {"2": {}}}, "parts.2 lacks name"),
        ({"count": 1, "parts": {"2": {"name": "x", "share": float("nan")}}}, "parts.2.share is NaN"),
        ({"count": 1, "parts": {"2": {"name": "x", "share": 10**400}}}, "parts.2.share is 1000000"),
        ({"count": 1, "rounds": [[0.1], [False]]}, "rounds[1][0] is false"),
        ({"count": 1, "done": 1}, "done is 1"),
    ],
)
def test_a_value_of_another_type_is_named_with_its_place(plain: Any, output: str) -> None:
    with pytest.raises(NotAsDeclaredError) as why:
        datafile.from_json(Whole, plain)
    assert str(why.value).startswith(output)


@pytest.mark.parametrize("text", [b"{", b"\xff", b"", b"[" * 100_000, b"1" * 5000])
def test_what_is_no_json_is_reported(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_bytes(text)
    with pytest.raises(NotAsDeclaredError, match="not JSON"):
        datafile.load(tmp_path / "broken.json")
    with pytest.raises(NotAsDeclaredError, match="cannot be read \\(Is a directory\\)"):
        datafile.load(tmp_path)


def test_half_a_character_is_no_name_either() -> None:
    with pytest.raises(NotAsDeclaredError, match=r"^it is \"\\ud800\"$"):
        datafile.from_json(dict[str, Part], {"\ud800": {"name": "b"}})


def test_a_file_that_no_memory_would_take_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 2**20)
    with pytest.raises(NotAsDeclaredError, match=r"^cannot be read \(larger than 1,048,576 bytes\)$"):
        datafile.load(Path("/dev/zero"))


def test_the_shipped_fits_are_read_whole() -> None:
    assert json.loads(json.dumps(asdict(datafile.read(FILE, Fits)))) == json.loads(FILE.read_text())
