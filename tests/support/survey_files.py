"""Answers to the survey that tests make, seeded: nobody gave them."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Mapping, Sequence
from typing import Any

from repro.survey.questions import AUTHORS_COLUMNS, COUNTS, DURATIONS, KINDS
from tests.support.command_line import repro

_GENERATIONS = {
    "desktop": ("Turing (GTX 1600 series / RTX 2000 series / Titan RTX)", "Ampere (RTX 3000 series)"),
    "workstation": ("Turing (Quadro RTX series)", "Ampere (RTX A2000 / A4000 / ... / A6000)"),
    "data_center": ("Volta (V100)", "Ampere (A2 / A10 / A30 / A40 / A100)", "Hopper (H100 / H200 / GH200)"),
}
_MEMORY = {"desktop": "24 GB", "workstation": "48 GB", "data_center": "80 GB"}
Answers = dict[str, str]


def person(random: random.Random) -> Answers:
    """One person's answers, by the ids of the columns; several choices are split by a comma."""
    found = {
        "role": random.choices(("Ph.D. Student", "Postdoc", "Professor", "Master's Student"), (6, 2, 1, 1))[0],
        "areas": ", ".join(random.sample(("Machine Learning", "Deep Learning", "Computer Vision"), 2)),
        "uses": ", ".join(random.sample(("Fine-tuning", "Inference", "Training (with small data / models)"), 2)),
        "satisfaction": str(random.randint(1, 5)),
        "cloud_budget": random.choices(("0", "200", "$2,500"), (7, 2, 1))[0],
        "gpu_link": random.choice(("No", "NVLink", "NVLink, NVSwitch", "Not sure")),
        "node_link": random.choice(("No multi-node support", "Ethernet (10 Gbps)", "Infiniband HDR (200 Gbps)")),
    }
    for kind in KINDS:
        if random.random() < 0.4:
            found |= {f"{kind}_gen": "None available", f"{kind}_mem": "None available"}
            found |= {f"{kind}_{gpus}": "N/A" for gpus in COUNTS}
            continue
        found |= {f"{kind}_gen": random.choice(_GENERATIONS[kind]), f"{kind}_mem": _MEMORY[kind]}
        place = random.randint(1, 5)
        for gpus in COUNTS:  # the more, the shorter
            found[f"{kind}_{gpus}"] = DURATIONS[place - 1] if place else "N/A"
            place -= place and random.randint(0, 1)
    return found


def people(number: int, seed: int = 0) -> list[Answers]:
    """So many people, the same for the same seed."""
    chance = random.Random(seed)
    return [person(chance) for _ in range(number)]


