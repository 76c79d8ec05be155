"""`repro contribute`: a results folder without names, checked as a stranger's."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from repro.commands import predict_paper
from repro.run.reading import read
from repro.verify.cleaning import Cleaner
from repro.verify.contribute import listed
from tests.support.command_line import ROOT, altered, record, refusal, repro, results_folder

TEXT = ROOT / "results/h100/text"
WHO = "jdoe-lab"


def contributed(folder: Path, out: Path, *words: str) -> str:
    done = repro("contribute", str(folder), "--out", str(out), "--yes", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the kept H100 that names somebody in its environment, a log, a traceback, a price file and an owner."""
    folder = shutil.copytree(TEXT, tmp_path / "mine")
    environment = json.loads((folder / "environment.json").read_text())
    environment["variables"]["CUDA_HOME"] = f"/home/{WHO}/cuda"
    environment["lock"]["differences"]["nvidia-cublas"] = {"lock": "12.8.4.1", "installed": "13.1.0.3"}
    (folder / "environment.json").write_text(json.dumps(environment))
    (folder / "logs").mkdir()
    (folder / "logs" / "vit.log").write_text(f"loading /home/{WHO}/venv/lib/torch.so\n")
    lines = (folder / "trials.jsonl").read_text()
    (folder / "trials.jsonl").write_text(lines.replace("site-packages/torch", f"/Users/{WHO}/site-packages/torch", 1))
    (folder / "prices.toml").write_text(f"# as {WHO} was told\n")
    monkeypatch.setattr(Path, "owner", lambda self: WHO)
    return folder


def test_a_name_planted_in_five_places_is_in_no_file_of_the_copy(planted: Path, tmp_path: Path) -> None:
    out = tmp_path / "results" / "h100-lab"
    shown = contributed(planted, out)
    files = [path for path in (tmp_path / "results").rglob("*") if path.is_file()]
    assert {"environment.json", "trials.jsonl", "vit.log", "prices.toml", "README.md", "index.csv"} <= {
        path.name for path in files
    }
    assert [path for path in files if WHO in path.read_text() or WHO in str(path.relative_to(tmp_path))] == []
    assert (out / "prices.toml").read_text() == "# as USER was told\n"
    assert '"lock": "12.8.4.1"' in (out / "environment.json").read_text(), "a version, no address"
    for file, what, becomes in (
        ("logs/vit.log", f"/home/{WHO}", "~"),
        ("prices.toml", WHO, "USER"),
        ("environment.json", f"/home/{WHO}", "~"),
        ("trials.jsonl", f"/Users/{WHO}", "~"),
    ):
        assert any(line.split() == [file, what, becomes, "1"] for line in shown.splitlines()), file


def test_the_owner_of_a_file_is_taken_out_where_nothing_else_names_him(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "owner", lambda self: WHO)
    folder = shutil.copytree(TEXT, tmp_path / "mine")
    (folder / "prices.toml").write_text(f"# as {WHO} was told\n")
    contributed(folder, tmp_path / "out")
    assert WHO not in (tmp_path / "out" / "prices.toml").read_text()


def test_the_copy_says_the_same_and_its_certificate_follows_from_it(planted: Path, tmp_path: Path) -> None:
    out = tmp_path / "results" / "h100-lab"
    contributed(planted, out)
    assert [each.derived for each in read(out).records] == [each.derived for each in read(TEXT).records]
    assert repro("verify", str(out)).returncode == 0
    [row] = listed(tmp_path / "results")
    assert row.stack == "torch 2.11.0, transformers 5.17.0, timm 1.0.31"
    assert (row.folder, row.gpus, row.records, row.decides) == ("h100-lab", "1 x H100", 11, "11 cells and 3 claims")
    assert "report results/h100-lab`: this report" in (out / "report.md").read_text(), "wherever it was made"
    assert str(tmp_path) not in (out / "report.html").read_text()
    shutil.rmtree(out)
    contributed(planted, out)
    assert len(listed(tmp_path / "results")) == 1, "in place of the one before"


