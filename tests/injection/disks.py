"""Full disks, file systems that answer oddly, and wall clocks that jump."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from repro.console import FAILED, OK, USAGE
from repro.run.results import BENCHMARK, PAGE, REPORT, TRIALS, VERDICTS
from tests.command_line import ROOT

from .case import TWO_TRIALS, Case, SkippedError, fault, finished
from .shim import full_disk, no_fsync, no_locks, wrong_clock
from .signals import COMPILED

FULL = r"^repro: no space left in .*: free some and run the same command again"


@fault("full disk", times=3, fast=1)
def full_at_trials(case: Case) -> None:
    """trials.jsonl takes no record: the run ends at once, and what was finished before is kept."""
    for _ in range(case.count):
        folder = case.folder()
        with case.injection():
            if case.random.random() < 0.5:  # one of the two is finished before
                case.run(folder, *TWO_TRIALS, "--", "-k", "convnext", codes=(OK,))
            case.run(folder, codes=(USAGE,), says=FULL, variables=full_disk(case.library, f"*/{TRIALS}*"))
            case.resumes(folder)


def _full_at(case: Case, name: str) -> None:
    """A file that is written behind the trials, in a folder that has them: nothing of before is cut short."""
    for _ in range(case.count):
        with case.injection(name):
            folder = case.folder(case.reference.folder)
            was = (folder / name).read_bytes()
            case.run(folder, codes=(USAGE,), says=FULL, variables=full_disk(case.library, f"*/{name}*"))
            case.check(not (folder / name).exists() or (folder / name).read_bytes() == was, "it is neither old nor new")
            case.tidy(folder, temporary=True)
            case.resumes(folder)


@fault("full disk", times=1)
def full_at_environment(case: Case) -> None:
    _full_at(case, "environment.json")


@fault("full disk", times=1, fast=1)
def full_at_verdicts(case: Case) -> None:
    _full_at(case, VERDICTS)


@fault("full disk", times=1)
def full_at_benchmark(case: Case) -> None:
    _full_at(case, BENCHMARK)


@fault("full disk", times=1)
def full_at_report(case: Case) -> None:
    _full_at(case, REPORT)


@fault("full disk", times=1)
def full_at_page(case: Case) -> None:
    _full_at(case, PAGE)


@fault("full disk", times=1)
def full_at_logs(case: Case) -> None:
    """Logs that cannot be written cost no trial."""
    for _ in range(case.count):
        with case.injection():
            folder = case.folder()
            ended = case.run(folder, codes=(OK, USAGE), variables=full_disk(case.library, "*/logs/*"))
            case.check(ended.code == OK or "no space left" in ended.stderr, ended.stderr[-300:])
            case.resumes(folder)


@fault("full disk", times=1)
def full_at_the_build_cache(case: Case) -> None:
    """What torch.compile builds finds no room: that is named, and is no settings that the stack does not support."""
    with case.injection():
        folder, cache = case.folder(), case.root / "cache"
        variables = full_disk(case.library, f"{cache}/*") | {"REPRO_CACHE": str(cache)}
        ended = case.run(folder, *COMPILED, codes=(FAILED, USAGE), says=r"[Nn]o space left", variables=variables)
        case.check("unsupported" not in ended.stderr, "it is told as unsupported")
        shutil.rmtree(cache, ignore_errors=True)
        case.resumes(folder, *COMPILED)


@fault("full disk", times=1, fast=1)
def full_small_disk(case: Case) -> None:
    """A real file system of a few MiB holds the folder."""
    mount = _mounting(case, "size=400k")
    with case.injection():
        folder = case.root / "mounted" / "run"
        ended = case.ended(case.start_run(folder, prefix=mount), (USAGE,), "MiB of disk are free|no space left")
        case.check(len(ended.stderr.splitlines()) == 1, "not refused before it measures")


def _mounting(case: Case, options: str) -> list[str]:
    """A prefix that mounts a file system of one's own at `mounted`."""
    place = case.root / "mounted"
    place.mkdir(exist_ok=True)
    alone = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    mounting = f'mount -t tmpfs -o {options} none "{place}"'
    if subprocess.run([*alone, mounting], capture_output=True).returncode:
        raise SkippedError("no file system may be mounted here")
    return [*alone, f'{mounting}; exec "$0" "$@"']


