"""Full disks, folders of awkward names, and wall clocks that jump."""

from __future__ import annotations

import json
import os
import shutil
import time

from repro.console import FAILED, OK, USAGE
from repro.run.results import BENCHMARK, PAGE, REPORT, TRIALS, VERDICTS

from .case import TWO_TRIALS, Case, fault, finished
from .shim import full_disk, wrong_clock
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


@fault("full disk", times=5, fast=1)
def full_at_a_file(case: Case) -> None:
    """A file that is written behind the trials, in a folder that has them: nothing of before is cut short."""
    for name in (VERDICTS, "environment.json", BENCHMARK, REPORT, PAGE)[: case.count]:
        with case.injection(name):
            folder = case.folder(case.reference.folder)
            was = (folder / name).read_bytes()
            case.run(folder, codes=(USAGE,), says=FULL, variables=full_disk(case.library, f"*/{name}*"))
            case.check(not (folder / name).exists() or (folder / name).read_bytes() == was, "it is neither old nor new")
            case.tidy(folder, temporary=True)
            case.resumes(folder)


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


@fault("places", times=7, fast=1)
def awkward_names(case: Case) -> None:
    """Two processes meet in a temporary file and their trial is kept, whatever the names of their folders."""
    names: list[bytes] = [b"a#b?c", b'it\'s "q"', b"with blanks", b"100%25", b"new\nline", b"\xff\xfe", b"a:b"]
    for name in names[: case.count]:
        with case.injection(ascii(name)):
            place = case.root / os.fsdecode(name)
            place.mkdir()
            folder = case.root / os.fsdecode(b"run " + name)
            words = ("--models", "vit", "--methods", "naive", "--processes", "2", "--steps", "1")
            ended = case.run(folder, *words, codes=(OK,), variables={"TMPDIR": str(place)})
            case.check(len(finished(folder)) == 1, f"not measured: {ended.stderr[-300:]}")
            case.check(not (left := os.listdir(place)), f"temporary files: {left}")
            case.resumes(folder, *words)


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
