"""Processes that are timed together compute one at a time, and none waits for one that is gone."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from repro.measure import interleaving as turns_module
from repro.measure.interleaving import TURN_SECONDS, Scheduler, turn
from repro.measure.jobs import Job, RankOutcome
from repro.measure.launcher import ForkServer
from tests.support.command_line import PATIENCE


def player(scheduler: Scheduler, name: str, output: list[str], count: int = 3) -> Callable[[], str]:
    """A work that has so many turns, and tells when it computes and when it is done."""

    def work() -> str:
        pipe = scheduler.pipe()
        for _ in range(count):
            turn(pipe)
            output.append(name)
            time.sleep(0.01)
            output.append(f"{name} done")
        pipe.close()  # as the end of a process does
        return name

    return work


def test_one_computes_at_a_time_and_none_two_times_on_end() -> None:
    output: list[str] = []
    scheduler = Scheduler()
    assert scheduler.run_in_turns([player(scheduler, name, output) for name in "abc"], []) == ["a", "b", "c"]
    assert output == [word for name in "abcabcabc" for word in (name, f"{name} done")]


def test_none_is_built_while_another_is_timed() -> None:
    output: list[str] = []
    scheduler = Scheduler()

    def slow_to_build() -> str:
        time.sleep(0.2)
        output.append("built")
        return player(scheduler, "slow", output)()

    scheduler.run_in_turns([player(scheduler, "quick", output), slow_to_build], [])
    assert output[0] == "built"


def test_one_that_ends_early_or_never_takes_a_turn_keeps_nobody_waiting() -> None:
    output: list[str] = []
    scheduler = Scheduler()
    works = [player(scheduler, "a", output, 1), lambda: "no turn", player(scheduler, "b", output, 4)]
    assert scheduler.run_in_turns(works, []) == ["a", "no turn", "b"]
    assert output.count("b") == 4


def test_who_has_had_its_turn_is_left_a_moment_before_the_next_one_begins() -> None:
    times: list[float] = []
    scheduler = Scheduler()

    def work() -> None:
        pipe = scheduler.pipe()
        for _ in range(3):
            turn(pipe)
            times.extend((time.monotonic(), time.monotonic()))

    scheduler.run_in_turns([work, work], [])
    ended_and_began = zip(times[1:-1:2], times[2::2], strict=True)
    assert all(began - ended > 0.004 for ended, began in ended_and_began)


def test_one_that_ends_before_it_notices_its_turn_keeps_nobody_waiting() -> None:
    output: list[str] = []
    scheduler = Scheduler()

    def leaves() -> str:
        with scheduler.pipe() as pipe:
            pipe.send_bytes(b"idle")
            pipe.poll(None)
        return "left"

    assert scheduler.run_in_turns([leaves, player(scheduler, "b", output)], []) == ["left", "b"]
    assert output.count("b") == 3


def test_one_that_fails_is_reported_once_the_others_have_ended() -> None:
    output: list[str] = []
    scheduler = Scheduler()

    def fails() -> str:
        with scheduler.pipe() as pipe:
            turn(pipe)
        raise ValueError("lost")

    with pytest.raises(ValueError, match="lost"):
        scheduler.run_in_turns([fails, player(scheduler, "b", output)], [])
    assert output.count("b done") == 3


def test_one_that_comes_again_is_let_in() -> None:
    output: list[str] = []
    scheduler = Scheduler()

    def twice() -> str:
        player(scheduler, "first", output, 1)()
        return player(scheduler, "again", output, 1)()

    assert scheduler.run_in_turns([twice, player(scheduler, "b", output)], []) == ["again", "b"]
    assert output.count("again") == 1


def test_one_that_comes_again_after_a_while_is_let_in_where_nobody_else_waits() -> None:
    output: list[str] = []
    scheduler = Scheduler()

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
    scheduler = Scheduler()

    def silent() -> str:
        pipe = scheduler.pipe()
        turn(pipe)
        over.wait(30)
        with pytest.raises(ConnectionError, match=r"interleaving has ended: .* took more than 0 s"):
            turn(pipe)
        return "silent"

    def other() -> str:
        player(scheduler, "b", output)()
        over.set()
        return "b"

    assert scheduler.run_in_turns([silent, other], []) == ["silent", "b"]
    assert output.count("b") == 3


def test_one_that_was_done_while_the_run_was_stopped_has_had_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """As poll finds nothing where its time has passed meanwhile."""
    poll, looked = Connection.poll, []

    def stopped(pipe: Connection, seconds: float | None = 0.0) -> bool:
        looked.append(seconds)
        if seconds != TURN_SECONDS:
            return poll(pipe, seconds)
        time.sleep(0.1)
        return False

    monkeypatch.setattr(Connection, "poll", stopped)
    output: list[str] = []
    scheduler = Scheduler()
    scheduler.run_in_turns([player(scheduler, "a", output)], [])
    assert output.count("a") == 3
    assert TURN_SECONDS in looked


def test_an_interruption_ends_who_waits_and_lets_nobody_in() -> None:
    stopped = threading.Event()
    sent_home: list[str] = []
    refused: list[str] = []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    scheduler = Scheduler()

    def endless() -> None:
        pipe = scheduler.pipe()
        try:
            while not stopped.is_set():
                turn(pipe)
        except OSError as error:
            sent_home.append(str(error))
        try:
            turn(scheduler.pipe())
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
            Job("tests.support.ranks:take_turns", {}, 2, f"{tmp_path}/log", timeout=PATIENCE, scheduler=scheduler)
        )

    a, b = (ForkServer(tmp_path / f"{name}.log", {}, modules=("torch",)) for name in "ab")
    scheduler = Scheduler()
    with a, b:
        jobs = scheduler.run_in_turns([partial(job, a), partial(job, b)], [])
    spans = []
    for ranks in jobs:
        for one, other in zip(*(rank.value for rank in ranks), strict=True):
            spans.append((min(one[0], other[0]), max(one[1], other[1])))
    assert len(spans) == 6
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))
