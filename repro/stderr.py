"""What people are told beside the payload, which stdout has to itself."""

import sys


def say(line: object) -> None:
    """Tells a line, at once."""
    print(f"repro: {line}", file=sys.stderr, flush=True)
