"""Processes that are timed together compute one at a time, and none waits for one that is gone."""

from __future__ import annotations

import errno
import select
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from repro.console import UserError
from repro.measure import interleaving as turns_module
from repro.measure.interleaving import TURN_SECONDS, Scheduler, TimeSlot
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from tests.command_line import PATIENCE


def player(scheduler: Scheduler, name: str, output: list[str], count: int = 3) -> Callable[[], str]:
    """A work that has so many turns, and tells when it computes and when it is done."""

    def work() -> str:
        place = TimeSlot(scheduler.address)
        for _ in range(count):
            place.turn()
            output.append(name)
            time.sleep(0.01)
            output.append(f"{name} done")
        del place  # as the end of a process does
        return name

    return work


def test_one_computes_at_a_time_and_none_two_times_on_end() -> None:
    output: list[str] = []
    with Scheduler() as scheduler:
        assert scheduler.run_in_turns([player(scheduler, name, output) for name in "abc"], []) == ["a", "b", "c"]
    assert output == [word for name in "abcabcabc" for word in (name, f"{name} done")]


def test_none_is_built_while_another_is_timed() -> None:
    output: list[str] = []
    with Scheduler() as scheduler:

        def slow_to_build() -> str:
            time.sleep(0.2)
            output.append("built")
            return player(scheduler, "slow", output)()

        scheduler.run_in_turns([player(scheduler, "quick", output), slow_to_build], [])
    assert output[0] == "built"


def test_one_that_ends_early_or_never_takes_a_turn_keeps_nobody_waiting() -> None:
    output: list[str] = []
    with Scheduler() as scheduler:
        works = [player(scheduler, "a", output, 1), lambda: "no turn", player(scheduler, "b", output, 4)]
        assert scheduler.run_in_turns(works, []) == ["a", "no turn", "b"]
    assert output.count("b") == 4


def test_who_has_had_its_turn_is_left_a_moment_before_the_next_one_begins() -> None:
    times: list[float] = []
    with Scheduler() as scheduler:

        def work() -> None:
            place = TimeSlot(scheduler.address)
            for _ in range(3):
                place.turn()
                times.extend((time.monotonic(), time.monotonic()))

        scheduler.run_in_turns([work, work], [])
    ended_and_began = zip(times[1:-1:2], times[2::2], strict=True)
    assert all(began - ended > 0.004 for ended, began in ended_and_began)


def test_one_that_ends_before_it_notices_its_turn_keeps_nobody_waiting() -> None:
    output: list[str] = []
    with Scheduler() as scheduler:

        def leaves() -> str:
            with socket.socket(socket.AF_UNIX) as place:
                place.connect(f"{scheduler.address}/turns")
                select.select([place], [], [])
            return "left"

        assert scheduler.run_in_turns([leaves, player(scheduler, "b", output)], []) == ["left", "b"]
    assert output.count("b") == 3


def test_one_that_fails_is_reported_once_the_others_have_ended() -> None:
    output: list[str] = []
    with Scheduler() as scheduler:

        def fails() -> str:
            place = TimeSlot(scheduler.address)
            place.turn()
            del place
            raise ValueError("lost")

        with pytest.raises(ValueError, match="lost"):
            scheduler.run_in_turns([fails, player(scheduler, "b", output)], [])
    assert output.count("b done") == 3


def test_one_that_comes_again_is_let_in() -> None:
    output: list[str] = []
    with Scheduler() as scheduler:

        def twice() -> str:
            player(scheduler, "first", output, 1)()
            return player(scheduler, "again", output, 1)()

        assert scheduler.run_in_turns([twice, player(scheduler, "b", output)], []) == ["again", "b"]
    assert output.count("again") == 1


def test_one_that_comes_again_after_a_while_is_let_in_where_nobody_else_waits() -> None:
    output: list[str] = []
    with Scheduler() as scheduler:

        def twice() -> None:
            player(scheduler, "first", output, 1)()
            time.sleep(0.1)
            player(scheduler, "again", output, 1)()

        scheduler.run_in_turns([twice], [])
    assert output.count("again") == 1


