"""Re-runs the benchmark of "$100K or 100 Days: Trade-offs when Pre-Training with Academic Resources"."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .measure.method import Method
    from .models.recipe import Images, Optimizer, Recipe, Schedule, Text

__all__ = ["Images", "Method", "Optimizer", "Recipe", "Schedule", "Text"]

__version__ = "0.5.0"  # raised where trials measure something else than before


def command() -> str:
    """How people call this program here, as a shell reads it: by its front door, as a script, or as a module."""
    return os.environ.get("REPRO_COMMAND") or _script() or "python -m repro"


def _script() -> str | None:
    """Return the script `repro` of an installation as a shell reads it, by its name where PATH leads to it; None where
    this process is not that script."""
    script = sys.argv[0]
    if os.path.basename(script) != "repro" or not os.path.isfile(script):
        return None
    import shlex
    import shutil

    return "repro" if shutil.which("repro") == script else shlex.quote(script)


def __getattr__(name: str) -> Any:
    """Import what recipes and methods of one's own are made of when it is asked for: `from repro import Recipe`."""
    if name not in __all__:
        raise AttributeError(f"module 'repro' has no attribute {name!r}")
    module = "repro.measure.method" if name == "Method" else "repro.models.recipe"
    return getattr(importlib.import_module(module), name)
