"""The survey: the form that asks it again, what is counted of people's answers and what is not shown, and who can train
what. All answers here are made up by tests/survey_files.py."""

from __future__ import annotations

import csv
import io
import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from repro.claims.claim import SURVEYED
from repro.formats import rough
from repro.paper.gpus import by_name
from repro.run.corrected import corrected_table
from repro.survey import training
from repro.survey.allocations import LASTS, access, cards
from repro.survey.answers import Person, _budget, read
from repro.survey.disclosure import exclusive, nested, wilson
from repro.survey.questions import questions
from tests.command_line import answer, drawing, refusal, repro
from tests.survey_files import Answers, as_csv, as_printed, authors_file, export, form, holder, people
from tests.test_report_page import DESK, PHONE, browser  # noqa: F401  # a fixture

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, ViewportSize

SECRET = "Cell=Secret"
A100 = ("data_center", "Ampere (A2 / A10 / A30 / A40 / A100)", "80 GB")
FORMATS = ("text", "markdown", "csv", "json")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.csv"


def written(file: Path, text: str) -> str:
    file.write_bytes(text.encode())
    return str(file)


def counts(*arguments: str) -> dict[tuple[str, str, str], Any]:
    """The people whom the command counts, by part, question and choice."""
    rows = answer("survey", *arguments)["rows"]
    return {(row["part"], row["question"], row["choice"]): row["people"] for row in rows}


# --- Asking ---


def test_the_19_questions_are_printed_with_their_choices_and_what_came_later_is_marked() -> None:
    page = repro("survey", "--questions", "--format", "markdown").stdout
    assert re.findall(r"^## ([0-9]+)\. ", page, re.MULTILINE) == [str(number) for number in range(1, 20)]
    assert "## 5. How satisfied are you by your current access to GPUs? (1" in page
    added = re.findall(r"^- (.*) \(added, of 20[0-9]{2}\)$", page, re.MULTILINE)
    assert len(added) == 9
    assert {"Blackwell (RTX 5000 series)", "[AMD] Instinct MI300 series", "141 GB"} <= set(added)
    assert [row["question"] for row in answer("survey", "--questions")] == [row["question"] for row in form()]


def test_an_export_of_the_form_and_the_authors_34_columns_read_back_as_what_was_answered(file: Path) -> None:
    made = people(100)
    of_form = counts(written(file, export(made)), "--all")
    assert of_form == counts(written(file, authors_file(made)), "--all")
    for column in ("role", "desktop_mem", "satisfaction"):
        answered = Counter(each[column] for each in made)
        found = {choice: people for (_, question, choice), people in of_form.items() if question == column}
        assert {choice: number for choice, number in found.items() if number} == answered, column
    assert of_form["figure 8", "gpu_link", "NVLink"] == sum("NVLink" in each["gpu_link"] for each in made)
    for kind, gpus in product(("desktop", "workstation", "data_center"), (1, 4, 64)):
        answered = Counter(each[f"{kind}_{gpus}"] for each in made)
        assert {choice: of_form["figure 1", f"{kind}_{gpus}", choice] for choice in answered} == answered


@pytest.mark.parametrize(
    "style", ["{question} [{row}]", "{number}) {first} - {row}", "Question {number}: {first}\n({row})"]
)
def test_questions_are_found_by_their_text_in_many_spellings(style: str, file: Path) -> None:
    made, columns = people(12), form()
    header = []
    for each in columns:
        question, _, row = each["question"].partition(" [")
        first = question.partition("?")[0] + "?"
        heading = style.format(question=question, first=first, number=each["number"], row=row.rstrip("]"))
        header.append(heading if row else re.sub(r"\W*$", "  ", heading).replace(" ", "  "))
    rows = [[person.get(each["column"], "").replace(", ", "\n") for each in columns] for person in made]
    done = repro("survey", written(file, as_csv(header, rows)), "--all", "--format", "json")
    assert done.stderr == ""
    assert {row["people"] for row in json.loads(done.stdout)["rows"] if row["choice"] == "are PhD students"} == {
        sum(person["role"] == "Ph.D. Student" for person in made)
    }


# --- Counting ---


