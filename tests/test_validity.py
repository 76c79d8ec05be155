"""What a record says of its settings: its status, other processes, the host's memory, and whether it is believed."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from repro.machine.environment import Environment
from repro.record import Record, Status
from repro.validity import believed, disturbance, feasible, fits, is_final, undisturbed
from tests.support.command_line import record

ALONE = {"processes": 1, "memory_bytes": 85e9, "taken_bytes": 0.6e9}
OTHERS: dict[str, dict[str, float]] = {
    "nobody": ALONE,
    "a process": ALONE | {"processes": 2},
    "another container": ALONE | {"taken_bytes": 20e9},
}
HEAT = ALONE | {"throttle_reasons": 0x40}
# Settings that offload, of which the paper's hosts have the memory for the first alone.
SMALL, LARGE = ("pythia-410m", "zero_3+offloading"), ("pythia-6.9b", "zero_3+offloading")


def left(status: Status, recipe: str = "pythia-410m", settings: str = "naive", **known: Any) -> Record:
    days = 3.0 if status == "ok" else None
    return record(recipe, settings, days, "H100", 1, status, **known)


# --- By status ---


@pytest.mark.parametrize("busy_cpus", [None, 0.2, 1.5])
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("status", get_args(Status))
def test_what_a_status_says_goes_by_who_else_used_the_gpu(status: Status, others: str, busy_cpus: float | None) -> None:
    found, alone = left(status, gpu_state=[OTHERS[others]], busy_cpus=busy_cpus), others == "nobody"
    assert undisturbed(found) == (status == "ok" and alone)
    assert (disturbance(found) is None) == (alone or status not in ("ok", "out_of_memory"))
    assert fits(found) is {"ok": True, "out_of_memory": False if alone else None}.get(status)
    assert feasible(found) is fits(found)
    may_stand = status in ("skipped", "timed_out")  # the limit may be another by then
    assert is_final(found) == (fits(found) is not None or may_stand)


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("status", sorted({*get_args(Status)} - {"ok"}))
def test_a_hosts_memory_that_ran_out_says_nothing_of_the_gpu(status: Status, others: str) -> None:
    found = left(status, gpu_state=[OTHERS[others]], host_ran_out=True)
    assert (fits(found), disturbance(found), feasible(found)) == (None, None, None)


@pytest.mark.parametrize("status", get_args(Status))
def test_a_record_that_its_folder_does_not_support_is_no_answer_whatever_its_status(status: Status) -> None:
    found = believed(left(status), Environment())
    assert found.reason == "its machine is 1 x H100, and the run's environment lists no GPU"
    assert (found.timed, found.ended, feasible(found), is_final(found)) == (False, False, None, False)


def test_trials_that_ended() -> None:
    unfinished = {status for status in get_args(Status) if not left(status).ended}
    assert unfinished == {"skipped", "interrupted", "not_measured"}


# --- What disturbs ---


def test_a_gpu_that_throttled_disturbs_what_ran_and_not_what_did_not_fit() -> None:
    assert not undisturbed(left("ok", gpu_state=[HEAT]))
    assert fits(left("out_of_memory", gpu_state=[HEAT])) is False


def test_others_that_left_no_room_for_a_larger_micro_batch_disturb_what_ran() -> None:
    found = left("ok", full=[OTHERS["another container"]])
    assert disturbance(found) == "a larger micro batch ran out of memory as others had 20.0 GB of the GPU's memory"
    assert undisturbed(left("ok", full=[ALONE]))


def test_others_on_the_cpus_of_a_cpu_are_a_note_beside_its_answer() -> None:
    """A computer is hardly ever alone: the note says so, and a comparison that needs to know interleaves."""
    busy = record("pythia-410m", "naive", 3.0, "cpu", 1, scale="tiny", busy_cpus=1.5)
    assert undisturbed(busy)
    full = dataclasses.replace(busy, status="out_of_memory")
    assert fits(full) is False


# --- The host's memory ---


@pytest.mark.parametrize(("recipe_and_settings", "does_fit"), [(SMALL, None), (LARGE, False)])
def test_a_hosts_memory_settles_what_the_papers_hosts_could_not_hold_either(
    recipe_and_settings: tuple[str, str], does_fit: bool | None
) -> None:
    found = left("out_of_memory", *recipe_and_settings, host_ran_out=True)
    assert (disturbance(found), feasible(found)) == (None, does_fit)
    assert not is_final(found), "another host, or fewer processes on it, may have room"
