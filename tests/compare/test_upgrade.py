"""`repro compare --against`: two stacks interleaved on this machine, resumed, bisected, and accepted as a baseline."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from argparse import Namespace
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from repro import datafile, models
from repro.cli import main
from repro.commands import against as comparing
from repro.commands.against_options import Against
from repro.compare import bisect, budget, candidate, upgrade
from repro.compare.budget import SIDES, choose, chosen_within, features, forks, rounds, seconds_of_parts
from repro.compare.candidate import Stack, build, differ, locked, pinned, requirements, this_stack
from repro.compare.decision import FEWEST, FIRST_LOOK
from repro.compare.side import differences
from repro.compare.trials import Compared, compare_trial, ratios_of_pairs
from repro.compare.upgrade import Check
from repro.console import UserError
from repro.machine import nvml
from repro.machine.devices import Device
from repro.machine.environment import read
from repro.machine.packages import Imported, Imports
from repro.measure.trial import Bench
from repro.models.recipe import Scale
from repro.paper.gpus import find
from repro.record import Record, Status, Trial
from repro.run.records import history
from repro.run.results import TRIALS, Results
from tests.support.command_line import ROOT, altered, process, record, refusal, repro, results_folder
from tests.support.wheels import linked, pin, wheel

RUN = ROOT / "results" / "cpu-2-cores"
LONG = " ".join(f"package-{number}==1.0" for number in range(40))  # longer than a file's name can be


def unheard(part: str, took: float | None) -> None:
    """Who is told of a check and does not listen."""


def options(**given: Any) -> Against:
    """The options of `compare --against` with these given, the others the defaults."""
    return Against(**{"against": "torch==9", **given})


def lock(tmp_path: Path, wheel: Path) -> Path:
    path = tmp_path / "lock"
    path.write_text(pin(wheel))
    return path


def test_gpus_are_taken_in_a_number_that_batches_divide_by_and_of_one_type(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(*names: str) -> list[Device]:
        return [
            Device(index, index, f"GPU-{index}", name, find(name), 80 * 10**9, (9, 0))
            for index, name in enumerate(names)
        ]

    asked = options(models="vit", methods="naive")
    monkeypatch.setattr(nvml, "visible_devices", lambda: seen(*["NVIDIA H200"] * 3))
    devices, trials = comparing._candidates(asked)
    assert (len(devices), [trial.count for trial in trials]) == (2, [2])
    assert ([trial.steps for trial in trials], forks(devices)) == ([5], 1), "processes that nobody is beside"
    monkeypatch.setattr(nvml, "visible_devices", lambda: seen("NVIDIA H200", "NVIDIA A40"))
    with pytest.raises(UserError, match="of several types"):
        comparing._candidates(asked)


def check(tmp_path: Path, lock_file: Path, *more: str, python_path: Path = ROOT) -> Any:
    """`repro compare --against` on the CPU, its wheels from this folder alone."""
    if not os.access(ROOT, os.W_OK):
        pytest.skip("an image brings nothing to build a second stack with")
    return process(
        "compare",
        "--against",
        str(lock_file),
        "--out",
        str(tmp_path / "out"),
        "--models",
        "pythia-1b",
        "--methods",
        "naive",
        "--pairs",
        "9",
        *more,
        CUDA_VISIBLE_DEVICES="",
        UV_FIND_LINKS=str(tmp_path / "wheels"),
        UV_NO_INDEX="1",
        PYTHONPATH=f"{python_path}{os.pathsep}{ROOT}",
    )


# --- The whole command ---


@pytest.mark.slow
def test_a_stack_that_cannot_run_a_trial_broke_it(tmp_path: Path) -> None:
    gone = "import sys; sys.modules['transformers.models.gpt_neox'] = None"
    found = check(tmp_path, lock(tmp_path, linked(tmp_path / "wheels", "without_gpt_neox", start=gone)), "--accept")
    assert found.returncode == 1, found.stderr
    output = json.loads((tmp_path / "out" / "check.json").read_text())
    [row], [note] = output["trials"], output["notes"]
    assert note in (tmp_path / "out" / "report.md").read_text()
    assert row["status"] == "broke"
    assert row["reason"].startswith("unsupported: transformers does not import: ModuleNotFoundError")
    assert "slower or broken (1 broke): pythia-1b, naive, 1 x cpu unsupported" in found.stdout.splitlines()[0]
    assert {"what": "without-gpt-neox", "before": None, "after": "1.0"} in output["environment"]
    assert (tmp_path / "out" / "report.md").read_text().startswith(f"{tmp_path / 'lock'} beside this stack: ")
    assert "the baseline stays as it is" in found.stderr
    assert re.search(r": pythia-1b naive; about [0-9]+ min in all, by estimate$", found.stderr, re.MULTILINE)
    first = r"^\[ 1/11\] largest micro batches, before: [0-9]+ s; about [0-9.]+ (s|min) left$"
    assert re.search(first, found.stderr, re.MULTILINE)


@pytest.mark.slow
def test_a_stack_that_is_this_one_is_not_measured_and_no_failure(tmp_path: Path) -> None:
    here = this_stack().packages
    twin = wheel(tmp_path / "wheels", "tqdm", here["tqdm"], {"here.pth": f"{sysconfig.get_path('purelib')}\n"})
    found = check(tmp_path, lock(tmp_path, twin))
    assert found.returncode == 0
    assert found.stdout == (
        f"{tmp_path / 'lock'} beside this stack: no package that a trial may import differs, nothing was measured.\n"
    )
    assert found.stderr.splitlines()[-1].startswith(f"repro: nothing of {tmp_path / 'lock'} differs, every package ")
    accepted = check(tmp_path, tmp_path / "lock", "--accept")
    assert (accepted.returncode, accepted.stdout) == (3, found.stdout), "a baseline was asked for, and none was written"
    assert accepted.stderr.splitlines()[-1] == "repro: --accept: nothing was measured, so the baseline stays as it is"
    assert not (tmp_path / "out").exists()


def test_nothing_measured_is_a_result_without_rows_and_no_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nvml, "visible_devices", list)
    monkeypatch.setattr(comparing, "stop_on_sigterm", lambda: None)
    monkeypatch.setattr(candidate, "build", lambda against, first: replace(first, name=against))
    monkeypatch.setenv("REPRO_EXPECTED", str(tmp_path / "expected"))

    def output(format: str, *words: str) -> Any:
        assert main([*words, "--format", format]) in ([3] if "--accept" in words else [0, 3])
        out, err = capsys.readouterr()
        assert ("--accept: nothing was measured, so the baseline stays as it is" in err) == ("--accept" in words)
        return json.loads(out) if format == "json" else list(csv.reader(io.StringIO(out)))

    of_one = ["compare", "--against", "tqdm==4", "--out", str(tmp_path), "--accept", "--bisect"]
    of_rows = ["compare", str(RUN), str(RUN)]
    assert output("csv", *of_one) == output("csv", *of_rows)[:1]
    nothing, rows = output("json", *of_one), output("json", *of_rows)
    assert list(nothing) == list(rows)
    assert (nothing["trials"], nothing["exit_code"], set(nothing["counts"].values())) == ([], 0, {0})
    assert [*tmp_path.iterdir()] == []


def test_tools_that_no_trial_imports_are_no_difference_and_kernels_are() -> None:
    stack = Stack("one", sys.executable, {"torch": "2", "tqdm": "4", "pytest": "8"})
    bare = replace(stack, packages={"torch": "2", "tqdm": "4"})
    assert not differ(stack, bare)
    assert differ(stack, replace(bare, packages={"torch": "2", "tqdm": "5"}))
    assert differ(stack, replace(bare, packages={"tqdm": "4"}))
    assert differ(replace(stack, packages={**stack.packages, "mamba-ssm": "2"}), bare)


@pytest.mark.parametrize("missing", ["triton", "numpy", "accelerate", "psutil", "nvidia-cudnn-cu12"])
def test_a_stack_without_what_makes_a_difference_to_a_measurement_is_another(missing: str) -> None:
    stack = Stack("one", sys.executable, {"torch": "2", "pytest": "8", missing: "1"})
    assert differ(stack, replace(stack, packages={"torch": "2"}))


@pytest.mark.slow
@pytest.mark.nightly
def test_a_stack_whose_lock_has_no_msgspec_gets_that_of_the_locks(tmp_path: Path) -> None:
    text = wheel(tmp_path / "wheels", "torch", "1.0", {"torch.py": ""})
    command = ["bash", "locks/second.sh", sys.executable, str(tmp_path / "venv"), str(lock(tmp_path, text))]
    wheels = {"UV_FIND_LINKS": str(tmp_path / "wheels")}
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **wheels}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    python = tmp_path / "venv" / "bin" / "python"
    version = subprocess.check_output([python, "-c", "import msgspec; print(msgspec.__version__)"], text=True)
    assert f"\nmsgspec=={version.strip()} " in (ROOT / "locks" / "cpu.lock").read_text()


@pytest.mark.slow
@pytest.mark.nightly  # it builds a stack
def test_a_stack_that_does_not_import_is_one_line_and_keeps_what_was_measured(tmp_path: Path) -> None:
    gone = "import sys; sys.modules['torch'] = None"
    found = check(tmp_path, lock(tmp_path, linked(tmp_path / "wheels", "without_torch", start=gone)))
    assert found.returncode == 2
    assert found.stdout == ""
    *_, last = found.stderr.splitlines()
    assert "does not import: ModuleNotFoundError: import of torch halted" in last
    assert "Traceback" not in found.stderr
    [kept] = history(tmp_path / "out" / "before" / "largest")
    assert kept.status == "ok"


@pytest.mark.slow
@pytest.mark.nightly
def test_a_stack_that_imports_from_elsewhere_is_refused_before_it_measures(tmp_path: Path) -> None:
    """Whatever is on PYTHONPATH both stacks import, and would compare with itself."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "sitecustomize.py").write_text("")
    there = lock(tmp_path, linked(tmp_path / "wheels", "linked"))
    found = check(tmp_path, there, python_path=tmp_path / "outside")
    assert (found.returncode, found.stdout) == (2, "")
    *_, last = found.stderr.splitlines()
    foreign = "sitecustomize was imported from elsewhere than the environment's site-packages"
    assert last.startswith(f"repro: this stack: {foreign}, which makes two stacks alike: unset PYTHONPATH")
    assert history(tmp_path / "out" / "before" / "largest") == []