def test_people_drawn_to_the_printed_shares_give_the_papers_numbers_and_every_claim_holds(file: Path) -> None:
    name = written(file, authors_file(as_printed()))
    found = answer("survey", name)
    assert "Of 14 shares that the paper prints, 0 differ" in found["answer"]
    claims = {row["id"]: row for row in answer("claims", "--survey", name) if row["id"] in SURVEYED}
    assert {id: row["verdict"] for id, row in claims.items()} == dict.fromkeys(SURVEYED, "holds")
    (source,) = read([file]).sources
    assert all("taken for the authors' file" in row["reason"] for row in claims.values())
    assert all(source.digest[:16] in row["reason"] for row in claims.values())
    assert claims["survey-no-cloud-budget"]["recomputed"] == pytest.approx(100 * 41 / 48)


def test_claims_on_other_people_are_judged_by_their_interval_and_named_as_theirs(file: Path) -> None:
    claims = {row["id"]: row for row in answer("claims", "--survey", written(file, authors_file(as_printed()[:40])))}
    assert claims["survey-respondents"]["verdict"] == "needs_measurement"
    assert claims["survey-unsatisfied"]["verdict"] == "holds", "not 66 % of 40, and within their interval"
    assert "of others than the paper's 40 people" in claims["survey-unsatisfied"]["reason"]
    without = answer("claims", "survey-unsatisfied")[0]
    assert (without["verdict"], without["recomputed"]) == ("needs_measurement", None)
    assert "artifacts/survey.csv" in without["reason"]
    assert "claims --survey" in without["reason"]


def test_intervals_are_wilsons() -> None:
    for number, of, low, high in ((5, 10, 23.659, 76.341), (0, 10, 0.0, 27.753), (41, 48, 72.836, 92.755)):
        found = wilson(number, of)
        assert [found.low, found.high] == pytest.approx([low, high], abs=0.01)


# --- What is not shown ---


def possible(shown: Sequence[int | str], of: int) -> list[set[int]]:
    """The numbers that each count may be, by what is shown of choices that exclude each other."""
    left = of - sum(each for each in shown if isinstance(each, int))
    ranges = [
        [each] if isinstance(each, int) else range(3) if each == "fewer than 3" else range(3, left + 1)
        for each in shown
    ]
    hidden = [range_ for each, range_ in zip(shown, ranges, strict=True) if isinstance(each, str)]
    fitting = [each for each in product(*hidden) if sum(each) == left]
    return [{each[place] for each in fitting} for place in range(len(hidden))]


def test_no_hidden_count_follows_from_those_beside_it() -> None:
    chance = random.Random(7)
    for _ in range(300):
        numbers = [chance.choice((0, 0, 1, 2, 3, 4, 9, 20)) for _ in range(5)]
        if sum(numbers) < 3:
            continue
        shown = [count.shown for count in exclusive(numbers, sum(numbers), False)]
        small = [number for number, text in zip(numbers, shown, strict=True) if text == "fewer than 3"]
        assert small == [number for number in numbers if number < 3]
        if "all but fewer than 3" in shown or sum(small) == 0 or not any(isinstance(each, int) for each in shown):
            continue
        hidden = [text for text in shown if isinstance(text, str)]
        for text, numbers_left in zip(hidden, possible(shown, sum(numbers)), strict=True):
            assert text != "fewer than 3" or numbers_left == {0, 1, 2}, (numbers, shown)
    assert [count.shown for count in exclusive([2] * 5, 10, False)] == ["not shown"] * 5
    assert nested([20, 22, 25], 50, False) == [20, "fewer than 3 more", 25]
    assert nested([2, 8, 48], 50, False) == ["fewer than 3", 8, "all but fewer than 3"]


def test_small_groups_are_shown_with_all_alone_and_fewer_than_3_people_not_at_all(file: Path) -> None:
    made = [holder(*A100, {8: "Weeks"}) for _ in range(20)]
    made[0]["role"] = "Professor"
    name = written(file, authors_file(made))
    assert counts(name)["figure 8", "role", "Professor"] == "fewer than 3"
    assert counts(name)["figure 8", "role", "Postdoc"] == "all but fewer than 3"
    assert counts(name, "--all")["figure 8", "role", "Professor"] == 1
    few = written(file, authors_file(made[:2]))
    assert "answers of fewer than 3 people, of whom nothing is shown" in refusal("survey", few)
    assert "fewer than 3 people" in refusal("claims", "--survey", few)


