"""`repro doctor`: the state of this machine in one line, and everything that is wrong with it."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from repro import installation
from repro.commands import doctor as command
from repro.console import UserError
from repro.machine import build_cache, doctor, nvml
from repro.machine.devices import Device, generation_of
from repro.paper.gpus import GENERATIONS, catalogue
from tests.support import command_line

repro = partial(command_line.process, CUDA_VISIBLE_DEVICES="")
refusal = partial(command_line.refusal, CUDA_VISIBLE_DEVICES="")
ONE_OF_EACH = {gpu.generation: gpu for gpu in catalogue()}


def here(
    monkeypatch: pytest.MonkeyPatch,
    *devices: Device,
    image: str = "",
    compiled: str = "",
    torch: str | None = "2.11.0",
    tf32: str = "",
    cuda: tuple[int, int] | None = None,
    driver: tuple[int, int] | None = None,
) -> dict[str, doctor.Finding]:
    """Findings on a machine with these devices, whose stack is as it was installed."""
    monkeypatch.setattr(installation, "installed_locks", list)
    monkeypatch.setattr(doctor, "installed", {"torch": torch}.get)
    monkeypatch.setattr(nvml, "visible_devices", lambda: list(devices))
    monkeypatch.setenv("REPRO_IMAGE", image)
    monkeypatch.setattr(doctor, "_compiled", lambda: doctor._capabilities(compiled))
    monkeypatch.setattr(build_cache, "cuda_of_torch", lambda: cuda)
    monkeypatch.setattr(nvml, "cuda", lambda: driver)
    monkeypatch.setenv("REPRO_TF32", tf32)
    return doctor.examine()


def faults(found: dict[str, doctor.Finding]) -> str:
    return "; ".join(finding.fault for finding in found.values() if finding.fault)


def of(generation: str) -> Device:
    gpu = ONE_OF_EACH[generation]
    return Device(0, 0, "GPU-0", gpu.driver_names[0], gpu, int(gpu.memory_gb * 2**30), gpu.compute_capability)


def test_without_a_gpu_the_line_says_so_and_nothing_is_wrong() -> None:
    before = os.times()
    found = repro("doctor", REPRO_IMAGE="cpu")
    after = os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    assert spent < 2, "whatever else runs here, and without bytecode that is kept"
    assert (found.returncode, found.stderr) == (0, "")
    assert re.fullmatch(r"no GPU is visible; image cpu; torch .+; kernels .+; TF32 off, without a GPU\n", found.stdout)


def test_a_torch_without_cuda_is_wrong_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not faults(here(monkeypatch, torch="2.13.0+cpu"))
    complaint = faults(here(monkeypatch, of("Hopper"), torch="2.13.0+cpu"))
    assert "torch 2.13.0+cpu was built without CUDA" in complaint
    assert "set up the GPU's stack, requirements.lock, with ./run_all.sh" in complaint


@pytest.mark.parametrize(
    ("generation", "cuda", "driver", "output"),
    [
        ("Volta", (12, 8), (12, 8), None),
        ("Volta", (13, 0), (13, 0), "for CUDA 13, which serves no GPU older than Turing, and "),
        ("Turing", (13, 0), (13, 0), None),
        ("Turing", (13, 0), None, None),
        ("Hopper", (13, 0), (12, 4), "for CUDA 13, and driver 550.54.15 supports CUDA 12.4: update the driver, or "),
    ],
)
def test_a_gpu_or_a_driver_that_torchs_cuda_does_not_serve_is_sent_to_cuda_12(
    monkeypatch: pytest.MonkeyPatch,
    generation: str,
    cuda: tuple[int, int],
    driver: tuple[int, int] | None,
    output: str | None,
) -> None:
    monkeypatch.setattr(nvml, "driver", lambda: "550.54.15")
    complaint = faults(here(monkeypatch, of(generation), cuda=cuda, driver=driver))
    if output is None:
        assert not complaint
    else:
        assert output in complaint
        assert complaint.endswith("set up locks/volta.lock, for CUDA 12.8, with ./run_all.sh")


def test_an_image_for_no_gpu_is_wrong_on_one_whatever_its_torch_was_built_for(monkeypatch: pytest.MonkeyPatch) -> None:
    complaint = faults(here(monkeypatch, of("Hopper"), image="cpu", torch="2.13.0+cpu"))
    assert complaint.startswith("this image, cpu, is for machines without a GPU, and ")


def test_what_is_not_known_or_not_installed_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "driver", lambda: None)
    assert doctor.summary(here(monkeypatch, of("Hopper"), torch=None)) == (
        f"1 x {of('Hopper').name} (Hopper), driver unknown; no image; torch is not installed; kernels of torch alone; "
        "TF32 on with free lunch"
    )


def test_json_has_a_row_a_check() -> None:
    rows = {row["check"]: row for row in json.loads(repro("doctor", "--format", "json", REPRO_IMAGE="").stdout)}
    assert [*rows] == ["GPUs", "image", "torch", "kernels", "TF32", "shared memory", "packages"]
    assert rows["TF32"]["state"] == "TF32 off, without a GPU"
    assert (rows["image"]["advice"], rows["image"]["fault"]) == (None, False)


def test_every_fault_is_printed_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = here(monkeypatch, of("Volta"), of("Turing"), image="hopper")
    found["packages"] = doctor.Finding("", "timm is gone")
    found["shared memory"] = doctor.Finding("", "make it larger", hint=True)
    monkeypatch.setattr(command, "examine", lambda: found)
    assert command.main(command.Asked()) == 1
    states, image, *others = capsys.readouterr().out.splitlines()
    assert states == doctor.summary(found)
    assert ("--target volta " in image, "--target turing " in image) == (True, True)
    assert others == ["make it larger", "timm is gone"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_has_an_image_of_its_own_and_is_sent_to_it(
    monkeypatch: pytest.MonkeyPatch, generation: str
) -> None:
    own = generation.lower()
    assert not faults(here(monkeypatch, of(generation), image=own))
    for other in ["cpu", *(name.lower() for name in GENERATIONS if name != generation)]:
        complaint = faults(here(monkeypatch, of(generation), image=other))
        assert f"docker build --target {own} " in complaint
        assert f"this image, {other}, is for " in complaint


@pytest.mark.parametrize("image", ["every", "volta", "paper", "cpu"])
def test_a_gpu_that_no_image_is_for_is_sent_to_none(monkeypatch: pytest.MonkeyPatch, image: str) -> None:
    old = replace(of("Volta"), gpu=None, driver_name="Tesla P100", compute_capability=(6, 0))
    complaint = faults(here(monkeypatch, old, image=image))
    assert complaint.endswith(" (Tesla P100) is older than Volta: no image is for such a GPU")


@pytest.mark.parametrize(("image", "compiled"), [("blackwell", ""), ("hopper", ""), ("every", "90 100 120")])
@pytest.mark.parametrize("capability", [(11, 0), (13, 0)])
def test_code_for_one_major_capability_runs_on_no_other_and_no_image_has_what_does(
    monkeypatch: pytest.MonkeyPatch, image: str, compiled: str, capability: tuple[int, int]
) -> None:
    new = Device(0, 0, "GPU-0", "NVIDIA New", None, 2**34, capability)
    complaint = faults(here(monkeypatch, new, image=image, compiled=compiled))
    assert complaint.endswith(
        f" is of compute capability {capability[0]}.0, none of Volta's to Blackwell's: no image is for such a GPU"
    )


@pytest.mark.parametrize("capability", [(10, 3), (12, 1)])
def test_code_for_a_capability_runs_on_the_later_ones_of_its_major_number(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]
) -> None:
    new = Device(0, 0, "GPU-0", "NVIDIA New", None, 2**34, capability)
    assert not faults(here(monkeypatch, new, image="blackwell"))


@pytest.mark.parametrize(
    ("image", "refused"),
    [("every", {"Volta"}), ("latest", {"Volta"}), ("paper", {"Blackwell"})],
)
def test_images_of_several_generations_refuse_what_their_torch_does_not_know(
    monkeypatch: pytest.MonkeyPatch, image: str, refused: set[str]
) -> None:
    assert {g for g in GENERATIONS if faults(here(monkeypatch, of(g), image=image))} == refused


@pytest.mark.parametrize(
    ("compiled", "fits"), [("80 90", True), ("80", True), ("86", True), ("90", False), ("75 120", False)]
)
def test_an_image_that_was_compiled_for_some_gpus_alone_refuses_others(
    monkeypatch: pytest.MonkeyPatch, compiled: str, fits: bool
) -> None:
    a6000 = replace(of("Ampere"), compute_capability=(8, 6))
    complaint = faults(here(monkeypatch, a6000, image="every", compiled=compiled))
    assert (not complaint) == fits
    if not fits:
        assert complaint.endswith(
            "is Ampere, 8.6: docker build --target every --build-arg ARCHITECTURES=86 --tag repro . makes the right one"
        )


def test_gpus_are_counted_by_type_and_the_one_that_an_image_is_not_for_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(total=2**26))
    ampere, hopper = of("Ampere"), of("Hopper")
    found = here(monkeypatch, ampere, hopper, ampere, image="ampere")
    assert found["GPUs"].state.startswith(f"2 x {ampere.name} (Ampere), 1 x {hopper.name} (Hopper), driver ")
    assert "--target hopper " in faults(found)
    assert "--shm-size 1g" in found["shared memory"].advice


def test_outside_of_an_image_nothing_is_wrong_with_any_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = here(monkeypatch, of("Hopper"), of("Hopper"))
    assert not faults(found)
    line = doctor.summary(found)
    assert line.startswith(f"2 x {of('Hopper').name} (Hopper), driver ")
    assert "no image" in line
    assert "TF32 on with free lunch" in line


@pytest.mark.parametrize(
    ("size", "gpus", "output"),
    [(2**26, 2, "64 MiB"), (2**30 - 1, 8, "1024 MiB"), (None, 2, "0 MiB"), (2**30, 8, ""), (2**26, 1, "")],
)
def test_small_shared_memory_is_advice_and_no_fault(
    monkeypatch: pytest.MonkeyPatch, size: int | None, gpus: int, output: str
) -> None:
    def usage(place: str) -> SimpleNamespace:
        if size is None:
            raise FileNotFoundError(place)
        return SimpleNamespace(total=size, free=2**10)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    found = here(monkeypatch, *[of("Hopper")] * gpus)
    why = f"and NCCL may want 1 GiB among {gpus} GPUs without NVLink: in Docker --shm-size 1g gives it"
    assert found["shared memory"].advice == (f"/dev/shm has {output}, {why}" if output else "")
    assert not faults(found)


def test_a_gpu_without_tf32_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    assert here(monkeypatch, of("Turing"))["TF32"].state == "TF32 off, the GPU has none"
    assert here(monkeypatch, of("Turing"), tf32="on")["TF32"].state == "TF32 off, the GPU has none"
    assert here(monkeypatch, of("Ampere"), tf32="off")["TF32"].state == "TF32 off"


@pytest.mark.parametrize(
    ("capability", "generation"),
    [((8, 7), "Ampere"), ((9, 0), "Hopper"), ((12, 1), "Blackwell"), ((6, 1), "older than Volta")],
)
def test_an_unknown_gpu_has_the_generation_of_its_compute_capability(
    capability: tuple[int, int], generation: str
) -> None:
    assert generation_of(Device(0, 0, "GPU-0", "NVIDIA New", None, 2**34, capability)) == generation


def test_an_image_of_no_target_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="REPRO_IMAGE=pascal: expected one of volta, "):
        here(monkeypatch, of("Hopper"), image="pascal")


@pytest.mark.parametrize("command", [["doctor"], ["run", "--models", "vit"]])
@pytest.mark.parametrize(
    ("variable", "value", "output"),
    [
        ("REPRO_TF32", "maybe", "REPRO_TF32=maybe: expected one of auto, on, off"),
        ("REPRO_IMAGE", "pascal", "REPRO_IMAGE=pascal: expected one of volta, "),
    ],
)
def test_a_variable_that_is_wrong_is_reported_without_a_gpu_too(
    tmp_path: Path, command: list[str], variable: str, value: str, output: str
) -> None:
    place = ["--out", str(tmp_path / "out")] if "run" in command else []
    refused = refusal(*command, *place, cwd=command_line.ROOT, **{"REPRO_IMAGE": "every", variable: value})
    assert refused.startswith(f"repro: {output}")


def test_in_an_image_a_gpu_asked_for_in_vain_is_one_line_with_docker_s_way(tmp_path: Path) -> None:
    refused = refusal("--gpus", "all", "--out", str(tmp_path / "out"), REPRO_IMAGE="hopper")
    for words in ("no GPU is visible", "docker run --gpus all repro", "--device nvidia.com/gpu=all", "--processes 1"):
        assert words in refused
