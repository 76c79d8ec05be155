"""locks/advisories.csv says which locked versions an advisory concerns; an upgrade of a lock must change it."""

from __future__ import annotations

import csv
import re

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.support.command_line import ROOT

LOCKS = ("requirements.lock", "locks/volta.lock", "locks/cpu.lock", "locks/paper.lock", "locks/latest.lock")
with (ROOT / "locks" / "advisories.csv").open(newline="") as file:
    ROWS = list(csv.DictReader(file))


def locked(package: str) -> set[str]:
    """Its versions in the locks of whole stacks, without what names a build."""
    texts = [(ROOT / lock).read_text() for lock in LOCKS]
    pins = [re.search(rf"^{package}==([^\s+]+)", text, re.MULTILINE) for text in texts]
    return {pin[1] for pin in pins if pin}


@pytest.mark.parametrize("row", ROWS, ids=[row["advisory"] for row in ROWS])
def test_the_list_names_the_locked_versions_that_an_advisory_concerns(row: dict[str, str]) -> None:
    affected = SpecifierSet(row["affected"], prereleases=True)
    concerned = {version for version in locked(row["package"]) if Version(version) in affected}
    assert concerned == set(row["locked"].split(", ")), "the locks have changed"
    assert row["reached"]


def test_the_list_has_advisories_on_the_oldest_stack() -> None:
    assert {row["package"] for row in ROWS} >= {"torch", "deepspeed", "transformers"}
