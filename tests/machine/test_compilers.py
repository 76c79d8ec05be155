"""What no compiler can work with is refused before the first trial, each with its own line."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import command_line
from tests.support.command_line import refusal

RUN = ["run", "--models", "vit", "--processes", "1", "--out"]


@pytest.mark.parametrize(
    ("variable", "value", "output"),
    [
        ("TORCHDYNAMO_DISABLE", "1", "turns torch.compile off, which free lunch is measured with: unset it"),
        ("TORCH_COMPILE_DISABLE", "1", "turns torch.compile off, which free lunch is measured with: unset it"),
        ("CXX", "no-such-compiler", ": there is no such program, expected a compiler; name one, or unset it"),
        ("CXX", "", ": there is no such program, expected a compiler; name one, or unset it"),
    ],
)
@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_variable_that_stops_the_compiler_is_named(
    tmp_path: Path, command: str, variable: str, value: str, output: str
) -> None:
    arguments = [*RUN, str(tmp_path / "out")]
    if command == "compare":
        arguments = [command, "--against", "timm==1.0.31", "--models", "vit", "--out", str(tmp_path / "out")]
    line = refusal(*arguments, cwd=command_line.ROOT, CUDA_VISIBLE_DEVICES="", **{variable: value})
    assert line.startswith(f"repro: {variable}={value}")
    assert output in line
    assert not (tmp_path / "out").exists()


def test_what_compiles_nothing_needs_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")  # by which the run is refused next
    naive = [*RUN, str(tmp_path / "out"), "--methods", "naive"]
    line = refusal(*naive, CUDA_VISIBLE_DEVICES="", TORCHDYNAMO_DISABLE="1", CXX="no-such-compiler")
    assert line.startswith(f"repro: cannot write to {tmp_path / 'out'}")


def test_a_build_cache_from_which_nothing_can_be_loaded_is_named(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    mounting = 'mount -t tmpfs -o noexec none "$0"'
    alone = ["unshare", "--mount", "--map-root-user", "sh", "-c"]
    if subprocess.run([*alone, mounting, cache], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    done = command_line.process_of(
        [*alone, f'{mounting}; exec "$@"', str(cache)],
        *RUN,
        str(tmp_path / "out"),
        CUDA_VISIBLE_DEVICES="",
        REPRO_CACHE=str(cache),
    )
    line = command_line.one_line(done)
    assert line.startswith(f"repro: {cache}, where it would build, is on a file system mounted noexec, ")
    assert "REPRO_CACHE" in line
    assert not (tmp_path / "out").exists()
