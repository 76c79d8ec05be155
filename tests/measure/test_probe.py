"""`repro probe`: this machine probed, and predictions made from what the probes found."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from repro import models
from repro.console import UserError
from repro.paper.gpus import Gpu, find
from repro.paper.settings import FREE_LUNCH
from repro.predict.fits import EVERYTHING, Probes, fitted_constants, here
from repro.predict.fits import load_probes as load_probes
from repro.predict.forecast import trace_of
from repro.predict.hardware import Machine, Probed
from repro.predict.memory import ALL_OF_IT
from repro.predict.traces import PAPER_STACK
from tests.support.command_line import PATIENCE, ROOT, answer, process, refusal, repro, started

InRanks = Callable[..., list[Any]]
PROBED = Probed(fp32=5e10, tf32=None, fp16=2e9, bf16=1e11, copy=1e10, host=1e10, launch=3e-6, ring=1e9, latency=2e-4)


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command finds of two processes on this CPU."""
    file = tmp_path_factory.mktemp("probes") / "probes.json"
    file.with_suffix(".log").write_text("what somebody had stderr go to")
    done = process("probe", "--processes", "1,2", "--out", str(file), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert "GFLOP/s" in done.stdout
    assert f"kept in {file}" in done.stdout
    assert file.with_suffix(".log").read_text() == "what somebody had stderr go to"
    return file


def test_products_copies_launches_and_exchanges_are_measured(probes: Path) -> None:
    found = json.loads(probes.read_text())
    assert (found["device"], found["capability"]) == ("cpu", None)
    assert found["counts"].keys() == {"1", "2"}
    for count, row in found["counts"].items():
        assert all(row[name] > 0 for name in ("fp32", "fp16", "bf16", "copy", "host", "launch"))
        assert row["tf32"] is None
        assert (row["ring"] is None) == (row["latency"] is None) == (count == "1")
    pair = found["counts"]["2"]
    assert 1e-6 < pair["latency"] < 0.1
    assert 1e6 < pair["ring"] < pair["copy"]


def test_what_is_measured_is_computed_a_second(in_ranks: InRanks) -> None:
    """Where every probe takes 2 s. Products are of 512 x 512, copies of 64 MiB, exchanges of 16 MiB."""
    for output in in_ranks("probed", world=2):
        assert output["exchanging"] == 1, "all ranks do so equally often"
        assert output["backward"] == 1
        assert output["found"] == {
            **dict.fromkeys(("fp32", "fp16", "bf16"), 512**3),
            "tf32": None,
            **dict.fromkeys(("copy", "host"), 2**26),  # read and written
            "memory": None,
            "launch": 2 / 800,  # 200 forward, and 600 backward
            "ring": 2**24 / 2,  # each of two sends half of it, twice
            "latency": 2.0,  # the mean of both kinds
        }


@pytest.mark.parametrize("capability", [(7, 5), (8, 0)])
def test_a_gpus_host_memory_and_arithmetics_are_measured_too(in_ranks: InRanks, capability: tuple[int, int]) -> None:
    [output] = in_ranks("probed", capability=capability)
    found, ampere = output["found"], capability == (8, 0)
    assert (found["fp32"], found["fp16"], found["copy"]) == (512**3, 512**3, 2**26)
    assert found["tf32"] == found["bf16"] == (512**3 if ampere else None)
    assert (found["host"], found["memory"], output["pinned"]) == (2**25, 7, 1)
    assert (found["ring"], found["latency"]) == (None, None)
    assert output["tf32"] == [False, ampere, False, False], "as each product is asked for"


def test_the_fastest_time_counts_after_a_warm_up_and_of_a_tenth_of_a_second_at_least(in_ranks: InRanks) -> None:
    times = [9.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]
    assert in_ranks("best_of", times=times, exchanges=True) == [{"best": 3.0, "ran": 2 + 7}]
    assert in_ranks("best_of", times=times, exchanges=False) == [{"best": 2.0, "ran": 2 + 7 + 4}]


def test_a_probed_machine_is_predicted(probes: Path) -> None:
    rows = answer("predict", "--probes", str(probes), "--gpus", "2", "--models", "pythia-160m")
    assert {row["gpu"] for row in rows} == {"cpu"}
    assert {row["days_low"] for row in rows} == {None}, "nothing like it was held against its predictions"
    [alone] = answer("predict", "--probes", str(probes), "--models", "vit", "--methods", "naive")
    assert (alone["gpus"], alone["seconds_communication"]) == (1, 0), "one sends nothing, and no ring was measured"
    best = rows[0]
    vision = answer("predict", "--probes", str(probes), "--gpus", "2", "--models", "vit", "--methods", "free-lunch")
    assert vision[0]["feasible"]
    flops = json.loads(probes.read_text())["counts"]["2"]["fp16"]
    # No faster than its matrix products, 2 x 6 x 160M x 2049 x 1024 of them a step, causal attention's half left out.
    assert best["seconds_compute"] > 0.8 * 1024 * 2049 * 6 * 1.2e8 / (2 * flops)


def test_on_a_cpu_deepspeed_and_fsdp_update_with_the_same_adam(probes: Path) -> None:
    rows = answer("predict", "--probes", str(probes), "--gpus", "2", "--models", "pythia-160m")
    updates = {row["settings"]: row["seconds_update"] for row in rows}
    for suffix in ("", "+offloading"):
        assert updates[f"free_lunch+zero_3{suffix}"] == pytest.approx(updates[f"free_lunch+fsdp_3{suffix}"])


def test_busy_cpus_are_reported_of_what_was_probed_and_of_what_follows(probes: Path, tmp_path: Path) -> None:
    for busy_cpus, output in ((1.25, "other processes kept about 1.2 CPUs busy"), (0.1, ""), (None, "")):
        file = tmp_path / "probes.json"
        replace(load_probes(probes), busy_cpus=busy_cpus).save(file)
        for more in ((), ("--models", "vit")):
            said = repro("predict", "--probes", str(file), "--gpus", "2", *more).stderr
            assert ("While it was probed" in said) == bool(output)
            assert output in said


def test_other_processes_are_counted_while_a_cpu_is_probed(probes: Path) -> None:
    busy_cpus = load_probes(probes).busy_cpus
    assert busy_cpus is not None
    assert 0 <= busy_cpus <= len(os.sched_getaffinity(0))


def test_a_file_that_cannot_be_written_is_reported_before_anything_is_probed(tmp_path: Path) -> None:
    output = refusal("probe", "--out", str(tmp_path))
    assert f"--out {tmp_path}: it is a folder, expected a file such as {tmp_path}/probes.json" in output
    for file in ("/proc/probes.json", "/proc/foo/probes.json"):
        assert refusal("probe", "--out", file, CUDA_VISIBLE_DEVICES="") == (
            f"repro: cannot write to {file}: No such file or directory; name another file with --out\n"
        )
    long = str(tmp_path / ("x" * 300))
    assert refusal("probe", "--out", long, CUDA_VISIBLE_DEVICES="") == (
        f"repro: cannot write to {long}: File name too long; name another file with --out\n"
    )


@pytest.mark.slow
def test_a_stack_that_does_not_load_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no luck')")
    paths = f"{tmp_path}{os.pathsep}{ROOT}"
    output = process("probe", "--out", str(tmp_path / "probes.json"), PYTHONPATH=paths, CUDA_VISIBLE_DEVICES="")
    assert (output.returncode, output.stdout) == (2, "")
    assert output.stderr.endswith("repro: nothing can be probed: the stack does not import: ImportError: no luck\n")


@pytest.mark.slow
def test_a_calibration_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    out = str(tmp_path / "probes.json")
    constants = started("probe", "--processes", "2", "--out", out, TMPDIR=str(tmp_path))
    while not (family := psutil.Process(constants.pid).children(recursive=True)):  # the server
        assert constants.poll() is None
        time.sleep(0.02)
    constants.terminate()
    constants.communicate(timeout=PATIENCE)
    assert constants.returncode == 130
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert alive == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_probe_that_fails_is_one_clear_line_and_keeps_its_log(tmp_path: Path) -> None:
    out, log = tmp_path / "probes.json", tmp_path / "probes.json.log"
    output = process("probe", "--processes", "2", "--out", str(out), GLOO_SOCKET_IFNAME="nowhere")
    assert (output.returncode, output.stdout) == (2, "")
    assert "repro: probing 2 x cpu crashed: " in output.stderr
    assert output.stderr.endswith(f"; see {log}\n")
    assert "nowhere" in log.read_text()
    assert not out.exists()


@pytest.mark.slow
def test_a_server_that_is_killed_while_it_probes_is_one_clear_line(tmp_path: Path) -> None:
    constants = started("probe", "--processes", "2", "--out", str(tmp_path / "probes.json"))
    while not (ranks := psutil.Process(constants.pid).children(recursive=True)[1:]):
        assert constants.poll() is None
        time.sleep(0.02)
    psutil.Process(ranks[0].ppid()).kill()
    _, said = constants.communicate(timeout=PATIENCE)
    assert constants.returncode == 2
    assert said.splitlines()[-1].startswith("repro: nothing can be probed: the fork server was killed by SIGKILL")


def test_what_was_measured_never_beats_the_data_sheet() -> None:
    gpu = find("A100")
    assert gpu is not None
    dream = Probed(
        fp32=1e18, tf32=1e18, fp16=1e18, bf16=1e18, copy=1e18, host=1e18, launch=3e-6, ring=1e18, latency=1e-4
    )
    machine = Machine(gpu, 1, probed=dream)
    assert machine.peak("fp16", False) == gpu.fp16_tflops * 1e12  # type: ignore[operator]
    assert machine.bandwidth == gpu.bandwidth_gb_s * 1e9  # type: ignore[operator]
    assert (machine.host_bytes, Machine(gpu, 2, probed=dream).link_bytes) == (32e9, 300e9)
    assert Machine(gpu, 1, probed=PROBED).peak("fp16", False) == PROBED.fp16
    assert Machine(gpu, 2, probed=PROBED).link_bytes == PROBED.ring
    tensor_cores = Machine(gpu, 1, probed=replace(PROBED, tf32=1e11))
    assert [tensor_cores.peak("fp32", tf32) for tf32 in (True, False)] == [1e11, PROBED.fp32]
    assert tensor_cores.peak("fp16", True) == PROBED.fp16, "TF32 is of fp32 alone"
    bridged = find("RTX 3090")
    assert bridged is not None
    assert Machine(bridged, 2, probed=replace(PROBED, ring=5e10)).link_bytes == 5e10, "more than PCIe: a bridge"


def test_an_unknown_gpu_needs_no_row_in_the_catalogue() -> None:
    fitted = fitted_constants()[EVERYTHING]
    probes = Probes("unknown GPU (NVIDIA X1)", 80 * 2**30, (9, 0), {1: PROBED}, 1.0)
    machine = probes.machine(1)
    assert (machine.gpu.memory_gb, machine.capability) == (80.0, (9, 0))
    assert machine.peak("bf16", True) == PROBED.bf16
    assert probes.constants(fitted, 1).rates.launch == PROBED.launch
    assert probes.constants(fitted, 1).allowance.context == fitted.allowance.context


def test_what_was_measured_is_reached_whole_and_what_was_not_as_fitted() -> None:
    fitted = fitted_constants()[EVERYTHING]
    rates = Probes("one", 2**33, (9, 0), {1: PROBED}, 1.0).constants(fitted, 1).rates
    products = ("matmul_half", "matmul_half_hopper", "matmul_half_geforce", "matmul_fp32", "matmul_fp32_gddr", "tf32")
    measured = (*products, "fused", "eager_hbm", "eager_gddr", "nvlink", "pcie", "host")
    assert {getattr(rates, name) for name in measured} == {1.0}
    assert replace(rates, launch=fitted.rates.launch, **{name: getattr(fitted.rates, name) for name in measured}) == (
        fitted.rates
    )


def test_the_memory_of_a_probed_gpu_is_what_it_had_whatever_others_of_its_name_tell() -> None:
    assert Probes("T4", 2**33, (7, 5), {1: PROBED}, 1.0).machine(1).gpu.memory_bytes == 2**33


def test_only_a_gpu_without_bf16_may_have_measured_none(tmp_path: Path) -> None:
    turing, ampere = (
        Probes("one", 2**33, capability, {1: replace(PROBED, bf16=None)}, 1.0) for capability in ((7, 5), (8, 0))
    )
    turing.save(tmp_path / "probes.json")
    assert load_probes(tmp_path / "probes.json") == turing
    ampere.save(tmp_path / "probes.json")
    with pytest.raises(UserError, match=r"counts\.1\.bf16 is null"):
        load_probes(tmp_path / "probes.json")


@pytest.mark.parametrize("known", [find("A100"), Probes("A100", 80 * 2**30, (8, 0), {1: PROBED}, 1.0)])
def test_a_limit_is_all_the_allocators_and_adds_nothing_to_what_there_is(known: Gpu | Probes) -> None:
    whole = here(known, 1, None)
    assert all(here(known, 1, half * 2**29) == whole for half in (159, 160, 400))
    machine, constants = here(known, 1, 2**30)
    assert machine.gpu.memory_gb == 1.0
    assert constants.allowance == replace(ALL_OF_IT, spread=whole[1].allowance.spread)


def test_a_cpus_memory_is_all_of_it() -> None:
    fitted = fitted_constants()[EVERYTHING]
    gpu, cpu = (Probes("one", 2**33, capability, {1: PROBED}, 1.0) for capability in ((9, 0), None))
    whole = gpu.constants(fitted, 1)
    assert whole.allowance == replace(fitted.allowance, reserved=0.0), "the driver's share is not in what was measured"
    assert cpu.constants(fitted, 1).allowance == ALL_OF_IT


def test_a_cpu_has_no_tf32_whatever_is_asked() -> None:
    machine = Probes("cpu", 2**33, None, {1: PROBED}, 1.0).machine(1)
    assert [machine.peak("fp32", tf32) for tf32 in (True, False)] == [PROBED.fp32] * 2


def test_mambas_custom_kernels_are_predicted_for_gpus_alone() -> None:
    machines = (Probes("one", 2**33, capability, {1: PROBED}, 1.0).machine(1) for capability in ((9, 0), None))
    found = [trace_of(models.find("mamba"), machine, FREE_LUNCH, PAPER_STACK).variant for machine in machines]
    assert found == ["custom", "naive"]


def test_bad_input_is_one_line(probes: Path, tmp_path: Path) -> None:
    other = repro("predict", "--probes", str(probes), "--gpus", "3")  # where others were busy, a line before says so
    assert (other.returncode, other.stdout) == (2, "")
    assert "3 x cpu was not probed, only 1, 2" in other.stderr.splitlines()[-1]
    assert "leave --gpu, --nodes and --network out" in refusal("predict", "--probes", str(probes), "--gpu", "A100")
    broken = tmp_path / "broken.json"
    output = refusal("predict", "--probes", str(broken))
    assert (
        "no probes of a machine (cannot be read (No such file or directory)); python -m repro probe --out FILE"
        in output
    )
    broken.write_text("{}")
    assert "(Object missing required field `device`)" in refusal("predict", "--probes", str(broken))
    found = json.loads(probes.read_text())
    found["counts"]["1"]["copy"] = -1
    broken.write_text(json.dumps(found))
    assert "Expected `float` >= 1e-20 - at `$.counts[...].copy`" in refusal("predict", "--probes", str(broken))
    found["counts"]["1"]["copy"] = None
    broken.write_text(json.dumps(found))
    assert "Expected `float`, got `null` - at `$.counts[...].copy`" in refusal("predict", "--probes", str(broken))
    found["counts"]["1"] |= {"copy": 1e10, "bf16": None}
    broken.write_text(json.dumps(found))
    assert "counts.1.bf16 is null, where the device has bf16" in refusal("predict", "--probes", str(broken))
    for far, bound in ((1e300, "<= 1e+20"), (1e-300, ">= 1e-20")):  # no days are computed from it
        found["counts"]["1"] |= {"bf16": 1e10, "launch": far}
        broken.write_text(json.dumps(found))
        output = refusal("predict", "--probes", str(broken))
        assert f"Expected `float` {bound} - at `$.counts[...].launch`" in output
    broken.write_text(json.dumps(found | {"counts": []}))
    assert "Expected `object`, got `array` - at `$.counts`" in refusal("predict", "--probes", str(broken))
