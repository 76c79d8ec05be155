"""JSON that anybody may have edited, as the data class that it should be: every value is checked against its type, and
of text on one line each character can be seen."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from . import escape, files

Kind = TypeVar("Kind")
Lines = Annotated[str, "on several lines"]
_HALF = re.compile("[\ud800-\udfff]")
_BITS = 64  # of whole numbers: NVML's masks have as many, and no float takes a number without bounds


class NotAsDeclaredError(ValueError):
    """What a file holds is not what it should be: why, in a few words without the file's name."""


def load(path: Path) -> Any:
    """A file's JSON as Python has it. Raises NotAsDeclaredError where it is none, or cannot be read."""
    try:
        return parse(files.read(path))
    except OSError as error:
        raise NotAsDeclaredError(f"cannot be read ({error.strerror})") from None


def parse(text: bytes) -> Any:
    """JSON as Python has it. Raises NotAsDeclaredError where it is none."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise NotAsDeclaredError(f"not JSON ({error})") from None
    except RecursionError:
        raise NotAsDeclaredError("not JSON (nested too deep)") from None


def read(path: Path, kind: type[Kind]) -> Kind:
    """A file's JSON as `value` has it. Raises NotAsDeclaredError."""
    return value(kind, load(path))


def write(path: Path, plain: Any, named: bool = False) -> Path:
    """Replaces a file by JSON that people can read, too, whole or not at all. Raises UserError where it cannot be
    written, as `files.replace` does."""
    return files.replace(path, json.dumps(plain, indent=1) + "\n", named)


def value(kind: type[Kind], plain: Any) -> Kind:
    """JSON as a data class, or a list or dictionary of some: what an object lacks takes its default, what is unknown
    in it is left out.

    Raises NotAsDeclaredError where a value is none that its field can hold, or one is lacking that has no default.
    """
    found: Kind = _value(kind, plain, "")
    return found


def _value(kind: Any, plain: Any, name: str) -> Any:
    """A value as a field's type has it. NaN and infinity are no numbers, half a pair of surrogates is no text."""
    within, origin = get_args(kind), get_origin(kind)
    if kind is Any:
        return escape.each(escape.visible, plain)
    if kind is str and _is_of(str, plain):
        return escape.visible(plain)
    if origin is Annotated:
        return escape.visible_lines(plain) if kind == Lines and _is_of(str, plain) else _value(within[0], plain, name)
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
    raise NotAsDeclaredError(f"{name or 'it'} is {json.dumps(plain)[:60]}")


def _object(kind: Any, plain: Any, name: str) -> Any:
    if not isinstance(plain, dict):
        raise NotAsDeclaredError(f"{name} is {json.dumps(plain)[:60]}" if name else "no JSON object")
    known = _types(kind)
    found = {field: _value(known[field], item, _within(name, field)) for field, item in plain.items() if field in known}
    needed = [each.name for each in fields(kind) if each.default is each.default_factory is MISSING]
    if lacking := [field for field in needed if field not in found]:
        raise NotAsDeclaredError(f"{name or 'it'} lacks {', '.join(lacking)}")
    return kind(**found)


def _within(name: str, field: str) -> str:
    return f"{name}.{field}" if name else field


def _key(kind: Any, key: str, name: str) -> Any:
    if kind is not int:
        return _value(str, key, name)
    if not (key.isascii() and key.isdecimal() and len(key) < _BITS // 4):
        raise NotAsDeclaredError(f"{name} has the key {json.dumps(key)[:60]}, no whole number")
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


@cache
def _types(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)
