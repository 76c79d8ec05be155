"""Files of data as data classes, by msgspec: JSON, the CSV files of expected/, and tables of TOML.

People may have edited them: an error is one line with the file, the line where there is one, the field as $.path, and
what was expected. Their text is escaped once, here, so that it neither breaks a line nor controls a terminal.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import date, datetime
from functools import cache, wraps
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from . import files
from .console import DATA, UserError, cut, visible, visible_lines

P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_WAY_OUT = "restore it, or let REPRO_EXPECTED name a folder that has it"
VALUE = 60  # characters of a value that an error shows
_MOST_BYTES = 10**6  # of TOML: room for thousands of prices; an endless file is refused

# Products of a few numbers stay far within the range of floats, and every number may be a divisor.
Positive = Annotated[float, Meta(ge=1e-30, le=1e30, description="a number above 0, from 1e-30 to 1e+30")]
Count = Annotated[int, Meta(ge=1, le=10**9, description="a whole number from 1 up")]
Currency = Annotated[str, Meta(pattern=r"^[A-Z]{3}\Z", description="three capital letters such as USD or EUR")]


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
    def kept(folder: Path | None, *args: Any, **kwargs: Any) -> T:
        return read(*args, **kwargs)

    @wraps(read)
    def reader(*args: P.args, **kwargs: P.kwargs) -> T:
        another = named_folder()
        return kept(another and another.absolute(), *args, **kwargs)  # type: ignore[arg-type]

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


def named(key: Hashable) -> str:
    return ", ".join(map(str, key)) if isinstance(key, tuple) else str(key)


@dataclass(frozen=True)
class CsvRow:
    """One record of a CSV file as text, with its place for errors."""

    place: str
    line: int
    cells: dict[str, str]

    def __getitem__(self, column: str) -> str:
        return self.cells[column]

    def problem(self, column: str, expected: str) -> NoReturn:
        """Raise the UserError that the value in this column is not what was expected."""
        _problem(self.place, column, self.cells, expected)

    def choice(self, column: str, choices: Collection[str], called: str | None = None) -> None:
        """Raise UserError for any text but `choices`; `called` describes them where they are too many to list."""
        if self[column] not in choices:
            self.problem(column, called or _one_of(choices))

    def once(self, column: str, key: Hashable, seen: dict[Hashable, int]) -> None:
        """Note the key's line in `seen`. Raises UserError where an earlier line has the same key."""
        if key in seen:
            self.problem(column, f"{named(key)} only once, and line {seen[key]} has it")
        seen[key] = self.line


def read_csv(
    kind: type[T],
    name: str,
    key: tuple[str, ...],
    check: Callable[[CsvRow], object] = lambda row: None,
    wanted: Iterable[Hashable] = (),
) -> Keyed[Any, T]:
    """Return the rows of a file of `expected/`, by the fields `key`, one value or a tuple, in the file's order.

    `check` may reject a row. Raises UserError for a broken file, a repeated key, or a `wanted` key that is missing.
    """
    seen, found = dict[Hashable, int](), dict[Any, T]()
    for row, value in csv_rows(expected_folder() / name, kind):
        check(row)
        place = attrgetter(*key)(value)
        row.once(key[0], place, seen)
        found[place] = value
    complete(name, found, wanted)
    return Keyed(name, found)


def complete(name: str, found: Collection[Hashable], wanted: Iterable[Hashable]) -> None:
    """Raise UserError where a file of `expected/` lacks a wanted key."""
    for key in wanted:
        if key not in found:
            absent(name, "row", key)


def columns(kind: type) -> tuple[str, ...]:
    """Return the names of a data class's fields, which are the column headings of its file."""
    return tuple(field.name for field in fields(kind))


