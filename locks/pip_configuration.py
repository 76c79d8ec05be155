"""Prints where pip and uv are configured to look for packages, as shell assignments of variables of both; and
a call of `die` where that cannot be.

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

BUNDLES = ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"]  # with pip they go before its own cert


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
    exported: dict[str, str] = {}
    for option, variable, separator in VARIABLES:
        values = found.get(option, [])
        if option == "find-links":
            # pip passes over a folder that is not there, uv stops at it.
            values = [os.path.expanduser(v) for v in values]
            values = [v for v in values if "://" in v or os.path.isdir(v)]
        if option == "cert":
            named = [os.environ[name] for name in BUNDLES if os.environ.get(name)] + values
            values = [os.path.expanduser(each) for each in named[:1]]
            if values and not os.path.exists(values[0]):
                message = (
                    f"{values[0]}, where pip is told that certificates are, is not there: name the file that has them"
                )
                print(f"die {shlex.quote(message)}")
            variable = "SSL_CERT_DIR" if values and os.path.isdir(values[0]) else variable
        if values:
            exported.setdefault(variable, separator.join(values))
            print(f"export PIP_{option.upper().replace('-', '_')}={shlex.quote(' '.join(values))}")
    for variable, value in exported.items():
        if variable not in os.environ:
            print(f"export {variable}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
