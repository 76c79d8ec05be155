"""Verdicts: measured days against the paper's, cell by cell."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from repro import models
from repro.formats import significant
from repro.machine.support import compiles
from repro.paper.arithmetic import paper_gpu
from repro.paper.settings import NAIVE, Settings, Sharding, search_space
from repro.paper.tables import Cell, PublishedSettings, State, Table, published_settings
from repro.predict.fits import EVERYTHING, fitted_constants
from repro.predict.forecast import forecast
from repro.predict.hardware import Machine
from repro.predict.traces import PAPER_STACK, Traced, shipped
from repro.record import Clock, Record, Status, Trial
from repro.run import verdict
from repro.run.differences import explain_difference
from repro.run.reading import read
from repro.run.verdict import Verdict, comparable_with_cell, explain, judge_tables, within
from tests.support.command_line import ROOT, altered

PYTHIA = ("pythia-1b", "Pythia-1B")


def cell(table: Table = "1", days: int | None = 18, state: State = "days", gpus: int = 4, gpu: str = "A100") -> Cell:
    return Cell(table, "Pythia-1B", gpu, gpus, days, state, "a test")


def appendix_j(sharding: Sharding | None = "zero_1", gpus: int = 4) -> PublishedSettings:
    return PublishedSettings("Pythia-1B", "A100", gpus, True, False, sharding, False, 16, 16, "a test")


def record(settings: str, days: float | None, status: Status = "ok", **more: Any) -> Record:
    tf32 = settings.startswith("free_lunch")
    known: dict[str, Any] = {"device": "A100", "count": 4, "scale": "paper", "tf32": tf32}
    known |= {"micro_batch": None if days is None else 16, **more}
    trial = Trial("pythia-1b", "paper", settings, "A100", 4)
    return altered(
        Record.of(trial, status),
        id=f"{settings}-{known}",
        true_days=days,
        authors_days=None if days is None else days / 1.5,
        reason="" if status == "ok" else "for a reason",
        **{"compiled": compiles(models.find("pythia-1b"), Settings.parse(settings)), **known},
    )


def verdict_of(
    a_cell: Cell, *records: Record, published: PublishedSettings | None = None, clock: Clock = "true"
) -> Verdict:
    row = published or appendix_j()
    with patch.object(verdict, "settings_by_place", lambda: {row.place: row}):
        return judge_tables(records, 0.15, clock, [a_cell])[0]


def clocks(settings: str, true: float, authors: float, **more: Any) -> Record:
    """A record whose days differ by clock."""
    return altered(record(settings, true, **more), authors_days=authors)


@pytest.mark.parametrize(
    ("measured", "word"),
    [
        (18.0, "reproduced"),
        (14.88, "reproduced"),  # 17.5 days print as 18, less 15 %
        (14.87, "faster"),
        (21.27, "reproduced"),  # 18.5 days print as 18, and 15 % more
        (21.28, "slower"),
    ],
)
def test_days_agree_within_tolerance_of_what_rounds_to_the_printed_ones(measured: float, word: str) -> None:
    assert within(measured, 18, 0.15) == word


def test_a_cell_of_one_day_is_as_wide_as_its_rounding() -> None:
    assert within(0.5, 1, 0.15) == "reproduced"
    assert within(0.4, 1, 0.15) == "faster"


def test_true_days_are_compared_and_the_verdict_by_the_authors_clock_stands_beside() -> None:
    ran = clocks("free_lunch+zero_1", true=18.2, authors=9.1)
    found = verdict_of(cell(), ran)
    assert (found.verdict, found.compared) == ("reproduced", True)
    assert (found.true.verdict, found.true.days, found.true.settings) == ("reproduced", 18.2, "free_lunch+zero_1")
    assert (found.authors.verdict, found.authors.days) == ("faster", 9.1)
    chosen = verdict_of(cell(), ran, clock="authors")
    assert (chosen.verdict, chosen.reason) == ("faster", chosen.authors.reason)
    assert (chosen.true, chosen.authors) == (found.true, found.authors), "whichever judges, both are there"


def test_a_row_for_machines_has_both_judgements_each_under_its_clock() -> None:
    row = verdict_of(cell(), clocks("free_lunch+zero_1", true=18.2, authors=9.1), clock="authors").row()
    assert (row["clock"], row["verdict"]) == ("authors", "faster")
    assert (row["true_verdict"], row["true_days"], row["true_settings"]) == ("reproduced", 18.2, "free_lunch+zero_1")
    assert (row["authors_verdict"], row["authors_days"], row["authors_micro_batch"]) == ("faster", 9.1, 16)
    assert (row["model"], row["gpus"], row["expected_days"]) == ("Pythia-1B", 4, 18)


def test_table_1_takes_the_best_of_the_settings_that_ran() -> None:
    found = verdict_of(cell(), record("free_lunch+zero_1", 40.0), record("free_lunch", 18.0))
    assert (found.verdict, found.true.settings) == ("reproduced", "free_lunch")


def test_each_clock_takes_the_settings_that_are_fastest_by_it() -> None:
    found = verdict_of(
        cell(),
        clocks("free_lunch", true=20.0, authors=19.0),
        clocks("free_lunch+zero_1", true=90.0, authors=18.0),
    )
    assert (found.true.days, found.true.settings) == (20.0, "free_lunch")
    assert (found.authors.days, found.authors.settings) == (18.0, "free_lunch+zero_1")


def test_where_only_the_other_clock_agrees_the_launch_queue_explains_the_difference() -> None:
    queued = verdict_of(cell(), clocks("free_lunch+zero_1", true=30.0, authors=18.0))
    shows = "the authors' clock shows when kernels were launched, not when they ended"
    assert (queued.verdict, queued.reason) == (
        "slower",
        f"the launch queue explains it: 18.0 days by the authors' clock agree, and {shows}",
    )
    early = verdict_of(cell(), clocks("free_lunch+zero_1", true=18.0, authors=3.0), clock="authors")
    assert (early.verdict, early.reason) == (
        "faster",
        f"the launch queue explains it: 18.0 true days agree, and {shows}",
    )
    assert early.true.reason == "", "what agrees needs no explanation"
    naive = verdict_of(cell("4", 18), clocks("naive", true=30.0, authors=18.0))
    assert naive.reason == queued.reason


def test_what_brings_no_days_within_the_tolerance_explains_nothing() -> None:
    found = verdict_of(cell(), clocks("free_lunch+zero_1", true=80.0, authors=30.0))
    assert (found.true.reason, found.authors.reason) == ("not explained", "not explained")
    small = clocks("free_lunch+zero_1", true=80.0, authors=30.0, micro_batch=8)
    assert verdict_of(cell(), small).reason == "not explained", "Appendix J has MBS 16, which is hardly faster"


def predicted(micro_batch: int, stack: Traced, authors: bool = False) -> float:
    machine, settings = Machine(paper_gpu("A100"), 4), Settings.parse("free_lunch+zero_1")
    fitted = fitted_constants()[EVERYTHING]
    found = forecast(models.find("pythia-1b"), machine, settings, fitted, stack, micro_batch=micro_batch)
    assert found.days is not None
    assert found.authors_days is not None
    return found.authors_days if authors else found.days.value


def test_the_micro_batch_explains_days_that_it_brings_within_the_tolerance() -> None:
    at_1, at_16 = (predicted(each, shipped()[-1]) for each in (1, 16))
    true = 18 * at_1 / at_16
    small = clocks("free_lunch+zero_1", true=true, authors=8.0, micro_batch=1)
    assert verdict_of(cell(), small).reason == (
        f"the micro batch explains it: {true:.1f} true days x {significant(at_16)} predicted at MBS 16 on today's "
        f"stack / {significant(at_1)} predicted at MBS 1 on today's stack = 18 days"
    )
    other = clocks("free_lunch", true=true, authors=8.0, micro_batch=1)
    published = verdict_of(cell(), other, record("free_lunch+zero_1", 60.0))
    assert published.reason == "not explained", "of these settings Appendix J prints no micro batch"


def test_the_stack_explains_days_that_it_brings_within_the_tolerance() -> None:
    here, there = (predicted(16, stack, authors=True) for stack in (shipped()[-1], PAPER_STACK))
    assert here < there
    found = verdict_of(cell(), clocks("free_lunch+zero_1", true=30.0, authors=14.8), clock="authors")
    assert found.reason.startswith("the stack explains it: ")
    assert found.reason.endswith(f"/ {significant(here)} predicted at MBS 16 on today's stack = 15.1 days")
    assert found.true.reason.startswith("the launch queue and the stack explain it: "), "their clock is the authors'"


def test_what_is_predicted_not_to_train_explains_nothing() -> None:
    one = clocks("free_lunch+zero_3+offloading", true=80.0, authors=30.0, count=1)
    on_1 = Cell("1", "Pythia-6.9B", "A100", 1, 18, "days", "a test")
    agrees = partial(within, expected=18, tolerance=0.15)
    text = explain_difference(
        replace(one, recipe="pythia-6.9b"), on_1, 16, "true", lambda days: agrees(days) == "reproduced"
    )
    assert text == "not explained", "the paper's hosts do not hold what is offloaded"


def test_of_several_explanations_that_fit_the_nearest_stands() -> None:
    queued = clocks("free_lunch+zero_1", true=30.0, authors=18.0, micro_batch=8)
    assert verdict_of(cell(), queued).reason.startswith("the launch queue explains it: 18.0 days")
    less = clocks("free_lunch+zero_1", true=30.0, authors=16.0, micro_batch=8)
    assert "the stack" in verdict_of(cell(), less).reason.partition(" explain")[0]


def test_the_authors_clock_at_a_larger_micro_batch_explains_by_both() -> None:
    halved = clocks("free_lunch+zero_1", true=30.0, authors=18.0, micro_batch=8, authors_micro_batch=16)
    found = verdict_of(cell(), halved)
    assert (found.verdict, found.true.micro_batch) == ("slower", 16), "Appendix J's is held against the authors'"
    assert found.reason.startswith("the launch queue and the micro batch explain it: 18.0 days by the authors' clock")


def test_table_4_takes_the_naive_settings_only_and_table_1_never() -> None:
    assert verdict_of(cell("4", 41), record("naive", 41.0)).verdict == "reproduced"
    assert verdict_of(cell("1"), record("naive", 18.0)).verdict == "not_measured"
    other = verdict_of(cell("4", 18), record("free_lunch+zero_1", 18.0))
    assert (other.verdict, other.reason) == ("not_measured", "no such settings run")


def test_table_1_is_not_compared_with_settings_that_are_not_the_published_ones() -> None:
    found = verdict_of(cell(), record("free_lunch", 18.0))
    assert found.verdict == "not_measured"
    assert found.reason == "Appendix J's settings were not run; --methods published does"
    crashed = verdict_of(cell(), record("free_lunch", None, "crashed"))
    assert crashed.reason == found.reason, "what became of settings that were not asked for says nothing"
    unpublished = verdict_of(cell(), record("free_lunch", 18.0), published=appendix_j(gpus=8))
    assert unpublished.reason == "the whole search space was not run; --methods all does"


def test_the_whole_search_space_compares_without_the_published_settings() -> None:
    everything = [record(settings.id, 18.0) for settings in search_space(4)]
    assert verdict_of(cell(), *everything, published=appendix_j(gpus=8)).verdict == "reproduced"


@pytest.mark.parametrize("status", ["crashed", "timed_out", "unsupported", "interrupted"])
def test_settings_that_did_not_end_are_not_measured_however_slow_others_are(status: Status) -> None:
    """The published settings are what may be as fast as the paper says."""
    published = record("free_lunch+zero_1", None, status)
    for others in ([], [record("free_lunch", 25.0)], [record(each.id, 25.0) for each in search_space(4)[1:]]):
        found = verdict_of(cell(), *(each for each in others if each.settings != published.settings), published)
        assert found.verdict == "not_measured"
        assert f"{status}: for a reason" in found.reason
    whole = [record(each.id, None, status) for each in search_space(4)]
    unprinted = verdict_of(cell(days=None, state="infeasible"), *whole, published=appendix_j(gpus=8))
    assert unprinted.reason == f"{status}: for a reason"


def test_one_slower_reading_settles_nothing_while_another_did_not_end() -> None:
    readings, crashed = appendix_j(sharding=None), record("free_lunch+zero_1", None, "crashed")
    slow, right = record("free_lunch+fsdp_2", 25.0), record("free_lunch+fsdp_2", 18.0)
    others = [record(each.id, 26.0) for each in readings.readings() if each.id not in (slow.settings, crashed.settings)]
    assert verdict_of(cell(), slow, *others, record(crashed.settings, 27.0), published=readings).verdict == "slower"
    elsewhere = record("free_lunch+zero_1+offloading", None, "timed_out")
    found = verdict_of(cell(), slow, crashed, elsewhere, *others, published=readings)
    assert found.verdict == "not_measured"
    lacking = "of other readings of Appendix J 1 did not run (crashed: for a reason)"
    output = f"free_lunch+fsdp_2 takes 25.0 true days, and {lacking}"
    assert found.reason == output
    alone = verdict_of(cell(), slow, published=readings)
    assert alone.verdict == "not_measured"
    assert alone.reason.endswith(f", and of other readings of Appendix J {len(others) + 1} did not run")
    too_large = [record(f"free_lunch+{each}", None, "out_of_memory") for each in ("zero_2", "zero_1", "fsdp_2")]
    full = verdict_of(cell(), *too_large, published=readings)
    assert full.verdict == "not_measured"
    assert full.reason.startswith(
        "free_lunch+fsdp_2, free_lunch+zero_1 and free_lunch+zero_2 ran out of memory, and of other readings"
    )
    assert verdict_of(cell(), right, crashed, published=readings).verdict == "reproduced"


def test_settings_that_were_measured_again_stand_as_they_do_in_the_figures() -> None:
    first, second = record("free_lunch+zero_1", 9.0), replace(record("free_lunch+zero_1", 18.0), id="again")
    assert verdict_of(cell(), first, second).true.days == 18.0
    crashed = replace(record("free_lunch+zero_1", None, "crashed"), id="again")
    assert verdict_of(cell(), second, crashed).verdict == "reproduced"
    full, stopped = record("naive", None, "out_of_memory"), replace(record("naive", None, "interrupted"), id="again")
    assert verdict_of(cell("4", None, "infeasible"), full, stopped).verdict == "reproduced"


def test_flash_attention_stands_for_no_cell() -> None:
    flash, published = record("free_lunch+flash+zero_1", 12.0), record("free_lunch+zero_1", 18.0)
    assert verdict_of(cell(), published, flash).true.days == 18.0
    assert verdict_of(cell(), flash).verdict == "not_measured"


def test_any_reading_of_a_lost_mark_will_do() -> None:
    found = verdict_of(cell(), record("free_lunch+fsdp_2", 18.0), published=appendix_j(sharding=None))
    assert found.verdict == "reproduced"


def test_infeasible_on_both_sides_agrees() -> None:
    everything = [record(settings.id, None, "out_of_memory") for settings in search_space(4)]
    assert verdict_of(cell(days=None, state="infeasible"), *everything).verdict == "reproduced"
    assert verdict_of(cell("4", None, "infeasible"), record("naive", None, "out_of_memory")).verdict == "reproduced"


def test_more_system_memory_than_the_papers_hosts_have_settles_no_feasibility() -> None:
    """64 GB a GPU: less than what Pythia-6.9B offloads on one."""
    infeasible = Cell("1", "Pythia-6.9B", "A100", 1, None, "infeasible", "paper")
    offloaded = replace(record("free_lunch+zero_1+offloading", 900.0), recipe="pythia-6.9b", count=1)
    whole, of_two = (
        [
            replace(offloaded, settings=each.id, count=count, status="ok" if each.offloading else "out_of_memory")
            for each in search_space(count)
        ]
        for count in (1, 2)
    )
    found = verdict_of(infeasible, *whole)
    assert (found.verdict, found.true.days) == ("no_reference", 900.0)
    assert "64 GB of host memory a GPU" in found.reason
    faster = altered(whole[-1], true_days=850.0)
    assert verdict_of(infeasible, *whole[:-1], faster).true.days == 850.0, "the fastest, as everywhere"
    two = verdict_of(replace(infeasible, gpus=2), *of_two)
    assert two.verdict == "feasibility_differs", "the hosts of two GPUs have enough of it"
    printed = replace(infeasible, days=900, state="days")
    assert verdict_of(printed, *whole).verdict == "reproduced", "the paper's hosts had enough of it"
    ran = [altered(each, status="ok", true_days=950.0) for each in whole if each.settings == "free_lunch"]
    output = verdict_of(infeasible, *whole, *ran)
    assert (output.verdict, output.true.settings) == ("feasibility_differs", "free_lunch")


def test_a_host_with_less_memory_than_the_papers_says_nothing_of_feasibility() -> None:
    full = record("free_lunch+zero_1", None, "out_of_memory")
    of_host = replace(full, host_ran_out=True)
    assert verdict_of(cell(), full).verdict == "feasibility_differs"
    found = verdict_of(cell(), of_host)
    assert (found.verdict, found.reason) == (
        "not_measured",
        "out_of_memory: for a reason; the paper's jobs had 64 GB of host memory a GPU",
    )
    naive = record("naive", None, "out_of_memory", host_ran_out=True)
    assert verdict_of(cell("4", 41), naive).verdict == "not_measured"


def test_memory_that_another_process_used_settles_no_feasibility() -> None:
    full = record("free_lunch+zero_1", None, "out_of_memory", gpu_state=[{"processes": 1}])
    assert verdict_of(cell(), full).verdict == "feasibility_differs"
    shared = verdict_of(cell(), altered(full, gpu_state=[{"processes": 2}]))
    assert (shared.verdict, shared.reason) == ("not_measured", "out_of_memory: for a reason")


def test_what_others_left_no_room_for_a_larger_micro_batch_is_not_called_slower() -> None:
    beside: dict[str, Any] = {"full": [{"processes": 1, "memory_bytes": 80e9, "taken_bytes": 12.34e9}]}
    found = verdict_of(cell(), record("free_lunch+zero_1", 30.0, **beside))
    why = "a larger micro batch ran out of memory as others had 12.3 GB of the GPU's memory"
    assert (found.verdict, found.reason) == (
        "not_measured",
        f"free_lunch+zero_1 takes 30.0 true days at MBS 16, and {why}",
    )
    kept = verdict_of(cell(), record("free_lunch+zero_1", 18.0, **beside))
    assert (kept.verdict, kept.reason) == ("reproduced", why)


def test_what_ran_out_of_the_hosts_memory_may_have_been_faster() -> None:
    """Of a row with a lost mark the reading that the host has no memory for may be the paper's."""
    lost = appendix_j(sharding=None)
    fit = [record(settings.id, 40.0) for settings in lost.readings()]
    assert verdict_of(cell(), *fit, published=lost).verdict == "slower"
    fit[0] = record(fit[0].settings, None, "out_of_memory", host_ran_out=True)
    assert verdict_of(cell(), *fit, published=lost).verdict == "not_measured"


