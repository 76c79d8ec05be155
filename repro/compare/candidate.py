"""The candidate stack: an environment that uv builds beside the baseline stack's, once, and that is kept."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .. import files
from ..console import ROOT, UserError, cut, say
from ..datafile import VALUE
from ..installation import KERNELS, normalised
from ..machine.build_cache import build_cache
from ..machine.packages import TOOLS, installed_packages, matters

# The packages that a trial may import. Kernels built from source are left out: they would be built again.
_ROOTS = (
    *("torch", "torchvision", "transformers", "accelerate", "deepspeed", "timm"),
    *("nvidia-ml-py", "psutil", "setuptools", "msgspec"),
)
_MODELS = ("torch", "transformers", "timm")  # every recipe's model is made of these
_SCRIPT = ROOT / "locks" / "second.sh"
# Lines that always mean the same packages, and options. A bare name, a folder, a wheel, a branch or another file may
# change its meaning.
# A package, alone or with what may follow it, or a file or address of one.
_REQUIREMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\s*([\[(<>=!~@;]|--|$)|[./~]|[a-z+]+:/")
_PINNED = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[^]]*\])?\s*==\s*[A-Za-z0-9.+!_-]+(\s|;|$)|--(?!requirement|constraint|editable)"
)


@dataclass(frozen=True)
class Stack:
    """An interpreter and the versions of its distributions. `key` names the folder of a stack that was built here from
    a `lock`; this program's own has neither."""

    name: str
    python: str
    packages: dict[str, str]
    key: str = ""
    lock: Path | None = None


def this_stack() -> Stack:
    """Return the stack that runs this program."""
    return Stack("this stack", sys.executable, installed_packages())


def differ(first: Stack, other: Stack, left_behind: Collection[str] = ()) -> bool:
    """Return True where a trial may import another package or version from `other` than from `first`. Packages that
    only `first` has do not count where no trial imports them, such as tools of the tests; `left_behind` never
    counts."""
    names = {*other.packages, *_ROOTS, *filter(matters, {*first.packages}.difference(TOOLS))}
    return any(first.packages.get(name) != other.packages.get(name) for name in names.difference(left_behind))


def left_behind(against: str, first: Stack) -> frozenset[str]:
    """Return the kernels of `first` that a stack with these requirements lacks, as it would build them from source
    again; empty for a lock file, which lists all that it has. Raises UserError as `build` does."""
    if os.path.isfile(against):
        return frozenset()
    return frozenset(KERNELS).intersection(first.packages).difference(requirements(against))


def folder(key: str) -> Path:
    """Return the folder of the candidate stack with this key, and of its build caches."""
    return build_cache() / "second" / key


def build(against: str, first: Stack) -> Stack:
    """Return the stack of a lock file, or of requirements such as "torch==2.12.0 transformers==5.24.0". Raises
    UserError where `against` is neither, or the stack cannot be built."""
    if not os.path.isfile(against):  # pathlib would raise for requirements longer than a file name
        return pinned(requirements(against), first)
    lines = _requirements_of(_text(Path(against)))
    if all("--hash=" in line for line in lines):  # then nothing else is installed
        named = {normalised(re.split(r"[\s=\[]", line)[0]) for line in lines}
        if named & {*_MODELS}:
            _refuse_a_part(against, first, named)
    found = locked(Path(against))
    _refuse_a_part(against, first, found.packages)
    return found


def locked(lock: Path) -> Stack:
    """Return the stack of a lock file. Raises UserError where it cannot be read or installed."""
    text = _text(lock)
    if unchecked := [line for line in _requirements_of(text) if "--hash=" not in line]:
        say(
            f"--against {lock}: {unchecked[0].split()[0]} has no hash in it, so what is installed may be any file of it"
        )
    return _built(_key(text), str(lock), {lock: None}, anew=bool(unpinned(text)))


def unpinned(text: str) -> list[str]:
    """Return the lines of a lock that may mean other packages another day."""
    return [line for line in _lines(text) if not _PINNED.match(line)]


