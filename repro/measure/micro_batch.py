"""The search for the largest micro batch that fits."""

from __future__ import annotations

import math
from collections.abc import Callable

from repro.record import Record, Status

from ..models.recipe import divisors
from .jobs import RankOutcome
from .outcomes import fail, first_failure, full_gpu, gpu_memory, largest_fitting, peaks

# A micro batch takes at most twice what the size before it took. Where that was this share of the GPU's memory, a crash
# may be due to memory even if its message is another.
_NEAR_THE_END = 0.4


def search(
    attempt: Callable[..., tuple[Status, list[RankOutcome]]],
    share: int,
    start: int,
    record: Record,
    fixed_size: bool = False,
) -> int:
    """Return the largest micro batch, of the divisors of `share`, that every rank ran; 0, and a status, without one.

    `attempt` runs the sizes from `start` up to `largest`. The search goes up from `start`. Where that does not fit, it
    goes below, unless with `fixed_size`: size by size, and after a crash from 1 up to the next below the size that
    crashed. It ends if the host ran out of memory, which does not depend on the size.
    """
    sizes, start = divisors(share), min(start, share)
    crash: RankOutcome | None = None
    while True:
        status, outcomes = attempt(start=start, largest=share)
        fitting, failure = largest_fitting(outcomes), first_failure(outcomes)
        if status == "out_of_memory":
            record.batch.full += full_gpu(failure)
        if fitting or start == 1 or fixed_size or failure.of_host or status not in ("out_of_memory", "crashed"):
            break
        share = max(each for each in sizes if each < start)
        if status == "crashed":
            start, crash = 1, failure  # a crash may repeat at every size below, unlike a lack of memory
        else:
            start = share
    if status == "ok" and crash is not None:
        status, failure = "crashed", crash
    record.observed.start_seconds = outcomes[0].started
    if outcomes[0].as_run is not None:
        record.as_run, record.stack_started = outcomes[0].as_run, outcomes[0].stack_started
    record.batch.peaks = peaks(outcomes, fitting)
    at = f"while searching at micro batch {failed_at(sizes[-1], start, fitting)}"
    if fitting and status == "crashed" and _near_the_end(record, failure):
        # Libraries crash in various ways near the end of memory: the sizes that fitted remain valid.
        record.batch.search_crash = failure.error
        return fitting
    if status not in ("ok", "out_of_memory") or not fitting or failure.of_host:
        fail(record, status, failure, at if fitting or start > 1 else "")
        return 0
    return fitting


def failed_at(largest: int, start: int, fitting: int) -> int:
    """Return the micro batch after the last that fitted, of the divisors of `largest` from `start` on."""
    return next((each for each in divisors(largest) if each > fitting), largest) if fitting else start


def _near_the_end(record: Record, failure: RankOutcome) -> bool:
    """Return whether a crash may be due to the GPU's memory, by what the size before took. False on a CPU, where a
    crash that happens only within the limit is known to be due to memory."""
    if record.device == "cpu":
        return False
    total = min(record.memory_limit or math.inf, gpu_memory(failure).get("memory_bytes") or math.inf)
    return total == math.inf or record.batch.peaks[-1][1] >= _NEAR_THE_END * total
