"""TOML files that users write, as data classes: every value is checked, and each error names its table and key."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, fields
from datetime import date
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin

from . import files
from .console import UserError, cut
from .datafile import VALUE, ContradictionError, Positive, converter, types

T = TypeVar("T")
_MOST_BYTES = 10**6  # room for thousands of prices; an endless file is refused


def read(file: Path, option: str, expected: str) -> dict[str, Any]:
    """Return a file's content. Raises UserError, which names the option and what it expects, where it is no TOML."""
    try:
        return tomllib.loads(files.read(file, _MOST_BYTES).decode("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{option} {file}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{option} {file}: not TOML ({error})") from None
    except RecursionError:
        raise UserError(f"{option} {file}: nested too deep, expected {expected}") from None
    except ValueError:  # Python limits the digits of an int, TOML does not
        raise UserError(f"{option} {file}: a number has thousands of digits, expected {expected}") from None


def table(kind: type[T], row: dict[str, Any], place: str) -> T:
    """Return a table as `kind`, whose fields are its keys, without an underscore at their end. A field with a default
    may be missing; `kind` may raise ContradictionError. Raises UserError, which begins with the place."""
    declared, known = fields(kind), types(kind)  # type: ignore[arg-type]
    keys = {field.name: field.name.rstrip("_") for field in declared}
    names = ", ".join(keys.values())
    for key in row:
        if key not in keys.values():
            raise UserError(f"{place}: unknown key {shown(key)}; expected {names}")
    for field in declared:
        if keys[field.name] not in row and field.default is MISSING:
            raise UserError(f"{place}: {keys[field.name]} is missing; expected {names}")
    given = {name: row[key] for name, key in keys.items() if key in row}
    values = {name: _value(value, known[name], f"{place}, {keys[name]}") for name, value in given.items()}
    try:
        return kind(**values)
    except ContradictionError as error:
        if error.field not in given:
            raise UserError(f"{place}: {keys[error.field]} is missing, expected {error.expected}") from None
        _problem(given[error.field], f"{place}, {keys[error.field]}", error.expected)


def shown(value: Any) -> str:
    """Return a value as an error shows it, cut where it is long."""
    try:
        return cut(str(value) if isinstance(value, date) else repr(value), VALUE)
    except (RecursionError, ValueError):  # dotted keys and hexadecimal numbers have no limit in TOML
        return "more than can be shown"


def _problem(value: Any, place: str, expected: str) -> NoReturn:
    raise UserError(f"{place}: found {shown(value)}, expected {expected}")


def _value(value: Any, kind: Any, place: str) -> Any:
    """Parse a value of TOML as the text of a CSV file is parsed."""
    if get_origin(kind) in (Union, UnionType):  # of a field that may be missing
        [kind] = (one for one in get_args(kind) if one is not NoneType)
    read_, expected = converter(kind)
    try:
        # Text is in quotes, and nothing else is.
        if isinstance(value, (dict, list)) or isinstance(value, str) == (kind in (int, float, Positive, date)):
            raise ValueError
        found = read_(str(value))
    except (KeyError, ValueError):
        _problem(value, place, expected)
    if isinstance(found, date) and found > date.today():
        _problem(value, place, f"a day up to today, {date.today()}")
    return found