def test_what_a_search_skipped_may_be_faster() -> None:
    lost = appendix_j(sharding=None)
    first, *others = [settings.id for settings in lost.readings()]
    slow = [record(settings, 40.0) for settings in others]
    assert verdict_of(cell(), *slow, record(first, None, "skipped"), published=lost).verdict == "not_measured"


def test_where_the_papers_hosts_have_too_little_memory_too_running_out_agrees() -> None:
    infeasible = Cell("1", "Pythia-6.9B", "A100", 1, None, "infeasible", "paper")
    whole = [
        replace(
            record(settings.id, None, "out_of_memory", host_ran_out=settings.offloading), recipe="pythia-6.9b", count=1
        )
        for settings in search_space(1)
    ]
    assert verdict_of(infeasible, *whole).verdict == "reproduced"
    beside = [altered(each, gpu_state=[{"processes": 2}]) if each.host_ran_out else each for each in whole]
    assert verdict_of(infeasible, *beside).verdict == "reproduced", "it was not the GPU's memory that ran out"


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ({"gpu_state": [{"throttle_reasons": 0x40}]}, "the GPU throttled: too hot"),
        ({"gpu_state": [None, {"processes": 2}]}, "another process used the GPU"),
        ({"ran_tf32": False}, "fp32 products ran without the TF32 asked for"),
        ({"ran_tf32": True, "gpu_state": [{"processes": 1, "throttle_reasons": 0}]}, ""),
    ],
)
def test_a_cell_says_what_its_gpu_lets_doubt(known: dict[str, Any], why: str) -> None:
    slow = verdict_of(cell(), clocks("free_lunch+zero_1", true=80.0, authors=30.0, **known))
    output = "; ".join(filter(None, ["not explained", why]))
    assert (slow.verdict, slow.reason) == ("slower", output)


