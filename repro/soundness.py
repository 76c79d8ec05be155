"""What a record does not tell, as its GPU was held down, or somebody else used it, the CPUs or the host's memory."""

from __future__ import annotations

from .trial import Record

# NVML's clock event reasons. A power cap is left in: under load a board runs at its cap on both sides.
_THROTTLED = {0x8: "slowed by the hardware", 0x20: "too hot", 0x40: "too hot", 0x80: "short of power"}
_CROWDED = 0.25  # CPUs: one that somebody else needs is enough, as threads wait for each other at every operator


def crowded(cpus: float | None) -> str | None:
    """That others kept so many CPUs busy, of those that something ran on, in a few words that trials share; None where
    that is little, or nobody tells."""
    if cpus is None or cpus < _CROWDED:
        return None
    return f"other processes kept about {cpus:.1f} CPUs busy"


def unsound(record: Record) -> str | None:
    """Why a measured record is no sample of a speed, or one that ran out of memory none of what fits, in a few words;
    None where it is one, or no GPU tells."""
    for state in record.gpu_state or []:
        if state is None:
            continue
        held = int(state.get("throttle_reasons") or 0) if record.status == "ok" else 0
        for bit, words in _THROTTLED.items():
            if held & bit:
                return f"the GPU throttled: {words}"
        if int(state.get("processes") or 0) > 1:
            return "another process used the GPU"
    return None


def shared(record: Record) -> bool:
    """Whether it ran out of a GPU's memory that was not all its own, and so tells nothing of what fits."""
    return record.status == "out_of_memory" and not record.host_ran_out and unsound(record) is not None


def stands(record: Record) -> bool:
    """Whether it is the last word on its settings on its machine: they ran, or ran out of the GPU's memory, all of it
    theirs."""
    full = record.status == "out_of_memory" and not record.host_ran_out
    return record.status == "ok" or (full and not shared(record))
