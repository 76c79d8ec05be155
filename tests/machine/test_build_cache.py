"""The build cache: what a killed compiler left in it is removed, and nothing that is whole or being built."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from repro.console import UserError
from repro.machine.build_cache import build_cache, clean_build_caches, cut_short, wanted_cache
from repro.machine.stack import server_environment
from repro.measure.launcher import ForkServer
from tests.support.command_line import ROOT, one_line, process_of, refusal

WHOLE = Path(psutil.__file__).parent / "_psutil_linux.abi3.so"


def caches(folder: Path) -> dict[str, str]:
    found = {"TORCHINDUCTOR_CACHE_DIR": folder / "inductor", "TORCH_EXTENSIONS_DIR": folder / "extensions"}
    for place in found.values():
        (place / "deep").mkdir(parents=True)
    return {name: str(place) for name, place in found.items()}


def test_an_object_is_whole_to_its_last_byte_of_sections(tmp_path: Path) -> None:
    whole, file = WHOLE.read_bytes(), tmp_path / "kernel.so"
    file.write_bytes(whole)
    assert not cut_short(file)
    for length in (0, 10, 64, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert cut_short(file)
    file.write_bytes(bytes(len(whole)))
    assert cut_short(file), "a linker writes the header last"
    file.write_bytes(whole[:40] + bytes(8) + whole[48:])
    assert cut_short(file), "and in it the place of its table of sections"
    assert not cut_short(tmp_path / "gone.so")


def test_what_was_cut_short_and_locks_of_nobody_are_removed_and_all_else_stays(tmp_path: Path) -> None:
    variables = caches(tmp_path)
    objects, extensions = tmp_path / "inductor" / "deep", tmp_path / "extensions" / "deep"
    (objects / "whole.so").write_bytes(WHOLE.read_bytes())
    (objects / "kernel.cpp").touch()
    for file in (objects / "cut.so", objects / "linking.so", extensions / "lock", extensions / "fused_adam.so"):
        file.touch()
    with (objects / "linking.so").open("ab"):
        assert clean_build_caches(variables) == 2
    assert {file.name for file in objects.iterdir()} == {"whole.so", "kernel.cpp", "linking.so"}
    assert {file.name for file in extensions.iterdir()} == {"fused_adam.so"}
    assert clean_build_caches(variables) == 1
    assert clean_build_caches({}) == 0


def test_a_build_that_another_process_is_at_is_waited_for(tmp_path: Path) -> None:
    variables, lock = caches(tmp_path), tmp_path / "extensions" / "deep" / "lock"
    (torch,) = importlib.util.find_spec("torch").submodule_search_locations  # type: ignore[union-attr, misc]
    code = "import sys; from file_baton import FileBaton; b = FileBaton(sys.argv[1]); b.try_acquire(); input()"
    command = [sys.executable, "-c", f"import sys; sys.path.append({torch + '/utils'!r}); {code}", str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as builder:
        try:
            while not lock.exists():
                assert builder.poll() is None
            assert clean_build_caches(variables) == 0
        finally:
            builder.kill()
            builder.wait()
    assert lock.exists()
    assert clean_build_caches(variables) == 1


def test_a_fork_server_mends_its_caches_before_it_starts(tmp_path: Path) -> None:
    variables, cut = caches(tmp_path), tmp_path / "inductor" / "deep" / "cut.so"
    cut.touch()
    with ForkServer(tmp_path / "log", variables) as server:
        server.launch()
        assert not cut.exists()


def test_the_cache_lies_beside_the_environment_or_where_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("REPRO_CACHE", raising=False)
    assert wanted_cache() == ROOT / ".venv" / "build-cache"
    place = tmp_path / "new" / "cache"
    monkeypatch.setenv("REPRO_CACHE", str(place))
    assert [build_cache(), build_cache()] == [place, place]
    assert place.is_dir()


@pytest.mark.parametrize("name", ["with blanks", "it's", "a[b", "\udcff"])
def test_a_cache_that_compilers_do_not_take_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / name))
    with pytest.raises(UserError, match=r"hands its compiler no path with blanks, quotes, brackets or bytes that are"):
        build_cache()
    assert not (tmp_path / name).exists()


def test_a_cache_that_is_a_file_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    file, out = tmp_path / "cache", tmp_path / "out"
    file.touch()
    output = refusal("--models", "vit", "--processes", "1", "--out", str(out), REPRO_CACHE=str(file))
    assert output == f"repro: {file}, where it would build, is no folder: move it, or name a folder in REPRO_CACHE\n"
    assert not out.exists()


def test_packages_where_compilers_do_not_look_are_refused_whatever_the_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", "/with blanks/.venv/cpu")
    with pytest.raises(UserError, match=r"such as /with blanks/\.venv/cpu, where this Python's packages are"):
        build_cache()


WITHOUT_ROOT_S_RIGHTS = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search", "--inh-caps", "-all"]


def test_a_read_only_folder_of_builds_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    if subprocess.run([*WITHOUT_ROOT_S_RIGHTS, "true"], capture_output=True).returncode:
        pytest.skip("root's rights cannot be given up here")
    out, place = tmp_path / "out", tmp_path / "cache"
    place.mkdir(parents=True)
    place.chmod(0o500)
    wanted = ["--models", "vit", "--processes", "1", "--out", str(out)]
    output = one_line(process_of(WITHOUT_ROOT_S_RIGHTS, *wanted, REPRO_CACHE=str(place), CUDA_VISIBLE_DEVICES=""))
    assert output.startswith(f"repro: {place}, where it would build, is no folder that you")
    assert "REPRO_CACHE" in output
    assert not out.exists()


def test_compilers_get_a_temporary_folder_that_they_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    for name in ("plain", "a#b?c%20"):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        assert "TMPDIR" not in server_environment([])
    for name in ("with blanks", "it's", "a\nb", "\udcff"):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
        assert server_environment([])["TMPDIR"] == str(tmp_path / "cache" / "tmp")
        assert (tmp_path / "cache" / "tmp").is_dir()
