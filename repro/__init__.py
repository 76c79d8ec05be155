"""Re-runs the benchmark of "$100K or 100 Days: Trade-offs when Pre-Training with Academic Resources"."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models.recipe import Images, Optimizer, Recipe, Schedule, Text

__all__ = ["Images", "Optimizer", "Recipe", "Schedule", "Text"]

__version__ = "0.4.0"  # raised where trials measure something else than before


def command() -> str:
    """How people call this program here, as a shell reads it: by its front door, or as a module."""
    return os.environ.get("REPRO_COMMAND") or "python -m repro"


def __getattr__(name: str) -> Any:
    """Import the classes of which a recipe of one's own is made when they are asked for: `from repro import Recipe`."""
    if name in __all__:
        from .models import recipe

        return getattr(recipe, name)
    raise AttributeError(f"module 'repro' has no attribute {name!r}")