_BASELINE = "# The baseline of "


def accept(stack: Stack, machine: str, folder: Path) -> Path:
    """Keep a stack's lock as a machine's baseline, below a folder such as expected/; return the file. Raises UserError
    where the lock cannot be read, or may mean other packages another day."""
    assert stack.lock is not None
    text = _text(stack.lock)
    if loose := unpinned(text):
        raise UserError(f"{stack.name} has {cut(loose[0], VALUE)!r}, which may be another version next time")
    path = folder / "baselines" / f"{re.sub('[^a-z0-9]+', '-', machine.lower()).strip('-')}.lock"
    accepted = f"{_BASELINE}{machine}: {stack.name}, accepted on {date.today().isoformat()} by compare --accept"
    return files.replace(path, f"{accepted}\n{text}")


def is_baseline(against: str) -> bool:
    """Return True for a lock that `accept` kept: the stack that others are held against."""
    return os.path.isfile(against) and _text(Path(against)).startswith(_BASELINE)


def _text(lock: Path) -> str:
    """Return the text of a lock file. Raises UserError where it is empty or cannot be read."""
    expected = "expected a lock file, such as locks/latest.lock"
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--against {lock}: it cannot be read ({error.strerror})") from error
    except UnicodeDecodeError:
        raise UserError(f"--against {lock}: it is no text, {expected}, which may name a wheel") from None
    if not text.strip():
        raise UserError(f"--against {lock}: it is empty, {expected}")
    if other := [line for line in _requirements_of(text) if not _REQUIREMENT.match(line)]:
        raise UserError(
            f"--against {lock}: it is no list of packages, it has {cut(other[0], VALUE)!r}: {expected}, or "
            "requirements such as torch==2.11.0"
        )
    return text


def _refuse_a_part(against: str, first: Stack, packages: Collection[str]) -> None:
    """Raise UserError where a lock file lacks packages that models are made of: a partial stack would break trials."""
    lacking = [name for name in _MODELS if name in first.packages and name not in packages]
    if lacking:
        raise UserError(
            f"--against {against}: it is no whole stack, without {', '.join(lacking)}: name a lock of all packages, or "
            "the few that are to differ from this stack themselves, such as --against torch==2.11.0"
        )


def pinned(wanted: Mapping[str, str], first: Stack) -> Stack:
    """Return a stack with these requirements, by normalised name, such as "torch==2.11.0". All else is as in `first`,
    as far as the requirements allow. Raises UserError where they do not resolve or cannot be installed."""
    pins = "".join(f"{name}=={version}\n" for name, version in sorted(first.packages.items()))
    torch = first.packages.get("torch", "")
    lines = []
    for name in dict.fromkeys((*(root for root in _ROOTS if root in first.packages), *wanted)):
        line = wanted.get(name, name)
        if name == "torch" and name not in wanted:
            line = f"torch=={torch}"  # its CPU and CUDA builds share a version: a preference could swap them
        elif torch.endswith("+cpu") and re.fullmatch(r"torch==[0-9.]+", line):
            line += "+cpu"
        lines.append(line + "\n")
    text = "".join(lines)
    key = _key(text + pins)
    return _built(key, " ".join(wanted.values()), {folder(key) / "lock": pins, folder(key) / "wanted.in": text})


def requirements(against: str) -> dict[str, str]:
    """Return requirements by their normalised names. Raises UserError where there are none, or one is malformed."""
    if os.path.isdir(against):
        raise UserError(f"--against {against}: it is a folder, expected a lock file, such as locks/latest.lock")
    found: dict[str, str] = {}
    for word in against.replace(",", " ").split():
        parts = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.+!_-]+)", word)
        if parts is None:
            raise UserError(
                f"--against {against}: no such file, and {word!r} is not of the form package==version, such as "
                "torch==2.11.0"
            )
        name = normalised(parts[1])
        line = f"{name}=={parts[2]}"  # `pinned` and second.sh look for torch by this name
        if found.setdefault(name, line) != line:
            raise UserError(f"--against {against}: {found[name]} and {word}: name one version of a package")
    if not found:
        raise UserError('--against: expected a lock file, or requirements such as "torch==2.12.0 transformers==5.24.0"')
    return found


