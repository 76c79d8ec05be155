"""Trace every recipe on the installed stack, and write the traces to repro/predict/traces. Takes a minute.

python -m tools.traces
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from repro.installation import installed
from repro.predict.traces import TRACING_TORCH, Trace, can_trace, save


def _traced() -> Iterator[Trace]:
    from repro.predict.trace.trace import all_traces

    for each in all_traces():
        print(f"{each.recipe} {each.variant}", file=sys.stderr)
        yield each


if __name__ == "__main__":
    if not can_trace():
        sys.exit(f"tracing needs torch {TRACING_TORCH} or newer, this is {installed('torch')}")
    print(save(_traced()))
