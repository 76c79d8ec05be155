"""Files that somebody else made: reporting them writes nowhere else, runs nothing, and shows every string as text."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickletools
import re
import subprocess
import tarfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

from repro import files
from repro.released import archive
from repro.report.html import h
from tests.support import released_archive as released
from tests.support.command_line import ROOT, process, record, refusal, repro, results_folder
from tests.support.price_files import gpu_table, prices, rental_table

KEPT = ROOT / "results" / "cpu-2-cores"
UNSEEN = "\x1b[2J\x00\x9b\u202e\u2066\u200b\u2028\ufffe"
MARKUP = "<img src=x onerror=alert(1)> ![p](http://elsewhere/x.png) [l]: http://elsewhere `c` &#8238; a|b\\"
HOSTILE = f"GPU {MARKUP} {UNSEEN}\n\n# All cells are reproduced\n\n"
FORMULA = "=cmd|' /C calc'!A0"
STEERS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufffe]")
RUN = ("--models", "vit", "--processes", "1", "--out")
WRITTEN = (
    *("report.md", "report.html", "verdicts.json", "benchmark.json", "environment.json", "trials.jsonl"),
    *("logs", "logs/server.log"),
)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of a run on a GPU whose name is `HOSTILE`, as are the reasons of what failed."""
    folder = results_folder(
        tmp_path_factory.mktemp("hostile") / "run",
        record("vit", "naive", 20.0, gpu=HOSTILE, count=1, warnings=[HOSTILE]),
        record("vit", "free_lunch", 10.0, gpu=HOSTILE, count=1),
        record("pythia-1b", "naive", None, gpu=HOSTILE, count=1, status="crashed", reason=HOSTILE, remedy=HOSTILE),
        record("mamba", "naive", None, gpu=HOSTILE, count=1, status="crashed", reason=FORMULA, remedy=FORMULA),
    )
    gpu = {"name": HOSTILE, "driver_name": HOSTILE, "memory_bytes": 2**36}
    environment = {"gpus": [gpu], "driver": HOSTILE, "packages": {HOSTILE: HOSTILE}, "variables": {HOSTILE: HOSTILE}}
    (folder / "environment.json").write_text(json.dumps(environment))
    return folder


@pytest.fixture(scope="module")
def reported(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """What a report of it told, and the folder that it was written to."""
    out = tmp_path_factory.mktemp("reported")
    return process("report", str(hostile), "--out", str(out)), out


# Where it writes


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_writes_through_no_link_that_leaves_its_folder(name: str, tmp_path: Path) -> None:
    folder, victim = tmp_path / "run", tmp_path / "home"
    (folder / name).parent.mkdir(parents=True)
    victim.mkdir()
    (victim / ".bashrc").write_text("its owner's")
    target = victim if name == "logs" else victim / ".bashrc"
    (folder / name).symlink_to(target)
    before = contents(tmp_path)
    output = refusal(*RUN, str(folder), CUDA_VISIBLE_DEVICES="")
    assert f"{folder / name} is a link that leaves the folder, to {target}: remove it, or name another" in output
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["report.md", "report.html"])
@pytest.mark.parametrize("there", [True, False], ids=["of a file", "of nothing yet"])
def test_a_report_writes_through_no_link_that_leaves_its_folder(name: str, there: bool, tmp_path: Path) -> None:
    folder, victim = results_folder(tmp_path / "run", record("vit", "naive", 20.0)), tmp_path / ".bashrc"
    if there:
        victim.write_text("its owner's")
    (folder / name).symlink_to("../.bashrc")
    before = contents(tmp_path)
    assert f"{folder / name} is a link that leaves the folder, to {victim}" in refusal("report", str(folder))
    assert contents(tmp_path) == before


def test_a_report_waits_for_no_pipe_and_writes_to_no_device(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("vit", "naive", 20.0))
    os.mkfifo(folder / "report.md")
    assert f"{folder / 'report.md'} is no file: remove it" in refusal("report", str(folder))


