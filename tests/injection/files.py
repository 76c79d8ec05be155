"""Files that somebody edited, damaged or forged: read in this process by the commands that read, by hundreds."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

from repro.console import FAILED, OK, USAGE, UserError
from repro.run.reading import read
from repro.run.results import TRIALS, VERDICTS, Results, read_trials
from tests.command_line import ROOT, record, repro, results_folder
from tests.price_files import gpu_table, rate_table, rental_table
from tests.test_hostile import FORMULA, MARKUP, STEERS, UNSEEN, WRITTEN, Elements, assert_plain

from .case import Case, fault

KEPT = (ROOT / "results/h100/text", ROOT / "results/h100/vision", ROOT / "results/cpu-2-cores")
FILES = (TRIALS, TRIALS, TRIALS, "environment.json", VERDICTS, "benchmark.json")  # trials as often as all others
READING = (
    ("audit", "--measured", "{}"),
    ("table", "1", "--measured", "{}"),
    ("table", "4", "--measured", "{}", "--format", "json"),
    ("claims", "--measured", "{}"),
    ("compare", str(KEPT[0]), "{}"),
    ("cost", "vit", "--measured", "{}"),
)
_PRICES = gpu_table() + rental_table() + rate_table("EUR", "USD")
EVIL: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**70, -(2**63), 1e308, -0.0, 5e-324, "", "NaN", [], {}, [[]], {"": {}}),
    *(UNSEEN, MARKUP, FORMULA, "\ud800", "../../etc/passwd", "A" * 10_000, "H100", "ok", "out_of_memory"),
)
# Days follow from these values alone.
_RAW_VALUE = re.compile(r", (host|device_times|synchronised|authors_micro_batch)\b")
_RAW = ("NaN", "-Infinity", "1e999", "[" * 2000, '"\\ud800"', '"\\u0000"', "0x10", "01", "{", "\x00", "\xff", "\ufeff")


def _read_by_a_command(case: Case, words: tuple[str, ...], folder: Path, expected: Path | None = None) -> None:
    """Check how a command that reads ends: by a named code, and where it refuses, in one line; nothing that it says
    steers a terminal."""
    variables = {} if expected is None else {"REPRO_EXPECTED": str(expected)}
    done = repro(*(word.format(folder) for word in words), cwd=ROOT, **variables)
    case.check(done.returncode in (OK, FAILED, USAGE, 3), f"{words[0]}: exit code {done.returncode}")
    case.check("Traceback" not in done.stdout + done.stderr, f"{words[0]}: {done.stderr[-300:]}")
    case.check(not STEERS.search(done.stdout + done.stderr), f"{words[0]}: it steers a terminal")
    if done.returncode == USAGE:
        case.check(len(done.stderr.splitlines()) >= 1 and not done.stdout, f"{words[0]}: {done.stderr}")
    for line in done.stderr.splitlines():
        case.check(line.startswith("repro: "), f"{words[0]}: {line[:200]!r}")


# --- Damage ---


def _flip(case: Case, text: bytes) -> bytes:
    found = bytearray(text)
    for _ in range(case.random.randint(1, 8)):
        found[case.random.randrange(len(found))] = case.random.randrange(256)
    return bytes(found)


def _cut(case: Case, text: bytes) -> bytes:
    begin = case.random.randrange(len(text))
    return text[:begin] + text[begin + case.random.choice([1, 100, len(text)]) :]


def _insert(case: Case, text: bytes) -> bytes:
    at = case.random.randrange(len(text))
    raw = case.random.choice(_RAW).encode(errors="surrogatepass")
    return text[:at] + raw + text[at:]


def _shuffle(case: Case, text: bytes) -> bytes:
    found = text.splitlines(keepends=True)
    case.random.shuffle(found)
    return b"".join(found[: case.random.randint(1, len(found))] + found[:1])


DAMAGE: tuple[Callable[[Case, bytes], bytes], ...] = (_flip, _cut, _insert, _shuffle)


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in some JSON."""
    found = [at] if at else []
    if isinstance(value, dict):
        return found + [place for key, each in value.items() for place in _places(each, (*at, key))]
    if isinstance(value, list):
        return found + [place for key, each in enumerate(value[:3]) for place in _places(each, (*at, key))]
    return found


