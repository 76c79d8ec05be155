"""A measured speed is normal within the errors of predictions; what else explains it best is named first."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from repro import models
from repro.console import UserError
from repro.paper.settings import FREE_LUNCH, NAIVE, Settings
from repro.plan import causes
from repro.plan.causes import causes_of, in_fp32, other_machines
from repro.plan.took import LOADING, Cause, Normal, Took, explain
from repro.predict import traces
from repro.predict.fits import EVERYTHING, Probes, fitted_constants
from repro.predict.forecast import step_model
from repro.predict.hardware import Machine, gpu_named
from repro.predict.time import StepModel
from tests.support.command_line import repro

FITTED = fitted_constants()[EVERYTHING]
STACK = traces.shipped()[-1]
# As nanoGPT trains GPT-2 124M: 12 x 40 examples a step.
DECODER = "decoder:layers=12,width=768,heads=12,kv=12,feedforward=2048,vocabulary=50304"
ASKED = ("predict", "--models", f"{DECODER}@batch=480,tokens=5B,sequence=1024", "--gpu", "RTX 4090")


def model(gpu: str, gpus: int = 1, nodes: int = 1, settings: Settings = FREE_LUNCH) -> StepModel:
    machine = Machine(gpu_named(gpu), gpus, nodes)
    return step_model(models.find("pythia-160m"), machine, settings, FITTED, STACK)


def seconds(of: StepModel, micro_batch: int = 8) -> dict[str, tuple[float, float]]:
    return {each.text: (each.low, each.high) for each in causes_of(of, micro_batch, FITTED)}


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("13.8s", 13.8),
        ("580ms", 0.58),
        ("0.58 s", 0.58),
        (".5s", 0.5),
        ("7h", 7 * 3600 / 1000),
        ("90 min", 90 * 60 / 1000),
        ("3d", 3 * 86_400 / 1000),
        ("2min/step", 120.0),
        ("1.2 it/s", 1 / 1.2),
        ("45000 tokens/s", 64 * 512 / 45_000),
        ("45,000 tok/s", 64 * 512 / 45_000),
        ("45k tokens/s", 64 * 512 / 45_000),
        ("1.2M tokens/s", 64 * 512 / 1.2e6),
        ("300 images/s", 64 / 300),
        ("300 examples/s", 64 / 300),
    ],
)
def test_a_speed_is_read_as_people_write_it(text: str, step: float) -> None:
    assert Took.parse(text).step(64, 512, 1000) == pytest.approx(step)


@pytest.mark.parametrize("text", ["13.8", "s", "0s", "-3s", "1e3 s", "nan s", "13.s5", "7 parsecs", "", "9" * 30 + "s"])
def test_what_is_no_speed_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="--took"):
        Took.parse(text)


def test_what_is_not_known_of_a_training_is_asked_for() -> None:
    with pytest.raises(UserError, match="number of tokens is not known: give the seconds of a step"):
        Took.parse("300 tokens/s").step(64, None, 1000)
    with pytest.raises(UserError, match="number of steps is not known"):
        Took.parse("7h").step(64, 512, None)


def test_normal_is_the_interval_of_the_kind_of_gpu_or_the_worst_error() -> None:
    hbm, gddr, other = (Normal.on(Machine(gpu_named(name), 1), FITTED) for name in ("A100", "RTX 3090", "RTX 4090"))
    assert [round(bound, 2) for each in (hbm, gddr) for bound in (each.low, each.high)] == [0.88, 1.29, 0.8, 1.42]
    assert (other.low, other.high) == (1 / FITTED.errors.worst_factor, FITTED.errors.worst_factor)
    assert "Quadro RTX 8000" in other.reason
    with_parts = Normal.on(Machine(gpu_named("A100"), 1), FITTED, known=False)
    assert with_parts.high == other.high


NORMAL = Normal(0.8, 1.25, "")


@pytest.mark.parametrize(
    ("took", "verdict"), [(0.79, "faster"), (0.81, "normal"), (1.0, "normal"), (1.24, "normal"), (1.26, "slower")]
)
def test_a_time_is_normal_within_the_interval_alone(took: float, verdict: str) -> None:
    assert explain(took, 1.0, [Cause("x", 2.0, 2.0)], NORMAL).verdict == verdict


def test_causes_are_ranked_by_how_well_each_explains_the_time() -> None:
    near, far, wide = Cause("near", 3.1, 3.1), Cause("far", 6.0, 6.0), Cause("wide", 2.0, 200.0)
    found = explain(3.0, 1.0, [far, wide, near], NORMAL)
    assert [cause.text for cause, _ in found.causes] == ["near", "wide", "far"], "a range pays for its width"
    assert sum(share for _, share in found.causes) == pytest.approx(1.0)
    assert found.likely == ["near"]
    assert found.sentence("It").endswith("most likely near.")
    both = explain(3.0, 1.0, [Cause("a", 2.95, 2.95), near, Cause("c", 3.2, 3.2)], NORMAL)
    assert both.sentence("It").endswith("most likely a or near.")
    assert explain(40.0, 1.0, [far, wide, near], NORMAL).causes[0][0] == wide
    alone = explain(20.0, 1.0, [near, far], NORMAL)
    assert alone.likely == []
    assert explain(20.0, 1.0, [], NORMAL).likely == []
    assert "no single cause explains it" in alone.sentence("It")
    assert alone.data()[-1]["cause"] == LOADING
    assert NORMAL.away(1.0, 0.5, 2.0) == 0.0
    assert NORMAL.away(4.0, 0.5, 2.0) == pytest.approx(math.log(2) / NORMAL.deviation)


def test_a_training_on_the_cpu_is_named_and_its_own_prediction_is_normal() -> None:
    found = json.loads(repro(*ASKED, "--took", "60s", "--format", "json").stdout)
    assert found["verdict"] == "slower"
    assert "most likely it does not run on the GPU at all" in found["answer"]
    assert found["rows"][0]["likelihood"] > 0.9
    assert found["rows"][-1] == {"cause": LOADING, "seconds_low": None, "seconds_high": None, "likelihood": None}
    own = json.loads(repro(*ASKED, "--took", f"{found['predicted_seconds']:.9f} s", "--format", "json").stdout)
    assert own["verdict"] == "normal"
    assert own["normal_low_seconds"] < own["predicted_seconds"] < own["normal_high_seconds"]
    people = repro(*ASKED, "--took", "60s").stdout
    assert people.startswith("decoder on 1 x RTX 4090: 60 s a step is ")
    assert "Nothing of this kind was measured: normal is a factor of 1.56 both ways" in people


def test_a_whole_training_and_tokens_a_second_are_the_same_step() -> None:
    steps = 10_173
    step = json.loads(repro(*ASKED, "--took", "6s", "--format", "json").stdout)
    for text in (f"{6 * steps / 3600:.6f}h", f"{480 * 1024 / 6:.6f} tokens/s", f"{1 / 6:.9f} it/s"):
        other = json.loads(repro(*ASKED, "--took", text, "--format", "json").stdout)
        assert other["took_seconds"] == pytest.approx(step["took_seconds"], rel=1e-4)
        assert other["answer"].startswith(f"decoder on 1 x RTX 4090, {text}: 6 s a step is normal")


def test_each_cause_is_the_step_predicted_again() -> None:
    of, usual = model("A100", 8), model("A100", 8).step(8).seconds
    found = seconds(of)
    eager = replace(of, recipe=replace(of.recipe, compiles=False)).step(8).seconds
    assert found["it is not compiled"] == (eager, eager)
    assert found["its micro batch is small, and launches take the time"][1] == of.step(1).seconds
    again = replace(of, settings=Settings.parse("free_lunch+checkpointing")).step(8).seconds
    assert found["activations are computed again (checkpointing)"] == (again, again)
    offloaded = replace(of, settings=Settings.parse("free_lunch+zero_1+offloading")).step(8).seconds
    assert found["states are offloaded to the host"] == (offloaded, offloaded)
    assert found["its GPUs exchange over PCIe alone"][0] > usual
    assert found["it does not run on the GPU at all, but on a CPU"][0] > 10 * usual
    [micro] = [text for text in found if "micro-step, of which" in text]
    assert found[micro][0] == pytest.approx(of.micro_step(8).seconds)
    naive = model("A100", 8, settings=NAIVE)
    fast = replace(naive, settings=FREE_LUNCH).step(8).seconds
    assert seconds(naive)["it is compiled, with TF32"] == (fast, fast)


def test_without_tf32_products_run_at_the_peak_of_fp32() -> None:
    of = model("A100")
    slow, _ = seconds(of)["it computes in fp32 without TF32"]
    trace = in_fp32(of.trace)
    flops = sum(part.count * line.at(8) for part in trace.parts for key, line in part.costs.items() if "flops" in key)
    assert sum(
        part.count * line.at(8) for part in of.trace.parts for key, line in part.costs.items() if "flops" in key
    ) == pytest.approx(flops)
    assert not [key for part in trace.parts for key in part.costs if "/half/" in key]
    steps = of.recipe.batch_size / 8
    assert slow > steps * flops / 19.5e12
    assert slow > 3 * of.step(8).seconds


def test_a_model_in_fp32_may_be_faster_in_bf16() -> None:
    machine = Machine(gpu_named("H100"), 1)
    vit = step_model(models.find("vit"), machine, FREE_LUNCH, FITTED, STACK)
    assert vit.recipe.precision == "fp32"
    fast, _ = seconds(vit)["it computes in bf16 (autocast)"]
    parts = Settings.parse("modern+bf16")
    predicted = step_model(models.find("vit"), machine, parts, FITTED, STACK).step(8).seconds
    assert fast == pytest.approx(predicted, rel=0.01)
    assert fast < vit.step(8).seconds
    assert "it computes in bf16 (autocast)" not in seconds(model("A100"))


def test_bf16_is_a_cause_where_the_gpu_has_none() -> None:
    [slow] = [value for text, value in seconds(model("T4")).items() if "bf16, which this GPU does at fp32's" in text]
    of, rates = model("T4"), FITTED.rates
    assert slow[0] > 2 * of.step(8).seconds
    found = causes.emulating_bf16(of)
    assert (found.matmul_half, found.attention) == pytest.approx(
        (rates.matmul_fp32 * 8.1 / 65, rates.attention_fp32 * 8.1 / 65)
    )
    assert not [text for text in seconds(model("A100")) if "bf16, which" in text]


def test_slower_links_are_pcie_and_a_slow_network() -> None:
    def links(machine: Machine) -> dict[str, Machine]:
        _, *others = other_machines(machine, FITTED)  # the first is a CPU
        return {text: slower for text, [(slower, _)] in others}

    pcie = links(Machine(gpu_named("H100"), 8))["its GPUs exchange over PCIe alone"]
    assert (pcie.link, pcie.link_bytes) == ("pcie", 64e9)
    slow = links(Machine(gpu_named("A100"), 8, 2))["its network has 1 Gb/s"]
    assert slow.link_bytes == 125e6
    assert not links(Machine(gpu_named("RTX 4090"), 2))
    assert not links(Machine(gpu_named("A100"), 1))


def test_on_a_cpu_one_thread_is_a_cause_and_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.plan.causes.usable_cpus", lambda: 4)
    probed = Probes("cpu", 2**35, None, {1: causes._CPUS[0]}, 0.0)
    fitted = probed.constants(FITTED, 1)
    on_cpu = replace(model("A100"), machine=probed.machine(1), rates=fitted.rates)
    found, usual = {each.text: (each.low, each.high) for each in causes_of(on_cpu, 8, fitted)}, on_cpu.step(8).seconds
    low, high = found["one thread computes"]
    assert usual < low < high <= 4.01 * usual
    assert not [text for text in found if "GPU" in text or "TF32" in text]
