"""What was imported, and from where, is recorded; a stack of which some came from elsewhere is no lock's."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from repro import datafile
from repro.console import UserError
from repro.machine import environment
from repro.machine.environment import Environment
from repro.machine.packages import Imported, Imports
from repro.machine.stack import process_environment
from repro.report.markdown import markdown
from repro.report.sections import compose
from repro.report.terminal import printed
from repro.run.reading import read
from tests.support.command_line import ROOT, record, repro, results_folder

PRINT = (
    "import json; from dataclasses import asdict; from repro.machine.packages import imports; "
    "print(json.dumps(asdict({})))"
)
FORK = '__version__ = "9.9"\n'


def fork(folder: Path, module: str = "timm", body: str = FORK) -> Path:
    """A folder with a package of this name."""
    (folder / module).mkdir(parents=True)
    (folder / module / "__init__.py").write_text(body)
    return folder


def imports(
    *paths: Path,
    python: Path | str = sys.executable,
    first: str = "",
    cwd: Path = ROOT,
    safe: bool = True,
    more: Mapping[str, str] = {},
) -> Imports:
    """What a process imported that had these folders on PYTHONPATH, and ran `first`."""
    path = os.pathsep.join(map(str, (*paths, ROOT)))
    code = f"{first}\n{PRINT.format('imports()')}"
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(python), *["-P"] * safe, "-c", code],
        env={**variables, "PYTHONPATH": path} | dict(more),
        cwd=cwd,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return datafile.from_json(Imports, json.loads(done.stdout))


@pytest.fixture
def venv(tmp_path: Path) -> tuple[Path, Path]:
    """The interpreter of a new virtual environment, and its site-packages with what reading needs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    [site] = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    shutil.copytree(Path(msgspec.__file__).parent, site / "msgspec")
    return tmp_path / "venv" / "bin" / "python", site


def distribution(site: Path, name: str, version: str, *modules: str) -> None:
    """Metadata of an installed distribution with these modules."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(f"{module}/__init__.py,,\n" for module in modules))


# --- Where it came from ---


def test_what_is_installed_is_not_listed(venv: tuple[Path, Path]) -> None:
    python, site = venv
    fork(site, "flash_attn", '__version__ = "2.8"')
    distribution(site, "flash_attn", "2.8.3", "flash_attn")
    assert imports(python=python, first="import flash_attn").packages == {}


def test_a_fork_on_pythonpath_came_from_elsewhere_in_its_own_version(tmp_path: Path) -> None:
    found = imports(fork(tmp_path / "fork"), first="import timm")
    timm = found.packages["timm"]
    assert (timm.version, timm.place) == ("9.9", "elsewhere")
    assert ([*found.packages], found.changed) == (["timm"], {})
    assert [*imports(tmp_path / "fork").packages] == ["timm"], "what a trial would import from here is known as well"


def test_a_fork_is_known_by_the_content_of_what_was_imported(tmp_path: Path) -> None:
    first, other = fork(tmp_path / "first"), fork(tmp_path / "other")
    (other / "timm" / "not_imported.py").write_text("")
    hashes = [imports(folder, first="import timm").packages["timm"].sha256 for folder in (first, other)]
    assert hashes[0] == hashes[1] is not None
    (other / "timm" / "__init__.py").write_text(FORK.replace("9.9", "9.8"))
    assert imports(other, first="import timm").packages["timm"].sha256 not in (None, hashes[0])


def test_a_fork_without_a_version_has_none(tmp_path: Path) -> None:
    timm = imports(fork(tmp_path, body="")).packages["timm"]
    assert (timm.version, timm.place) == (None, "elsewhere")


def test_an_edit_of_a_source_is_seen_though_its_size_and_time_are_kept(venv: tuple[Path, Path]) -> None:
    python, site = venv
    source = fork(site) / "timm" / "__init__.py"
    distribution(site, "timm", "9.9", "timm")
    record = site / "timm-9.9.dist-info" / "RECORD"
    size = source.stat().st_size
    record.write_text(f"timm/__init__.py,sha256={digest(source)},{size}\ntimm-9.9.dist-info/RECORD,,\n")
    assert imports(python=python, first="import timm").changed == {}
    before = source.stat()
    source.write_text(FORK.replace("9.9", "8.8"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert imports(python=python, first="import timm").changed == {"timm": "timm/__init__.py was changed"}


def digest(file: Path) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).rstrip(b"=").decode()


def _pth(site: Path, outside: Path) -> None:
    (site / "leads.pth").write_text(f"{fork(outside)}\n")


def _editable(site: Path, outside: Path) -> None:
    file = fork(outside) / "timm" / "__init__.py"
    distribution(site, "timm", "1.0.31")
    (site / "__editable___timm_finder.py").write_text(
        "import sys\nfrom importlib.util import spec_from_file_location\n\n\n"
        "class Finder:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        return spec_from_file_location(name, {str(file)!r}) if name == 'timm' else None\n\n\n"
        "sys.meta_path.insert(0, Finder)\n"
    )
    (site / "__editable__.timm.pth").write_text("import __editable___timm_finder\n")


def _submodule(site: Path, outside: Path) -> None:
    """The package is the environment's, one of its modules is not."""
    outside.mkdir()
    (outside / "layers.py").write_text("")
    fork(site, body=f"__version__ = '1.0'\n__path__.append({str(outside)!r})\nimport timm.layers\n")
    distribution(site, "timm", "1.0", "timm")
    (site / "imports.pth").write_text("import timm\n")