def test_feasibility_can_differ_both_ways() -> None:
    ran = verdict_of(cell("4", None, "infeasible"), record("naive", 30.0))
    assert (ran.verdict, ran.true.days) == ("feasibility_differs", 30.0)
    did_not = verdict_of(cell("4", 41), record("naive", None, "out_of_memory"))
    assert did_not.verdict == "feasibility_differs"
    assert "41 days" in explain(did_not)
    output = explain(ran)
    for part in (
        "printed infeasible",
        "measured 30.0 true days",
        "20.0 days by the authors' clock",
        "naive",
        "MBS 16",
        "trials.jsonl",
    ):
        assert part in output


@pytest.mark.parametrize("status", ["crashed", "timed_out", "unsupported", "interrupted", "skipped"])
def test_a_trial_that_ended_otherwise_says_nothing_of_feasibility(status: Status) -> None:
    found = verdict_of(cell("4", None, "infeasible"), record("naive", None, status))
    assert found.verdict == "not_measured"
    assert status in found.reason


def test_a_lost_mark_is_never_compared() -> None:
    assert verdict_of(cell("4", None, "lost"), record("naive", 30.0)).verdict == "no_reference"
    assert verdict_of(cell("4", None, "lost"), record("naive", None, "out_of_memory")).verdict == "no_reference"


