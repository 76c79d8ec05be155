"""The workflows in docs/: what they run is what the command line and images/build.sh take."""

from __future__ import annotations

import math
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from repro import formats
from repro.cli import parser
from tests.support.command_line import ROOT, program

TEXT = (ROOT / "docs" / "upgrade-check.yml").read_text()
STEPS: list[dict[str, Any]] = yaml.safe_load(TEXT)["jobs"]["check"]["steps"]
CHECK = next(step["run"] for step in STEPS if step.get("name") == "Check")


def test_it_runs_on_a_schedule_and_opens_an_issue_when_something_regressed() -> None:
    workflow = yaml.safe_load(TEXT)
    triggers = workflow[True]  # YAML 1.1 reads `on` as a truth value
    assert {"schedule", "workflow_call"} <= triggers.keys()
    assert {"self-hosted", "gpu"} <= set(workflow["jobs"]["check"]["runs-on"])
    [issue] = [step for step in STEPS if "issues.create" in str(step.get("with"))]
    assert issue["if"] == "steps.check.outputs.code == '1'"
    assert workflow["permissions"]["issues"] == "write"


def test_there_is_time_to_bisect_all_packages_of_a_stack() -> None:
    workflow = yaml.safe_load(TEXT)
    budget = formats.seconds(workflow[True]["workflow_call"]["inputs"]["budget"]["default"], "budget")
    swaps = math.ceil(math.log2(len((ROOT / "requirements.lock").read_text().split("=="))))
    assert (1 + swaps + 1) * budget <= 60 * workflow["jobs"]["check"]["timeout-minutes"]


def test_its_scripts_are_valid_bash_and_their_options_exist() -> None:
    known = {option for action in parser("compare")._actions for option in action.option_strings}
    called = CHECK.split("run_all.sh compare", 1)[1].split("||")[0]
    used = set(re.findall(r"--[a-z]+", called))
    assert {"--against", "--budget", "--bisect", "--out"} <= used <= known
    for step in STEPS:
        if "run" in step:
            subprocess.run(["bash", "-n"], input=step["run"], text=True, check=True)


def test_a_regression_is_reported_and_a_stack_that_cannot_be_built_fails(tmp_path: Any) -> None:
    for code, fails in ((0, False), (1, False), (3, False), (2, True), (130, True)):
        program(tmp_path / "run_all.sh", f"echo report\nexit {code}")
        variables = {
            "AGAINST": "torch==9",
            "BUDGET": "1h",
            "GITHUB_OUTPUT": str(tmp_path / f"output-{code}"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
            "PATH": "/usr/bin:/bin",
        }
        done = subprocess.run(["bash", "-e", "-c", CHECK], cwd=tmp_path, env=variables)
        assert (done.returncode != 0) == fails
        assert (tmp_path / f"output-{code}").read_text() == f"code={code}\n"
    assert (tmp_path / "summary").read_text() == "report\n" * 5


PUBLISH = yaml.safe_load((ROOT / "docs" / "publish.yml").read_text())
IMAGE = PUBLISH["jobs"]["image"]
RUNS = {step["name"]: step["run"] for step in IMAGE["steps"] if "run" in step}


def test_a_tag_publishes_every_image_that_can_be_built() -> None:
    assert PUBLISH[True] == {"push": {"tags": ["v*"]}}
    assert PUBLISH["permissions"]["packages"] == "write"
    _, *rows = (ROOT / "images" / "generations.csv").read_text().splitlines()
    assert {*IMAGE["strategy"]["matrix"]["target"]} == {row.partition(",")[0] for row in rows}


def builds(tmp_path: Path, target: str) -> list[str]:
    """The words of the builder as the workflow calls it for a target."""
    program(tmp_path / "docker", f'printf "%s\\n" "$@" >{tmp_path}/words')
    environment = {"TARGET": target, "REPOSITORY": "Somebody/Repro", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run(["bash", "-e", "-c", RUNS["Build and publish"]], cwd=ROOT, env=environment, check=True)
    return (tmp_path / "words").read_text().splitlines()


def test_images_are_pushed_with_provenance_under_their_name_and_version(tmp_path: Path) -> None:
    version = re.findall(r"^ARG VERSION=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0]
    name = "ghcr.io/somebody/repro"
    for target, tags in (("hopper", ["hopper"]), ("every", ["every", "latest"]), ("latest", [])):
        words = builds(tmp_path, target)
        assert words[:4] == ["buildx", "build", "--target", target]
        assert {"--provenance=mode=max", "--sbom=true", "type=image,push=true,rewrite-timestamp=true"} <= {*words}
        tagged = [word for before, word in pairwise(words) if before == "--tag"]
        assert tagged == [f"{name}:{tag}" for tag in (*tags, f"{version}-{target}")]


def test_a_tag_that_is_not_the_version_publishes_nothing() -> None:
    version = re.findall(r"^ARG VERSION=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[0]
    for tag, fails in ((f"v{version}", False), ("v9.9.9", True)):
        environment = {"TAG": tag, "PATH": "/usr/bin:/bin"}
        check = RUNS["Check that the tag is the version"]
        assert (subprocess.run(["bash", "-e", "-c", check], cwd=ROOT, env=environment).returncode != 0) == fails