def test_one_that_keeps_its_turn_for_too_long_loses_it_and_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 0.3)
    output: list[str] = []
    over = threading.Event()
    with Scheduler() as scheduler:

        def silent() -> str:
            place = TimeSlot(scheduler.address)
            place.turn()
            over.wait(30)
            with pytest.raises(ConnectionError, match=r"interleaving has ended: .* took more than 0 s"):
                place.turn()
            return "silent"

        def other() -> str:
            player(scheduler, "b", output)()
            over.set()
            return "b"

        assert scheduler.run_in_turns([silent, other], []) == ["silent", "b"]
    assert output.count("b") == 3


def test_one_that_was_done_while_the_run_was_stopped_has_had_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As select finds nothing where its time has passed meanwhile."""
    select_, looked = select.select, []

    def stopped(*asked: Any) -> Any:
        looked.append(asked[-1])
        if asked[-1] != TURN_SECONDS:
            return select_(*asked)
        time.sleep(0.1)
        return [], [], []

    monkeypatch.setattr(select, "select", stopped)
    output: list[str] = []
    with Scheduler() as scheduler:
        scheduler.run_in_turns([player(scheduler, "a", output)], [])
    assert output.count("a") == 3
    assert TURN_SECONDS in looked


@pytest.mark.parametrize("name", ["a b%20#?'\"\n\udcff", "long" * 50])
def test_processes_meet_in_a_folder_of_their_user_alone_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    output: list[str] = []
    sockets = Path("/proc/net/unix").read_text().count("@")
    with Scheduler() as scheduler:
        [folder] = (tmp_path / name).iterdir()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert Path("/proc/net/unix").read_text().count("@") <= sockets, "one without a folder is everybody's"
        scheduler.run_in_turns([player(scheduler, each, output) for each in "ab"], [])
    assert output.count("a") == output.count("b") == 3
    assert list((tmp_path / name).iterdir()) == []


def test_where_no_socket_can_be_made_the_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def bind(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(socket, "socket", type("Unsupported", (socket.socket,), {"bind": bind}))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(UserError, match=rf"^{tmp_path}: no socket .*not supported.* in TMPDIR$"):
        Scheduler()
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_ends_who_waits_and_lets_nobody_in() -> None:
    stopped = threading.Event()
    sent_home: list[str] = []
    refused: list[str] = []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with Scheduler() as scheduler:

        def endless() -> None:
            place = TimeSlot(scheduler.address)
            try:
                while not stopped.is_set():
                    place.turn()
            except OSError as error:
                sent_home.append(str(error))
            try:
                TimeSlot(scheduler.address).turn()
            except ConnectionError as error:
                refused.append(str(error))

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                scheduler.run_in_turns([endless, endless], [stopped.set])
        finally:
            signal.signal(signal.SIGALRM, before)
    assert stopped.is_set()
    assert sent_home
    assert all(each.startswith("interleaving has ended") for each in sent_home)
    assert len(refused) == 2


@pytest.mark.slow
def test_the_ranks_of_a_job_take_their_turn_together(tmp_path: Path) -> None:
    def job(server: ForkServer) -> list[RankOutcome]:
        return server.call(
            Job("tests.ranks:take_turns", {}, 2, f"{tmp_path}/log", timeout=PATIENCE, scheduler=scheduler.address)
        )

    a, b = (ForkServer(tmp_path / f"{name}.log", {}, modules=("torch",)) for name in "ab")
    with a, b, Scheduler() as scheduler:
        jobs = scheduler.run_in_turns([partial(job, a), partial(job, b)], [])
    spans = []
    for ranks in jobs:
        for one, other in zip(*(rank.value for rank in ranks), strict=True):
            spans.append((min(one[0], other[0]), max(one[1], other[1])))
    assert len(spans) == 6
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))
