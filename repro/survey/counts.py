"""Counts of people's answers, rounded so that no small group shows; their shares, and the test of two shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb, sqrt
from pathlib import Path

from ..console import visible
from ..formats import Interval

BASE = 5  # people: counts are multiples of it, and none below it is shown
FEW = f"<{BASE}"
LEVEL = 0.05  # of a test: the chance that groups of the same population are called different
Z = 1.959964  # standard deviations of a two-sided interval of 95 %


def rounded(people: int, exact: bool) -> int | None:
    """Round a number of people to the nearest 5; None below 5. Leave it as it is with `exact`."""
    if exact:
        return people
    return None if people < BASE else (people + BASE // 2) // BASE * BASE


def shown(people: int | None) -> int | str:
    """Return a rounded number of people for display."""
    return FEW if people is None else people


@dataclass(frozen=True)
class Count:
    """A number of people among those who answered, `of`, both as `rounded` returns them."""

    people: int | None
    of: int | None

    @cached_property
    def share(self) -> Interval | None:
        """Return the share of people in percent with its 95 % interval by Wilson; None of fewer than 5."""
        if self.people is None or not self.of:
            return None
        return wilson(self.people, self.of)

    @property
    def text(self) -> str:
        """Return the count for a table: 30 of 50."""
        return f"{shown(self.people)} of {shown(self.of)}"


@dataclass(frozen=True)
class Person:
    """One person's answers: by column the choices as printed, or `OTHER`. A column without an answer is not there."""

    chosen: Mapping[str, frozenset[str]]

    def has(self, column: str, *choices: str) -> bool:
        """Return whether one of these choices was made."""
        return not self.chosen.get(column, frozenset()).isdisjoint(choices)


@dataclass(frozen=True)
class Source:
    """A file of answers: its name, SHA-256, and number of people; `authors` where it has the columns of the
    authors' file, and as many people."""

    name: str
    digest: str
    people: int
    authors: bool

    def called(self, people: int | str) -> str:
        """Return what the file is, for a sentence, with its number of people as shown."""
        what = "taken for the authors' file by its columns and" if self.authors else "of others than the paper's"
        return f"{visible(Path(self.name).name)} ({what} {people} people, sha256 {self.digest[:16]})"


@dataclass(frozen=True)
class Answers:
    """The answers of all files. `columns` are those that a file asks; `problems` a line each on what was left out.
    Counts of people are rounded unless `exact`."""

    people: Sequence[Person]
    columns: frozenset[str]
    sources: Sequence[Source]
    problems: Sequence[str]
    exact: bool

    @property
    def authors(self) -> bool:
        """Return whether these are the paper's own people and no others."""
        return len(self.sources) == 1 and self.sources[0].authors

    def rounded(self, people: int) -> int | None:
        """Return a number of these people as it is counted and shown; None for fewer than 5."""
        return rounded(people, self.exact)

    def count(self, people: int, of: int) -> Count:
        """Return the count of some of these people among others."""
        return Count(self.rounded(people), self.rounded(of))

    @property
    def number(self) -> int | str:
        """Return the number of all people as shown."""
        return shown(self.rounded(len(self.people)))

    def named(self) -> list[str]:
        """Return what each file is, with its number of people as shown."""
        return [source.called(shown(self.rounded(source.people))) for source in self.sources]


def wilson(people: int, of: int) -> Interval:
    """Return a share in percent with its 95 % interval by Wilson, which also suits few people and shares near 0."""
    share, square = people / of, Z**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of**2))
    return Interval(100 * share, 100 * max(0.0, middle - half), 100 * min(1.0, middle + half))


def fisher(people: int, of: int, others: int, of_others: int) -> float:
    """Return the p-value of Fisher's exact test that both groups have the same share (R. A. Fisher, The Logic of
    Inductive Inference, 1935), two-sided: over all divisions of these people that are no more likely than this one."""
    both = people + others
    possible = range(max(0, both - of), min(of_others, both) + 1)
    ways = {each: comb(of_others, each) * comb(of, both - each) for each in possible}
    return sum(each for each in ways.values() if each <= ways[others]) / sum(ways.values())


def holm(values: Sequence[float]) -> list[bool]:
    """Return for each p-value whether its test finds a difference, with a chance of 5 % that any does where there is
    none (S. Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979)."""
    found = [False] * len(values)
    for tested, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        if values[place] > LEVEL / (len(values) - tested):
            break
        found[place] = True
    return found
