"""Files that are whole or as they were, and what is said where the disk does not take them."""

from __future__ import annotations

import errno
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
        target = Path(os.path.realpath(path))  # a link stays one; Path.resolve raises where links go in a circle
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


def nearest(path: Path) -> Path:
    """The path, or the nearest folder around it that is there."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def remove(path: Path) -> None:
    """Removes a file, if there is one. Raises UserError where it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path.parent, error) from error


def not_written(folder: Path, error: OSError, way_out: str | None = None) -> UserError:
    """What to tell where a folder takes no more, or cannot be made."""
    if error.errno in DISK_FULL:
        return UserError(f"no space left in {folder}: free some and run the same command again")
    why, remedy = error.strerror, "make it writable, or name another place"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        file = nearest(Path(error.filename))
        why, remedy = f"{file} is a file, not a folder", "name another place"
    elif error.errno == errno.EISDIR:
        why, remedy = f"{error.filename} is a folder, not a file", "move it, or name another place"
    return UserError(f"cannot write to {folder}: {why}; {way_out or remedy}")