@pytest.mark.parametrize("name", ["torch", "nothing"])
def test_a_lock_of_a_part_of_a_stack_is_refused_before_anything_is_measured(tmp_path: Path, name: str) -> None:
    """Before anything is built where it names some of the models' packages, with hashes, and so lacks the others."""
    found = check(tmp_path, lock(tmp_path, wheel(tmp_path / "wheels", name, "1.0", {f"{name}.py": ""})))
    assert (found.returncode, found.stdout) == (2, "")
    *built, output = found.stderr.splitlines()
    assert f"--against {tmp_path / 'lock'}: it is no whole stack, without " in output
    assert output.endswith("such as --against torch==2.11.0")
    assert bool(built) == (name == "nothing")
    assert not (tmp_path / "out").exists()


def test_a_lock_without_hashes_is_taken_and_said_to_check_nothing(
    building: Callable[[str], Stack], capsys: pytest.CaptureFixture[str]
) -> None:
    building(f"mkdir -p $2/bin; ln -s {sys.executable} $2/bin/python")
    assert "a lock: a==1 has no hash in it, so what is installed may be any file of it" in capsys.readouterr().err


def test_a_second_stack_that_was_changed_since_is_built_again(
    wheels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lock").write_text(pin(wheel(wheels, "thing", "1.0", {"thing.py": "version = 1\n"})))
    python = locked(tmp_path / "lock").python
    [thing] = Path(python).parents[1].glob("lib/python3*/site-packages/thing.py")
    for change in (thing.unlink, lambda: thing.write_text("version = 20\n")):
        change()
        assert locked(tmp_path / "lock").python == python
        assert thing.read_text() == "version = 1\n"
    assert capsys.readouterr().err.count("building the stack of ") == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("nowhere-to-be-found==1.0\n", "Because nowhere-to-be-found was not found in the "),
    ],
)
def test_a_lock_that_cannot_be_installed_is_one_clear_line(tmp_path: Path, content: str, output: str) -> None:
    (tmp_path / "lock").write_text(content)
    (tmp_path / "wheels").mkdir()
    found = check(tmp_path, tmp_path / "lock")
    assert (found.returncode, found.stdout) == (2, "")
    *_, last = found.stderr.splitlines()
    assert last.startswith(f"repro: --against {tmp_path / 'lock'}: {output}")
    assert "second" not in last


def test_a_file_that_is_no_lock_is_one_clear_line_before_anything_is_built() -> None:
    refused = refusal("compare", "--against", "README.md")
    assert "--against README.md: it is no list of packages, it has '`repro` re-runs the benchmark of " in refused
    assert refused.endswith(
        ": expected a lock file, such as locks/latest.lock, or requirements such as torch==2.11.0\n"
    )


def test_that_another_set_up_was_waited_for_is_no_part_of_what_went_wrong() -> None:
    output = "second.sh: another set-up is running: waiting for it\nerror: no such wheel\nsecond.sh: X, see above\n"
    assert candidate._one_line(output, "key", "a lock") == "no such wheel"


@pytest.mark.parametrize(
    ("content", "output"), [(b"\n", "it is empty"), (b"PK\x03\x04\xff\x1b[2J a wheel", "it is no text")]
)
def test_a_lock_without_a_word_is_refused_before_anything_is_built(tmp_path: Path, content: bytes, output: str) -> None:
    (tmp_path / "lock").write_bytes(content)
    found = refusal("compare", "--against", str(tmp_path / "lock"), "--out", str(tmp_path / "out"))
    assert f"{output}, expected a lock file" in found
    assert "\x1b" not in found


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["--against", "no/such/lock"], ["no such file", "torch==2.11.0"]),
        (["--against", ""], ["expected a lock file"]),
        (["--against", "locks"], ["it is a folder, expected a lock file"]),
        (["--against", "/proc/self/mem"], ["--against /proc/self/mem: it cannot be read (Input/output error)"]),
        (["--against", f"{LONG} and torch"], ["no such file, and 'and' is not of the form package==version"]),
        (["--against", "torch==2.0.0 Torch==2.1.0"], ["torch==2.0.0 and Torch==2.1.0: name one version of a package"]),
        ([], ["--against"]),
        (["--against", "torch==2.0.0", "--pairs", "8"], ["--pairs 8", "from 9 to ", "fewer can call no change"]),
        (["--against", "torch==2.0.0", "--budget", "soon"], ["--budget soon"]),
        (["--against", "torch==2.0.0", "--models", "gpt-5"], ["gpt-5", "vit"]),
        (["--against", "torch==2.0.0", "--budget", "10s"], ["--budget 10 s: ", "with --pairs 12; raise the budget"]),
    ],
)
def test_bad_input_is_one_clear_line(arguments: list[str], output: list[str], tmp_path: Path) -> None:
    refused = refusal("compare", *arguments, "--out", str(tmp_path / "out"), CUDA_VISIBLE_DEVICES="")
    for part in output:
        assert part in refused


def test_the_check_that_is_kept_lists_the_changes_that_its_samples_show_by_the_rule() -> None:
    kept = ROOT / "results" / "upgrade-transformers-4.57"
    output = json.loads((kept / "check.json").read_text())
    sides = str(kept / "before"), str(kept / "after")
    found = json.loads(repro("compare", *sides, "--format", "json").stdout)
    assert [row["changes"] for row in output["trials"]] == [row["changes"] for row in found["trials"]]
    report = (kept / "report.md").read_text()
    assert all(note in report for note in output["notes"])
    assert ("Nothing that is recorded." in report) == (not any(row["changes"] for row in output["trials"]))


# --- Interleaving ---


