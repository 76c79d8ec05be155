"""One case a cell of Tables 1 and 4: it passes where the paper's number is reproduced, and never unmeasured."""

from __future__ import annotations

import pytest

from repro.paper.tables import Cell
from repro.run.run import Run
from repro.run.verdict import FAILED, explain


def test_cell(cell: Cell, run: Run) -> None:
    verdict = run.verdict(cell)
    if not verdict.compared:
        pytest.skip(f"{verdict.cell}: {verdict.verdict}, {verdict.reason}")
    if verdict.verdict in FAILED:
        pytest.fail(explain(verdict), pytrace=False)
