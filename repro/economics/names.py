"""GPUs as people name them, in the paper's words where it has them."""

from __future__ import annotations

from .. import command
from ..errors import UserError
from ..gpus import by_name, find
from ..near import near
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
    meant = near(name, by_folded.values())
    hint = f"did you mean {', '.join(meant)}?" if meant else f"{command()} gpus lists those we know"
    raise UserError(f"{place}: unknown GPU {name!r}; {hint}")
