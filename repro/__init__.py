"""Re-runs the benchmark of "$100K or 100 Days: Trade-offs when Pre-Training with Academic Resources"."""

import importlib
import os
from typing import Any

__version__ = "0.4.0"  # raised where trials measure something else than before


def command() -> str:
    """How people call this program here, as a shell reads it: by its front door, or as a module."""
    return os.environ.get("REPRO_COMMAND") or "python -m repro"


_PUBLIC = {"Method": "repro.method"}  # for programs of one's own: from repro import Method


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is imported with its first use."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'repro' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)
