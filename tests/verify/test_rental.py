"""`repro verify --script`: scripts for rented machines, tried with a program that stands in for repro."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tarfile
import time
from pathlib import Path

import pytest
import yaml

from tests.support.command_line import ROOT, answer, program, refusal, repro

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout, whose commit a script brings along")

# Stands in for run_all.sh: keeps its words, and what a run leaves that names its host, its user and their folders.
PROGRAM = """#!/usr/bin/env bash
words="$*" out=${words#*--out } out=${out%% *}
[[ ! -e results.tar.gz ]] || tar -tzf results.tar.gz >>packed-before
echo "$REPRO_COMMIT $words" >>words
mkdir -p "$out" results/.cache
echo '{"node": "annas-box.lab.example", "by": "anna", "log": "/home/anna.b/logs: annas-box"}' >"$out/trials.jsonl"
touch results/.cache/kernel
"""
STUBS = {
    "uname": "echo annas-box.lab.example",
    "id": '[[ $1 == -un ]] && echo anna || exec /usr/bin/id "$@"',
    "apt-get": 'echo "$@" >>"$HOME/apt"',
    "docker": 'echo "$@" >>"$HOME/docker"',
    "shutdown": 'echo "$@" >>"$HOME/shutdown"',
    "sudo": '[[ $1 == -n ]] && exec "${@:2}"',
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `verify --budget 2 --script`, on two types of GPU or more."""
    folder = tmp_path_factory.mktemp("verify") / "rented"
    done = repro("verify", "--budget", "2", "--script", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def machine(written: Path, tmp_path: Path) -> Path:
    """A copy of it as on a rented machine, where the checkout is of the program that stands in for repro."""
    folder = Path(shutil.copytree(written, tmp_path / "on it"))
    install(folder, PROGRAM)
    for name, text in STUBS.items():
        program(tmp_path / "bin" / name, f"#!/usr/bin/env bash\n{text}\n")
    return folder


def install(folder: Path, text: str) -> None:
    with tarfile.open(folder / "repro.tar.gz", "w:gz") as packed:
        packed.add(program(folder.parent / "checkout" / "run_all.sh", text), "run_all.sh")


def surroundings(folder: Path) -> dict[str, str]:
    return {"PATH": f"{folder.parent / 'bin'}:/usr/bin:/bin", "HOME": str(folder.parent)}


def ran(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(folder / "1xA6000.sh")]
    return subprocess.run(command, cwd="/", env=surroundings(folder) | variables, capture_output=True, text=True)


def packed(folder: Path) -> dict[str, str]:
    """The content of the files in results.tar.gz, by their names."""
    with tarfile.open(folder / "results.tar.gz") as archive:
        assert {(each.uid, each.gid, each.uname, each.gname) for each in archive} == {(0, 0, "", "")}
        files = [each for each in archive if each.isfile()]
        return {each.name: archive.extractfile(each).read().decode() for each in files}  # type: ignore[union-attr]


def test_each_machine_has_a_script_with_its_runs_in_order_within_their_minutes(written: Path) -> None:
    rows = answer("verify", "--budget", "2")["rows"]
    places = list(dict.fromkeys(f"{row['gpus']}x{row['gpu']}" for row in rows))
    assert len(places) > 1
    assert {each.name for each in written.iterdir()} == {
        *("repro.tar.gz", *(f"{place}.{ending}" for place in places for ending in ("sh", "yaml")))
    }
    for place in places:
        subprocess.run(["bash", "-n", str(written / f"{place}.sh")], check=True)
        of_place = [row for row in rows if f"{row['gpus']}x{row['gpu']}" == place]
        runs = re.findall(r"^run (\d+) (.*)$", (written / f"{place}.sh").read_text(), flags=re.MULTILINE)
        wanted = [row["command"].partition(" --gpus ")[2].replace("results/verify", "results") for row in of_place]
        assert [words for _, words in runs] == [f"--gpus {words}" for words in wanted]
        so_far = 0.0
        for (end, _), row in zip(runs, of_place, strict=True):
            so_far += row["minutes"]
            assert so_far - 0.5 <= int(end) <= so_far + 1.5


def test_on_several_gpus_a_run_measures_on_all_of_them_alone() -> None:
    rows = answer("verify", "--budget", "20")["rows"]
    many = [row for row in rows if row["gpus"] > 1]
    assert many
    assert all(row["command"].endswith(f" -- -k {row['gpus']}x{row['gpu']}") for row in many)
    assert not any(" -k " in row["command"] for row in rows if row["gpus"] == 1)


def test_skypilot_rents_the_same_gpus_and_gives_them_back_itself(written: Path) -> None:
    task = yaml.safe_load((written / "1xA6000.yaml").read_text())
    assert task["run"] == "AT_THE_END=true bash 1xA6000.sh"
    assert task["resources"]["accelerators"] == {"A6000": 1, "RTXA6000": 1}
    assert task["resources"]["autostop"]["down"] is True
    assert task["workdir"] == "."


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="has no shellcheck")
def test_shellcheck_finds_nothing(written: Path) -> None:
    for script in written.glob("*.sh"):
        subprocess.run(["shellcheck", str(script)], check=True)


def test_a_machine_packs_without_names_after_each_run_and_shuts_down(machine: Path) -> None:
    done = ran(machine)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted = re.findall(r"^run \d+ (.*)$", (machine / "1xA6000.sh").read_text(), flags=re.MULTILINE)
    said = [line.split(" ", 1) for line in (machine / "words").read_text().splitlines()]
    assert [words for _, words in said] == wanted
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit, _ in said)
    folders = [shlex.split(words)[shlex.split(words).index("--out") + 1] for words in wanted]
    assert f"./{folders[0]}/trials.jsonl" in (machine / "packed-before").read_text(), "before the second run"
    files = packed(machine)
    assert {name for name in files if "trials" in name} == {f"./{folder}/trials.jsonl" for folder in folders}
    assert "./log.txt" in files
    assert not any(".cache" in name for name in files)
    assert not any(word in text for text in files.values() for word in ("anna", "box", "lab.example"))
    assert '"log": "/home/user/logs' in files[f"./{folders[0]}/trials.jsonl"]
    assert (machine.parent / "shutdown").read_text() == "-h now\n"


