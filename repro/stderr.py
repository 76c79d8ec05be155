"""What people are told beside the payload, which stdout has to itself."""

import contextlib
import sys


def say(line: object) -> None:
    """Tells a line, at once; where nobody listens any more, or its disk is full, the work goes on."""
    with contextlib.suppress(OSError):
        print(f"repro: {line}", file=sys.stderr, flush=True)