def test_a_folder_named_like_a_word_leaves_the_report_as_it_is(tmp_path: Path) -> None:
    done = repro("contribute", str(TEXT), "--out", "days", "--yes", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "compared by true days: " in (tmp_path / "days" / "report.md").read_text()


def test_without_yes_it_shows_what_it_would_replace_and_writes_nothing(planted: Path, tmp_path: Path) -> None:
    done = repro("contribute", str(planted), "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    assert f"/home/{WHO}" in done.stdout
    assert f"nothing was written: --yes writes {tmp_path}/out" in done.stderr
    assert not (tmp_path / "out").exists()


CLEANER = Cleaner({WHO: "USER", "ubuntu": "USER", "jo": "USER", "secret": "NAME"}, frozenset({"13.1.0.3"}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("GPU-12345678-90ab-cdef-1234-567890abcdef is hot", "UUID is hot"),
        ('"serial": "1654123456789"', '"serial": "SERIAL"'),
        ("Serial Number : 1654123456789", "Serial Number : 0"),
        ('{"gpu_serial": 1654123456789}', '{"gpu_serial": 0}'),
        ("serial=ABC-1234567", "serial=SERIAL"),
        ("10.0.12.7:29500", "ADDRESS:29500"),
        ("nvidia-cublas 13.1.0.3 and torch 2.11.0", "nvidia-cublas 13.1.0.3 and torch 2.11.0"),
        ("127.0.0.1 at 12:30:45", "127.0.0.1 at 12:30:45"),
        ("fe80::1ff:fe23:4567:890a", "ADDRESS"),
        ("c10::Error in at::native", "c10::Error in at::native"),
        ("02:42:ac:11:00:02", "ADDRESS"),
        ("by j.doe@lab.example.org", "by MAIL"),
        ("hf:llama.json@tokens=20B", "hf:llama.json@tokens=20B"),
        ("/home/someone/x and /Users/another", "~/x and ~"),
        ('"C:\\\\Users\\\\another\\\\x"', '"C:~\\\\x"'),
        ("/root/x, site/root/x", "~/x, site/root/x"),
        ("jo and ubuntu 24.04, /data/ubuntu, jo@host, major", "jo and ubuntu 24.04, /data/USER, USER@host, major"),
        ("JDOE-LAB's secret, secretary", "USER's NAME, secretary"),
    ],
)
def test_what_names_people_and_machines_is_replaced(text: str, expected: str) -> None:
    assert CLEANER.clean(text) == expected


def test_a_word_of_ones_own_is_taken_out_of_contents_and_file_names(tmp_path: Path) -> None:
    folder = shutil.copytree(TEXT, tmp_path / "mine")
    (folder / "prices-of-acme.toml").write_text("# Acme Inc\n")
    contributed(folder, tmp_path / "out", "--name", "acme", "--name", "Inc")
    assert (tmp_path / "out" / "prices-of-NAME.toml").read_text() == "# NAME Inc\n", "which is short"


def test_hosts_of_nccl_s_log_and_what_a_person_should_look_at_are_listed(tmp_path: Path) -> None:
    folder = shutil.copytree(TEXT, tmp_path / "mine")
    (folder / "run.log").write_text("start\ngpu-box7:12:34 [0] NCCL INFO up\nsee /scratch/group/x and hf_abcdefghij\n")
    (folder / "weights.bin").write_bytes(b"\xff\xfe")
    (folder / "link").symlink_to("/etc/passwd")
    shown = contributed(folder, tmp_path / "out")
    assert (tmp_path / "out" / "run.log").read_text().startswith("start\nHOST:12:34 [0] NCCL")
    for word in ("/scratch/group/x", "hf_abcdefghij", "no text", "a link, or no file"):
        assert word in shown
    assert not (tmp_path / "out" / "weights.bin").exists()
    assert not (tmp_path / "out" / "link").exists()


def test_copies_and_impossible_records_are_named(tmp_path: Path) -> None:
    folder = shutil.copytree(TEXT, tmp_path / "copy")
    contributed(folder, tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "- trials.jsonl, line 1: the raw times of text, line 1, to the last digit: a copy" in text
    one = record("vit", "free_lunch", 30.0, gpu="H100", count=1)
    fast = record("pythia-1b", "free_lunch", 1.0, gpu="H100", count=1)
    contributed(results_folder(tmp_path / "fast", one, fast), tmp_path / "other")
    assert "more than there is" in (tmp_path / "other" / "README.md").read_text()
    broken: Any = altered(one, tf32=True)
    broken.times.host[0]["with"] = [0.0] * 3
    contributed(results_folder(tmp_path / "broken", fast, one, broken), tmp_path / "third")
    assert "raw time" in (tmp_path / "third" / "README.md").read_text()


def test_validation_has_a_row_for_each_contributor_without_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = results_folder(tmp_path / "mine", record("vit", "free_lunch", 30.0, gpu="H100", count=1))
    contributed(folder, tmp_path / "results" / "somebody")
    contributed(TEXT, tmp_path / "results" / "copied")
    shutil.copytree(TEXT, tmp_path / "results" / "h100" / "text")
    monkeypatch.setattr(predict_paper, "DATA", tmp_path)
    shown = repro("predict", "--validate").stdout
    assert "records of results/somebody" in shown
    assert "records of results/copied" not in shown


def test_an_index_of_something_else_is_named_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "index.csv").write_text("name,age\n")
    refused = refusal("contribute", str(TEXT), "--out", str(tmp_path / "out"), "--yes")
    assert f"{tmp_path}/index.csv, line 1, $.folder: found no such column" in refused
    assert not (tmp_path / "out").exists()


def test_a_copied_line_and_days_beyond_any_published_training_are_named(tmp_path: Path) -> None:
    fast, honest = record("pythia-1b", "free_lunch+zero_1", 60.0, true_days=18.0), record("vit", "naive", 400.0)
    contributed(results_folder(tmp_path / "mine", fast, honest, honest), tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "- trials.jsonl, line 3: the raw times of line 2, to the last digit: a copy" in text
    assert "- Pythia-1B on 4 A100: 18.0 true days are implausible" in text
    assert text.count("\n- ") == 2
    [row] = listed(tmp_path)
    assert row.checked == "2 findings, see README.md"
