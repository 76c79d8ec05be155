"""Sizes, durations, numbers and paths as people write them."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from .errors import UserError
from .escape import visible
from .interval import Interval

SECONDS_A_DAY = 24 * 60 * 60
MOST_COUNTED = 10**9  # of anything
DAYS_A_YEAR = 365  # as the paper reckons what a machine's life costs
# Of a number that is read: what is reckoned from a few of them stays far within the floats.
_DIGITS = 20  # on either side of the point
SMALLEST, LARGEST = 10.0**-_DIGITS, 10.0**_DIGITS
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": SECONDS_A_DAY}
_LONGEST = 36_500 * SECONDS_A_DAY  # a century
_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def seconds(text: str, option: str) -> float:
    """`90s`, `30m`, `4h`, `2d`. A bare number is refused, as who writes one may mean another unit, and so is what no
    clock counts to."""
    found = _parse(text, option, _SECONDS, "a positive duration such as 90s, 30m or 4h")
    if found > _LONGEST:
        raise UserError(f"{option} {text}: expected a positive duration of at most {_LONGEST // _SECONDS['d']}d")
    return found


def bytes_(text: str, option: str) -> int:
    """`2GiB`, `512MiB`, `80GB`. A bare number is refused, as who writes one may mean another unit."""
    expected = "a positive size such as 512MiB, 2GiB or 80GB"
    found = int(_parse(text, option, _BYTES, expected))
    if not found:
        raise UserError(f"{option} {text}: expected {expected}")
    return found


def size(number: int) -> str:
    """So many bytes as `bytes_` reads them, exactly: in GB or MB where that is even, else in GiB or MiB where that
    takes few digits, else in bytes."""
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if number % unit == 0:
            return f"{number // unit}{name}"
    value, name = (number / 2**30, "GiB") if number >= 2**30 else (number / 2**20, "MiB")
    return f"{value:g}{name}" if float(f"{value:g}") == value else f"{number}B"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def days(text: str, option: str) -> float:
    """`30d`, `12h`, in days."""
    return _parse(text, option, _SECONDS, "a positive duration such as 30d or 12h") / _SECONDS["d"]


def positive(text: str, option: str, such_as: str) -> float:
    """A number above 0."""
    return _parse(text, option, {"": 1}, f"a positive number in plain digits such as {such_as}")


def budget(text: str, option: str) -> float:
    """A sum above 0, also as sums are told, `40,000`, and as people say them, `40k`. Not for what may be small, such as
    the rent of an hour: who writes 1,250 there may mean one and a quarter."""
    expected = "a sum above 0 such as 40000, 40,000 or 40k, without a currency"
    grouped = re.fullmatch(r"\s*[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?\s*", text)
    return _parse(text.replace(",", "") if grouped else text, option, {"": 1, "k": 1000}, expected)


def count(text: str, option: str, least: int = 1, why: str = "") -> int:
    """A whole number from `least` to a billion."""
    # Python's own int also reads underscores and the digits of every script.
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not least <= int(text) <= MOST_COUNTED:
        reason = f": {why}" if why else ""
        raise UserError(f"{option} {text}: expected a whole number from {least:,} to {MOST_COUNTED:,}{reason}")
    return int(text)


def count_if_given(text: str | None, option: str, least: int = 1, why: str = "") -> int | None:
    """`count`, None without the option."""
    return None if text is None else count(text, option, least, why)


def path(text: str) -> Path:
    """A path, for argparse, which names the option; an empty one would mean the current folder."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty: name a path, . is the current folder")
    return Path(text)


def shell_words(words: Iterable[object]) -> str:
    """A command as a shell reads it and any file holds it: what cannot be seen, and bytes of a path that are no UTF-8,
    as bash and zsh write them."""
    return " ".join(map(_shell_word, map(str, words)))


def number(text: str, place: str) -> float | None:
    """A number in plain digits, None for anything else. Raises UserError, naming the place, for too many digits."""
    # Python's own float also reads signs, exponents, underscores and the digits of every script.
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?|\.[0-9]+", text):
        return None
    if max(map(len, text.split("."))) > _DIGITS:
        raise UserError(f"{place}: expected at most {_DIGITS} digits on either side of the point")
    return float(text)


def interval(text: str, option: str) -> Interval:
    """`0.13`, or `0.10..0.16` where the number is uncertain: its middle counts, and the bounds are told."""
    return bounds(text, f"{option} {text}", "a number from 0 up in plain digits such as 0.13, or bounds as 0.10..0.16")


def bounds(text: str, place: str, expected: str) -> Interval:
    """The same of what stands at a place, such as a sum before its currency."""
    low, dots, high = text.strip().partition("..")
    least = number(low, place)
    most = number(high, place) if dots else least
    if least is None or most is None:
        raise UserError(f"{place}: expected {expected}")
    if least > most:
        raise UserError(f"{place}: expected the lower bound first, {high}..{low}")
    return Interval((least + most) / 2, least, most)


def _shell_word(word: str) -> str:
    if _printable(word) == word:
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'")
    return f"$'{_printable(escaped)}'"


def _printable(word: str) -> str:
    return visible(os.fsencode(word).decode(errors="backslashreplace"))


def _parse(text: str, option: str, units: dict[str, int], expected: str) -> float:
    place = f"{option} {text}"
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]*)\s*", text.lower())
    value = number(found[1], place) if found else None
    if not found or not value or found[2] not in units:
        raise UserError(f"{place}: expected {expected}")
    return value * units[found[2]]
