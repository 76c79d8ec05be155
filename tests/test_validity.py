"""What a record says of its settings: its status, other processes, the host's memory, and whether it is believed."""

from __future__ import annotations

import dataclasses
from typing import Any, get_args

import pytest

from repro.machine.environment import Environment
from repro.record import Record, Status
from repro.validity import Answer, believed, disturbance, feasible, is_final
from tests.command_line import record

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


# --- The table ---

RAN, DISTURBED, FAILED, UNKNOWN = Answer.TIMED, Answer.DISTURBED, Answer.FAILED, Answer.UNKNOWN
# By status: alone on the GPU, beside others on it, and where it was the host's memory that ran out.
TABLE: dict[Status, tuple[Answer, Answer, Answer]] = {
    "ok": (RAN, DISTURBED, RAN),
    "out_of_memory": (Answer.DOES_NOT_FIT, Answer.MAY_FIT, FAILED),
    "unsupported": (FAILED, FAILED, FAILED),
    "crashed": (FAILED, FAILED, FAILED),
    "timed_out": (FAILED, FAILED, FAILED),
    "interrupted": (UNKNOWN, UNKNOWN, UNKNOWN),
    "skipped": (Answer.SKIPPED, Answer.SKIPPED, Answer.SKIPPED),
    "not_measured": (UNKNOWN, UNKNOWN, UNKNOWN),
}
FEASIBLE = {RAN: True, DISTURBED: True, Answer.DOES_NOT_FIT: False}
FINAL = {*FEASIBLE, Answer.SKIPPED}


@pytest.mark.parametrize("busy_cpus", [None, 0.2, 1.5])
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("status", get_args(Status))
def test_what_a_status_says_goes_by_who_else_used_the_gpu(status: Status, others: str, busy_cpus: float | None) -> None:
    found = left(status, gpu_state=[OTHERS[others]], busy_cpus=busy_cpus)
    answer = TABLE[status][0 if others == "nobody" else 1]
    assert Answer.of(found) is answer
    assert feasible(found) is FEASIBLE.get(answer)
    assert is_final(found) == (answer in FINAL or status == "timed_out"), "the limit may be another by then"


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("status", sorted({*get_args(Status)} - {"ok"}))
def test_a_hosts_memory_that_ran_out_says_nothing_of_the_gpu(status: Status, others: str) -> None:
    found = left(status, gpu_state=[OTHERS[others]], host_ran_out=True)
    assert Answer.of(found) is TABLE[status][2]
    assert feasible(found) is None


@pytest.mark.parametrize("status", get_args(Status))
def test_a_record_that_its_folder_does_not_support_is_no_answer_whatever_its_status(status: Status) -> None:
    found = believed(left(status), Environment())
    assert found.reason == "its machine is 1 x H100, and the run's environment lists no GPU"
    assert (Answer.of(found), feasible(found), is_final(found)) == (Answer.UNKNOWN, None, False)


def test_answers_that_ran_and_trials_that_ended() -> None:
    assert {each for each in Answer if each.was_timed} == {Answer.TIMED, Answer.DISTURBED}
    assert {each for each in Answer if not each.ended} == {Answer.SKIPPED, Answer.UNKNOWN}


# --- What disturbs ---


def test_a_gpu_that_throttled_disturbs_what_ran_and_not_what_did_not_fit() -> None:
    assert Answer.of(left("ok", gpu_state=[HEAT])) is Answer.DISTURBED
    assert Answer.of(left("out_of_memory", gpu_state=[HEAT])) is Answer.DOES_NOT_FIT


def test_others_that_left_no_room_for_a_larger_micro_batch_disturb_what_ran() -> None:
    found = left("ok", full=[OTHERS["another container"]])
    assert Answer.of(found) is Answer.DISTURBED
    assert disturbance(found) == "a larger micro batch ran out of memory as others had 20.0 GB of the GPU's memory"
    assert Answer.of(left("ok", full=[ALONE])) is Answer.TIMED


def test_others_on_the_cpus_of_a_cpu_are_a_note_beside_its_answer() -> None:
    """A computer is hardly ever alone: the note says so, and a comparison that needs to know interleaves."""
    busy = record("pythia-410m", "naive", 3.0, "cpu", 1, scale="tiny", busy_cpus=1.5)
    assert Answer.of(busy) is Answer.TIMED
    full = dataclasses.replace(busy, status="out_of_memory")
    assert Answer.of(full) is Answer.DOES_NOT_FIT


# --- The host's memory ---


@pytest.mark.parametrize(("recipe_and_settings", "fits"), [(SMALL, None), (LARGE, False)])
def test_a_hosts_memory_that_ran_out_settles_what_the_papers_hosts_could_not_hold_either(
    recipe_and_settings: tuple[str, str], fits: bool | None
) -> None:
    found = left("out_of_memory", *recipe_and_settings, host_ran_out=True)
    assert Answer.of(found) is Answer.FAILED
    assert feasible(found) is fits
    assert not is_final(found), "another host, or fewer processes on it, may have room"
