"""Strings that somebody else wrote, made safe for each way out: a terminal, Markdown and CSV. The page's template
escapes HTML, and a string that went through `visible` breaks neither it nor the drawing library."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

# What breaks a line, steers a terminal, changes the direction of text, or shows nothing; and what is no character.
_UNSEEN = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe"
    "\uffff\U000e0000-\U000e0fff"
    + "".join(chr(plane << 16 | end) for plane in range(1, 17) for end in (0xFFFE, 0xFFFF))
)
_IN_A_LINE = re.compile(f"[{_UNSEEN}]")
_BUT_LINE_BREAKS = re.compile(f"(?!\n)[{_UNSEEN}]")
# A tag, code, emphasis, an entity, the target of a link or an image, and a backslash that would escape what follows.
_MARKUP = re.compile(r"[<`*~]|&(?=#?\w+;)|\](?=[(\[:])|\\(?=[!-/:-@\[-`{-~]|$)")
_BEGINS_A_FORMULA = re.compile("[=+@\uff1d\uff0b\uff0d\uff20-]")
_NO_FORMULA = re.compile(r"[-+]([-+0-9.,%:e ]*|[0-9.,]+%? [A-Za-z].*)")  # numbers, or one with its unit


class Markdown(str):
    """Text that is Markdown already."""


def visible(text: str) -> str:
    """The text on one line, each character that cannot be seen as Python writes it."""
    return _IN_A_LINE.sub(_written, text)


def visible_lines(text: str) -> str:
    """The same of text that may have several lines."""
    return _BUT_LINE_BREAKS.sub(_written, text)


def markdown(text: str) -> Markdown:
    """The text as Markdown that shows it, without markup, links and HTML of its own; `Markdown` as it is."""
    if isinstance(text, Markdown):
        return text
    return Markdown(_MARKUP.sub(lambda found: _ENTITIES.get(found[0]) or f"\\{found[0]}", visible(text)))


def code(text: str) -> str:
    """The text as a code span of Markdown."""
    text = visible(text)
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    space = " " if "`" in text else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def csv(text: str) -> str:
    """The text as a field of CSV that no spreadsheet takes for a formula; numbers and a dash stay as they are."""
    text = visible(text)
    return f"'{text}" if _BEGINS_A_FORMULA.match(text.lstrip()) and not _NO_FORMULA.fullmatch(text) else text


def each(change: Callable[[str], str], value: Any) -> Any:
    """A value with all strings changed that lists, tuples, data classes, and the values of dictionaries in it hold."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(each(change, one) for one in value)
    if isinstance(value, dict):
        return {key: each(change, one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: each(change, getattr(value, field.name)) for field in fields(value)})
    return value


_ENTITIES = {"<": "&lt;", "&": "&amp;"}


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
