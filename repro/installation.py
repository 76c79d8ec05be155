"""The installed packages: their files, held against the RECORD that each installation wrote, and how to repair them.

As a program, for locks/install.sh --repair, it hashes every file and prints the damaged packages.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

KERNELS = ("flash-attn", "mamba-ssm", "causal-conv1d")  # a stack's lock may pin them, kernels.lock installs them


@dataclass(frozen=True)
class Damage:
    """The first difference of a package from what was installed; `missing` where files are gone."""

    package: str
    what: str
    missing: bool = False


class _Row(NamedTuple):
    """A file in a package's RECORD: its `name` there, size and digest."""

    package: str
    name: str
    size: int
    digest: str


def damages(imported: Collection[str] = (), thoroughly: bool = False) -> dict[str, Damage]:
    """Return this Python's damaged packages by name: those that a lock brought and that are gone, and those with a file
    of another size than its RECORD says, or `thoroughly` of another content. Of files that were `imported` the content
    is compared, and no other file is looked at."""
    records = dict(_records())
    found = {
        name: Damage(name, "it has no RECORD" if installed(name) else "all of it is gone", missing=True)
        for name in sorted(installed_locks() - records.keys())
    }
    rows: dict[str, list[_Row]] = {}  # several packages may bring the same file: any of them may be right
    for package, (folder, record) in records.items():
        if "/direct_url.json," in record:
            found[package] = Damage(package, "it was installed from a folder or an address of its own")
        for row in _rows(package, record):
            rows.setdefault(f"{folder}/{row.name}", []).append(row)
    imported = {*imported}
    for path, claims in rows.items():
        if imported and path not in imported:
            continue
        if (what := _difference(path, claims, thoroughly or path in imported)) is not None:
            package, missing = claims[0].package, what != "was changed"
            found.setdefault(package, Damage(package, f"{claims[0].name} {what}", missing))
    return found


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


def _rows(package: str, record: str) -> Iterator[_Row]:
    """Yield the files in a RECORD, but for scripts, which nothing imports."""
    for line in record.split("\n"):
        name, _, rest = line.rpartition(",sha256=")
        digest, _, size = rest.strip().partition(",")
        if name.startswith('"'):
            name = name[1:-1].replace('""', '"')
        if name and size.isdecimal() and not name.startswith(("../", "/")):
            yield _Row(package, name, int(size), digest)


def _difference(path: str, claims: list[_Row], by_content: bool) -> str | None:
    """Describe how a file differs from all that RECORDs say of it; None where it is as one of them says."""
    try:
        size = os.stat(path).st_size
        digest = _digest(path) if by_content else None
    except (FileNotFoundError, NotADirectoryError):
        return "is gone"
    except OSError as error:
        return error.strerror or "cannot be read"
    same = any(size == row.size and digest in (None, row.digest) for row in claims)
    return None if same else "was changed"


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


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


def summary(damages: Mapping[str, Damage]) -> str | None:
    """Describe damaged packages in one line, with the command that repairs them; None where there are none."""
    if not damages:
        return None
    first, *rest = sorted(damages.values(), key=lambda each: not each.missing)
    others = f" (and {len(rest)} more packages)" if rest else ""
    return f"{first.package}{others} is not as it was installed in {sys.prefix}: {first.what}; {way_to_install()}"


if __name__ == "__main__":
    sys.stdout.writelines(f"{package}\n" for package in damages(thoroughly=True))
