"""`plan`: what it says of training scripts of many shapes, held against the traces of the same models; and of scripts
that fail, write, read the network or want data."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from torch import nn

from repro.machine.stack import declare_torchvision_operators
from repro.measure.memory import CpuUse, busy_cpus
from repro.plan import causes
from repro.predict.fits import Probes
from repro.predict.memory import Allowance
from repro.predict.trace.record import record
from repro.predict.trace.trace import make_real
from repro.validity import cpu_disturbance
from tests.support.command_line import ROOT, repro

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).parent / "plan"
PATIENT = 3  # other tests run beside


@cache
def planned(script: str, *options: str, gpu: str = "RTX 4090") -> Any:
    done = repro("plan", str(SCRIPTS / script), "--gpu", gpu, "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Losing(nn.Module):
    """A model that returns its loss alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.model = module

    def forward(self, **batch: Any) -> Any:
        found = self.model(**batch)
        return getattr(found, "loss", found)


def traced(script: str, autocast: torch.dtype | None) -> tuple[float, float, float]:
    """The FLOPs and bytes of a micro-step of the script's model, and the peak of its activations, traced alone."""
    spec = importlib.util.spec_from_file_location(f"row{Path(script).stem}", SCRIPTS / script)
    assert spec is not None
    assert spec.loader is not None
    declare_torchvision_operators()
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    with torch.device("meta"):
        module = made.build()

    def build() -> Any:
        make_real(module, None)
        return Losing(module), made.batch("cpu")

    found = record(build, [], autocast, accelerate=script == "trainer.py")
    moved = sum(sum(each.values()) for operator in found.operators for each in (operator.reads, operator.writes))
    return sum(operator.flops for operator in found.operators), moved, max(found.head, found.body)


BF16, FP16 = torch.bfloat16, torch.float16
ALIKE = [  # script, autocast, optimizer steps, and where these are from
    ("accelerated.py", BF16, 400, "len(loader) by 2 backward passes a step"),
    ("checkpointed.py", None, 30_000, "max_steps at tests/plan/checkpointed.py:"),
    ("ddp.py", None, 320, "range(10) at tests/plan/ddp.py:45 x len(loader) by 4 backward passes a step"),
    ("fsdp.py", BF16, 20_000, "range(total_steps)"),
    ("trainer.py", BF16, 750, "the Trainer's"),
    ("vision.py", FP16, 18_000, "range(args.epochs)"),
]


@pytest.mark.parametrize(("script", "autocast", "steps", "source"), ALIKE)
def test_a_script_costs_what_its_model_is_traced_to(
    script: str, autocast: torch.dtype | None, steps: int, source: str
) -> None:
    found = planned(script)
    row = found["rows"][0]
    assert row["steps"] == steps
    assert source in found["followed"]["steps"][1]
    flops, moved, saved = traced(script, autocast)
    assert row["flops_per_micro_step"] == pytest.approx(flops, rel=1e-6)
    # Every micro-step but the first adds its gradients to those before: it reads both, and writes one.
    accumulated = 12 * row["weights"] * (1 - 1 / row["micro_steps"])
    assert row["bytes_per_micro_step"] == pytest.approx(moved + accumulated, rel=0.02)
    assert row["activation_bytes"] == pytest.approx(saved, rel=0.05)


OTHERS = [  # script, FLOPs of a step in closed form, optimizer steps
    ("plain.py", 6 * 256 * (784 * 4096 + 4096 * 4096 + 4096 * 10) - 2 * 256 * 784 * 4096, 1000),
    ("adversarial.py", None, 700),
    ("diffusion.py", None, 50_000),
    ("forever.py", 6 * 512 * 64 * 1000, None),
    ("spawned.py", 4 * 32 * 512 * 512, 300),
    ("recurrent.py", 6 * 2048 * (4 * 256 * (128 + 256 + 256 + 256) + 256 * 128), 2000),
]


