"""Errors a person caused and can mend."""

import errno

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class UserError(Exception):
    """Bad input, told in one line: the value, what would be right, the way out. The command line exits 2."""