@pytest.mark.slow
def test_processes_take_turns_and_a_check_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    append = Results.append

    def noted(results: Results, each: Record) -> None:
        kept.append(results.folder.name)
        append(results, each)

    monkeypatch.setattr(Results, "append", noted)
    monkeypatch.setattr(budget, "FORKS", 2)
    passed: list[float] = []
    monkeypatch.setattr(upgrade, "time", Namespace(monotonic=lambda: time.monotonic() + sum(passed)))
    trial = Trial("pythia-1b", "tiny", "naive", "cpu", 1, steps=1)
    stacks = this_stack(), Stack("its twin", sys.executable, this_stack().packages)

    def after(budget: float, said: list[str]) -> Check:
        def tell(part: str, took: float | None) -> None:
            if took is not None:
                said.append(part)
            if part == "pair 1":
                passed.append(1e6)  # the budget is spent

        found = Check(tmp_path, [trial], stacks, [], pairs=2, budget=budget, tell=tell)
        found.check()
        return found

    said: list[str] = []
    assert not after(-1.0, said).complete
    assert [len(history(tmp_path / arm)) for arm in ("before", "after")] == [0, 0]
    largest = [history(tmp_path / arm / "largest") for arm in ("before", "after")]
    assert [[each.status for each in side] for side in largest] == [["ok"], ["ok"]]

    assert said == ["largest micro batches, before", "largest micro batches, after"]

    done = after(600.0, said)
    assert not done.complete
    assert [len(done.samples(arm, trial)) for arm in ("before", "after")] == [2, 2]
    assert said[2:] == ["pair 1"]
    sample = done.samples("after", trial)[0]
    assert sample.batch.micro_batch == largest[0][0].batch.micro_batch
    assert sample.observed.losses == done.samples("before", trial)[0].observed.losses
    [compared] = done.compared()
    assert compared.status == "inconclusive"
    there = ["before", "after"]
    assert kept == ["largest"] * 2 + [*there, *there[::-1]], "every other time they go round the other way"
    assert len({each.pair for arm in there for each in done.samples(arm, trial)}) == 1

    other = Stack("another", sys.executable, {**this_stack().packages, "tqdm": "4.0.0"})
    with pytest.raises(UserError, match=r"after holds another .* stack's trials \(tqdm was .*, is 4\.0\.0\); name ano"):
        Check(tmp_path, [trial], (this_stack(), other), [], pairs=1, budget=600.0, tell=unheard).check()
    tool = {**this_stack().packages, "a-tool-of-tests": "1.0"}
    one, other = (replace(stack, packages=tool) for stack in stacks)
    assert Check(tmp_path, [trial], (one, other), [], pairs=1, budget=-1.0, tell=unheard).check() == [compared]


def test_a_stack_that_goes_while_it_is_checked_is_one_clear_line(tmp_path: Path) -> None:
    trial = Trial("pythia-1b", "tiny", "naive", "cpu", 1, steps=1)
    results_folder(tmp_path / "before" / "largest", Record.of(trial, "out_of_memory", reason="as told"))
    python = tmp_path / "bin" / "python"
    stacks = this_stack(), Stack("the other", str(python), this_stack().packages)
    check = Check(tmp_path, [trial], stacks, [], pairs=1, budget=60.0, tell=unheard)
    with pytest.raises(
        UserError, match=rf"^the other: it does not start \({python}: No such file .*; what was measured "
    ):
        check.check()


@pytest.mark.slow
def test_what_failed_is_measured_again_by_the_same_command(tmp_path: Path) -> None:
    trial = Trial("pythia-1b", "tiny", "naive", "cpu", 1, steps=1)
    failed = altered(Record.of(trial, "crashed"), reason="a compiler was missing", stack_started=1.0)
    for arm in ("before", "after"):
        results_folder(tmp_path / arm / "largest", failed)
    stacks = this_stack(), Stack("its twin", sys.executable, this_stack().packages)
    check = Check(tmp_path, [trial], stacks, [], pairs=1, budget=-1.0, tell=unheard)
    check.check()
    largest = history(tmp_path / "after" / "largest")
    assert [each.status for each in largest] == ["crashed", "ok"]

    sampled = replace(trial, micro_batch=largest[1].batch.micro_batch)
    fine = replace(largest[1], id=sampled.id)
    failed = Record.of(sampled, "crashed", reason="killed")
    results_folder(tmp_path / "before", fine, failed)
    assert [each.status for each in check.samples("before", trial)] == ["ok", "crashed"]
    results_folder(tmp_path / "before", fine)
    assert [each.status for each in check.samples("before", trial)] == ["ok", "ok"], "the third pairs with the second"


