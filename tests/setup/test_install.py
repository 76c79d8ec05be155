"""`pip install .`: a wheel with all that reading takes but two small packages, and what else it asks for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import time
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from repro import installation
from repro.machine import environment
from tests.support.command_line import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
MEGABYTE = 10**6


@dataclass(frozen=True)
class Installed:
    """A repro in an environment of its own, and the seconds from the checkout to the first audit."""

    wheel: Path
    environment: Path
    seconds: float

    def run(
        self, *words: str, command: Sequence[str] = ("repro",), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run `command`, of this environment, with these words in a folder without a checkout."""
        scripts = self.environment / "bin"
        path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
        ours = ("PYTHONPATH", "REPRO_COMMAND", "REPRO_CACHE", "STAND_IN_PYTHON")
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        return subprocess.run(
            [scripts / command[0], *command[1:], *words],
            env={**kept, "PATH": path, "XDG_CACHE_HOME": str(self.environment.parent / "cache"), **variables},
            cwd=self.environment.parent,
            capture_output=True,
            text=True,
        )

    @property
    def packages(self) -> Path:
        return self.environment / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    if not os.access(ROOT, os.W_OK):
        pytest.skip("an image brings nothing to install with")
    folder = tmp_path_factory.mktemp("installed")
    started = time.monotonic()
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "--quiet"]
    done = subprocess.run(
        [*pip, "wheel", "--wheel-dir", folder / "wheels", ROOT], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (folder / "wheels").glob("repro-*.whl")
    subprocess.run([*pip, "install", "--no-index", "--find-links", folder / "wheels", wheel], cwd=folder, check=True)
    found = Installed(wheel, folder / "venv", 0.0)
    done = found.run("audit")
    assert done.returncode == 0, done.stderr
    return Installed(wheel, folder / "venv", time.monotonic() - started)


@pytest.mark.slow
@pytest.mark.nightly
def test_an_empty_environment_has_an_audit_within_a_minute(installed: Installed) -> None:
    assert installed.seconds < 60


@pytest.mark.slow
@pytest.mark.nightly
def test_a_wheel_holds_the_package_alone_with_models_and_the_papers_numbers_as_files(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = set(wheel.namelist())
    assert {name.split("/")[0] for name in names} == {"repro", f"repro-{installed.wheel.name.split('-')[1]}.dist-info"}
    for folder, there in (("models", "models"), ("expected", "expected"), ("tests/benchmark", "benchmark")):
        files = {path.name for path in (ROOT / folder).iterdir() if path.is_file()}
        assert files <= {name.removeprefix(f"repro/{there}/") for name in names}, folder
    assert {f"repro/{lock}" for lock in environment._LOCKS} <= names
    data = {f"repro/{path.relative_to(ROOT / 'repro')}" for path in (ROOT / "repro").rglob("*.*") if path.is_file()}
    assert {name for name in data if not name.endswith((".py", ".pyc"))} <= names


@pytest.mark.slow
@pytest.mark.nightly
def test_reading_takes_less_than_50_mb_of_dependencies(installed: Installed) -> None:
    folders = {path.name for path in installed.packages.glob("*.dist-info")}
    assert {name.split("-")[0] for name in folders} - {"pip", "setuptools"} == {
        "repro",
        "msgspec",
        "tabulate",
        "nvidia_ml_py",
    }
    files = [path for path in installed.packages.rglob("*") if path.is_file() and not path.is_symlink()]
    files = [path for path in files if path.relative_to(installed.packages).parts[0] not in ("pip", "setuptools")]
    assert sum(path.stat().st_size for path in files) < 50 * MEGABYTE


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    "command",
    [
        "audit",
        "claims",
        "predict --models pythia-1b --gpu H100",
        "table 1 --by true",
        "cost pythia-1b --budget 40000",
    ],
)
def test_it_answers_as_the_checkout_does_within_5_s(installed: Installed, command: str) -> None:
    started = time.monotonic()
    done = installed.run(*command.split())
    assert time.monotonic() - started < 5
    assert done.returncode == 0, done.stderr
    checkout = ("python", "-P", "-m", "repro")
    there = installed.run(*command.split(), command=checkout, PYTHONPATH=str(ROOT), REPRO_COMMAND="repro")
    assert (done.stdout, done.stderr) == (there.stdout, there.stderr)


@pytest.mark.slow
@pytest.mark.nightly
def test_its_messages_name_it_as_it_is_called(installed: Installed) -> None:
    assert "see repro claims --help" in installed.run("claims", "--no-such").stderr
    elsewhere = installed.run("claims", "--no-such", PATH=os.defpath)
    assert f"see {installed.environment}/bin/repro claims --help" in elsewhere.stderr
    assert "run_all.sh" not in installed.run("--help").stdout


@pytest.mark.slow
@pytest.mark.nightly
def test_what_it_has_not_is_asked_for_in_one_line(installed: Installed, tmp_path: Path) -> None:
    (tmp_path / "llama.json").write_text('{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2}')
    own = ["--models", f"hf:{tmp_path}/llama.json@tokens=1B,batch=32"]
    for words, missing in (
        (["run"], "pytest, pytest-benchmark, psutil"),
        (["lab"], "torch, psutil"),
        (["probe"], "psutil"),
        (["predict", "--gpu", "H100", *own], "transformers"),
        (["compare", "--against", "torch==2.11.0"], "a checkout"),
    ):
        done = installed.run(*words)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
        assert missing in done.stderr
        assert "pip install 'repro[measure]'" in done.stderr or words[0] == "compare"
    (installed.environment / "uv-receipt.toml").touch()
    assert installed.run("lab").stderr.endswith(
        "uv tool install '.[measure]' in a checkout installs it, as does its ./run_all.sh\n"
    )
    (installed.environment / "uv-receipt.toml").unlink()
    report = installed.run("report", "--out", str(tmp_path / "report"))
    assert (report.returncode, report.stderr.count("\n")) == (0, 1)
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.slow
@pytest.mark.nightly
def test_it_measures_with_a_stack_beside_it(installed: Installed, tmp_path: Path) -> None:
    words = ["run", "--models", "pythia-160m", "--methods", "naive", "--processes", "1", "--steps", "1"]
    kept = {"REPRO_CACHE": os.environ.get("REPRO_CACHE") or str(ROOT / ".venv" / "build-cache")}
    kept |= {"PYTHONPYCACHEPREFIX": f"{kept['REPRO_CACHE']}/bytecode"}
    done = installed.run(*words, "--out", str(tmp_path), PYTHONPATH=sysconfig.get_path("purelib"), **kept)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Pythia-160M \(tiny twin\) on 1 x cpu .* ok ", done.stdout)
    assert (tmp_path / "report.html").exists()


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", (ROOT / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_the_bounds_of_an_extra_admit_what_the_locks_have(extra: str) -> None:
    lines = EXTRAS[extra] if extra else PROJECT["project"]["dependencies"]
    locks = {each: [f"locks/{each}.lock"] for each in ("kernels", "tracking", "modern")}
    for requirement in map(Requirement, lines):
        assert not any(each.operator == "==" for each in requirement.specifier), "a bound, no pin"
        for lock in locks.get(extra, ["requirements.lock", "locks/cpu.lock"]):
            assert requirement.specifier.contains(pins(lock)[installation.normalised(requirement.name)]), (lock, extra)


def test_the_extras_name_all_that_the_locks_are_made_of() -> None:
    def names(lines: list[str]) -> set[str]:
        return {Requirement(line).name for line in lines}

    groups = PROJECT["dependency-groups"]
    wanted = names([*groups["bench"], *groups["stack"], *groups["gpu"]]) - {"wheel"}  # which kernels are built with
    assert names([*PROJECT["project"]["dependencies"], *EXTRAS["measure"]]) == wanted
    assert names(EXTRAS["kernels"]) == names(groups["kernels"])
    assert names(EXTRAS["tracking"]) == names(groups["tracking"])