@pytest.mark.parametrize(
    "elsewhere",
    [{"device": "A100 40 GB"}, {"count": 2}, {"scale": "tiny"}, {"memory_limit": 80 * 2**30}, {"nodes": 2}],
)
def test_another_machine_another_scale_or_a_memory_limit_is_never_compared(elsewhere: dict[str, Any]) -> None:
    found = verdict_of(cell("4", 41), altered(record("naive", 41.0), **elsewhere))
    assert (found.verdict, found.reason) == ("not_measured", "no run on 4 A100")


@pytest.mark.parametrize(("table", "settings", "tf32"), [("1", "free_lunch+zero_1", False), ("4", "naive", True)])
def test_free_lunch_without_tf32_and_naive_with_it_are_never_compared(table: Table, settings: str, tf32: bool) -> None:
    assert verdict_of(cell(table), record(settings, 18.0)).verdict == "reproduced"
    assert verdict_of(cell(table), record(settings, 18.0, tf32=tf32)).verdict == "not_measured"


def test_a_gpu_that_the_paper_has_not_stands_for_itself_whether_or_not_it_has_tf32() -> None:
    for device, stands in (("T4", True), ("A100", False)):
        assert comparable_with_cell(record("free_lunch", 18.0, device=device, tf32=False)) == stands


