"""What a search of settings found on one machine."""

from __future__ import annotations

from typing import Any

import pytest

from repro.paper.settings import search_space
from repro.record import Record, Status
from repro.run.settings_search import Search, searches
from tests.support.command_line import record


def search(*records: Record) -> Search:
    (found,) = searches(records)
    return found


def on_one(settings: str, days: float | None, status: Status = "ok", **known: Any) -> Record:
    return record("pythia-1b", settings, days, count=1, status=status, **known)


def test_a_settings_that_crashed_and_then_ran_has_the_step_that_ran() -> None:
    ran = search(on_one("naive", None, "crashed"), on_one("naive", 40.0), on_one("free_lunch", 20.0))
    assert ran.naive == 2 * ran.free_lunch == 2 * ran.best  # type: ignore[operator]
    crashed = search(on_one("naive", 40.0), on_one("naive", None, "crashed"), on_one("free_lunch", 20.0))
    assert crashed.naive == ran.naive
    again = search(on_one("free_lunch", 30.0), on_one("free_lunch", 20.0))
    assert again.free_lunch == again.best == ran.best, "the latest of those that ran"


def test_a_settings_that_ran_out_of_memory_and_was_then_stopped_is_out_of_memory() -> None:
    full = [on_one(each.id, None, "out_of_memory") for each in search_space(1)]
    stopped = on_one("free_lunch", None, "interrupted")
    found = search(*full, stopped)
    assert found.whole
    assert not found.free_lunch_fits


def test_what_ran_stands_whatever_came_of_it_later_and_of_failures_the_last() -> None:
    ran, full = on_one("free_lunch", 20.0), on_one("free_lunch", None, "out_of_memory")
    assert search(ran, full).best_days == pytest.approx(20.0)
    assert search(full, ran).free_lunch_fits
    first, second = (on_one("free_lunch", None, "crashed", reason=reason) for reason in ("first", "second"))
    assert search(first, second).standing["free_lunch"].reason == "second"


@pytest.mark.parametrize(
    ("sdpa", "flash", "fits"),
    [("out_of_memory", "ok", True), ("out_of_memory", "out_of_memory", False), ("crashed", "crashed", True)],
)
def test_free_lunch_does_not_fit_where_it_ran_out_of_memory_with_every_attention(
    sdpa: Status, flash: Status, fits: bool
) -> None:
    alone = [
        on_one(settings, 20.0 if status == "ok" else None, status)
        for settings, status in (("free_lunch", sdpa), ("free_lunch+flash", flash))
    ]
    assert search(*alone, on_one("free_lunch+checkpointing", None, "out_of_memory")).free_lunch_fits == fits


def test_free_lunch_alone_is_what_the_faster_attention_makes_of_it() -> None:
    found = search(on_one("free_lunch", 20.0), on_one("free_lunch+flash", 16.0), on_one("naive", 8.0))
    assert found.free_lunch is not None
    assert found.days(found.free_lunch) == pytest.approx(16.0)


def test_the_clock_decides_which_settings_are_the_fastest() -> None:
    launched_early = on_one("free_lunch+checkpointing", 5.0, true_days=30.0)
    runs = [on_one("naive", 10.0), on_one("free_lunch", 20.0), launched_early]
    (true,), (authors,) = searches(runs), searches(runs, "authors")
    assert (true.fastest, authors.fastest) == ("free_lunch", "free_lunch+checkpointing")
    assert [true.best_days, authors.best_days] == pytest.approx([20.0, 5.0])
    assert [true.gain, authors.gain] == pytest.approx([-0.5, 0.75])


def test_what_did_not_run_has_no_days_and_nothing_to_gain() -> None:
    full = search(on_one("free_lunch", None, "out_of_memory"), on_one("naive", 40.0))
    assert (full.best_days, full.gain, full.fastest) == (None, None, None)
    assert search(on_one("free_lunch", 20.0)).gain is None


