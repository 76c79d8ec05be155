"""Messages on stderr, beside the output on stdout, and streams that ignore that nobody reads them any more."""

import errno
import os
import stat
import sys
from typing import Any, TextIO

from .escape import visible


class Unfailing:
    """A text stream that drops what cannot be written, from then on all: the work goes on when its terminal or its
    reader has gone, or its disk is full. `error` is why it could not be written, unless nobody is left to read it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.error: OSError | None = None

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._drop(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._drop(error)

    def _drop(self, error: OSError) -> None:
        """Sends what is left in the buffer to nowhere: it would fail once more when the interpreter ends."""
        gone = error.errno == errno.EPIPE or (
            error.errno == errno.EIO and stat.S_ISCHR(os.fstat(self._stream.fileno()).st_mode)  # a terminal's
        )
        if not gone:
            self.error = self.error or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def say(line: object) -> None:
    """Print a line at once. Of what somebody typed, or a file holds, no character breaks the line or steers the
    terminal: it is printed as Python writes it."""
    print(f"repro: {visible(str(line))}", file=sys.stderr, flush=True)
