"""What a record does not tell, as its GPU was held down, or somebody else used it, the CPUs or the host's memory."""

from __future__ import annotations

from collections.abc import Mapping

from .trial import Record

# NVML's clock event reasons. A power cap is left in: under load a board runs at its cap on both sides.
_THROTTLED = {0x8: "slowed by the hardware", 0x20: "too hot", 0x40: "too hot", 0x80: "short of power"}
_TAKEN = 0.05  # of a GPU's memory: a desktop takes less, and what the driver keeps to itself
_CROWDED = 0.25  # CPUs: one that somebody else needs is enough, as threads wait for each other at every operator


def crowded(cpus: float | None) -> str | None:
    """That others kept so many CPUs busy, of those that something ran on, in a few words that trials share; None where
    that is little, or nobody tells."""
    if cpus is None or cpus < _CROWDED:
        return None
    return f"other processes kept about {cpus:.1f} CPUs busy"


def unfair(record: Record) -> str | None:
    """Why a measured record is no fair sample of a speed, or one that ran out of memory none of what fits, in a few
    words; None where it is one, or no GPU tells."""
    return disturbed(record) or crowded_out(record)


def disturbed(record: Record) -> str | None:
    """The same of the GPU as it was timed, or as nothing fitted."""
    for state in record.gpu_state or []:
        if state is None:
            continue
        held = int(state.get("throttle_reasons") or 0) if record.status == "ok" else 0
        for bit, words in _THROTTLED.items():
            if held & bit:
                return f"the GPU throttled: {words}"
        if used := _used_by_others(state):
            return used
    return None


def crowded_out(record: Record) -> str | None:
    """Why a larger micro batch than the one that ran may fit, in a few words; None where nothing says so."""
    if record.status != "ok":
        return None
    used = next(filter(None, map(_used_by_others, record.full)), None)
    return used and f"a larger micro batch ran out of memory as {used}"


def _used_by_others(state: Mapping[str, float | None]) -> str | None:
    """What else used a GPU: its processes do not tell of one that runs in another container."""
    if int(state.get("processes") or 0) > 1:
        return "another process used the GPU"
    taken, total = (state.get(name) or 0.0 for name in ("taken_bytes", "memory_bytes"))
    return f"others had {taken / 1e9:.1f} GB of the GPU's memory" if taken > _TAKEN * total else None


def shared(record: Record) -> bool:
    """Whether it ran out of a GPU's memory that was not all its own, and so tells nothing of what fits."""
    return record.status == "out_of_memory" and not record.host_ran_out and disturbed(record) is not None


def stands(record: Record) -> bool:
    """Whether it is the last word on its settings on its machine: they ran at the largest micro batch, or ran out of
    the GPU's memory, all of it theirs."""
    if record.status == "ok":
        return crowded_out(record) is None
    return record.status == "out_of_memory" and not record.host_ran_out and not shared(record)
