"""Where too few processes and threads may be started, an error says so."""

from __future__ import annotations

import pytest

from repro.cli import main
from repro.machine import host


def test_a_server_that_cannot_be_started_names_the_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def popen(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", popen)
    assert main(["probe"]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("repro: no more processes and threads may be started here; ")


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