def test_it_ends_where_the_machine_cannot_measure_with_the_command_asked_for(machine: Path) -> None:
    install(machine, "#!/usr/bin/env bash\necho 'repro: no GPU is visible here' >&2\nexit 2\n")
    done = ran(machine, AT_THE_END='echo "gone: $PWD" >>"$HOME/end"')
    assert done.returncode == 2
    assert done.stdout.count("no GPU is visible here") == 1
    assert "no GPU is visible here" in packed(machine)["./log.txt"]
    assert (machine.parent / "end").read_text() == f"gone: {machine}\n"
    assert not (machine.parent / "shutdown").exists()


def test_a_run_that_takes_longer_than_planned_is_ended_and_the_next_have_their_time(machine: Path) -> None:
    install(machine, f"{PROGRAM}[[ $out != */pythia-160m ]] || exec sleep 100\n")
    script = machine / "1xA6000.sh"
    text = re.sub(r"^(run) \d+ (.*)$", r"\1 90 \2", script.read_text().replace("60 * $1", "$1"), flags=re.MULTILINE)
    script.write_text(text.replace("run 90 ", "run 2 ", 1))
    done = ran(machine, AT_THE_END="true")
    assert done.returncode == 0
    assert "exit code 124" in done.stdout
    assert len((machine / "words").read_text().splitlines()) == len(re.findall("^run ", text, flags=re.MULTILINE))


def test_where_it_is_stopped_it_stops_its_run_packs_and_shuts_down_at_once(machine: Path) -> None:
    install(machine, f"{PROGRAM}echo begun\nexec sleep 100\n")
    running = subprocess.Popen(
        ["bash", str(machine / "1xA6000.sh")], env=surroundings(machine), stdout=subprocess.PIPE, text=True
    )
    assert running.stdout is not None
    assert any("begun" in line for line in running.stdout)
    began = time.monotonic()
    running.terminate()
    said, _ = running.communicate()
    assert running.returncode == 130
    assert time.monotonic() - began < 50
    assert "ended with exit code 130" in said
    assert any("trials.jsonl" in name for name in packed(machine))
    assert (machine.parent / "shutdown").exists()


def test_a_run_whose_time_is_over_is_not_begun(machine: Path) -> None:
    script = machine / "1xA6000.sh"
    script.write_text(re.sub(r"^run \d+ ", "run 0 ", script.read_text(), flags=re.MULTILINE))
    done = ran(machine, AT_THE_END="true")
    assert "no time is left for: --gpus 1" in done.stdout
    assert not (machine / "words").exists()


def test_an_image_is_taken_where_one_is_named(machine: Path) -> None:
    done = ran(machine, IMAGE="ghcr.io/me/repro:ampere")
    assert done.returncode == 0, done.stdout
    first, second, *_ = (machine.parent / "docker").read_text().splitlines()
    assert first == "pull --quiet ghcr.io/me/repro:ampere"
    assert " --gpus all " in second.partition("ghcr.io")[0]
    assert "--gpus 1 --models pythia-160m --out results/1xA6000/pythia-160m" in second.partition("ghcr.io")[2]
    assert not (machine / "repro").exists()


def test_the_checkout_that_it_carries_is_the_commit_with_its_front_door(written: Path) -> None:
    with tarfile.open(written / "repro.tar.gz") as archive:
        assert {"run_all.sh", "requirements.lock", "tests/benchmark/test_trials.py"} <= {*archive.getnames()}


@pytest.mark.nightly
def test_a_bare_machine_without_a_gpu_sets_up_and_ends_by_saying_so(written: Path, tmp_path: Path) -> None:
    """Nothing of this environment but what pip is told of packages: no stack, no caches, no home."""
    folder = Path(shutil.copytree(written, tmp_path / "rented"))
    pips = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "UV_INDEX"))}
    bare = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path), **pips}
    at_the_end = {"AT_THE_END": 'touch "$HOME/ended"', "CUDA_VISIBLE_DEVICES": ""}
    command = ["bash", str(folder / "1xA6000.sh")]
    done = subprocess.run(command, cwd="/", env=bare | at_the_end, capture_output=True, text=True)
    assert done.returncode == 2, done.stdout
    assert "--gpus 1: no GPU is visible here" in done.stdout
    assert "no GPU is visible here" in packed(folder)["./log.txt"]
    assert (tmp_path / "ended").exists()


def test_scripts_that_are_there_are_not_replaced(written: Path) -> None:
    before = (written / "1xA6000.sh").read_text()
    assert "which would be lost: name another folder" in refusal("verify", "--budget", "2", "--script", str(written))
    assert (written / "1xA6000.sh").read_text() == before


def test_the_command_at_the_end_is_one_word_of_the_script_whatever_it_holds(tmp_path: Path) -> None:
    command = """echo "it's over"; touch 'a b'"""
    done = repro("verify", "--budget", "1", "--script", str(tmp_path / "rented"), "--at-the-end", command)
    assert done.returncode == 0
    [script, *_] = (tmp_path / "rented").glob("*.sh")
    [line] = [line for line in script.read_text().splitlines() if line.startswith("at_the_end='")]
    shown = subprocess.run(["bash", "-c", f'{line}\nprintf %s "$at_the_end"'], capture_output=True, text=True)
    assert shown.stdout == command