def test_a_group_of_one_or_two_shows_in_no_title_no_share_and_no_claim(file: Path, tmp_path: Path) -> None:
    few = [{"role": "Postdoc", "desktop_mem": "24 GB"} if number < 2 else {"role": "Postdoc"} for number in range(10)]
    told = repro("survey", written(file, authors_file(few))).stdout
    assert "Figure 8, Desktop GPUs: largest memory (fewer than 3 answered)" in told
    rated = [{"role": "Postdoc", "satisfaction": rating} for rating in "11111111114455"]
    assert "fewer than 3" not in {
        counts(written(file, authors_file(rated)))["figure 8", "satisfaction", each] for each in "45"
    }
    one = [holder(*A100, {64: "Indefinitely"}), *(holder(*A100, {}) for _ in range(3))]
    claim = repro("claims", "survey-availability", "--survey", written(file, authors_file(one))).stdout
    assert "64 GPUs" not in claim
    assert "too few people say for how long they may use GPUs to show a share" in " ".join(claim.split())
    (tmp_path / "two.csv").write_text("role\nPostdoc\nPostdoc\n")
    told = repro("survey", written(file, authors_file(people(20))), str(tmp_path / "two.csv")).stdout
    assert "20 people, sha256" not in told


def test_only_an_address_an_id_or_a_name_tells_that_a_person_answered_twice(file: Path, tmp_path: Path) -> None:
    def answered(heading: str, *cells: str) -> str:
        rows = [f"{cell},Postdoc,{number % 5 + 1}" for number, cell in enumerate(cells)]
        return repro("survey", written(file, "\n".join([f"{heading},role,satisfaction", *rows]))).stdout

    for heading in ("May we contact you by email?", "Department name", "First name"):
        assert "10 people answered" in answered(heading, *["Yes"] * 5, *["No"] * 5)
    assert "10 people answered" in answered("Name (optional)", *["-"] * 4, *["n/a"] * 4, "A", "B")
    assert "9 people answered" in answered("Your email address", *map(str, range(9)), "8")
    answered("Response ID", *map(str, range(10)))
    other = tmp_path / "other.csv"
    other.write_text(file.read_text().replace("Postdoc", "Professor"))
    assert "20 people answered" in repro("survey", str(file), str(other)).stdout


@pytest.mark.parametrize(
    ("cell", "budget"),
    [
        ("EC2", "Other"),
        ("3 GPUs on AWS", "Other"),
        ("2 million", "Other"),
        ("$2/hour", "Other"),
        ("1.000", "Other"),
        ("$10,000/yr", "501 to 1,000 USD"),
        ("US$10k p.a.", "501 to 1,000 USD"),
        ("USD 200.50", "up to 500 USD"),
        ("none", "0 USD"),
    ],
)
def test_a_budget_is_a_sum_for_a_month_or_a_year_and_nothing_else(cell: str, budget: str) -> None:
    assert _budget(cell) == budget


@pytest.mark.slow
def test_no_cell_of_a_file_leaves_the_command_and_none_can_run_anything(file: Path, tmp_path: Path) -> None:
    """Every answer, and every heading that is no question, is a formula, markup, an escape or a secret."""
    hostile = f"={SECRET}|' /C calc'!A0 <img src=x onerror={SECRET}> [l](http://{SECRET}) \x1b[2J{SECRET}\u202e"
    made = people(20)
    for each in made[:7]:
        each |= dict.fromkeys(("role", "areas", "desktop_mem", "cloud_budget", "node_link", "data_center_4"), hostile)
    rows = list(csv.reader(io.StringIO(export(made, institution=hostile, comments=hostile, largest_model=hostile))))
    rows[0] += [hostile, "Name"]
    rows = [
        rows[0],
        *([*row[:1], f"{number}{SECRET}", *row[2:], hostile, hostile] for number, row in enumerate(rows[1:])),
    ]
    name = written(file, as_csv(rows[0], rows[1:]))
    with drawing():
        output = [repro("survey", name, *more, "--format", format) for format in FORMATS for more in ((), ("--train",))]
        output += [repro("survey", name, "--all", "--out", str(tmp_path)), repro("claims", "--survey", name)]
    texts = [text for done in output for text in (done.stdout, done.stderr)] + [(tmp_path / "survey.html").read_text()]
    assert {done.returncode for done in output} == {0}
    for text in texts:
        for part in (SECRET, "onerror", "calc", "\x1b", "\u202e", "example.org", "2026-04-01"):
            assert part not in text
    assert "question 2): an answer that is none of the choices, counted as other, as in 6 more rows" in output[0].stderr
    assert output[0].stderr.count("question 2)") == 1