def test_a_search_that_skipped_settings_says_how_many_and_another_says_nothing() -> None:
    skipped = [on_one(each.id, None, "skipped", wall_seconds=0.0) for each in search_space(1)[1:4]]
    unsupported = on_one("free_lunch+zero_1", None, "unsupported", wall_seconds=0.0)
    ran = [on_one("free_lunch", days, wall_seconds=seconds) for days, seconds in ((20.0, 3.0), (21.0, 4.0))]
    later = on_one(skipped[0].settings, 30.0, wall_seconds=5.0)
    found = search(unsupported, *ran, *skipped, later)
    assert found.skipping == "2 settings tried in 12 s, 2 not, as others were predicted to be faster"
    assert search(unsupported, *ran).skipping == ""


def test_a_search_is_whole_where_all_settings_ran_or_ran_out_of_memory() -> None:
    space = [settings.id for settings in search_space(1)]
    full = [on_one(settings, None, "out_of_memory") for settings in space[:2]]
    ran = [on_one(settings, 30.0) for settings in space[2:-1]]
    last = space[-1]
    assert search(*full, *ran).untried == (last,)
    assert search(*full, *ran, on_one(last, None, "crashed")).untried == (f"{last} (crashed)",)
    whole = search(*full, *ran, on_one(last, None, "crashed"), on_one(last, 30.0))
    assert whole.whole
    assert (whole.untried, whole.gain, whole.free_lunch_fits) == ((), None, False)
    assert whole.spread is not None, "it is a search all the same"
    assert not search(full[0]).whole, "where free lunch does not fit, others may"


@pytest.mark.parametrize("known", [{"gpu_state": [{"processes": 2}]}, {"host_ran_out": True}])
def test_what_ran_out_of_memory_that_was_not_all_its_own_is_still_to_be_tried(known: dict[str, Any]) -> None:
    """Of a GPU that another process used, or of a host's that is smaller than the paper's."""
    first, *others = [settings.id for settings in search_space(1)]
    found = search(on_one(first, None, "out_of_memory", **known), *(on_one(each, 30.0) for each in others))
    assert found.untried == ("free_lunch (out_of_memory, to be run again)",)
    assert not found.whole
    assert found.free_lunch_fits


def test_settings_that_did_not_fit_do_not_fit_whatever_others_disturb_later() -> None:
    full, disturbed = (on_one("naive", None, "out_of_memory", gpu_state=[{"processes": users}]) for users in (1, 2))
    assert search(full, disturbed).standing["naive"] is full
    assert search(disturbed, full).standing["naive"] is full


def test_what_was_interrupted_or_cannot_run_was_not_tried() -> None:
    none = [on_one("naive", None, status) for status in ("interrupted", "unsupported", "skipped", "not_measured")]
    tried = [on_one("free_lunch", None, status) for status in ("crashed", "timed_out", "out_of_memory")]
    assert search(*none, *tried).tried == tried


def test_the_gain_is_of_memory_saving_settings_over_free_lunch_alone() -> None:
    found = search(on_one("naive", 10.0), on_one("free_lunch", 20.0), on_one("free_lunch+checkpointing", 15.0))
    assert (found.fastest, found.fastest_saving) == ("free_lunch+checkpointing", "free_lunch+checkpointing")
    assert found.gain == pytest.approx(0.25)
    assert found.best_days == pytest.approx(15.0), "naive is none of the search's"
    slower = search(on_one("free_lunch", 20.0), on_one("free_lunch+checkpointing", 30.0))
    assert slower.fastest == "free_lunch"
    assert slower.gain == pytest.approx(-0.5)


def test_the_spread_is_of_memory_saving_settings_alone() -> None:
    saving = {
        "free_lunch+checkpointing": 30.0,
        "free_lunch+zero_1+offloading": 40.0,
        "free_lunch+zero_2+offloading": 90.0,
    }
    ran = search(on_one("free_lunch", 10.0), *(on_one(settings, days) for settings, days in saving.items()))
    assert ran.spread is not None
    assert [ran.days(step) for step in (ran.spread.best, ran.spread.median, ran.spread.worst)] == pytest.approx(
        [30.0, 40.0, 90.0]
    )
    assert ran.spread.count == 3
    assert search(on_one("free_lunch", 10.0)).spread is None
