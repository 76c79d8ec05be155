"""The pool of real samples that the decision rule is held against, and the slowdown injected for it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import asking, power, slower
from repro.commands.against_options import BUDGET
from repro.compare.budget import FORKS, chosen_within, rounds
from repro.compare.decision import FIRST_LOOK
from repro.measure.launcher import ForkServer
from repro.record import Trial
from tests.support.command_line import ROOT, documentation


def test_an_injected_slowdown_is_of_the_size_it_says() -> None:
    import torch

    engine = SimpleNamespace(rank=SimpleNamespace(device=torch.device("cpu")), module=torch.nn.Linear(64, 64))

    def work(engine: object, seconds: float) -> str:
        time.sleep(seconds)
        return "done"

    longer = slower.slowed(work, 0.5)
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        assert longer(engine, 0.2) == "done"
        taken.append(time.perf_counter() - started)
    assert min(taken) == pytest.approx(0.3, rel=0.1)


@pytest.mark.slow
def test_an_environment_is_slowed_down_once_it_measures() -> None:
    code = (
        "import benchmarks.slower as slower; slower.when_measuring(0.5); slower.when_measuring(0.5)\n"
        "from repro.measure.engine.plain import PlainEngine; print(PlainEngine.update.__qualname__)\n"
        "print([cell.cell_contents for cell in PlainEngine.update.__closure__][-1].__qualname__)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "slowed.<locals>.longer\nPlainEngine.update\n"


@pytest.mark.nightly
def test_a_pool_is_collected_from_real_processes_start_by_start(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(power, "FORKS", 2)
    pool = tmp_path / "pool.jsonl"
    ask = asking(fork_server, tmp_path)

    def start() -> Iterator[power.Fork]:
        while True:
            yield {arm: power.sample(ask, share) for arm, share in power.ARMS.items()}

    power.collect(pool, 1, start, seconds=600)
    [found] = power.read(pool)
    assert list(found) == list(power.ARMS)
    [row] = map(json.loads, pool.read_text().splitlines())
    assert len(row["forks"]) == 2
    assert all(found[arm] == median(fork[arm] / fork["stack"] for fork in row["forks"]) > 0 for arm in power.ARMS)


@pytest.mark.slow
@pytest.mark.nightly
def test_every_arm_of_a_pool_has_a_stack_of_its_own_and_takes_turns() -> None:
    with closing(power.start(("stack", "copy"))) as forks:  # type: ignore[type-var]
        first, second = next(forks), next(forks)
    assert [list(first), list(second)] == [["stack", "copy"], ["copy", "stack"]]
    assert all(seconds > 0 for fork in (first, second) for seconds in fork.values())


def test_a_pool_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
    pool, starts = tmp_path / "pool.jsonl", 0

    def start() -> Iterator[power.Fork]:
        nonlocal starts
        starts += 1
        yield from [dict.fromkeys(power.ARMS, float(number)) | {"stack": 1.0} for number in range(1, 99)]

    power.collect(pool, 1, start, seconds=600)
    whole = pool.read_text()
    pool.write_text(whole + whole[:20])
    assert power.read(pool) == [dict.fromkeys(power.ARMS, (1 + FORKS) / 2) | {"stack": 1.0}]
    power.collect(pool, 3, start, seconds=600)
    assert [starts, len(power.read(pool))] == [3, 3]
    power.collect(pool, 9, start, seconds=-1)
    assert len(power.read(pool)) == 3, "the time was up"


@pytest.mark.parametrize("line", ["{", "[]", '{"start": 0, "forks": []}', '{"start": 0, "seconds": {"stack": 0.02}}'])
def test_a_line_that_is_no_start_is_reported_with_its_place(tmp_path: Path, line: str) -> None:
    pool = tmp_path / "pool.jsonl"
    pool.write_text(power.POOL.read_text().splitlines()[0] + "\n" + line + "\n")
    command = [sys.executable, "-m", "benchmarks.power", "--pool", str(pool)]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert [refused.returncode, refused.stdout] == [2, ""]
    assert refused.stderr.splitlines()[-1] == (
        f"power.py: error: {pool}:2 is no start of a pool, with seconds of stack, copy, 5 % slower, 10 % slower: "
        "remove it, or collect into another file"
    )
    assert "Traceback" not in refused.stderr


def test_windows_are_called_by_the_rule_and_end_where_a_check_would() -> None:
    starts: list[dict[str, Any]] = [{arm: 1 + share for arm, share in power.ARMS.items()} for _ in range(30)]
    rows = {(row["arm"], row["window"]): row for row in power.rows(starts)}
    assert rows["10 % slower", "18 pairs"]["regressed"] == rows["copy", "36 pairs"]["unchanged"] == 200
    assert [row["pairs"] for row in power.rows(starts)[:4]] == [18, 36, 48, FIRST_LOOK]


def test_windows_draw_every_start_as_often_as_any_other() -> None:
    starts: list[dict[str, Any]] = [{"copy": 1 + number} for number in range(50)]
    drawn = Counter(ratio for window in power.windows(starts, "copy", 18) for ratio in window)
    assert set(drawn.values()) == {200 * 18 // 50}


def test_the_largest_windows_are_what_the_default_budget_buys_for_one_trial() -> None:
    alone = [Trial("pythia-1b", "tiny", "naive", "cpu", 1, steps=rounds([]))]
    assert chosen_within(BUDGET, alone, [], None) == (alone, power.MOST)


@pytest.mark.slow
def test_the_pool_gives_the_power_that_the_documentation_tells() -> None:
    starts = power.read(power.POOL)
    assert len(starts) * FORKS >= 150, "processes a side"
    rows = {(row["arm"], row["window"]): row for row in power.rows(starts)}
    assert all(row["improved"] + row["regressed"] <= 1 for (arm, _), row in rows.items() if arm == "copy")
    assert rows["5 % slower", "18 pairs"]["regressed"] >= 190
    output = (ROOT / "docs" / "upgrades.md").read_text()
    windows = list(dict.fromkeys(window for _, window in rows))
    for arm, name in (("10 % slower", "10 % slower"), ("5 % slower", "5 % slower"), ("copy", "the stack itself")):
        cells = [str(rows[arm, window]["regressed"] + rows[arm, window]["improved"]) for window in windows]
        assert f"| {name} | {' | '.join(cells)} |" in output
    of_check = windows[-1]
    found, itself = rows["5 % slower", of_check], rows["copy", of_check]
    after = (
        f"ends after {found['pairs']:.0f} pairs in the mean, and one of the stack itself, which it calls `unchanged` in"
    )
    assert f"{after} {itself['unchanged']} of 200, after {itself['pairs']:.0f}" in documentation("docs/upgrades.md")
