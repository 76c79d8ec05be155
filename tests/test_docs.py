"""Pages that are read as text: their links lead to what is there, and what a file of results may say they explain."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from repro import __version__, record
from repro.claims import claim
from repro.cli import parser
from repro.commands import HELP
from repro.compare import trials
from repro.run import verdict
from tests.support.command_line import ROOT, repro

RESULTS = ROOT / "results"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/**/README.md"), *(ROOT / "docs").glob("*.md")])
of_a_checkout = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout: git cannot tell what is kept")


def kept() -> list[str]:
    """The files of results/ that git knows, by their paths there."""
    return subprocess.run(["git", "ls-files"], cwd=RESULTS, capture_output=True, text=True, check=True).stdout.split()


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


def test_the_readme_is_short_and_leads_to_the_eleven_pages_of_docs() -> None:
    readme, pages = (ROOT / "README.md").read_text(), [*(ROOT / "docs").glob("*.md")]
    assert len(readme.splitlines()) <= 150
    assert len(pages) == 11
    for page in (ROOT / "CONTRIBUTING.md", *pages):
        assert f"]({page.relative_to(ROOT)})" in readme, page.name


def test_readme_and_pages_together_are_read_in_an_hour_and_a_half() -> None:
    text = "".join(page.read_text() for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert len(text.replace("|", " ").split()) <= 17_000


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page that are in this language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def commands(page: Path) -> Iterator[list[str]]:
    """The words after ./run_all.sh of each command line of a page that begins so, to the end of that command."""
    for block in blocks(page, "(?:sh|console)"):
        for line in re.findall(r"^(?:\$ )?\./run_all\.sh\b(.*)$", block.replace("\\\n", " "), flags=re.MULTILINE):
            words = shlex.split(line, comments=True)
            ends = [words.index(end) for end in (">", "&&", "|") if end in words]
            yield words[: min(ends, default=len(words))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_its_command_lines_are_accepted(page: Path) -> None:
    for words in commands(page):
        if words[:1] not in (
            ["test"],
            ["torchrun"],
            ["--repair"],
            ["--with-kernels"],
            ["--with-flash4"],
            ["--help"],
            ["COMMAND"],
        ):
            name, given = (words[0], words[1:]) if words and words[0] in HELP else ("run", words)
            parser(name).parse_args(given)


EXAMPLES = [
    pytest.param(example, id=example.splitlines()[0], marks=[pytest.mark.slow] * example.startswith("plan "))
    for page in PAGES
    for block in blocks(page, "console")
    for example in re.split(r"^\$ \./run_all\.sh ", block, flags=re.MULTILINE)[1:]
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_shows_what_the_command_prints(example: str) -> None:
    """Where a line of an example is `...`, lines are left out; long ones are wrapped."""
    command, _, shown = example.partition("\n")
    printed = " ".join(repro(*shlex.split(command)).stdout.split())
    start = 0
    for part in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE):
        text = " ".join(part.split())
        assert text in printed[start:], text
        start += printed[start:].index(text) + len(text)


def test_each_of_the_three_users_has_an_example() -> None:
    assert len(blocks(ROOT / "README.md", "console")) == 3


@of_a_checkout
def test_what_is_kept_names_no_path_of_the_machine_that_made_it() -> None:
    for name in kept():
        text = (RESULTS / name).read_text(encoding="utf-8")
        assert not re.search(r"(?<![\w.~])/(?:tmp|root|home|work)/", text), name


@of_a_checkout
def test_the_page_of_results_leads_to_each_that_is_kept() -> None:
    led_to = set(re.findall(r"\]\(([\w.-]+)", (RESULTS / "README.md").read_text()))
    assert {path.split("/")[0] for path in kept()} - {"README.md"} == led_to - {".."}


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("docs/measuring.md", record.Status),
        ("docs/artifact.md", claim.ClaimVerdict),
        ("docs/measuring.md", verdict.Word),
        ("docs/upgrades.md", trials.Status),
    ],
)
def test_each_status_and_verdict_is_explained(page: str, words: Any) -> None:
    output = (ROOT / page).read_text()
    for word in get_args(words):
        assert f"`{word}`" in output, word


def test_the_readme_begins_with_what_the_report_of_the_kept_h100_says(tmp_path: Path) -> None:
    command = "report results/h100/text results/h100/vision"
    done = repro(*command.split(), "--out", str(tmp_path))
    first, second = re.findall(r"^(?:Of the 288|By the authors' clock, ).+$", done.stdout, flags=re.MULTILINE)[:2]
    readme = (ROOT / "README.md").read_text()
    quoted = " ".join(line[2:] for line in readme.splitlines() if line.startswith("> "))
    assert (f"./run_all.sh {command}" in readme, quoted) == (True, f"{first} {second}")


def test_every_place_that_names_the_version_names_that_of_the_changelog() -> None:
    changelog, citation, dockerfile = (
        (ROOT / name).read_text() for name in ("CHANGELOG.md", "CITATION.cff", "Dockerfile")
    )
    version = re.findall(r"^## (\S+)$", changelog, flags=re.MULTILINE)[0]
    assert {
        "repro": __version__,
        "pyproject.toml": tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"],
        ".zenodo.json": json.loads((ROOT / ".zenodo.json").read_text())["version"],
        "CITATION.cff": re.findall(r"^version: (.+)$", citation, flags=re.MULTILINE)[0],
        "Dockerfile": re.findall(r"^ARG VERSION=(.+)$", dockerfile, flags=re.MULTILINE)[0],
    } == dict.fromkeys(("repro", "pyproject.toml", ".zenodo.json", "CITATION.cff", "Dockerfile"), version)