def test_what_became_of_settings_is_reported_once_each_and_in_one_order() -> None:
    ends: tuple[Status, ...] = ("timed_out", "crashed", "unsupported", "interrupted")
    space = [settings.id for settings in search_space(4)][: 2 * len(ends)]
    tried = [record(settings, None, status) for settings, status in zip(space, 2 * ends, strict=True)]
    output = "; ".join(f"{status}: for a reason" for status in sorted(ends))
    assert verdict_of(cell(), *tried, published=appendix_j(gpus=8)).reason == output


def test_without_records_no_cell_passes() -> None:
    found = judge_tables([], 0.15)
    assert len(found) == 288
    assert {verdict.verdict for verdict in found} == {"not_measured"}


def test_the_h100_reproduces_8_of_its_14_cells_and_5_by_the_authors_clock() -> None:
    found = [
        verdict
        for folder in ("text", "vision")
        for verdict in read(ROOT / "results" / "h100" / folder).verdicts
        if verdict.compared
    ]
    assert len(found) == 14

    def reproduced(clock: Clock) -> list[tuple[str, str]]:
        return [(one.table, one.model) for one in found if one.by(clock).verdict == "reproduced"]

    pythia_and_mamba = [("1", "Pythia-160M"), ("1", "Pythia-410M"), ("1", "Mamba")]
    infeasible = [("4", "Pythia-2.8B"), ("4", "Mamba")]
    naive = [("4", "Pythia-410M"), ("4", "Pythia-1B"), ("4", "RoBERTa")]
    assert sorted(reproduced("true")) == sorted(pythia_and_mamba + naive + infeasible)
    by_authors = [("1", "Mamba"), ("4", "Pythia-160M"), ("4", "Pythia-410M"), *infeasible]
    assert sorted(reproduced("authors")) == sorted(by_authors)


