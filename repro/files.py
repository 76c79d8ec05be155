"""Files that are whole or as they were, and what is said where the disk does not take them."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import DISK_FULL, UserError


def replace(path: Path, text: str) -> Path:
    """Replaces a file, whole or not at all, and makes its folder. Raises UserError where it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # a device or a pipe has nothing to lose
            path.write_text(text, encoding="utf-8")
            return path
        target = path.resolve()  # a link stays one
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path.parent, error) from error
    return path


def look(path: Path) -> None:
    """Raises UserError where nobody here may see whether there is such a file."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UserError(f"{path.parent} cannot be read: {error.strerror}") from error


def remove(path: Path) -> None:
    """Removes a file, if there is one. Raises UserError where it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path.parent, error) from error


def not_written(folder: Path, error: OSError) -> UserError:
    """What to tell where a folder takes no more."""
    if error.errno in DISK_FULL:
        return UserError(f"no space left in {folder}: free some and run the same command again")
    return UserError(f"cannot write to {folder}: {error.strerror}; make it writable, or name another place")
