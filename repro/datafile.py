"""CSV and JSON files as data classes: every value is checked, and each error names its position.

People may have edited the files. A broken CSV file raises a UserError of one line: file, line, column, what was found
and what was expected. Broken JSON raises a NotAsDeclaredError, which names the key.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from datetime import date, datetime
from functools import cache, wraps
from math import isfinite
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, NoReturn, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from . import console, files
from .console import DATA, UserError, cut, visible

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_LARGEST = 1e30  # number: products of a few stay far within the range of floats
VALUE = 60  # characters of a value that an error shows
_WAY_OUT = "restore it, or let REPRO_EXPECTED name a folder that has it"


class ContradictionError(ValueError):
    """An error of a row whose values are each valid but contradict each other: the `field`, and what the others require
    there."""

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}")
        self.field = field
        self.expected = expected


def expected_folder() -> Path:
    """Return the folder of the paper's numbers: expected/ that comes with repro, or the folder in REPRO_EXPECTED."""
    return named_folder() or DATA / "expected"


def named_folder() -> Path | None:
    """Return the folder that replaces expected/ by REPRO_EXPECTED; None where that names none, or expected/ itself."""
    named = os.environ.get("REPRO_EXPECTED")
    return Path(named) if named and os.path.realpath(named) != str(DATA.resolve() / "expected") else None


def of_another() -> str | None:
    """Return the sentence that the paper's numbers are not those of this repository; None where they are."""
    if (another := named_folder()) is None:
        return None
    return f"the paper's numbers are those in {another} (REPRO_EXPECTED), not those that come with repro"


def read_once(read: Callable[P, T]) -> Callable[P, T]:
    """Make a reader of `expected/` read each folder once. All callers get the same object, and must not change it."""

    @cache
    def kept(folder: Path, *args: Any, **kwargs: Any) -> T:
        return read(*args, **kwargs)

    @wraps(read)
    def reader(*args: P.args, **kwargs: P.kwargs) -> T:
        return kept(expected_folder().absolute(), *args, **kwargs)  # type: ignore[arg-type]

    return reader


class Keyed(dict[K, V]):
    """A file's rows by their key. Looking up a missing key raises UserError."""

    def __init__(self, file: str, rows: Mapping[K, V]) -> None:
        super().__init__(rows)
        self._file = file

    def __missing__(self, key: K) -> NoReturn:
        absent(self._file, "row", key)


def absent(file: str, what: str, key: Hashable) -> NoReturn:
    """Raise the UserError that a file of `expected/` has no `what` for a row's key."""
    raise UserError(f"{expected_folder() / file}: found no {what} for {named(key)}, expected one; {_WAY_OUT}")


def read_csv(
    kind: type[T],
    name: str,
    key: tuple[str, ...],
    check: Callable[[CsvRow], object] = lambda row: None,
    wanted: Iterable[Hashable] = (),
) -> Keyed[Any, T]:
    """Return the rows of a file of `expected/`, whose columns are the fields of `kind`, each parsed by its field's
    type.

    Rows are keyed by the fields `key`, as one value or a tuple, in the file's order. An optional field is None for a
    dash. `check` may reject a row, and `kind` raise ContradictionError. Raises UserError for a broken file, a repeated
    key, or a `wanted` key that is missing.
    """
    known, seen, found = types(kind), dict[Hashable, int](), {}  # type: ignore[arg-type]
    for row in csv_rows(expected_folder() / name, columns(kind)):
        check(row)
        values = {column: row.parse(column, *converter(known[column])) for column in columns(kind)}
        place = values[key[0]] if len(key) == 1 else tuple(values[column] for column in key)
        row.once(key[0], place, seen)
        try:
            found[place] = kind(**values)
        except ContradictionError as error:
            row.problem(error.field, error.expected)
    complete(expected_folder() / name, seen, wanted)
    return Keyed(name, found)


def complete(file: Path, seen: Mapping[Hashable, int], wanted: Iterable[Hashable]) -> None:
    """Raise UserError where the file lacks a wanted key. `seen` has the line of each key that it has."""
    missing = next((key for key in wanted if key not in seen), None)
    if missing is not None:
        end = max(seen.values(), default=1) + 1
        problem(file, end, 1, "model", "the end of the file", f"a row for {named(missing)}")