class Rehearsal:
    """A check of GPUs, or of `devices`, without them: what its servers and trials are given is noted, and a trial's
    record is what `measured` makes of its arm and of how many processes of the arm took it before, a day by default."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *settings: str) -> None:
        self.folder, self.devices = folder, [Device(0, 0, "GPU-0", "NVIDIA H200", find("H200"), 80 * 10**9, (9, 0))]
        self.trials = [Trial("pythia-1b", "tiny", each, "H200", 1) for each in settings or ("naive",)]
        self.measured: Callable[[str, Trial, int], Record] = lambda arm, trial, before: self.of(trial, 1.0)
        self.stacks = this_stack(), Stack("its twin", "/second/bin/python", this_stack().packages, "a-key")
        self.events: list[str] = []
        self.message: list[str] = []
        self.servers: dict[str, Any] = {}
        self.imported: dict[str, Imports] = {}
        self.benches: list[Bench] = []
        self.clock = 0.0
        rehearsal = self

        class Server(nullcontext[Any]):
            imports: Imports | None = None

            def __init__(self, log: Path, environment: Any, python: str, modules: Any) -> None:
                super().__init__(self)
                self.arm = str(log.parent.parent.relative_to(rehearsal.folder))
                self.environment, self.python, self.modules = environment, python, modules
                rehearsal.servers[self.arm] = self

            def launch(self) -> None: ...

            def stop(self) -> None: ...

            def start(self) -> None:
                rehearsal.events.append(f"{self.arm} loads")
                self.imports = rehearsal.imported.get(self.arm.partition("/")[0])

        def run_trial(trial: Trial, bench: Bench, until: float) -> Record:
            arm = bench.server.arm  # type: ignore[attr-defined]
            before = rehearsal.events.count(f"{arm} {trial.id}")
            rehearsal.events.append(f"{arm} {trial.id}")
            rehearsal.benches.append(bench)
            return replace(rehearsal.measured(arm, trial, before), id=trial.id)

        monkeypatch.setattr(upgrade, "ForkServer", Server)
        monkeypatch.setattr(upgrade, "run_trial", run_trial)
        monkeypatch.setattr(upgrade, "time", Namespace(monotonic=lambda: self.clock))

    def of(self, trial: Trial, days: float, micro_batch: int = 4) -> Record:
        known: dict[str, Any] = {"gpu": trial.device, "count": 1, "scale": trial.scale, "micro_batch": micro_batch}
        return record(trial.recipe, trial.settings, days, **known)

    def check(self, pairs: int = FEWEST, budget: float = 1e9) -> Check:
        def tell(part: str, took: float | None) -> None:
            if took is not None:
                self.message.append(part)

        return Check(self.folder, self.trials, self.stacks, self.devices, pairs, budget, tell)

    def run(self, pairs: int = FEWEST, budget: float = 1e9) -> Check:
        check = self.check(pairs, budget)
        check.check()
        return check

    def taken(self, number: int = 0) -> list[int]:
        """How many processes of each arm took a trial."""
        id = self.trials[number].id
        return [sum(each.startswith(f"{arm} {id}/micro") for each in self.events) for arm in SIDES]


@pytest.fixture
def rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Rehearsal]:
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("REPRO_COMMIT", "0" * 40)  # git takes a moment
    return partial(Rehearsal, tmp_path / "check", monkeypatch)


def test_where_a_larger_micro_batch_fits_on_one_stack_alone_both_take_the_smaller(
    rehearsal: Callable[..., Rehearsal],
) -> None:
    on_gpus = rehearsal()
    on_gpus.measured = lambda arm, trial, _: on_gpus.of(trial, 1.0, 8 if arm == "before/largest" else 4)
    [compared] = on_gpus.run().compared()
    assert (compared.status, on_gpus.taken()) == ("unchanged", [9, 9])
    assert "largest micro batch: 8, then 4" in compared.changes


def test_a_trial_that_one_stack_has_no_memory_for_is_reported_and_not_repeated(
    rehearsal: Callable[..., Rehearsal],
) -> None:
    on_gpus = rehearsal()

    def measured(arm: str, trial: Trial, _: int) -> Record:
        fits = arm == "before/largest"
        return on_gpus.of(trial, 1.0) if fits else Record.of(trial, "out_of_memory", reason="not even 1 fits")

    on_gpus.measured = measured
    [compared] = on_gpus.run().compared()
    assert (compared.status, compared.reason) == ("broke", "out_of_memory: not even 1 fits")
    assert on_gpus.taken() == [0, 0]


@pytest.mark.parametrize(
    ("status", "users", "of_host", "later"),
    [
        ("crashed", 1, False, [9, 10]),
        ("out_of_memory", 1, False, [1, 2]),
        ("out_of_memory", 2, False, [9, 10]),
        ("out_of_memory", 1, True, [9, 10]),
    ],
)
def test_a_trial_that_fails_waits_for_the_same_command_and_others_go_on(
    rehearsal: Callable[..., Rehearsal], status: Status, users: int, of_host: bool, later: list[int]
) -> None:
    on_gpus = rehearsal("naive", "checkpointing")

    def measured(arm: str, trial: Trial, before: int) -> Record:
        if arm == "after" and trial.settings == "naive" and before == 1:
            return altered(
                Record.of(trial, status), reason="as told", host_ran_out=of_host, gpu_state=[{"processes": users}]
            )
        return on_gpus.of(trial, 1.0)

    on_gpus.measured = measured
    on_gpus.run()
    assert on_gpus.taken(0) == [1, 2], "in the second pair the other stack went first, and the first no more"
    assert on_gpus.taken(1) == [9, 9]
    on_gpus.run()
    assert on_gpus.taken(0) == later


def test_a_trial_that_fails_before_the_other_stack_ran_it_says_why_it_ended(
    rehearsal: Callable[..., Rehearsal],
) -> None:
    on_gpus = rehearsal()

    def measured(arm: str, trial: Trial, before: int) -> Record:
        failed = (arm, before) == ("before", 0)
        return Record.of(trial, "crashed", reason="no luck") if failed else on_gpus.of(trial, 1.0)

    on_gpus.measured = measured
    [compared] = on_gpus.run().compared()
    assert (compared.status, on_gpus.taken()) == ("inconclusive", [1, 0])
    why = "; in this stack it failed, which ended its pairs (crashed: no luck)"
    assert compared.reason.endswith(why)
    [compared] = on_gpus.run().compared()
    assert (compared.status, why in compared.reason) == ("unchanged", False), "measured again since"


def test_a_trial_that_fails_beside_others_on_a_cpu_is_left_alone_in_that_start_too(
    rehearsal: Callable[..., Rehearsal],
) -> None:
    on_cpu = rehearsal()
    on_cpu.devices, on_cpu.trials = [], [replace(on_cpu.trials[0], device="cpu")]

    def measured(arm: str, trial: Trial, before: int) -> Record:
        return Record.of(trial, "crashed") if (arm, before) == ("after", 1) else on_cpu.of(trial, 1.0)

    on_cpu.measured = measured
    on_cpu.run()
    assert on_cpu.taken() == [2, 2]


def test_a_check_that_goes_on_at_another_commit_says_so(
    rehearsal: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_gpus = rehearsal()
    on_gpus.run(budget=-1.0)
    first = on_gpus.run().sides()[0].records[0]
    assert first.commit == "0" * 40
    monkeypatch.setenv("REPRO_COMMIT", "1" * 40)
    with (on_gpus.folder / "before" / TRIALS).open("a") as file:
        file.write(json.dumps(datafile.to_json(replace(first, commit="1" * 40))) + "\n")
    rows = {found.what: found.before for found in differences(*on_gpus.run().sides())}
    assert rows["repro"] == f"{'0' * 40}; {'1' * 40}"


def test_a_trial_ends_at_the_first_look_that_makes_it_clear(rehearsal: Callable[..., Rehearsal]) -> None:
    on_gpus = rehearsal("naive", "checkpointing", "free_lunch")

    def measured(arm: str, trial: Trial, before: int) -> Record:
        slower = {"checkpointing": 1.1, "free_lunch": (0.9, 1.0, 1.2)[before % 3]}
        return on_gpus.of(trial, slower.get(trial.settings, 1.0) if arm == "after" else 1.0)

    on_gpus.measured = measured
    same, slower, open_one = on_gpus.run(pairs=20).compared()
    assert (same.status, on_gpus.taken(0)) == ("unchanged", [FIRST_LOOK] * 2)
    assert not any(change.startswith("largest micro batch") for change in same.changes)
    assert (slower.status, on_gpus.taken(1)) == ("regressed", [FIRST_LOOK] * 2)
    assert (open_one.status, on_gpus.taken(2)) == ("inconclusive", [20, 20])
    assert on_gpus.message == list(seconds_of_parts(on_gpus.trials, on_gpus.devices, 20))
    first = on_gpus.events.index("before loads")
    assert on_gpus.events[first + 1] == "after loads", "both of them before one is timed"


@pytest.mark.parametrize(("clear_from", "pairs"), [(12, 12), (13, 14), (14, 14), (15, 16)])
def test_a_check_looks_after_every_block_of_pairs(
    rehearsal: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch, clear_from: int, pairs: int
) -> None:
    def stops_from(before: Any, after: Any) -> Compared:
        found = compare_trial(before, after)
        assert found.judged is not None
        return replace(found, judged=replace(found.judged, may_stop=found.judged.samples >= clear_from))

    monkeypatch.setattr(upgrade, "compare_trial", stops_from)
    on_gpus = rehearsal()
    on_gpus.run(pairs=20)
    assert on_gpus.taken() == [pairs, pairs]


def test_pairs_of_which_no_sample_is_fair_settle_nothing(rehearsal: Callable[..., Rehearsal]) -> None:
    on_gpus = rehearsal()
    held_down: list[dict[str, float | None] | None] = [{"throttle_reasons": 0x40}]
    on_gpus.measured = lambda arm, trial, _: altered(on_gpus.of(trial, 1.0), gpu_state=held_down)
    [compared] = on_gpus.run(pairs=14).compared()
    assert (compared.status, on_gpus.taken()) == ("incomparable", [14, 14])


def test_a_pair_that_was_interrupted_is_measured_anew_by_both_stacks(rehearsal: Callable[..., Rehearsal]) -> None:
    on_gpus = rehearsal()

    def measured(arm: str, trial: Trial, before: int) -> Record:
        if arm == "after" and before == 6 and not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return on_gpus.of(trial, 1.0)

    interrupted: list[bool] = []
    on_gpus.measured = measured
    with pytest.raises(KeyboardInterrupt):
        on_gpus.run()
    on_gpus.message.clear()
    [found] = on_gpus.run().compared()
    assert on_gpus.message == ["pair 7", "pair 8", "pair 9"]
    assert (found.judged and found.judged.samples, on_gpus.taken()) == (9, [10, 10])


def test_records_without_a_pair_count_for_none(rehearsal: Callable[..., Rehearsal]) -> None:
    on_gpus = rehearsal()
    on_gpus.run()
    for arm in SIDES:
        path = on_gpus.folder / arm / TRIALS
        rows = [json.loads(line) | {"pair": None} for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    on_gpus.message.clear()
    on_gpus.run()
    assert on_gpus.message == [f"pair {number + 1}" for number in range(FEWEST)]


def test_compare_of_a_checks_folders_gives_the_number_of_the_check(
    rehearsal: Callable[..., Rehearsal], capsys: pytest.CaptureFixture[str]
) -> None:
    on_gpus = rehearsal()
    drift = [1.0 + 0.3 * number for number in range(20)]
    on_gpus.measured = lambda arm, trial, before: on_gpus.of(
        trial, drift[before] * (1.04 + 0.03 * (before % 2) if arm == "after" else 1.0)
    )
    [checked] = on_gpus.run(pairs=20).compared()
    folders = [str(on_gpus.folder / arm) for arm in SIDES]
    assert main(["compare", *folders, "--format", "json"]) == 1
    [row] = json.loads(capsys.readouterr().out)["trials"]
    judged = checked.judged
    assert judged is not None
    assert (row["interleaved"], row["samples"]) == (True, judged.samples)
    assert (row["ratio"], row["status"], row["reason"]) == (judged.ratio, "regressed", checked.reason)


def test_no_start_begins_that_the_longest_says_would_end_after_the_budget(
    rehearsal: Callable[..., Rehearsal],
) -> None:
    def starts(budget: float) -> int:
        on_gpus = rehearsal()
        on_gpus.folder = on_gpus.folder / str(budget)

        def measured(arm: str, trial: Trial, before: int) -> Record:
            on_gpus.clock += 1.0 if before else 10.0
            return on_gpus.of(trial, 1.0)

        on_gpus.measured = measured
        check = on_gpus.run(budget=budget)
        assert not check.complete
        return on_gpus.taken()[0]

    assert [starts(budget) for budget in (59.0, 60.0, 61.0, 62.0)] == [1, 2, 2, 3]


def test_a_trial_that_the_budget_cuts_is_not_kept(rehearsal: Callable[..., Rehearsal]) -> None:
    on_gpus = rehearsal()

    def measured(arm: str, trial: Trial, before: int) -> Record:
        if before < 2 or arm not in SIDES:
            return on_gpus.of(trial, 1.0)
        on_gpus.clock += 100.0  # at a smaller size
        return Record.of(trial, "timed_out")

    on_gpus.measured = measured
    check = on_gpus.run(budget=60.0)
    assert not check.complete
    assert [len(check.samples(arm, on_gpus.trials[0])) for arm in SIDES] == [2, 2]


def command(
    rehearsed: Rehearsal,
    monkeypatch: pytest.MonkeyPatch,
    *words: str,
    other: Stack | None = None,
    models: str = "pythia-1b",
    methods: str = "naive",
    against: str = "transformers==4.0.0",
) -> int:
    """The exit code of `repro compare --against` of another transformers, on what is rehearsed."""
    other = other or replace(rehearsed.stacks[1], packages={**this_stack().packages, "transformers": "4.0.0"})
    monkeypatch.setattr(nvml, "visible_devices", lambda: rehearsed.devices)
    monkeypatch.setattr(comparing, "check_machine", lambda devices: None)
    monkeypatch.setattr(comparing, "stop_on_sigterm", lambda: None)
    monkeypatch.setattr(candidate, "build", lambda against, first: other)
    asked = ["compare", "--against", against, "--models", models, "--scale", "tiny"]
    return main([*asked, "--methods", methods, "--out", str(rehearsed.folder), *words])


def test_kernels_that_no_second_stack_gets_break_nothing_there(
    rehearsal: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_gpus = rehearsal()
    kernels = {"mamba-ssm": "2.2.2", "causal-conv1d": "1.4.0"}
    ours = replace(this_stack(), packages=this_stack().packages | kernels)
    monkeypatch.setattr(candidate, "this_stack", lambda: ours)

    def output(transformers: str, methods: str, code: int) -> tuple[Any, str]:
        there = {**ours.packages, "transformers": transformers}
        other = replace(ours, packages={name: there[name] for name in there.keys() - kernels.keys()})
        words = "--format", "json", "--pairs", "9"
        assert command(on_gpus, monkeypatch, *words, other=other, models="mamba", methods=methods) == code
        out, err = capsys.readouterr()
        return json.loads(out or "{}"), err

    left_out = "its kernels are built from source, and no second stack by requirements has them"
    found, err = output("4.0.0", "all", 0)
    assert found["trials"]
    assert not any("free_lunch" in row["settings"] for row in found["trials"])
    assert re.search(rf"^repro: left out mamba free_lunch, .*: {left_out}$", err, re.MULTILINE)
    assert output(ours.packages["transformers"], "naive", 0)[0]["trials"] == [], (
        "nothing that the other may have differs"
    )
    assert (
        output("4.0.0", "free-lunch", 2)[1]
        == f"repro: mamba free_lunch: {left_out}; name other --models or --methods\n"
    )
    assert candidate.left_behind(str(Path(__file__)), ours) == frozenset(), "a lock says what it has"
    assert candidate.left_behind("mamba-ssm==2.3.0", ours) == {"causal-conv1d"}


@pytest.mark.parametrize(
    ("ratios", "took", "code", "output"),
    [
        ((1.2, 1.2), 1.0, 1, "the baseline is now "),  # who accepts that knows it
        ((1.0, 1.06), 1.0, 3, "--accept: pythia-1b naive is inconclusive, more --pairs or a quieter machine may"),
        ((1.0, 1.0), 50.0, 3, "--accept: the budget of 14 min ended the check early, the same command goes on, so the"),
    ],
    ids=["regressed", "inconclusive", "cut short"],
)
def test_what_a_check_could_not_tell_is_no_baseline(
    ratios: tuple[float, float],
    took: float,
    code: int,
    output: str,
    rehearsal: Callable[..., Rehearsal],
    monkeypatch: pytest.MonkeyPatch,
    expected: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_gpus, baselines = rehearsal(), expected / "baselines"

    def measured(arm: str, trial: Trial, before: int) -> Record:
        on_gpus.clock += took
        return on_gpus.of(trial, ratios[before % 2] if arm == "after" else 1.0)

    on_gpus.measured = measured
    lock = tmp_path / "lock"
    lock.write_text("transformers==4.0.0\n")
    other = replace(on_gpus.stacks[1], packages=this_stack().packages | {"transformers": "4.0.0"}, lock=lock)
    assert command(on_gpus, monkeypatch, "--pairs", "9", "--budget", "14m", "--accept", other=other) == code
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"repro: {output}")
    assert baselines.exists() == (code == 1)


def test_what_a_check_found_is_kept_before_it_bisects(
    rehearsal: Callable[..., Rehearsal], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> Stack:
        raise KeyboardInterrupt

    on_gpus = rehearsal()
    on_gpus.measured = lambda arm, trial, _: on_gpus.of(trial, 1.2 if arm == "after" else 1.0)
    monkeypatch.setattr(candidate, "pinned", stopped)
    assert command(on_gpus, monkeypatch, "--pairs", "9", "--bisect") == 130
    kept = json.loads((on_gpus.folder / "check.json").read_text())
    assert (kept["exit_code"], len(kept["notes"])) == (1, 1)
    assert (on_gpus.folder / "report.md").read_text().startswith(kept["verdict"])


def test_each_stack_has_its_own_interpreter_caches_and_tools(
    rehearsal: Callable[..., Rehearsal],
) -> None:
    on_gpus = rehearsal()
    on_gpus.run()
    before, after = (on_gpus.servers[arm] for arm in SIDES)
    assert (before.python, after.python) == (sys.executable, "/second/bin/python")
    assert after.environment["PATH"] == f"/second/bin{os.pathsep}{before.environment['PATH']}"
    for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR"):
        assert Path(after.environment[name]).parent == candidate.folder("a-key")
        assert Path(before.environment[name]).parent == candidate.folder("a-key").parent.parent
    loaded = {}
    for settings in ("naive", "free_lunch", "zero_2"):
        trial = Trial("pythia-1b", "tiny", settings, "H200", 2)
        loaded[settings] = {module.split(".")[0] for module in upgrade._modules([trial])} | {
            module for module in upgrade._modules([trial]) if module == "torch._dynamo"
        }
    assert loaded["naive"] == {"torch", "transformers"}
    assert loaded["free_lunch"] == {"torch", "transformers", "torch._dynamo"}
    assert loaded["zero_2"] == {"torch", "transformers", "deepspeed"}


def test_what_a_stack_imported_is_kept_and_from_elsewhere_refused(rehearsal: Callable[..., Rehearsal]) -> None:
    on_gpus = rehearsal()
    here, there = (Imports({"timm": Imported("9.9", place)}) for place in ("site-packages", "elsewhere"))
    on_gpus.imported = {"before": here, "after": there}
    foreign = "its twin: timm was imported from elsewhere than the environment's site-packages, which "
    with pytest.raises(UserError, match=f"^{foreign}.* editable install or a .pth file; what was measured is kept in"):
        on_gpus.run()
    kept = read(on_gpus.folder / "before" / "largest")
    assert kept is not None
    assert (kept.imported, (kept.packages or {})["timm"]) == (here.packages, "9.9")
    assert history(on_gpus.folder / "after" / "largest") == []


def test_processes_take_turns_where_memory_holds_all_of_them(rehearsal: Callable[..., Rehearsal]) -> None:
    def in_turns(scale: Scale, device: str) -> bool:
        check = rehearsal()
        check.folder = check.folder / f"{scale}-{device}"
        check.trials = [replace(check.trials[0], scale=scale, device=device)]
        check.devices = check.devices if device == "H200" else []
        check.run(pairs=1)
        [output] = {bench.scheduler is not None for bench in check.benches[2:]}
        return output

    assert [in_turns("tiny", "cpu"), in_turns("paper", "cpu"), in_turns("tiny", "H200")] == [True, False, False]


@pytest.mark.parametrize(
    ("then", "now", "output"),
    [
        ({}, {"torch": "2.0.0"}, r"torch was .*, is 2\.0\.0"),
        ({}, {"tqdm": "4.0.0"}, r"tqdm was .*, is 4\.0\.0"),
        ({"tqdm": "4.0.0"}, {}, r"tqdm was 4\.0\.0, is "),
    ],
)
def test_a_check_whose_stacks_differ_otherwise_than_they_did_is_refused(
    rehearsal: Callable[..., Rehearsal], then: dict[str, str], now: dict[str, str], output: str
) -> None:
    on_gpus = rehearsal()
    ours, other = on_gpus.stacks
    on_gpus.stacks = ours, replace(other, packages=ours.packages | then)
    on_gpus.run(budget=-1.0)
    on_gpus.stacks = ours, replace(other, packages=ours.packages | now)
    with pytest.raises(UserError, match=output):
        on_gpus.run()
    assert on_gpus.taken() == [0, 0]


def samples(*seconds: float, forks: int = 1, **known: Any) -> list[Record]:
    """A stack's processes in the pairs of a check, so many a start."""
    found = [record("pythia-1b", "naive", 60.0, **known) for _ in seconds]
    for number, (each, step) in enumerate(zip(found, seconds, strict=True)):
        each.derived, each.pair = replace(each.derived, synchronised_step=step), str(number // forks)
    return found


HOT: dict[str, Any] = {"gpu_state": [{"throttle_reasons": 0x40}]}


def test_a_drift_that_both_stacks_share_is_no_part_of_their_ratio() -> None:
    drift = [1.0 + 0.3 * number for number in range(12)]
    found = compare_trial(samples(*drift), samples(*(1.1 * each for each in drift)))
    assert found.judged is not None
    assert found.status == "regressed"
    assert found.judged.ratio == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("before", "after", "ratios"),
    [
        pytest.param((1.0, 2.0, 4.0, 1.0), (1.0, 6.0, 8.0, 5.0), [2.0, 5.0], id="median of a start"),
        pytest.param((1.0, 2.0, 4.0, 1.0), (1.0, 6.0, 8.0), [2.0], id="a start of one stack"),
        pytest.param((1.0, 2.0, 4.0, 1.0, 1.0), (1.0, 6.0, 8.0, 5.0, 6.0, 7.0), [2.0, 5.5], id="a start cut short"),
    ],
)
def test_a_pairs_sample_is_the_median_ratio_of_its_processes(
    before: tuple[float, ...], after: tuple[float, ...], ratios: list[float]
) -> None:
    assert ratios_of_pairs(samples(*before, forks=3), samples(*after, forks=3), 4) == ratios


