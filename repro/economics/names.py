"""GPUs as people name them, in the paper's words where it has them."""

from __future__ import annotations

from difflib import get_close_matches

from .. import command
from ..errors import UserError
from ..gpus import by_name, find
from ..prices import rentals


def canonical_gpu(name: str, place: str) -> str:
    """The name under which days and prices stand. Raises UserError, naming the place, for an unknown GPU."""
    known = find(name)
    if known is not None:
        return known.called
    by_folded = {
        each.casefold(): each for each in sorted(by_name().keys() | {rental.gpu for rental in rentals().values()})
    }
    if name.casefold() in by_folded:
        return by_folded[name.casefold()]
    near = [by_folded[match] for match in get_close_matches(name.casefold(), by_folded, n=3)]
    hint = f"did you mean {', '.join(near)}?" if near else f"{command()} gpus lists those we know"
    raise UserError(f"{place}: unknown GPU {name!r}; {hint}")
