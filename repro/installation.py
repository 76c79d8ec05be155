"""The installed packages: their files, held against the RECORD that each installation wrote, and how to repair them.

As a program, for locks/install.sh --repair, it hashes every file and prints the damaged packages.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

KERNELS = ("flash-attn", "mamba-ssm", "causal-conv1d")  # a stack's lock may pin them, kernels.lock installs them
_GONE = "is gone"


def damages(imported: Collection[str] = (), thoroughly: bool = False) -> dict[str, str]:
    """Return this Python's damaged packages, each with what is wrong: those that a lock brought and that are gone, and
    those with a file of another size than its RECORD says. Of files that were `imported`, or `thoroughly` of all, the
    content is compared, too."""
    records = dict(_records())
    found = {name: "its RECORD is gone" if installed(name) else f"all of it {_GONE}" for name in installed_locks()}
    found = {name: found[name] for name in sorted(found.keys() - records.keys())}
    claims: dict[str, list[tuple[str, str, str, str]]] = {}  # several packages may bring the same file
    for package, (folder, record) in records.items():
        if "/direct_url.json," in record:
            found[package] = "it was installed from a folder or an address of its own"
        for name, digest, size in (row for row in csv.reader(record.splitlines()) if len(row) == 3):
            # "../" are scripts, which nothing imports
            if size and digest.startswith("sha256=") and not name.startswith(("../", "/")):
                claims.setdefault(f"{folder}/{name}", []).append((package, name, digest, size))
    hashed = {*imported}
    for path, rows in claims.items():
        if what := _difference(path, {row[2:] for row in rows}, thoroughly or path in hashed):
            package, name, *_ = rows[0]
            found.setdefault(package, f"{name} {what}")
    return found


def missing(damages: Mapping[str, str]) -> list[str]:
    """Return the packages of which something is gone: what imports them fails."""
    return [package for package, what in damages.items() if what.endswith(_GONE)]


def _records() -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield each distribution that has a RECORD, with its folder and that text. One in an earlier folder hides it."""
    from importlib.metadata import distributions  # 0.06 s, which what only reads saves

    seen = set()
    for distribution in distributions():
        try:
            text = distribution.read_text("RECORD") or ""  # a system package may have none
        except UnicodeDecodeError:
            continue
        own = re.search(r"(?m)^([^/\n]+?)-[^-/\n]+\.dist-info/RECORD,,", text)
        if own is not None and (package := normalised(own[1])) not in seen:
            seen.add(package)
            yield package, (str(distribution.locate_file("")), text)


def _difference(path: str, claims: Collection[tuple[str, str]], by_content: bool) -> str | None:
    """Describe how a file differs from every (digest, size) that a RECORD has of it; None where it is as one says."""
    try:
        size = str(os.stat(path).st_size)
        digest = _digest(path) if by_content else None
    except (FileNotFoundError, NotADirectoryError):
        return _GONE
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    same = any(size == there and digest in (None, recorded) for recorded, there in claims)
    return None if same else "was changed"


def _digest(path: str) -> str:
    """Return the hash of a file as a RECORD writes it."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def installed_locks() -> set[str]:
    """Return the packages of the locks that locks/install.sh installed here; none where this was set up otherwise."""
    found = set[str]()
    for lock in Path(sys.prefix, "installed").glob("*.lock"):
        names = re.findall(r"(?m)^([A-Za-z0-9][\w.-]*)==", lock.read_text())
        found |= {*map(normalised, names)} - (set() if lock.name == "kernels.lock" else {*KERNELS})
    return found


def way_to_install(extra: str = "measure") -> str:
    """Return how to install a package that is missing from this environment, and that `extra` of repro brings, or
    repro itself for `read`."""
    extras = "" if extra == "read" else f"[{extra}]"
    if os.environ.get("REPRO_IMAGE"):
        return "build the image anew"
    if Path(sys.prefix, "installed", "read.lock").exists():  # it never had more
        if extra == "read":
            return f"rm -r {shlex.quote(sys.prefix)} and the same command again put it back"
        return "./run_all.sh doctor sets up the stack, in which the same command then runs"
    if installed_locks():
        flash4 = "--with-flash4 " if Path(sys.prefix, "installed", "flash4.lock").exists() else ""
        return f"./run_all.sh {flash4}--repair puts it back"
    if installed("repro") and Path(sys.prefix, "uv-receipt.toml").exists():  # an environment that has no pip
        return f"uv tool install '.{extras}' in a checkout installs it, as does its ./run_all.sh"
    if installed("repro"):
        pip = "pip" if installed("pip") else "uv pip"
        return f"{pip} install 'repro{extras}' in this environment installs it, as does ./run_all.sh of a checkout"
    return "set up with ./run_all.sh, or install it with pip"


def normalised(package: str) -> str:
    """Return a distribution's name as locks write it."""
    return re.sub(r"[-_.]+", "-", package).lower()


def installed(package: str) -> str | None:
    """Return the installed version of a distribution, or None."""
    from importlib.metadata import PackageNotFoundError, version  # 0.06 s, which what only reads saves

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def summary(damages: Mapping[str, str]) -> str | None:
    """Describe damaged packages in one line, with the command that repairs them; None where there are none."""
    if not damages:
        return None
    first = next(iter(missing(damages)), next(iter(damages)))
    others = f" (and {len(damages) - 1} more packages)" if len(damages) > 1 else ""
    return f"{first}{others} is not as it was installed in {sys.prefix}: {damages[first]}; {way_to_install()}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{package}\n" for package in damages(thoroughly=True))
