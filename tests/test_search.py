"""What a search of settings found on one machine."""

from __future__ import annotations

import pytest

from repro.search import Search, searches
from repro.settings import search_space
from repro.trial import Record, Status
from tests.command_line import record


def search(*records: Record) -> Search:
    (found,) = searches(records)
    return found


def on_one(settings: str, days: float | None, status: Status = "ok") -> Record:
    return record("pythia-1b", settings, days, count=1, status=status)


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


def test_guidance_counts_settings_and_not_what_was_made_of_them_later() -> None:
    skipped = [on_one(each.id, None, "skipped") for each in search_space(1)[1:3]]
    unsupported = on_one("free_lunch+zero_1", None, "unsupported")
    made = (on_one("free_lunch", 20.0), on_one("free_lunch", 21.0), *skipped, on_one(skipped[0].settings, 30.0))
    found = search(unsupported, *made)
    assert "2 settings tried" in found.guided
    assert "1 skipped" in found.guided


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


def test_the_gain_is_of_memory_saving_settings_over_free_lunch_alone() -> None:
    found = search(on_one("naive", 10.0), on_one("free_lunch", 20.0), on_one("free_lunch+checkpointing", 15.0))
    assert (found.fastest, found.fastest_saving) == ("free_lunch+checkpointing", "free_lunch+checkpointing")
    assert found.gain == pytest.approx(0.25)
    assert found.best_days == pytest.approx(15.0), "naive is none of the search's"
    slower = search(on_one("free_lunch", 20.0), on_one("free_lunch+checkpointing", 30.0))
    assert (slower.fastest, slower.gain) == ("free_lunch", pytest.approx(-0.5))


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