def _edit(case: Case, value: Any) -> str:
    """Change one value, anywhere in some JSON, or remove it; returns what was done."""
    place = case.random.choice(_places(value))
    for step in place[:-1]:
        value = value[step]
    last, path = place[-1], ".".join(map(str, place))
    if case.random.random() < 0.1:
        del value[last]
        return f"{path} removed"
    was = value[last]
    if isinstance(was, (int, float)) and not isinstance(was, bool) and case.random.random() < 0.5:
        new: Any = type(was)(was * case.random.choice([0, 0.5, 0.999, 1.001, 2, 1e6, -1]))
    else:
        new = case.random.choice(EVIL)
    value[last] = new
    return f"{path} = {json.dumps(new)[:60]}"


def _edit_file(case: Case, file: Path) -> str:
    text = file.read_text()
    if file.name != TRIALS:
        row = json.loads(text)
        output = _edit(case, row)
        file.write_text(json.dumps(row))
        return output
    found = text.splitlines()
    number = case.random.randrange(len(found))
    row = json.loads(found[number])
    output = _edit(case, row)
    found[number] = json.dumps(row)
    file.write_text("\n".join(found) + "\n")
    return f"line {number + 1}, {output}"


def _days(folder: Path) -> set[tuple[str, float | None, float]]:
    """The days that a folder's records tell, each with what of it."""
    known = [each for each in read(folder).records if each.derived.true_days is not None]
    return {
        (each.recipe, each.derived.authors_days, each.derived.true_days)
        for each in known
        if each.derived.true_days is not None
    }


@fault("forged files", times=600, fast=100)
def edit_a_value(case: Case) -> None:
    """One value of a results folder is changed. No cell gets days that no record of the folder told before, unless a
    raw time or what divides a batch was changed, and the other records are still read; without the environment that a
    run wrote they need not be."""
    whole = {kept: _days(kept) for kept in KEPT}
    for _ in range(case.count):
        kept = case.random.choice(KEPT)
        folder = case.folder(kept)
        file = folder / case.random.choice([each for each in FILES if (folder / each).is_file()])
        output = _edit_file(case, file)
        with case.injection(f"{kept.name}/{file.name}, {output}"):
            found = _days(folder)
            if not _RAW_VALUE.search(output):
                case.check(found <= whole[kept], f"new days: {sorted(map(str, found - whole[kept]))}")
            lacking = len(whole[kept]) - len(found)
            if file.name != "environment.json":
                case.check(lacking <= (1 if file.name == TRIALS else 0), f"{lacking} records are not read")
                case.result.lost += max(0, lacking - 1)
            _read_by_a_command(case, case.random.choice(READING), folder)
        shutil.rmtree(folder)


@fault("forged files", times=600, fast=100)
def damage_a_file(case: Case) -> None:
    """Bytes of a results folder are changed, cut, put in, or its lines in another order."""
    for _ in range(case.count):
        kept, damage = case.random.choice(KEPT), case.random.choice(DAMAGE)
        folder = case.folder(kept)
        file = folder / case.random.choice([each for each in FILES if (folder / each).is_file()])
        file.write_bytes(damage(case, file.read_bytes()))
        with case.injection(f"{kept.name}/{file.name}, {damage.__name__[1:]}"):
            _read_by_a_command(case, case.random.choice(READING), folder)
        shutil.rmtree(folder)


