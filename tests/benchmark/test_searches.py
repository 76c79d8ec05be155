"""One case a search for modern settings: of one recipe on one number of devices, whose trials it chooses as it goes."""

from __future__ import annotations

import pytest

from repro.commands.driver import Driver
from repro.run.parts_search import ModernSearch


def test_modern(searched: tuple[str, int], driver: Driver) -> None:
    records = ModernSearch(driver.run, driver.progress, *searched).go()
    if not records:
        pytest.skip("free lunch did not run, to which parts are added")
    if crashed := [record for record in records if record.status == "crashed"]:
        pytest.fail("; ".join(f"{each.id} crashed: {each.reason} ({each.log})" for each in crashed), pytrace=False)
