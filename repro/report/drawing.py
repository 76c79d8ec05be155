"""The page is drawn in a process of its own: the library that draws is native code, which ends its process where memory
is short or a string is not to its liking, and the report stands all the same."""

from __future__ import annotations

import pickle
import resource
import signal
import subprocess
import sys

from .content import Content

_TIME_LIMIT = 600  # seconds, of which a page takes a few
# What a process does to draw: it hears where modules are, and the content, both from the process that starts it.
_DRAW = """
import os, pickle, resource, sys
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)  # what libraries print is no part of the page
# Where it is killed it leaves no file of its memory.
resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
sys.path[:] = pickle.load(sys.stdin.buffer)
try:
    from repro.errors import one_line
    from repro.report.page import page
    drawn = page(pickle.load(sys.stdin.buffer))
except Exception as error:
    sys.exit(one_line(error))
out.write(drawn.encode(errors="surrogatepass"))
out.close()
"""


class NotDrawnError(Exception):
    """The page could not be drawn: why, in a few words."""


def drawn(content: Content) -> str:
    """The page. Raises NotDrawnError where the process that draws it fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _DRAW],
            input=pickle.dumps(sys.path) + pickle.dumps(content),
            capture_output=True,
            timeout=_TIME_LIMIT,
        )
    except subprocess.TimeoutExpired:
        raise NotDrawnError(f"it took longer than {_TIME_LIMIT} s") from None
    except OSError as error:
        raise NotDrawnError(f"no process could be started ({error.strerror})") from None
    if done.returncode == 0:
        return done.stdout.decode(errors="surrogatepass")
    said = done.stderr.decode(errors="replace").strip().splitlines()
    why = _killed_by(-done.returncode) if done.returncode < 0 else said[-1] if said else f"exit code {done.returncode}"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    short = "" if limit == resource.RLIM_INFINITY else f", with its memory limited to {limit >> 20} MiB by ulimit -v"
    raise NotDrawnError(f"{why}{short}")


def _killed_by(number: int) -> str:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    return f"the process that draws it was killed by {name}"