@fault("forged files", times=40, fast=10)
def something_else_in_the_place_of_a_file(case: Case) -> None:
    """A folder, a link to itself, to a device or to nothing, a pipe, nothing at all: no command waits, or reads on
    without end."""
    for _ in range(case.count):
        folder = case.folder(case.random.choice(KEPT))
        file = folder / case.random.choice(FILES)
        file.unlink(missing_ok=True)
        kind = case.random.choice(["folder", "loop", "zero", "full", "nothing", "pipe", "gone", "empty"])
        with case.injection(f"{file.name}: {kind}"):
            if kind == "folder":
                file.mkdir()
            elif kind == "pipe":
                os.mkfifo(file)
            elif kind == "empty":
                file.touch()
            elif kind != "gone":
                links = {"loop": file.name, "zero": "/dev/zero", "full": "/dev/full", "nothing": "nowhere"}
                file.symlink_to(links[kind])
            words = [word.format(folder) for word in case.random.choice(READING)]
            ended = case.ended(case.start(*words), (OK, FAILED, USAGE, 3))
            case.check(not STEERS.search(ended.message), "it steers a terminal")
        shutil.rmtree(folder)


@fault("forged files", times=300, fast=60)
def damage_reference_data(case: Case) -> None:
    """A table of the paper in the folder that REPRO_EXPECTED names: one line with the file and the place, or a table
    with a line that it is another's."""
    for _ in range(case.count):
        folder = case.folder(ROOT / "expected")
        file = case.random.choice(sorted(folder.glob("*.csv")))
        file.write_bytes(case.random.choice(DAMAGE)(case, file.read_bytes()))
        with case.injection(file.name):
            words = case.random.choice([("table", "1"), ("audit",), ("list", "gpus"), ("cost", "vit")])
            _read_by_a_command(case, words, folder, folder)
        shutil.rmtree(folder)


@fault("forged files", times=300, fast=60)
def damage_a_price_list(case: Case) -> None:
    for _ in range(case.count):
        file = case.root / "prices.toml"
        file.write_bytes(case.random.choice(DAMAGE)(case, _PRICES.encode()))
        with case.injection():
            words = case.random.choice([("cost", "vit"), ("cost", "--machine", "9000")])
            _read_by_a_command(case, (*words, "--prices", "{}"), file)


@fault("torn lines", times=400, fast=100)
def torn_last_line(case: Case) -> None:
    """trials.jsonl ends anywhere, or in bytes of anything: each whole line before it is kept, as it was."""
    whole = (KEPT[2] / TRIALS).read_bytes()
    for _ in range(case.count):
        folder = case.folder()
        folder.mkdir()
        at = case.random.randrange(len(whole))
        rest = case.random.choice([b"", b"\0" * 4096, b"\xff\xfe", b"{}", b'{"id": "', case.random.randbytes(64)])
        rest = rest.replace(b"\n", b"")
        (folder / TRIALS).write_bytes(whole[:at] + rest)
        before = [each for each in whole[:at].split(b"\n")[:-1] if each]
        with case.injection(f"at {at}, then {rest[:8]!r}"):
            with redirect_stderr(io.StringIO()), Results(folder):
                pass
            after = (folder / TRIALS).read_bytes().split(b"\n")
            gone = [each for each in before if each not in after]
            case.result.lost += len(gone)
            case.check(not gone, f"{len(gone)} lines are gone")
            case.check(after[-1] == b"", "it does not end with a line")
            found = [each for each in read_trials(folder).lines if each.record is not None]
            case.check(len(found) >= len(before), f"{len(found)} of {len(before)} are read")
        shutil.rmtree(folder)


@fault("torn lines", times=3, fast=1)
def torn_last_line_of_a_run(case: Case) -> None:
    """The same through a run: it measures what was torn again, and nothing else."""
    for _ in range(case.count):
        folder = case.folder(case.reference.folder)
        trials = folder / TRIALS
        first = trials.read_bytes().split(b"\n")[0] + b"\n"
        with case.injection():
            trials.write_bytes(trials.read_bytes()[: case.random.randrange(len(first) + 1, trials.stat().st_size - 1)])
            case.resumes(folder)


# --- Forgeries ---


def _environment(**changed: Any) -> str:
    """That of a real H100's run."""
    return json.dumps(json.loads((KEPT[0] / "environment.json").read_text()) | changed)


