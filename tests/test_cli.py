"""The command line: fast, documented, one clear line for what is wrong, and payload on stdout alone."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from repro.cli import main, parser
from repro.commands import HELP
from repro.commands.preflight import check_disk
from repro.commands.run import parsed
from repro.console import UserError
from repro.formats import render
from repro.installation import way_to_install
from repro.machine import nvml
from repro.machine.devices import Device
from repro.machine.host import host
from repro.models.specification import KEYS
from repro.options import given
from repro.paper.gpus import find
from repro.report.sections import compose
from repro.report.terminal import printed
from repro.run.reading import read
from repro.run.run import FILES
from tests.support.command_line import (
    ROOT,
    SLOW,
    answer,
    documentation,
    one_line,
    process,
    record,
    refusal,
    repro,
    results_folder,
    slow_imports,
)

ITSELF = "compare results/cpu-2-cores results/cpu-2-cores"
ON_MONEY = ["cost", "cost pythia-1b --terms either"]
READING = [
    *("run --help", "list gpus", "list recipes", "list settings", "audit", "survey --questions"),
    *("table 1", "table 3", "table j"),
]
# These take 0.2 to 0.7 s where nothing else runs; a busy machine's processors do up to a half less in a second.
PREDICTING = ["claims", "predict", "survey --train", "table 1 --by true", "verify --budget 20", *ON_MONEY, ITSELF]
AT_ONCE = dict.fromkeys(READING, 0.5) | dict.fromkeys(PREDICTING, 1.0)


def seconds_to_answer(command: str) -> float:
    """A processor's seconds, not the wall's: they do not grow by what else the machine does."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert slow_imports(*command.split()) == set(), command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.alone
def test_what_needs_no_torch_answers_at_once_and_imports_nothing_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))  # compiled once, as where repro is installed
    took = {command: seconds_to_answer(command) for command in AT_ONCE}
    late = [command for command, seconds in AT_ONCE.items() if took[command] >= seconds]
    again = {command: min(seconds_to_answer(command) for _ in range(5)) for command in late}  # it was disturbed
    assert {command: seconds for command, seconds in again.items() if seconds >= AT_ONCE[command]} == {}


