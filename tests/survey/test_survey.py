"""The survey: the form that asks it again, what is counted of people's answers and what is not shown, and who can train
what. All answers here are made up by tests/support/survey_files.py."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from repro import models
from repro.claims.survey import SURVEYED
from repro.formats import rough
from repro.paper.gpus import by_name
from repro.paper.tables import quantities
from repro.run.corrected import corrected_table
from repro.survey import shares, training
from repro.survey.allocations import LASTS, Access, Allocation, access, cards
from repro.survey.answers import _budget, read
from repro.survey.counts import Answers as Read
from repro.survey.counts import Person, fisher, holm, wilson
from repro.survey.questions import questions
from tests.report.test_report_page import DESK, PHONE, browser  # noqa: F401  # a fixture
from tests.support.command_line import answer, refusal, repro
from tests.support.survey_files import (
    SPLIT,
    Answers,
    as_csv,
    as_printed,
    authors_file,
    export,
    form,
    holder,
    people,
    split,
)

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


def test_the_19_questions_are_printed_with_their_choices() -> None:
    page = repro("survey", "--questions", "--format", "markdown").stdout
    assert re.findall(r"^## ([0-9]+)\. ", page, re.MULTILINE) == [str(number) for number in range(1, 20)]
    assert "## 5. How satisfied are you by your current access to GPUs? (1" in page
    added = re.findall(r"^- (.*) \(added, of 20[0-9]{2}\)$", page, re.MULTILINE)
    assert len(added) == 9
    assert {"Blackwell (RTX 5000 series)", "[AMD] Instinct MI300 series", "141 GB"} <= set(added)
    assert [row["question"] for row in answer("survey", "--questions")] == [row["question"] for row in form()]


def test_an_export_of_the_form_and_the_authors_columns_read_back(file: Path) -> None:
    made = people(100)
    of_form = counts(written(file, export(made)), "--exact")
    assert of_form == counts(written(file, authors_file(made)), "--exact")
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
    done = repro("survey", written(file, as_csv(header, rows)), "--exact", "--format", "json")
    assert len(done.stderr.splitlines()) == 1, "the warning of --exact alone"
    assert {row["people"] for row in json.loads(done.stdout)["rows"] if row["choice"] == "are PhD students"} == {
        sum(person["role"] == "Ph.D. Student" for person in made)
    }


# --- What form services export ---

MADE = people(60)
USES, ROLE, LINK = (
    "What do you use GPUs for?",
    "What is your role?",
    "Does your system have any GPU-to-GPU connections?",
)


@cache
def as_answered() -> dict[tuple[str, str, str], Any]:
    """The counts of MADE, which every export of them must give."""
    with TemporaryDirectory() as folder:
        return counts(written(Path(folder) / "answers.csv", authors_file(MADE)), "--exact")


@pytest.mark.parametrize("service", SPLIT)
def test_a_column_for_each_choice_says_whether_it_was_made(service: str, file: Path) -> None:
    header, *rows = split(MADE, service)
    assert counts(written(file, as_csv(header, rows)), "--exact") == as_answered()


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_quoted_cells_are_read_with_any_delimiter(delimiter: str, file: Path) -> None:
    header, *rows = split(MADE, "LimeSurvey")
    times = ["2026-04-01 10:00:00"] * len(rows)
    with file.open("w", newline="") as lines:
        writer = csv.writer(lines, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerow(["Response ID", "Date submitted", *header])
        writer.writerows([number, time, *row] for number, (time, row) in enumerate(zip(times, rows, strict=True)))
        writer.writerow([100, "", *rows[0]])
    done = repro("survey", str(file), "--exact", "--format", "json")
    assert {
        (row["part"], row["question"], row["choice"]): row["people"] for row in json.loads(done.stdout)["rows"]
    } == (as_answered())
    assert "rows left out: 1 of unfinished answers" in done.stderr


@pytest.mark.parametrize("cut", [0, 1])
@pytest.mark.parametrize("codes", ["Q", ""])
def test_qualtrics_headers_previews_and_unfinished_answers_are_nobodys(codes: str, cut: int, file: Path) -> None:
    """Three header rows, of which the second asks, also where the first has the columns' names; or the last two."""
    header, *rows = split(MADE, "Qualtrics")
    named = [each["column"] for each in form()]
    names = [f"{codes}{place}" if codes else named[place % len(named)] for place in range(len(header))]
    first = ["StartDate", "Status", "Finished", "Progress", "ResponseId", *names]
    texts = ["Start Date", "Response Type", "Finished", "Progress", "Response ID", *header]
    ids = [json.dumps({"ImportId": name}) for name in first]
    answered = [["2026-04-01", "IP Address", "True", "100", f"R_{place}", *row] for place, row in enumerate(rows)]
    left = [
        ["2026-04-01", "Survey Preview", "True", "100", "R_a", *rows[0]],
        ["2026-04-01", "Survey Test", "True", "100", "R_b", *rows[0]],
        ["2026-04-01", "IP Address", "False", "40", "R_c", *rows[0]],
    ]
    name = written(
        file, as_csv(first, [texts, ids, *answered, *left]) if not cut else as_csv(texts, [ids, *answered, *left])
    )
    assert counts(name, "--exact") == as_answered()
    told = repro("survey", name).stderr
    assert "rows left out: 1 of headings, 2 of previews, tests or spam, 1 of unfinished answers" in told


