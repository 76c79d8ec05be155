"""Bisection over packages: find the one that makes two stacks differ, by swapping half of the suspects at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..console import UserError, say
from . import candidate
from .candidate import Stack
from .trials import Compared


def search(
    suspects: Sequence[str],
    swapped: Callable[[Sequence[str]], frozenset[str]],
    differs: Callable[[Sequence[str]], bool],
) -> tuple[list[str], int]:
    """Bisect the suspects, in about log2 steps. Return the packages that cannot be separated further, of which is still
    to be confirmed that they alone make the difference, and the number of environments that were looked at.

    `swapped` returns the suspects that have their new version once the given ones are swapped into the first stack: the
    resolver may swap more, or refuse, and then there are none. `differs` measures that environment.
    """
    left, looks = list(suspects), 0
    while len(left) > 1:
        middle = len(left) // 2
        for half in (left[:middle], left[middle:]):
            together = swapped(half) & set(left)
            if 0 < len(together) < len(left):
                break
        else:
            break  # they can only be swapped together
        looks += 1
        there = differs(half)
        left = [package for package in left if (package in together) == there]
    return left, looks


@dataclass(frozen=True)
class Swaps:
    """Packages of the `other` stack swapped into the `first` one, to explain the difference `found` in a trial.
    `measure` compares the first stack with one that has these packages swapped; it raises UserError where that gives no
    answer."""

    first: Stack
    other: Stack
    found: Compared
    measure: Callable[[Sequence[str], Stack], Compared]
    built: dict[frozenset[str], Stack] = field(default_factory=dict)

    def message(self) -> str:
        """Return a sentence that names the package, or says why none can be named."""
        trial = f"{self.found.trial.recipe}, {self.found.trial.settings}"
        if not (suspects := self._suspects):
            return "No package of both stacks differs, so there is nothing to bisect."
        try:
            left, looks = search(suspects, self._swapped, self._differs)
            alone = self._look(left)
        except UserError as error:
            return f"Bisecting {trial} ended without an answer: {error}."
        before, after = self.first.packages, self.other.packages
        names = " with ".join(f"{name} {before[name]} to {after[name]}" for name in left)
        how = f"of {len(suspects)} packages that differ, after {looks} environments with half of them"
        if alone.status == self.found.status:
            return f"Culprit: {names}: {trial} {alone.status} with it alone ({how})."
        if alone.status in ("unchanged", "improved", "fixed"):
            return f"Bisecting {trial}: not {names} alone ({how}); it may take several packages."
        rest = f"what is left is {names} ({how}), with it alone it is {alone.status}: {alone.reason}"
        return f"Bisecting {trial}: {rest}."

    @property
    def _suspects(self) -> list[str]:
        """Return the packages that both stacks have, in different versions."""
        before = self.first.packages
        return [name for name, version in self.other.packages.items() if before.get(name, version) != version]

    def _build(self, names: Sequence[str]) -> Stack:
        key = frozenset(names)
        if key not in self.built:
            pins = {name: f"{name}=={self.other.packages[name]}" for name in names}
            self.built[key] = candidate.pinned(pins, self.first)
        return self.built[key]

    def _swapped(self, names: Sequence[str]) -> frozenset[str]:
        try:
            packages = self._build(names).packages
        except UserError as error:
            say(f"bisect: {error}")
            return frozenset()
        return frozenset(name for name in self._suspects if packages.get(name) != self.first.packages[name])

    def _look(self, names: Sequence[str]) -> Compared:
        say(f"bisect: {', '.join(names)}")
        return self.measure(names, self._build(names))

    def _differs(self, names: Sequence[str]) -> bool:
        seen, whole = self._look(names), self.found.judged
        if whole is None:
            return seen.status == self.found.status
        if seen.judged is None:
            swapped = f"with {', '.join(names)} of {self.other.name} in place of {self.first.name}'s"
            raise UserError(f"{swapped}, {seen.reason}")
        # More than half of the whole difference: even an inconclusive comparison shows which half has the culprit.
        return math.log(seen.judged.ratio) > math.log(whole.ratio) / 2
