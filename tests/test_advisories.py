"""docs/upgrades.md says which locked versions an advisory concerns; an upgrade of a lock must change the page."""

from __future__ import annotations

import re

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.command_line import ROOT

LOCKS = ("requirements.lock", "locks/volta.lock", "locks/cpu.lock", "locks/paper.lock", "locks/latest.lock")
ROWS = re.findall(
    r"^\| ((?:CVE|PYSEC|GHSA)[^|]*) \| ([a-z0-9-]+) \| ([<>=.0-9a-z]+) \| ([0-9., ]+) \|",
    (ROOT / "docs" / "upgrades.md").read_text(),
    re.MULTILINE,
)


def locked(package: str) -> set[str]:
    """Its versions in the locks of whole stacks, without what names a build."""
    texts = [(ROOT / lock).read_text() for lock in LOCKS]
    pins = [re.search(rf"^{package}==([^\s+]+)", text, re.MULTILINE) for text in texts]
    return {pin[1] for pin in pins if pin}


@pytest.mark.parametrize(("advisory", "package", "affected", "named"), ROWS, ids=[row[0] for row in ROWS])
def test_the_page_names_the_locked_versions_that_an_advisory_concerns(
    advisory: str, package: str, affected: str, named: str
) -> None:
    concerned = {version for version in locked(package) if Version(version) in SpecifierSet(affected, prereleases=True)}
    assert concerned == set(named.split(", ")), f"{advisory}: the locks have changed"


def test_the_page_has_advisories_on_the_oldest_stack() -> None:
    assert {package for _, package, _, _ in ROWS} >= {"torch", "deepspeed", "transformers"}
