"""A tolerance that is not the default stands in the headline, wherever a verdict is read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from repro.report.blocks import Report
from repro.report.page import page
from repro.report.sections import compose
from repro.run.reading import read
from repro.run.verdict import within
from tests.support.command_line import answer, record, repro, results_folder

OPTIONS = {"models": ["vit"], "methods": "naive", "scale": "paper", "counts": [1]}


def run(folder: Path, tolerance: float) -> Path:
    """A run that measured naive ViT in 120 days, for which the paper has 93."""
    one = record("vit", "naive", 120.0, gpu="H100", count=1)
    return results_folder(folder, one, options=OPTIONS | {"tolerance": tolerance})


def quote(report: Report) -> str:
    return report.answer[0]


@pytest.mark.parametrize(
    ("tolerance", "output"), [(0.5, "50%"), (0.125, "12.5%"), (0.1501, "15.01%"), (0.999, "99.9%")]
)
def test_it_stands_in_the_headline(tolerance: float, output: str, tmp_path: Path) -> None:
    found = quote(compose(read(run(tmp_path / "run", tolerance))))
    assert found.startswith("Of the 288 cells of Tables 1 and 4, 1 was compared by true days: ")
    assert found.endswith(f". The tolerance is {output}, not the default of 15%.")


def test_the_default_does_not(tmp_path: Path) -> None:
    assert "tolerance" not in quote(compose(read(run(tmp_path / "run", 0.15))))


def test_it_stands_there_too_where_nothing_was_compared(tmp_path: Path) -> None:
    nothing = results_folder(tmp_path / "run", options=OPTIONS | {"tolerance": 0.9})
    assert quote(compose(read(nothing))).endswith("The tolerance is 90%, not the default of 15%.")


def test_on_a_terminal_in_markdown_and_json(tmp_path: Path) -> None:
    folder, out = str(run(tmp_path / "run", 0.5)), str(tmp_path / "out")
    sentence = "The tolerance is 50%, not the default of 15%."
    heads = {
        format: repro("report", folder, "--out", out, "--format", format).stdout for format in ("text", "markdown")
    }
    for head in heads.values():
        assert sentence in " ".join(head.split())[:400]
    found = answer("report", folder, "--out", out)
    assert found["tolerance"] == 0.5
    assert found["headline"].count(sentence) == 1


def test_on_the_page(tmp_path: Path) -> None:
    drawn = page(compose(read(run(tmp_path / "run", 0.5))))
    (head,) = re.findall("<blockquote>(.*?)</blockquote>", drawn, re.DOTALL)
    assert "The tolerance is 50%, not the default of 15%." in head


@pytest.mark.parametrize(
    ("tolerance", "least", "most"), [(0.15, 0.85 * 92.5, 1.15 * 93.5), (0.5, 0.5 * 92.5, 1.5 * 93.5), (0, 92.5, 93.5)]
)
def test_it_is_a_share_of_the_printed_days_on_either_side(tolerance: float, least: float, most: float) -> None:
    days = (least - 0.01, least + 0.01, most - 0.01, most + 0.01)
    assert [within(each, 93, tolerance) for each in days] == ["faster", "reproduced", "reproduced", "slower"]


def test_of_several_runs_it_is_the_least(tmp_path: Path) -> None:
    runs = [read(run(tmp_path / str(tolerance), tolerance)) for tolerance in (0.5, 0.3)]
    assert quote(compose(*runs)).endswith("The tolerance is 30%, not the default of 15%.")


def test_what_a_run_writes_is_judged_by_it(tmp_path: Path) -> None:
    for tolerance, word in ((0.5, "reproduced"), (0.15, "slower")):
        (one,) = [each for each in read(run(tmp_path / word, tolerance)).verdicts if each.compared]
        assert (one.verdict, one.tolerance) == (word, tolerance)
        json.dumps(one.row())
