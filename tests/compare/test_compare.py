"""`repro compare`: two runs trial by trial, what each status takes, and what changed besides speed."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.compare.changes import changes
from repro.compare.report import exit_code
from repro.compare.side import Side, read_side, step_seconds
from repro.compare.side import of_starts as medians_of_starts
from repro.compare.trials import Compared, SideStats, compare, compare_trial
from repro.console import UserError
from repro.machine.environment import Environment
from repro.machine.host import Host
from repro.record import Record
from tests.support.command_line import ROOT, altered, record, refusal, repro, results_folder

RUN = ROOT / "results" / "cpu-2-cores"
KEYS = {
    "recipe",
    "settings",
    "machine",
    "micro_batch",
    "before_median",
    "after_median",
    "ratio",
    "ratio_low",
    "ratio_high",
    "before_peak_memory",
    "after_peak_memory",
    "before_days",
    "after_days",
    "status",
    "reason",
}


def processes(factor: float = 1.0, count: int = 10, noise: float = 0.005, seed: int = 1, **known: Any) -> list[Record]:
    """One trial, as so many processes of a check measured it: naive Pythia-1B, 60 days times `factor`."""
    drawn, known = random.Random(seed), {"peak_memory": 10**9, **known}
    days = [60 * factor * drawn.lognormvariate(0, noise) for _ in range(count)]
    return [altered(record("pythia-1b", "naive", each, **known), pair=str(at)) for at, each in enumerate(days)]


def apart(factor: float = 1.0, **known: Any) -> list[Record]:
    """The same of runs that were not interleaved."""
    return [altered(each, pair=None) for each in processes(factor, **known)]


def compared(tmp_path: Path, before: Sequence[Record], after: Sequence[Record]) -> tuple[dict[str, Any], int]:
    """What `repro compare --format json` says of two folders with these records, and its exit code."""
    folders = [results_folder(tmp_path / name, *side) for name, side in (("before", before), ("after", after))]
    done = repro("compare", *map(str, folders), "--format", "json")
    assert all("environment.json: missing: " in line for line in done.stderr.splitlines()), done.stderr
    return json.loads(done.stdout), done.returncode


def status(tmp_path: Path, before: Sequence[Record], after: Sequence[Record]) -> tuple[str, str, int]:
    found, code = compared(tmp_path, before, after)
    [row] = found["trials"]
    assert row.keys() >= KEYS
    assert found["counts"][row["status"]] == 1
    return row["status"], row["reason"], code


def test_memory_of_gpus_is_written_out(tmp_path: Path) -> None:
    sides = (processes(count=1, peak_memory=95_000 * 2**20), processes(count=1, peak_memory=900 * 2**20))
    folders = [results_folder(tmp_path / name, *side) for name, side in zip(("before", "after"), sides, strict=True)]
    assert "95000, 900" in repro("compare", *map(str, folders)).stdout


# --- Every status, and its exit code ---


def test_a_slower_step_regressed(tmp_path: Path) -> None:
    found, code = compared(tmp_path, processes(), processes(1.1, seed=2))
    [row] = found["trials"]
    assert (row["status"], code) == ("regressed", 1)
    assert row["ratio_low"] < 1.1 < row["ratio_high"]
    assert 1 < row["ratio_low"] < row["ratio"] < row["ratio_high"]
    assert row["after_median"] / row["before_median"] == pytest.approx(1.1, rel=0.02)
    assert row["after_days"] / row["before_days"] == pytest.approx(1.1, rel=0.02)
    assert "slower" in found["verdict"]
    assert "pythia-1b" in found["verdict"]


def test_days_are_reported_of_what_somebody_would_train_and_not_of_its_tiny_twin(tmp_path: Path) -> None:
    tiny = record("vit", "naive", 0.1, scale="tiny")
    found, _ = compared(tmp_path, [*processes(), tiny], [*processes(), tiny])
    days = {row["scale"]: (row["before_days"], row["after_days"]) for row in found["trials"]}
    assert None not in days["paper"]
    assert days["tiny"] == (None, None)
    assert all(row["before_median"] > 0 for row in found["trials"])
    assert " -, - " not in repro("compare", str(tmp_path / "before"), str(tmp_path / "after")).stdout


def test_a_faster_step_improved(tmp_path: Path) -> None:
    found, code = compared(tmp_path, processes(), processes(0.9, seed=2))
    assert ([row["status"] for row in found["trials"]], code) == (["improved"], 0)
    by = found["trials"][0]["reason"].partition(" faster")[0]
    assert found["verdict"].endswith(f"nothing regressed (1 improved): pythia-1b, naive, 4 x A100 {by} faster.")


def test_a_step_within_3_percent_is_unchanged(tmp_path: Path) -> None:
    assert status(tmp_path, processes(), processes(1.01, seed=2))[::2] == ("unchanged", 0)


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        pytest.param(processes(noise=0.1), processes(1.05, noise=0.1, seed=2), "inconclusive", id="noise"),
        pytest.param(processes(count=8), processes(1.2, count=8), "inconclusive", id="too few pairs"),
        pytest.param(processes(count=9), processes(1.2, count=9), "regressed", id="enough pairs"),
        pytest.param(apart(), apart(1.2, seed=2), "regressed", id="apart, beyond drift"),
        pytest.param(apart(), apart(0.8, seed=2), "improved", id="apart, faster beyond drift"),
        pytest.param(apart(), apart(1.08, seed=2), "inconclusive", id="apart, within drift"),
        pytest.param(apart(), apart(seed=2), "inconclusive", id="apart, the same"),
        pytest.param(processes(), apart(1.2, seed=2), "regressed", id="pairs of one side"),
    ],
)
def test_pairs_are_judged_by_the_rule_and_other_runs_by_drift(
    before: list[Record], after: list[Record], status: str
) -> None:
    assert compare_trial(before, after).status == status


def test_pairs_of_two_checks_are_not_interleaved_with_each_other() -> None:
    later = [altered(each, pair=f"another {each.pair}") for each in processes(seed=2)]
    for after, interleaved in ((processes(seed=2), True), (later, False)):
        judged = compare_trial(processes(), after).judged
        assert judged is not None
        assert judged.interleaved is interleaved


def test_one_process_a_side_gives_the_difference_alone(tmp_path: Path) -> None:
    found, reason, code = status(tmp_path, apart(count=1), apart(3.0, count=1))
    assert (found, code) == ("inconclusive", 3)
    assert reason.startswith("200.0% slower (too few for an interval), not interleaved; it would have to lie beyond an")


@pytest.mark.parametrize(("drift", "code"), [("10%", 3), ("5%", 1), ("7.5%", 1), ("100%", 3)])
def test_drift_is_an_option_that_the_answer_names(tmp_path: Path, drift: str, code: int) -> None:
    sides = [str(results_folder(tmp_path / str(factor), *apart(factor))) for factor in (1.0, 1.09)]
    done = repro("compare", *sides, "--drift", drift)
    assert done.returncode == code
    assert f"an allowance of {drift} for drift from run to run (--drift)" in " ".join(done.stdout.split())


@pytest.mark.parametrize("drift", ["10", "0.1", "-1%", "101%", "%", "a lot"])
def test_a_drift_that_is_no_share_is_refused(drift: str) -> None:
    expected = f"repro: --drift {drift}: expected a share from 0% to 100%, such as 10%\n"
    assert refusal("compare", str(RUN), str(RUN), f"--drift={drift}") == expected


def test_runs_apart_that_decide_nothing_name_the_command_that_would(tmp_path: Path) -> None:
    for name, version in (("before", "4.57.0"), ("after", "5.0.0")):
        environment(
            results_folder(tmp_path / name, *apart()), packages={"transformers": version, "torch": "2.11.0+cpu"}
        )
    done = repro("compare", str(tmp_path / "before"), str(tmp_path / "after"))
    command = f"compare --against transformers==5.0.0, on the stack of {tmp_path / 'before'}."
    assert done.returncode == 3
    assert command in done.stdout
    environment(tmp_path / "after", packages={f"package-{number}": "2" for number in range(9)})
    environment(tmp_path / "before", packages={f"package-{number}": "1" for number in range(9)})
    done = repro("compare", str(tmp_path / "before"), str(tmp_path / "after"))
    assert f"compare --against 'the lock of the stack of {tmp_path / 'after'}'" in done.stdout
    environment(tmp_path / "after", packages={f"package-{number}": "1" for number in range(9)})
    done = repro("compare", str(tmp_path / "before"), str(tmp_path / "after"))
    assert "Both sides have the same packages, so there is no upgrade to decide on." in done.stdout


def test_processes_of_one_start_are_one_sample(tmp_path: Path) -> None:
    sides = [apart(), apart(1.2, seed=2)]
    for side in sides:
        for number, each in enumerate(side):
            each.stack_started = float(number // 2)
    found, _ = compared(tmp_path, *sides)
    assert (found["trials"][0]["samples"], found["trials"][0]["interleaved"]) == (5, False)
    for side in sides:
        for number, each in enumerate(side):
            each.pair = str(number // 2)
    found, _ = compared(tmp_path / "pairs", *sides)
    assert (found["trials"][0]["samples"], found["trials"][0]["interleaved"]) == (5, True)


def test_a_trial_with_more_rounds_that_fails_breaks_nothing(tmp_path: Path) -> None:
    longer = replace(record("pythia-1b", "naive", None, status="timed_out"), id="pythia-1b/paper/4xA100/naive/5-rounds")
    found, code = compared(tmp_path, processes(), [*processes(seed=2), longer])
    assert ([row["status"] for row in found["trials"]], code) == (["unchanged"], 0)


@pytest.mark.parametrize("failure", ["crashed", "out_of_memory", "unsupported", "timed_out"])
def test_a_trial_that_ran_before_and_fails_now_broke(tmp_path: Path, failure: Any) -> None:
    failed = record("pythia-1b", "naive", None, status=failure, reason="no such kernel")
    found, reason, code = status(tmp_path, processes(), [failed])
    assert (found, code) == ("broke", 1)
    assert reason == f"{failure}: no such kernel"


def test_a_trial_that_failed_before_and_runs_now_is_fixed(tmp_path: Path) -> None:
    failed = record("pythia-1b", "naive", None, status="crashed", reason="no such kernel")
    assert status(tmp_path, [failed], processes()) == ("fixed", "crashed: no such kernel", 0)


def test_what_a_search_skipped_did_not_break(tmp_path: Path) -> None:
    skipped = record("pythia-1b", "naive", None, status="skipped", reason="predicted at best 2 s")
    assert status(tmp_path, processes(), [*processes(seed=2), skipped])[0] == "unchanged"


def test_a_crash_that_was_mended_counts_no_more(tmp_path: Path) -> None:
    failed = record("pythia-1b", "naive", None, status="crashed", reason="cosmic ray")
    assert status(tmp_path, processes(), [failed, *processes(seed=2)])[0] == "unchanged"


def starts(folder: Path, factor: float, failing: Sequence[int], status: Any = "crashed") -> str:
    """A folder of eight results folders, of which these failed."""
    failed = record("pythia-1b", "naive", None, status=status, reason="no such kernel")
    for number, each in enumerate(processes(factor, count=8)):
        results_folder(folder / str(number), failed if number in failing else each)
    return str(folder)


def of_starts(folder: Path, before: Sequence[int], after: Sequence[int], factor: float = 1.0) -> tuple[Any, int]:
    """What is said of two sides of eight starts of which these crashed."""
    sides = starts(folder / "before", 1.0, before), starts(folder / "after", factor, after)
    done = repro("compare", *sides, "--format", "json")
    [row] = json.loads(done.stdout)["trials"]
    assert (row["before_failed"], row["after_failed"]) == (len(before), len(after))
    return row, done.returncode


@pytest.mark.parametrize("failing", [[0], [7], [3], range(7), range(1, 8), range(8)], ids=str)
def test_a_trial_that_fails_in_any_start_where_none_failed_broke(tmp_path: Path, failing: Sequence[int]) -> None:
    row, code = of_starts(tmp_path, [], failing)
    assert (row["status"], code) == ("broke", 1)
    assert row["reason"] == f"{len(failing)} of 8 processes crashed: no such kernel"


@pytest.mark.parametrize(("failing", "status"), [(range(8), "fixed"), ([0], "inconclusive")], ids=["all", "one"])
def test_a_trial_that_fails_no_more_is_fixed_where_it_never_ran(
    tmp_path: Path, failing: Sequence[int], status: str
) -> None:
    row, _ = of_starts(tmp_path, failing, [], factor=1.2)
    assert row["status"] == status
    assert row["reason"].split(";")[0] == f"{len(failing)} of 8 processes crashed: no such kernel"


def test_where_both_sides_fail_both_counts_are_reported_and_times_decide(tmp_path: Path) -> None:
    output = "before, 2 of 8 processes crashed: no such kernel; after, 1 of 8 processes crashed: no such kernel; "
    row, code = of_starts(tmp_path, [0, 5], [5])
    assert (row["status"], code) == ("unchanged", 0)
    assert row["reason"].startswith(output)


def test_failures_are_reported_by_status_in_any_order() -> None:
    known = Environment(host=Host("One"))
    failed = [
        record("pythia-1b", "naive", None, status="timed_out", reason="an hour"),
        *(record("pythia-1b", "naive", None, status="crashed", reason=why) for why in ("a bus", "a fork", "a fork")),
    ]
    for order in (failed, failed[::-1]):
        after = Side("after", (*order, *processes(count=4)), known)
        [one] = compare(Side("before", tuple(processes()), known), after)
        assert one.reason == "3 of 8 processes crashed: a fork, 1 of 8 processes timed_out: an hour"


@pytest.mark.parametrize("last", ["ok", "interrupted"])
def test_what_was_measured_again_in_its_folder_is_no_start_of_its_own(tmp_path: Path, last: Any) -> None:
    failed, again = (record("pythia-1b", "naive", None, status="crashed", reason=why) for why in ("once", "twice"))
    end = processes()[0] if last == "ok" else record("pythia-1b", "naive", None, status=last)
    results_folder(tmp_path / "1", failed, again, end)
    output = [each.reason for each in read_side(tmp_path).records if each.status == "crashed"]
    assert output == ([] if last == "ok" else ["twice"])


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"gpu": "H100"}, "another device: A100, then H100"),
        ({"micro_batch": 8}, "another largest micro batch: 4, then 8"),
        ({"weights": 2}, "another recipe: weights 1, then 2"),
    ],
)
def test_what_is_not_alike_is_incomparable(tmp_path: Path, other: dict[str, Any], why: str) -> None:
    before, after = processes(weights=1), processes(1.5, **{"weights": 1, **other})
    assert status(tmp_path, before, after) == ("incomparable", why, 3)


def test_a_side_of_two_recipes_is_incomparable(tmp_path: Path) -> None:
    mixed = [*processes(count=5, weights=1), *processes(count=5, weights=2)]
    found = status(tmp_path, mixed, processes(seed=2, weights=2))
    assert found == ("incomparable", "another recipe: weights 1 or 2, then 2", 3)


BEFORE, AFTER, SLOWER = processes(count=16), processes(count=16, seed=2), processes(1.1, count=16, seed=2)


def halved(side: list[Record], few: int = 3) -> list[Record]:
    """Replace the last processes by slower ones at micro batch 2; the others have 4."""
    return side[:-few] + processes(1.3, count=len(side), micro_batch=2)[-few:]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        pytest.param(BEFORE, halved(AFTER), "inconclusive", id="smaller batch more often"),
        pytest.param(halved(BEFORE), AFTER, "unchanged", id="smaller batch less often"),
        pytest.param(BEFORE, halved(SLOWER), "regressed", id="slower at the common batch"),
        pytest.param(halved(BEFORE), halved(AFTER, 5), "inconclusive", id="both, and more often"),
    ],
)
def test_ratio_uses_the_common_micro_batch(before: list[Record], after: list[Record], status: str) -> None:
    found = compare_trial(before, after)
    assert (found.status, found.trial.batch.micro_batch) == (status, 4)
    assert found.judged is not None
    assert found.judged.ratio == pytest.approx(1.1 if after[0] is SLOWER[0] else 1.0, abs=0.01)
    assert found.judged.samples == min(found.before.processes, found.after.processes)


def test_processes_of_a_smaller_micro_batch_are_counted() -> None:
    found = compare_trial(BEFORE, halved(AFTER))
    assert (found.before.processes, found.after.processes) == (16, 13)
    assert found.reason.startswith(
        "a smaller micro batch more often: of all processes those of micro batch 4 alone are compared, 16 of 16 before "
        "and 13 of 16 after (micro batch 4 in 16; then 4 in 13 and 2 in 3); "
    )
    assert "micro batch: 4 in 16 processes, then 4 in 13 and 2 in 3 processes" in found.changes


def sides(**changed: Any) -> list[Side]:
    """Ten processes twice, those of the second side changed."""
    known = Environment(host=Host("One"))
    later = [altered(each, **changed) for each in processes(seed=2)]
    return [Side("before", tuple(processes()), known), Side("after", tuple(later), known)]


@pytest.mark.parametrize("changed", [{"memory_limit": 2**30}, {"nodes": 2}, {"count": 2}, {"scale": "tiny"}])
def test_trials_of_another_size_are_not_the_same_trial(changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="no trial in common"):
        compare(*sides(**changed))


@pytest.mark.parametrize(
    ("statuses", "code"),
    [
        (["unchanged", "improved", "fixed", "incomparable"], 0),  # what ran on neither side is no question
        (["incomparable", "incomparable"], 3),
        (["unchanged", "inconclusive"], 3),
        (["inconclusive", "broke"], 1),
        (["inconclusive", "regressed"], 1),
    ],
)
def test_the_exit_code_is_the_worst_that_is_known(statuses: list[Any], code: int) -> None:
    half = SideStats(0, 0, None, None, None)
    assert exit_code([Compared(processes(count=1)[0], half, half, each, "") for each in statuses]) == code


def test_a_measured_trial_that_is_incomparable_leaves_the_answer_open_and_is_named(tmp_path: Path) -> None:
    other = [record("vit", "naive", 3.0, micro_batch=size) for size in (4, 2)]
    found, code = compared(tmp_path, [*processes(), other[0]], [*processes(seed=2), other[1]])
    assert ([row["status"] for row in found["trials"]], code) == (["unchanged", "incomparable"], 3)
    output = (
        "inconclusive (1 unchanged, 1 incomparable): vit, naive, 4 x A100 incomparable (another largest micro batch: 4,"
    )
    assert output in found["verdict"]


def test_what_runs_on_neither_side_spoils_no_answer(tmp_path: Path) -> None:
    never = record("vit", "naive", None, status="unsupported", reason="no such kernel")
    found, code = compared(tmp_path, [*processes(), never], [*processes(seed=2), never])
    assert ([row["status"] for row in found["trials"]], code) == (["unchanged", "incomparable"], 0)
    assert found["verdict"].endswith("nothing regressed (1 unchanged, 1 incomparable).")


def test_a_step_is_that_from_an_idle_device_to_an_idle_device() -> None:
    waited = altered(processes(count=1)[0], synchronised_step=3.0, true_step=2.0)
    assert step_seconds(waited) == 3.0
    assert step_seconds(altered(waited, synchronised_step=None)) == 2.0


def test_a_start_of_separate_runs_is_the_median_of_its_processes() -> None:
    output = [altered(each, stack_started=float(number // 3)) for number, each in enumerate(apart(count=9))]
    for each, seconds in zip(output, (1, 2, 9, 3, 3, 3, 7, 5, 6), strict=True):
        each.derived = replace(each.derived, synchronised_step=seconds)
    assert medians_of_starts(output, step_seconds) == [2, 3, 6]


def test_small_warm_ups_and_the_last_digits_of_a_loss_are_no_change() -> None:
    [one] = processes(count=1, warm_up_seconds=0.3, losses=[1000.0, 0.01])
    assert changes([one], [altered(one, warm_up_seconds=0.9, losses=[1000.9, 0.01])]) == []
    assert [*changes([one], [altered(one, losses=[1000.0, 0.0101])])] == ["loss of micro-step 2: 0.01, then 0.0101"]


@pytest.mark.parametrize(
    ("what", "field", "unit"), [("peak memory", "peak_memory", 2**20), ("compiling and warm-up", "warm_up_seconds", 1)]
)
def test_a_peak_and_compiling_on_a_cpu_have_move_more_before_they_have_changed(
    what: str, field: str, unit: int
) -> None:
    def of(*values: int, device: str = "cpu") -> list[Record]:
        return [replace(processes(count=1, **{field: each * unit})[0], device=device) for each in values]

    def output(before: list[Record], after: list[Record]) -> list[str]:
        return [found.partition(":")[0] for found in changes(before, after)]

    assert output(of(100), of(129)) == []
    assert output(of(100, 101, 102, 103), of(133, 134, 135, 136)) == [what]
    assert output(of(100, device="A100"), of(129, device="A100")) == [what]


def test_a_peak_that_cannot_be_one_is_reported_as_it_is() -> None:
    of = [altered(processes(count=1)[0], device="cpu", peak_memory=mib * 2**20) for mib in (100, -1)]
    assert [found.partition(":")[0] for found in changes(of[:1], of[1:])] == ["peak memory"]


def test_the_same_kernels_in_another_order_are_no_change() -> None:
    one, other = (processes(count=1, kernel_path=f"{name} attention")[0] for name in ("flash", "math"))
    assert changes([one, other], [other, one]) == []
    assert [*changes([other, one], [one])] == ["kernel path: flash attention or math attention, then flash attention"]


def test_tf32_that_was_asked_for_and_did_not_run_is_a_change() -> None:
    ran, not_run, unknown = (processes(count=1, tf32=True, ran_tf32=ran) for ran in (True, False, None))
    assert [*changes(ran, not_run)] == ["TF32: on, then off"]
    assert changes(ran, unknown) == [], "where nobody looked it is taken to be as asked"


def test_the_help_names_all_that_is_compared() -> None:
    output = repro("compare", "--help").stdout
    for part in ("a results folder", "a folder of such folders", "--against"):
        assert part in output


def test_samples_of_a_throttled_gpu_are_discarded_and_counted(tmp_path: Path) -> None:
    hot = {"throttle_reasons": 0x40}
    before = processes() + processes(2.0, count=3, gpu_state=[hot])
    found, code = compared(tmp_path, before, processes(seed=2))
    [row] = found["trials"]
    assert (row["status"], row["before_discarded"], row["before_processes"], code) == ("unchanged", 3, 10, 0)
    found, code = compared(tmp_path / "all", processes(gpu_state=[hot]), processes(seed=2))
    [row] = found["trials"]
    assert (row["status"], row["before_discarded"], row["before_processes"], code) == ("incomparable", 10, 0, 3)
    assert "throttled" in row["reason"]


def test_memory_that_another_process_held_breaks_nothing(tmp_path: Path) -> None:
    full = record("pythia-1b", "naive", None, status="out_of_memory", reason="full", gpu_state=[{"processes": 2}])
    broken = record("pythia-1b", "naive", None, status="out_of_memory", reason="full", gpu_state=[{"processes": 1}])
    output = "its one sample was discarded: another process used the GPU"
    assert status(tmp_path / "all", processes(), [full]) == ("incomparable", output, 3)
    assert status(tmp_path / "alone", processes(), [broken])[::2] == ("broke", 1)
    for name, each in (("1", full), *((str(number), one) for number, one in enumerate(processes(count=10), 2))):
        results_folder(tmp_path / "some" / name, each)
    good = results_folder(tmp_path / "good", *processes())
    [row] = json.loads(repro("compare", str(good), str(tmp_path / "some"), "--format", "json").stdout)["trials"]
    assert (row["status"], row["after_discarded"], row["after_failed"]) == ("unchanged", 1, 0)


# --- Where the records come from ---


def test_a_real_run_against_itself_is_never_called_changed() -> None:
    done = repro("compare", str(RUN), str(RUN), "--format", "json")
    found = json.loads(done.stdout)
    measured = {row["status"] for row in found["trials"] if row["ratio"] is not None}
    assert {row["ratio"] for row in found["trials"]} <= {1.0, None}
    assert measured <= {"inconclusive", "unchanged"}
    assert done.returncode == 3
    assert len(found["trials"]) == len((RUN / "trials.jsonl").read_text().splitlines())


def test_every_folder_in_a_folder_is_one_more_process(tmp_path: Path) -> None:
    for name, factor in (("before", 1.0), ("after", 1.2)):
        for number, each in enumerate(processes(factor, count=10, seed=number_of(name))):
            results_folder(tmp_path / name / str(number), each)
    done = repro("compare", str(tmp_path / "before"), str(tmp_path / "after"), "--format", "json")
    [row] = json.loads(done.stdout)["trials"]
    assert (row["status"], row["before_processes"], row["after_processes"]) == ("regressed", 10, 10)


def number_of(name: str) -> int:
    return len(name)


def test_a_folder_without_trials_among_those_of_a_side_is_reported(tmp_path: Path) -> None:
    good = results_folder(tmp_path / "good", *processes())
    environment(good)
    for number, each in enumerate(processes(count=2)):
        environment(results_folder(tmp_path / "side" / str(number), each))
    environment(results_folder(tmp_path / "side" / "2"))
    (tmp_path / "side" / "3").mkdir()
    output = repro("compare", str(tmp_path / "side"), str(good)).stderr.splitlines()
    side = tmp_path / "side"
    assert output == [f"repro: {side / name}: it holds no trials that can be used; it was left out" for name in "23"]


def test_trials_of_one_side_alone_are_left_out_and_named(tmp_path: Path) -> None:
    stopped = record("vit", "naive", None, status="interrupted")
    before = results_folder(tmp_path / "before", *processes(), *(record(id, "naive", 3.0) for id in ("vit", "roberta")))
    after = results_folder(tmp_path / "after", *processes(seed=2), stopped, record("mamba", "naive", 3.0))
    done = repro("compare", str(before), str(after), "--all")
    assert done.returncode == 0
    assert "nothing regressed (1 unchanged; 2 trials only before; 1 trial only after)." in done.stdout.splitlines()[0]
    named = "vit, naive, 4 x A100 (interrupted after); roberta, naive, 4 x A100 (not recorded after)"
    assert f"Only in {before}, and left out: 2 trials: {named}." in done.stdout
    assert f"Only in {after}, and left out: 1 trial: mamba, naive, 4 x A100 (not recorded before)." in done.stdout
    assert "vit" not in repro("compare", str(before), str(after)).stdout

    found = json.loads(repro("compare", str(before), str(after), "--format", "json").stdout)
    left_out = [*found["only_before"], *found["only_after"]]
    output = [tuple(row[name] for name in ("recipe", "status", "reason")) for row in left_out]
    assert output == [
        ("vit", "only_before", "interrupted after"),
        ("roberta", "only_before", "not recorded after"),
        ("mamba", "only_after", "not recorded before"),
    ]
    rows = list(csv.DictReader(io.StringIO(repro("compare", str(before), str(after), "--format", "csv").stdout)))
    assert [row["recipe"] for row in rows] == ["pythia-1b", "vit", "roberta", "mamba"]
    assert [float(row["before_median"]) for row in rows[1:3]] == [row["before_median"] for row in left_out[:2]]


def test_of_many_trials_of_one_side_alone_the_first_are_named(tmp_path: Path) -> None:
    ids = [id for id in models.IDS if id != "pythia-1b"]
    more = [record(id, settings, 3.0) for settings in ("naive", "free_lunch") for id in ids]
    before = results_folder(tmp_path / "before", *processes(), *more)
    after = results_folder(tmp_path / "after", *processes(seed=2))
    output = repro("compare", str(before), str(after), "--all").stdout
    assert f"left out: {len(more)} trials: {ids[0]}, naive, 4 x A100 (not recorded after); " in output
    assert f"; and {len(more) - 8} more." in output


TAMPERED: list[dict[str, Any]] = [
    {"synchronised": []},
    {"accumulation": 3},
    {"id": "x"},
    {"recipe": "x"},
    {"id": "pythia-160m/tiny/1xcpu/naive+checkpointing"},  # which begins as naive's does
]


@pytest.mark.parametrize("changed", TAMPERED, ids=str)
def test_a_record_that_was_tampered_with_is_left_out_and_reported(changed: dict[str, Any], tmp_path: Path) -> None:
    folder = shutil.copytree(RUN, tmp_path / "run")
    rows = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    rows[0] |= changed
    (folder / "trials.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {}]))
    done = repro("compare", str(RUN), str(folder), "--format", "json")
    output = done.stderr.splitlines()
    where = f"{folder / 'trials.jsonl'}, line 1"
    assert output[0].startswith(f"repro: {where}: {rows[0]['id']} was tampered with or damaged: ")
    assert output[0].endswith("; the record was left out")
    assert len(output) == 2
    assert (len(json.loads(done.stdout)["trials"]), done.returncode) == (56, 3)


def test_what_else_is_wrong_with_a_run_is_reported_as_elsewhere(tmp_path: Path) -> None:
    folder = shutil.copytree(RUN, tmp_path / "run")
    trials = folder / "trials.jsonl"
    trials.write_text(trials.read_text() + '{"id": ')
    (folder / "environment.json").write_text("{")
    done = repro("compare", str(RUN), str(folder))
    assert done.returncode == 3
    torn, other = done.stderr.splitlines()
    assert torn == f"repro: {trials}: the last line is torn, its trial was stopped; it was left out"
    assert other.startswith(f"repro: {folder}/environment.json: it describes no run (not JSON (")
    beside = repro("table", "1", "--measured", str(folder)).stderr
    assert {torn, other} <= set(beside.splitlines())


def test_a_side_of_which_no_record_is_left_is_refused_with_the_reason(tmp_path: Path) -> None:
    good = results_folder(tmp_path / "good", *processes())
    damaged = results_folder(tmp_path / "damaged", *processes())
    text = (damaged / "trials.jsonl").read_text()
    (damaged / "trials.jsonl").write_text(text.replace('"with": [', '"with": [0, '))
    done = repro("compare", str(good), str(damaged))
    assert (done.returncode, done.stdout) == (2, "")
    left_out, last = [line for line in done.stderr.splitlines() if "environment.json" not in line]
    assert "and 9 more lines are invalid; these lines were left out" in left_out
    assert last.startswith(f"repro: {damaged} holds no trials that can be used: ")


# --- What is told ---


def environment(folder: Path, **changed: Any) -> None:
    known = json.loads((RUN / "environment.json").read_text())
    packages = known["packages"] | changed.pop("packages", {})
    (folder / "environment.json").write_text(json.dumps(known | {"packages": packages} | changed))


def test_environments_are_compared_package_by_package_on_top(tmp_path: Path) -> None:
    state = [{"sm_mhz": 1400, "throttle_reasons": 0}]
    before = results_folder(tmp_path / "before", *processes(gpu_state=state))
    after = results_folder(tmp_path / "after", *processes(gpu_state=[state[0] | {"sm_mhz": 1700}]))
    gpus = [{"name": "A100", "driver_name": "NVIDIA A100-SXM4-80GB", "memory_bytes": 1}]
    environment(before, gpus=gpus, driver="550.1")
    environment(after, gpus=gpus * 2, driver="570.2", packages={"transformers": "9.0.0", "newcomer": "1.0"})
    done = repro("compare", str(before), str(after), "--format", "json")
    rows = {row["what"]: (row["before"], row["after"]) for row in json.loads(done.stdout)["environment"]}
    assert rows == {
        "transformers": ("5.23.0", "9.0.0"),
        "newcomer": (None, "1.0"),
        "driver": ("550.1", "570.2"),
        "GPUs": ("1 x NVIDIA A100-SXM4-80GB", "2 x NVIDIA A100-SXM4-80GB"),
        "GPU clock, MHz": ("1400", "1700"),
    }
    told, _, environments = repro("compare", str(before), str(after), "--all").stdout.partition("\nENVIRONMENT\n")
    assert "\n- Also different: transformers 5.23.0 to 9.0.0, driver 550.1 to 570.2, GPUs 1 x NVIDIA" in told
    assert environments.index("transformers") < environments.index("newcomer ")


def pair(folder: Path, *known: dict[str, Any]) -> Path:
    """A side of two runs, each with its environment."""
    for number, changed in enumerate(known):
        environment(results_folder(folder / str(number), *processes(count=1)), **changed)
    return folder


def test_what_the_runs_of_a_side_do_not_agree_on_is_reported(tmp_path: Path) -> None:
    one, other = {"commit": "a", "host": {"kernel": "6.1"}}, {"commit": "b", "host": {"kernel": "6.2"}}
    mixed = pair(tmp_path / "mixed", one, other | {"variables": {"OMP_NUM_THREADS": "1"}})
    turned = pair(tmp_path / "turned", other, one)
    for sides, kernels in (([mixed, pair(tmp_path / "plain", one, one)], "6.1"), ([mixed, turned], "6.1; 6.2")):
        found = json.loads(repro("compare", *map(str, sides), "--format", "json").stdout)["environment"]
        rows = {row["what"]: (row["before"], row["after"]) for row in found}
        assert rows["kernel"] == ("6.1; 6.2", kernels)
        assert rows["repro"][0] == "a; b"
        assert rows["variable OMP_NUM_THREADS"] == ("1; not set", None)


def test_commits_are_those_of_the_records_as_a_folder_may_have_gone_on_at_another(tmp_path: Path) -> None:
    one, other = processes(count=2, commit="a"), processes(count=2, commit="b")
    for name, records in (("resumed", [*one, *other]), ("later", other)):
        environment(results_folder(tmp_path / name, *records), commit="b")
    done = repro("compare", str(tmp_path / "resumed"), str(tmp_path / "later"), "--format", "json")
    output = {row["what"]: (row["before"], row["after"]) for row in json.loads(done.stdout)["environment"]}
    assert output["repro"] == ("a; b", "b")


def test_a_side_of_two_cpus_is_another_machine_than_a_side_of_one() -> None:
    one, other = (Environment(host=Host(cpu)) for cpu in ("One", "Other"))
    ran = tuple(replace(each, device="cpu") for each in processes(count=1))
    [found] = compare(Side("before", ran, one, others=(other,)), Side("after", ran, one))
    assert (found.status, found.reason) == ("incomparable", "another machine: One; Other, then One")


def test_what_one_side_does_not_record_of_its_environment_is_no_difference(tmp_path: Path) -> None:
    before, after = (results_folder(tmp_path / name, *processes()) for name in ("before", "after"))
    environment(after, variables={"OMP_NUM_THREADS": "1"})
    for sides in ((before, after), (after, before)):
        found = json.loads(repro("compare", *map(str, sides), "--format", "json").stdout)["environment"]
        assert {row["what"] for row in found} == {"GPUs", "repro"}


def test_another_cpu_is_another_machine(tmp_path: Path) -> None:
    hosts = {
        "one": {"cpu": "One", "physical_cores": 2},
        "other": {"cpu": "Other"},
        "more": {"cpu": "One", "physical_cores": 64},
        "all": {"cpu": "One", "physical_cores": 2, "usable_cpus": 4},
        "few": {"cpu": "One", "physical_cores": 2, "usable_cpus": 1},
    }
    for name, host in hosts.items():
        environment(
            results_folder(tmp_path / name, record("pythia-1b", "naive", 1.0, gpu="cpu", scale="tiny")), host=host
        )
    for before, after, output in (
        ("one", "other", "One, then Other"),
        ("one", "more", "2 cores, then 64 cores"),
        ("all", "few", "4 usable CPUs, then 1 usable CPU"),
    ):
        sides = str(tmp_path / before), str(tmp_path / after)
        found = json.loads(repro("compare", *sides, "--format", "json").stdout)
        [row] = found["trials"]
        assert (row["status"], row["reason"]) == ("incomparable", f"another machine: {output}")
        assert ("CPU cores" in {each["what"] for each in found["environment"]}) == (after == "more")


def test_what_changed_besides_speed_is_reported(tmp_path: Path) -> None:
    known: dict[str, Any] = {
        "kernel_path": "flash attention",
        "optimizer": "torch Adam (foreach)",
        "graphs": {"compiled": 1, "breaks": 0, "recompilations": 0},
        "warm_up_seconds": 20.0,
        "losses": [6.25, 6.2],
    }
    other: dict[str, Any] = {
        "kernel_path": "math attention",
        "optimizer": "torch Adam (fused)",
        "graphs": {"compiled": 3, "breaks": 2, "recompilations": 1},
        "warm_up_seconds": 60.0,
        "losses": [6.25, 6.4],
    }
    before, after = processes(**known), [*processes(seed=2, **other)]
    for each in after:
        each.observed.peak_memory = 2 * 10**9
    found, _ = compared(tmp_path, before, after)
    assert found["trials"][0]["changes"] == [
        "kernel path: flash attention, then math attention",
        "optimizer: torch Adam (foreach), then torch Adam (fused)",
        "graphs: 1, then 3",
        "graph breaks: 0, then 2",
        "recompilations: 0, then 1",
        "peak memory: 954 MiB, then 1907 MiB",
        "compiling and warm-up: 20 s, then 60 s",
        "loss of micro-step 2: 6.2, then 6.4",
    ]
    lost, _ = compared(tmp_path / "lost", before, processes(seed=2, **known | {"losses": [6.25, None]}))
    assert lost["trials"][0]["changes"] == ["loss of micro-step 2: 6.2, then not finite"]
    assert compared(tmp_path / "same", before, processes(seed=2, **known))[0]["trials"][0]["changes"] == []


@pytest.mark.parametrize(
    ("what", "said", "blank"),
    [
        *((what, "something", "") for what in ("kernel_path", "ran_precision", "wrapper", "optimizer")),
        ("graphs", {"compiled": 1, "breaks": 0, "recompilations": 0}, None),
        *((what, 20.0, None) for what in ("peak_memory", "warm_up_seconds")),
        ("losses", [6.25], None),
    ],
)
def test_what_one_side_does_not_record_is_no_change(what: str, said: Any, blank: Any) -> None:
    silent, telling = (processes(count=1, **{what: value}) for value in (blank, said))
    assert changes(silent, telling) == changes(telling, silent) == []
    assert changes([*silent, *telling], telling) == []


def test_markdown_begins_with_the_verdict(tmp_path: Path) -> None:
    folders = [results_folder(tmp_path / str(factor), *processes(factor)) for factor in (1.0, 1.1)]
    markdown = repro("compare", *map(str, folders), "--format", "markdown").stdout
    assert re.match(r"\S+ beside \S+: ", markdown)
    assert "| pythia-1b " in markdown
    assert "| regressed" in markdown


# --- Bad input ---


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    good = results_folder(tmp_path / "good", *processes())
    other = results_folder(tmp_path / "other", record("vit", "naive", 3.0))
    stopped = results_folder(tmp_path / "stopped", record("vit", "naive", None, status="interrupted"))
    empty, file = tmp_path / "empty", tmp_path / "benchmark.json"
    empty.mkdir()
    file.write_text("{}")
    for place, output in (
        (tmp_path / "nowhere", "holds no trials, there is no such folder"),
        (file, "holds no trials, it is a file"),
        (empty, "trials.jsonl is missing, where a run keeps its trials: name the results folder"),
        (other, "no trial in common"),
        (stopped, ": pythia-1b naive against none that came to an end"),
    ):
        done = repro("compare", str(good), str(place))
        assert (done.returncode, done.stdout) == (2, ""), place
        (line,) = [line for line in done.stderr.splitlines() if "environment.json: missing: " not in line]
        assert str(place) in line
        assert output in line


def test_one_side_alone_is_refused() -> None:
    done = repro("compare", str(RUN))
    assert done.returncode == 2
    assert "AFTER" in done.stderr


def test_a_side_is_one_stack(tmp_path: Path) -> None:
    for number in (1, 2):
        folder = results_folder(tmp_path / "side" / str(number), *processes(count=1))
        environment(folder, packages={"torch": f"{number}.0"})
    done = repro("compare", str(tmp_path / "side"), str(RUN))
    assert done.returncode == 2
    assert "a side is one stack" in done.stderr


def test_a_run_that_does_not_say_its_packages_is_taken_for_the_side_that_it_lies_in(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        folder = results_folder(tmp_path / "side" / str(number), *processes(count=1))
        environment(folder, packages={"torch": "2.0"})
    (tmp_path / "side" / "1" / "environment.json").write_text("{broken")
    (tmp_path / "side" / "2" / "environment.json").unlink()
    side = read_side(tmp_path / "side")
    assert len(side.records) == 3
    assert (side.environment.packages or {})["torch"] == "2.0"
