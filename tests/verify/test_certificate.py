"""The certificate of a report, and what `repro verify` finds in it."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from repro.claims.claim import listed
from repro.claims.statements import statements
from repro.cli import parser
from repro.commands import HELP
from repro.run.reading import join, read
from repro.verify.certificate import Certificate, build, within
from repro.verify.check import read_certificate
from tests.support import released_archive as released
from tests.support.command_line import ROOT, answer, of_more_rounds, record, repro, results_folder

TEXT, VISION = ROOT / "results/h100/text", ROOT / "results/h100/vision"
CPU = "results/cpu-2-cores"


def of(*folders: Path) -> Certificate:
    found = build(join(*map(read, folders)))
    assert found is not None
    return found


def kept(out: Path, *folders: Path) -> Path:
    """The certificate that a report of these folders writes."""
    done = repro("report", *map(str, folders), "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out / "certificate.json"


def checked(*words: Path) -> tuple[int, list[dict[str, Any]]]:
    """The exit code of a check, and its rows."""
    done = repro("verify", *map(str, words), "--format", "json")
    return done.returncode, json.loads(done.stdout)["rows"]


# --- What it holds ---


def test_the_kept_h100_has_fifteen_cells_with_both_clocks_and_their_records(tmp_path: Path) -> None:
    found = read_certificate(kept(tmp_path, TEXT, VISION))
    assert (found.summary, len(found.cells), found.cells_not_measured) == ("14 cells and 3 claims", 15, 273)
    row = next(row for row in found.cells if row.cell == "Table 1, Pythia-1B on 1 H100")
    assert (row.printed, row.plausible, row.verdict, row.by_authors_clock) == ("34", "plausible", "slower", "faster")
    assert (row.true_days, row.authors_days) == pytest.approx((41.0, 19.4), abs=0.05)
    [hashed] = [each for each in found.records if each.sha256 == row.records[0]]
    assert (hashed.folder, hashed.line, hashed.trial) == (1, 4, "pythia-1b/paper/1xH100/free_lunch")
    assert {row.claim for row in found.decided} == {"timed-passes", "table-1-cells", "table-4-cells"}


KEPT = sorted(path.parent for path in (ROOT / "results").rglob("certificate.json"))


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_the_certificate_of_a_kept_folder_follows_from_it(folder: Path) -> None:
    assert checked(folder)[0] == 0


def test_an_h200_decides_no_cell_but_what_the_authors_clock_leaves_out() -> None:
    found = {folder: read_certificate(folder / "certificate.json") for folder in KEPT if folder.parent.name == "h200"}
    assert len(found) == 5
    for folder, each in found.items():
        assert (len(each.cells), [row.claim for row in each.decided]) == (0, ["timed-passes"]), folder.name


def test_a_folder_that_decides_nothing_has_none_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "certificate.json").write_text("of other records")
    assert not kept(tmp_path, ROOT / CPU).exists()
    done = repro("verify", CPU)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"{CPU} decides nothing of the paper: none of the 57 records counts: 57 are of tiny recipes" in done.stderr


@pytest.mark.parametrize(("days", "verdict"), [(18.0, "holds"), (21.0, "holds"), (22.0, "differs")])
def test_a_claim_on_printed_days_is_decided_by_true_ones_within_the_tolerance(
    days: float, verdict: str, tmp_path: Path
) -> None:
    folder = results_folder(tmp_path / "run", record("pythia-1b", "free_lunch+zero_1", 5.0, true_days=days))
    rows = {row.claim: row for row in of(folder).claims}
    row = rows["pythia-1b-on-4-a100"]
    assert (row.by_printed, row.verdict, len(row.records)) == ("holds", verdict, 1)
    assert row.number == pytest.approx(days)
    assert rows["original-pythia-1b"].verdict == rows["budget-40k-days"].verdict == "not_measured"


@pytest.mark.parametrize(
    ("claim", "number", "holds"),
    [
        ("pythia-1b-on-4-a100", 14.8, False),
        ("pythia-1b-on-4-a100", 17.5 * 0.85, True),
        ("smallest-model", 1e9, True),
        ("smallest-model", 1e6, False),
        ("largest-model", 1e6, True),
        ("largest-model", 9e9, False),
    ],
)
def test_a_number_is_within_the_tolerance_of_a_printed_one_or_beyond_its_bound(
    claim: str, number: float, holds: bool
) -> None:
    [found] = [each for each in listed() if each.id == claim]
    assert within(found, number, 0.15) == holds


def test_records_of_one_trial_give_its_variation(tmp_path: Path) -> None:
    days = (8.2, 8.4, 8.0)
    runs = [
        record("pythia-160m", "free_lunch", each, gpu="H100", count=1, stack_started=float(at))
        for at, each in enumerate(days, 1)
    ]
    other = of_more_rounds(record("pythia-160m", "naive", 40.0, gpu="H100", count=1))
    rows = {row.cell: row for row in of(results_folder(tmp_path / "run", *runs, other)).cells}
    row = rows["Table 1, Pythia-160M on 1 H100"]
    [variation] = row.variation
    assert (variation.starts, variation.spread, len(row.records)) == (3, round(0.4 / 8.2, 4), 3)
    assert rows["Table 4, Pythia-160M on 1 H100"].variation == []


def test_the_image_s_digest_stands_in_it_or_else_the_lock_s_hash(tmp_path: Path) -> None:
    one = record("vit", "free_lunch", 30.0, gpu="H100", count=1)
    locked = {"file": "requirements.lock", "sha256": "ab", "is_the_lock": True}
    [folder] = of(results_folder(tmp_path / "image", one, image_digest="sha256:12", lock=locked)).folders
    assert (folder.image_digest, folder.lock, folder.lock_sha256) == ("sha256:12", "requirements.lock", "ab")
    [folder] = of(results_folder(tmp_path / "other", one, lock=locked | {"is_the_lock": False})).folders
    assert (folder.image_digest, folder.lock, folder.lock_sha256) == (None, None, None)


def test_what_the_authors_released_stands_in_it_as_theirs(tmp_path: Path) -> None:
    archive = released.write(tmp_path / "artifacts.tar", released.results())
    path = kept(tmp_path / "out", archive)
    found = read_certificate(path)
    assert (found.origin, {row.verdict for row in found.cells}) == ("released", {"not_measured"})
    assert all(row.released_days and row.true_days is None for row in found.cells)
    assert "which the authors measured, decide" in (tmp_path / "out/report.md").read_text()
    assert checked(path, archive)[0] == 0
    archive.write_bytes(archive.read_bytes() + b"\0")
    assert checked(path, archive)[0] == 1


# --- What a check finds ---


def test_a_changed_byte_is_named_with_its_file_and_record(tmp_path: Path) -> None:
    folder = shutil.copytree(TEXT, tmp_path / "text")
    certificate = kept(tmp_path / "out", folder)
    lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
    lines[3] = lines[3].replace('"seed": 1', '"seed": 2').replace("bf16", "bf17", 1)
    (folder / "trials.jsonl").write_text("".join(lines))
    code, [row] = checked(certificate, folder)
    assert code == 1
    assert row["where"] == f"{folder}/trials.jsonl, line 4, pythia-1b/paper/1xH100/free_lunch"
    assert row["what"].startswith("changed since the certificate was made: its sha256 was ")


def test_a_line_that_is_gone_or_new_is_named(tmp_path: Path) -> None:
    folder = shutil.copytree(TEXT, tmp_path / "text")
    certificate = kept(tmp_path / "out", folder)
    lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
    (folder / "trials.jsonl").write_text("".join(lines[:-1]))
    assert "missing" in checked(certificate, folder)[1][0]["what"]
    (folder / "trials.jsonl").write_text("".join([*lines, lines[0]]))
    assert checked(certificate, folder)[1][0]["what"] == "the certificate has no such line"


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('"verdict": "slower"', '"verdict": "reproduced"', "cells, Table 1, Pythia-1B on 1 H100, verdict"),
        ('"driver": "5', '"driver": "6', "folders, text, driver"),
        ('"tolerance": 0.15', '"tolerance": 0.2', "tolerance"),
        ('"image_digest": null', '"image_digest": "12"', "folders, text, image_digest"),
    ],
)
def test_a_value_that_does_not_follow_from_the_records_is_named(old: str, new: str, where: str, tmp_path: Path) -> None:
    certificate = kept(tmp_path, TEXT)
    certificate.write_text(certificate.read_text().replace(old, new, 1))
    code, rows = checked(certificate, TEXT)
    assert (code, [row["where"] for row in rows]) == (1, [where])
    if "null" in old:
        assert rows[0]["what"] == "12 in the certificate, nothing by the records"


def test_a_certificate_of_records_that_are_no_longer_believed_does_not_follow(tmp_path: Path) -> None:
    folder = shutil.copytree(TEXT, tmp_path / "text")
    certificate = kept(tmp_path / "out", folder)
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps(environment | {"gpus": []}))
    code, rows = checked(certificate, folder)
    assert (code, [row["what"] for row in rows]) == (1, ["its records decide no cell and no claim"])
    assert repro("verify", str(certificate), CPU).returncode == 0, "which decides nothing, and has none of its records"


def test_the_folders_may_be_named_in_any_order_and_be_copies(tmp_path: Path) -> None:
    certificate = kept(tmp_path / "out", TEXT, VISION)
    copy = shutil.copytree(TEXT, tmp_path / "a copy")
    assert checked(certificate, VISION, copy)[0] == 0


def test_a_report_begins_with_it() -> None:
    text = (TEXT / "report.md").read_text()
    assert text.index("## What these records decide") == text.index("## ")
    assert "recomputes it. Nobody signs it" in text
    assert "by the printed numbers it is not decided, by the measured ones it differs" in text


def test_the_appendix_has_a_row_for_each_sentence_with_its_run() -> None:
    with (ROOT / "expected" / "statements.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "docs" / "artifact.md").read_text().splitlines()
    for row in rows:
        kept = {name: "" if value == "-" else value for name, value in row.items()}
        run = f"`{kept['command']}`" if kept["command"] else ""
        cells = (
            kept["sentence"],
            run,
            *(kept[name] for name in ("machine", "minutes", "usd", "expected", "variation")),
        )
        assert f"| {' | '.join(cells)} |" in page, row["id"]
        words = shlex.split(kept["command"])
        name, given = (words[0], words[1:]) if words and words[0] in HELP else ("run", words)
        parser(name).parse_args(given)


def test_the_appendix_says_what_twenty_dollars_decide() -> None:
    rows = answer("verify", "--budget", "20")
    cells = re.findall(r"about (\d+) cells", rows["answer"])
    page = (ROOT / "docs" / "artifact.md").read_text()
    assert f"| {len(rows['rows'])} runs for {cells[0]} cells |" in page


def test_the_sentences_of_abstract_and_conclusion_name_claims_that_exist() -> None:
    places = [each.where for each in statements()]
    assert (places.count("abstract"), places.count("conclusion")) == (10, 8)
