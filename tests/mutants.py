"""Put small faults into the code, one at a time, and see whether the tests that should find each do fail.

python tests/mutants.py                   all faults; about 20 minutes on 2 cores
python tests/mutants.py NAME ...          these
python tests/mutants.py --changed [BASE]  those whose file or tests differ from a commit, by default from main
python tests/mutants.py --random N [--seed S]  N others, at random places; about a minute each

Each is put into a scratch copy of the checkout, two at a time, and taken out again. A fault survives where its tests
pass all the same, or fail also without it; then the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import random_faults  # noqa: E402

_SECONDS = 900.0  # longest that the tests of one fault take
_AT_ONCE = 2


class Mutant(NamedTuple):
    """A fault: in a file of the checkout, `new` in place of the only `old`. `tests` are arguments of pytest; those
    marked slow run only where they are `slow`."""

    file: str
    old: str
    new: str
    tests: str
    slow: bool = False

    @property
    def paths(self) -> list[str]:
        """Return the files of its tests."""
        return [word for word in shlex.split(self.tests) if word.endswith(".py")]


MUTANTS = {
    name: Mutant(**fault) for name, fault in tomllib.loads((ROOT / "tests" / "mutants.toml").read_text()).items()
}


def problems(root: Path, mutants: Mapping[str, Mutant]) -> list[str]:
    """Return what is wrong with the list: a text that does not stand in its file once, or tests that do not exist."""
    found = []
    for name, each in mutants.items():
        if (times := (root / each.file).read_text().count(each.old)) != 1:
            found.append(f"{name}: {each.old!r} stands {times} times in {each.file}, expected once")
        if lost := [path for path in each.paths if not (root / path).is_file()]:
            found.append(f"{name}: no tests in {', '.join(lost)}")
            continue
        tests = [test for path in each.paths for test in re.findall(r"def (test_\w+)", (root / path).read_text())]
        words = re.findall(r"\w+", " ".join(shlex.split(each.tests)[len(each.paths) + 1 :]))
        lost = [word for word in words if word not in ("and", "or", "not") and not any(word in test for test in tests)]
        if lost or not tests:
            found.append(f"{name}: no test in {', '.join(each.paths)} is named {', '.join(lost) or 'test_'}")
    return found


def survivors(root: Path, mutants: Mapping[str, Mutant]) -> list[str]:
    """Put each fault into a copy of the checkout and run its tests. Print how each ended; return those not found."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch, ThreadPoolExecutor(_AT_ONCE) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(_AT_ONCE):
            copies.put(_copied(root, Path(scratch, str(number))))

        def survives(name: str) -> bool:
            copy, began = copies.get(), time.monotonic()
            try:
                survives, ended = _tried(copy, mutants[name])
            finally:
                copies.put(copy)
            print(f"{name}: {ended} ({time.monotonic() - began:.0f} s)", flush=True)
            return survives

        alive = list(pool.map(survives, mutants))
    return [name for name, lives in zip(mutants, alive, strict=True) if lives]


def _copied(root: Path, copy: Path) -> Path:
    """Copy a checkout; what tests only read, and is large, is linked."""
    linked = [".venv", "results"]
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*linked, ".*_cache", "__pycache__"), symlinks=True)
    for name in filter(lambda name: (root / name).exists(), linked):
        (copy / name).symlink_to(root / name)
    return copy


def _tried(copy: Path, mutant: Mutant) -> tuple[bool, str]:
    """Return whether a fault survives its tests, and how that ended in words: which test found it, or why none did."""
    path = copy / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        code, output = _tested(copy, mutant, "--cache-clear")
    finally:
        path.write_text(text)
    if code == 0:
        return True, "SURVIVES"
    failed = re.search(r"(?m)^(?:FAILED|ERROR) (\S+)", output)
    again, without = _tested(copy, mutant, "--last-failed")
    if failed is None or again:
        return True, f"SURVIVES, as its tests fail without it, too, or did not run:\n{without if again else output}\n"
    return False, f"found by {failed[1]}"


def _tested(copy: Path, mutant: Mutant, option: str) -> tuple[int, str]:
    """Return the exit code of its tests up to the first that fails, and what pytest printed."""
    words = ["-q", "-x", "-n", "0", "-o", f"cache_dir={copy}/.pytest_cache", option, *shlex.split(mutant.tests)]
    words += [] if mutant.slow else ["-m", "not slow"]
    # Bytecode of the stack is read where run_all.sh keeps it. That of a copy would outlive a fault of the same second.
    variables = {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    kept = os.environ.get("PYTHONPYCACHEPREFIX", str(copy / ".venv" / "build-cache" / "bytecode"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=copy,
        env=os.environ | variables | {"PYTHONPYCACHEPREFIX": kept},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    return done.returncode, done.stdout + done.stderr


def changed(root: Path, base: str, mutants: Mapping[str, Mutant]) -> list[str]:
    """Return the faults whose file or tests differ from what a commit and this checkout grew from."""
    asked = ["git", "diff", "--name-only", "--merge-base", base]
    done = subprocess.run(asked, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"--changed {base}: expected a commit that git knows, such as HEAD")
    files = set(done.stdout.splitlines())
    return [name for name, each in mutants.items() if not files.isdisjoint({each.file, *each.paths})]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a fault (default: all)")
    parser.add_argument("--changed", nargs="?", const="main", metavar="BASE", help="those that a change may concern")
    parser.add_argument("--random", type=int, metavar="N", help="so many others, at random places")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the random places (default: 1)")
    given = parser.parse_args(arguments)
    if given.random:
        drawn = {name: Mutant(*fault) for name, fault in random_faults.sample(given.random, given.seed).items()}
        return _told(drawn, survivors(ROOT, drawn))
    if unknown := set(given.names) - MUTANTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; these are known: {', '.join(MUTANTS)}")
    if wrong := problems(ROOT, MUTANTS):
        parser.error("\n".join(["the list is not that of this checkout", *wrong]))
    names = given.names or (changed(ROOT, given.changed, MUTANTS) if given.changed else list(MUTANTS))
    chosen = {name: MUTANTS[name] for name in names}
    return _told(chosen, survivors(ROOT, chosen))


def _told(tried: Mapping[str, Mutant], alive: Sequence[str]) -> int:
    """Print which faults survived; return the exit code."""
    print(f"{len(tried)} mutants, survivors: {'; '.join(alive) or 'none'}")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