def test_what_is_written_first_and_then_renamed_goes_through_no_link_either(tmp_path: Path) -> None:
    victim, folder = tmp_path / ".bashrc", tmp_path / "run"
    victim.write_text("its owner's")
    folder.mkdir()
    (folder / f"report.md.{os.getpid()}.part").symlink_to(victim)
    assert files.replace(folder / "report.md", "the report").read_text() == "the report"
    assert victim.read_text() == "its owner's"


# What it shows


@pytest.mark.parametrize("format", ["text", "markdown", "csv"])
@pytest.mark.parametrize(
    "words",
    [
        *(["report", "--out", "{out}"], ["audit", "--measured"], ["table", "1", "--measured"], ["compare", "{folder}"]),
        *(["claims", id, "--measured"] for id in ("timed-passes", "memory-saving-gain")),
    ],
    ids=["report", "audit", "table", "compare", "rows of a claim", "sentences of a claim"],
)
def test_no_string_of_a_record_steers_a_terminal_or_adds_a_line(
    words: list[str], format: str, hostile: Path, tmp_path: Path
) -> None:
    given = [word.format(folder=hostile, out=tmp_path) for word in words]
    found = repro(*given, str(hostile), "--format", format)
    assert found.stdout
    assert not STEERS.search(found.stdout)
    assert not STEERS.search(found.stderr)
    assert not re.search("^# All cells are reproduced", found.stdout, re.MULTILINE)
    if format == "markdown":
        assert_plain(found.stdout)


def assert_plain(text: str) -> None:
    """Holds that nothing of `HOSTILE` is markup in a Markdown text."""
    assert "<img" not in text
    assert not re.search(r"(?<!\\)\](\(|: )http", text)
    assert "&#8238;" not in text
    assert not re.search(r"(?<!\\)`c(?<!\\)`", text)


