"""What each series looks like: a colour and a shape that are its own in every figure, whatever is drawn beside it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import cycle

from ..gpus import paper_gpus


@dataclass(frozen=True)
class Look:
    """A colour, and a shape of Vega's or an outline within -1 to 1."""

    colour: str
    shape: str


# Okabe and Ito's, which people with any kind of colour vision tell apart.
_BLUE, _RED, _GREEN, _PURPLE, _ORANGE, _SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_ONE_BY_ONE = (
    Look(_BLUE, "circle"),
    Look(_RED, "square"),
    Look(_GREEN, "triangle-up"),
    Look(_PURPLE, "diamond"),
    Look(_ORANGE, "cross"),
    Look(_SKY, "triangle-down"),
)
_X = "M-1,-.8L-.8,-1L0,-.2L.8,-1L1,-.8L.2,0L1,.8L.8,1L0,.2L-.8,1L-1,.8L-.2,0Z"

# In the order of legends.
_LOOKS = {
    "free lunch alone": Look(_SKY, "triangle-down"),
    "original training": Look(_RED, "square"),
    "best settings": Look(_BLUE, "circle"),
    "best settings, 8 A100": Look(_BLUE, "circle"),
    "analytic estimate": Look(_RED, "square"),
    "faster": Look(_BLUE, "circle"),
    "slower": Look(_RED, "square"),
    "ZeRO": Look(_PURPLE, "diamond"),
    "no sharding": Look(_ORANGE, "cross"),
    "FSDP": Look(_GREEN, "triangle-up"),
    "paper": Look(_RED, "square"),
    "paper, figure 9": Look(_RED, "square"),
    "closed form": Look(_BLUE, "circle"),
    "data sheet": Look(_BLUE, "circle"),
    "owning": Look(_BLUE, "circle"),
    "renting": Look(_RED, "square"),
}


def looks(series: Collection[str], machines: Sequence[str]) -> dict[str, Look]:
    """Of these series, in the order of legends. A machine's look goes by its place among all of the run's `machines`; a
    GPU measured here is of its own colour, and an x, as is one that the paper has not."""
    gpus = dict(zip(paper_gpus(), _ONE_BY_ONE, strict=False))
    here = {f"{gpu}, here": Look(look.colour, _X) for gpu, look in gpus.items()}
    measured_on = {machine: _ONE_BY_ONE[number % len(_ONE_BY_ONE)] for number, machine in enumerate(machines)}
    every = _LOOKS | gpus | here | measured_on
    others = [name for name in series if name not in every]
    every |= {name: Look(look.colour, _X) for name, look in zip(others, cycle(_ONE_BY_ONE), strict=False)}
    return {name: every[name] for name in sorted(series, key=list(every).index)}