def test_a_disturbed_process_takes_its_counterpart_with_it() -> None:
    before = [*samples(9.0, **HOT), *samples(1.0, 2.0, 4.0, forks=3)[1:]]
    after = samples(1.0, 6.0, 12.0, forks=3)
    assert ratios_of_pairs(before, after, 4) == [3.0]
    assert ratios_of_pairs(samples(9.0, **HOT), samples(1.0), 4) == []


def test_a_process_with_a_smaller_micro_batch_takes_its_pair_with_it_and_no_other() -> None:
    drift = [1.0 + 0.035 * number for number in range(16)]
    halved = samples(1.5, micro_batch=2)
    found = compare_trial(samples(*drift), [*halved, *samples(*drift)[1:]])
    assert found.judged is not None
    assert (found.judged.samples, found.judged.ratio) == (15, 1.0)
    assert (found.status, found.after.processes) == ("inconclusive", 15)  # it needs more memory than it did
    assert found.reason.startswith("a smaller micro batch more often: ")


def test_where_every_process_had_to_halve_its_micro_batch_the_halves_are_compared() -> None:
    halved = samples(*[1.0] * 12, micro_batch=2)
    for before in (halved, [*samples(1.0), *halved[1:]]):
        found = compare_trial(before, halved)
        assert (found.judged and found.judged.ratio, found.trial.batch.micro_batch) == (1.0, 2)