def _key(text: str) -> str:
    return hashlib.sha256(f"{sys.executable}\n{text}".encode()).hexdigest()[:12]


def _lines(lock: str) -> list[str]:
    """Return the lines of a lock file without comments, each requirement with its hashes on one line."""
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lock.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


def _requirements_of(lock: str) -> list[str]:
    return [line for line in _lines(lock) if not line.startswith("-")]


def _built(key: str, name: str, files: Mapping[Path, str | None], anew: bool = False) -> Stack:
    """Return the stack installed from `files`: a lock and, for some stacks, requirements, in this order, each with the
    text to write into it, None for the user's own. An undamaged stack that exists is reused, unless `anew`."""
    place = folder(key)
    done, python = place / "complete", place / "venv" / "bin" / "python"

    def there() -> dict[str, str] | None:
        """Return the packages of the existing stack; None where it is to be built."""
        if anew or not done.is_file() or not python.exists():
            return None
        packages, damages = _packages(str(python))
        return packages if damages == done.read_text() else None

    packages = there()
    if packages is None:
        with _alone(place):
            packages = there()  # another check may have built it in the meantime
            if packages is None:
                _build(place, name, files)
                packages, damages = _packages(str(python))
                done.write_text(damages)
    return Stack(name, str(python), packages, key, next(iter(files)))


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """Lock a folder once no other check builds there: a rebuild would remove a stack that is being measured."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock = (place / ".lock").open("w")
    except OSError as error:
        raise UserError(f"cannot write to {place}: {error.strerror}") from error
    with lock:
        if not files.lock(lock, wait=True):
            say(f"{place} is on a file system without locks: see that no other check builds there")
        yield


def _build(place: Path, name: str, files: Mapping[Path, str | None]) -> None:
    try:
        (place / "complete").unlink(missing_ok=True)
        for file, text in files.items():
            if text is not None:
                file.write_text(text)
    except OSError as error:
        raise UserError(f"cannot write to {place}: {error.strerror}") from error
    say(f"building the stack of {name}")
    command = ["bash", str(_SCRIPT), sys.executable, str(place / "venv"), *map(str, files)]
    made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if made.returncode == 130:
        raise KeyboardInterrupt
    if made.returncode:
        raise UserError(f"--against {name}: {_one_line(made.stderr, place.name, name)}")


def _one_line(message: str, key: str, name: str) -> str:
    """Return the resolver's message, which uv draws as a tree, in one line. Where uv prints nothing it is our script's
    message. The path of our copy of a lock is replaced by the name that the user gave."""
    script, aside = f"{_SCRIPT.name}: ", (", see above", ": waiting for it")
    lines = [line for line in message.splitlines() if not (line.startswith(script) and line.endswith(aside))]
    line = " ".join(re.sub(r"[\u00d7\u2500-\u25ff]", " ", "\n".join(lines) or message).replace(script, "").split())
    line = re.sub(r"^(error: )?(No solution found when resolving dependencies:? (cause: )?)?", "", line)
    return cut(re.sub(rf"[^\s`']*/{key}/(lock|wanted\.in)", lambda _: name, line), 400)


def _packages(python: str) -> tuple[dict[str, str], str]:
    """Return the distributions that an interpreter finds, wherever its folders are, and a text of the files that are
    not as installed, by which a stack is recognised that was changed since it was built."""
    code = (
        "import json; from repro.installation import damages; "
        "from repro.machine.packages import installed_packages; "
        "print(json.dumps([installed_packages(), repr(damages())]))"
    )
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = subprocess.run([python, "-P", "-c", code], env=variables, capture_output=True, text=True)
    if asked.returncode:
        last = asked.stderr.strip().splitlines()[-1:] or ["no message"]
        raise UserError(f"{python} does not run: {last[0]}")
    packages, found = json.loads(asked.stdout)
    return packages, found
