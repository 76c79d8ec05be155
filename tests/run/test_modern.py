"""Modern settings: parts that are added to free lunch and kept where a step becomes faster, each checked to train as
the settings without it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repro import models
from repro.console import UserError
from repro.machine.host import limited_cpus
from repro.machine.packages import installed_packages
from repro.machine.support import Stack, obstacle, part_obstacle
from repro.measure.launcher import ForkServer
from repro.measure.method import methods_of
from repro.measure.trial import Bench
from repro.paper.settings import FREE_LUNCH, Settings
from repro.parts import PARTS, Modern
from repro.predict import traces
from repro.predict.fits import EVERYTHING, fitted_constants
from repro.predict.forecast import Forecast, forecast
from repro.predict.hardware import Machine, gpu_named
from repro.predict.parts import adapted
from repro.predict.traces import shipped
from repro.record import BatchSearch, Derived, Record, Trial
from repro.report.methods import ablations
from repro.run.parts_search import faster
from repro.run.plan import Options, trials
from repro.run.reading import read
from repro.run.settings_search import searches
from repro.run.verdict import comparable_with_cell
from repro.validity import contradiction
from tests.support.command_line import ROOT, answer, documentation, process, refusal, repro, trial_lines
from tests.support.same_training import SameTraining, Trained, TrainingCheck, compared

GEMMA = {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 64,
}
METHODS = ROOT / "examples" / "methods.py"
NIGHTLY = pytest.mark.nightly
CPU = Stack(installed_packages(), None)
HOPPER = Stack({"torch": "2.11.0", "transformers": "5.23.0", "timm": "1.0.31", "deepspeed": "0.19.8"}, (9, 0))
WRONG = """
from repro import Method

def _dropped(model):
    next(model.model.gpt_neox.layers[1].mlp.parameters()).register_hook(lambda gradient: 0 * gradient)
    return model

def _shifted(model, batch):
    return model(input_ids=batch["input_ids"], labels=batch["labels"].roll(1, dims=1))

