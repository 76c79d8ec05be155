"""The pool of real samples that the decision rule is held against, and the slowdown injected for it."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import asking, power, slower
from repro.compare.interleave import TURNS
from repro.measure.launcher import ForkServer
from tests.command_line import ROOT


def test_an_injected_slowdown_is_of_the_size_it_says() -> None:
    import torch

    engine = SimpleNamespace(rank=SimpleNamespace(device=torch.device("cpu")), module=torch.nn.Linear(64, 64))
    longer = slower.slowed(lambda engine, seconds: time.sleep(seconds) or "done", 0.5)
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        assert longer(engine, 0.2) == "done"
        taken.append(time.perf_counter() - started)
    assert min(taken) == pytest.approx(0.3, rel=0.1)


def test_an_environment_is_slowed_down_once_it_measures() -> None:
    code = (
        "import benchmarks.slower as slower; slower.when_measuring(0.5); slower.when_measuring(0.5)\n"
        "from repro.measure.engine.plain import PlainEngine; print(PlainEngine.update.__qualname__)\n"
        "print([cell.cell_contents for cell in PlainEngine.update.__closure__][-1].__qualname__)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "slowed.<locals>.longer\nPlainEngine.update\n"


def test_a_pool_is_collected_from_real_processes_start_by_start(fork_server: ForkServer, tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    ask = asking(fork_server, tmp_path)
    power.collect(pool, 1, lambda: nullcontext(lambda arm: power.sample(ask, power.ARMS[arm])), seconds=600)
    [start] = power.read(pool)
    assert list(start) == list(power.ARMS)
    assert all(seconds > 0 for seconds in start.values())
    assert len(pool.read_text().splitlines()) == TURNS * len(power.ARMS)


def test_every_arm_of_a_pool_has_a_stack_of_its_own() -> None:
    with power.started() as take:
        assert all(take(arm) > 0 for arm in ("stack", "copy"))


def test_a_pool_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
    pool, taken, starts = tmp_path / "pool.jsonl", [], 0

    def take(arm: str) -> float:
        taken.append(arm)
        return float(len(taken))

    def start() -> AbstractContextManager[power.Take]:
        nonlocal starts
        starts += 1
        return nullcontext(take)

    power.collect(pool, 1, start, seconds=600)
    whole = pool.read_text()
    pool.write_text(whole + whole.splitlines()[0][:20])
    assert [starts, len(power.read(pool))] == [1, 1]
    power.collect(pool, 3, start, seconds=600)
    order = list(power.ARMS)
    assert taken == [*order, *order[::-1]] * (3 * TURNS // 2)
    assert [starts, len(power.read(pool))] == [3, 3]
    power.collect(pool, 9, start, seconds=-1)
    assert len(power.read(pool)) == 3, "the time was up"
    pool.write_text("".join(pool.read_text().splitlines(keepends=True)[:-1]))
    assert len(power.read(pool)) == 2, "a start that was cut off is not whole"


def test_windows_are_called_by_the_rule() -> None:
    starts: list[dict[str, Any]] = [{arm: 1 + share for arm, share in power.ARMS.items()} for _ in range(40)]
    rows = {(row["arm"], row["pairs a round"], row["kind"]): row for row in power.rows(starts)}
    assert rows["10 % slower", 6, "disjoint"]["windows"] == 3
    assert rows["10 % slower", 6, "disjoint"]["regressed"] == 3
    assert rows["5 % slower", 12, "disjoint"]["regressed"] == 1
    assert rows["copy", 12, "drawn"]["unchanged"] == rows["copy", 12, "drawn"]["windows"] == 200
    assert rows["copy", 22, "drawn"]["windows"] == 0, "the pool is too small"


def test_the_readme_tells_what_the_rule_calls_on_the_committed_pool() -> None:
    starts = power.read(power.POOL)
    assert len(starts) * TURNS >= 150, "processes a side"
    rows = power.rows(starts)
    assert all(row["improved"] == 0 for row in rows)
    told = (ROOT / "README.md").read_text()
    names = {"copy": "the stack itself", "5 % slower": "5 % slower", "10 % slower": "10 % slower"}
    for arm, name in names.items():
        found = [f"{row['regressed']} of {row['windows']}" for row in rows if row["arm"] == arm]
        cells = [f"{disjoint}, {drawn}" for disjoint, drawn in zip(found[::2], found[1::2], strict=True)]
        assert f"| {name} | {' | '.join(cells)} |" in told