@pytest.mark.parametrize(
    "command",
    [
        *("audit", "claims", "table 1", "cost vit", "predict --gpu A100", "list gpus", "survey --questions", "doctor"),
        *("predict --models gpt2 --gpu A100", "compare results/cpu-2-cores results/cpu-2-cores", "slurm --help"),
        "report results/cpu-2-cores --out {tmp_path}",
    ],
)
def test_reading_imports_only_what_python_in_a_browser_and_on_windows_has(command: str, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules |= dict.fromkeys(('resource', 'fcntl', 'pwd', 'grp', 'termios', 'pynvml')); "
        "from repro.cli import main; main(sys.argv[1:]); "
        "print(*(name for name, each in sys.modules.items() if 'site-packages' in str(getattr(each, '__file__', ''))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *command.format(tmp_path=tmp_path).split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert "msgspec" in loaded
    assert loaded <= {"msgspec", "tabulate", "wcwidth", "typing_extensions", "_distutils_hack"}


def test_without_msgspec_one_line_names_the_way_to_install_it() -> None:
    code = "import runpy, sys; sys.modules['msgspec'] = None; runpy.run_module('repro', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code, "audit"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"repro: msgspec is not installed: {way_to_install('read')}\n"


def test_no_commands_options_import_what_is_slow() -> None:
    code = "import sys; from repro.cli import parser; from repro.commands import HELP; [parser(name) for name in HELP]"
    found = subprocess.run(
        [sys.executable, "-c", f"{code}; print({SLOW} & set(sys.modules))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "set()\n"


OLD_WORDS = {
    **{name: f"list {name}" for name in ("recipes", "gpus", "settings")},
    "calibrate": "probe",
    "recommend vit": "cost MODEL",
    "rent vit": "cost MODEL --terms rent",
    "breakeven": "cost without a model",
    "scaling vit": "cost MODEL --gpu NAME",
    **dict.fromkeys(("run --clock true", "report --clock=true", "claims --clock true", "table 1 --clock true"), "--by"),
    **dict.fromkeys(("table 1 --corrected", "cost vit --corrected"), "--by true"),
    **dict.fromkeys(("table 1 --predicted", "cost vit --predicted"), "done by itself"),
    "--attention flash": "--with attention=flash",
    **dict.fromkeys(("--allow-cpu", "run --gpus all --allow-cpu", "probe --allow-cpu"), "--processes N"),
    "--strict-projection": "--project verifies nothing",
    "--check-projection": "--project does it",
    "--check-extrapolation": "done by itself",
    "run -k vit": "-- -k EXPRESSION",
    "run --track wandb": "repro track DIR",
}


@pytest.mark.parametrize("words", OLD_WORDS)
def test_an_old_word_names_the_one_that_replaces_it(words: str) -> None:
    refused = refusal(*words.split())
    assert refused.split()[1] in words, "the old word"
    assert OLD_WORDS[words] in refused


def test_there_are_19_commands_of_at_most_24_options_and_80_lines_of_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    listed = repro("--help").stdout.partition("commands:\n")[2].partition("\n\n")[0]
    commands = {line.split()[0] for line in listed.splitlines()}
    assert commands == {
        *("run", "report", "table", "audit", "claims", "predict", "cost", "compare", "export", "survey", "list"),
        *("doctor", "slurm", "probe", "lab", "track", "verify", "contribute", "plan"),
    }
    options = {name: [each for each in parser(name)._actions if each.option_strings] for name in HELP}
    counts = {name: len(each) - 1 for name, each in options.items()}  # -h apart
    assert {name: count for name, count in counts.items() if count > 24} == {}
    lines = {name: len(repro(name, "--help").stdout.splitlines()) for name in HELP}
    assert {name: count for name, count in lines.items() if count > 80} == {}


def test_options_are_parsed_once_into_a_frozen_data_class() -> None:
    words = "vit --gpus 2 --budget 40k --measured a --measured none --rent 0.5EUR --interrupted-every 12h"
    asked = parser("cost").parse_args(words.split())
    assert (asked.model, asked.gpus, asked.budget, asked.measured) == ("vit", 2, 40000, (Path("a"), None))
    assert (asked.rent.value.value, asked.rent.currency, asked.interrupted_every) == (0.5, "EUR", 12 * 3600)
    assert (asked.runs, asked.terms, asked.all, asked.format) == (1, "own", False, "text")
    assert given(asked, ("runs", "gpus", "interrupted_every")) == ["--gpus", "--interrupted-every"]
    with pytest.raises(FrozenInstanceError):
        asked.gpus = 3


@pytest.mark.parametrize("command", ["run", "report", "claims"])
def test_what_judges_measurements_takes_no_printed_days(command: str) -> None:
    assert "choose from true, authors" in refusal(command, "--by", "printed").replace("'", "")


@pytest.mark.parametrize("command", ["list gpus", "list recipes", "list settings"])
def test_people_see_a_line_for_every_row_of_a_list(command: str) -> None:
    words = command.split()
    output = repro(*words, "--all", "--format", "markdown").stdout
    assert len([line for line in output.splitlines() if line.startswith("|")]) == len(answer(*words)) + 2


def test_upgrade_check_still_runs_and_names_the_new_word() -> None:
    done = repro("upgrade-check", "--against", "nosuch.lock", CUDA_VISIBLE_DEVICES="")
    first, second = done.stderr.splitlines()
    assert (done.returncode, first) == (2, "repro: upgrade-check is compare --against now")
    assert second == repro("compare", "--against", "nosuch.lock", CUDA_VISIBLE_DEVICES="").stderr.strip()
    assert "usage: python -m repro compare" in repro("upgrade-check", "--help").stdout


AGAINST = {
    "--models": "vit",
    "--methods": "naive",
    "--scale": "tiny",
    "--gpus": "1",
    "--budget": "20m",
    "--pairs": "9",
    "--out": "out",
    "--bisect": "",
    "--accept": "",
}


def test_an_option_of_another_stack_is_refused_between_two_runs() -> None:
    for option, value in AGAINST.items():
        refused = refusal(*ITSELF.split(), option, *filter(None, [value]))
        assert f"{option} changes nothing without --against" in refused
    for words in (["results"], ["--drift", "5%"]):
        assert "changes nothing with --against" in refusal("compare", "--against", "torch==2.11.0", *words)
    for words in ([], ["results"], ["--accept"]):
        assert "expected BEFORE and AFTER, two results, or --against LOCK" in refusal("compare", *words)


PRINTING = [
    *("list recipes", "list gpus", "list settings", "doctor", "audit", "claims", *ON_MONEY, ITSELF),
    *("survey --questions", "verify --budget 5", "plan tests/plan/plain.py --gpu A100"),
    *(f"table {name}" for name in ("1", "3", "4", "5", "6", "7", "j")),
    *("table 1 --by true", "table 4 --by true", "predict", "predict --validate", "predict --models vit --gpu A100"),
    *("predict --methods modern", "predict --models vit --gpu A100 --methods modern"),
]
# JSON of these holds several tables, CSV what most people want of them; or they measure.
OF_ANOTHER_SHAPE = {"report", "run", "lab", "probe"}


@pytest.mark.parametrize("command", PRINTING)
def test_csv_and_json_have_the_same_rows_and_names_without_blanks(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("REPRO_IMAGE", raising=False)
    output = []
    for format in ("csv", "json"):
        assert main([*command.split(), "--format", format]) in (0, 3)
        output.append(capsys.readouterr().out)
    heads, *lines = csv.reader(io.StringIO(output[0]))
    found = json.loads(output[1])
    rows = found if isinstance(found, list) else found.get("rows") or found["trials"]
    assert list(rows[0]) == heads
    assert len(rows) == len(lines)
    assert [name for name in heads if not re.fullmatch(r"[a-z][a-z0-9_]*", name)] == []


def test_the_documentation_names_what_json_and_csv_call_differently(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pages = documentation()
    report = compose(read(results_folder(tmp_path / "run", record("vit", "naive", 1.0))))
    of_run = [printed(report, format) for format in ("csv", "json")]
    heads, (trial,) = of_run[0].splitlines()[0].split(","), json.loads(of_run[1])["trials"]
    assert {*heads}.difference(trial) == {"machine"}
    assert {"device", "count", "nodes"} <= trial.keys()
    assert "the JSON of a run or its report a trial's `machine` is `device`, `count` and `nodes`" in pages

    of_claim = []
    for format in ("csv", "json"):
        assert main(["claims", "mean-speedup", "--format", format]) == 0
        of_claim.append(capsys.readouterr().out)
    heads, (claim,) = of_claim[0].splitlines()[0].split(","), json.loads(of_claim[1])
    assert {*heads}.isdisjoint(claim)
    assert "`claims ID` is rows and steps in CSV, the claim in JSON" in pages


def test_every_command_that_prints_data_is_asked_for_its_names() -> None:
    printing = {name for name in HELP if any(action.dest == "format" for action in parser(name)._actions)}
    assert printing == {command.split()[0] for command in PRINTING} | OF_ANOTHER_SHAPE


@pytest.mark.parametrize(
    "command",
    [
        *("--version", "predict --help", "table 1", "cost pythia-1b", ITSELF),
        *("report results/cpu-2-cores --out {tmp_path}", "nosuch", "predict --models nosuch"),
    ],
)
def test_a_process_tells_what_a_call_in_this_one_does(command: str, tmp_path: Path) -> None:
    words = command.format(tmp_path=tmp_path).split()
    ran, called = process(*words), repro(*words)
    assert (ran.returncode, ran.stdout, ran.stderr) == (called.returncode, called.stdout, called.stderr)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_json_is_never_made_of_what_it_has_no_number_for(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        render([{"sum": value}], "json")


def test_help_tells_where_a_command_writes_unless_it_is_reported_where() -> None:
    for name in HELP:
        for each in fields(parser(name).kind):
            if each.name == "out" and each.default is not None:
                assert f"default {each.default}" in each.metadata["help"], name


def test_the_documentation_has_every_command_and_every_option_of_a_run() -> None:
    pages = documentation()
    running, own = ((ROOT / "docs" / page).read_text() for page in ("running.md", "own-model.md"))
    for command in HELP:
        assert f"`{command}`" in pages or f"run_all.sh {command}" in pages, command
    for action in parser("run")._optionals._group_actions:
        option = max(action.option_strings, key=len)
        assert f"\n| `{option}`" in running, option
    for key in KEYS:
        assert f"`{key}=" in own, key


def test_what_a_terminal_cannot_show_is_reported_in_other_words(tmp_path: Path) -> None:
    done = process("report", "--out", str(tmp_path), "--format", "markdown", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr


BAD_INPUT = [
    (["--models", "gpt-5"], ["unknown model 'gpt-5'", "pythia-160m", "vit"]),
    (["--models", ""], ["unknown model ''"]),
    (["frobnicate"], ["unknown command 'frobnicate'", "doctor"]),
    (["predcit", "--gpu", "A100"], ["unknown command 'predcit': did you mean predict?"]),
    (["--timeout", "1h"], ["unknown option --timeout: did you mean --trial-timeout?"]),
    (["--tolerence=0.1"], ["unknown option --tolerence: did you mean --tolerance?"]),
    # And not that it lacks one.
    (["cost", "--methos", "vit"], ["unknown option --methos: did you mean --methods?"]),
    (
        ["lab", "--images", "--imags of it"],
        ["--images --imags of it: expected a whole number"],
    ),  # a value: it has spaces
    (["--wide"], ["--wide; see python -m repro run --help"]),
    (["--tolerance", "0"], ["--tolerance 0", "0.15"]),
    (["--tolerance", "0.1_5"], ["--tolerance 0.1_5: expected a share between 0 and 1"]),
    (["--memory", f"{'9' * 400}GiB"], ["expected at most 20 digits"]),
    (["--budget", "4"], ["--budget 4: expected a positive duration such as 90s, 30m or 4h"]),
    (["--trial-timeout", "60"], ["--trial-timeout 60: expected a positive duration such as 90s"]),
    (["--processes", "1,3"], ["--processes 3: no replication batch here divides by 3; take 1, 2, 4 or 8 processes"]),
    (["--trial-timeout", "200000d"], ["--trial-timeout 200000d: expected a positive duration of at most 36500d"]),
    (["--gpus", "foo"], ["--gpus foo: expected all, a count"]),
    (["--budget=--"], ["--budget --: expected a value"]),
    (["--format=--"], ["--format --: expected a value"]),
    (["--memory", "0.4B"], ["--memory 0.4B: expected a positive size"]),
    (["--memory", "2"], ["--memory 2: expected a positive size such as 512MiB, 2GiB or 80GB"]),
    (["--steps", "0"], ["--steps 0: expected a whole number from 1 to 1,000,000,000"]),
    (["--steps", "1000000001"], ["--steps 1000000001: expected a whole number from 1 to 1,000,000,000"]),
    (["--processes", "0"], ["--processes 0: expected a whole number from 1 to "]),
    (["--processes", "1,100000"], ["--processes 1,100000: at most ", ", 8 on each of the "]),
    (["probe", "--processes", "100000"], ["--processes 100000: at most "]),
    (
        ["compare", "--against", "torch==2.11.0", "--pairs", "\uff16"],
        ["--pairs \uff16: expected a whole number from 9 to "],
    ),
    (["--methods", "best"], ["--methods", "published"]),
    (["--models", "vit", "--with", "attention=flash"], ["--with attention=flash changes nothing here: it serves free"]),
    (["--processes", "1", "--with", "attention=flash"], ["flash changes nothing", "an Ampere or newer GPU"]),
    (["--with", "attention=fast"], ["--with attention=fast: expected attention=flash once"]),
    (["--with", "attention=flash", "--with", "attention=flash"], ["expected attention=flash once"]),
    (["--format", "yaml"], ["--format", "markdown"]),
    (["--gpus", "1", "--gpus=2"], ["--gpus 1 and --gpus 2: expected --gpus once, with one value"]),
    (["predict", "--gpu", "A100", "--gpu", "H100"], ["--gpu A100 and --gpu H100: expected --gpu once, with one value"]),
    (["predict", "--models", "vit", "--model", "mamba"], ["--models vit and --models mamba: expected --models once"]),
    (
        ["cost", "--prices", "a.toml", "--prices", "b.toml"],
        ["--prices a.toml and --prices b.toml: expected"],
    ),
    (["claims", "--format", "csv", "--format", "text"], ["--format csv and --format text: expected --format once"]),
    (["--no-such-option"], ["--no-such-option"]),
]


@pytest.mark.parametrize(("arguments", "output"), BAD_INPUT, ids=lambda value: " ".join(value)[:30])
def test_bad_input_is_one_clear_line_and_exit_code_2(arguments: list[str], output: list[str], tmp_path: Path) -> None:
    out = [] if arguments == ["frobnicate"] else ["--out", str(tmp_path / "out")]
    refused = refusal(*arguments, *out)
    for part in output:
        assert part in refused
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("devices", "most", "whose"),
    [
        ([Device(0, 0, "GPU-0", "NVIDIA A100", find("A100"), 80 * 10**9, (8, 0))], 80 * 10**9, "each A100 here"),
        ([], host().memory_bytes, "this machine"),
    ],
)
def test_a_limit_of_a_ranks_memory_is_at_most_what_one_rank_can_have(
    devices: list[Device], most: int, whose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "visible_devices", lambda: devices)
    assert refusal("--memory", f"{most + 1}B", "--out", str(tmp_path / "out")) == (
        f"repro: --memory {most + 1}B: expected at most {most >> 20}MiB, the memory of {whose}; name less, or leave it "
        "out\n"
    )
    assert not (tmp_path / "out").exists()
    asked = parsed(parser("run").parse_args(["--memory", f"{most}B"]))
    assert asked.options.memory == most, "of each rank, also where several share a CPU's"


@pytest.mark.parametrize("command", HELP)
def test_no_command_drops_the_first_of_two_values_of_an_option_without_a_word(command: str) -> None:
    for action in parser(command)._actions:
        several = action.dest in ("measured", "custom_methods", "survey", "name")
        if not action.option_strings or action.nargs == 0 or several:
            continue
        option, value = max(action.option_strings, key=len), next(iter(action.choices or ["vit"]))
        with pytest.raises(UserError, match=f"{option} {value} and {option} {value}: expected {option} once"):
            parser(command).parse_args([option, value, option, value])


@pytest.mark.parametrize(
    ("command", "id", "spelled"),
    [
        ("predict --models", "pythia-1b", "Pythia-1B"),
        ("cost --terms rent", "vit", "ViT"),
        ("claims", "mean-speedup", "Mean-Speedup"),
    ],
)
def test_an_id_is_found_in_any_case(command: str, id: str, spelled: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = []
    for each in (id, spelled):
        assert main([*command.split(), each]) == 0
        output.append(capsys.readouterr().out)
    assert output[0] == output[1]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("run --out", "--out"),
        ("lab --out", "--out"),
        ("probe --out", "--out"),
        ("report", "DIR"),
        ("report --out", "--out"),
        ("compare results", "AFTER"),
        ("table 1 --measured", "--measured"),
        ("audit --measured", "--measured"),
        ("claims --measured", "--measured"),
        ("predict --measured", "--measured"),
        ("predict --probes", "--probes"),
        ("compare --against torch==2.11.0 --out", "--out"),
        ("cost --prices", "--prices"),
        ("cost --measured", "--measured"),
    ],
)
def test_an_empty_path_is_not_the_current_folder(words: str, name: str) -> None:
    refused = refusal(*words.split(), "")
    assert f"repro: {name}: it is empty: name a path, . is the current folder" in refused


@pytest.mark.parametrize("wanted", ["all", "1", "0,1", "device=0"])
def test_a_gpu_asked_for_where_none_is_visible_is_reported(wanted: str, tmp_path: Path) -> None:
    refused = refusal("--gpus", wanted, "--out", str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert "no GPU is visible" in refused


@pytest.mark.parametrize("command", ["run", "lab", "compare --against torch==2.11.0"])
@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("{file}", "{file} is a file, not a folder; name another folder with --out"),
        ("{file}/out", "{file} is a file, not a folder; name another folder with --out"),
        ("/proc/foo", "No such file or directory; name another folder with --out"),
    ],
)
def test_an_unwritable_output_is_reported_before_any_work(command: str, out: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    place = out.format(file=file)
    refused = refusal(*command.split(), "--out", place, CUDA_VISIBLE_DEVICES="")
    assert refused.startswith(f"repro: cannot write to {place}")
    assert refused.endswith(f": {why.format(file=file)}\n")


def test_looking_for_room_makes_nothing_that_another_run_may_stand_in(tmp_path: Path) -> None:
    before = tmp_path.stat().st_mtime_ns
    check_disk(tmp_path / "new" / "deep")
    assert tmp_path.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("command", "name"),
    [
        *(("run", name) for name in FILES),
        ("lab", "report.md"),
        ("compare --against torch==2.11.0", "check.json"),
    ],
)
def test_a_folder_in_the_place_of_a_file_is_reported_before_any_work(command: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert refusal(*command.split(), "--out", str(tmp_path), CUDA_VISIBLE_DEVICES="") == (
        f"repro: {tmp_path / name} is a folder, where a file is to be written: move it, or name another folder with "
        "--out\n"
    )
    assert [*tmp_path.rglob("*")] == [tmp_path / name]


@pytest.mark.parametrize(
    "command",
    [
        "run --out {out} -- -k nosuchcase",
        "run --out {out} -- -k (((",
        "compare --against nosuch.lock --out {out}",
    ],
)
def test_what_is_refused_leaves_no_folder_behind(command: str, tmp_path: Path) -> None:
    place = str(tmp_path / "new" / "out")
    one_line(process(*command.format(out=place).split(), cwd=tmp_path, CUDA_VISIBLE_DEVICES=""))
    assert [*tmp_path.iterdir()] == [], "neither there nor where it was started"


def test_a_broken_table_is_reported_with_file_line_and_column_before_any_trial(tmp_path: Path) -> None:
    folder = tmp_path / "expected"
    shutil.copytree(ROOT / "expected", folder)
    table = folder / "table1.csv"
    lines = table.read_text().splitlines()
    lines[7] = lines[7].replace("7", "soon", 1) if ",7," in lines[7] else lines[7].replace(",", ",soon", 3)
    table.write_text("\n".join(lines) + "\n")
    refused = refusal("--out", str(tmp_path / "out"), REPRO_EXPECTED=str(folder), CUDA_VISIBLE_DEVICES="")
    assert "table1.csv" in refused
    assert "line 8" in refused
    assert not (tmp_path / "out").exists()


def test_an_old_python_is_reported() -> None:
    code = (
        "import sys, runpy; sys.version_info = (3, 10, 0); sys.version = '3.10.0'; sys.argv = ['repro'];"
        "runpy.run_module('repro', run_name='__main__')"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 2
    assert found.stderr == "repro: Python 3.10.0 is too old: 3.11 or newer is needed\n"


def test_a_python_that_strips_what_libraries_read_is_reported_before_any_work(tmp_path: Path) -> None:
    done = process("--out", str(tmp_path / "out"), PYTHONOPTIMIZE="2", CUDA_VISIBLE_DEVICES="")
    assert "PYTHONOPTIMIZE" in one_line(done)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["claims", "list --help"])
def test_a_full_disk_behind_output_that_is_not_buffered_is_one_clear_line(command: str) -> None:
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "repro", *command.split()],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert found.returncode == 2
    assert found.stderr == "repro: cannot write the output: No space left on device\n"


MEASURING = ["run", "lab", "probe", "compare --against x==1"]


@pytest.mark.parametrize("command", MEASURING)
def test_a_place_that_compilers_do_not_take_is_reported_before_any_work(command: str, tmp_path: Path) -> None:
    place = tmp_path / "with blanks"
    refused = refusal(*command.split(), "--out", str(tmp_path / "out"), REPRO_CACHE=str(place), CUDA_VISIBLE_DEVICES="")
    assert refused.startswith("repro: torch.compile hands its compiler no path with blanks, quotes, brackets or bytes ")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("command", MEASURING)
def test_a_package_that_measuring_needs_and_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    for module in ("tabulate", "psutil"):
        monkeypatch.setitem(sys.modules, module, None)
    assert main([*command.split(), "--out", str(tmp_path / "out")]) == 2
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", f"repro: tabulate, psutil are not installed: {way_to_install()}\n")
