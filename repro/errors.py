"""Errors a person caused and can mend, and how any other is told."""

import errno
import os
import re

_NCCLS_CAUSE = "Last error:"
_COMPILERS_CAUSE = re.compile(r"C\+\+ compile error$.*?\berror: ([^\n]+)", re.MULTILINE | re.DOTALL)  # by Inductor
# By the dynamic linker, of a library that lacks what another needs of it.
_WRONG_LIBRARY = re.compile(
    r"undefined symbol|version `[^']+' not found|cannot open shared object|invalid ELF header|wrong ELF class|"
    "file too short"
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """Bad input, told in one line: the value, what would be right, the way out. The command line exits 2."""


def one_line(error: BaseException) -> str:
    """An error's type, and the beginning of what it says: its first line, and the next where that one only announces
    it, or where NCCL's cause stands behind what it advises, or a compiler's amid its warnings. Some lines hold whole
    commands of a compiler."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no message"]
    told = " ".join(lines[:2] if lines[0].endswith(":") else lines[:1])
    if _NCCLS_CAUSE in lines[:-1]:
        told = f"{told.partition(',')[0]}: {' '.join(lines[lines.index(_NCCLS_CAUSE) + 1 :])}"
    if cause := _COMPILERS_CAUSE.search(str(error)):
        told = f"{lines[0]}: {cause[1]}"
    line = cut(f"{type(error).__name__}: {told}")
    if isinstance(error, (ImportError, OSError)) and _WRONG_LIBRARY.search(line):
        # Last, as `line` may have been cut: these two replace libraries that the stack brings, or was built with.
        set_ = [name for name in ("LD_LIBRARY_PATH", "LD_PRELOAD") if os.environ.get(name)]
        line += "".join(f"; {name} is set, which may name another such library: unset it" for name in set_)
    return line


def cut(line: str, most: int = 300) -> str:
    """A line, or as much of it as a person reads, in characters."""
    return line if len(line) <= most else f"{line[:most]} ..."
