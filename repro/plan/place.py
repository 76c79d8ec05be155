"""Places in the user's script: the file and line that runs, in words."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

ROOT = Path.cwd()  # the working copy of the script's folder, which the process starts in


def frames() -> Iterator[FrameType]:
    """Yield the frames of the user's files that run, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    start = f"{ROOT}/"
    while frame is not None:
        if frame.f_code.co_filename.startswith(start):
            yield frame
        frame = frame.f_back


def where() -> str:
    """Return the file and line of the user's code that runs, such as train.py:12; "" where none does."""
    found = next(frames(), None)
    return named(found) if found else ""


def named(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).relative_to(ROOT)}:{frame.f_lineno}"
