"""Processes that are killed, stopped or asked to end, at random moments."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial

import psutil

from repro.console import FAILED, INTERRUPTED, OK, USAGE
from tests.setup.test_setup import House

from .case import NAMED, TWO_TRIALS, Case, Running, SkippedError, fault, finished, of_signal

COMPILED = ("--models", "vit", "--processes", "1", "--steps", "1", "--", "-k", "free_lunch")  # the cheapest to compile
RESUME = r"^repro: interrupted: what is finished is kept; resume with: "


@fault("kill -9", times=20, fast=2)
def kill_main(case: Case) -> None:
    """The command itself, while it starts, loads, measures or writes; the next run is what goes on."""
    folder = case.folder()
    for number in range(case.count):
        moment = case.moment(1.1)
        with case.injection(f"after {moment:.2f} s"):
            before = finished(folder)
            run = case.start_run(folder)
            run.wait_for(lambda: False, moment)
            run.process.kill()
            ended = case.ended(run, (*NAMED, of_signal(signal.SIGKILL)))
            case.kept(folder, before, ended.measured)
            if number == case.count - 1 or len(finished(folder)) == len(case.reference.trials):
                case.resumes(folder)
                folder = case.folder()


@fault("kill -9", times=2)
def kill_main_while_it_loads(case: Case) -> None:
    """The fork server dies with the command at once, though it hears nothing while it loads."""
    for _ in range(case.count):
        with case.injection():
            run = case.start_run(case.folder())
            case.check(run.wait_for(run.servers, case.patience), "no server started")
            time.sleep(case.random.uniform(0.0, 0.5))
            family = run.family()
            run.process.kill()
            _, alive = psutil.wait_procs(family, timeout=5)
            case.check(not alive, f"alive after 5 s: {alive}")


@fault("kill -9", times=5, fast=1)
def kill_rank(case: Case) -> None:
    """A rank of a trial: the trial crashed, by name, and the next run measures it again."""
    _killed(case, Running.ranks, "crashed, the process was killed by SIGKILL")


@fault("kill -9", times=3)
def kill_server(case: Case) -> None:
    """The fork server at work: the trial crashed, and the run starts another."""
    _killed(case, lambda run: run.servers() if run.ranks() else [], "crashed, the fork server ")


Victims = Callable[[Running], list[psutil.Process]]


def _killed(case: Case, victims: Victims, says: str) -> None:
    """Kill what there is of these at a random moment after there is one."""
    folder = case.folder()
    for number in range(case.count):
        with case.injection():
            before = finished(folder)
            run = case.start_run(folder)
            case.check(run.wait_for(partial(victims, run), case.patience), "there was nothing to kill")
            time.sleep(case.random.uniform(0.0, 0.3))
            killed = _kill_one(case, run, victims)
            ended = case.ended(run, (FAILED, OK) if killed else NAMED)  # what it had measured already stands
            if ended.code == FAILED:
                case.check(says in ended.stderr, f"says nothing of it: {ended.stderr[-300:]!r}")
            case.kept(folder, before, ended.measured)
            if number == case.count - 1 or len(finished(folder)) == len(case.reference.trials):
                case.resumes(folder)
                folder = case.folder()


def _kill_one(case: Case, run: Running, victims: Victims) -> bool:
    with contextlib.suppress(psutil.Error, ProcessLookupError, IndexError):
        case.random.choice(victims(run)).kill()
        return True
    return False


@fault("kill -9", times=2)
def kill_compiler(case: Case) -> None:
    """A C++ compiler of torch.compile: what it left unfinished is not loaded by the next run."""
    for _ in range(case.count):
        cache = case.root / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        with case.injection():
            folder = case.folder()
            run = case.start_run(folder, *COMPILED, variables={"REPRO_CACHE": str(cache)})
            case.check(run.wait_for(run.compilers, case.patience), "no compiler started")
            time.sleep(case.random.uniform(0.0, 1.0))
            killed = _kill_one(case, run, Running.compilers)
            case.ended(run, (FAILED, OK) if killed else NAMED)
            case.resumes(folder, *COMPILED)


@fault("kill -9", times=4, fast=1)
def kill_a_set_up(case: Case) -> None:
    """What a killed set-up of a checkout, with a lock of one small wheel, left is finished by the next."""
    for number in range(case.count):
        with case.injection():
            (place := case.root / f"killed-{number}").mkdir()
            house = House(place, case.folder())
            house.borrow_uv()
            run = house.start("exit", "0")
            time.sleep(case.random.uniform(0.0, 2.0))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
            done = house.run("exit", "0")
            case.check(done.returncode == OK, f"exit code {done.returncode}: {done.stderr[-300:]}")


@fault("stop", times=1)
def stop_rank(case: Case) -> None:
    """A rank that stands still ends at the trial's time limit."""
    with case.injection():
        folder = case.folder()
        run = case.start_run(folder, *TWO_TRIALS, "--trial-timeout", f"{max(5.0, case.reference.seconds):.0f}s")
        case.check(run.wait_for(run.ranks, case.patience), "no rank started")
        with contextlib.suppress(psutil.Error, ProcessLookupError, IndexError):
            run.ranks()[0].suspend()
        case.ended(run, (OK,))
        case.resumes(folder)