@fault("odd file systems", times=1)
def fsync_is_refused(case: Case) -> None:
    """As some network mounts do: what was measured is kept."""
    for _ in range(case.count):
        with case.injection():
            folder = case.folder()
            case.run(folder, codes=(OK,), variables=no_fsync(case.library))
            case.check(len(finished(folder)) == len(case.reference.trials), "a measured trial was dropped")
            case.resumes(folder)


@fault("odd file systems", times=2, fast=1)
def locks_are_not_implemented(case: Case) -> None:
    """A run goes on with a line on it, or is refused with the cause: locks, and not that it cannot write."""
    for error in (errno.ENOSYS, errno.ENOLCK)[: case.count]:
        with case.injection(os.strerror(error)):
            folder = case.folder(case.reference.folder)
            ended = case.run(folder, codes=(OK, USAGE), says="lock", variables=no_locks(case.library, error))
            case.check("make it writable" not in ended.stderr, "it names another cause")
            case.resumes(folder)


@fault("odd file systems", times=1, fast=1)
def no_temporary_folder(case: Case) -> None:
    """No folder for temporary files can be written: one line, and no results folder is made."""
    prefix = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    if str(ROOT).startswith(("/tmp/", "/var/tmp/")):
        raise SkippedError("this checkout is among the temporary files")
    hiding = " && ".join(f"mount -t tmpfs -o ro none {place}" for place in ("/tmp", "/var/tmp", "/dev/shm"))
    if subprocess.run([*prefix, hiding], capture_output=True).returncode:
        raise SkippedError("no file system may be mounted here")
    with case.injection():
        out = Path("/proc/self/run")
        words = ("run", *TWO_TRIALS, "--out", str(out))
        hidden = [*prefix, f'{hiding}; exec "$0" "$@"']
        case.refused(
            *words, says="temporary|cannot write", prefix=hidden, cwd=Path("/proc"), variables={"TMPDIR": "/tmp"}
        )


@fault("odd file systems", times=1, fast=1)
def build_cache_on_a_noexec_mount(case: Case) -> None:
    mount = _mounting(case, "noexec")
    with case.injection():
        out, cache = case.folder(), str(case.root / "mounted")
        case.refused(
            "run", *COMPILED[:4], "--out", str(out), says="noexec", prefix=mount, variables={"REPRO_CACHE": cache}
        )
        case.check(not out.exists(), "a folder was made")


@fault("odd file systems", times=2, fast=1)
def unfinished_files_of_before(case: Case) -> None:
    """A killed run's .part files go with the next run."""
    for _ in range(case.count):
        with case.injection():
            folder = case.folder(case.reference.folder)
            for name in (REPORT, VERDICTS, "environment.json"):
                (folder / f"{name}.{case.random.randint(2, 4_000_000)}.part").write_text("cut sho")
            case.resumes(folder)


@fault("clock jumps", times=4, fast=1)
def wall_clock_jumps(case: Case) -> None:
    """Forth or back by an hour or years, at a random moment: times are of another clock."""
    for _ in range(case.count):
        jump = case.random.choice([3600, -3600, 86_400 * 4000, -86_400 * 4000])
        moment = case.moment()
        with case.injection(f"{jump} s after {moment:.1f} s"):
            folder = case.folder()
            began = time.monotonic()
            case.run(folder, codes=(OK,), variables=wrong_clock(case.library, moment, jump))
            took = time.monotonic() - began
            for line in finished(folder).values():
                seconds = json.loads(line)["wall_seconds"]
                case.check(0 < seconds < took, f"a trial of {seconds} s in a run of {took:.0f} s")
            case.resumes(folder)
