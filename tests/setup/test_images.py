"""Images: each row of images/generations.csv is a target of the Dockerfile, with its lock, TF32 and kernels."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from repro.machine import support
from repro.paper.gpus import GENERATIONS, catalogue

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
ROWS = {row["name"]: row for row in csv.DictReader((ROOT / "images" / "generations.csv").read_text().splitlines())}
STACKS = ["requirements.lock", "locks/volta.lock", "locks/cpu.lock", "locks/paper.lock", "locks/latest.lock"]
PARENTS = {stage: parent for parent, stage in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)}


def stages() -> dict[str, str]:
    """Each stage of the Dockerfile with its text, in order."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def lineage(name: str) -> list[str]:
    """A stage and those that it is made from."""
    return [name, *(lineage(PARENTS[name]) if name in PARENTS else [])]


def sources(name: str) -> set[str]:
    """A stage and all that it is made from, or copies from."""
    copied = re.findall(r"COPY --from=(\S+)", stages().get(name, ""))
    taken = [*([PARENTS[name]] if name in PARENTS else []), *copied]
    return {name}.union(*map(sources, taken))


def setting(stage: str, name: str) -> str:
    found = [match[1] for each in lineage(stage) if (match := re.search(rf"\b{name}=(\S+)", stages().get(each, "")))]
    assert found, f"{stage} sets no {name}"
    return found[0]


# --- The table of generations ---


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_a_target_of_its_lock_kernels_and_tf32(name: str) -> None:
    row = ROWS[name]
    assert setting(name, "REPRO_IMAGE") == name
    assert setting(name, "REPRO_TF32") == row["tf32"]
    assert setting(name, "repro.lock") == row["lock"]
    installed = {
        lock for each in sources(name) for lock in re.findall(r"install.sh /opt/venv (\S+)", stages().get(each, ""))
    }
    assert installed == {row["lock"]}
    built = {word for each in sources(name) for word in re.findall(r"images/kernels.sh (\S+)", stages().get(each, ""))}
    assert built == ({name} if row["kernels"] else set())


def test_every_image_is_a_row() -> None:
    assert {name for name, text in stages().items() if "REPRO_IMAGE=" in text} == ROWS.keys()


@pytest.fixture(scope="module")
def checker() -> list[str]:
    """A builder's command that checks a Dockerfile without building it."""
    command = ["docker", "build", "--check"]
    if not shutil.which("docker") or subprocess.run([*command, "--help"], capture_output=True).returncode:
        pytest.skip("there is no docker whose builder checks")
    if subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no docker engine runs")
    return command


@pytest.mark.parametrize("name", ROWS)
def test_a_builder_finds_nothing_wrong_with_a_target(name: str, checker: list[str]) -> None:
    checked = subprocess.run([*checker, "--target", name, "."], cwd=ROOT, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_last_stage_serves_every_generation_from_turing_on() -> None:
    last = ROWS[list(stages())[-1]]
    served = {gpu.generation for gpu in catalogue() if serves(last, gpu.compute_capability)}
    assert served & {*GENERATIONS} == {*GENERATIONS[1:]}
    assert last["tf32"] == "auto"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_image_of_a_generation_serves_its_gpus_and_has_tf32_where_they_do(generation: str) -> None:
    row, own = ROWS[generation.lower()], [gpu for gpu in catalogue() if gpu.generation == generation]
    assert own
    for gpu in own:
        assert serves(row, gpu.compute_capability), gpu
        assert row["tf32"] == ("on" if gpu.compute_capability >= support.SINCE else "off")


def serves(row: dict[str, str], capability: tuple[int, int]) -> bool:
    """Code for a capability runs on the later ones of the same major number."""
    compiled = [divmod(int(word), 10) for word in row["capabilities"].split()]
    return any(major == capability[0] and minor <= capability[1] for major, minor in compiled)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "cpu"])
def test_flash_attn_is_compiled_for_ampere_and_newer_of_todays_stacks(name: str) -> None:
    wanted = {"deepspeed", "mamba-ssm", "causal-conv1d"}
    assert {*ROWS[name]["kernels"].split()} - wanted == (
        set() if name in ("volta", "turing", "paper") else {"flash-attn"}
    )
    assert {*ROWS[name]["kernels"].split()} >= wanted


# --- Kernels ---


def test_a_misspelt_kernel_is_reported_before_anything_is_compiled(tmp_path: Path) -> None:
    command = [str(ROOT / "images" / "kernels.sh"), "hopper", sys.prefix, str(tmp_path / "kernels")]
    variables = {**os.environ, "KERNELS": "causal-conv1d mamba"}
    made = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert (made.returncode, made.stdout) == (2, "")
    assert made.stderr == "kernels.sh: mamba is none of flash-attn, mamba-ssm, causal-conv1d, deepspeed\n"