# --- Bad input ---


def header_and(*rows: str) -> str:
    return "role,satisfaction\n" + "".join(f"{row}\n" for row in rows)


BAD = {
    "a byte order mark": (b"\xef\xbb\xbf", "row 1: the file is empty, expected a header row of questions"),
    "nothing": (b"", "row 1: the file is empty, expected a header row of questions"),
    "no header": (b"Postdoc,3\nProfessor,4\n", "row 1: no column is one of the questions, expected a header row"),
    "no answers": (header_and().encode(), "row 2: no answers, expected a row for each person"),
    "a spreadsheet": (b"PK\x03\x04rest", "row 1: a spreadsheet's own format, expected CSV"),
    "semicolons": (b"role;satisfaction\nPostdoc;3\n", "row 1: the columns are split by semicolons, expected commas"),
    "tabs": (b"role\tsatisfaction\nPostdoc\t3\n", "row 1: the columns are split by tabs, expected commas"),
    "UTF-16": (header_and("Postdoc,3").encode("utf-16"), "row 1, column 1: UTF-16, expected UTF-8"),
    "Latin-1": (b"role,satisfaction\nPostdoc,3\nS\xe9cret,3\n", "row 3, column 1: no UTF-8"),
    "an open quote": (header_and('"Postdoc,3').encode(), "row 2: no CSV ("),
}


def test_a_file_that_is_no_spreadsheet_of_answers_is_refused_in_one_line(file: Path) -> None:
    for content, text in BAD.values():
        file.write_bytes(content)
        refused = refusal("survey", str(file))
        assert f"{file}, {text}" in refused
        assert "Postdoc" not in refused
        assert "cret" not in refused


def test_a_question_that_cannot_be_answered_is_refused() -> None:
    for arguments, text in (
        ("", "nothing to count: name ANSWERS.csv, or ask with --questions or --train"),
        ("nosuch.csv", "nosuch.csv: not found, expected the answers as a CSV file"),
        ("--train --weeks 4", "--weeks 4: expected a positive duration such as 30d or 12h"),
        ("a.csv --days 3d", "--days is of what people can train: add --train"),
        ("--train --all", "--all is of people's answers: name ANSWERS.csv"),
        ("--questions --train", "--questions prints the form alone"),
    ):
        assert text in refusal("survey", *arguments.split())


def test_what_is_wrong_with_a_row_is_told_by_row_and_column_and_the_rest_works(file: Path) -> None:
    rows = [
        "r1,Postdoc,3,7",
        "r2,Postdoc,9,7",
        "r3,Postdoc,8,7",
        "r1,Professor,4,7",
        "r5,Postdoc",
        ",,,",
        "r7,,,",
        *("" for _ in "ab"),
    ]
    rows += [f"x{number},Ph.D. student,{number % 5 + 1},7" for number in range(5)]
    done = repro(
        "survey", written(file, "\n".join(["Email address,role,satisfaction,favourite colour", *rows])), "--all"
    )
    assert done.returncode == 0
    lines = [line.removeprefix(f"repro: {file}, ") for line in done.stderr.splitlines()]
    assert (
        "row 1: no column asks question 6 (What is your monthly budget (in USD) for cloud compute (e.g" in done.stderr
    )
    assert "row 1: no column asks question 9 (How long can you use these Desktop GPUs for?)" in lines
    assert lines[-4:] == [
        "row 5, column 1: the same person as in " + f"{file}, row 2; the later answers are counted",
        "row 6, column 3: 2 cells where the header has 4; the row is left out",
        "row 8: it answers no question, and is left out",
        "row 3, column 3 (question 5): an answer that is none of the choices, counted as other, as in 1 more row",
    ]
    assert "8 people answered" in done.stdout
    for heading, people_ in (("Completion time", 3), ("Do you consent?", 4)):
        twice = [f"{number},Postdoc" for number in (1, 1, 2, 3)]
        done = repro("survey", written(file, "\n".join([f"{heading},role", *twice])))
        assert f"{people_} people answered" in done.stdout
        assert f"row 3: the same in every column as {file}, row 2" in done.stderr
    assert "same content" in refusal("survey", str(file), str(file))


