"""python -m repro"""

import contextlib
import sys

if sys.version_info < (3, 11):  # noqa: UP036, people run this without any set-up
    with contextlib.suppress(OSError, AttributeError):  # stderr is full, or closed
        sys.stderr.write(f"repro: Python {sys.version.split()[0]} is too old: 3.11 or newer is needed\n")
    sys.exit(2)
if sys.flags.optimize > 1:
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write("repro: without docstrings the libraries fail: leave out -OO, or unset PYTHONOPTIMIZE\n")
    sys.exit(2)

try:
    from repro.cli import main
except ModuleNotFoundError as error:
    if error.name != "msgspec":
        raise
    from repro.installation import way_to_install

    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"repro: msgspec is not installed: {way_to_install('read')}\n")
    sys.exit(2)


def run_command() -> int:
    """Run the command that this process was started with: the script `repro` of an installation."""
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(run_command())