@cache
def types(kind: type) -> dict[str, Any]:
    """Return the types of a data class's fields, with what they are annotated with."""
    return get_type_hints(kind, include_extras=True)


def columns(kind: type, without: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the names of a data class's fields, which are the column headings of its file."""
    return tuple(field.name for field in fields(kind) if field.name not in without)


@dataclass(frozen=True)
class CsvRow:
    """One record of a CSV file, with its position for errors."""

    file: Path
    line: int
    header: tuple[str, ...]
    values: tuple[str, ...]

    def __getitem__(self, column: str) -> str:
        return self.values[self.header.index(column)]

    def problem(self, column: str, expected: str) -> NoReturn:
        """Raise the UserError that the value in this column is not what was expected."""
        problem(self.file, self.line, self.header.index(column) + 1, column, repr(self[column]), expected)

    def text(self, column: str) -> str:
        return self.parse(column, *_READERS[str])

    def choice(self, column: str, choices: Collection[str], called: str | None = None) -> str:
        """Return the text, which must be one of `choices`; `called` describes them where they are too many to list."""
        if self[column] not in choices:
            self.problem(column, called or one_of(choices))
        return self[column]

    def count(self, column: str) -> int:
        return self.parse(column, *_READERS[int])

    def parse(self, column: str, convert: Callable[[str], T], expected: str) -> T:
        """Return the converted value. Raises UserError where `convert` raises a KeyError or ValueError."""
        try:
            return convert(self[column])
        except (KeyError, ValueError):
            self.problem(column, expected)

    def once(self, column: str, key: Hashable, seen: dict[Hashable, int]) -> None:
        """Note the key's line in `seen`. Raises UserError where an earlier line has the same key."""
        if key in seen:
            self.problem(column, f"{named(key)} only once, and line {seen[key]} has it")
        seen[key] = self.line


def csv_rows(file: Path, columns: tuple[str, ...]) -> Iterator[CsvRow]:
    """Yield the records of a CSV file that has these columns, in any order. Other columns and blank lines are ignored.

    Raises UserError for a file that cannot be read, bytes that are not UTF-8, a missing column, and a record with more
    or fewer fields than the header.
    """
    reader = csv.reader(_open(file), strict=True)
    try:
        header = tuple(next(reader, ()))
        _check_utf8(file, 1, columns, header)
        for place, column in enumerate(columns, start=1):
            if header.count(column) != 1:
                found = "it twice" if column in header else "no such column"
                problem(file, 1, place, column, found, f"the columns {','.join(columns)} in the first line")
        for values in filter(None, reader):
            _check_utf8(file, reader.line_num, header, values)
            _check_length(file, reader.line_num, header, values)
            yield CsvRow(file, reader.line_num, header, tuple(map(visible, values)))
    except csv.Error as error:
        expected = "fields split by commas, with quotes in pairs"
        raise UserError(f"{file}, line {reader.line_num}: not CSV ({error}), expected {expected}") from None


def _open(file: Path) -> io.StringIO:
    try:
        data = files.read(file)
    except OSError as error:
        reason = "not found" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"{file}: {reason}, expected a CSV file; {_WAY_OUT}") from None
    # Spreadsheets write a byte order mark. Bytes that are not UTF-8 are kept, so that the error can name their column.
    text = data.removeprefix(codecs.BOM_UTF8).decode(errors="surrogateescape")
    return io.StringIO(text, newline="")


def _check_utf8(file: Path, line: int, header: Sequence[str], values: Sequence[str]) -> None:
    for place, value in enumerate(values, start=1):
        if re.search("[\udc80-\udcff]", value):
            problem(file, line, place, _column(header, place), ascii(value), "text in UTF-8")


def _check_length(file: Path, line: int, header: Sequence[str], values: Sequence[str]) -> None:
    if len(values) != len(header):
        place = min(len(values), len(header)) + 1
        found = "the end of the line" if len(values) < len(header) else repr(values[place - 1])
        problem(file, line, place, _column(header, place), found, f"{len(header)} fields")


def _column(header: Sequence[str], place: int) -> str:
    return " ".join(header[place - 1].split()) if place <= len(header) else "past the last"


def problem(file: Path, line: int, place: int, column: str, found: str, expected: str) -> NoReturn:
    where = f"{file}, line {line}, column {place} ({column})"
    raise UserError(f"{where}: found {cut(found, VALUE)}, expected {expected}")