dropped = Method(module=_dropped)
shifted = Method(loss=_shifted)
"""


def test_modern_settings_are_named_by_their_parts_in_the_order_of_the_table() -> None:
    settings = Settings.parse("modern+fused_adam+checkpointing+bf16")
    assert settings.id == "modern+checkpointing+bf16+fused_adam"
    assert settings.free_lunch
    assert settings.base == Settings.parse("free_lunch+checkpointing")
    assert (settings.precision_of("fp16"), FREE_LUNCH.precision_of("fp16")) == ("bf16", "fp16")
    assert Settings.parse(settings.id) == settings
    with pytest.raises(UserError, match=r"modern has no parts; name them, such as modern\+fused_adam"):
        Settings.parse("modern+checkpointing")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "modern+fuse_adam"], "no part is called 'fuse_adam'; did you mean fused_adam"),
        (["--methods", "modern+zero_3"], "no part is called 'zero_3'; the parts are bf16, "),
        (["--methods", "modern+bf16+bf16"], "bf16 is named twice; name each part once"),
        (["--methods", "modem"], "--methods modem: expected modern or modern+PART, such as"),
        (
            ["--methods", "modern", "--with", "examples/methods.py:fused_adamw"],
            "chooses its trials itself: leave out --with",
        ),
        (["--methods", "modern", "--micro-batches", "4"], "chooses its trials itself: leave out --micro-batches"),
    ],
)
def test_what_is_wrong_with_parts_is_told_in_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    told = refusal("run", "--processes", "1", "--models", "pythia-1b", *words, "--out", str(tmp_path / "out"))
    assert said in told


def lacks(part: str, recipe: str, settings: str = "free_lunch", count: int = 1, stack: Stack = CPU) -> str:
    found = part_obstacle(part, models.find(recipe), replace(Settings.parse(settings), parts=(part,)), count, stack)
    return "" if found is None else f"{found.reason}; {found.remedy}"


def test_a_part_that_cannot_run_is_unsupported_by_its_name_and_names_what_it_lacks() -> None:
    assert lacks("fp8", "pythia-1b") == (
        "the part fp8 needs a GPU of compute capability 9.0, this is a CPU; leave it out"
    )
    assert lacks("fp8", "pythia-1b", stack=replace(HOPPER, capability=(8, 0))).endswith("this has 8.0; leave it out")
    assert lacks("fp8", "pythia-1b", stack=HOPPER) == (
        "the part fp8 needs torchao, which is not installed; ./run_all.sh --with-modern"
    )
    old = replace(HOPPER, packages=HOPPER.packages | {"torch": "2.3.1"})
    assert "needs torch 2.5 or newer, this is 2.3.1" in lacks("selective_checkpointing", "vit", stack=old)
    for part in ("bf16_weights", "fused_cross_entropy"):
        assert "needs training in bf16: add bf16" in lacks(part, "pythia-160m", stack=HOPPER)
    assert "does not run with ZeRO" in lacks("fused_adam", "vit", "free_lunch+zero_1", 2)
    assert "serves convnext, not ViT" in lacks("channels_last", "vit")
    assert "is for one device, these are 2" in lacks("no_wrapper", "vit", count=2)
    assert "needs activation checkpointing, which is off" in lacks("selective_checkpointing", "vit")
    assert "Mamba trains in bf16" not in lacks("bf16", "vit")
    assert "Pythia-1B trains in bf16" in lacks("bf16", "pythia-1b")
    assert "FSDP's gradient scaler in fp16" in lacks("fused_adam", "pythia-160m", "free_lunch+fsdp_2", 2)
    volta = replace(HOPPER, capability=(7, 0))
    assert "needs an Ampere or newer GPU" in lacks("bf16", "vit", stack=volta)
    both = Settings.parse("modern+bf16+fused_adam+fsdp_2")
    assert obstacle(models.find("pythia-160m"), both, 2, CPU) is None  # bf16 needs no scaler


def rounds(*steps: float, status: Any = "ok") -> Record:
    middle = sorted(steps)[len(steps) // 2] if steps else None
    derived = Derived(step_rounds=list(steps), true_step=middle)
    return Record("", "vit", "tiny", "free_lunch", "cpu", 1, status, derived=derived)


def test_a_part_is_kept_where_the_step_is_shorter_by_more_than_its_rounds_scatter() -> None:
    usual = rounds(1.0, 1.05, 1.1)
    assert faster(rounds(0.8, 0.81, 0.82), usual) == (True, "0.81 s a step, 1.05 s beside it")
    kept, why = faster(rounds(0.9, 1.0, 1.1), usual)
    assert not kept
    assert why.endswith("not faster by more than the rounds scatter (0.15 s)")
    assert faster(rounds(1.2, 1.2, 1.2), usual)[0] is False
    assert faster(rounds(status="out_of_memory"), usual) == (False, "out of memory")


def test_the_measured_peak_of_a_part_stands_beside_the_predicted_one() -> None:
    def on_h100(settings: str, peak: float, modern: Modern | None) -> Record:
        batch = BatchSearch(micro_batch=32, peaks=[[16, round(peak / 2)], [32, round(peak)]])
        known = rounds(1.0)
        known.recipe, known.scale, known.settings, known.batch = "pythia-160m", "paper", settings, batch
        known.device, known.modern, known.id = "NVIDIA H100 80GB HBM3", modern, f"pythia-160m/paper/{settings}"
        return known

    usual = on_h100("free_lunch", 60 * 2**30, None)
    fused = on_h100("modern+fused_cross_entropy", 30 * 2**30, Modern({}, asked=True))
    (ablation,) = ablations([usual, fused])
    row = next(row for row in ablation.rows() if row["part"] == "fused_cross_entropy")
    assert (row["at MBS"], row["peak GiB"], row["peak GiB without"]) == (32, 30, 60)
    logits = 32 * 2048 * 50304  # in fp32: kept, and at the peak copied and differentiated
    saved = row["predicted GiB without"] - row["predicted GiB"]
    assert saved * 2**30 == pytest.approx(12 * logits, rel=0.1)
    usual.scale = fused.scale = "tiny"
    (ablation,) = ablations([usual, fused])
    row = next(row for row in ablation.rows() if row["part"] == "fused_cross_entropy")
    assert row["predicted GiB"] is None


@pytest.mark.slow
def test_a_model_of_ones_own_gets_the_parts_that_serve_it(tmp_path: Path) -> None:
    (tmp_path / "gemma.json").write_text(json.dumps(GEMMA))
    file = tmp_path / "mine.toml"
    file.write_text('model = "hf:gemma.json"\nbatch_size = 8\nsequence = 64\ntraining_steps = 100\ncompiles = false\n')
    parts = "modern+channels_last+fused_cross_entropy+fused_adam"
    words = ["--scale", "paper", "--processes", "1", "--steps", "1", "--methods", parts]
    done = process("run", "--models", str(file), *words, "--out", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    ablation = json.loads(repro("report", str(tmp_path / "out"), "--format", "json").stdout)["ablation"]
    rows = {row["part"]: row for row in ablation}
    assert "serves image models, not mine" in rows["channels_last"]["reason"]
    assert "compute capability 8.0, this is a CPU" in rows["fused_cross_entropy"]["reason"]
    assert rows["fused_adam"]["here"] == "asked"


def test_a_model_that_bounds_its_logits_has_no_fused_cross_entropy(in_ranks: Callable[..., list[Any]]) -> None:
    [bounded] = in_ranks("with_fused_loss", config=GEMMA)
    assert "serves models whose loss is the cross entropy of their output layer" in bounded
    for recipe in ("pythia-1b", "roberta", "mamba"):
        assert in_ranks("with_fused_loss", config=None, recipe=recipe) == ["fits"]


def test_modern_starts_from_free_lunch_and_on_gpus_from_the_published_settings() -> None:
    options = Options(("roberta",), "modern", "tiny", (1,))
    assert [trial.settings for trial in trials(options, [])] == ["free_lunch"]


# --- The same training ---


@pytest.fixture(scope="module")
def one_cpu() -> Iterator[None]:
    """Threads of one rank would wait for each other where other processes compute."""
    with limited_cpus(1):
        yield


Check = Callable[..., SameTraining]


@pytest.fixture(scope="module")
def check(one_cpu: None, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Check:
    def checked(recipe: str, settings: str, count: int, steps: int = 20) -> SameTraining:
        bench = Bench(fork_server, CPU, None, tmp_path_factory.mktemp("checked"))
        trial = Trial(recipe, "tiny", settings, "cpu", count, timeout=600)
        return SameTraining(bench, trial, False, micro_batch=2, steps=steps)

    return checked


ALL_OF_ROBERTA = "bf16+bf16_weights+fused_attention+selective_checkpointing+no_wrapper+fused_adam"
# Of each training, the parts that are checked, one at a time or several together. After the first three: at night.
EVERY = {
    ("pythia-160m", "free_lunch", 1): ("bf16", "no_wrapper", "fused_adam"),
    ("convnext", "free_lunch", 1): ("bf16", "channels_last", "no_wrapper"),
    ("roberta", "free_lunch+checkpointing", 1): ("fused_attention", "selective_checkpointing", ALL_OF_ROBERTA),
    ("mamba", "free_lunch", 1): ("bf16_weights", "fused_adam"),
    ("pythia-1b", "free_lunch", 2): ("bf16_weights",),
    ("vit", "free_lunch+checkpointing+fsdp_2", 2): ("bf16", "fused_adam", "selective_checkpointing"),
    ("pythia-160m", "free_lunch+fsdp_3", 2): ("bf16",),
    ("roberta", "free_lunch+fsdp_2", 2): ("fused_attention",),
    ("roberta", "free_lunch+zero_1", 2): ("fused_attention",),
    ("vit", "free_lunch+zero_2", 2): ("bf16",),
    ("pythia-1b", "free_lunch+checkpointing+zero_3", 2): ("selective_checkpointing",),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "settings", "count"), [*[*EVERY][:3], *(pytest.param(*each, marks=NIGHTLY) for each in [*EVERY][3:])]
)
def test_each_part_trains_as_the_settings_without_it(recipe: str, settings: str, count: int, check: Check) -> None:
    same = check(recipe, settings, count, steps=4)
    for part in EVERY[recipe, settings, count]:
        wanted = replace(Settings.parse(settings), parts=tuple(part.split("+")))
        for one in wanted.parts:
            assert part_obstacle(one, models.find(recipe, "tiny"), wanted, count, CPU) is None
        found = same.of(wanted.id, compiled=False)
        assert found.fault == "", f"{part}: {found.text}"
        assert len(found.losses) == 4
        assert found.cosine > 0.999


def test_every_part_that_runs_on_a_cpu_is_checked_with_every_library_that_takes_it() -> None:
    checked = {(part, Settings.parse(settings).library) for (_, settings, _), parts in EVERY.items() for part in parts}
    assert checked - {(ALL_OF_ROBERTA, "torch")} == {
        (part.name, library) for part in PARTS if part.capability is None for library in part.engines
    }


@pytest.fixture(scope="module")
def wrong(
    check: Check, fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., TrainingCheck]:
    """The check of a method of one's own that is wrong, as if it were a part of the named ones."""
    file = tmp_path_factory.mktemp("wrong") / "wrong.py"
    file.write_text(WRONG)
    same = check("pythia-1b", "free_lunch", 1)
    usual, twins = same.train("free_lunch", False), [same.train("free_lunch", False, nudge) for nudge in (0.0, 2.0**-9)]

    def found(method: str, parts: tuple[str, ...]) -> TrainingCheck:
        before, fork_server.methods = fork_server.methods, methods_of([f"{file}:{method}"])[1]
        try:
            return compared(same.train(f"free_lunch+{method}", False), usual, twins, parts)
        finally:
            fork_server.methods = before

    return found