# --- Who can train what ---


def test_without_answers_the_papers_academic_hardware_trains_what_the_corrected_days_allow() -> None:
    found = answer("survey", "--train")
    assert len(found["rows"]) == 27
    for table, level in (("1", "everything"), ("4", "naive")):
        for cell in corrected_table(table):  # type: ignore[arg-type]
            if (cell.gpus, cell.measured_days) == (8, None) and cell.gpu != "H100" and cell.days:
                (row,) = (row for row in found["rows"] if (row["model"], row["gpu"]) == (cell.model, cell.gpu))
                assert row[f"{level}_days"] <= rough(cell.days)
                if table == "4" and row["naive_gpus"] == 8:
                    assert (row["naive_days"], row["naive_origin"]) == (rough(cell.days), "predicted")
    one = next(row for row in found["rows"] if (row["model"], row["gpu"]) == ("Pythia-1B", "A100"))
    assert 7 < one["free_lunch_days"] < one["naive_days"] < 28
    assert (one["within_days"], one["within_weeks"]) == ("no", "naive")
    able = {row["model"] for row in found["rows"] if row["within_weeks"] != "no"}
    assert f"for weeks (28 days): {len(able)} of 9 models can be trained" in found["answer"]


def trained(file: Path, made: Sequence[Answers], *more: str, model: str = "pythia-1b") -> dict[str, Any]:
    name = written(file, authors_file(made))
    (row,) = answer("survey", name, "--train", "--models", model, "--all", *more)["rows"]
    return row


def test_people_train_what_is_done_within_their_allocation_and_a_change_reaches_more(file: Path) -> None:
    made = [holder(*A100, {8: "Weeks"})] * 3 + [holder(*A100, {4: "Weeks"})] * 2 + [holder(*A100, {8: "Months"})]
    weeks = ("--weeks", "27d")
    row = trained(file, made, *weeks)
    assert [row[name] for name in ("of", "naive", "free_lunch", "everything")] == [6, 1, 4, 4]
    gains = {name: row[f"more_by_{name}"] for name in ("methods", "longer", "gpus")}
    assert gains == {"methods": 3, "longer": 5, "gpus": 0}
    assert (row["then_by_longer"], row["then_by_gpus"]) == (2, 2), "4 GPUs for months, or 8 for weeks"
    assert trained(file, made, "--weeks", "29d")["naive"] == 4
    text = repro("survey", str(file), "--train", "--all", *weeks).stdout
    assert text.startswith("4 of 6 can train Pythia-1B; without the methods 1.")
    assert "longer allocations would reach most people more of Pythia-1B: 5" in text
    hidden = repro("survey", str(file), "--train", *weeks).stdout
    assert hidden.startswith("Of 6, all but fewer than 3 can train Pythia-1B with the methods; without them fewer")


def allocated(person: Answers) -> dict[tuple[str, int], tuple[float, float | None]]:
    chosen = {column: frozenset(text.split(", ")) for column, text in person.items() if text}
    found = access(Person(chosen), LASTS)
    return {(each.gpu.called, each.gpus): (each.days, each.network) for each in found.allocations}


