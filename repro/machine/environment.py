"""The environment of a run: machine, driver, packages, the lock they came from, commit and seed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import __version__, datafile, files
from ..console import DATA, ROOT, UserError, cut, one_line, say_once
from ..formats import counted
from . import nvml, support
from .devices import Device, capability_of
from .host import Host, host
from .packages import PACKAGES, Imported, Imports, complaint, elsewhere, image_target, matters
from .stack import recorded_variables
from .support import Stack

_LOCKS = ("requirements.lock", *(f"locks/{name}.lock" for name in ("volta", "cpu", "paper", "latest")))
_UNKNOWN = "unknown"
ELSEWHERE = " (elsewhere)"  # suffix of the version of a package that came from elsewhere
_NOTHING = Imports()
FILE, TRIALS = "environment.json", "trials.jsonl"
_LINE = b'{"environment": '  # how a line of trials.jsonl begins that is no trial's


@dataclass(frozen=True)
class RunGpu:
    """A GPU that a run used, by the catalogue's name and by the driver's."""

    name: str
    driver_name: str
    memory_bytes: int


@dataclass(frozen=True)
class Lock:
    """The comparison of a stack with a lock. `differences` gives the versions of each differing package in the `lock`
    and `installed`. `changed` maps packages of the locked version to what changed since they were installed. `reason`
    states why a stack of these versions still is not the lock."""

    file: str | None = None
    sha256: str | None = None
    is_the_lock: bool = False
    differences: dict[str, dict[str, str | None]] = field(default_factory=dict)
    reason: str | None = None
    changed: dict[str, str] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """Describe in one clause whether the stack is the lock, and if not, why."""
        if self.is_the_lock:
            return f"{self.file}, all as locked"
        count = len(self.differences)
        differ = f"{counted(count, 'package')} {'differs' if count == 1 else 'differ'} from {self.file}"
        changed = f"changed since it was installed: {', '.join(self.changed)}" if self.changed else ""
        reasons = [*filter(None, (self.reason, changed))]
        return f"not a lock: {'; '.join([*reasons, differ] if count or not reasons else reasons)}"


@dataclass(frozen=True)
class Environment:
    """The stack and the machine of a results folder, as environment.json has it and a line of trials.jsonl. None means
    that a run has no such thing, or a folder does not record it. `packages` are those installed, in the version that
    was imported if one was; `imported` says where they came from. `variables` are those that affect the stack,
    `options` those of this run, `earlier` those of earlier runs in the folder, each once. Of several runs `gpus` are
    those of the one with most GPUs, and `commits` lists each that wrote a record."""

    repro: str | None = None
    commit: str | None = None
    python: str | None = None
    host: Host = field(default_factory=Host)
    gpus: list[RunGpu] | None = None
    driver: str | None = None
    image: str | None = None
    image_digest: str | None = None
    tf32: bool | None = None
    lock: Lock = field(default_factory=Lock)
    packages: dict[str, str] | None = None
    imported: dict[str, Imported] | None = None
    seed: int | None = None
    options: dict[str, Any] | None = None
    earlier: list[dict[str, Any]] = field(default_factory=list)
    variables: dict[str, str] | None = None
    commits: list[str | None] = field(default_factory=list)

    @property
    def versions(self) -> dict[str, str] | None:
        """Return the packages' versions, marked where a package came from elsewhere: equal ones may differ then."""
        if self.packages is None:
            return None
        foreign = {name: self.imported[name].version for name in elsewhere(self.imported)} if self.imported else {}
        return self.packages | {name: f"{version or _UNKNOWN}{ELSEWHERE}" for name, version in foreign.items()}

    @property
    def stack(self) -> str:
        """Return the packages that decide what runs, with their versions; empty where none is recorded."""
        known = self.versions or {}
        return ", ".join(f"{name} {known[name]}" for name in ("torch", "transformers", "timm") if name in known)

    def with_imports(self, imports: Imports) -> Environment:
        """Return a copy that includes what the stack imported."""
        known = self.packages or {}
        versions = {name: each.version or _UNKNOWN for name, each in imports.packages.items()}
        packages = known | {name: version for name, version in versions.items() if name in known or matters(name)}
        return replace(
            self,
            packages=dict(sorted(packages.items())),
            imported=imports.packages,
            lock=lock(packages, imports),
        )


def stack(devices: Sequence[Device], packages: dict[str, str]) -> Stack:
    """Return what the rules need to know of this machine. `devices` are the GPUs of the run, none on a CPU."""
    capability = capability_of(devices)
    return Stack(packages, capability, support.tf32_allowed(capability))