def test_surveymonkeys_two_header_rows_are_one(file: Path) -> None:
    header, *rows = split(MADE, "SurveyMonkey")
    first, second, last = ["Respondent ID"], [""], ""
    for heading in header:
        question, _, choice = heading.replace(" [", "\n").rstrip("]").partition("\n")
        first.append("" if question == last else question)
        second.append(choice or "Response")
        last = question
    made = [[str(118_000_000_000 + place), *row] for place, row in enumerate(rows)]
    assert counts(written(file, as_csv(first, [second, *made])), "--exact") == as_answered()


def test_a_grid_with_the_row_before_its_question_is_read(file: Path) -> None:
    header = [
        f"{each['question'].partition(' [')[2].rstrip(']')}:{each['question'].partition(' [')[0]}"
        if each["answer"] == "one choice a row"
        else each["question"]
        for each in form()
    ]
    rows = [[person.get(each["column"], "") for each in form()] for person in MADE]
    assert counts(written(file, as_csv(header, rows)), "--exact") == as_answered()


def test_headings_and_cells_made_to_take_long_do_not(file: Path) -> None:
    headings = ["1" * 50_000, "a:" * 25_000, "role " * 10_000, "a1 " * 15_000, f"{ROLE} {'other ' * 10_000}"]
    written(file, as_csv(["role", *headings], [["1" * 50_000 + "!", *"12345"]]))
    began = time.process_time()
    assert len(read([file]).people) == 1
    assert time.process_time() - began < 10


def test_columns_without_a_heading_make_no_second_header_row(file: Path) -> None:
    rows = [f"{role},Inference,{place},x,Inference" for place, role in enumerate(["Postdoc"] * 6)]
    found = counts(written(file, "\n".join([f"{ROLE},{USES},,,", *rows])), "--exact")
    assert found["figure 8", "uses", "Inference"] == found["figure 8", "role", "Postdoc"] == 6


def test_microsofts_grids_are_found_by_the_question_before_them(file: Path) -> None:
    header, places = ["ID", "Start time", "Completion time", "Email", "Name"], dict[str, int]()
    for each in form():
        question, _, row = each["question"].partition(" [")
        alone = row.rstrip("]")
        places[alone] = places.get(alone, 0) + 1
        header.append(f"{alone}{places[alone] if places[alone] > 1 else ''}" if alone else question)
    rows = [
        [str(place), "4/1/26 10:00", "4/1/26 10:05", "anonymous", ""]
        + [
            person.get(each["column"], "").replace(", ", ";") + ";" * (each["answer"] == "several choices")
            for each in form()
        ]
        for place, person in enumerate(MADE)
    ]
    assert counts(written(file, as_csv(header, rows)), "--exact") == as_answered()


