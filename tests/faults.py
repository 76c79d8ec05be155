"""Injects faults and forged files into the real command line, and tells what held: python tests/faults.py [--fast].

After every injection the same is checked: the exit code is a named one; nothing is a traceback; a line says what to do;
no process is left, and no unfinished file; every trial that was finished is still in trials.jsonl as it was; and the
same command again ends with the verdicts of a run without any fault. An injection held if all of it did.

`--fast` is what .ci/run does, in about two minutes on two cores; all takes a quarter of an hour there. Each fault draws
its moments and bytes from the seed and its own name, so `--only NAME --seed N` does the same again. The exit code is 1
where anything did not hold, or a finished trial was lost.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tabulate import tabulate

from repro.machine.host import host
from tests.injection import disks, files, network, signals  # noqa: F401, each registers its faults
from tests.injection.case import FAULTS, Case, Ended, Fault, Reference, Result, SkippedError, finished, marked
from tests.injection.shim import build

_SESSION = "REPRO_FAULTS"  # in the environment of all that this starts
_PR_SET_PDEATHSIG = 1
BLOCK = "<!-- what tests/faults.py --document wrote -->"


@dataclass(frozen=True)
class Plan:
    """What one process does: a fault, how often, and what it is given."""

    fault: str
    count: int
    seed: int
    scratch: Path
    reference: Reference


def main(arguments: Sequence[str]) -> int:
    given = _options(arguments)
    faults = _chosen(given.only) if given.only else list(FAULTS.values())
    if given.list:
        print(tabulate([(each.name, each.group, each.times, each.fast_times) for each in faults]))
        return 0
    counts = {each: each.fast_times if given.fast else each.times for each in faults}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as run_all.sh does: each process would compile the stack anew
    os.environ.setdefault("REPRO_CACHE", str(Path(__file__).resolve().parents[1] / ".venv" / "build-cache"))
    os.environ.setdefault("PYTHONPYCACHEPREFIX", os.path.join(os.environ["REPRO_CACHE"], "bytecode"))
    os.environ[_SESSION] = uuid.uuid4().hex
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    scratch = Path(tempfile.mkdtemp(prefix="faults-", dir=given.scratch))
    started = time.monotonic()
    try:
        build(scratch)
        reference = _measured(scratch)
        _say(f"a run without a fault: {reference.seconds:.1f} s")
        plans = [Plan(each.name, n, given.seed, scratch, reference) for each, n in counts.items() if n]
        results = list(_injected(plans, given.jobs))
    finally:
        for process in marked(_SESSION, os.environ[_SESSION]):
            process.kill()
        if given.keep:
            _say(f"kept: {scratch}")
        else:
            shutil.rmtree(scratch, ignore_errors=True)
    results.sort(key=lambda each: list(FAULTS).index(each.name))
    minutes = (time.monotonic() - started) / 60
    _tell(results, given.format)
    _say(f"seed {given.seed}: {minutes:.1f} minutes, {_used() / 60:.1f} of the CPUs'")
    if given.document:
        _document(given.document, results, minutes)
    return int(any(each.held < each.injected or each.lost or each.problems for each in results))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--fast", action="store_true", help="the fast half")
    add("--only", action="append", metavar="NAME", help="this fault or group alone; may be given again")
    add("--seed", type=int, default=1, metavar="N", help="of moments and bytes (default 1)")
    add("--jobs", type=int, default=2, metavar="N", help="faults at once (default 2)")
    add("--list", action="store_true", help="list the faults, and how often each is injected, and end")
    add("--format", choices=("text", "csv"), default="text", help="of the table of all faults")
    add("--document", type=Path, metavar="FILE", help="also write the figures by group into this Markdown file")
    add("--scratch", type=Path, metavar="DIR", help="where to work (default: the temporary folder)")
    add("--keep", action="store_true", help="keep what was worked with")
    return parser.parse_args(arguments)


def _chosen(names: Iterable[str]) -> list[Fault]:
    found = [each for each in FAULTS.values() if each.name in names or each.group in names]
    known = {name for each in FAULTS.values() for name in (each.name, each.group)}
    if unknown := sorted(set(names) - known):
        sys.exit(f"faults.py: no fault is called {', '.join(unknown)}: see --list")
    return found


def _measured(scratch: Path) -> Reference:
    """A run without a fault, and how long the faster of two took: the first may make its libraries' bytecode."""
    case = Case(Fault("reference", "", lambda case: None, 2, 2), 2, 0, scratch / "reference", None)
    seconds = []
    for _ in range(2):
        folder = case.folder()
        began = time.monotonic()
        with case.injection():
            ended: Ended = case.run(folder, codes=(0,))
        if case.result.problems or len(finished(folder)) < 2:
            sys.exit(f"faults.py: a run without a fault fails: {case.result.problems} {ended.stderr}")
        seconds.append(time.monotonic() - began)
    return Reference(folder, min(seconds))