def _out_of_memory_without_a_gpu(folder: Path) -> Path:
    """The seven fields that made a verified cell: an out-of-memory that the paper has too, in a folder of no GPU."""
    made = results_folder(
        folder, record("pythia-6.9b", "naive", None, gpu="H100", count=1, status="out_of_memory", reason="")
    )
    shutil.copy(KEPT[2] / "environment.json", made)
    return made


def _out_of_memory_of_no_word(folder: Path) -> Path:
    """The same in a folder with the GPU, which said nothing of its memory."""
    made = _out_of_memory_without_a_gpu(folder)
    (made / "environment.json").write_text(_environment())
    return made


def _renamed_device(folder: Path) -> Path:
    """A CPU's record with another device's name and all derived numbers of that."""
    made = results_folder(folder, record("vit", "naive", 93.0, gpu="H100", count=1))
    shutil.copy(KEPT[2] / "environment.json", made)
    return made


def _without_an_environment(folder: Path) -> Path:
    made = results_folder(folder, record("vit", "naive", 93.0, gpu="H100", count=1))
    (made / "environment.json").unlink(missing_ok=True)
    return made


def _faster_than_the_hardware(folder: Path) -> Path:
    """A training in a hundredth of the printed days, far above the GPU's peak."""
    made = results_folder(folder, record("pythia-1b", "naive", 0.3, gpu="H100", count=1))
    (made / "environment.json").write_text(_environment())
    return made


def _of_another_commit(folder: Path) -> Path:
    """A record that was written by no version that the environment lists."""
    made = results_folder(folder, replace(record("vit", "naive", 93.0, gpu="H100", count=1), commit="f" * 40))
    (made / "environment.json").write_text(_environment())
    return made


def _with_busy_cpus(folder: Path) -> Path:
    """A GPU's record without a GPU's state."""
    made = results_folder(folder, record("vit", "naive", 93.0, gpu="H100", count=1, gpu_state=[None], busy_cpus=1.5))
    (made / "environment.json").write_text(_environment())
    return made


FORGERIES: tuple[Callable[[Path], Path], ...] = (
    *(_out_of_memory_without_a_gpu, _out_of_memory_of_no_word, _renamed_device, _without_an_environment),
    *(_faster_than_the_hardware, _of_another_commit, _with_busy_cpus),
)


@fault("forged files", times=len(FORGERIES), fast=len(FORGERIES))
def forge_a_cell(case: Case) -> None:
    """Records that no run wrote: no cell of the paper is compared with them, and the folder's problem is named."""
    for forge in FORGERIES[: case.count]:
        with case.injection(forge.__name__[1:].replace("_", " ")):
            folder = forge(case.folder())
            for table in ("1", "4"):
                done = repro("table", table, "--measured", str(folder), "--format", "json")
                case.check(done.returncode in (OK, FAILED), done.stderr)
                rows = json.loads(done.stdout or "[]")
                compared = [row["model"] for row in rows if row["verdict"] != "not_measured"]
                case.check(not compared, f"table {table} compares {compared}")


@fault("forged files", times=1, fast=1)
def numbers_of_another_paper(case: Case) -> None:
    """With REPRO_EXPECTED every command says on stderr that the paper's numbers are another's."""
    with case.injection():
        folder = case.folder(ROOT / "expected")
        for words in (("table", "1"), ("audit",), ("claims",), ("cost", "vit"), ("list", "gpus"), ("list", "recipes")):
            done = repro(*words, REPRO_EXPECTED=str(folder))
            said = [line for line in done.stderr.splitlines() if "REPRO_EXPECTED" in line]
            case.check(done.returncode in (OK, FAILED) and len(said) == 1, f"{words[0]}: {done.stderr[-200:]!r}")


@fault("forged files", times=1, fast=1)
def wide_tolerance(case: Case) -> None:
    """A tolerance of one's own stands in the headline."""
    with case.injection():
        folder = results_folder(case.folder(), record("vit", "naive", 120.0, gpu="H100", count=1))
        options = json.loads(_environment())["options"] | {"tolerance": 0.5}
        (folder / "environment.json").write_text(_environment(options=options))
        out = case.folder()
        ended = case.ended(case.start("report", str(folder), "--out", str(out)), (OK, FAILED))
        headline = ended.stdout.partition("\n\n")[0]
        case.check(re.search(r"50 ?%", headline), f"the headline is {headline!r}")


