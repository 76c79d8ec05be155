"""Processes that are timed together compute one at a time, and none waits for one that is gone."""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from repro.measure.job import Job, Outcome
from repro.measure.launcher import ForkServer
from repro.measure.turns import Place, Turns


def player(turns: Turns, name: str, told: list[str], count: int = 3) -> Callable[[], str]:
    """A work that has so many turns, and tells when it computes and when it is done."""

    def work() -> str:
        place = Place(turns.address)
        for _ in range(count):
            place.turn()
            told.append(name)
            time.sleep(0.01)
            told.append(f"{name} done")
        del place  # as the end of a process does
        return name

    return work


def test_one_computes_at_a_time_and_none_two_times_on_end() -> None:
    told: list[str] = []
    with Turns() as turns:
        assert turns.run([player(turns, name, told) for name in "abc"], []) == ["a", "b", "c"]
    assert told == [word for name in "abcabcabc" for word in (name, f"{name} done")]


def test_none_is_built_while_another_is_timed() -> None:
    told: list[str] = []
    with Turns() as turns:

        def slow_to_build() -> str:
            time.sleep(0.2)
            told.append("built")
            return player(turns, "slow", told)()

        turns.run([player(turns, "quick", told), slow_to_build], [])
    assert told[0] == "built"


def test_one_that_ends_early_or_never_takes_a_turn_keeps_nobody_waiting() -> None:
    told: list[str] = []
    with Turns() as turns:
        works = [player(turns, "a", told, 1), lambda: "no turn", player(turns, "b", told, 4)]
        assert turns.run(works, []) == ["a", "no turn", "b"]
    assert told.count("b") == 4


def test_who_has_had_its_turn_is_left_a_moment_before_the_next_one_begins() -> None:
    times: list[float] = []
    with Turns() as turns:

        def work() -> None:
            place = Place(turns.address)
            for _ in range(3):
                place.turn()
                times.extend((time.monotonic(), time.monotonic()))

        turns.run([work, work], [])
    ended_and_began = zip(times[1:-1:2], times[2::2], strict=True)
    assert all(began - ended > 0.004 for ended, began in ended_and_began)


def test_one_that_ends_before_it_notices_its_turn_keeps_nobody_waiting() -> None:
    told: list[str] = []
    with Turns() as turns:

        def leaves() -> str:
            with socket.socket(socket.AF_UNIX) as place:
                place.connect(f"\0{turns.address}")
                select.select([place], [], [])
            return "left"

        assert turns.run([leaves, player(turns, "b", told)], []) == ["left", "b"]
    assert told.count("b") == 3


def test_one_that_fails_is_told_once_the_others_have_ended() -> None:
    told: list[str] = []
    with Turns() as turns:

        def fails() -> str:
            place = Place(turns.address)
            place.turn()
            del place
            raise ValueError("lost")

        with pytest.raises(ValueError, match="lost"):
            turns.run([fails, player(turns, "b", told)], [])
    assert told.count("b done") == 3


def test_one_that_comes_again_is_let_in() -> None:
    told: list[str] = []
    with Turns() as turns:

        def twice() -> str:
            player(turns, "first", told, 1)()
            return player(turns, "again", told, 1)()

        assert turns.run([twice, player(turns, "b", told)], []) == ["again", "b"]
    assert told.count("again") == 1


def test_one_that_comes_again_after_a_while_is_let_in_where_nobody_else_waits() -> None:
    told: list[str] = []
    with Turns() as turns:

        def twice() -> None:
            player(turns, "first", told, 1)()
            time.sleep(0.1)
            player(turns, "again", told, 1)()

        turns.run([twice], [])
    assert told.count("again") == 1


def test_an_interruption_ends_who_waits_and_lets_nobody_in() -> None:
    stopped = threading.Event()
    sent_home: list[str] = []
    refused: list[str] = []

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with Turns() as turns:

        def endless() -> None:
            place = Place(turns.address)
            try:
                while not stopped.is_set():
                    place.turn()
            except OSError as error:
                sent_home.append(str(error))
            try:
                Place(turns.address).turn()
            except ConnectionRefusedError as error:
                refused.append(str(error))

        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        try:
            with pytest.raises(KeyboardInterrupt):
                turns.run([endless, endless], [stopped.set])
        finally:
            signal.signal(signal.SIGALRM, before)
    assert stopped.is_set()
    assert "nobody gives turns any more" in sent_home
    assert len(refused) == 2


def test_the_ranks_of_a_job_take_their_turn_together(tmp_path: Path) -> None:
    def job(server: ForkServer) -> list[Outcome]:
        return server.call(Job("tests.ranks:take_turns", {}, 2, f"{tmp_path}/log", timeout=60, turns=turns.address))

    a, b = (ForkServer(tmp_path / f"{name}.log", {}, modules=("torch",)) for name in "ab")
    with a, b, Turns() as turns:
        jobs = turns.run([partial(job, a), partial(job, b)], [])
    spans = []
    for ranks in jobs:
        for one, other in zip(*(rank.value for rank in ranks), strict=True):
            spans.append((min(one[0], other[0]), max(one[1], other[1])))
    assert len(spans) == 6
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(spans)))