def test_a_text_besides_the_choices_is_other(file: Path) -> None:
    header = f"{USES} [Inference],{USES} [Other],{ROLE} - Selected Choice,{ROLE} - Other (please specify) - Text"
    rows = ["Yes,,Postdoc,", "Yes,No,Postdoc,", "No,Games,,Pilot", "No,N/A,Postdoc,"]
    found = counts(written(file, "\n".join([header, *rows])), "--exact")
    assert (found["figure 8", "uses", "Inference"], found["figure 8", "uses", "Other"]) == (2, 1)
    assert (found["figure 8", "role", "Postdoc"], found["figure 8", "role", "Other"]) == (3, 1)


def test_a_no_below_the_choice_no_is_read_by_the_other_columns(file: Path) -> None:
    header = f"{LINK} [No],{LINK} [NVLink]"
    for rows, none in ((["No,", ",NVLink", "No,"], 2), (["No,Yes", "Yes,No", "No,Yes"], 1)):
        found = counts(written(file, "\n".join([header, *rows])), "--exact")
        assert (found["figure 8", "gpu_link", "No"], found["figure 8", "gpu_link", "NVLink"]) == (none, 3 - none)


UNCLEAR = {
    "codes for choices": (f"{USES} [SQ001],{USES} [SQ002]\nYes,No\n", "column 2: it is not clear which"),
    "a choice of one's own": (f"{USES} [Inference],{USES} [Games]\nYes,No\n", "column 2: asks question 4 for what is"),
    "a choice twice": (f"{USES} [Inference],{USES} - Inference\nYes,No\n", "column 2: asks question 4 for what is"),
    "a question twice": ("role,role\nPostdoc,\n,Professor\n", "column 2: it is not clear which"),
    "ranks": (f"{USES} [Inference],{USES} [Fine-tuning]\n1,2\n", "row 2, column 2 (question 4): it does not say"),
    "few codes": ("uses\n" + '"1,3"\n' * 2, "row 2, column 1 (question 4): no answer is one of the choices"),
    "codes": ("role\n" + "A3\n" * 6, "row 2, column 1 (question 2): no answer is one of the choices"),
    "letters below a question": (f"{USES} [SQ001]\n" + "Y\n" * 6, "row 2, column 1 (question 4): no answer is one of"),
    "another language": ("role,Finished\nPostdoc,Falsch\n", "row 2, column 2: it does not say whether the answers are"),
    "nobody": ("role,Date submitted\nPostdoc,\n", "row 2: no answers (rows left out: 1 of unfinished answers)"),
}  # fmt: skip


@pytest.mark.parametrize("kind", UNCLEAR)
def test_an_export_that_may_be_miscounted_is_refused_by_name(kind: str, file: Path) -> None:
    text, message = UNCLEAR[kind]
    done = repro("survey", written(file, text), "--exact")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr.splitlines()[-1]


# --- Counting ---


def test_people_drawn_to_the_printed_shares_give_the_papers_numbers(file: Path) -> None:
    name = written(file, authors_file(as_printed()))
    found = answer("survey", name)
    assert "Of 14 shares that the paper prints, 0 differ" in found["answer"]
    claims = {row["id"]: row for row in answer("claims", "--survey", name) if row["id"] in SURVEYED}
    assert {id: row["verdict"] for id, row in claims.items()} == dict.fromkeys(SURVEYED, "holds")
    (source,) = read([file]).sources
    assert all("taken for the authors' file" in row["reason"] for row in claims.values())
    assert all(source.digest[:16] in row["reason"] for row in claims.values())
    assert claims["survey-no-cloud-budget"]["recomputed"] == pytest.approx(100 * 41 / 48)