def _without_file(site: Path, outside: Path) -> None:
    (site / "makes.pth").write_text("import sys, types; sys.modules['timm'] = types.ModuleType('timm')\n")


@pytest.mark.parametrize("leads", [_pth, _editable, _submodule, _without_file])
def test_what_a_file_of_the_environment_leads_to_came_from_elsewhere(
    leads: Callable[[Path, Path], None], venv: tuple[Path, Path], tmp_path: Path
) -> None:
    python, site = venv
    leads(site, tmp_path / "outside")
    assert imports(python=python).packages["timm"].place == "elsewhere"


def test_a_users_own_site_is_not_the_environments(tmp_path: Path) -> None:
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}")
    if not base.exists():
        pytest.skip("the interpreter that this environment was made with lies elsewhere")
    site = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    fork(site)
    shutil.copytree(Path(msgspec.__file__).parent, site / "msgspec")
    found = imports(python=base, first="import timm", more={"PYTHONUSERBASE": str(tmp_path)})
    assert (found.packages["timm"].version, found.packages["timm"].place) == ("9.9", "elsewhere")


@pytest.mark.parametrize("place", ["PYTHONPATH", "site-packages"])
def test_code_that_runs_at_the_start_is_of_no_lock(place: str, venv: tuple[Path, Path], tmp_path: Path) -> None:
    python, site = venv
    folder = site if place == "site-packages" else tmp_path
    (folder / "sitecustomize.py").write_text("")
    paths = [] if place == "site-packages" else [tmp_path]
    found = imports(*paths, python=python).packages
    assert {name: (each.version, each.place) for name, each in found.items()} == {"sitecustomize": (None, "elsewhere")}


def test_a_module_in_the_current_folder_is_found_only_by_who_looks_there(tmp_path: Path) -> None:
    fork(tmp_path)
    assert imports(cwd=tmp_path, safe=False).packages["timm"].place == "elsewhere"
    trials = {name: process_environment({})[name] for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
    assert imports(cwd=tmp_path, safe=False, more=trials).packages == {}


def test_an_empty_entry_of_pythonpath_is_not_the_current_folder_of_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "/somewhere", ""]))
    assert process_environment({})["PYTHONPATH"] == f"{ROOT}{os.pathsep}/somewhere"


@pytest.mark.parametrize(("variables", "listed"), [({"REPRO_IMAGE": "hopper"}, []), ({}, ["mamba-ssm"])])
def test_an_images_kernels_are_installed_in_an_image_alone(
    variables: dict[str, str], listed: list[str], tmp_path: Path
) -> None:
    kernels = fork(tmp_path / "kernels", "mamba_ssm")
    distribution(kernels, "mamba_ssm", "2.3.0", "mamba_ssm")
    found = imports(
        kernels, first=f"from repro.machine import packages; packages.IMAGE_KERNELS = {str(kernels)!r}", more=variables
    )
    assert [*found.packages] == listed


# --- What is made of it ---


def pinned() -> dict[str, str]:
    """The packages of the lock for a CPU."""
    lines = (ROOT / "locks" / "cpu.lock").read_text().splitlines()
    return dict(line.removesuffix(" \\").split("==") for line in lines if line[:1].isalnum())


def described(*foreign: str, **variables: str) -> Environment:
    """A run on the lock for a CPU whose fork server imported the `foreign` packages from elsewhere."""
    packages = pinned()
    now = environment.describe([], packages, 0, {}, variables)
    return now.with_imports(Imports({name: Imported(packages.get(name)) for name in foreign}))


def test_the_lock_whose_packages_came_from_elsewhere_is_not_the_lock() -> None:
    assert described().lock == environment.lock(pinned())
    assert described().lock.is_the_lock
    lock = described("timm").lock
    reason = "timm was imported from elsewhere than the environment's site-packages"
    assert (lock.file, lock.is_the_lock, lock.differences, lock.reason) == ("locks/cpu.lock", False, {}, reason)
    assert described("sitecustomize").lock.reason == reason.replace("timm", "sitecustomize")
    assert str(described("timm", "torch").lock.reason).startswith("timm; torch were imported")


def test_the_version_is_the_one_that_was_imported(tmp_path: Path) -> None:
    now = environment.describe([], pinned(), 0, {}, {})
    found = now.with_imports(Imports({"timm": Imported("9.9", "elsewhere"), "own": Imported(None, "elsewhere")}))
    assert found.packages == pinned() | {"timm": "9.9"}
    assert found.lock.differences == {"timm": {"lock": pinned()["timm"], "installed": "9.9"}}
    assert found.versions == pinned() | {"timm": "9.9 (elsewhere)", "own": "unknown (elsewhere)"}
    environment.keep(found, tmp_path)
    assert environment.read(tmp_path) == found