def test_stacks_without_a_fair_pair_are_compared_as_runs_apart() -> None:
    before, after = samples(1.0, 1.0), samples(1.2, 1.2)
    before[1], after[0] = samples(1.0, 9.0, **HOT)[1], samples(9.0, **HOT)[0]
    judged = compare_trial(before, after).judged
    assert judged is not None
    assert (judged.call, judged.interleaved) == ("inconclusive", False)
    assert judged.ratio == pytest.approx(1.2)


# --- Which trials ---


def test_a_budget_takes_the_trials_that_show_most() -> None:
    trials = [Trial(id, "tiny", settings, "cpu", 1) for id in models.IDS for settings in ("naive", "free_lunch")]
    seconds = dict.fromkeys(trials, 10.0)
    three = choose(seconds, 30.0)
    assert len(three) == 3
    assert len({models.find(trial.recipe).family for trial in three}) > 1
    assert {"compiler", "fp32"} <= frozenset().union(*map(features, three))
    everything = choose(seconds, 1e9)
    assert frozenset().union(*map(features, everything)) == frozenset().union(*map(features, trials))
    assert choose(seconds, 9.0) == []
    dear = {trial: 10.0 if trial.settings == "naive" else 1000.0 for trial in trials}
    assert {trial.settings for trial in choose(dear, 100.0)} == {"naive"}


def test_a_budget_goes_where_the_most_is_shown_for_the_time() -> None:
    plain, sharded = (Trial("pythia-1b", "tiny", name, "cpu", 2) for name in ("naive", "checkpointing+zero_3"))
    assert len(features(sharded)) > len(features(plain))
    assert choose({plain: 1.0, sharded: 60.0}, 60.0) == [plain], (
        "the other shows a little more, for sixty times as much"
    )
    assert choose({plain: 1.0, sharded: 1.0}, 1.0) == [sharded]


def test_what_a_budget_leaves_buys_more_pairs() -> None:
    alone = [Trial("pythia-1b", "tiny", "naive", "cpu", 1, steps=rounds([]))]

    def pairs(minutes: float, pairs: int | None = None) -> int:
        chosen, found = chosen_within(60 * minutes, alone, [], pairs)
        assert chosen == alone
        return found

    assert pairs(15) == 41
    assert pairs(120) == 200
    assert pairs(15, 15) == 15, "as asked"
    with pytest.raises(
        UserError, match=r"alone takes about 5m with --pairs 12; raise the budget, or take fewer pairs$"
    ):
        pairs(1)
    with pytest.raises(UserError, match=r"with --pairs 9; raise the budget$"):
        pairs(1, 9)