def csv_rows(file: Path, kind: type[T], way_out: str = _WAY_OUT) -> Iterator[tuple[CsvRow, T]]:
    """Yield the records of a CSV file as text and as `kind`, whose fields are its columns, in any order. Other columns
    and blank lines are ignored. Raises UserError for a broken file, with the `way_out` for one that is not there."""
    try:
        data = files.read(file)
        text = data.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except OSError as error:
        reason = "not found" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise UserError(f"{file}: {reason}, expected a CSV file; {way_out}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{file}, line {line}: not text in UTF-8 ({error.reason})") from None
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [*(reader.fieldnames or ())]
        for column in columns(kind):
            if header.count(column) != 1:
                found = "it twice" if column in header else "no such column"
                names = ",".join(columns(kind))
                raise UserError(f"{file}, line 1, $.{column}: found {found}, expected the columns {names} in line 1")
        for cells in reader:
            place = f"{file}, line {reader.line_num}"
            if None in cells or None in cells.values():
                raise UserError(f"{place}: too {'many' if None in cells else 'few'} fields, expected {len(header)}")
            row = CsvRow(place, reader.line_num, {column: visible(cell) for column, cell in cells.items()})
            yield row, _converted(kind, row.cells, place, strict=False)
    except csv.Error as error:
        expected = "fields split by commas, with quotes in pairs"
        raise UserError(f"{file}, line {reader.reader.line_num}: not CSV ({error}), expected {expected}") from None


def read_toml(file: Path, option: str, expected: str) -> dict[str, Any]:
    """Return a file's content. Raises UserError, which names the option and what it expects, where it is no TOML."""
    try:
        found: dict[str, Any] = _escaped(tomllib.loads(files.read(file, _MOST_BYTES).decode("utf-8-sig")))
        msgspec.msgpack.encode(found)  # refuses whole numbers of more than 64 bits
    except OSError as error:
        raise UserError(f"{option} {file}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{option} {file}: not TOML ({error})") from None
    except (RecursionError, OverflowError, ValueError):  # Python limits the digits of an int, TOML does not
        much = "nested too deep, or a number has too many digits"
        raise UserError(f"{option} {file}: {much}, expected {expected}") from None
    return found


def table(kind: type[T], given: dict[str, Any], place: str) -> T:
    """Return a table of TOML as `kind`, whose fields are its keys, but for an underscore at their end. Raises
    UserError, which begins with the place."""
    keys = {name.rstrip("_"): name for name in columns(kind)}
    for key in given:
        if key not in keys:
            raise UserError(f"{place}: unknown key {cut(repr(key), VALUE)}; expected {', '.join(keys)}")
    return _converted(kind, {keys[key]: value for key, value in given.items()}, place, strict=True)


def _converted(kind: type[T], given: Mapping[str, Any], place: str, strict: bool) -> T:
    """Return a row or a table as `kind`; a field that is annotated with a parser, from its text. A dash or nothing is
    None, and without `strict` numbers are text. Raises UserError."""
    declared: Mapping[str, tuple[Callable[[str], Any] | None, str]] = _declared(kind)  # type: ignore[arg-type]
    values = {}
    for name, found in given.items():
        parse, expected = declared.get(name, (None, ""))
        try:
            is_nothing = parse is None and isinstance(found, str) and found.strip() in ("", "-")
            values[name] = None if is_nothing else parse(str(found)) if parse else found
        except (KeyError, ValueError):
            _problem(place, name, given, expected)
    try:
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        if isinstance(wrong := error.__cause__, ContradictionError):
            _problem(place, wrong.field, given, wrong.expected)
        message, _, path = str(error).partition(" - at `$.")
        if not path:
            raise UserError(f"{place}: {message}; expected {', '.join(columns(kind))}") from None
        name = re.split(r"\W", path)[0]
        _problem(place, name, given, declared[name][1] or message)


def _problem(place: str, name: str, given: Mapping[str, Any], expected: str) -> NoReturn:
    found = cut(repr(given[name]), VALUE) if name in given else "nothing"
    raise UserError(f"{place}, $.{name.rstrip('_')}: found {found}, expected {expected}")


