"""Where too few processes and threads may be started, an error says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.machine import host
from repro.measure.launcher import ForkServer, ServerDiedError


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