def named(key: Hashable) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def one_of(words: Collection[str]) -> str:
    """Describe the allowed words, for an error."""
    return f"one of {', '.join(words)}"


def positive_int(text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise ValueError
    return int(text)


def _text(text: str) -> str:
    if not text.strip() or visible(text) != text:
        raise ValueError
    return text


def number(text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,32}(\.[0-9]{1,32})?(e[+-]?[0-9]{1,2})?", text) or float(text) > _LARGEST:
        raise ValueError
    return float(text)


def positive(text: str) -> float:
    if number(text) < 1 / _LARGEST:
        raise ValueError
    return float(text)


def currency(text: str) -> str:
    if not re.fullmatch("[A-Z]{3}", text):
        raise ValueError
    return text


# For divisors; a plain float may be 0.
Positive = Annotated[float, (positive, f"a number above 0, from {1 / _LARGEST:g} to {_LARGEST:g}")]
Currency = Annotated[str, (currency, "three capital letters such as USD or EUR")]


def optional(convert: Callable[[str], T]) -> Callable[[str], T | None]:
    """Return a converter that returns None for a dash, and `convert`s all else."""
    return lambda text: None if text == "-" else convert(text)


def converter(kind: Any) -> tuple[Callable[[str], Any], str]:
    """Return the converter of a field's type, and a description of what it expects. It may be annotated with both."""
    if kind in _READERS:
        return _READERS[kind]
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        [other] = (one for one in get_args(kind) if one is not NoneType)
        read, expected = converter(other)
        return optional(read), f"{expected}, or -"
    if get_origin(kind) is Annotated:
        found: tuple[Callable[[str], Any], str] = kind.__metadata__[0]
        return found
    words = get_args(kind)
    return {word: word for word in words}.__getitem__, one_of(words)


_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    str: (_text, "some text on one line"),
    int: (positive_int, "a whole number from 1 up"),
    float: (number, "a number from 0 up"),
    date: (date.fromisoformat, "a day such as 2024-09-21"),
    datetime: (datetime.fromisoformat, "a time such as 2023-03-11T15:18:59"),
}

Lines = Annotated[str, "on several lines"]


def flat(**names: str) -> dict[str, Any]:
    """Return the metadata of a field that is a data class: in a file its fields stand beside the others, those named
    here under other `names`."""
    return {"flat": names}


FLAT = flat()
_HALF = re.compile("[\ud800-\udfff]")
_BITS = 64  # of whole numbers: NVML's masks have as many; unbounded numbers would overflow a float


class NotAsDeclaredError(ValueError):
    """An error of content that does not match its declared type: the reason in a few words, without the file's name."""


def load(path: Path) -> Any:
    """Return a file's JSON as Python objects. Raises NotAsDeclaredError where it is not JSON, or cannot be read."""
    try:
        return parse(files.read(path))
    except OSError as error:
        raise NotAsDeclaredError(f"cannot be read ({error.strerror})") from None


def parse(content: bytes) -> Any:
    """Return JSON as Python objects. Raises NotAsDeclaredError where it is not JSON."""
    try:
        return json.loads(content)
    except ValueError as error:
        raise NotAsDeclaredError(f"not JSON ({error})") from None
    except RecursionError:
        raise NotAsDeclaredError("not JSON (nested too deep)") from None


def read(path: Path, kind: type[T]) -> T:
    """Return a file's JSON as `kind`, converted by `value`. Raises NotAsDeclaredError."""
    return from_json(kind, load(path))


def to_json(content: Any) -> dict[str, Any]:
    """Return a data class as the JSON object that `value` converts back."""
    return _flattened(type(content), asdict(content))


