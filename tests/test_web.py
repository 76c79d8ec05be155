"""The page in a browser: built as it is published, it answers as the command line does."""

from __future__ import annotations

import functools
import http.server
import json
import math
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from repro import web
from repro.cli import main
from tests.report.test_report_page import browser  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).parent.parent
GPT2 = json.dumps(
    {"model_type": "gpt2", "n_layer": 6, "n_head": 8, "n_embd": 512, "vocab_size": 32000, "n_positions": 1024}
)
TRAINED = "tokens=1B,batch=64"
OWN = "layers=12,width=1024,heads=16,kv=4,feedforward=4096,vocabulary=32000"
# Question, fields, and the words of the command line.
SAME = [
    ("how", {"model": "vit", "gpu": "A100", "gpus": "1"}, "predict --models vit --gpu A100 --gpus 1 --stack today"),
    ("how", {"model": "pythia-1b", "gpu": "H100"}, "predict --models pythia-1b --gpu H100"),
    ("how", {"model": "mamba", "gpu": "RTX 3090", "gpus": "8"}, "predict --models mamba --gpu RTX_3090 --gpus 8"),
    (
        "how",
        {"model": "roberta", "gpu": "A6000", "software": "paper"},
        "predict --models roberta --gpu A6000 --stack paper",
    ),
    (
        "how",
        {"model": "convnext", "gpu": "H100", "software": "modern"},
        "predict --models convnext --gpu H100 --methods modern",
    ),
    ("how", {"model": "gpt2", "gpu": "RTX 4090"}, "predict --models gpt2 --gpu RTX_4090"),
    (
        "how",
        {"model": "qwen3-0.6b", "gpu": "A100", "training": TRAINED},
        f"predict --models qwen3-0.6b@{TRAINED} --gpu A100",
    ),
    ("how", {"model": "resnet-50", "gpu": "T4"}, "predict --models resnet-50 --gpu T4"),
    ("how", {"model": "bert-base", "gpu": "V100 32 GB"}, "predict --models bert-base --gpu V100_32_GB"),
    ("how", {"model": OWN, "training": TRAINED, "gpu": "A100"}, f"predict --models decoder:{OWN}@{TRAINED} --gpu A100"),
    (
        "how",
        {"model": GPT2, "training": TRAINED, "gpu": "A100"},
        f"predict --models decoder:{{config}}@{TRAINED} --gpu A100",
    ),
    ("cost", {"model": "vit", "budget": "40000"}, "cost vit --budget 40000"),
    ("cost", {"model": "pythia-1b", "terms": "rent"}, "cost pythia-1b --terms rent"),
    ("cost", {"model": "pythia-410m", "deadline": "30d"}, "cost pythia-410m --deadline 30d"),
    ("cost", {"model": "roberta", "terms": "either"}, "cost roberta --terms either"),
    ("cost", {"model": "llama-3.2-1b", "terms": "rent"}, "cost llama-3.2-1b --terms rent"),
    ("paper", {"table": "1", "by": "printed"}, "table 1 --by printed"),
    ("paper", {"table": "1", "by": "true"}, "table 1 --by true"),
    ("paper", {"table": "4", "by": "authors"}, "table 4 --by authors"),
    ("paper", {"table": "4", "by": "printed", "cell": "ViT 1 H100"}, "table 4"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the built page."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm (Debian: apt-get install npm) to build the page")
    site = tmp_path_factory.mktemp("web") / "site"
    built = subprocess.run([ROOT / "web" / "build.sh", site], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    handler = functools.partial(_Quiet, directory=str(site))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def tab(browser: Browser, served: str) -> Iterator[Page]:  # noqa: F811
    """The page, answered; in the end its console is empty, and no request left the server."""
    page, said, asked = browser.new_page(), list[str](), list[str]()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served)
    page.wait_for_selector("body[data-ready=yes]", timeout=300_000)
    yield page
    assert said == []
    assert [url for url in asked if not url.startswith((served, "data:", "blob:"))] == []


def ask(tab: Page, question: str, **fields: str) -> dict[str, Any]:
    """What the page answers to a link."""
    link = f"#{question}?{urlencode(fields)}"
    tab.evaluate("link => { document.body.dataset.ready = ''; location.hash = link }", link)
    tab.wait_for_selector("body[data-ready=yes]", timeout=120_000)
    found: dict[str, Any] = tab.evaluate("window.answered")
    return found


def same(one: Any, other: Any) -> bool:
    """Whether texts are equal, and numbers within 1e-9: since Python 3.12 `sum` rounds otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return math.isclose(one, other, rel_tol=1e-9)
    return bool(one == other)


@pytest.mark.parametrize(("question", "fields", "words"), SAME, ids=[" ".join(each[2].split()[:4]) for each in SAME])
def test_the_page_answers_as_the_command_line(
    tab: Page, question: str, fields: dict[str, str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own.json").write_text(GPT2)
    typed = [word.replace("_", " ").replace("{config}", f"{tmp_path}/own.json") for word in words.split()]
    assert main([*typed, "--format", "json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    found = ask(tab, question, **fields)
    assert found["error"] is None, found
    assert same(found["data"], expected)


def test_a_link_restores_its_fields(tab: Page) -> None:
    ask(tab, "cost", model="roberta", terms="rent", budget="9000")
    shown = {name: tab.input_value(f"#cost [name={name}]") for name in ("model", "terms", "budget", "deadline")}
    assert shown == {"model": "roberta", "terms": "rent", "budget": "9000", "deadline": ""}
    assert tab.evaluate("location.hash") == "#cost?model=roberta&terms=rent&budget=9000"


def test_a_question_is_answered_as_its_fields_change(tab: Page) -> None:
    ask(tab, "how", model="vit", gpu="A100", gpus="1")
    tab.evaluate("document.body.dataset.ready = ''")
    tab.fill("#how [name=gpu]", "A6000")
    tab.wait_for_selector("body[data-ready=yes]", timeout=120_000)
    assert tab.evaluate("window.answered.data[0].gpu") == "RTX A6000"


def test_an_outdated_answer_is_not_shown(tab: Page) -> None:
    tab.evaluate("document.body.dataset.ready = ''; location.hash = '#how?model=pythia-1b&gpu=A100'")
    assert ask(tab, "how", model="vit", gpu="A100")["data"][0]["model"] == "ViT"
    tab.wait_for_timeout(500)
    assert tab.text_content("#answer .answer", timeout=1000).startswith("ViT on")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("question", "field", "fields"),
    [
        ("how", "model", {"model": "nosuch", "gpu": "A100"}),
        ("how", "gpu", {"model": "vit", "gpu": "A1000"}),
        ("how", "gpus", {"model": "vit", "gpu": "A100", "gpus": "none"}),
        ("how", "training", {"model": "gpt2", "gpu": "A100", "training": "batch=none"}),
        ("how", "model", {"model": '{"model_type": "jamba"}', "gpu": "A100", "training": TRAINED}),
        ("cost", "budget", {"model": "vit", "budget": "much"}),
        ("cost", "deadline", {"model": "vit", "deadline": "soon"}),
        ("cost", "buy H100", {"model": "vit", "buy H100": "-3"}),
    ],
)
def test_what_is_wrong_is_said_at_its_field(tab: Page, question: str, field: str, fields: dict[str, str]) -> None:
    found = ask(tab, question, **fields)
    assert found["field"] == field
    assert tab.locator(f"#{question} [name='{field}'][aria-invalid]").count() == 1
    assert tab.text_content("#state") == found["error"]
    assert "Traceback" not in found["error"]


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=document.hacked=1>", '{"model_type": "<script>document.hacked=1"}']
)
def test_a_hostile_link_runs_nothing(tab: Page, text: str) -> None:
    ask(tab, "how", model=text, gpu=text, training=text)
    ask(tab, "paper", cell=text, table="1")
    assert tab.evaluate("document.hacked ?? document.querySelectorAll('img, #answer script').length") == 0


def test_a_cell_tells_its_arithmetic_by_keyboard(tab: Page) -> None:
    ask(tab, "paper", table="1")
    tab.evaluate("document.body.dataset.ready = ''")
    tab.focus("[data-cell='Pythia-160M 1 RTX 3090']")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("body[data-ready=yes]", timeout=120_000)
    told = tab.text_content(".cell") or ""
    assert "82 TFLOP/s, 115% of its peak of 71 in fp16: impossible" in told


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_each_question_without_scrolling_sideways(tab: Page, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    tab.set_viewport_size({"width": 390, "height": 844})
    for question in ("how", "cost", "paper"):
        ask(tab, question, model="vit", gpu="A100")
        assert tab.evaluate("document.documentElement.scrollWidth") == 390
    tab.set_viewport_size({"width": 1200, "height": 900})


def test_the_command_that_the_page_names_quotes_what_a_shell_would_read() -> None:
    found = json.loads(web.answer("how", json.dumps({"model": "vit", "gpu": "RTX 3090"})))
    assert found["command"] == "repro predict --models vit --gpu 'RTX 3090' --gpus 1 --stack today"


def test_a_batch_that_few_numbers_of_gpus_share_is_answered_with_these() -> None:
    asked = {"model": "gpt2", "training": "tokens=1B,batch=100", "gpu": "A100"}
    found = json.loads(web.answer("how", json.dumps(asked)))
    assert found["data"][0]["feasible"]
    refused = json.loads(web.answer("how", json.dumps(asked | {"gpus": "8"})))
    assert refused["field"] == "gpus"
    assert "take a number that divides it" in refused["error"]


def test_software_that_a_model_has_no_traces_of_is_refused_at_its_field() -> None:
    found = json.loads(web.answer("how", json.dumps({"model": "gpt2", "gpu": "A100", "software": "paper"})))
    assert (found["field"], found["error"].endswith("leave --stack out")) == ("software", True)


def test_what_others_wrote_is_escaped() -> None:
    found = json.loads(web.answer("paper", json.dumps({"table": "1", "cell": "ViT 1 H100"})))
    assert "&#x27; clock" in found["html"]


def test_a_site_replaces_only_a_site(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run([ROOT / "web" / "build.sh", tmp_path], capture_output=True, text=True)
    assert (done.returncode, [each.name for each in tmp_path.iterdir()]) == (2, ["file"])
    assert "name another folder" in done.stderr