def test_claims_on_other_people_are_judged_by_a_test_and_named_as_theirs(file: Path) -> None:
    claims = {row["id"]: row for row in answer("claims", "--survey", written(file, authors_file(as_printed()[:40])))}
    assert claims["survey-respondents"]["verdict"] == "needs_measurement"
    assert claims["survey-unsatisfied"]["verdict"] == "holds", "not 66 % of 40, and no other population"
    assert "of others than the paper's 40 people" in claims["survey-unsatisfied"]["reason"]
    without = answer("claims", "survey-unsatisfied")[0]
    assert (without["verdict"], without["recomputed"]) == ("needs_measurement", None)
    assert "artifacts/survey.csv" in without["reason"]
    assert "claims --survey" in without["reason"]


def test_intervals_are_wilsons() -> None:
    for number, of, low, high in ((5, 10, 23.659, 76.341), (0, 10, 0.0, 27.753), (41, 48, 72.836, 92.755)):
        found = wilson(number, of)
        assert [found.low, found.high] == pytest.approx([low, high], abs=0.01)


def drawn_of_one_population(chance: random.Random, number: int) -> Read:
    """The answers of so many people of one population."""
    found = []
    for _ in range(number):
        chosen = {
            "role": {chance.choices(("Ph.D. Student", "Postdoc"), (6, 4))[0]},
            "cloud_budget": {chance.choices(("0 USD", "up to 500 USD"), (85, 15))[0]},
            "satisfaction": {chance.choices(("(1)", "(4)"), (66, 34))[0]},
            "uses": {name for name in ("Fine-tuning", "Inference", "Training", "Model") if chance.random() < 0.75},
            "node_link": {chance.choices(("No multi-node support", "Ethernet", "Infiniband"), (4, 3, 3))[0]},
            "gpu_link": {chance.choices(("NVLink", "No"), (7, 3))[0]},
        }
        has = {"data_center": 0.78, "desktop": 0.35, "workstation": 0.25}
        chosen |= {
            f"{kind}_gen": {"Ampere" if chance.random() < share else "None available"} for kind, share in has.items()
        }
        found.append(Person({column: frozenset(choices) for column, choices in chosen.items() if choices}))
    return Read(found, frozenset(questions()), (), (), exact=False)