def as_csv(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows([header, *rows])
    return text.getvalue()


def authors_file(answers: Sequence[Answers]) -> str:
    """The 34 columns of the authors' file."""
    return as_csv(AUTHORS_COLUMNS, [[each.get(column, "") for column in AUTHORS_COLUMNS] for each in answers])


def form() -> list[Mapping[str, Any]]:
    """The columns of the form that `survey --questions --format csv` makes."""
    return list(csv.DictReader(io.StringIO(repro("survey", "--questions", "--format", "csv").stdout)))


def export(answers: Sequence[Answers], **others: str) -> str:
    """What a form service exports of that form: a time and an address, then a column for each heading, which are
    numbered; several choices are split by semicolons. `others` are everybody's answers to more columns."""
    columns = form()
    header = ["Timestamp", "Email Address", *(f"Q{each['number']}. {each['question'].upper()}" for each in columns)]
    rows = []
    for number, each in enumerate(answers):
        cells = [each.get(column["column"], others.get(column["column"], "")) for column in columns]
        rows.append(
            [f"2026-04-01 10:{number:02}", f"p{number}@example.org", *(cell.replace(", ", ";") for cell in cells)]
        )
    return "\ufeff" + as_csv(header, rows)  # a byte order mark, as spreadsheets have one


# How services write several choices as a column for each: its heading, and the cell of a choice that was made or not.
SPLIT = {
    "LimeSurvey": ("{question} [{choice}]", "Yes", "No"),
    "LimeSurvey, letters": ("G01Q{number:02}. {question} [{choice}]", "Y", ""),
    "LimeSurvey, codes": ("{column}[SQ001]. {question} [{choice}]", "1", "0"),
    "Qualtrics": ("{question} - Selected Choice - {choice}", "{choice}", ""),
    "Qualtrics, numbers": ("{question} (Select all that apply.) - {choice}", "1", ""),
    "REDCap": ("{question} (choice={choice})", "Checked", "Unchecked"),
    "KoboToolbox": ("{question}/{choice}", "1", "0"),
    "Tally": ("{question} ({choice})", "TRUE", "FALSE"),
    "Alchemer": ("{choice}:{question}", "{choice}", ""),
    "SurveyMonkey": ("{question}\n{choice}", "{choice}", ""),
}


def split(answers: Sequence[Answers], service: str) -> list[list[str]]:
    """The header and the rows of an export with a column for each choice of a question of several."""
    heading, yes, no = SPLIT[service]
    rows: list[list[str]] = [[] for _ in ("header", *answers)]
    for column in form():
        several = column["answer"] == "several choices"
        for choice in column["choices"].split("; ") if several else [""]:
            words = dict(column) | {"choice": choice, "number": int(column["number"])}
            rows[0].append(heading.format_map(words) if several else column["question"])
            for row, each in zip(rows[1:], answers, strict=True):
                cell = each.get(column["column"], "")
                made = choice in cell.split(", ")
                row.append((yes if made else no).format(choice=choice) if several else cell)
    return rows


def as_printed() -> list[Answers]:
    """50 people drawn so that the paper's shares come out. Some leave questions blank, as 85 % is no share of 50."""
    found: list[Answers] = [{} for _ in range(50)]

    def give(column: str, *parts: tuple[int, str]) -> None:
        choices = [choice for number, choice in parts for _ in range(number)]
        random.Random(column).shuffle(choices)
        for each, choice in zip(found, choices, strict=False):
            each[column] = choice

    give("role", (30, "Ph.D. Student"), (12, "Masters Student"), (8, "Professor"))
    give("areas", (25, "Machine Learning, Deep Learning"), (25, "Natural Language Processing"))
    give("cloud_budget", (41, "0"), (4, "100"), (3, "3000"))
    give("satisfaction", (9, "1"), (12, "2"), (12, "3"), (9, "4"), (8, "5"))
    give("node_link", (20, "No multi-node support"), (16, "Ethernet (10 Gbps)"), (12, "Infiniband HDR (200 Gbps)"))
    found[48]["node_link"] = "Not sure"
    give("gpu_link", (20, "NVLink"), (15, "NVLink, NVSwitch"), (10, "No"), (5, "Not sure"))
    for number, each in enumerate(found[:47]):
        made = [
            *(["Fine-tuning"] if number < 35 else []),
            *(["Inference"] if number >= 10 else []),
            *(["Training (with small data / models)"] if number % 4 else []),
            *(["Model Analysis"] if number >= 20 else []),
            *(["Pre-training (with large data / models)"] if number < 8 else []),
        ]
        each["uses"] = ", ".join(made)
    for number, each in enumerate(found):
        each |= _held(
            "data_center",
            number < 39,
            "Hopper (H100 / H200 / GH200)" if number < 5 else "Ampere (A2 / A10 / A30 / A40 / A100)",
        )
        each |= _held("desktop", number % 2 == 0 and number < 40, "Ampere (RTX 3000 series)")
        each |= _held("workstation", 40 <= number < 46, "Ampere (RTX A2000 / A4000 / ... / A6000)")
        if number < 39:
            long = ["Weeks"] * 3 + ["Days"] * 2 if number < 13 else ["Days"] * 3 if number < 28 else ["Hours"] * 2
            each |= {f"data_center_{gpus}": "N/A" for gpus in COUNTS}
            each |= {f"data_center_{gpus}": text for gpus, text in zip(COUNTS, long, strict=False)}
    return found


def _held(kind: str, has: bool, generation: str) -> Answers:
    if not has:
        return {f"{kind}_gen": "None available", f"{kind}_mem": "None available"}
    return {f"{kind}_gen": generation, f"{kind}_mem": _MEMORY[kind]} | {f"{kind}_{gpus}": "Hours" for gpus in COUNTS}


def holder(kind: str, generation: str, memory: str, lasts: Mapping[int, str], **more: str) -> Answers:
    """A person who has one kind of GPUs alone."""
    found = {"role": "Postdoc", "gpu_link": "NVLink", "node_link": "No multi-node support"} | more
    for other in KINDS:
        found |= _held(other, False, "")
    found |= {f"{kind}_gen": generation, f"{kind}_mem": memory}
    return found | {f"{kind}_{gpus}": lasts.get(gpus, "N/A") for gpus in COUNTS}
