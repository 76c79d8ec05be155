"""Re-runs the benchmark of "$100K or 100 Days: Trade-offs when Pre-Training with Academic Resources"."""

import os

__version__ = "0.4.0"  # raised where trials measure something else than before


def command() -> str:
    """How people call this program here, as a shell reads it: by its front door, or as a module."""
    return os.environ.get("REPRO_COMMAND") or "python -m repro"