def _flattened(kind: type, nested: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in fields(kind):
        item = nested[each.name]
        if _is_flat(each):
            found |= _renamed(_flattened(types(kind)[each.name], item), each)
        else:
            found[each.name] = item
    return found


def write(path: Path, plain: Any, named: bool = False) -> Path:
    """Replace a file atomically by indented JSON. Raises UserError where it cannot be written, as `files.replace`
    does."""
    return files.replace(path, json.dumps(plain, indent=1) + "\n", named)


def from_json(kind: type[T], plain: Any) -> T:
    """Convert JSON to a data class, or to a list or dictionary of them: missing fields take their defaults, unknown
    ones are dropped.

    Raises NotAsDeclaredError where a value does not match its field's type, or a field without a default is missing.
    """
    found: T = _value(kind, plain, "")
    return found


def _value(kind: Any, plain: Any, name: str) -> Any:
    """Convert a value to a field's type; rejects NaN, infinity and unpaired surrogates."""
    within, origin = get_args(kind), get_origin(kind)
    if kind is Any:
        return console.map_strings(console.visible, plain)
    if kind is str and _is_of(str, plain):
        return console.visible(plain)
    if origin is Annotated:
        return console.visible_lines(plain) if kind == Lines and _is_of(str, plain) else _value(within[0], plain, name)
    if is_dataclass(kind):
        return _object(kind, plain, name)
    if origin in (Union, UnionType):
        if plain is None and NoneType in within:
            return None
        [other] = (one for one in within if one is not NoneType)
        return _value(other, plain, name)
    if origin is list and isinstance(plain, list):
        return [_value(within[0], item, f"{name}[{at}]") for at, item in enumerate(plain)]
    if origin is tuple and isinstance(plain, list):
        kinds = within[:1] * len(plain) if within[-1] is ... else within
        if len(kinds) == len(plain):
            return tuple(_value(one, item, name) for one, item in zip(kinds, plain, strict=True))
    if origin is dict and isinstance(plain, dict):
        return {_key(within[0], key, name): _value(within[1], item, _within(name, key)) for key, item in plain.items()}
    if (origin is Literal and plain in within) or (isinstance(kind, type) and _is_of(kind, plain)):
        return plain
    raise NotAsDeclaredError(f"{name or 'it'} is {_shown(plain)}")


def _object(kind: Any, plain: Any, name: str) -> Any:
    if not isinstance(plain, dict):
        raise NotAsDeclaredError(f"{name} is {_shown(plain)}" if name else "no JSON object")
    known = _in_file(kind)
    found = {
        field: _value(known[field][0], item, _within(name, field)) for field, item in plain.items() if field in known
    }
    if lacking := [field for field, (_, needed) in known.items() if needed and field not in found]:
        raise NotAsDeclaredError(f"{name or 'it'} lacks {', '.join(lacking)}")
    return _built(kind, found)


def _built(kind: Any, found: dict[str, Any], names: Mapping[str, str] = MappingProxyType({})) -> Any:
    """Return a data class of the values found for its fields, some under other `names`, and those of its flat parts."""
    declared, simple = types(kind), [field for field in fields(kind) if not _is_flat(field)]
    given = {field.name: names.get(field.name, field.name) for field in simple}
    parts = {
        field.name: _built(declared[field.name], found, field.metadata["flat"])
        for field in fields(kind)
        if _is_flat(field)
    }
    return kind(**{name: found[named] for name, named in given.items() if named in found}, **parts)


def _renamed(found: Mapping[str, V], flat: Field[Any]) -> dict[str, V]:
    """Return the fields of a flat part under their names in a file."""
    return {flat.metadata["flat"].get(name, name): value for name, value in found.items()}


def _within(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _key(kind: Any, key: str, name: str) -> Any:
    if kind is not int:
        return _value(str, key, name)
    if not (key.isascii() and key.isdecimal() and len(key) < _BITS // 4):
        raise NotAsDeclaredError(f"{name} has the key {_shown(key)}, no whole number")
    return int(key)


def _is_of(kind: type, plain: Any) -> bool:
    if isinstance(plain, str):
        return kind is str and not _HALF.search(plain)
    if isinstance(plain, bool):
        return kind is bool
    if isinstance(plain, int):
        return kind in (int, float) and plain.bit_length() <= _BITS
    if isinstance(plain, float):
        return kind is float and isfinite(plain)
    return isinstance(plain, kind)


def _is_flat(field: Field[Any]) -> bool:
    return "flat" in field.metadata


@cache
def _in_file(kind: type) -> dict[str, tuple[Any, bool]]:
    """Return each field of a data class in a file, with its type and whether it is needed."""
    found: dict[str, tuple[Any, bool]] = {}
    for each in fields(kind):
        declared = types(kind)[each.name]
        needed = each.default is each.default_factory is MISSING
        found |= _renamed(_in_file(declared), each) if _is_flat(each) else {each.name: (declared, needed)}
    return found


def _shown(plain: Any) -> str:
    return cut(json.dumps(plain), VALUE)
