"""Train a recipe on the engine that was measured: `from repro.train import train`, as in an exported train.py."""

from __future__ import annotations

import os
from typing import Any

from ..console import UserError, say
from ..installation import installed, way_to_install


def __getattr__(name: str) -> Any:
    """Return `train`, and set this process up as a measured rank was: before its caller imports torch."""
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not installed("torch"):
        say(f"training needs the stack (torch is missing): {way_to_install()}")
        raise SystemExit(2)
    from ..machine import nvml, stack

    stack.restart_in_utf8()
    try:
        os.environ.update(stack.authors_environment(nvml.visible_devices()))
    except UserError as error:  # no GPU is usable, or the driver does not answer
        say(error)
        raise SystemExit(2) from None
    stack.preload(())
    from .loop import train

    return train
