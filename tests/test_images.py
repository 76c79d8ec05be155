"""Images: the Dockerfile's targets are those that `repro doctor` knows, and its labels and TF32 are right."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from repro.machine import packages, support
from repro.machine.doctor import SERVES
from repro.paper.gpus import GENERATIONS, catalogue

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCKS = ["requirements.lock", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "locks").glob("*.lock"))]
STACKS = ["requirements.lock", "locks/volta.lock", "locks/cpu.lock", "locks/paper.lock", "locks/latest.lock"]


def stages() -> dict[str, str]:
    """Each stage of the Dockerfile with its text, in order."""
    parts = re.split(r"^FROM \S+ AS (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def setting(stage: str, name: str) -> str:
    found = re.search(rf"\b{name}=(\S+)", stages()[stage])
    assert found, f"{stage} sets no {name}"
    return found[1]


def test_every_image_that_the_doctor_knows_is_a_target_and_says_its_name() -> None:
    images = {name for name, text in stages().items() if "REPRO_IMAGE=" in text}
    assert images == set(SERVES)
    for name in images:
        assert setting(name, "REPRO_IMAGE") == setting(name, "repro.generation") == name


def test_the_last_stage_serves_every_generation_from_turing_on() -> None:
    last = list(stages())[-1]
    assert SERVES[last] == GENERATIONS[1:]
    assert setting(last, "REPRO_TF32") == "auto"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_tf32_is_on_in_the_images_whose_gpus_have_it(generation: str) -> None:
    has = {gpu.compute_capability >= support.SINCE for gpu in catalogue() if gpu.generation == generation}
    assert len(has) == 1
    assert setting(generation.lower(), "REPRO_TF32") == ("on" if has.pop() else "off")


@pytest.mark.parametrize("name", [name for name in SERVES if name != "cpu"])
def test_kernels_are_compiled_for_every_gpu_that_an_image_is_for(name: str) -> None:
    text = stages()[f"kernels-{name}"]
    chosen = dict(re.findall(r'^ARG (\w+)="(.*)"$', text, re.MULTILINE))
    compiled = [divmod(int(capability), 10) for capability in chosen["ARCHITECTURES"].split()]
    for gpu in catalogue():
        if gpu.generation in SERVES[name]:
            # Code for a capability runs on the later ones of the same major number.
            assert any(a == gpu.compute_capability[0] and b <= gpu.compute_capability[1] for a, b in compiled), gpu
    wanted = {"deepspeed", "mamba-ssm", "causal-conv1d"}
    if name not in ("volta", "turing", "paper"):
        wanted.add("flash-attn")
    assert {*chosen["KERNELS"].split()} == wanted
    assert re.search(r'images/kernels.sh /opt/venv /opt/kernels "[^"]+" \$\{KERNELS\}$', text, re.MULTILINE)


def test_a_misspelt_kernel_is_reported_before_anything_is_compiled(tmp_path: Path) -> None:
    command = [str(ROOT / "images" / "kernels.sh"), sys.prefix, str(tmp_path / "kernels"), "locks/kernels.lock"]
    made = subprocess.run([*command, "causal-conv1d", "mamba"], cwd=ROOT, capture_output=True, text=True)
    assert (made.returncode, made.stdout) == (2, "")
    assert made.stderr == "kernels.sh: mamba is none of flash-attn, mamba-ssm, causal-conv1d, deepspeed\n"


@pytest.mark.slow
def test_compiled_kernels_are_installed_as_from_an_index_so_that_a_run_takes_them_for_whole(tmp_path: Path) -> None:
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
    (tmp_path / "a.lock").write_text(f"causal-conv1d==1.0 \\\n    --hash=sha256:{digest}\n")
    variables = {
        "ARCHITECTURES": "90",
        "CUDA_HOME": "/nowhere",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(archive.parent),
        "PATH": f"{python_with_pip()}:{os.environ['PATH']}",
    }
    command = [str(ROOT / "images" / "kernels.sh"), sys.prefix, str(tmp_path / "kernels"), str(tmp_path / "a.lock")]
    built = subprocess.run([*command, "causal-conv1d"], env={**os.environ, **variables}, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
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


def test_an_image_keeps_for_which_gpus_it_was_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [str(ROOT / "images" / "kernels.sh"), sys.prefix, str(tmp_path), "locks/kernels.lock"]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "ARCHITECTURES": "80 100"}, check=True)
    monkeypatch.setattr(packages, "IMAGE_KERNELS", str(tmp_path))
    monkeypatch.delenv("REPRO_IMAGE", raising=False)
    assert packages.image_architectures() == ()
    monkeypatch.setenv("REPRO_IMAGE", "every")
    assert packages.image_architectures() == ((8, 0), (10, 0))


def test_only_images_of_cuda_12_need_nvidias_own_base() -> None:
    parents = {stage: parent for parent, stage in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)}

    def sources(stage: str) -> set[str]:
        if stage not in stages():
            return set()
        taken = {parents[stage], *re.findall(r"COPY --from=(\S+)", stages()[stage])}
        return taken.union(*map(sources, taken))

    assert {name for name in SERVES if "cuda" in sources(name)} == {"volta", "paper"}


@pytest.mark.parametrize("name", SERVES)
def test_an_image_for_gpus_asks_nvidias_runtime_for_them_and_no_other_does(name: str) -> None:
    wanted = "ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility "
    parents = {stage: parent for parent, stage in re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)}
    lineage = [name]
    while lineage[-1] in parents:
        lineage.append(parents[lineage[-1]])
    assert any(wanted in stages().get(stage, "") for stage in lineage) == bool(SERVES[name])


def test_the_papers_image_has_the_nvcc_that_its_deepspeed_asks_when_it_is_imported_on_a_gpu() -> None:
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


def test_the_label_of_the_version_is_the_projects() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"ARG VERSION={version}\n" in DOCKERFILE


def test_an_image_is_not_run_as_root_and_writes_to_a_volume() -> None:
    text = stages()["program"]
    assert "USER 1000:1000\n" in text
    assert "VOLUME /results\n" in text
    for name in SERVES:
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


# --- Bills of materials ---


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_has_a_valid_bill_of_materials_that_lists_all_of_it_and_no_address(lock: str) -> None:
    from cyclonedx import schema
    from cyclonedx.validation import json as validation

    text = (ROOT / "locks" / "sbom" / f"{Path(lock).stem}.cdx.json").read_text()
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    listed = {
        (part["name"], part["version"]): {digest["content"] for digest in part["hashes"]} for part in bill["components"]
    }
    locked: dict[tuple[str, str], set[str]] = {}
    for line in (ROOT / lock).read_text().splitlines():
        if found := re.match(r"([a-z0-9][a-z0-9._-]*)==(\S+)", line):
            current = locked.setdefault((found[1], found[2]), set())
        elif found := re.search(r"--hash=sha256:([0-9a-f]{64})", line):
            current.add(found[1])
    assert listed == locked
    del bill["$schema"]
    assert "://" not in json.dumps(bill)


def test_a_bill_says_what_needs_what() -> None:
    bill = json.loads((ROOT / "locks" / "sbom" / "cpu.cdx.json").read_text())
    needs = {entry["ref"].split("==")[0]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert any(name.startswith("deepspeed==") for name in needs["repro"])
    assert any(name.startswith("sympy==") for name in needs["torch"])


# --- Nix ---


def test_the_flake_s_input_is_locked_to_one_revision_with_its_hash() -> None:
    node = json.loads((ROOT / "flake.lock").read_text())["nodes"]["nixpkgs"]
    asked = "{type}:{owner}/{repo}/{ref}".format(**node["original"])
    assert f'inputs.nixpkgs.url = "{asked}";' in (ROOT / "flake.nix").read_text()
    assert re.fullmatch(r"[0-9a-f]{40}", node["locked"]["rev"])
    assert re.fullmatch(r"sha256-[A-Za-z0-9+/]{43}=", node["locked"]["narHash"])


@pytest.mark.parametrize("name", [*(generation.lower() for generation in GENERATIONS), "every"])
def test_a_shell_has_tf32_as_its_image_has(name: str) -> None:
    kind = "voltaShell" if name == "volta" else "gpuShell"
    assert f'{name} = {kind} "{setting(name, "REPRO_TF32")}";' in (ROOT / "flake.nix").read_text()