@pytest.mark.parametrize("number", [50, 300])
def test_answers_of_the_papers_population_differ_in_at_most_5_percent_of_surveys(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both groups are drawn, the paper's 50 people as well; its shares are printed as the paper prints them."""
    chance, printed = random.Random(number), quantities()
    surveys = differing = 0
    for _ in range(150):
        theirs = replace(drawn_of_one_population(chance, 50), exact=True)
        values = dict[str, float]()
        for each in shares.SHARES:
            value = each.count(theirs).share
            assert value is not None
            values |= dict.fromkeys(each.quantities, round(value.value))
        more = shares.more_data_center(theirs)
        if more is None or more.value is None:
            continue
        values["survey/more_data_center"] = round(more.value.value)
        drawn = {name: replace(printed[name], value=value) for name, value in values.items()}
        monkeypatch.setattr(shares, "quantities", lambda drawn=drawn: drawn)
        surveys += 1
        differing += any(each.differs for each in shares.compared(drawn_of_one_population(chance, number)))
    assert surveys > 140
    assert differing <= 0.08 * surveys, "5 % and what chance adds to it"


def test_shares_of_another_population_are_found(file: Path) -> None:
    found = answer("survey", written(file, export([person | {"role": "Professor"} for person in people(100)])))
    assert "0 % are PhD students" not in found["answer"], "fewer than 5 have no share"
    made = [person | {"node_link": "No multi-node support"} for person in people(100)]
    assert (
        "100 % have no multi-node support (the paper: 41 %)" in answer("survey", written(file, export(made)))["answer"]
    )


def test_the_tests_of_shares_are_fishers_and_holms() -> None:
    assert fisher(3, 4, 1, 4) == pytest.approx(34 / 70), "Fisher's lady who tasted tea"
    assert fisher(8, 10, 1, 6) == pytest.approx(0.034965, abs=1e-6)
    assert fisher(5, 50, 10, 100) == pytest.approx(1)
    assert fisher(60_000, 100_000, 20, 50) < 0.01
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([]) == []


# --- What is not shown ---


def test_counts_are_rounded_to_5_and_those_below_have_no_share(file: Path) -> None:
    made = [
        {"role": role}
        for role, number in (("Professor", 4), ("Postdoc", 7), ("Ph.D. Student", 13))
        for _ in range(number)
    ]
    name = written(file, authors_file(made))
    found = {row["choice"]: row for row in answer("survey", name)["rows"] if row["question"] == "role"}
    of = {choice: [row[key] for key in ("people", "of", "percent")] for choice, row in found.items()}
    assert of["Professor"] == ["<5", 25, None]
    assert of["Postdoc"] == [5, 25, 20]
    assert of["Ph.D. Student"] == [15, 25, 60]
    assert of["Undergraduate Student"] == ["<5", 25, None]
    interval = wilson(15, 25)
    assert (found["Ph.D. Student"]["low"], found["Ph.D. Student"]["high"]) == (
        round(interval.low, 3),
        round(interval.high, 3),
    )
    exact = repro("survey", name, "--exact")
    assert "repro: warning: counts are exact" in exact.stderr
    assert counts(name, "--exact")["figure 8", "role", "Professor"] == 4
    few = written(file, authors_file(people(4)))
    assert "answers of <5 people, of whom nothing is shown; survey --exact shows it" in refusal("survey", few)
    assert "<5 people" in refusal("claims", "--survey", few)


@pytest.mark.slow
def test_answers_whose_counts_round_alike_print_alike_by_every_command(file: Path, tmp_path: Path) -> None:
    hopper = ("data_center", "Hopper (H100 / H200 / GH200)", "80 GB")
    many, few = (
        holder(*A100, {8: "Months"}, uses="Inference"),
        holder(*hopper, {16: "Weeks", 8: "odd"}, satisfaction="2", cloud_budget="7", role="odd", gpu_link="odd"),
    )
    shown = []
    for of_many, of_few in ((8, 0), (9, 3)):
        name = written(file, authors_file([many] * of_many + [few] * of_few))
        output = [
            repro("survey", name, *more, "--format", format).stdout for format in FORMATS for more in ((), ("--train",))
        ]
        repro("survey", name, "--out", str(tmp_path))
        output += [repro("claims", "--survey", name, "--format", "json").stdout, (tmp_path / "survey.html").read_text()]
        shown.append([re.sub("sha256 [0-9a-f]{16}", "", text) for text in output])
    assert shown[0] == shown[1]


def test_no_share_of_a_claim_is_of_fewer_than_5_people(file: Path) -> None:
    one = [holder(*A100, {64: "Indefinitely"}), *(holder(*A100, {}) for _ in range(5))]
    claim = repro("claims", "survey-availability", "--survey", written(file, authors_file(one))).stdout
    assert "64 GPUs" not in claim
    assert "too few people say for how long they may use GPUs to show a share" in " ".join(claim.split())
    claim = repro("claims", "survey-h100", "--survey", str(file)).stdout
    assert "have access to Hopper GPUs: fewer than 5 people, of whom no share is shown" in " ".join(claim.split())


def test_only_an_address_an_id_or_a_name_tells_that_a_person_answered_twice(file: Path, tmp_path: Path) -> None:
    def answered(heading: str, *cells: str) -> str:
        rows = [f"{cell},Postdoc,{number % 5 + 1}" for number, cell in enumerate(cells)]
        return repro("survey", written(file, "\n".join([f"{heading},role,satisfaction", *rows])), "--exact").stdout

    for heading in ("May we contact you by email?", "Department name", "First name"):
        assert "10 people answered" in answered(heading, *["Yes"] * 5, *["No"] * 5)
    assert "10 people answered" in answered("Name (optional)", *["-"] * 4, *["n/a"] * 4, "A", "B")
    assert "9 people answered" in answered("Your email address", *map(str, range(9)), "8")
    answered("Response ID", *map(str, range(10)))
    other = tmp_path / "other.csv"
    other.write_text(file.read_text().replace("Postdoc", "Professor"))
    assert "20 people answered" in repro("survey", str(file), str(other), "--exact").stdout


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
    output = [repro("survey", name, *more, "--format", format) for format in FORMATS for more in ((), ("--train",))]
    output += [repro("survey", name, "--exact", "--out", str(tmp_path)), repro("claims", "--survey", name)]
    texts = [text for done in output for text in (done.stdout, done.stderr)] + [(tmp_path / "survey.html").read_text()]
    assert {done.returncode for done in output} == {0}
    for text in texts:
        for part in (SECRET, "onerror", "calc", "\x1b", "\u202e", "example.org", "2026-04-01"):
            assert part not in text
    assert "question 2): an answer that is none of the choices, counted as other, as in other rows" in output[0].stderr
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
        ("a.csv --models vit", "--models is of what people can train: add --train"),
        ("--train --exact", "--exact is of people's answers: name ANSWERS.csv"),
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
        "survey", written(file, "\n".join(["Email address,role,satisfaction,favourite colour", *rows])), "--exact"
    )
    assert done.returncode == 0
    lines = [line.removeprefix(f"repro: {file}, ") for line in done.stderr.splitlines()]
    assert (
        "row 1: no column asks question 6 (What is your monthly budget (in USD) for cloud compute (e.g" in done.stderr
    )
    assert "row 1: no column asks question 9 (How long can you use these Desktop GPUs for?)" in lines
    assert lines[-5:-1] == [
        "row 6, column 3: 2 cells where the header has 4; the row is left out",
        "row 8: it answers no question, and is left out",
        "row 5, column 1: the same person as in " + f"{file}, row 2; the later answers are counted",
        "row 3, column 3 (question 5): an answer that is none of the choices, counted as other, as in other rows",
    ]
    assert "8 people answered" in done.stdout
    for heading, people_ in (("Completion time", 3), ("Do you consent?", 4)):
        twice = [f"{number},Postdoc" for number in (1, 1, 2, 3)]
        done = repro("survey", written(file, "\n".join([f"{heading},role", *twice])), "--exact")
        assert f"{people_} people answered" in done.stdout
        assert f"row 3: the same in every column as {file}, row 2" in done.stderr
    assert "same content" in refusal("survey", str(file), str(file))