@cache
def _declared(kind: type) -> dict[str, tuple[Callable[[str], Any] | None, str]]:
    """Return for each field the parser that it is annotated with, if any, and what is expected of it, for an error: the
    description that it is annotated with, or its words."""
    found: dict[str, tuple[Callable[[str], Any] | None, str]] = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        types = [hint, *get_args(hint)]
        extras = [each for one in types for each in getattr(one, "__metadata__", ())]
        words = [word for each in types if get_origin(each) is Literal for word in get_args(each)]
        expected = [str(each.description) for each in extras if isinstance(each, Meta)]
        expected += [_one_of(words)] if words else [_USUAL[each] for each in types if each in _USUAL]
        found[name] = next(filter(callable, extras), None), next(iter(expected), "")
    return found


_USUAL = {str: "some text", date: "a day such as 2024-09-21", datetime: "a time such as 2023-03-11T15:18:59"}


def _one_of(words: Iterable[str]) -> str:
    return f"one of {', '.join(words)}"


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
        plain = msgspec.json.decode(content)
        msgspec.msgpack.encode(plain)
        # Most records have nothing to escape.
        return plain if content.isascii() and b"\\" not in content and b"\x7f" not in content else _escaped(plain)
    except OverflowError:  # of MessagePack, and later of what makes floats of them
        raise NotAsDeclaredError("not JSON (a whole number of more than 64 bits)") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise NotAsDeclaredError(f"not JSON ({error})") from None


def _escaped(plain: Any, key: str = "") -> Any:
    """Return content with its text escaped, of a traceback all but its lines."""
    if isinstance(plain, str):
        return visible_lines(plain) if key == "traceback" else visible(plain)
    if isinstance(plain, dict):
        return {visible(name): _escaped(item, name) for name, item in plain.items()}
    return [each if isinstance(each, float) else _escaped(each) for each in plain] if isinstance(plain, list) else plain


def read(path: Path, kind: type[T]) -> T:
    """Return a file's JSON as `kind`. Raises NotAsDeclaredError."""
    return from_json(kind, load(path))


def from_json(kind: type[T], plain: Any) -> T:
    """Convert JSON to a data class, or to a list or dictionary of them: missing fields take their defaults, unknown
    ones are dropped. Raises NotAsDeclaredError for another type, or a missing field that has no default."""
    parts = _flat(kind)  # type: ignore[arg-type]
    if parts and isinstance(plain, dict):
        found = {
            part: {name: plain[in_file] for name, in_file in names.items() if in_file in plain}
            for part, names in parts.items()
        }
        plain = plain | found
    try:
        return msgspec.convert(plain, kind, str_keys=True)
    except msgspec.ValidationError as error:

        def in_file(path: re.Match[str]) -> str:
            return f"$.{parts[path[1]][path[2]]}" if path[1] in parts else path[0]

        raise NotAsDeclaredError(re.sub(r"\$\.(\w+)\.(\w+)", in_file, str(error))) from None


def to_json(content: Any) -> dict[str, Any]:
    """Return a data class as the JSON object that `from_json` converts back."""
    parts, found = _flat(type(content)), dict[str, Any]()  # type: ignore[arg-type]
    for name, item in asdict(content).items():
        found |= {parts[name][each]: value for each, value in item.items()} if name in parts else {name: item}
    return found


def flat(**names: str) -> dict[str, Any]:
    """Return the metadata of a field that is a data class: in a file its fields stand beside the others, those named
    here under other `names`."""
    return {"flat": names}


FLAT = flat()


@cache
def _flat(kind: Any) -> dict[str, dict[str, str]]:
    """Return the flat parts of a data class: the names of their fields, and those in a file."""
    parts = [field for field in getattr(kind, "__dataclass_fields__", {}).values() if "flat" in field.metadata]
    hints = get_type_hints(kind) if parts else {}
    return {
        part.name: {name: part.metadata["flat"].get(name, name) for name in columns(hints[part.name])} for part in parts
    }


def write(path: Path, plain: Any, named: bool = False) -> Path:
    """Replace a file atomically by indented JSON. Raises UserError where it cannot be written, as `files.replace`
    does."""
    return files.replace(path, json.dumps(plain, indent=1) + "\n", named)