@pytest.mark.slow
@pytest.mark.parametrize("parts", [("fused_adam",), ("bf16",)])
@pytest.mark.parametrize("method", ["dropped", "shifted"])
def test_the_check_finds_a_dropped_gradient_and_shifted_labels(
    method: str, parts: tuple[str, ...], wrong: Callable[..., TrainingCheck]
) -> None:
    found = wrong(method, parts)
    assert found.text.startswith("changes the training: ")
    assert found.cosine < 0.98


def test_the_check_counts_weights_and_moments() -> None:
    usual = [Trained([2.0, 1.0], [[1.0, 2.0], [3.0, 4.0]], 10, 10, "bf16")]
    same = compared(usual, usual, [usual], ("bf16",))
    assert same.fault == ""
    assert same.cosine == pytest.approx(1.0)
    fewer = compared([replace(usual[0], moments=8)], usual, [usual], ("bf16",))
    assert fewer.text == "changes the training: moments are 8, without it 10"
    lost = compared([replace(usual[0], losses=[2.0, float("nan")])], usual, [usual], ("bf16",))
    assert lost.fault.startswith("the loss of step 2 is nan")


def test_of_logits_in_chunks_a_sequence_takes_what_its_hidden_states_do() -> None:
    recipe = models.find("pythia-1b")
    whole = traces.find(recipe.id, "custom", shipped()[-1])
    fused = adapted(recipe, whole, ("fused_cross_entropy",), True)
    assert fused.rest.cost("head").fixed == whole.rest.cost("head").fixed
    assert whole.rest.cost("head").per_example > 8 * 2048 * 50_304
    assert fused.rest.cost("head").per_example < 0.05 * whole.rest.cost("head").per_example