def test_kernels_of_no_row_are_refused() -> None:
    made = subprocess.run([str(ROOT / "images" / "kernels.sh"), "pascal"], capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (2, "kernels.sh: pascal is no row of images/generations.csv\n")


@pytest.mark.slow
def test_compiled_kernels_are_installed_as_from_an_index(tmp_path: Path) -> None:
    """A wheel that was named by its path counts as somebody's own, and each run in the image was refused."""
    if python_with_pip() is None:
        pytest.skip("no python3 here has pip")
    source = tmp_path / "causal_conv1d-1.0"
    source.mkdir()
    described = "name='causal-conv1d', version='1.0', py_modules=['causal_conv1d_cuda']"
    for name, text in {
        "setup.py": f"from setuptools import setup\nsetup({described})\n",
        "causal_conv1d_cuda.py": "",
        "PKG-INFO": "Metadata-Version: 2.1\nName: causal-conv1d\nVersion: 1.0\n",
    }.items():
        (source / name).write_text(text)
    archive = tmp_path / "sources" / "causal_conv1d-1.0.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(source, arcname=source.name)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT / "images", checkout / "images")
    (checkout / "locks").mkdir()
    (checkout / "locks" / "kernels.lock").write_text(f"causal-conv1d==1.0 \\\n    --hash=sha256:{digest}\n")
    (checkout / "requirements.lock").touch()
    variables = {
        "KERNELS": "causal-conv1d",
        "CUDA_HOME": "/nowhere",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(archive.parent),
        "PATH": f"{python_with_pip()}:{os.environ['PATH']}",
    }
    command = [str(checkout / "images" / "kernels.sh"), "hopper", sys.prefix, str(tmp_path / "kernels")]
    built = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "kernels" / "architectures.txt").read_text() == "90\n"
    found = {path.name for path in (tmp_path / "kernels").rglob("*")}
    assert {"causal_conv1d_cuda.py", "RECORD"} <= found
    assert "direct_url.json" not in found


def python_with_pip() -> str | None:
    """The folder of a python3 that has pip, which builds the kernels."""
    for folder in os.environ["PATH"].split(os.pathsep):
        asked = [f"{folder}/python3", "-m", "pip", "--version"]
        if Path(asked[0]).exists() and not subprocess.run(asked, capture_output=True).returncode:
            return folder
    return None


def test_only_images_of_cuda_12_need_nvidias_own_base() -> None:
    assert {name for name in ROWS if "cuda" in sources(name)} == {"volta", "paper"}


@pytest.mark.parametrize("name", ROWS)
def test_an_image_for_gpus_asks_nvidias_runtime_for_them_and_no_other_does(name: str) -> None:
    wanted = "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility "
    assert any(wanted in stages().get(stage, "") for stage in lineage(name)) == bool(ROWS[name]["capabilities"])


def test_the_papers_image_has_the_nvcc_that_its_deepspeed_asks() -> None:
    assert re.search(r"(?m)^COPY --from=cuda /usr/local/cuda-\S+/bin/nvcc /usr/local/cuda/bin/nvcc$", stages()["paper"])


def test_everything_is_from_one_base_pinned_by_digest_that_can_be_replaced() -> None:
    for name in ("BASE_IMAGE", "CUDA_IMAGE"):
        assert re.search(rf"^ARG {name}=\S+:\S+@sha256:[0-9a-f]{{64}}$", DOCKERFILE, re.MULTILINE)
    sources = set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) - set(stages())
    assert sources == {"${BASE_IMAGE}", "${CUDA_IMAGE}"}


@pytest.mark.parametrize("lock", STACKS)
def test_the_label_of_a_stack_is_the_hash_of_its_lock(lock: str) -> None:
    digest = hashlib.sha256((ROOT / lock).read_bytes()).hexdigest()
    name = Path(lock).stem.upper()
    assert f"ARG {name}_SHA256={digest}\n" in DOCKERFILE, "locks/make.sh puts it there"
    labels = [text for text in stages().values() if f"LABEL repro.lock={lock} " in text]
    assert len(labels) == 1
    assert f"repro.lock.sha256=${{{name}_SHA256}}" in labels[0]


def test_an_image_is_not_run_as_root_and_writes_to_a_volume() -> None:
    text = stages()["program"]
    assert "USER 1000:1000\n" in text
    assert "VOLUME /results\n" in text
    for name in ROWS:
        assert "USER" not in re.sub(r"\bUSER=", "", stages()[name])


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout: git cannot tell what is source")
def test_the_context_is_the_source_and_nothing_but_it() -> None:
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert let_in == {path.split("/")[0] for path in tracked.splitlines()} - {".ci", ".gitattributes", ".gitignore"}
    left_out = re.findall("^/(results/.+?)/?$", (ROOT / ".gitignore").read_text(), re.MULTILINE)
    assert left_out
    assert {*left_out} <= {*lines}, "what runs left here is no source"


# --- Nix ---


def test_the_flake_s_input_is_locked_to_one_revision_with_its_hash() -> None:
    node = json.loads((ROOT / "flake.lock").read_text())["nodes"]["nixpkgs"]
    asked = "{type}:{owner}/{repo}/{ref}".format(**node["original"])
    assert f'inputs.nixpkgs.url = "{asked}";' in (ROOT / "flake.nix").read_text()
    assert re.fullmatch(r"[0-9a-f]{40}", node["locked"]["rev"])
    assert re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", node["locked"]["narHash"])
