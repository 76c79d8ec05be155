"""What the card of the project asks for: the files at the top, the packages of the stacks, and the entrypoint."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.command_line import ROOT, process

STACKS = ["requirements.lock", "locks/volta.lock"]
USED = {
    "torch": "repro/measure/engine",
    "transformers": "models",
    "deepspeed": "repro/measure/engine",
    "flash-attn": "models/flash_attention.py",
    "mamba-ssm": "models",
    "timm": "models",
    "pytest": "repro/commands",
    "pytest-benchmark": "repro/commands",
    "tabulate": "repro/formats.py",
}


@pytest.mark.parametrize(
    "name", ["Dockerfile", "flake.nix", "requirements.lock", "repro", "models", "tests", "expected", "run_all.sh"]
)
def test_it_lies_at_the_top(name: str) -> None:
    assert (ROOT / name).exists()


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("package", USED)
def test_a_package_is_pinned_in_the_stacks_for_gpus(package: str, stack: str) -> None:
    locks = "".join((ROOT / lock).read_text() for lock in (stack, "locks/kernels.lock"))
    assert re.search(rf"^{package}==\S+ ", locks, re.MULTILINE)


@pytest.mark.parametrize(("package", "place"), USED.items())
def test_a_package_is_used(package: str, place: str) -> None:
    files = [ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py")
    module = package.replace("-", "_")
    assert any(re.search(rf"(import|from) {module}\b|\"{module}[\".]", file.read_text()) for file in files)


def test_the_entrypoint_runs_cases_of_pytest_benchmark(tmp_path: Path) -> None:
    words = ["--models", "vit", "--scale", "tiny", "--methods", "naive", "--processes", "1", "--out", str(tmp_path)]
    collected = process(*words, "--", "--collect-only", CUDA_VISIBLE_DEVICES="")
    assert "tests/benchmark/test_trials.py::test_trial[vit/tiny/1xcpu/naive]" in collected.stderr
    assert "tests/benchmark/test_cells.py::test_cell[1-ViT-8xA100]" in collected.stderr
    assert "benchmark.pedantic(" in (ROOT / "tests" / "benchmark" / "test_trials.py").read_text()
    assert "-m repro" in (ROOT / "images" / "entrypoint.sh").read_text()
    assert "(-P -m repro)" in (ROOT / "run_all.sh").read_text()