# --- Who can train what ---


def test_without_answers_academic_hardware_trains_what_corrected_days_allow() -> None:
    found = answer("survey", "--train", "--stack", "paper")
    assert len(found["rows"]) == 27
    for cell in corrected_table("4"):
        if (cell.gpus, cell.measured_days) == (8, None) and cell.gpu != "H100" and cell.days:
            (row,) = (row for row in found["rows"] if (row["model"], row["gpu"]) == (cell.model, cell.gpu))
            assert row["everything_days"] <= row["naive_days"] <= rough(cell.days)
            if row["naive_gpus"] == 8:
                assert (row["naive_days"], row["naive_origin"]) == (rough(cell.days), "predicted")
    one = next(row for row in found["rows"] if (row["model"], row["gpu"]) == ("Pythia-1B", "A100"))
    assert 7 < one["free_lunch_days"] < one["naive_days"] < 28
    assert (one["within_days"], one["within_weeks"]) == ("no", "naive")
    able = {row["model"] for row in found["rows"] if row["within_weeks"] != "no"}
    assert f" and {len(able)} of 9 models in weeks (28 days); without the methods " in found["answer"]


def test_the_number_of_gpus_is_that_of_the_fewest_days() -> None:
    """Of printed days these are not always those on most GPUs, as for RoBERTa with naive settings on the RTX 3090."""
    [row] = (row for row in answer("survey", "--train", "--models", "roberta", "--by", "printed")["rows"][:1])
    assert (row["gpu"], row["naive_gpus"], row["naive_days"]) == ("RTX 3090", 4, 418)


