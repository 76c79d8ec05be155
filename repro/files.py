"""Files: atomic replacement, locks, limits for files that others made, and messages where the disk refuses a write."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from .console import DISK_FULL, UserError

# What Windows lacks, or has alone, is 0 elsewhere.
_READING = os.O_RDONLY
for _flag in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):
    _READING |= getattr(os, _flag, 0)
MOST_BYTES = 2**28  # of a file: enough for hundreds of runs, but not for a disk image named by mistake
_PIPE_SECONDS = 10.0  # longest wait for each part of a pipe's data


def read(path: Path, most: int | None = None) -> bytes:
    """Return the content of a file or a pipe, such as a shell's <(...). Raises OSError for more than `most` bytes
    (default: MOST_BYTES), and for a pipe that delivers nothing for 10 s."""
    most = MOST_BYTES if most is None else most
    opened = os.open(path, _READING)
    with open(opened, "rb", buffering=0) as file:
        found = bytearray()
        is_pipe = not stat.S_ISREG(os.fstat(opened).st_mode)
        if is_pipe:
            events = select.poll()
            events.register(file, select.POLLIN)
        while len(found) <= most:
            if is_pipe and not events.poll(_PIPE_SECONDS * 1000):
                raise OSError(errno.ETIMEDOUT, f"it is no file, and nothing came from it for {_PIPE_SECONDS:g} s")
            chunk = file.read(min(1 << 20, most + 1 - len(found)))
            if chunk == b"":
                return bytes(found)
            found += chunk or b""  # None where a pipe has no data after all
    raise OSError(errno.EFBIG, f"larger than {most:,} bytes")


def lock(file: IO[Any], wait: bool = False) -> bool:
    """Lock an open file; return False where its file system has no locks, as some network mounts. Raises
    BlockingIOError where another process holds the lock, unless this is to `wait`."""
    import fcntl  # only POSIX has it, and reading needs no lock

    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return False
    return True


def sync(file: IO[Any]) -> bool:
    """Flush a file to its disk; return False where its file system does not support that."""
    file.flush()
    try:
        os.fsync(file.fileno())
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EROFS):
            raise
        return False
    return True


def free_bytes(folder: Path) -> float:
    """Return the free bytes of a folder's disk; infinity if unknown, as with some network mounts."""
    found = shutil.disk_usage(folder)
    return found.free if found.total else math.inf


def replace(path: Path, text: str, named: bool = False) -> Path:
    """Replace a file atomically, and make its folder. Raises UserError where it cannot be written, or where `inside`
    refuses it. A file that a person `named` may be anywhere, or be a device or a pipe, which is written to directly."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not named:
            inside(path.parent, path.name)
        elif path.exists() and not path.is_file():  # a device or a pipe cannot be replaced
            path.write_text(text, encoding="utf-8")
            return path
        target = Path(os.path.realpath(path))  # keeps a link; Path.resolve raises for links in a cycle
        part = target.with_name(f"{target.name}.{os.getpid()}.part")
        try:
            part.unlink(missing_ok=True)
            with part.open("x", encoding="utf-8", errors="backslashreplace") as file:  # follows no link
                file.write(text)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path.parent, error) from error
    return path


def inside(folder: Path, *names: str) -> None:
    """Raise UserError where one of these names is a link that leaves the folder, or a device or a pipe: whoever made
    the folder could redirect our writes."""
    home = os.path.realpath(folder)
    for name in names:
        path = folder / name
        target = os.path.realpath(path)
        if os.path.commonpath([home, target]) != home:
            raise UserError(f"{path} is a link that leaves the folder, to {target}: remove it, or name another folder")
        with contextlib.suppress(OSError):  # it does not exist
            mode = os.stat(target).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UserError(f"{path} is no file: remove it, or name another folder")


def make_folder(folder: Path, name: str) -> Path:
    """Make a folder in a folder, and return it. Raises UserError where `inside` refuses it or a file that it holds."""
    inside(folder, name)
    made = folder / name
    made.mkdir(parents=True, exist_ok=True)
    inside(made, *os.listdir(made))
    return made


def open_to_append(folder: Path, name: str) -> int:
    """Open a file of a folder for appending, making it if needed. Raises UserError as `inside` does."""
    inside(folder, name)
    # These flags make the opening fail where a link or a pipe was put there after the check.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(os.path.realpath(folder / name), flags, 0o666)


def look(path: Path) -> None:
    """Raise UserError where this user is not allowed to see whether the file exists."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise UserError(f"{path.parent} cannot be read: {error.strerror}") from error


def refuse_to_replace(folder: Path, names: Iterable[str]) -> None:
    """Raise UserError where one of these files is in the folder already, or this user may not see whether it is."""
    there = []
    for name in names:
        look(folder / name)
        there += [name] if (folder / name).exists() else []
    if there:
        has = f"{folder} has {', '.join(there)}"
        raise UserError(f"{has}, which would be lost: name another folder, or remove what is there")


def nearest(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(each for each in (path, *path.parents) if os.path.lexists(each))


def remove(path: Path) -> None:
    """Remove a file, if it exists. Raises UserError where it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise not_written(path.parent, error) from error


def not_written(folder: Path, error: OSError, way_out: str | None = None) -> UserError:
    """Return the UserError for a folder that cannot be made or written to; `way_out` replaces its advice."""
    if error.errno in DISK_FULL:
        return UserError(f"no space left in {folder}: free some and run the same command again")
    reason, remedy = error.strerror, "make it writable, or name another place"
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        file = nearest(Path(error.filename))
        reason, remedy = f"{file} is a file, not a folder", "name another place"
    elif error.errno == errno.EISDIR:
        reason, remedy = f"{error.filename} is a folder, not a file", "move it, or name another place"
    return UserError(f"cannot write to {folder}: {reason}; {way_out or remedy}")