def test_what_a_budget_chooses_ends_within_it_else_the_cheapest_is_named() -> None:
    candidates = [Trial(id, "tiny", each, "cpu", 1) for id in ("vit", "pythia-1b") for each in ("free_lunch", "naive")]
    for minutes in range(6, 40):
        chosen, pairs = chosen_within(60.0 * minutes, candidates, [], None)
        assert sum(seconds_of_parts(chosen, [], pairs).values()) <= minutes * 60
    with pytest.raises(UserError, match=r"^--budget 60 s: [a-z0-9-]+ naive alone takes about"):
        chosen_within(60.0, candidates[:2], [], None)


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Namespace]:
    """A stack of requirements beside one of these packages, as it would be built."""

    def wanted(against: str, **packages: str) -> Namespace:
        first = Stack("one", sys.executable, {"torch": "2.10.0", "timm": "1.0", **packages})
        return pinned(requirements(against), first)  # type: ignore[return-value]

    def built(key: str, name: str, files: dict[Path, str]) -> Namespace:
        lock, wanted = files.values()
        return Namespace(key=key, name=name, preferred=lock.split(), wanted=wanted.split())

    monkeypatch.setattr(candidate, "_built", built)
    return wanted


@pytest.mark.parametrize(
    ("against", "torch", "wanted"),
    [
        ("timm==2.0", "2.10.0+cpu", ["torch==2.10.0+cpu", "timm==2.0"]),
        ("torch==2.11.0", "2.10.0+cpu", ["torch==2.11.0+cpu", "timm"]),
        ("torch==2.11.0+cu128", "2.10.0+cpu", ["torch==2.11.0+cu128", "timm"]),
        ("torch==2.11.0", "2.10.0", ["torch==2.11.0", "timm"]),
        ("Torch==2.11.0 TIMM==2.0", "2.10.0+cpu", ["torch==2.11.0+cpu", "timm==2.0"]),
    ],
)
def test_a_second_stack_has_the_firsts_build_of_torch_unless_another_is_named(
    unbuilt: Callable[..., Namespace], against: str, torch: str, wanted: list[str]
) -> None:
    found = unbuilt(against, torch=torch)
    assert (found.name, found.wanted) == (against.lower(), wanted)
    assert found.preferred == ["timm==1.0", f"torch=={torch}"], "all else as it is here, as far as that goes with it"


