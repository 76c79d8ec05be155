"""What torch.compile leaves of a recording: loops over memory, of operators that it fuses, and the bytes they move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from .operators import Operator
from .record import Recording


def fused(recording: Recording) -> Iterator[tuple[list[Operator], float]]:
    """Maximal runs of operators that become one loop, with the bytes it moves: what it reads of others, and writes for
    others. An operator of memory that cannot be fused is a run of its own.

    What only loops of the backward pass need is not kept for them but computed again, where that moves less.
    """
    recomputed: dict[int, dict[int, float]] = {}
    readers = _readers(recording.operators)
    for start, end in _runs(recording.operators):
        run = recording.operators[start:end]
        sources = _sources(run)
        reads: dict[int, float] = {}
        writes: dict[int, float] = {}
        for operator in run:
            for storage, size in operator.reads.items():
                if storage not in writes:
                    for source, taken in recomputed.get(storage, {storage: size}).items():
                        reads[source] = max(taken, reads.get(source, 0.0))
            for storage, size in operator.writes.items():
                writes[storage] = max(size, writes.get(storage, 0.0))
        moved = sum(reads.values())
        for storage, size in writes.items():
            later = [operator for place, operator in readers[storage] if place >= end]
            needed = storage in recording.kept or any(not (each.phase == "backward" and each.fusable) for each in later)
            again = storage in sources and run[0].phase != "backward" and sum(sources[storage].values()) < 2 * size
            if needed or (later and not again):
                moved += size
            elif later:
                recomputed[storage] = sources[storage]
        yield run, moved


def _readers(operators: list[Operator]) -> dict[int, list[tuple[int, Operator]]]:
    """The operators that read each storage, with their places."""
    found: dict[int, list[tuple[int, Operator]]] = defaultdict(list)
    for place, operator in enumerate(operators):
        for storage in operator.reads:
            found[storage].append((place, operator))
    return found


def _runs(operators: list[Operator]) -> Iterator[tuple[int, int]]:
    """Where runs of operators of memory start and end."""
    start = 0
    while start < len(operators):
        first, end = operators[start], start + 1
        if first.kind == "memory":
            while first.fusable and end < len(operators) and operators[end].fusable:
                if operators[end].phase != first.phase:
                    break
                end += 1
            yield start, end
        start = end


def _sources(run: list[Operator]) -> dict[int, dict[int, float]]:
    """What each storage that a run writes could be computed from again, in bytes: what the run reads of others, and the
    mask of a dropout, which itself cannot."""
    found: dict[int, dict[int, float]] = {}
    for operator in run:
        sources: dict[int, float] = {}
        for storage, size in operator.reads.items():
            sources |= found.get(storage, {storage: size})
        mask = min(operator.writes, key=operator.writes.__getitem__) if operator.name == "native_dropout" else None
        if mask is not None:
            sources[mask] = operator.writes[mask]
        found |= {storage: sources for storage in operator.writes if storage != mask}
    return found