def test_the_h100_cells_say_what_explains_their_difference() -> None:
    verdicts = {
        (one.table, one.model): one for one in read(ROOT / "results" / "h100" / "text").verdicts if one.compared
    }
    assert verdicts["4", "Pythia-160M"].reason.startswith("the launch queue and the stack explain it: 36.5 days")
    assert verdicts["1", "Pythia-1B"].reason == (
        "the launch queue, the micro batch and the stack explain it: 19.4 days by the authors' clock x 30 predicted "
        "at MBS 8 on the paper's stack / 19 predicted at MBS 16 on today's stack = 30.6 days"
    )
    assert verdicts["1", "RoBERTa"].reason == "not explained"


def test_a_failing_cell_is_reported_in_one_line_with_all_one_needs() -> None:
    output = explain(verdict_of(cell(), record("free_lunch+zero_1", 30.0)))
    assert "\n" not in output
    for part in ("Table 1, Pythia-1B on 4 A100", "printed 18 days", "measured 30.0 true days",
                 "(20.0 days by the authors' clock)", "slower", "free_lunch+zero_1", "MBS 16, the launch queue",
                 "; raw times in trials.jsonl"):  # fmt: skip
        assert part in output


def test_a_cell_says_that_its_model_was_measured_uncompiled() -> None:
    crashed = verdict_of(cell(), record("free_lunch", 18.0, compiled=False), published=appendix_j("none"))
    assert (crashed.verdict, crashed.reason) == ("reproduced", "measured uncompiled, for compiling it crashed")
    slow = verdict_of(cell(), record("free_lunch", 30.0, compiled=False), published=appendix_j("none"))
    assert "; measured uncompiled, for compiling it crashed; raw times" in explain(slow)
    assert verdict_of(cell(), record("free_lunch", 18.0), published=appendix_j(None)).reason == ""
    for never in (
        verdict_of(cell("4", 41), record("naive", 41.0, ran_tf32=False)),
        verdict_of(cell(), record("free_lunch+zero_1", 18.0)),
    ):
        assert (never.verdict, never.reason) == ("reproduced", ""), "nothing asked to compile it, or for that TF32"


def test_every_published_settings_is_in_the_search_space() -> None:
    for row in published_settings():
        for settings in row.readings():
            assert settings in search_space(row.gpus)
            assert settings != NAIVE
