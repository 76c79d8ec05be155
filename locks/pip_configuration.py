"""Prints where pip is configured to look for packages, as shell assignments of uv's variables.

Runs on whatever python3 has the pip, before there is a stack. A variable of uv's that is set already stays.
"""

from __future__ import annotations

import ast
import os
import shlex
import subprocess
import sys

# Later sections override earlier ones, as in pip.
SECTIONS = ["global", "install", ":env:"]

# pip's option, uv's variable, and what stands between several values of the latter.
VARIABLES = [
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("no-index", "UV_NO_INDEX", " "),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("client-cert", "SSL_CLIENT_CERT", " "),
    ("proxy", "ALL_PROXY", " "),
]


def read(listing: str) -> dict[str, list[str]]:
    """The values that hold of each option in the output of `pip config list`."""
    found = {}
    for section in SECTIONS:
        for line in listing.splitlines():
            key, separator, value = line.partition("=")
            values = ast.literal_eval(value).split() if separator and key.startswith(section + ".") else []
            if values:
                found[key[len(section) + 1 :]] = values
    return found


def main() -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    found = read(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    for option, variable, separator in VARIABLES:
        values = found.get(option, [])
        if option == "find-links":
            # pip passes over a folder that is not there, uv stops at it.
            values = [os.path.expanduser(v) for v in values]
            values = [v for v in values if "://" in v or os.path.isdir(v)]
        if values and variable not in os.environ:
            print(f"export {variable}={shlex.quote(separator.join(values))}")


if __name__ == "__main__":
    main()