def describe(
    devices: Sequence[Device],
    packages: dict[str, str],
    seed: int,
    options: dict[str, Any],
    variables: Mapping[str, str],
) -> Environment:
    """Return the environment of this run, as far as is known before anything is imported. `variables` are those that
    trials get besides the inherited ones."""
    here = commit()
    return Environment(
        repro=__version__,
        commit=here,
        python=platform.python_version(),
        host=host(),
        gpus=[RunGpu(device.name, device.driver_name, device.memory_bytes) for device in devices],
        driver=nvml.driver(),
        image=image_target(),
        image_digest=os.environ.get("REPRO_IMAGE_DIGEST") or None,  # an image cannot know its own
        tf32=support.tf32_allowed(capability_of(devices)),
        lock=lock(packages),
        packages=dict(sorted(packages.items())),
        seed=seed,
        options=options,
        variables=recorded_variables(variables),
        commits=[here],
    )


def read(folder: Path) -> Environment | None:
    """Return the environment of a results folder: the last one among its trials, or without any, as in older folders,
    that of environment.json; None where there is neither. Raises NotAsDeclaredError where the file has another
    content."""
    for line in reversed(_lines(folder)):
        with contextlib.suppress(datafile.NotAsDeclaredError):  # the line is left out, as a damaged record is
            return of_line(line)
    path = folder / FILE
    return datafile.read(path, Environment) if path.exists() else None


def of_line(line: bytes) -> Environment | None:
    """Return the environment in a line of trials.jsonl; None where it has a record. Raises NotAsDeclaredError where it
    has another content."""
    if not line.startswith(_LINE):
        return None
    return datafile.from_json(Environment, datafile.parse(line)["environment"])


def _lines(folder: Path) -> list[bytes]:
    """Return the lines of trials.jsonl that have an environment; none where it cannot be read."""
    path = folder / TRIALS
    try:
        content = files.read(path) if path.is_file() else b""
    except OSError:  # what reads the trials says so
        content = b""
    return [line for line in content.split(b"\n") if line.startswith(_LINE)]


def refuse_another(folder: Path, now: Environment, more: Collection[str] = ()) -> None:
    """Raise UserError where a results folder's trials were measured on another stack or machine than this one. Of the
    packages those that affect a measurement are compared, and those in `more`."""
    try:
        then = read(folder)
        if then is None:
            return
        if lacking := [name for name in ("packages", "python", "gpus") if getattr(then, name) is None]:
            raise datafile.NotAsDeclaredError(f"it lacks {', '.join(lacking)}")
    except datafile.NotAsDeclaredError as error:
        raise UserError(
            f"{folder / FILE} describes no run ({error}): remove it if its trials are this stack's, or name another "
            "with --out"
        ) from None
    before, after = then.versions or {}, now.versions or {}
    foreign = {*elsewhere(then.imported), *elsewhere(now.imported)}
    others = sorted({*before, *after}.difference(PACKAGES))
    names = [*PACKAGES, *(name for name in others if name in more or name in foreign or matters(name))]
    if now.imported is None:  # packages from elsewhere are known only once they are imported
        names = [name for name in names if name not in foreign]
    pairs: list[tuple[str, Any, Any]] = [(name, before.get(name), after.get(name)) for name in names]
    pairs += [("driver", then.driver, now.driver), ("python", then.python, now.python)]
    pairs += [("repro", then.repro, now.repro)]  # another version may use a name for another thing
    pairs += [("the CPU", then.host.cpu, now.host.cpu), ("the GPU", _gpu_name(then), _gpu_name(now))]
    may_lack: list[tuple[str, Any, Any]] = [  # older folders record less
        ("the number of cores", then.host.physical_cores, now.host.physical_cores),
        ("the number of usable CPUs", then.host.usable_cpus, now.host.usable_cpus),
        ("TF32", then.tf32, now.tf32),
    ]
    if then.imported is not None and now.imported is not None:
        old, new = then.lock.changed, now.lock.changed
        intact = "as installed"
        pairs += [(f"the set-up's {name}", old.get(name, intact), new.get(name, intact)) for name in {**old, **new}]
        for name in then.imported.keys() & now.imported.keys():
            digest, other = then.imported[name].sha256, now.imported[name].sha256
            may_lack.append((f"the content of {name}", digest and digest[:8], other and other[:8]))
    pairs += [pair for pair in may_lack if None not in pair]
    different = [f"{name} was {old}, is {new}" for name, old, new in pairs if old != new]
    if different:
        raise UserError(f"{folder} holds another machine's or stack's trials ({different[0]}); name another with --out")


