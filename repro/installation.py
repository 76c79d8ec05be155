"""Checks of installed packages: their files against the RECORD that each installation wrote.

Also a program, which locks/install.sh and run_all.sh run before anything of the stack is imported:

    installation.py --whole              exits with 1, and a line on stderr, where files of a package are missing
    installation.py --all                hashes every file, and prints the packages with a changed file
    installation.py --against LOCK       does so for the packages that LOCK pins, and prints those of another version
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import shlex
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

KERNELS = ("flash-attn", "mamba-ssm", "causal-conv1d")  # a stack's lock may pin them, kernels.lock installs them


@dataclass(frozen=True)
class Damage:
    """The first difference of a package from what was installed; `missing` where files are gone."""

    package: str
    what: str
    missing: bool


class _Recorded(NamedTuple):
    """A distribution: its RECORD, that file's modification time in nanoseconds, and `elsewhere` where it was installed
    from neither an index nor a folder of wheels."""

    package: str
    record: str
    written: int
    elsewhere: bool


class _Row(NamedTuple):
    """One RECORD's entry for a file. Several RECORDs may list the same file: any of them may be right."""

    owner: _Recorded
    path: str
    size: int
    digest: str


@cache
def damages() -> tuple[Damage, ...]:
    """Return this Python's damaged packages. A file is hashed only where it is newer than its package's RECORD."""
    owners, rows = _recorded()
    gone = {
        name: "it has no RECORD" if installed(name) else "all of it is gone"
        for name in installed_locks().difference(owners)
    }
    found = [Damage(name, what, missing=True) for name, what in sorted(gone.items())]
    return (*found, *_changed(owners, rows))


def installed_locks() -> set[str]:
    """Return the packages of the locks that locks/install.sh installed here; none where this was set up otherwise."""
    found = set[str]()
    for lock in Path(sys.prefix, "installed").glob("*.lock"):
        found |= _pins(lock).keys() - (set() if lock.name == "kernels.lock" else {*KERNELS})
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


def _pins(lock: Path) -> dict[str, str]:
    pins = re.findall(r"(?m)^([A-Za-z0-9][\w.-]*)==([^\s;\\]+)", lock.read_text())
    return {normalised(name): version for name, version in pins}


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


def _changed(
    owners: Mapping[str, _Recorded], rows: Mapping[str, list[_Row]], thoroughly: Collection[str] = ()
) -> list[Damage]:
    """Return each package with a file that differs from its RECORD; of those in `thoroughly` every file is hashed."""
    found = {
        name: Damage(name, "it was installed from a folder or an address of its own", missing=False)
        for name, owner in owners.items()
        if owner.elsewhere
    }
    newest: dict[str, int] = {}  # when each package's newest hashed file was modified
    to_hash: list[str] = []
    for path, claims in rows.items():
        try:
            seen = os.stat(path)
        except OSError as error:
            what = "is gone" if isinstance(error, FileNotFoundError | NotADirectoryError) else f"{error.strerror}"
            found.setdefault(claims[0].owner.package, _damage(claims[0], what, missing=True))
            continue
        size, written = seen.st_size, seen.st_mtime_ns
        if not any(size == claim.size for claim in claims):
            found.setdefault(claims[0].owner.package, _damage(claims[0], "was changed"))
        elif not any(written <= claim.owner.written for claim in claims) or any(
            claim.owner.package in thoroughly for claim in claims
        ):
            to_hash.append(path)
            for claim in claims:
                newest[claim.owner.package] = max(newest.get(claim.owner.package, 0), written)
    for path, digest in _digests(to_hash):
        if all(digest != claim.digest for claim in rows[path]):
            found.setdefault(rows[path][0].owner.package, _damage(rows[path][0], "was changed"))
    if newest:
        _remember({owners[name].record: written for name, written in newest.items() if name not in found})
    return list(found.values())


def _recorded() -> tuple[dict[str, _Recorded], dict[str, list[_Row]]]:
    """Return the distributions that have a RECORD, by package, and the entries of the RECORDs, by file."""
    from importlib.metadata import distributions

    owners: dict[str, _Recorded] = {}
    rows: dict[str, list[_Row]] = {}
    for distribution in distributions():
        try:
            text = distribution.read_text("RECORD") or ""  # a system package may have none
        except UnicodeDecodeError:
            continue
        own = re.search(r"(?m)^(([^/\n]+?)-[^-/\n]+\.dist-info/RECORD),,", text)
        if own is None or (package := normalised(own[2])) in owners:  # one in an earlier folder hides it
            continue
        folder = str(distribution.locate_file(""))
        record = f"{folder}/{own[1]}"
        owner = owners[package] = _Recorded(package, record, _written(record), "/direct_url.json," in text)
        for line in text.split("\n"):
            path, _, rest = line.rpartition(",sha256=")
            if not path:
                continue
            digest, _, size = rest.strip().partition(",")
            if not size.isdecimal():
                continue
            if path[0] == '"':
                path = path[1:-1].replace('""', '"')
            if path.startswith(("../", "/")):  # scripts, which nothing imports
                continue
            rows.setdefault(f"{folder}/{path}", []).append(_Row(owner, path, int(size), digest))
    return owners, rows


def _written(record: str) -> int:
    try:
        return os.stat(record).st_mtime_ns
    except OSError:
        return 0


def _digests(paths: Sequence[str]) -> Iterator[tuple[str, str]]:
    if len(paths) < 100:
        yield from ((path, _digest(path)) for path in paths)
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        yield from zip(paths, pool.map(_digest, paths), strict=True)


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        return str(error)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _damage(row: _Row, what: str, missing: bool = False) -> Damage:
    return Damage(row.owner.package, f"{row.path} {what}", missing)


def _remember(newest: Mapping[str, int]) -> None:
    """Set the time of undamaged packages' RECORDs to that of their newest file: a copied environment is hashed once."""
    now = time.time_ns()
    for record, written in newest.items():
        if _written(record) < written <= now:
            with contextlib.suppress(OSError):  # read-only
                os.utime(record, ns=(written, written))


def _not_as(lock: Path) -> list[Damage]:
    """Return the packages of a lock that are missing, have another version, or differ from their RECORD."""
    pins = _pins(lock)
    found = {
        name: Damage(name, f"{pinned} was installed and {here or 'none'} is there", missing=here is None)
        for name, pinned in pins.items()
        if (here := installed(name)) != pinned
    }
    for damage in _changed(*_recorded(), thoroughly=pins):
        if damage.package in pins:
            found.setdefault(damage.package, damage)
    return list(found.values())


def summary(damages: Sequence[Damage]) -> str | None:
    """Describe damaged packages in one line, with the command that repairs them; None where there are none."""
    if not damages:
        return None
    first, *rest = sorted(damages, key=lambda each: not each.missing)
    others = f" (and {len(rest)} more packages)" if rest else ""
    return f"{first.package}{others} is not as it was installed in {sys.prefix}: {first.what}; {way_to_install()}"


def main(words: list[str]) -> int:
    if words == ["--whole"]:
        found = [each for each in damages() if each.missing]
        if found:
            print(summary(found), file=sys.stderr)
        return 1 if found else 0
    if words == ["--all"]:
        owners, rows = _recorded()
        own = [name for name, owner in owners.items() if owner.record.startswith(f"{sys.prefix}/")]
        found = _changed(owners, rows, thoroughly=own)
    else:
        found = _not_as(Path(words[1]))
    for each in found:
        print(each.package)
        print(f"{each.package}: {each.what}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
