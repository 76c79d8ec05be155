"""Every link between the pages that are read as text leads to what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_line import ROOT

PAGES = sorted([ROOT / "README.md", *ROOT.glob("[a-z]*/**/README.md"), *(ROOT / "docs").glob("*.md")])


def anchors(page: Path) -> set[str]:
    """The names that a page's headings go by, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_links_lead_to_files_and_headings_that_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)|src=\"([^\"]+)\"", page.read_text()):
        file, _, anchor = "".join(target).partition("#")
        if "://" in file:
            continue
        found = (page.parent / file) if file else page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def test_the_readme_leads_to_every_page_of_docs() -> None:
    readme = (ROOT / "README.md").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f"](docs/{page.name})" in readme, page.name
