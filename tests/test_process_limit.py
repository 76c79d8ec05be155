"""Where too few processes and threads may be started the limit is named, before anything is measured where possible."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from repro.machine import host
from repro.measure.launcher import ForkServer, ServerDiedError
from tests.command_line import one_line, process_of

_GROUPS = Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")
VIT = ["--models", "vit", "--methods", "naive", "--processes", "2"]


@contextmanager
def limited_group(most: int) -> Iterator[list[str]]:
    """A command that starts another one in a control group of so many processes and threads."""
    group = next(each for each in _GROUPS if each.is_dir()) / f"repro-{os.getpid()}"
    try:
        group.mkdir()
        (group / "pids.max").write_text(str(most))
    except OSError:
        pytest.skip("no control group may be made here")
    try:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "limited"]
    finally:
        group.rmdir()


def test_a_control_group_of_a_few_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    with limited_group(8) as limited:
        output = one_line(process_of(limited, *VIT, "--out", str(tmp_path / "out"), CUDA_VISIBLE_DEVICES=""))
    assert output.startswith("repro: pids.max of this control group is 8, which leaves ")
    assert "processes and threads: trials here take about " in output
    assert not (tmp_path / "out").exists()


def test_a_user_s_limit_of_a_few_is_refused_too(tmp_path: Path) -> None:
    """Of another user than root, who is not held to it, with root's right to read what is root's."""
    rights = "+dac_override,+dac_read_search"
    user = ["setpriv", "--reuid", "54321", "--inh-caps", rights, "--ambient-caps", rights]
    limited = [*user, "prlimit", "--nproc=20"]
    if subprocess.run([*limited, "true"], capture_output=True).returncode:
        pytest.skip("no other user may be taken here")
    output = one_line(process_of(limited, *VIT, "--out", str(tmp_path / "out"), CUDA_VISIBLE_DEVICES=""))
    assert output.startswith("repro: ulimit -u is 20, which leaves ")
    assert not (tmp_path / "out").exists()


def test_a_server_that_cannot_be_started_names_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", popen)
    with ForkServer(tmp_path / "log", {}) as server, pytest.raises(ServerDiedError) as error:
        server.start()
    assert error.value.reason.startswith("the fork server cannot be started: no more processes and threads may be ")


@pytest.mark.parametrize(
    ("output", "lacks"),
    [
        ("RuntimeError: can't start new thread", True),
        ("libgomp: Thread creation failed: Resource temporarily unavailable", True),
        ("ValueError: no such operator", False),
    ],
)
def test_what_lacks_processes_is_reported_by_its_words(output: str, lacks: bool) -> None:
    assert host.no_more_processes(output) == lacks
