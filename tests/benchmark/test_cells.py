"""One case a cell of Tables 1 and 4: it passes where the paper's number is reproduced, and never unmeasured."""

from __future__ import annotations

import pytest

from repro.commands.driver import Driver
from repro.paper.tables import Cell
from repro.run.verdict import explain


def test_cell(cell: Cell, driver: Driver) -> None:
    verdict = driver.run.verdict(cell)
    if not verdict.compared:
        pytest.skip(f"{verdict.cell}: {verdict.verdict}, {verdict.reason}")
    if verdict.differs:
        pytest.fail(explain(verdict), pytrace=False)
