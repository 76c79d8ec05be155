"""Ranks start in milliseconds, end with their job however it ends, and leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import Pipe
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest

from repro.console import UserError
from repro.machine import host
from repro.machine.packages import installed_packages
from repro.machine.support import Stack
from repro.measure import launcher
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer, ServerDiedError, StackError
from repro.measure.server import _Forked, _of_error, _traceback
from repro.measure.trial import Bench, run_trial
from repro.record import Trial
from tests.support.command_line import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


def job(function: str, folder: Path, ranks: int = 1, timeout: float = 60, log: str = "", **arguments: Any) -> Job:
    """A job that calls tests.support.ranks's function."""
    return Job(
        call=f"tests.support.ranks:{function}",
        arguments=arguments,
        ranks=ranks,
        log=log or str(folder / "log"),
        timeout=timeout,
    )


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """A folder where processes leave their numbers."""
    folder = tmp_path / "pids"
    folder.mkdir()
    return folder


def numbers(pids: Path) -> list[int]:
    return [int(path.name) for path in pids.iterdir()]


def wait_for_pids(pids: Path, count: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while len(numbers(pids)) < count:
        assert time.monotonic() < deadline, f"only {len(numbers(pids))} of {count} processes started"
        time.sleep(0.02)


def assert_gone(pids: Path, count: int, seconds: float = 5) -> None:
    """All `count` processes that left their numbers have ended, or do so within `seconds`."""
    assert len(numbers(pids)) == count
    deadline = time.monotonic() + seconds
    while alive := [pid for pid in numbers(pids) if psutil.pid_exists(pid)]:
        assert time.monotonic() < deadline, f"{len(alive)} of {count} processes are still there"
        time.sleep(0.02)


@contextlib.contextmanager
def interrupting(after: float) -> Iterator[None]:
    """Sends this process what a terminal's Ctrl-C does, after so many seconds."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# --- A job ---


def test_a_rank_starts_within_a_second_on_a_warm_server(fork_server: ForkServer, tmp_path: Path) -> None:
    fork_server.start()
    started = [fork_server.call(job("who", tmp_path))[0].value["started"] for _ in range(7)]
    assert median(started) < 1.0


def test_ranks_are_numbered_and_meet(fork_server: ForkServer, tmp_path: Path) -> None:
    known = [outcome.value for outcome in fork_server.call(job("who", tmp_path, ranks=4))]
    assert [(rank["index"], rank["world"]) for rank in known] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    outcomes = fork_server.call(job("total", tmp_path, ranks=4))
    assert [outcome.value for outcome in outcomes] == [6, 6, 6, 6]


AWKWARD = ["a#b", "a?b", "a b", "a%20b", 'it\'s "quoted"', "a\nb", "\udcff", "[a]", "a:b"]


@pytest.mark.parametrize("name", AWKWARD)
def test_ranks_meet_whatever_the_name_of_the_temporary_folder(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    fork_server.start()
    monkeypatch.setattr(fork_server, "_temporary", str(tmp_path / name))
    outcomes = fork_server.call(job("total", tmp_path, ranks=2, timeout=PATIENCE))
    assert [(outcome.status, outcome.value) for outcome in outcomes] == [("ok", 1)] * 2
    assert [each.name for each in tmp_path.iterdir() if each.name != "log"] == [name], "and leave nothing beside it"
    assert list((tmp_path / name).iterdir()) == []


def test_what_a_killed_compiler_leaves_goes_with_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with ForkServer(tmp_path / "log", {}, modules=("json",)) as server:
        [outcome] = server.call(job("compile_for_good", tmp_path, timeout=8))
        assert outcome.status == "timed_out"
        assert [*temporary.rglob("cc*.s")] != []
    assert [*temporary.iterdir()] == []


def test_ranks_of_a_job_share_a_process_group_of_their_own(fork_server: ForkServer, tmp_path: Path) -> None:
    jobs = [[o.value for o in fork_server.call(job("who", tmp_path, ranks=3))] for _ in range(2)]
    groups = [{rank["group"] for rank in ranks} for ranks in jobs]
    server = jobs[0][0]["parent"]
    assert [len(group) for group in groups] == [1, 1]
    assert groups[0] != groups[1]
    assert not (groups[0] | groups[1]) & {os.getpgrp(), os.getpgid(server)}


def test_a_rank_hands_back_as_much_as_it_likes(fork_server: ForkServer, tmp_path: Path) -> None:
    value = ["é" * 1000] * 100  # more than a pipe holds
    outcomes = fork_server.call(job("answer", tmp_path, ranks=2, value=value))
    assert [outcome.value == value for outcome in outcomes] == [True, True]


def test_what_ranks_print_is_in_the_log(fork_server: ForkServer, tmp_path: Path) -> None:
    fork_server.call(job("chatter", tmp_path, ranks=2, lines=1000))
    said = set((tmp_path / "log").read_text().splitlines())
    assert {f"rank {rank} says line {number}" for rank in (0, 1) for number in range(1000)} <= said


def test_thirty_jobs_of_four_ranks_in_a_row(fork_server: ForkServer, tmp_path: Path) -> None:
    seen = set()
    for number in range(30):
        outcomes = fork_server.call(job("answer", tmp_path, ranks=4, value=number))
        assert [(outcome.status, outcome.value) for outcome in outcomes] == [("ok", number)] * 4
    for outcome in fork_server.call(job("who", tmp_path, ranks=4)):
        seen.add(outcome.value["parent"])
    [server] = seen
    assert psutil.Process(server).children() == []
    assert psutil.Process(server).num_fds() < 100


# --- A job that does not end well ---


def test_a_hung_rank_is_ended_at_the_deadline(fork_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    started = time.monotonic()
    outcomes = fork_server.call(job("hang", tmp_path, ranks=2, timeout=1.5, pids=str(pids)))
    assert [outcome.status for outcome in outcomes] == ["timed_out", "timed_out"]
    assert 1.5 <= time.monotonic() - started < 6
    assert_gone(pids, 2)


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT", "SIGTERM"])
def test_a_killed_rank_is_crashed_and_names_the_signal(fork_server: ForkServer, tmp_path: Path, name: str) -> None:
    [outcome] = fork_server.call(job("report_then", tmp_path, what=name))
    assert outcome.status == "crashed"
    output, _, cause = outcome.error.partition(", ")
    assert output == f"the process was killed by {name}"
    assert cause == ("as the kernel does where the host's memory runs out" if name == "SIGKILL" else "")
    assert outcome.fitted == {1: 10, 2: 20}


def ended(number: int, before: int, cuda: bool = False) -> tuple[str, str, bool]:
    """What becomes of a rank that was killed: `before` counts what the kernel had killed as it began."""
    child = subprocess.Popen(["sleep", "60"])
    reading, writing = Pipe(duplex=False)
    writing.close()
    rank = _Forked(0, child.pid, reading, cuda, before)
    child.send_signal(number)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    rank.look()
    child.wait()
    reading.close()
    return rank.outcome.status, rank.outcome.error, rank.outcome.of_host


def test_a_rank_that_the_kernel_killed_for_want_of_memory_ran_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "oom_kills", lambda: 4)
    output = ("out_of_memory", "the kernel killed the process, as the host's memory ran out")
    assert ended(signal.SIGKILL, 3) == (*output, False)
    assert ended(signal.SIGKILL, 3, cuda=True) == (*output, True)
    assert ended(signal.SIGKILL, 4)[0] == "crashed"
    assert ended(signal.SIGTERM, 3)[0] == "crashed"


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lost_worker() -> BaseException:
    """What a pool raises of whose processes one was killed, as torch's are that compile."""
    with ProcessPoolExecutor(1) as pool:
        error = pool.submit(killed).exception()
    assert error is not None
    return error


@pytest.mark.parametrize(
    "said",
    [
        "C++ compile error\n\nOutput:\ng++: fatal error: Killed signal terminated program cc1plus",
        "Internal error: `ptxas` failed with error code -9",
        None,
    ],
    ids=("GCC", "Triton", "torch"),
)
def test_a_compiler_that_the_kernel_killed_for_want_of_memory_ran_out_of_the_hosts(
    monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    monkeypatch.setattr(host, "oom_kills", lambda: 4)
    wrapped = ValueError("backend failed")
    wrapped.__cause__ = lost_worker() if said is None else RuntimeError(said)
    output = ("out_of_memory", "the kernel killed a compiler, as the host's memory ran out", True)
    assert [_of_error(wrapped, 3, cuda) for cuda in (True, False)] == [output] * 2
    assert _of_error(wrapped, 4, False) == ("crashed", "ValueError: backend failed", False), "by somebody else"
    assert _of_error(ValueError("no such operator"), 3, False)[0] == "crashed", "it was another process"


def test_where_memory_runs_out_the_kernel_is_to_kill_a_rank(fork_server: ForkServer, tmp_path: Path) -> None:
    assert [each.value for each in fork_server.call(job("spared", tmp_path, ranks=2))] == [1000, 1000]


def test_a_rank_that_exits_without_a_word_is_crashed(fork_server: ForkServer, tmp_path: Path) -> None:
    [outcome] = fork_server.call(job("report_then", tmp_path, what="exit"))
    assert (outcome.status, outcome.error) == ("crashed", "the process ended with exit code 3")


def plain(text: str) -> str:
    """As a record has it: no path of this machine alone."""
    return text.replace(f"{ROOT}/", "").replace(f"{Path.home()}/", "~/")


def test_an_exception_is_crashed_with_one_line_and_its_traceback(fork_server: ForkServer, tmp_path: Path) -> None:
    [outcome] = fork_server.call(job("report_then", tmp_path, what="raise"))
    assert (outcome.status, outcome.error) == ("crashed", "ValueError: the first line")
    assert 'File "tests/support/ranks.py"' in outcome.traceback, "where this checkout lies is no matter of a record"
    assert str(ROOT) not in outcome.traceback
    assert f"{Path.home()}/" not in outcome.traceback
    assert outcome.traceback.endswith("the first line\nand a second one\n")
    assert outcome.traceback in plain((tmp_path / "log").read_text())


@pytest.mark.parametrize("home", ["/", ""])
def test_a_user_whom_nobody_knows_keeps_the_paths_of_a_traceback(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker gives such a one / for a home."""
    monkeypatch.setenv("HOME", home)
    try:
        raise ValueError("see https://example.org//a")
    except ValueError:
        assert _traceback().endswith("ValueError: see https://example.org//a\n")


def test_of_a_long_traceback_a_record_keeps_both_ends_and_the_log_all(fork_server: ForkServer, tmp_path: Path) -> None:
    [outcome] = fork_server.call(job("report_then", tmp_path, what="complain"))
    first, middle, last = re.split(
        r"\n(\[[\d,]+ characters are left out here, the log has them\])\n", outcome.traceback
    )
    assert "ValueError: first" in first
    assert last.endswith("last\n")
    whole = plain((tmp_path / "log").read_text())
    assert first in whole
    assert last in whole
    assert len(whole) == len(first) + len(last) + int(re.sub(r"\D", "", middle))


def test_a_log_that_cannot_be_written_hides_no_failure(fork_server: ForkServer, tmp_path: Path) -> None:
    [outcome] = fork_server.call(job("report_then", tmp_path, log="/dev/full", what="raise"))
    assert (outcome.status, outcome.error) == ("crashed", "ValueError: the first line")
    [outcome] = fork_server.call(job("answer", tmp_path, log="/dev/full", value="quiet"))
    assert (outcome.status, outcome.value) == ("ok", "quiet")


@pytest.mark.parametrize("planted", ["a link", "a pipe"])
def test_what_ranks_print_goes_through_no_link_and_waits_for_no_pipe(
    planted: str, fork_server: ForkServer, tmp_path: Path
) -> None:
    victim, log = tmp_path / ".bashrc", tmp_path / "log"
    if planted == "a link":
        log.symlink_to(victim)
    else:
        os.mkfifo(log)
    [outcome] = fork_server.call(job("answer", tmp_path, value="quiet"))
    assert outcome.status == "crashed"
    assert str(log) in outcome.error
    assert not victim.exists()


def test_logs_beside_a_servers_own_leave_no_results_folder(serving: Callable[..., ForkServer], tmp_path: Path) -> None:
    logs, victim = tmp_path / "run" / "logs", tmp_path / "home"
    victim.mkdir()
    with serving("ready; exec sleep 60") as server:
        server.start()
        (logs / "trial.log").symlink_to(victim / ".bashrc")
        with pytest.raises(UserError, match=r"trial\.log is a link that leaves the folder, to .*/home/\.bashrc"):
            server.call(job("answer", logs, log=str(logs / "trial.log"), value="quiet"))
        logs.rename(tmp_path / "elsewhere")
        logs.symlink_to(victim)
        with pytest.raises(UserError, match=r"leaves the folder, to .*/home/other\.log"):
            server.call(job("answer", logs, log=str(logs / "other.log"), value="quiet"))
    assert [*victim.iterdir()] == []


def test_a_value_that_cannot_be_sent_is_crashed(fork_server: ForkServer, tmp_path: Path) -> None:
    [outcome] = fork_server.call(job("report_then", tmp_path, what="unsayable"))
    assert (outcome.status, outcome.error) == ("crashed", "TypeError: cannot pickle '_thread.lock' object")


def test_a_function_that_is_not_there_is_crashed(fork_server: ForkServer, tmp_path: Path) -> None:
    [outcome] = fork_server.call(job("no_such_function", tmp_path))
    assert (outcome.status, "no_such_function" in outcome.error) == ("crashed", True)


def test_one_rank_s_failure_stops_the_others(fork_server: ForkServer, tmp_path: Path) -> None:
    fork_server.start()
    started = time.monotonic()
    outcomes = fork_server.call(job("first_fails", tmp_path, ranks=3, what="SIGKILL"))
    assert [outcome.status for outcome in outcomes] == ["crashed", "stopped", "stopped"]
    assert time.monotonic() - started < 10


def test_a_rank_s_death_is_seen_though_its_child_lives(fork_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    fork_server.start()
    started = time.monotonic()
    [outcome] = fork_server.call(job("die_before_its_child", tmp_path, pids=str(pids)))
    assert outcome.status == "crashed"
    assert outcome.error.startswith("the process was killed by SIGKILL")
    assert time.monotonic() - started < 10
    assert_gone(pids, 1)


def test_what_a_rank_started_ends_with_it(fork_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    [outcome] = fork_server.call(job("leave_a_family", tmp_path, pids=str(pids)))
    assert outcome.status == "ok"
    assert_gone(pids, 3, seconds=0)


def test_what_a_hung_rank_started_ends_at_the_deadline(fork_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    outcomes = fork_server.call(job("hang_with_a_family", tmp_path, ranks=2, timeout=2, pids=str(pids)))
    assert [outcome.status for outcome in outcomes] == ["timed_out", "timed_out"]
    assert_gone(pids, 8, seconds=0)


def test_the_server_goes_on_after_every_failure(fork_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    [before] = fork_server.call(job("who", tmp_path))
    for what in ("SIGSEGV", "raise", "exit"):
        fork_server.call(job("report_then", tmp_path, ranks=2, what=what))
    fork_server.call(job("hang", tmp_path, timeout=0.2, pids=str(pids)))
    [after] = fork_server.call(job("who", tmp_path))
    assert after.value["parent"] == before.value["parent"]


def test_a_job_can_be_stopped_and_the_server_stays(fork_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    [before] = fork_server.call(job("who", tmp_path))

    def stop_once_it_hangs() -> None:
        wait_for_pids(pids, 2)
        fork_server.stop()

    stopper = threading.Thread(target=stop_once_it_hangs)
    stopper.start()
    outcomes = fork_server.call(job("hang", tmp_path, ranks=2, pids=str(pids)))
    stopper.join()
    assert [outcome.status for outcome in outcomes] == ["stopped", "stopped"]
    assert_gone(pids, 2)
    [after] = fork_server.call(job("who", tmp_path))
    assert after.value["parent"] == before.value["parent"]


def test_a_job_that_is_stopped_as_soon_as_it_is_sent_ends(fork_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    [before] = fork_server.call(job("who", tmp_path))
    server, hanging = psutil.Process(before.value["parent"]), job("hang", tmp_path, timeout=20, pids=str(pids))
    server.suspend()  # so that it finds both words at once
    fork_server.begin(hanging)
    fork_server.stop()
    server.resume()
    [outcome] = fork_server.outcomes(hanging)
    assert outcome.status == "stopped"
    [after] = fork_server.call(job("who", tmp_path))
    assert after.value["parent"] == before.value["parent"]


# --- The end of the server, and of who started it ---


@pytest.fixture(scope="module")
def private_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """One to be ended: it starts again, in some seconds, with the next job. Of the stack it loads what that needs."""
    with ForkServer(tmp_path_factory.mktemp("private") / "server.log", {}, modules=("torch",)) as server:
        yield server


@pytest.fixture
def serving(tmp_path: Path) -> Callable[..., ForkServer]:
    """A server whose interpreter is a shell's script, which hears this end by <&$3, and is ready by `ready`."""
    message = pickle.dumps(("", {}, None))
    (tmp_path / "ready").write_bytes(struct.pack("!i", len(message)) + message)

    def server(script: str, **environment: str) -> ForkServer:
        python = tmp_path / "python"
        python.write_text(f'#!/bin/bash\nsocket=$3\nready() {{ eval "cat {tmp_path}/ready >&$socket"; }}\n{script}\n')
        python.chmod(0o755)
        (tmp_path / "run" / "logs").mkdir(parents=True, exist_ok=True)
        return ForkServer(tmp_path / "run" / "logs" / "server.log", environment, str(python))

    return server


def test_a_server_that_ends_while_it_loads_is_reported_with_the_end_of_its_log(
    serving: Callable[..., ForkServer], tmp_path: Path
) -> None:
    with serving("seq 1 20; printf '\\377\\n'") as server:
        for _ in range(2):
            with pytest.raises(ServerDiedError) as output:
                server.start()
            assert output.value.reason == "the fork server ended with exit code 0"
            assert output.value.remedy == ""
            end = [*map(str, range(7, 21)), "\ufffd"]
            assert str(output.value).splitlines()[1:] == ["the end of its log:", *end]
    assert len((tmp_path / "run" / "logs" / "server.log").read_bytes().splitlines()) == 2 * 21


@pytest.mark.parametrize(
    ("end", "output"),
    [
        ("exit 3", "the fork server ended with exit code 3"),
        ("kill -SEGV $$", "the fork server was killed by SIGSEGV"),
        ("kill -KILL $$", "the fork server was killed by SIGKILL, as the kernel does where the host's memory runs out"),
    ],
)
def test_how_a_server_ended_is_reported(serving: Callable[..., ForkServer], end: str, output: str) -> None:
    with serving(end) as server, pytest.raises(ServerDiedError) as error:
        server.start()
    assert error.value.reason == output
    assert ("memory" in error.value.remedy) == ("SIGKILL" in output)


@pytest.mark.slow
def test_a_server_that_the_kernel_killed_for_want_of_memory_names_it_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a control group that has less than the stack takes."""
    group = next((each for each in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")) if each.is_dir()), None)
    assert group is not None
    group = group / f"repro-{os.getpid()}"
    try:
        group.mkdir()
        limit = group / "memory.limit_in_bytes"
        (limit if limit.exists() else group / "memory.max").write_text(str(60 * 2**20))
    except OSError:
        pytest.skip("no control group may be made here")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs || exit 9\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "own").write_text(f"1:memory:/{group.name}\n" if limit.exists() else f"0::/{group.name}\n")
    monkeypatch.setattr(host, "OWN", tmp_path / "own")  # as if this process were in the group as well
    try:
        with ForkServer(tmp_path / "log", {}, str(python), modules=("torch",)) as server:
            record = run_trial(
                Trial("vit", "tiny", "naive", "cpu", 1),
                Bench(server, Stack(installed_packages(), None), None, tmp_path),
            )
    finally:
        group.rmdir()
    assert record.status == "crashed", "a larger host may measure it"
    assert record.reason == "the kernel killed the fork server, as the host's memory ran out"
    assert re.fullmatch(r"free some memory, or give more to the container or job .*: it has [0-9.]+ GiB", record.remedy)


def test_a_server_that_does_not_load_in_time_is_ended(
    serving: Callable[..., ForkServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "LOADING_SECONDS", 0.5)
    before, began = set(psutil.Process().children()), time.monotonic()
    for script in ("exec sleep 60", "kill -STOP $$"):
        with serving(script) as server:
            for _ in range(2):
                output = r"^the fork server did not load the stack within [^:]+$"
                with pytest.raises(StackError) as error:
                    server.start()
                assert re.match(output, error.value.reason)
                assert "network file system" in error.value.remedy
                assert set(psutil.Process().children()) <= before
    assert time.monotonic() - began < 10


def test_a_run_whose_server_hangs_as_it_loads_ends_with_one_line_and_no_process(tmp_path: Path) -> None:
    code = """
import sys
from repro.cli import main
from repro.measure import launcher
launcher.LOADING_SECONDS = 3.0
sys.exit(main(sys.argv[1:]))
"""
    (tmp_path / "torch.py").write_text(
        f"import os, signal\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    command = [sys.executable, "-c", code, "--models", "vit", "--methods", "naive", "--out", str(tmp_path / "out")]
    paths = os.pathsep.join([str(ROOT), str(tmp_path)])
    variables = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "repro: the fork server did not load the stack within " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_a_server_that_ended_while_nobody_looked_is_started_again(
    serving: Callable[..., ForkServer], tmp_path: Path
) -> None:
    with serving("echo started; ready") as server:
        server.start()
        deadline = time.monotonic() + 10
        while (tmp_path / "run" / "logs" / "server.log").read_text() != "started\n" * 2:
            assert time.monotonic() < deadline, "it was not"
            server.launch()
            time.sleep(0.02)


def test_a_server_that_is_loaded_is_reported_to_end_and_killed_where_it_does_not(
    serving: Callable[..., ForkServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving("ready; eval 'read word <&'$3; sleep 0.1; echo ended") as server:
        server.start()
    assert (tmp_path / "run" / "logs" / "server.log").read_text() == "ended\n"
    wait = subprocess.Popen.wait
    monkeypatch.setattr(subprocess.Popen, "wait", lambda each, timeout=None: wait(each, timeout and 0.2))
    before = set(psutil.Process().children())
    with serving("ready; exec sleep 60") as server:
        server.start()
    assert set(psutil.Process().children()) <= before


@pytest.mark.parametrize(("paths", "output"), [("", f"{ROOT}"), ("/somewhere", f"{ROOT}{os.pathsep}/somewhere")])
def test_a_server_has_its_own_variables_this_checkout_and_its_own_session(
    serving: Callable[..., ForkServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: str, output: str
) -> None:
    for name, value in {"OURS": "ours", "BOTH": "ours", "PYTHONPATH": paths}.items():
        monkeypatch.setenv(name, value)
    session = "read pid name state parent group session rest < /proc/$$/stat; [ $session = $$ ] && echo alone"
    script = f'echo "$OURS $BOTH $PYTHONPATH"; {session}; cat'
    with serving(script, BOTH="its own") as server, pytest.raises(ServerDiedError):
        server.start()
    assert (tmp_path / "run" / "logs" / "server.log").read_text() == f"ours its own {output}\nalone\n"


@pytest.mark.slow
def test_a_stack_without_what_ends_a_job_is_reported_before_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "psutil.py").write_text("raise ModuleNotFoundError(\"No module named 'psutil'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        ForkServer(tmp_path / "log", {}, modules=["torch"]) as bare,
        pytest.raises(ServerDiedError, match="does not import: ModuleNotFoundError: No module named 'psutil'"),
    ):
        bare.call(job("hello", tmp_path))


def kill_as_it_hangs(server: ForkServer, hanging: Job, pids: Path, count: int) -> RankOutcome:
    """Kill a server whose job hangs with so many processes, which all have to end; returns what it answered before."""
    [first] = server.call(job("who", Path(hanging.log).parent))

    def kill() -> None:
        wait_for_pids(pids, count)
        os.kill(first.value["parent"], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(ServerDiedError, match=r"^the fork server was killed by SIGKILL"):
        server.call(hanging)
    killer.join()
    assert_gone(pids, count)
    return first


def test_a_dead_server_is_reported_and_the_next_job_starts_another(
    private_server: ForkServer, tmp_path: Path, pids: Path
) -> None:
    first = kill_as_it_hangs(private_server, job("hang", tmp_path, ranks=2, pids=str(pids)), pids, 2)
    private_server.stop()  # there is nobody to stop
    [second] = private_server.call(job("who", tmp_path))
    assert second.value["parent"] != first.value["parent"]
    assert second.value["stack_started"] > first.value["stack_started"]


def test_an_interruption_leaves_no_orphan(private_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    [server] = private_server.call(job("who", tmp_path))
    with interrupting(after=1.5), pytest.raises(KeyboardInterrupt):
        private_server.call(job("hang_with_a_family", tmp_path, ranks=2, pids=str(pids)))
    assert_gone(pids, 8, seconds=0)
    assert not psutil.pid_exists(server.value["parent"])


@pytest.mark.slow
def test_an_interruption_while_the_stack_loads_ends_the_server_at_once(tmp_path: Path) -> None:
    before = set(psutil.Process().children())
    with ForkServer(tmp_path / "server.log", {}) as server, interrupting(after=1):
        started = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            server.call(job("who", tmp_path))
    assert time.monotonic() - started < 5
    assert set(psutil.Process().children()) == before


def test_what_a_killed_server_leaves_is_found_and_ended(private_server: ForkServer, tmp_path: Path, pids: Path) -> None:
    kill_as_it_hangs(private_server, job("hang_with_a_family", tmp_path, ranks=2, pids=str(pids)), pids, 8)


NEAR_END = """
import sys
from pathlib import Path
from repro.measure.jobs import Job
from repro.measure.launcher import ForkServer

folder, pids, *modules = sys.argv[1:]
server = ForkServer(Path(folder, "server.log"), {}, modules=modules)
server.call(Job("tests.support.ranks:hang_with_a_family", {"pids": pids}, 2, folder + "/log", timeout=600))
"""


def near_end(folder: Path, pids: Path, *modules: str, **variables: str) -> subprocess.Popen[bytes]:
    """A process whose fork server loads these modules, then forks ranks that hang with a family."""
    command = [sys.executable, "-c", NEAR_END, str(folder), str(pids), *modules]
    return subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables})


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_a_killed_near_end_leaves_no_process_behind(tmp_path: Path, pids: Path, stopped: bool) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    near = near_end(tmp_path, pids, "torch", TMPDIR=str(temporary))
    try:
        wait_for_pids(pids, 8)
        assert [*temporary.iterdir()] != []
        [server] = psutil.Process(near.pid).children()
        if stopped:
            server.suspend()
    finally:
        near.kill()
        near.wait()
    assert_gone(pids, 8)
    server.wait(timeout=5)
    assert [*temporary.iterdir()] == []


@pytest.mark.parametrize("stopped", [False, True])
def test_a_server_that_still_loads_ends_with_its_near_end(tmp_path: Path, pids: Path, stopped: bool) -> None:
    (tmp_path / "hangs.py").write_text(
        f"import os, time\nopen({str(pids)!r} + f'/{{os.getpid()}}', 'w')\ntime.sleep(60)\n"
    )
    near = near_end(tmp_path, pids, "hangs", PYTHONPATH=str(tmp_path))
    try:
        wait_for_pids(pids, 1)
        if stopped:
            psutil.Process(*numbers(pids)).suspend()
    finally:
        near.kill()
        near.wait()
    assert_gone(pids, 1, seconds=2)


def test_a_server_that_comes_after_its_near_end_ends_at_once() -> None:
    """As the near end may be killed between the fork and its first word to the kernel."""
    code = "import os, sys; from repro.machine.processes import end_with; end_with(1 << 22); print('went on')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