def test_a_folder_goes_on_with_what_its_trials_imported_alone(tmp_path: Path) -> None:
    now = environment.describe([], pinned(), 0, {}, {})
    environment.keep(described("timm"), tmp_path)
    environment.refuse_another(tmp_path, now)  # nothing is imported yet
    environment.refuse_another(tmp_path, described("timm"))
    version = pinned()["timm"]
    with pytest.raises(UserError, match=rf"\(timm was {version} \(elsewhere\), is {version}\)"):
        environment.refuse_another(tmp_path, described())
    with pytest.raises(UserError, match=r"\(sitecustomize was None, is unknown \(elsewhere\)\)"):
        environment.refuse_another(tmp_path, described("timm", "sitecustomize"))


def test_a_folder_goes_on_with_the_same_content_of_a_fork_alone(tmp_path: Path) -> None:
    def forked(content: str) -> Environment:
        now = environment.describe([], pinned(), 0, {}, {})
        return now.with_imports(Imports({"timm": Imported("9.9", sha256=content)}))

    environment.keep(forked("a" * 64), tmp_path)
    environment.refuse_another(tmp_path, forked("a" * 64))
    with pytest.raises(UserError, match=r"\(the content of timm was aaaaaaaa, is bbbbbbbb\)"):
        environment.refuse_another(tmp_path, forked("b" * 64))


def test_an_edited_package_is_not_the_lock_and_no_other_edit_goes_on_in_its_folder(tmp_path: Path) -> None:
    now = environment.describe([], pinned(), 0, {}, {})
    edited = now.with_imports(Imports({}, {"timm": "timm/a.py was changed"}))
    assert (edited.lock.is_the_lock, edited.lock.changed) == (False, {"timm": "timm/a.py was changed"})
    environment.keep(edited, tmp_path)
    environment.refuse_another(tmp_path, now)  # nothing is imported yet
    with pytest.raises(UserError, match=r"\(the set-up's timm was timm/a.py was changed, is as installed\)"):
        environment.refuse_another(tmp_path, now.with_imports(Imports()))


def test_a_run_that_imports_nothing_leaves_what_was_imported_on_record(tmp_path: Path) -> None:
    environment.keep(described("timm"), tmp_path)
    kept = environment.keep(environment.describe([], pinned(), 0, {"models": ["vit"]}, {}), tmp_path)
    assert (kept.imported, kept.lock) == (described("timm").imported, described("timm").lock)
    assert kept.options == {"models": ["vit"]}
    environment.keep(described(), tmp_path)
    assert json.loads((tmp_path / "environment.json").read_text())["lock"]["is_the_lock"]


def test_this_checkout_on_pythonpath_is_no_variable_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}")
    assert "PYTHONPATH" not in (environment.describe([], {}, 0, {}, {}).variables or {})


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of one trial, that are alike but for where timm came from, and a variable."""
    folders = [results_folder(tmp_path / name, record("vit", "naive", 1.0)) for name in ("lock", "fork")]
    environment.keep(described(), folders[0])
    environment.keep(described("timm", "sitecustomize", KMP_BLOCKTIME="0"), folders[1])
    return folders[0], folders[1]


def test_a_comparison_shows_what_came_from_elsewhere(sides: tuple[Path, Path]) -> None:
    version = pinned()["timm"]
    found = json.loads(repro("compare", *map(str, sides), "--format", "json").stdout)["environment"]
    assert {"what": "timm", "before": version, "after": f"{version} (elsewhere)"} in found
    assert {"what": "sitecustomize", "before": None, "after": "unknown (elsewhere)"} in found
    assert {"what": "variable KMP_BLOCKTIME", "before": None, "after": "0"} in found
    output = repro("compare", *map(str, sides), "--all").stdout
    assert re.search(r"sitecustomize +(- +)?unknown \(elsewhere\)", output)


def test_a_report_and_its_verdict_show_what_came_from_elsewhere(sides: tuple[Path, Path]) -> None:
    reason = "sitecustomize; timm were imported from elsewhere than the environment's site-packages"
    verdict = f"The stack is not a lock's, whatever its versions: {reason}."
    lock, other = map(read, sides)
    report = compose(other)
    assert report.notes[0] == verdict
    written = markdown(report)
    assert f"- packages: not a lock: {reason}\n" in written
    assert f"timm {pinned()['timm']} (elsewhere)" in written
    assert f"- {verdict}\n" in printed(report, "text")
    assert "not a lock" not in markdown(compose(lock))


def test_a_lock_of_other_versions_is_reported_as_before() -> None:
    one = replace(described().lock, is_the_lock=False, differences={"timm": {"lock": "1", "installed": "2"}})
    assert one.summary == "not a lock: 1 package differs from locks/cpu.lock"
    assert replace(one, reason="why").summary == "not a lock: why; 1 package differs from locks/cpu.lock"
