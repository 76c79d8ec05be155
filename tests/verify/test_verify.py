"""`repro verify`: which runs decide most of the paper for a budget."""

from __future__ import annotations

import pytest

from benchmarks import order
from repro.paper.tables import TOLERANCE, cells
from repro.run.verdict import bounds
from repro.verify import runs
from repro.verify.order import RESERVE
from tests.support.command_line import answer, repro


def test_the_list_stays_within_its_budget_with_a_price_and_command_a_run() -> None:
    found = answer("verify", "--budget", "20")
    assert 15 < sum(row["cost_usd"] for row in found["rows"]) <= 20
    assert found["answer"].startswith(f"Spend 19.97 USD on these {len(found['rows'])} runs: they decide about ")
    for row in found["rows"]:
        assert row["provider"]
        assert row["quoted"]
        assert f" --gpus {row['gpus']} --models " in row["command"]
        assert 0 < row["probability"] <= 1
    assert any("No rental price in USD, and so left out: 1 x RTX 3090" in note for note in found["notes"])


def test_a_time_on_a_gpu_that_one_has_is_kept_with_the_reserve() -> None:
    rows = answer("verify", "--minutes", "30", "--gpu", "A100")["rows"]
    assert {(row["gpu"], row["gpus"]) for row in rows} == {("A100", 1)}
    assert sum(row["minutes"] for row in rows) <= 30
    estimated = sum(run.minutes for run in runs.candidates("A100", 1) if run.recipe in str(rows))
    assert sum(row["minutes"] for row in rows) == pytest.approx((1 + RESERVE) * (estimated + runs.SETTING_UP), abs=0.5)


def test_no_row_decides_a_cell_twice_and_lost_cells_are_of_none() -> None:
    listed = [cell for row in answer("verify", "--budget", "100")["rows"] for cell in row["decides_cells"].split("; ")]
    assert len(listed) == len(set(listed))
    lost = {f"Table {cell.table}, {cell.model} on {cell.machine}" for cell in cells("1") if cell.state == "lost"}
    assert not lost & set(listed)


def test_what_results_that_are_kept_decide_is_not_measured_again() -> None:
    rows = answer("verify", "--minutes", "100", "--gpu", "H100")["rows"]
    cells = [cell for row in rows for cell in row["decides_cells"].split("; ")]
    assert "Table 1, Pythia-1B on 1 H100" in cells, "within a tenth of a bound"
    assert not {"Table 1, RoBERTa on 1 H100", "Table 4, Pythia-2.8B on 1 H100"} & set(cells)


def test_a_verdict_is_decided_where_a_second_run_would_give_the_same() -> None:
    cell = next(cell for cell in cells("1") if (cell.days or 0) > 20)
    assert cell.days is not None
    assert bounds(100, TOLERANCE) == pytest.approx((99.5 * 0.85, 100.5 * 1.15)), "rounded days, 15 % off"
    low, high = bounds(cell.days, TOLERANCE)
    assert runs.decides(cell, cell.days)
    assert not runs.decides(cell, 1.01 * high)
    assert runs.decides(cell, 1.2 * high)
    assert runs.decides(cell, low / 1.2)


def test_its_order_decides_more_than_the_cheapest_first_the_tables_or_any() -> None:
    for row in order.rows(budgets=(2.0, 5.0), draws=20):
        for truth in ("drawn", "printed"):
            ours, *others = (row[f"{name}, {truth}"] for name in ("verify", "cheapest first", "tables", "random"))
            assert ours > max(others)


def test_it_shows_twenty_rows_and_all_where_asked() -> None:
    shown = repro("verify", "--budget", "20").stdout
    assert " more rows: --all shows all." in shown
    assert " more rows" not in repro("verify", "--budget", "20", "--all").stdout
