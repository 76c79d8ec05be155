"""What people are told beside the payload, which stdout has to itself."""

import contextlib
import sys

from .escape import visible


def say(line: object) -> None:
    """Tells a line, at once; where nobody listens any more, or its disk is full, the work goes on. Of what somebody
    typed, or a file holds, no character breaks the line or steers the terminal: it is told as Python writes it."""
    with contextlib.suppress(OSError):
        print(f"repro: {visible(str(line))}", file=sys.stderr, flush=True)