def trained(file: Path, made: Sequence[Answers], *more: str, model: str = "pythia-1b") -> dict[str, Any]:
    name = written(file, authors_file(made))
    (row,) = answer("survey", name, "--train", "--models", model, "--exact", *more)["rows"]
    return row


def test_people_train_what_is_done_within_their_allocation_and_a_change_reaches_more(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LASTS, "Weeks", 26.0)
    made = [holder(*A100, {8: "Weeks"})] * 3 + [holder(*A100, {4: "Weeks"})] * 2 + [holder(*A100, {8: "Months"})]
    row = trained(file, made, "--stack", "paper")
    assert [row[name] for name in ("of", "naive", "free_lunch", "everything")] == [6, 1, 4, 4]
    gains = {name: row[f"more_by_{name}"] for name in ("methods", "longer", "gpus")}
    assert gains == {"methods": 3, "longer": 5, "gpus": 0}
    text = repro("survey", str(file), "--train", "--exact", "--stack", "paper").stdout
    assert text.startswith("4 of 6 can train Pythia-1B; without the methods 1.")
    assert "longer allocations would reach most people more of Pythia-1B: 5" in text
    rounded = repro("survey", str(file), "--train", "--stack", "paper").stdout
    assert rounded.startswith("<5 of 5 can train Pythia-1B; without the methods <5.")
    monkeypatch.setitem(LASTS, "Weeks", 29.0)
    assert trained(file, made, "--stack", "paper")["naive"] == 4


def allocated(person: Answers) -> dict[tuple[str, int], tuple[float, float | None]]:
    chosen = {column: frozenset(text.split(", ")) for column, text in person.items() if text}
    found = access(Person(chosen))
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
    fast = training.true_days("pythia-1b", "A100", 16, 200e9 / 8, "everything")
    slow = training.true_days("pythia-1b", "A100", 16, 10e9 / 8, "everything")
    assert fast is not None
    assert slow is not None
    assert fast.days < slow.days


def test_who_has_no_card_of_the_catalogue_is_counted_as_not_known(file: Path) -> None:
    amd = [holder("data_center", "[AMD] Instinct MI", "64 GB", {8: "Months"})] * 4
    none = [holder(*A100, {})] * 3
    found = answer("survey", written(file, authors_file([*amd, *none])), "--train", "--models", "vit")
    assert found["rows"][0]["everything"] == "<5"
    assert "Of <5 people the GPUs are not known" in found["notes"][1]


def test_days_that_were_measured_are_taken_before_predicted_ones(file: Path) -> None:
    hopper = ("data_center", "Hopper (H100 / H200 / GH200)", "80 GB")
    people = [holder(*hopper, {1: "Indefinitely"})] * 3
    for stack, origin in (("today", "measured"), ("paper", "predicted")):
        assert trained(file, people, "--stack", stack, model="vit")["origin"] == origin


def test_whatever_is_done_just_in_time_is_counted() -> None:
    """Predictions that cannot be in time are not made: none of these may be among them."""
    for model, gpu in product(models.IDS, ("RTX 3090", "A6000", "A100", "H100")):
        took = training.true_days(model, gpu, 1, None, "everything")
        if took is not None:
            just_enough = Access((Allocation(by_name()[gpu], 1, took.days, None),), True)
            assert training.in_time(model, just_enough, "everything") == took, (model, gpu)


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
    done = repro("survey", written(file, export(people(100))), "--out", str(tmp_path))
    assert "survey.html" in done.stderr
    for viewport in (DESK, PHONE):
        tab = opened(browser, viewport, tmp_path / "survey.html")
        assert re.search("can train Pythia.1B", tab.locator("h1").inner_text())
        assert [tab.locator("figure h3").nth(each).inner_text() for each in range(3)] == [
            "Who can train what",
            "Figure 1 How long one may use N GPUs",
            "Figure 8 Who answered, and what they have",
        ]
        assert tab.locator("figure svg").count() == 4 + 13
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