def test_a_second_stack_is_built_anew_for_other_requirements_or_python(
    unbuilt: Callable[..., Namespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [unbuilt("timm==2.0").key, unbuilt("timm==3.0").key, unbuilt("timm==2.0", numpy="2.0").key]
    assert unbuilt("timm==2.0", torch="2.10.0", timm="1.0").key == keys[0]
    monkeypatch.setattr(sys, "executable", "/another/bin/python")
    keys.append(unbuilt("timm==2.0").key)
    assert len(set(keys)) == 4


@pytest.fixture
def to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A lock whose stack is built by another script, a shell's, for which $3 is the lock, and $2 the stack."""

    def locked(script: str) -> Path:
        place, lock = tmp_path / "second.sh", tmp_path / "a lock"
        place.write_text(f"#!/bin/sh\n{script}\n")
        place.chmod(0o755)
        lock.write_text("a==1\n")
        monkeypatch.setattr(candidate, "_SCRIPT", place)
        monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
        return lock

    return locked


@pytest.fixture
def building(to_build: Callable[[str], Path]) -> Callable[[str], Stack]:
    return lambda script: candidate.locked(to_build(script))


@pytest.mark.parametrize(
    ("said", "output"),
    [
        (
            "  \u00d7 No solution found when resolving dependencies:\n  \u2570\u2500\u25b6 Because"
            " a is\n      not here, none is.\nsecond.sh: does not resolve, see above",
            "Because a is not here, none is.",
        ),
        ("error: bad line in `$3`\nsecond.sh: could not be installed, see above", "bad line in `{lock}`"),
        ("error: bad line in `${{2%/*}}/wanted.in`", "bad line in `{lock}`"),
        ("error: no room, see above\nfor all of it", "no room, see above for all of it"),
        ("second.sh: there is no uv", "there is no uv"),
        ("warning: a is old\nsecond.sh: there is no room", "warning: a is old there is no room"),
        ("second.sh: could not be installed, see above", "could not be installed, see above"),
        ("x" * 401, "x" * 400 + " ..."),
    ],
)
def test_why_a_stack_cannot_be_built_is_one_line_of_what_the_resolver_says(
    building: Callable[[str], Stack], tmp_path: Path, said: str, output: str
) -> None:
    text = said.replace("`", "\\`").replace("{{", "{").replace("}}", "}")
    with pytest.raises(UserError) as refused:
        building(f'echo "{text}" >&2; exit 2')
    assert str(refused.value) == f"--against {tmp_path / 'a lock'}: {output.format(lock=tmp_path / 'a lock')}"


def test_a_stack_that_two_checks_want_at_once_is_built_once(
    to_build: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    lock = to_build(f"sleep 1; mkdir -p $2/bin; ln -s {sys.executable} $2/bin/python")
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(candidate.locked, [lock, lock])
    assert one == other
    assert capsys.readouterr().err.count("building the stack of ") == 1, (
        "who built it again would take it from the other"
    )


def test_a_build_that_is_interrupted_interrupts(building: Callable[[str], Stack]) -> None:
    with pytest.raises(KeyboardInterrupt):
        building("exit 130")


def test_a_stack_whose_interpreter_has_gone_is_built_once_more(building: Callable[[str], Stack]) -> None:
    script = f"mkdir -p $2/bin; ln -s {sys.executable} $2/bin/python"
    python = Path(building(script).python)
    python.unlink()
    assert building(script).python == str(python)
    assert python.exists()
    building("exit 1")  # which is there, and not built again
    python.unlink()
    with pytest.raises(UserError):
        building(f"{script}; exit 1")
    with pytest.raises(UserError):
        building("exit 1")  # half a stack is none


@pytest.mark.parametrize(("said", "output"), [("one\ntwo\n", "two"), ("", "no message")])
def test_an_interpreter_that_does_not_run_is_reported_by_its_last_line(
    building: Callable[[str], Stack], said: str, output: str
) -> None:
    with pytest.raises(UserError, match=rf"/venv/bin/python does not run: {output}$"):
        building(
            f"mkdir -p $2/bin; printf '#!/bin/sh\\nprintf \"{said}\" >&2; exit 1\\n' > $2/bin/python\n"
            "chmod +x $2/bin/python"
        )


def test_requirements_are_read_by_name() -> None:
    assert requirements("torch==2.11.0, Flash_Attn==2.8.3.post2") == {
        "torch": "torch==2.11.0",
        "flash-attn": "flash-attn==2.8.3.post2",
    }
    with pytest.raises(UserError, match="package==version"):
        requirements("torch>=2")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that stacks are really built from."""
    if not os.access(ROOT, os.W_OK):
        pytest.skip("an image brings nothing to build a second stack with")
    variables = {"REPRO_CACHE": tmp_path / "cache", "UV_FIND_LINKS": tmp_path / "wheels", "UV_NO_INDEX": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)  # so that nothing is imported from here by chance
    return tmp_path / "wheels"


@pytest.mark.parametrize("content", ["thing\n", "thing>=1.0  # or newer\n", "-r more.lock\n"])
def test_a_lock_that_does_not_pin_means_what_is_there_now(
    wheels: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    (tmp_path / "lock").write_text(content)
    (tmp_path / "more.lock").write_text("thing\n")
    for version in ("1.0", "2.0"):
        newest = wheel(wheels, "thing", version, {})
        assert locked(tmp_path / "lock").packages == {"thing": version}
    pinned = pin(newest).replace(" --", " \\\n    --")
    (tmp_path / "lock").write_text(f"# made by hand\n--find-links {wheels}\n{pinned}")
    output = []
    for _ in range(2):
        capsys.readouterr()
        assert locked(tmp_path / "lock").packages == {"thing": "2.0"}
        output.append(capsys.readouterr().err)
    assert output == [f"repro: building the stack of {tmp_path / 'lock'}\n", ""]


# --- The culprit ---


def test_a_stack_may_differ_in_more_packages_than_a_file_name_has_letters(
    wheels: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = requirements(LONG)
    for name in wanted:
        wheel(wheels, name.replace("-", "_"), "1.0", {})
    bare = Stack("bare", sys.executable, {})
    assert pinned(wanted, bare).packages == dict.fromkeys(wanted, "1.0")
    assert build(LONG, bare) == pinned(wanted, bare)
    assert capsys.readouterr().err == f"repro: building the stack of {LONG}\n"


def test_a_stack_that_cannot_be_built_ends_bisecting_and_not_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Stack:
        raise UserError("--against a==2: a 2 needs b 2")

    monkeypatch.setattr(candidate, "pinned", refused)
    trial = Trial("pythia-1b", "tiny", "naive", "cpu", 1)
    stacks = Stack("one", sys.executable, {"a": "1", "b": "1"}), Stack("other", sys.executable, {"a": "2", "b": "2"})
    check = Check(tmp_path, [trial], stacks, [], pairs=6, budget=60.0, tell=unheard)
    output = comparing._bisect(options(out=tmp_path), check, [slower(12)], stacks, [])
    assert output == "Bisecting pythia-1b, naive ended without an answer: --against a==2: a 2 needs b 2."


@pytest.fixture
def bisected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[str], Compared]], str]:
    """What bisecting four packages says of a trial that regressed, where it is so with these of them swapped."""

    def output(look: Callable[[str], Compared]) -> str:
        first, other = (Stack(name, sys.executable, dict.fromkeys("abcd", name)) for name in "12")

        def pinned(wanted: dict[str, str], first: Stack) -> Stack:
            return Stack("".join(wanted), sys.executable, first.packages | dict.fromkeys(wanted, "2"))

        monkeypatch.setattr(candidate, "pinned", pinned)
        monkeypatch.setattr(Check, "check", lambda check: [look(check._stacks["after"].name)])
        trial = Trial("pythia-1b", "tiny", "naive", "cpu", 1)
        check = Check(tmp_path, [trial], (first, other), [], pairs=6, budget=60.0, tell=unheard)
        return comparing._bisect(options(out=tmp_path, budget=60.0), check, [slower(12)], (first, other), [])

    return output


def slower(starts: int, by: float = 0.1) -> Compared:
    return compare_trial(samples(*[1.0] * starts), samples(*[1.0 + by] * starts))


def test_a_half_of_the_packages_that_breaks_is_not_taken_for_one_that_is_as_fast(
    bisected: Callable[[Callable[[str], Compared]], str],
) -> None:
    crashed = [replace(each, status="crashed", reason="no such symbol") for each in samples(1.0)]
    broken = compare_trial(samples(1.0), crashed)
    assert (slower(12).status, broken.status) == ("regressed", "broke")
    output = bisected(lambda names: broken)
    assert output.startswith("Bisecting pythia-1b, naive ended without an answer: with a, b of 2 in place of 1's, ")
    assert "no such symbol" in output


@pytest.mark.parametrize(
    ("look", "output"),
    [
        (lambda names: slower(12, 0.1 if "b" in names else 0.0), "Culprit: b 1 to 2: pythia-1b, naive regressed with "),
        (
            lambda names: slower(12, 0.1 if {*"ad"} <= {*names} else 0.0),
            "Bisecting pythia-1b, naive: not d 1 to 2 alon",
        ),
        (
            lambda names: slower(4, 0.1 if "b" in names else 0.0),
            "Bisecting pythia-1b, naive: what is left is b 1 to 2 (of 4 packages that differ, after 2 environments "
            "with half of them), with it alone it is inconclusive: 10.0% slower (too few for an interval) in 4 pairs: ",
        ),
    ],
    ids=["one", "two together", "cut short"],
)
def test_what_is_left_by_bisecting_is_called_what_the_rule_calls_it(
    bisected: Callable[[Callable[[str], Compared]], str], look: Callable[[str], Compared], output: str
) -> None:
    assert bisected(look).startswith(output)


@pytest.mark.parametrize(
    ("starts", "output"),
    [
        (4, "ended without an answer: the budget of 60 s ended the check of a, b early, the same command goes on."),
        (12, "Culprit: b 1 to 2: "),
    ],
    ids=["undecided", "decided"],
)
def test_what_the_budget_left_undecided_names_no_package(
    bisected: Callable[[Callable[[str], Compared]], str], monkeypatch: pytest.MonkeyPatch, starts: int, output: str
) -> None:
    monkeypatch.setattr(Check, "complete", property(lambda check: False, lambda check, value: None), raising=False)
    assert output in bisected(lambda names: slower(starts, 0.1 if "b" in names else 0.0))


@pytest.mark.parametrize("size", range(1, 17))
def test_a_search_takes_log2_looks(size: int) -> None:
    names = [f"p{number}" for number in range(size)]
    for guilty in names:
        found = bisect.search(names, frozenset, lambda half, guilty=guilty: guilty in half)  # type: ignore[misc]
        assert found[0] == [guilty]
        assert found[1] <= (size - 1).bit_length()


def test_packages_that_only_go_together_are_named_together() -> None:
    def swapped(names: Any) -> frozenset[str]:
        return frozenset(names) | ({"a", "b"} if {"a", "b"} & set(names) else set())

    found = bisect.search("abcd", swapped, lambda names: bool({"a", "b"} & set(names)))
    assert found[0] == ["a", "b"]


# --- Baselines ---


@pytest.fixture
def locked_stack(to_build: Callable[[str], Path], expected: Path) -> Callable[..., Stack]:
    """A stack that a lock with this text makes, beside a folder in which baselines are kept."""

    def stack(text: str = "a==1 --hash=sha256:00\n") -> Stack:
        lock = to_build(f"mkdir -p $2/bin; ln -sf {sys.executable} $2/bin/python")
        lock.write_text(text)
        return candidate.locked(lock)

    return stack


def test_accept_keeps_the_lock_of_a_stack_for_a_machine(locked_stack: Callable[..., Stack], expected: Path) -> None:
    stack = locked_stack()
    kept = candidate.accept(stack, "2 cores of AMD EPYC", expected)
    assert kept == expected / "baselines" / "2-cores-of-amd-epyc.lock"
    heading, *lines = kept.read_text().splitlines()
    assert heading.startswith(f"# The baseline of 2 cores of AMD EPYC: {stack.name}, accepted on 20")
    assert lines == ["a==1 --hash=sha256:00"]
    assert candidate.is_baseline(str(kept))
    assert not candidate.is_baseline(stack.name)
    assert not candidate.is_baseline("torch==2.11.0")


@pytest.mark.parametrize("line", ["a", "a>=1", "./a-1-py3-none-any.whl"])
def test_a_lock_that_may_mean_another_stack_is_no_baseline(
    locked_stack: Callable[..., Stack], expected: Path, line: str
) -> None:
    stack = locked_stack(f"{line}\n")
    with pytest.raises(UserError, match=rf"'{re.escape(line)}', which may be another version next time$"):
        candidate.accept(stack, "2 cores", expected)
    assert not (expected / "baselines").exists()


def test_against_a_baseline_this_stack_is_the_one_that_is_judged(
    rehearsal: Callable[..., Rehearsal],
    locked_stack: Callable[..., Stack],
    expected: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_gpus, kept = rehearsal(), str(candidate.accept(locked_stack(), "2 cores", expected))
    on_gpus.measured = lambda arm, trial, _: on_gpus.of(trial, 1.2 if arm == "after" else 1.0)
    words = "--pairs", "9", "--format", "json"
    assert command(on_gpus, monkeypatch, *words, against=kept) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["after"], found["trials"][0]["status"]) == ("this stack", "regressed")
    assert on_gpus.servers["before"].python == "/second/bin/python"
    assert on_gpus.servers["after"].python == sys.executable
    assert command(on_gpus, monkeypatch, *words, "--accept", against=kept) == 2
    assert capsys.readouterr().err.endswith(f"repro: --accept: {kept} is the baseline already\n")
