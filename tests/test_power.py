"""The pool of real samples that the decision rule is held against, and the slowdown injected for it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import asking, power, slower
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
        "import benchmarks.slower as slower; slower.when_measuring(0.5)\n"
        "from repro.measure.engine.plain import PlainEngine; print(PlainEngine.update.__qualname__)"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout == "slowed.<locals>.longer\n"


def test_a_pool_is_collected_from_real_processes_block_by_block(fork_server: ForkServer, tmp_path: Path) -> None:
    pool = tmp_path / "pool.jsonl"
    ask = asking(fork_server, tmp_path)
    power.collect(pool, 1, lambda share: power.sample(ask, share), seconds=600)
    [block] = power.read(pool)
    assert list(block) == list(power.ARMS)
    assert all(seconds > 0 for seconds in block.values())


def test_a_pool_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
    pool, shares = tmp_path / "pool.jsonl", []

    def take(share: float) -> float:
        shares.append(share)
        return 1.0 + share

    power.collect(pool, 1, take, seconds=600)
    whole = pool.read_text()
    pool.write_text(whole + whole.splitlines()[0][:20])
    power.collect(pool, 3, take, seconds=600)
    assert shares == [0.0, 0.0, 0.05, 0.10, 0.10, 0.05, 0.0, 0.0, 0.0, 0.0, 0.05, 0.10]
    assert len(power.read(pool)) == 3
    power.collect(pool, 9, take, seconds=-1)
    assert len(power.read(pool)) == 3, "the time was up"


def test_windows_are_called_by_the_rule(tmp_path: Path) -> None:
    blocks: list[dict[str, Any]] = [{arm: 1 + share for arm, share in power.ARMS.items()} for _ in range(50)]
    rows = {(row["arm"], row["pairs a round"], row["kind"]): row for row in power.rows(blocks)}
    assert rows["10 % slower", 6, "disjoint"]["windows"] == 4
    assert rows["10 % slower", 6, "disjoint"]["regressed"] == 4
    assert rows["5 % slower", 12, "disjoint"]["regressed"] == 2
    assert rows["copy", 6, "drawn"]["unchanged"] == rows["copy", 6, "drawn"]["windows"] == 200
