"""Counts of people of which no small group is shown.

A count below 3 is shown as "fewer than 3", and one that leaves fewer than 3 out as "all but fewer than 3". Where
choices exclude each other and their total is known, hidden counts are differences: as many more counts are hidden, the
smallest first, as it takes that no hidden one follows from what is shown. Where the hidden counts are all 0, they may
follow: nobody is behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import sqrt

from ..formats import Interval

LEAST = 3  # people of the smallest group that is shown
FEWER, ALL_BUT, NOT_SHOWN = "fewer than 3", "all but fewer than 3", "not shown"
Z = 1.959964  # standard deviations of a two-sided interval of 95 %


@dataclass(frozen=True)
class Count:
    """A number of people among those who answered, `of`; None where the number is hidden, for the reason `hidden`."""

    people: int | None
    of: int | None
    hidden: str | None = None

    @property
    def shown(self) -> int | str:
        """Return the number, or the words in its place."""
        return self.hidden or self.people or 0

    @cached_property
    def share(self) -> Interval | None:
        """Return the share of people in percent with its 95 % interval by Wilson; None where hidden."""
        if self.people is None or not self.of:
            return None
        return wilson(self.people, self.of)

    @property
    def text(self) -> str:
        """Return the count for a table: 30 of 50."""
        if self.of is None:
            return self.hidden or "-"
        return f"{self.shown} of {self.of}"


def wilson(people: int, of: int) -> Interval:
    """Return a share in percent with its 95 % interval by Wilson, which also suits few people and shares near 0."""
    share, square = people / of, Z**2
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = Z / (1 + square / of) * sqrt(share * (1 - share) / of + square / (4 * of**2))
    return Interval(100 * share, 100 * max(0.0, middle - half), 100 * min(1.0, middle + half))


def shown(people: int, show_all: bool) -> int | str:
    """Return how many answered, as shown."""
    return people if show_all or people >= LEAST else FEWER


def single(people: int, of: int, show_all: bool) -> Count:
    """Return the count of one choice beside which others may be made too."""
    if show_all:
        return Count(people, of)
    if of < LEAST:
        return Count(None, None, FEWER)
    if people < LEAST:
        return Count(None, of, FEWER)
    return Count(None, of, ALL_BUT) if of - people < LEAST else Count(people, of)


def exclusive(people: Sequence[int], of: int, show_all: bool) -> list[Count]:
    """Return the counts of choices that exclude each other, which together are a known number of people."""
    found = [single(each, of, show_all) for each in people]
    if show_all or of < LEAST:
        return found
    while not _safe(people, found):
        shown = [place for place, count in enumerate(found) if count.hidden is None]
        if not shown:  # that each is below 3 would say too much
            return [Count(None, of, NOT_SHOWN)] * len(people)
        found[min(shown, key=lambda place: people[place])] = Count(None, of, NOT_SHOWN)
    return found


def _safe(people: Sequence[int], found: Sequence[Count]) -> bool:
    """Return whether each count below 3 may still be 0, 1 or 2 by the sum of all that are hidden."""
    hidden = [number for number, count in zip(people, found, strict=True) if count.hidden]
    fewer = sum(count.hidden == FEWER for count in found)
    if not fewer:
        return len(hidden) != 1
    if not sum(hidden):
        return True
    largest = LEAST - 1
    others = len(hidden) - fewer
    room = sum(hidden) - LEAST * others  # for those below 3, as each of the others is at least 3
    return room >= largest and (others > 0 or LEAST <= sum(hidden) <= largest * (fewer - 1))


def nested(people: Sequence[int], of: int, show_all: bool) -> list[int | str]:
    """Return counts that include each other, the smallest first, as shown: one that adds fewer than 3 people to the
    last shown is shown as such."""
    found, last = list[int | str](), None
    for number in people:
        count = single(number, of, show_all)
        if count.hidden is None and last is not None and not show_all and 0 < number - last < LEAST:
            found.append(f"{FEWER} more")
            continue
        found.append(count.shown)
        last = number if count.hidden is None else last
    return found