def test_cards_counts_durations_and_links_follow_from_the_answers() -> None:
    hopper = ("data_center", "Hopper (H100 / H200 / GH200)", "80 GB")
    assert allocated(holder(*hopper, {2: "Days"})) == {("H100", 1): (7, None), ("H100", 2): (7, None)}
    assert set(allocated(holder(*hopper, {1: "Days"}, gpu_link="No"))) == {("H100 PCIe", 1)}
    both = ("data_center", "Volta (V100), Hopper (H100 / H200 / GH200)", "32 GB")
    assert set(allocated(holder(*both, {1: "Hours"}))) == {("V100 32 GB", 1)}, "no Hopper has so little"
    unsure = ("workstation", "Ampere (RTX A2000 / A4000 / ... / A6000)", "Not sure")
    assert allocated(holder(*unsure, {1: "Indefinitely"})) == {("RTX A5000", 1): (1825, None)}
    alone = allocated(holder(*A100, {16: "Weeks"}))
    assert max(gpus for _, gpus in alone) == 8, "no network joins two nodes"
    joined = allocated(holder(*A100, {16: "Weeks"}, node_link="Ethernet (10 Gbps)"))
    assert joined["A100", 16] == (28, 10e9 / 8)
    fast = training.days("pythia-1b", "A100", 16, 200e9 / 8, "everything")
    slow = training.days("pythia-1b", "A100", 16, 10e9 / 8, "everything")
    assert fast is not None
    assert slow is not None
    assert fast.days < slow.days


def test_who_has_no_card_of_the_catalogue_is_counted_as_not_known(file: Path) -> None:
    amd = [holder("data_center", "[AMD] Instinct MI", "64 GB", {8: "Months"})] * 4
    none = [holder(*A100, {})] * 3
    found = answer("survey", written(file, authors_file([*amd, *none])), "--train", "--models", "vit")
    assert found["rows"][0]["everything"] == "fewer than 3"
    assert "Of 4 people the GPUs are not known" in found["notes"][0]


def test_days_that_were_measured_are_taken_before_predicted_ones(file: Path) -> None:
    hopper = ("data_center", "Hopper (H100 / H200 / GH200)", "80 GB")
    row = trained(file, [holder(*hopper, {1: "Indefinitely"})] * 3, model="vit")
    assert row["origin"] == "measured"


def test_each_card_is_of_the_catalogue_and_stands_for_answers_that_can_be_given() -> None:
    known = {gpu.name: gpu for gpu in by_name().values()}
    for card in cards():
        begun = {choice.text.split(" ")[0] for choice in questions()[f"{card.kind}_gen"].choices}
        assert card.generation in begun
        assert f"{card.memory_gb:g} GB" in {choice.text for choice in questions()[f"{card.kind}_mem"].choices}
        for name in filter(None, (card.gpu, card.without_link)):
            assert known[name].generation == {"Lovelace": "Ada"}.get(card.generation, card.generation)
            assert abs(known[name].memory_gb - card.memory_gb) <= 8


# --- The page ---


def opened(browser: Browser, viewport: ViewportSize, page: Path) -> Page:  # noqa: F811
    """The page, which asks for no other file."""
    tab, asked = browser.new_page(viewport=viewport), list[str]()
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.as_uri())
    assert asked == [page.as_uri()]
    return tab


def test_the_page_shows_the_headline_and_all_figures_in_a_browser(
    browser: Browser,  # noqa: F811
    file: Path,
    tmp_path: Path,
) -> None:
    with drawing():
        done = repro("survey", written(file, export(people(100))), "--out", str(tmp_path))
    assert "survey.html" in done.stderr
    for viewport in (DESK, PHONE):
        tab = opened(browser, viewport, tmp_path / "survey.html")
        assert re.search("can train Pythia.1B", tab.locator("h1").inner_text())
        assert [tab.locator("figure h3").nth(each).inner_text() for each in range(4)] == [
            "Who can train what",
            "Shares of section 2 beside the paper's",
            "Figure 1 How long one may use N GPUs",
            "Figure 8 Who answered, and what they have",
        ]
        assert tab.locator("figure svg").count() == 5 + 13
        assert tab.locator("#training tbody tr").count() == 9
        assert tab.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        cut = tab.locator("figure svg text").evaluate_all(
            """all => all.filter(text => {
                const card = text.closest('.panel').getBoundingClientRect(), box = text.getBoundingClientRect();
                return box.left < card.left + 1 || box.right > card.right - 4;
            }).map(text => text.textContent)"""
        )
        assert cut == []
        tab.close()