def keep(now: Environment, folder: Path, append: Callable[[bytes], None] | None = None) -> Environment:
    """Write environment.json, and return its content; before that, `append` it as a line to the trials that it belongs
    to, unless their last one is equal. It keeps the options and commits of earlier runs, their imports until there are
    new ones, and their GPUs where they had more of the same type."""
    then: Environment | None = None
    with contextlib.suppress(datafile.NotAsDeclaredError):  # the report mentions it
        then = read(folder)
    if then is not None and then.imported is not None and now.imported is None:
        kept = {name: getattr(then, name) for name in ("packages", "imported", "lock", "variables")}
        now = replace(now, **kept)
    asked = json.loads(json.dumps(now.options))
    before = [*then.earlier, then.options] if then else []
    earlier = [options for options in before if options and options != asked]  # each only once
    commits, gpus = now.commits, now.gpus
    if then is not None:
        commits = [*(then.commits or filter(None, [then.commit])), *commits]
        if _gpu_name(then) == _gpu_name(now) and len(then.gpus or []) > len(gpus or []):
            gpus = then.gpus
    now = replace(now, earlier=earlier, commits=list(dict.fromkeys(commits)), gpus=gpus)
    line = _LINE + json.dumps(asdict(now)).encode() + b"}"
    if append is not None and _lines(folder)[-1:] != [line]:
        append(line)
    datafile.write(folder / FILE, asdict(now))
    return now


def _gpu_name(environment: Environment) -> str:
    return environment.gpus[0].driver_name if environment.gpus else "none"  # a run has GPUs of one type


def lock(packages: dict[str, str], imports: Imports = _NOTHING) -> Lock:
    """Compare a stack with the nearest lock: the one whose versions differ least. The stack is the lock only if all
    imports came from where the lock is installed, and no package of it has changed since. An image has its own alone.
    """
    found = [_compared(name, packages, imports) for name in _LOCKS if (DATA / name).is_file()]
    return min(found, key=lambda each: len(each.differences), default=Lock())


def _compared(name: str, packages: dict[str, str], imports: Imports) -> Lock:
    text = (DATA / name).read_text()
    pins = dict(re.findall(r"^([a-z0-9][a-z0-9.-]*)==([^\s;\\]+)", text, re.MULTILINE))
    differences = {
        package: {"lock": version, "installed": packages.get(package)}
        for package, version in pins.items()
        if packages.get(package) != version
    }
    unchanged = pins.keys() - differences.keys()
    changed = {package: what for package, what in imports.changed.items() if package in unchanged}
    reason = complaint(imports.packages)
    is_the_lock = not (differences or changed or reason)
    return Lock(name, hashlib.sha256(text.encode()).hexdigest(), is_the_lock, differences, reason, changed)


# Variables by which a git hook, or a person, selects another repository than that of the folder.
_OF_A_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY")


def commit() -> str | None:
    """Return this checkout's commit, with `-dirty` where files differ. None outside of a checkout, and where git fails,
    which is reported. An image has no checkout, but its commit in REPRO_COMMIT."""
    if known := os.environ.get("REPRO_COMMIT"):
        return known
    if not (ROOT / ".git").exists():  # git would answer with a repository around this folder
        return None
    try:
        return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*", seconds=5).strip() or None
    except UserError as error:
        say_once(f"the commit of this checkout is not recorded, as {error}")
        return None


def archive(file: Path) -> None:
    """Write the committed files of this checkout as a .tar.gz. Raise UserError where git does not."""
    if not (ROOT / ".git").exists():
        raise UserError(f"{ROOT} is no git checkout, of which an archive is made: take a clone")
    _git("archive", "--format=tar.gz", "--output", str(file.absolute()), "HEAD", seconds=60)


def _git(*words: str, seconds: float) -> str:
    """Return what git prints of this checkout. Raise UserError where it fails."""
    try:
        # git refuses another user's checkout, common in containers, as unsafe; but its code is what runs here anyway.
        found = subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *words],
            env={name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"git does not answer in {ROOT} ({one_line(error)})") from None
    if found.returncode:
        raise UserError(f"git fails in {ROOT}: {cut((found.stderr.strip() or 'no reason').splitlines()[0])}")
    return found.stdout