@fault("hostile files", times=8, fast=3)
def link_out_of_the_folder(case: Case) -> None:
    """A file of the folder is a link to one of its reader's: nothing is written through it."""
    for _ in range(case.count):
        folder = case.folder(KEPT[0])
        victim = case.root / ".bashrc"
        victim.write_text("its owner's")
        name = case.random.choice([each for each in WRITTEN if "/" not in each and each != "logs"])
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(case.random.choice([str(victim), "../.bashrc"]))
        with case.injection(name):
            reports = name.startswith("report.")
            words = ("report", str(folder)) if reports else ("run", "--models", "vit", "--out", str(folder))
            case.refused(*words, says="is a link that leaves the folder")
            case.check(victim.read_text() == "its owner's", "it was written to")


@fault("hostile files", times=8, fast=1)
def hostile_names(case: Case) -> None:
    """Strings of a folder hold what steers a terminal, adds lines, is markup, or kills the library that draws."""
    for _ in range(case.count):
        pieces = [*UNSEEN, "\n# All is reproduced\n", MARKUP, FORMULA, "\U000e0001", "\x1b]0;x\x07", "a" * 3000]
        name = "GPU " + "".join(case.random.sample(pieces, 5))
        with case.injection(ascii(name)[:40]):
            folder = results_folder(
                case.folder(),
                record("vit", "naive", 20.0, gpu=name, count=1, warnings=[name]),
                record("mamba", "naive", None, gpu=name, count=1, status="crashed", reason=name, remedy=name),
            )
            gpu = {"name": name, "driver_name": name, "memory_bytes": 2**36}
            (folder / "environment.json").write_text(
                json.dumps({"gpus": [gpu], "driver": name, "packages": {name: name}, "variables": {name: name}})
            )
            out = case.folder()
            ended = case.ended(case.start("report", str(folder), "--out", str(out)), (OK, FAILED))
            case.check((out / "report.html").is_file(), f"no page: {ended.stderr[-200:]}")
            for text in (ended.message, *(each.read_text() for each in out.iterdir())):
                case.check(not STEERS.search(text) and "\n# All is" not in text, "it steers a terminal or adds a line")
            assert_plain((out / "report.md").read_text())
            page = Elements()
            page.feed((out / "report.html").read_text())
            case.check(not {"img", "script"} & page.names, f"elements of the page: {page.names}")


@fault("hostile files", times=4, fast=1)
def lock_that_is_no_stack(case: Case) -> None:
    """What compare --against is given in place of a stack's lock is refused before anything is measured: a lock of one
    package in the words for one, and what no hash vouches for is said to be so."""
    one = "timm==1.0.31"
    locks = {
        "of one package": (f"{one} --hash=sha256:{'0' * 64}\n", "the few that are to differ"),
        "without hashes": (f"{one}\n", "no hash in it"),
        "no text": ("\x00\n", r"their\.lock"),
        "empty": ("", "it is empty"),
    }
    for name, (text, says) in list(locks.items())[: case.count]:
        with case.injection(name):
            lock, out = case.root / "their.lock", case.folder()
            lock.write_text(text)
            run = case.start("compare", "--against", str(lock), "--models", "vit", "--out", str(out))
            case.ended(run, (USAGE,), says)
            case.check(not out.exists(), "it was run")


@fault("hostile files", times=1, fast=1)
def trials_that_cannot_be_read(case: Case) -> None:
    """A file whose bytes nobody can read is one line."""
    with case.injection():
        folder = case.folder(KEPT[0])
        (folder / TRIALS).unlink()
        (folder / TRIALS).symlink_to("/proc/self/mem")
        try:
            read(folder)
            case.check(False, "it was read")
        except UserError as error:
            case.check("cannot be read" in str(error), error)
