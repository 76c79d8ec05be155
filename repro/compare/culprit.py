"""Which of several packages made the difference: half of them swapped at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Found:
    """`packages` could not be told apart any further, after `looks` at environments. Whether they alone make the
    difference is still to be confirmed."""

    packages: tuple[str, ...]
    looks: int


def search(
    suspects: Sequence[str],
    swapped: Callable[[Sequence[str]], frozenset[str]],
    differs: Callable[[Sequence[str]], bool],
) -> Found:
    """Halves the suspects, log2 times.

    `swapped` says which suspects an environment has in their new version when some are swapped into the first one: the
    resolver may drag more along, or refuse, and then there are none. `differs` measures that environment.
    """
    left, looks = list(suspects), 0
    while len(left) > 1:
        middle = len(left) // 2
        for half in (left[:middle], left[middle:]):
            together = swapped(half) & set(left)
            if 0 < len(together) < len(left):
                break
        else:
            break  # they only go together
        looks += 1
        there = differs(half)
        left = [package for package in left if (package in together) == there]
    return Found(tuple(left), looks)