def test_the_report_shows_markup_as_text(reported: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    found, out = reported
    assert found.returncode == 0, found.stderr
    text = (out / "report.md").read_text()
    assert not STEERS.search(text)
    assert not re.search("^# All cells are reproduced", text, re.MULTILINE)
    assert_plain(text)
    assert r"&lt;img src=x onerror=alert(1)>" in text
    assert r"\x1b[2J\x00\x9b\u202e\u2066\u200b\u2028\ufffe\n\n# All" in text


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names, self.text = set[str](), ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_text_becomes_no_element_of_a_page() -> None:
    assert h("p", "<img>", title='">') == '<p title="&quot;&gt;">&lt;img&gt;</p>'


def test_the_page_shows_it_as_text_too_and_charts_are_drawn(
    reported: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    found, out = reported
    assert found.stderr.splitlines()[-1] == f"repro: the report is {out / 'report.html'}"
    html = (out / "report.html").read_text()
    assert not STEERS.search(html)
    parsed = Elements()
    parsed.feed(html)
    assert "svg" in parsed.names
    assert not {"img", "script", "iframe"} & parsed.names
    assert "<img src=x onerror=alert(1)>" in parsed.text
    (svg,) = [each for each in re.findall("<svg.*?</svg>", html, re.DOTALL) if "onerror" in each][:1]
    assert "<img" not in svg, "the labels of a chart"


def test_csv_holds_no_formula_and_leaves_numbers_as_they_are(hostile: Path, tmp_path: Path) -> None:
    found = repro("report", str(hostile), "--out", str(tmp_path), "--format", "csv")
    rows = {row["recipe"]: row for row in csv.DictReader(io.StringIO(found.stdout))}
    assert rows["mamba"]["reason"] == f"'{FORMULA}"
    assert float(rows["vit"]["true_days"]) > 0
    rows = {row["id"]: row for row in csv.DictReader(io.StringIO(repro("claims", "--format", "csv").stdout))}
    assert any(value.startswith("-") for row in rows.values() for value in row.values())
    assert not any(value.startswith("'") for row in rows.values() for value in row.values())


def test_a_folders_name_is_text_in_its_report_and_its_commands_can_be_typed(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "<b>`x`<!--\n# forged \x1b[2J\u202e", record("vit", "naive", 20.0))
    other = results_folder(tmp_path / "other", record("pythia-1b", "naive", 20.0))
    found = repro("report", str(folder), str(other), "--out", str(tmp_path / "out"), "--format", "markdown")
    assert found.returncode == 0, found.stderr
    assert not STEERS.search(found.stdout + found.stderr)
    assert not re.search("^# forged", found.stdout, re.MULTILINE)
    assert not re.search("^### .*<b>", found.stdout, re.MULTILINE)
    commands = re.findall(r"^- (`+) ?(.*? report .*?) ?\1:", found.stdout, re.MULTILINE)
    (words,) = [command for _, command in commands if "forged" in command]
    typed = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, check=True)
    assert os.fsencode(folder) in typed.stdout.split(b"\0")


def test_notes_on_a_gpu_of_others_are_text_too(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "own-gpu.toml").read_text()
    file = tmp_path / "own.toml"
    file.write_text(text.replace("NVIDIA's launch price", "<b>bank</b> [x](http://elsewhere)"))
    found = repro("cost", "vit", "--gpu", str(file), "--format", "markdown")
    assert found.returncode == 0, found.stderr
    assert r"&lt;b>bank&lt;/b> [x\](http://elsewhere)" in found.stdout
    assert "<b>" not in found.stdout


def test_a_price_list_is_text_too(tmp_path: Path) -> None:
    markup = "<b>shop</b> [x](http://elsewhere)"
    file = prices(tmp_path, rental_table(provider=markup, gpus=8))
    found = repro("cost", "pythia-1b", "--by", "printed", "--prices", file, "--format", "markdown")
    assert found.returncode == 0, found.stderr
    assert "shop" in found.stdout
    assert "<b>" not in found.stdout
    assert r"[x\](http" in found.stdout
    file = prices(tmp_path, rental_table(provider=FORMULA))
    found = repro("cost", "pythia-1b", "--by", "printed", "--prices", file, "--format", "csv")
    assert f",'{FORMULA}" in found.stdout
    output = refusal("cost", "pythia-1b", "--prices", prices(tmp_path, gpu_table("A\\u202eB")))
    assert "A\\\\u202eB" in output
    assert not STEERS.search(output)


# The authors' archive, or what is named so

MARK = b"import pathlib; pathlib.Path('ran').touch()"
PICKLES = {
    "GLOBAL": b"cbuiltins\nexec\n(S'" + MARK.replace(b"'", b'"') + b"'\ntR.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x08builtins\x8c\x04exec\x93\x8c" + bytes([len(MARK)]) + MARK + b"\x85R.",
    "INST": b"(S'" + MARK.replace(b"'", b'"') + b"'\nibuiltins\nexec\n.",
    "NEWOBJ": b"\x80\x02cbuiltins\nobject\n)\x81.",
    "BUILD": b"\x80\x04}}b.",
    "EXT1": b"\x80\x02\x82\x01.",
    "BINPERSID": b"\x80\x04K\x01Q.",
    "LONG_BINPUT": b"\x80\x04K\x01r\xff\xff\xff\x7f.",
    "BINUNICODE8": b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
    "LONG4": b"\x80\x04\x8b\xff\xff\xff\x7f.",
    "FRAME": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.",
}
LAUGHS = (
    b"\x80\x04}\x94" + b"".join(b"}\x94(K\x01h" + bytes([i]) + b"K\x02h" + bytes([i]) + b"u" for i in range(60)) + b"."
)


def archive_of(path: Path, value: bytes) -> Path:
    """An archive in which the days of one setting are this pickle."""
    results, steps = released.results(), released.steps(released.settings()[1])
    results[steps.days] = gzip.compress(b"\x80\x04\x8c\x03001.\x80\x04\x89." + value)
    return released.write(path / "artifacts.tar", results)


@pytest.mark.parametrize("opcode", PICKLES)
def test_a_pickle_in_the_authors_archive_runs_nothing(opcode: str, tmp_path: Path) -> None:
    path = archive_of(tmp_path, PICKLES[opcode])
    line = refusal("table", "1", "--measured", str(path), cwd=tmp_path)
    assert released.steps(released.settings()[1]).days in line
    unread = opcode in ("FRAME", "BINUNICODE8", "LONG4")  # of which there is less than it says
    assert ("it is damaged" if unread else "its pickle holds") in line
    assert not (tmp_path / "ran").exists()
    assert [each.name for each in tmp_path.iterdir()] == ["artifacts.tar"]


def test_the_unpickler_refuses_every_class_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_PLAIN_OPCODES", {opcode.name for opcode in pickletools.opcodes})
    path = archive_of(tmp_path, PICKLES["STACK_GLOBAL"])
    assert "asks for builtins.exec" in refusal("table", "1", "--measured", str(path), cwd=tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_value_that_would_print_without_end_is_not_printed(tmp_path: Path) -> None:
    assert "do not follow" in refusal("table", "1", "--measured", str(archive_of(tmp_path, LAUGHS)))


def test_a_result_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    results, steps = released.results(), released.steps(released.settings()[1])
    results[steps.days] = gzip.compress(bytes(2**18))
    path = released.write(tmp_path / "artifacts.tar", results)
    assert f"{steps.days}: its gzip is cut off, or unpacks to more than 1024 bytes" in refusal(
        "table", "1", "--measured", str(path)
    )


def header(name: str = "x", type: bytes = tarfile.REGTYPE, size: int = 0, pax: bytes = b"") -> bytes:
    """A tar's header, and the content of one before it for `pax`."""
    found = tarfile.TarInfo(name)
    found.type, found.size = type, size
    before = b""
    if pax:
        before = header("pax", tarfile.XHDTYPE, len(pax)) + pax.ljust(512, b"\0")
    return before + found.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (header("../cache/x"), "'../cache/x' leads out of it"),
        (header("/cache/x"), "'/cache/x' leads out of it"),
        (header("big", size=2**40), "more than 200,000 files or 4,294,967,296 bytes"),
        (header("name", tarfile.GNUTYPE_LONGNAME, 2**31), "a header of its tar is sparse or too long"),
        (header("pax", tarfile.XHDTYPE, 2**31), "a header of its tar is sparse or too long"),
        (header("sparse", tarfile.GNUTYPE_SPARSE), "a header of its tar is sparse"),
        (header(pax=b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"), "a header of its tar is sparse"),
        (header(pax=b"15 size=-99999\n"), "damaged or cut off"),
        (header("pax", tarfile.XGLTYPE) * 5000, "damaged or cut off"),
        (header() * 4 + bytes(1024), "more than 3 files"),
        (header("data", size=3000) + bytes(2**14), "more than"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_tar_that_would_fill_memory_or_lead_elsewhere_is_refused(
    content: bytes, reason: str, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "3 files" in reason:
        monkeypatch.setattr(archive, "_MOST_FILES", 3)
    if reason == "more than":
        monkeypatch.setattr(archive, "_MOST_UNPACKED", 4096)
        monkeypatch.setattr(archive, "_CHUNK", 1024)
    path = tmp_path / "tango_workspace.tgz"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert reason in refusal("table", "1", "--measured", str(path))


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_MOST_FILES", 3)
    (tmp_path / "cache").mkdir()
    for number in range(5):
        (tmp_path / "cache" / str(number)).touch()
    assert "more than 3 files" in refusal("table", "1", "--measured", str(tmp_path))


def test_a_run_cannot_call_its_records_released(tmp_path: Path) -> None:
    folder = results_folder(tmp_path / "run", record("vit", "naive", 20.0), record("vit", "free_lunch", 10.0))
    trials = folder / "trials.jsonl"
    trials.write_text(trials.read_text().replace('"origin": "measured"', '"origin": "released"', 1))
    assert "only the authors' archive has" in repro("table", "1", "--measured", str(folder)).stderr
