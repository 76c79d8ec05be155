"""Which known names a name may mean that is none of them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches


def fits(name: str, known: str) -> bool:
    """Whether a known name has every word of this one, in any case: V100 fits V100 16 GB as it fits V100 32 GB."""
    words = _words(name)
    return bool(words) and words <= _words(known)


def near(name: str, known: Iterable[str]) -> list[str]:
    """Those that it fits, else up to three that are spelled much alike, the nearest first; none where nothing is."""
    folded = {each.casefold(): each for each in known}
    fitting = [each for each in folded.values() if fits(name, each)]
    return fitting or [folded[match] for match in get_close_matches(name.casefold(), folded)]


def _words(name: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", name.casefold()))
