"""Errors a person caused and can mend, and how any other is told."""

import errno

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """Bad input, told in one line: the value, what would be right, the way out. The command line exits 2."""


def one_line(error: BaseException) -> str:
    """An error's type, and the first line of what it says."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
