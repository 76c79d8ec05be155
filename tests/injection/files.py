"""Files that somebody edited, damaged or forged: read in this process by the commands that read, by hundreds."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

from repro.console import FAILED, OK, USAGE
from repro.run.results import TRIALS, VERDICTS, Results, read_trials
from tests.support.command_line import ROOT, repro
from tests.support.price_files import gpu_table, rate_table, rental_table
from tests.test_hostile import STEERS

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
