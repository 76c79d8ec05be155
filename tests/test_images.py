"""Images: the Dockerfile's targets are those that `repro doctor` knows, and its labels and TF32 are right."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from repro.machine import support
from repro.machine.doctor import SERVES
from repro.paper.gpus import GENERATIONS, catalogue

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
LOCKS = ["requirements.lock", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "locks").glob("*.lock"))]
STACKS = ["requirements.lock", "locks/cpu.lock", "locks/paper.lock", "locks/latest.lock"]


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
    if "ARG KERNELS\n" in text:
        text = "\n".join(re.findall(r"^ARG (?:ARCHITECTURES|KERNELS)=.*$", DOCKERFILE, re.MULTILINE))
    found = re.search(r'ARCHITECTURES="([0-9 ]+)"', text)
    assert found
    compiled = [divmod(int(capability), 10) for capability in found[1].split()]
    for gpu in catalogue():
        if gpu.generation in SERVES[name]:
            # Code for a capability runs on the later ones of the same major number.
            assert any(a == gpu.compute_capability[0] and b <= gpu.compute_capability[1] for a, b in compiled), gpu
    wanted = {"deepspeed", "mamba-ssm", "causal-conv1d"}
    if name not in ("volta", "turing", "paper"):
        wanted.add("flash-attn")
    assert {word for word in re.findall(r"[a-z0-9-]+", text) if word in {*wanted, "flash-attn"}} == wanted


def test_a_misspelt_kernel_is_reported_before_anything_is_compiled(tmp_path: Path) -> None:
    command = [str(ROOT / "images" / "kernels.sh"), sys.prefix, str(tmp_path / "kernels"), "locks/kernels.lock"]
    made = subprocess.run([*command, "causal-conv1d", "mamba"], cwd=ROOT, capture_output=True, text=True)
    assert (made.returncode, made.stdout) == (2, "")
    assert made.stderr == "kernels.sh: mamba is none of flash-attn, mamba-ssm, causal-conv1d, deepspeed\n"


@pytest.mark.parametrize("name", ["every", "latest"])
def test_an_image_that_can_be_compiled_for_some_gpus_alone_knows_for_which(name: str) -> None:
    assert "ARG ARCHITECTURES\n" in stages()[name]
    assert setting(name, "REPRO_ARCHITECTURES") == '"${ARCHITECTURES}"'


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


@pytest.mark.parametrize("lock", LOCKS)
def test_no_lock_has_what_makes_every_import_of_altair_slow(lock: str) -> None:
    assert "\nrfc3987-syntax==" not in (ROOT / lock).read_text()


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
    assert f'{name} = gpuShell "{setting(name, "REPRO_TF32")}";' in (ROOT / "flake.nix").read_text()