def _injected(plans: Sequence[Plan], jobs: int) -> Iterable[Result]:
    """The results, as they come."""
    pool = ProcessPoolExecutor(jobs, initializer=_end_with_parent)
    try:
        tasks = [pool.submit(_inject, plan) for plan in plans]
        for number, task in enumerate(as_completed(tasks), 1):
            result = task.result()
            output = f"skipped: {result.skipped}" if result.skipped else f"{result.held} of {result.injected} held"
            _say(f"[{number}/{len(plans)}] {result.name}: {output} ({result.seconds:.0f} s)")
            for problem in result.problems:
                _say(f"    {problem}")
            yield result
    except BaseException:  # interrupted: nothing is waited for
        for process in multiprocessing.active_children():
            process.kill()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell's & ignores would be ignored by all below
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _inject(plan: Plan) -> Result:
    fault = FAULTS[plan.fault]
    case = Case(fault, plan.count, plan.seed, plan.scratch / plan.fault, plan.reference)
    began, used = time.monotonic(), _used()
    try:
        fault.inject(case)
    except SkippedError as error:
        case.result.skipped = str(error)
    except Exception:
        case.result.problems.append(f"the injection itself failed: {traceback.format_exc()}")
    case.result.seconds, case.result.cpu_seconds = time.monotonic() - began, _used() - used
    return case.result


def _used() -> float:
    """Seconds that the CPUs worked for this process and those that it waited for."""
    both = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


def _rows(results: Iterable[Result]) -> list[dict[str, object]]:
    return [
        {
            "group": FAULTS[each.name].group,
            "fault": each.name,
            "injected": each.injected,
            "held": each.held,
            "lost": each.lost,
            "seconds": round(each.seconds),
            "CPU seconds": round(each.cpu_seconds),
            "skipped": each.skipped,
        }
        for each in results
    ]


def _tell(results: Sequence[Result], format: str) -> None:
    rows = _rows(results)
    if format == "csv":
        writer = csv.DictWriter(sys.stdout, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
        return
    print(tabulate(rows, headers="keys"))
    sums = [sum(getattr(each, name) for each in results) for name in ("injected", "held", "lost")]
    print(f"\n{sums[0]} injected, {sums[1]} held; {sums[2]} finished trials lost")


def _document(file: Path, results: Sequence[Result], minutes: float) -> None:
    """Writes the figures by group behind the mark in a document."""
    by_group = groupby(sorted(results, key=lambda each: FAULTS[each.name].group), lambda each: FAULTS[each.name].group)
    rows = []
    for group, of_it in by_group:
        each = list(of_it)
        sums = [sum(getattr(result, name) for result in each) for name in ("injected", "held", "lost")]
        rows.append((group, *sums))
    machine = host()
    table = tabulate(rows, ("group", "injected", "held", "lost"), tablefmt="github")
    where = f"{minutes:.0f} minutes on {len(os.sched_getaffinity(0))} CPUs ({machine.cpu})"
    before = file.read_text().partition(BLOCK)[0]
    file.write_text(f"{before}{BLOCK}\n\n{where}:\n\n{table}\n")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