# --- A run ---


@pytest.fixture(scope="module")
def finished(one_cpu: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of a recipe that needs no compiler, with parts that a user named."""
    out = tmp_path_factory.mktemp("modern") / "out"
    words = "--processes 1 --models mamba --steps 2"
    parts = "modern+fused_adam+no_wrapper+channels_last"
    done = process("run", *words.split(), "--methods", parts, "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.mark.slow
def test_a_run_ends_with_what_each_part_brought(finished: tuple[Path, str]) -> None:
    folder, told = finished
    assert re.search(r"^fused_adam +asked ", told, re.MULTILINE)
    text = (folder / "report.md").read_text()
    assert "mamba, 1 x cpu: modern takes " in text
    assert "exact parts: no_wrapper, fused_adam" in text
    rows = {row["part"]: row for row in json.loads(repro("report", str(folder), "--format", "json").stdout)["ablation"]}
    assert rows["channels_last"]["here"] == "unsupported"
    assert "serves convnext, not Mamba" in rows["channels_last"]["reason"]
    for part in ("no_wrapper", "fused_adam"):
        assert rows[part]["here"] == "asked"
        assert rows[part]["step s without"] > 0
        assert rows[part]["peak GiB without"] > 0
    assert "## Modern settings: what each part brought" in text


@pytest.mark.slow
def test_modern_settings_list_their_parts_and_stand_for_no_cell_and_no_search(finished: tuple[Path, str]) -> None:
    reading = read(finished[0])
    assert not reading.problems
    found = {record.settings: record for record in reading.records}
    both = found["modern+no_wrapper+fused_adam"]
    assert both.modern is not None
    assert both.modern.parts == {"no_wrapper": "exact", "fused_adam": "exact"}
    assert both.as_run.wrapper == "LanguageModelling"
    assert {"modern+no_wrapper", "modern+fused_adam"} <= found.keys()  # all but one
    assert not any(comparable_with_cell(record) or record.comparable_with_paper for record in found.values())
    [search] = searches(found.values())
    assert [*search.standing] == ["free_lunch"]
    forged = replace(both, modern=replace(both.modern, parts={"bf16": "precision"}))
    assert contradiction(both) is None
    assert "and yet its parts are" in (contradiction(forged) or "")


@pytest.mark.slow
def test_the_same_command_again_measures_nothing_twice(finished: tuple[Path, str]) -> None:
    folder, _ = finished
    before = trial_lines(folder)
    words = "--processes 1 --models mamba --steps 2 --methods modern+fused_adam+no_wrapper"
    done = process("run", *words.split(), "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert trial_lines(folder) == before
    assert "fused_adam" in done.stdout


# --- Predicted ---


def test_table_1_is_predicted_with_free_lunch_and_today_side_by_side() -> None:
    words = ["predict", "--methods", "modern", "--models", "pythia-160m,vit"]
    rows = json.loads(repro(*words, "--format", "json").stdout)
    assert len(rows) == 32
    [on_h100] = [row for row in rows if (row["model"], row["gpu"], row["gpus"]) == ("ViT", "H100", 1)]
    days = [on_h100[f"{name}_days"] for name in ("free_lunch", "exact", "modern")]
    assert days[0] >= days[1] > 2 * days[2]
    assert on_h100["origin"] == "predicted"
    assert on_h100["modern_settings"].startswith("modern+bf16")
    [small] = [row for row in rows if (row["model"], row["gpu"], row["gpus"]) == ("Pythia-160M", "H100", 1)]
    assert small["modern_micro_batch"] >= 2 * small["micro_batch"]
    said = " ".join(repro(*words).stdout.split())
    assert "They are predicted from traces" in said
    assert "no record with parts was measured on a GPU" in said


def test_table_1_in_true_days_gains_a_column_and_cost_takes_its_days() -> None:
    rows = json.loads(repro("table", "1", "--by", "true", "--methods", "modern", "--format", "json").stdout)
    [vit] = [row for row in rows if (row["model"], row["gpu"], row["gpus"]) == ("ViT", "H100", 1)]
    assert vit["modern_days"] < vit["days"] / 2
    assert vit["modern_settings"].startswith("modern+bf16")
    words = ["cost", "vit", "--gpu", "H100", "--methods", "modern", "--format", "json"]
    offers = json.loads(repro(*words).stdout)
    [one] = [row for row in offers["rows"] if row["gpus"] == 1]
    assert one["origin"] == "projected"
    assert one["predicted_days"] == pytest.approx(vit["modern_days"], rel=0.05)
    assert one["days"] == pytest.approx(one["predicted_days"] * 34.256 / 34.414, rel=0.01), "as free lunch was measured"
    assert "use it as in table 1 --by true" in refusal("table", "4", "--by", "true", "--methods", "modern")
    assert "prints no days with --methods modern" in refusal(*words, "--by", "printed")
    own = ["cost", "vit", "--gpu", "docs/own-gpu.toml", "--methods", "modern"]
    assert "--measured changes nothing of --gpu" in refusal(*own, "--measured", "results/h100/vision")


def test_parts_change_memory_and_the_update_as_their_sources_say() -> None:
    recipe, gpu = models.find("pythia-160m"), Machine(gpu_named("H100"), 1)

    def predicted(*parts: str) -> Forecast:
        settings = replace(FREE_LUNCH, parts=parts)
        fitted = fitted_constants()[EVERYTHING]
        return forecast(recipe, gpu, settings, fitted, shipped()[-1], papers_hosts=False, micro_batch=16)

    usual, alone = predicted(), predicted("no_wrapper")
    assert usual.memory is not None
    assert alone.memory is not None
    assert usual.memory.peak - alone.memory.peak == pytest.approx(4 * recipe.parameters, rel=0.01)
    fused = predicted("fused_adam")
    assert usual.step is not None
    assert fused.step is not None
    assert fused.step.update == pytest.approx(0.3 * usual.step.update)
    assert fused.bounds is None


def test_predicted_modern_settings_are_exported_with_their_parts(tmp_path: Path) -> None:
    words = ["export", "--predicted", "--models", "convnext", "--gpu", "A100", "--methods", "modern"]
    assert "with modern+bf16" in repro(*words, "--out", str(tmp_path / "out")).stdout
    script = (tmp_path / "out" / "train.py").read_text()
    compile(script, "train.py", "exec")
    assert 'settings="modern+bf16+bf16_weights+' in script


@pytest.mark.slow
def test_an_exported_script_trains_with_the_parts_of_the_run(finished: tuple[Path, str], tmp_path: Path) -> None:
    told = repro("export", str(finished[0]), "--methods", "modern", "--out", str(tmp_path / "out")).stdout
    assert "with modern+no_wrapper+fused_adam on 1 x cpu" in told
    command = [sys.executable, str(tmp_path / "out" / "train.py"), "--max-steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "mamba with LanguageModelling on 1 x cpu" in done.stdout
    assert "with free_lunch on" in repro("export", str(finished[0]), "--out", str(tmp_path / "usual")).stdout


def test_the_page_has_every_part_as_the_code_describes_it() -> None:
    page = documentation("docs/own-model.md")
    for part in PARTS:
        row = f"| `{part.name}` | {part.kind} | {part.library} | {part.what} | {part.source} |"
        assert row in page


def test_the_page_has_how_much_faster_an_h100_is_predicted_to_be() -> None:
    rows = [row for row in answer("predict", "--methods", "modern") if (row["gpu"], row["gpus"]) == ("H100", 1)]
    exact, every = (
        sorted(row["free_lunch_days"] / days for row in rows if (days := row[f"{name}_days"]))
        for name in ("exact", "modern")
    )
    shown = f"{exact[0]:.2f} to {exact[-1]:.2f} times as fast with exact parts, and {every[0]:.2f} to {every[-1]:.2f}"
    assert shown in documentation("docs/own-model.md")