@fault("stop", times=1)
def stop_main_for_a_while(case: Case) -> None:
    """The command is stopped, as by Ctrl-Z, and goes on."""
    for _ in range(case.count):
        with case.injection():
            folder = case.folder()
            run = case.start_run(folder)
            time.sleep(case.moment(0.8))
            for each in (signal.SIGSTOP, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(run.process.pid, each)
                time.sleep(1.0)
            ended = case.ended(run, (OK,))
            case.kept(folder, {}, ended.measured)
            case.resumes(folder)


@fault("TERM, INT, HUP", times=10)
def ask_to_end(case: Case) -> None:
    """Asked to end at a random moment, a command says how to go on, once it can: before its modules are there Python
    ends by the signal. Where the terminal was closed nobody reads a line."""
    folder = case.folder()
    for each in range(case.count):
        number, moment = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)[each % 3], case.moment()
        with case.injection(f"{number.name} after {moment:.2f} s"):
            before = finished(folder)
            run = case.start_run(folder)
            run.wait_for(lambda: False, moment)
            began, ran = "to go, by" in run.message() and number != signal.SIGHUP, run.alive
            run.process.send_signal(number)
            allowed = (OK,) if not ran else (INTERRUPTED, OK) if began else (*NAMED, of_signal(number))
            ended = case.ended(run, allowed, RESUME if began and ran else "")
            case.kept(folder, before, ended.measured)
            if each == case.count - 1 or len(finished(folder)) == len(case.reference.trials):
                case.resumes(folder)
                folder = case.folder()


@fault("TERM, INT, HUP", times=2, fast=1)
def five_times_terminate(case: Case) -> None:
    """Schedulers and impatient people ask again and again: the line on how to go on is there all the same."""
    for _ in range(case.count):
        with case.injection():
            folder = case.folder()
            run = case.start_run(folder)
            case.check(run.wait_for(run.servers, case.patience), "no server started")
            time.sleep(case.moment(0.3))
            for _ in range(5):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(run.process.pid, signal.SIGTERM)
                time.sleep(case.random.uniform(0.0, 0.05))
            case.ended(run, (INTERRUPTED,), RESUME)
            case.resumes(folder)


@fault("memory", times=2)
def ulimit_below_the_stack(case: Case) -> None:
    """Under a limit in which the stack does not load."""
    for _ in range(case.count):
        with case.injection():
            limit = case.random.choice([400_000, 600_000])
            prefix = ["bash", "-c", f'ulimit -v {limit}; exec "$0" "$@"']
            folder = case.folder()
            case.ended(case.start_run(folder, prefix=prefix), (FAILED, USAGE))
            case.resumes(folder)


@fault("memory", times=2)
def memory_of_a_cgroup(case: Case) -> None:
    """The kernel kills the fork server or a rank as the memory of a control group runs out: it is named as such."""
    groups = "/sys/fs/cgroup/memory"
    group = f"{groups}/repro-faults-{os.getpid()}"
    try:
        os.mkdir(group)
    except OSError as error:
        raise SkippedError(f"no control group of memory can be made: {error.strerror}") from None
    try:
        for _ in range(case.count):
            with case.injection():
                mib = case.random.choice([150, 250])
                with open(f"{group}/memory.limit_in_bytes", "w") as file:
                    file.write(str(mib << 20))
                prefix = ["bash", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"']
                folder = case.folder()
                case.ended(case.start_run(folder, prefix=prefix), (FAILED, USAGE), r"memory")
                case.resumes(folder)
    finally:
        os.rmdir(group)


@fault("two writers", times=1, fast=1)
def runs_that_begin_at_once(case: Case) -> None:
    """Of several that begin in one folder at the same time one measures, and the others are told."""
    for _ in range(case.count):
        with case.injection():
            folder = case.folder()
            runs = [case.start_run(folder) for _ in range(3)]
            codes = sorted(case.ended(run, (OK, USAGE)).code for run in runs)
            case.check(codes == [OK, USAGE, USAGE], codes)
            case.resumes(folder)
