"""File systems that answer oddly, as network mounts do: a run goes on where that is safe, or is refused with why."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from tests.run.test_results import FINISHING
from tests.support.command_line import ROOT, one_line, process, process_of, trial_lines

NO_LOCKS = ("ENOLCK", "EOPNOTSUPP", "ENOSYS")
NO_SYNC = ("EINVAL", "ENOSYS", "EOPNOTSUPP", "EROFS")
RUN = ("--models", "vit", "--processes", "1", "--out")
WITHOUT_LOCKS = "is on a file system without locks"


@cache
def refusing(call: str, error: str) -> str:
    """A library that, loaded before libc, has `call` fail with `error`."""
    made = Path(mkdtemp(), f"{call}-{error}.so")
    code = f"#include <errno.h>\nint {call}(int file, int how) {{ errno = {error}; return -1; }}\n"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-o", made, "-"], input=code, text=True, check=True)
    return str(made)


def finishing(folder: Path, library: str, count: int) -> tuple[list[str], subprocess.Popen[str]]:
    """Finishes so many trials in a folder with this library loaded; what they are, and the process, which is stopped
    and goes on holding the folder."""
    run = subprocess.Popen(
        [sys.executable, "-c", FINISHING, str(folder), "-1"],
        cwd=ROOT,
        env={**os.environ, "LD_PRELOAD": library},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stdout is not None
    finished = [run.stdout.readline().strip() for _ in range(count)]
    run.send_signal(signal.SIGSTOP)
    return finished, run


def ended(run: subprocess.Popen[str]) -> str:
    run.kill()
    return run.communicate()[1]


@pytest.mark.parametrize("error", NO_SYNC)
def test_a_sync_that_is_refused_drops_no_trial_and_is_reported_once(error: str, tmp_path: Path) -> None:
    finished, run = finishing(tmp_path, refusing("fsync", error), 3)
    assert ended(run) == (
        f"repro: {tmp_path} is on a file system that does not sync: a power cut may lose what was finished last\n"
    )
    lines = trial_lines(tmp_path)[:3]  # the kill may have torn the one after
    assert finished == [json.loads(line)["id"] for line in lines]


def test_a_sync_that_fails_on_a_broken_disk_is_no_such_case(tmp_path: Path) -> None:
    _, run = finishing(tmp_path, refusing("fsync", "EIO"), 1)
    run.send_signal(signal.SIGCONT)
    assert f"one line: cannot write to {tmp_path}: Input/output error" in run.communicate()[1]
    assert (tmp_path / "trials.jsonl").read_text() == ""


@pytest.mark.parametrize("error", NO_LOCKS)
def test_a_folder_without_locks_is_written_to_with_a_line_that_says_so(error: str, tmp_path: Path) -> None:
    finished, run = finishing(tmp_path, refusing("flock", error), 3)
    output = ended(run)
    assert output == f"repro: {tmp_path} {WITHOUT_LOCKS}: see that no run of another process or machine writes there\n"
    assert all(finished)
    finished, run = finishing(tmp_path, refusing("flock", error), 1)  # what was killed holds nothing
    assert WITHOUT_LOCKS in ended(run)
    assert all(finished)


def test_a_build_cache_without_locks_is_refused_before_any_trial(tmp_path: Path) -> None:
    variables: dict[str, Any] = {"CUDA_VISIBLE_DEVICES": "", "LD_PRELOAD": refusing("flock", "ENOSYS")}
    line = one_line(process(*RUN, str(tmp_path / "out"), REPRO_CACHE=str(tmp_path / "cache"), **variables))
    assert line.startswith(f"repro: {tmp_path / 'cache'}, where it would build, {WITHOUT_LOCKS}, ")
    assert "REPRO_CACHE" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["run", "lab", "probe", "compare --against timm==1.0.0"])
def test_where_there_is_no_temporary_folder_nothing_is_made(command: str, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    full = ["prlimit", "--fsize=0"]  # no file takes a byte
    line = one_line(process_of(full, *command.split(), "--out", str(out), CUDA_VISIBLE_DEVICES=""))
    assert line == (
        "repro: no temporary folder can be written, neither /tmp nor /var/tmp: free some space there, or name another "
        "folder in TMPDIR\n"
    )
    assert not out.parent.exists()


# --- The disk that compilers write to is full ---


@pytest.fixture
def small_disk(tmp_path: Path) -> tuple[list[str], Path]:
    """What runs a command, by a shell, beside a disk of 300 MiB, and the folder of that."""
    place = tmp_path / "cache"
    place.mkdir()
    alone = ["unshare", "--mount", "--map-root-user", "bash", "-c"]
    mounting = f"mount -t tmpfs -o size=300m none {shlex.quote(str(place))}"
    if subprocess.run([*alone, mounting], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    return [*alone, mounting], place


def test_a_full_build_cache_is_refused_before_any_trial(small_disk: tuple[list[str], Path], tmp_path: Path) -> None:
    (*alone, mounting), cache = small_disk
    filled = f'{mounting}; head -c 100M /dev/zero > {cache}/other; exec "$@"'
    variables: dict[str, Any] = {"CUDA_VISIBLE_DEVICES": "", "REPRO_CACHE": str(cache)}
    line = one_line(process_of([*alone, filled, "sh"], *RUN, str(tmp_path / "out"), **variables))
    assert line == (
        f"repro: {cache}: 200 MiB of disk are free, 256 are needed; free some, or name a folder elsewhere in "
        "REPRO_CACHE\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_full_results_folder_is_refused_before_any_trial(small_disk: tuple[list[str], Path]) -> None:
    (*alone, mounting), place = small_disk
    filled = f'{mounting}; head -c 299M /dev/zero > {place}/other; exec "$@"'
    line = one_line(process_of([*alone, filled, "sh"], *RUN, str(place / "run"), CUDA_VISIBLE_DEVICES=""))
    assert line == f"repro: {place / 'run'}: 1 MiB of disk are free, 256 are needed; free some\n"


@pytest.mark.slow
def test_a_build_cache_that_is_full_later_is_a_crash_that_names_the_disk(
    small_disk: tuple[list[str], Path], tmp_path: Path
) -> None:
    (*alone, mounting), cache = small_disk
    out = tmp_path / "out"
    fill = f"until [[ -e {out}/logs/server.log ]]; do sleep 0.1; done; cat /dev/zero > {cache}/other"
    variables: dict[str, Any] = {"CUDA_VISIBLE_DEVICES": "", "REPRO_CACHE": str(cache)}
    shell = f'{mounting}; ({fill}) 2>/dev/null & "$@"'
    done = process_of([*alone, shell, "sh"], *RUN, str(out), "--", "-k", "free_lunch", **variables)
    (record,) = map(json.loads, trial_lines(out))
    assert done.returncode == 1, done.stderr
    assert record["status"] == "crashed"
    assert re.match(f"no space left in {re.escape(str(cache))}, where it builds: .", record["reason"])
    assert record["remedy"] == (
        "free some space, or name a folder elsewhere in REPRO_CACHE or TMPDIR, and run the same command again"
    )
    assert (out / "report.md").is_file()


def test_a_set_up_asks_the_file_system_and_not_df_for_room(tmp_path: Path) -> None:
    """By a device whose name has blanks, df's columns shift."""
    text = (ROOT / "locks" / "install.sh").read_text()
    (function,) = re.findall(r"^need_space\(\) \{.*?^\}$", text, re.MULTILINE | re.DOTALL)
    line = f'die() {{ echo "$*"; exit 2; }}; uv=echo; stack=lock; venv={tmp_path}/venv; {function}\nneed_space'
    for room, code in (("0", 0), ("1000000", 2)):
        done = subprocess.run(["bash", "-euc", f"{line} {room}"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stdout
    free = os.statvfs(tmp_path)
    assert f"and {tmp_path} has {free.f_bavail * free.f_frsize >> 30} GiB free" in done.stdout