@pytest.mark.nightly
@pytest.mark.parametrize(("script", "flops", "steps"), OTHERS)
def test_a_script_of_another_shape_is_followed_to_its_third_step(
    script: str, flops: float | None, steps: int | None
) -> None:
    row = planned(script)["rows"][0]
    assert row["fits"]
    assert row["steps"] == steps
    assert flops is None or row["flops_per_micro_step"] * row["micro_steps"] == pytest.approx(flops, rel=1e-3)


# Runs a script three steps on a CPU; the peak of what torch's allocator held in the third.
PEAK = """
import runpy, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, record_function

class End(BaseException): ...

count = iter(range(1, 4))

def stepped(*given):
    with record_function(f"step{(number := next(count))}"): pass
    if number == 3: raise End

register_optimizer_step_post_hook(stepped)
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
    try: runpy.run_path(sys.argv[1], run_name="__main__")
    except End: pass
events = list(found.profiler.kineto_results.events())
at = {event.name(): event.start_ns() for event in events}
held, peak = 0, 0
for begun, size in sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"):
    held += size
    peak = max(peak, held) if at["step2"] <= begun <= at["step3"] else peak
print(peak)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("script", ["plain.py", "checkpointed.py"])
def test_memory_is_what_torchs_allocator_takes_on_a_cpu(tmp_path: Path, script: str) -> None:
    text = (SCRIPTS / script).read_text()
    for one, other in (("width: int = 512", "width: int = 128"), ("layers: int = 6", "layers: int = 2")):
        text = text.replace(one, other)
    on_gpu, on_cpu = tmp_path / "gpu.py", tmp_path / "cpu.py"
    on_gpu.write_text(text.replace("torch.bfloat16", "torch.float32"))
    on_cpu.write_text(on_gpu.read_text().replace('"cuda"', '"cpu"'))
    done = subprocess.run([sys.executable, "-c", PEAK, on_cpu], capture_output=True, text=True, check=True)
    row = json.loads(repro("plan", str(on_gpu), "--gpu", "A100", "--format", "json").stdout)["rows"][0]
    allowance = Allowance()
    tensors = row["peak_bytes"] - allowance.context - (allowance.spread - 1) * row["activation_bytes"]
    assert tensors == pytest.approx(int(done.stdout.split()[-1]), rel=0.05)


def test_gpt_2_fits_an_rtx_4090_takes_half_a_day_and_is_told_three_changes() -> None:
    began = time.monotonic()
    found = planned("gpt.py")
    row = found["rows"][0]
    assert time.monotonic() - began < 30 * PATIENT
    assert row["steps"] == int(5e9 / (12 * 1024 * 40))
    assert (row["micro_batch"], row["micro_steps"], row["compiled"], row["precision"]) == (12, 40, True, "bf16")
    assert row["fits"]
    assert row["low"] < 4.62 < row["high"], "measured: karpathy/nanoGPT, pull request 225"
    names = [each["change"].partition(":")[0] for each in found["changes"]]
    assert names[:3] == ["fused cross entropy (Liger's)", "CUDA graphs", "larger micro batch"]
    assert found["answer"].startswith("gpt.py fits on 1 x RTX 4090 (15.5 of 23.5 GiB) and takes 1")


def test_a_minute_a_step_of_gpt_2_is_a_cpu_and_its_predicted_time_is_normal() -> None:
    slow = planned("gpt.py", "--took", "60s")
    assert slow["verdict"] == "slower"
    assert slow["rows"][0]["cause"] == "it does not run on the GPU at all, but on a CPU"
    predicted = slow["plan"]["predicted_step_seconds"]
    assert planned("gpt.py", "--took", f"{predicted:.3f}s")["verdict"] == "normal"


def test_what_a_script_lacks_is_named_as_the_change_that_helps_most() -> None:
    names = [each["change"] for each in planned("plain.py", gpu="A100")["changes"]]
    assert names[0].startswith("TF32")
    assert any(name.startswith("bf16") for name in names)
    assert any(each["change"] == "no checkpointing" for each in planned("checkpointed.py")["changes"])
    assert any(each["change"].startswith("fused attention") for each in planned("checkpointed.py")["changes"])


def test_two_gpus_halve_the_steps_of_a_data_set_and_exchange_gradients_once_a_step() -> None:
    one, two = (planned("ddp.py", "--gpus", count) for count in ("1", "2"))
    assert two["rows"][0]["steps"] == one["rows"][0]["steps"] / 2
    assert one["parts_of_a_step"]["communication"] == 0 < two["parts_of_a_step"]["communication"]
    sharded = planned("fsdp.py", "--gpus", "4")["rows"][0]
    assert sharded["peak_bytes"] - 1e9 < planned("fsdp.py")["rows"][0]["peak_bytes"]


def test_a_gpu_that_is_too_small_says_what_would_fit(tmp_path: Path) -> None:
    small = tmp_path / "small.toml"
    small.write_text((ROOT / "docs" / "own-gpu.toml").read_text().replace('"16 GB"', '"8 GB"'))
    found = planned("gpt.py", gpu=str(small))
    assert not found["rows"][0]["fits"]
    assert " does not fit on 1 x " in found["answer"]
    assert 0 < found["rows"][0]["largest_micro_batch"] < 12


def lines(script: Path | str, *options: str, **variables: str) -> list[str]:
    """What a plan that fails says."""
    done = repro("plan", str(script), "--gpu", "A100", *options, cwd=ROOT, **variables)
    assert (done.returncode, done.stdout) == (2, "")
    return [line for line in done.stderr.splitlines() if "plan runs your script" not in line]


def test_a_script_that_fails_tells_its_own_last_line_and_ours() -> None:
    theirs, ours = lines(SCRIPTS / "failing.py")
    assert theirs.endswith("failing.py:5: FileNotFoundError: [Errno 2] No such file or directory: 'data/train.pt'")
    assert "wants data" in ours
    assert "--samples FILE" in ours


def test_a_script_that_ends_before_its_third_step_tells_what_it_said_last(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import sys\nprint('loading')\nsys.exit('no tokens here')\n")
    theirs, ours = lines(script)
    assert theirs == "repro: no tokens here"
    assert ours.endswith("give it other arguments behind --, more data or more steps")


def test_a_missing_package_is_named_with_how_to_install_it(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import nosuchpackage.of.ours\n")
    theirs, ours = lines(script)
    assert "ModuleNotFoundError: No module named 'nosuchpackage'" in theirs
    assert "pip install nosuchpackage" in ours


def test_a_script_reaches_no_network_no_credentials_and_writes_nothing_elsewhere() -> None:
    theirs, _ = lines(SCRIPTS / "reaching.py", HF_TOKEN="secret", AWS_SECRET_ACCESS_KEY="secret")
    assert "PermissionError" in theirs
    assert "writes outside its folder" in theirs


def test_its_own_folder_stays_as_it_is_even_with_here(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("open('here.txt', 'w').write('x')\n" + (SCRIPTS / "plain.py").read_text())
    assert repro("plan", str(script), "--gpu", "A100", cwd=tmp_path).returncode == 0, "in a copy it may write"
    theirs, _ = lines(script, "--here")
    assert "here.txt" in theirs
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


def test_samples_stand_for_data_that_is_opened_and_not_there(tmp_path: Path) -> None:
    script, samples = tmp_path / "train.py", tmp_path / "few.txt"
    samples.write_text("some text")
    script.write_text(
        "text = open('data/all.txt').read()\nassert text == 'some text'\n" + (SCRIPTS / "plain.py").read_text()
    )
    assert repro("plan", str(script), "--gpu", "A100", "--samples", str(samples)).returncode == 0
    assert not (tmp_path / "data").exists()
    assert "no such file" in lines(script, "--samples", str(tmp_path / "nosuch"))[0]


def test_a_loader_in_a_loop_counts_with_its_batches_where_the_script_names_no_length(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    text = (SCRIPTS / "adversarial.py").read_text()
    script.write_text(
        text.replace("for (real,) in loader:", "for (real,) in DataLoader(loader.dataset, batch_size=32):")
    )
    found = json.loads(repro("plan", str(script), "--gpu", "A100", "--format", "json").stdout)
    assert found["rows"][0]["steps"] == 7 * 100
    assert "the data loader's 100 batches at train.py:13" in found["followed"]["steps"][1]


def test_torch_updates_weights_in_lists_as_on_a_gpu() -> None:
    # Adam of six tensors in lists takes some 15 kernels, tensor by tensor over 60.
    assert planned("recurrent.py")["update_kernels"] < 30


def test_its_own_arguments_stand_behind_two_dashes() -> None:
    one, two = (
        planned("vision.py", *words)["rows"][0] for words in ((), ("--", "--epochs", "2", "--batch-size", "64"))
    )
    assert (two["steps"], two["micro_batch"]) == (200, 64)
    assert one["micro_batch"] == 32


def test_a_number_names_the_gpu_as_torch_has_it(tmp_path: Path) -> None:
    script, text = tmp_path / "train.py", (SCRIPTS / "plain.py").read_text()
    found = []
    for device in ('torch.device("cuda")', "torch.device(0)", "0"):
        script.write_text(text.replace('torch.device("cuda" if torch.cuda.is_available() else "cpu")', device))
        found.append(json.loads(repro("plan", str(script), "--gpu", "RTX 4090", "--format", "json").stdout)["rows"])
    assert found[0] == found[1] == found[2]


# Two cores, as results/searches-2-cores has them.
CPU = Probes("cpu", 2**35, None, {1: causes._CPUS[0]}, 0.0)


def on_cpu(probes: Path, script: str, *options: str) -> Any:
    done = repro("plan", str(SCRIPTS / script), "--probes", str(probes), "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_script_is_planned_for_a_cpu_that_was_probed(tmp_path: Path) -> None:
    CPU.save(file := tmp_path / "probes.json")
    found, on_gpu = on_cpu(file, "plain.py"), planned("plain.py")
    [here], [there] = found["rows"], on_gpu["rows"]
    for same in ("flops_per_micro_step", "weights", "micro_batch", "steps", "precision"):
        assert here[same] == there[same], same
    assert here["predicted_step_seconds"] > there["flops_per_micro_step"] / CPU.counts[1].fp32
    assert here["usable_bytes"] == CPU.memory
    assert not [each for each in found["changes"] if "TF32" in each["change"] or "bf16" in each["change"]]
    assert found["update_kernels"] > on_gpu["update_kernels"], "a CPU updates tensor by tensor"
    judged = on_cpu(file, "plain.py", "--took", "1h")
    assert not [each for each in judged["rows"] if "GPU" in each["cause"]]


SECONDS = re.compile(r"^([0-9.]+) s, loss", re.MULTILINE)
CHAIN = ("--chain", "48", "--width", "256", "--length", "16")  # of pointwise operators
SLOWED = [  # the script's arguments as planned, and as it ran; on one thread; the cause that is named
    ((), (), False, None),
    ((), (), True, "one thread computes"),
    (("--compile", *CHAIN), CHAIN, False, "it is not compiled"),
    (("--packed", "--steps", "6"), ("--packed", "--steps", "6"), False, "it waits for its data"),
]


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.parametrize(("planned", "ran", "alone", "cause"), SLOWED)
def test_what_slows_a_training_on_this_cpu_is_named(
    tmp_path: Path, planned: tuple[str, ...], ran: tuple[str, ...], alone: bool, cause: str | None
) -> None:
    file = tmp_path / "probes.json"
    command = [sys.executable, str(SCRIPTS / "timed.py"), *ran]
    threads = {"OMP_NUM_THREADS": "1"} if alone else {}
    for _ in range(PATIENT):
        use = CpuUse()
        assert repro("probe", "--processes", "1", "--out", str(file)).returncode == 0
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | threads)
        _, _, *steps = map(float, SECONDS.findall(done.stdout))
        judged = on_cpu(file, "timed.py", "--took", f"{median(steps):.6f}s", "--", *planned)
        if not cpu_disturbance(busy_cpus([each for each in [use.read()] if each])):
            break
    else:
        pytest.skip("needs a CPU that nothing else uses")
    if cause is None:
        assert judged["verdict"] == "normal", judged["answer"]
    else:
        assert cause in " or ".join(judged["likely"]), judged["answer"]
