"""Which function recomputes which claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..clocks import Clock
from ..trial import Record
from .working import Working


@dataclass(frozen=True)
class Missing:
    """Why records do not settle a claim: what they lack, and what they give so far.

    With `largest_so_far`, more records can only raise the number: it refutes the claim once it is above the published
    one.
    """

    reason: str
    so_far: Working | None = None
    largest_so_far: bool = False


Function = TypeVar("Function", bound=Callable[..., Any])

RECOMPUTED: dict[str, Callable[[], Working]] = {}
MEASURED: dict[str, Callable[[Sequence[Record], Clock], Working | Missing]] = {}


def recomputes(id: str, **arguments: Any) -> Callable[[Callable[..., Working]], Callable[..., Working]]:
    """Marks the function of a claim that follows from expected/: `function(**arguments)`."""
    return _registers(RECOMPUTED, id, arguments)


def measures(
    id: str, **arguments: Any
) -> Callable[[Callable[..., Working | Missing]], Callable[..., Working | Missing]]:
    """Marks the function of a claim that needs a run: `function(records, clock, **arguments)`."""
    return _registers(MEASURED, id, arguments)


def _registers(functions: dict[str, Any], id: str, arguments: dict[str, Any]) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        if id in RECOMPUTED or id in MEASURED:
            raise ValueError(f"two functions for the claim {id}")
        functions[id] = partial(function, **arguments)
        return function

    return register
