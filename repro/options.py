"""A command's options: declared once, as the fields of a frozen data class, and parsed into it once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar

from .formats import FORMATS, Format

Parse = Callable[[str, str], Any]  # of a text and the option's name, which begins the UserError where it is wrong
MOST_ROWS = 20  # of a screen
BEHIND = "--"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asks of a command. A class of options that several commands share has its own `title` in
    their help, if any."""

    usage: ClassVar[str | None] = None
    epilog: ClassVar[str | None] = None
    title: ClassVar[str | None] = None
    about: ClassVar[str | None] = None


def option(
    help: str,
    metavar: str | None = None,
    parse: Parse = lambda text, option: text,
    default: Any = None,
    name: str | None = None,
    **more: Any,
) -> Any:
    """Declare an option: a field of the `default`, or of its text as `parse` reads it; of all its texts, as a tuple,
    where it may be repeated. `more` is for argparse's add_argument."""
    return field(default=default, metadata={"name": name, "parse": parse, "help": help, "metavar": metavar, **more})


def flag(help: str) -> Any:
    """Declare an option without a value."""
    return field(default=False, metadata={"action": "store_true", "help": help})


def several(help: str, metavar: str, parse: Parse = lambda text, option: text, **more: Any) -> Any:
    """Declare an option that may be repeated."""
    return option(help, metavar, parse, default=(), action="append", **more)


def argument(help: str, metavar: str | None = None, parse: Parse = lambda text, option: text, **more: Any) -> Any:
    """Declare words without an option's name."""
    default = () if more.get("nargs") == "*" else None
    return option(help, metavar, parse, default, name="", **more)


def behind() -> Any:
    """Declare the words behind --, which are for somebody else."""
    return option("", default=(), name=BEHIND)


def name_of(option: Field[Any]) -> str:
    """Return an option's name as it is typed; that of words without one as the help shows them."""
    name = option.metadata.get("name")
    if name is None:
        return f"--{option.name.replace('_', '-')}"
    return name or option.metadata["metavar"] or option.name


def declared(kind: type[Options]) -> tuple[str, ...]:
    """Return the options that a class declares itself."""
    known = {each.name for each in fields(kind)}
    return tuple(name for name in vars(kind)["__annotations__"] if name in known)


def given(asked: Options, names: Iterable[str]) -> list[str]:
    """Return which of these options have another value than their default, as they are typed."""
    known = {each.name: each for each in fields(asked)}
    return [name_of(known[name]) for name in names if getattr(asked, name) != known[name].default]


def format_option(formats: tuple[Format, ...] = FORMATS) -> Any:
    """Declare the option --format of a command that prints data."""
    return option("format of stdout", choices=formats, default="text")


@dataclass(frozen=True, kw_only=True)
class Output(Options):
    """The options of a command that prints a table."""

    all: bool = flag(f"show all rows, not only the first {MOST_ROWS}")
    format: Format = format_option()
