"""The shares of section 2 and figure 8, counted again and held against the paper's; figures 1 and 8 as counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import erfc, exp, log, sqrt

from ..formats import Interval, yes
from ..paper.tables import quantities
from ..printout import Column
from .counts import BASE, Answers, Count, Person, Z, fisher, holm, shown
from .questions import (
    AUTHORS_PEOPLE,
    BUDGETS,
    COUNTS,
    DURATIONS,
    KINDS,
    NONE_AVAILABLE,
    NOT_AVAILABLE,
    NOT_SURE,
    OTHER,
    Question,
    questions,
)

PHD = "Ph.D. Student"
NO_NODES = "No multi-node support"
LINKS = ("NVLink", "NVSwitch", "AMD Infinity Fabric")
TYPICAL, HIGHER_END = 1 / 2, 1 / 4  # of those who answered: what "typical" and "some" are taken for


@dataclass(frozen=True)
class Share:
    """A share of those who answered the question `column`: who made a choice that begins with one of `begin`. `claim`
    is the claim that states it, `quantities` names the paper's number, or the two of a range."""

    claim: str
    what: str
    column: str
    begin: tuple[str, ...]
    quantities: tuple[str, ...]
    note: str = ""

    @property
    def paper(self) -> Interval:
        """Return the paper's number with the bounds of its rounding, or of its range."""
        if len(self.quantities) == 1:
            return _printed(self.quantities[0])
        low, high = (quantities()[name].value for name in self.quantities)
        return Interval((low + high) / 2, low - 0.5, high + 0.5)

    @property
    def paper_text(self) -> str:
        """Return the paper's number as printed."""
        return " to ".join(f"{quantities()[name].value:g}" for name in self.quantities) + " %"

    def count(self, answers: Answers) -> Count:
        """Return the people whom it counts."""
        asked = [chosen for person in answers.people if (chosen := person.chosen.get(self.column))]
        made = sum(any(choice.startswith(self.begin) for choice in chosen) for chosen in asked)
        return answers.count(made, len(asked))


def _printed(name: str) -> Interval:
    """Return a printed number, rounded to the last place that is not zero, as in claims.csv."""
    value = quantities()[name].value
    return Interval.rounded(value, 10 if value % 10 == 0 else 1)


_SMALL = ("survey/small_training_least", "survey/small_training_most")

SHARES: tuple[Share, ...] = (
    Share("survey-phd-students", "are PhD students", "role", (PHD,), ("survey/phd",)),
    Share(
        "survey-no-cloud-budget", "have no budget for cloud compute", "cloud_budget", BUDGETS[:1], ("survey/no_cloud",)
    ),
    Share(
        "survey-unsatisfied",
        "rate their satisfaction at most 3 of 5",
        "satisfaction",
        ("(1)", "(2)", "(3)"),
        ("survey/unsatisfied",),
    ),
    Share("survey-no-multi-node", "have no multi-node support", "node_link", (NO_NODES,), ("survey/no_multi_node",)),
    Share("survey-fine-tuning", "use GPUs to fine-tune", "uses", ("Fine-tuning",), _SMALL),
    Share("survey-fine-tuning", "use GPUs for inference", "uses", ("Inference",), _SMALL),
    Share("survey-fine-tuning", "use GPUs to train small models", "uses", ("Training",), _SMALL),
    Share("survey-analysis", "use GPUs to analyse models", "uses", ("Model Analysis",), ("survey/analysis",)),
    Share(
        "survey-pre-training",
        "use GPUs to pre-train",
        "uses",
        ("Pre-training",),
        ("survey/pre_training",),
        "the choice, whatever the size: sizes are texts, which are never read",
    ),
    Share(
        "survey-h100",
        "have access to Hopper GPUs",
        "data_center_gen",
        ("Hopper",),
        ("survey/h100",),
        "one choice is H100, H200 and GH200",
    ),
    Share("survey-inter-gpu", "have links between GPUs", "gpu_link", LINKS, ("survey/inter_gpu",)),
    Share("survey-ethernet", "have Ethernet between nodes", "node_link", ("Ethernet",), ("survey/ethernet",)),
    Share("survey-infiniband", "have Infiniband between nodes", "node_link", ("Infiniband",), ("survey/infiniband",)),
)


@dataclass(frozen=True)
class Compared:
    """A number of the paper beside that of the answers, `value` with its 95 % interval, None of fewer than 5 people.

    `chance` is the p-value of the test that both are of the same population, and `differs` what it finds beside the
    other numbers; None without a value. The authors' own file differs where it does not round to what is printed.
    """

    claim: str
    what: str
    count: Count
    value: Interval | None
    paper: Interval
    paper_text: str
    note: str
    chance: float | None
    differs: bool | None = None

    @property
    def text(self) -> str:
        """Return the answers' number and the paper's in words; there must be one."""
        assert self.value is not None
        what = self.what if self.value.value >= 0 else self.what.replace("more have", "fewer have", 1)
        return f"{abs(self.value.value):.0f} % {what} (the paper: {self.paper_text})"


def compared(answers: Answers) -> list[Compared]:
    """Return the paper's shares that the answers' files ask for, beside the answers'."""
    found = []
    for share in SHARES:
        if share.column not in answers.columns:
            continue
        count, value = (count := share.count(answers)), count.share
        chance = None if value is None else _same_share(count, share.paper)
        found.append(Compared(share.claim, share.what, count, value, share.paper, share.paper_text, share.note, chance))
        if share.claim == "survey-h100" and (more := more_data_center(answers)) is not None:
            found.append(more)
    return _judged(found, answers.authors)


def _judged(found: Sequence[Compared], authors: bool) -> list[Compared]:
    if authors:
        return [
            replace(each, differs=not each.paper.low <= each.value.value <= each.paper.high) if each.value else each
            for each in found
        ]
    differs = iter(holm([each.chance for each in found if each.chance is not None]))
    return [each if each.chance is None else replace(each, differs=next(differs)) for each in found]


def _same_share(count: Count, printed: Interval) -> float:
    """Return the p-value of the answers' share beside the paper's. Of the counts that round to the printed share, the
    paper's is taken for the one nearest to the answers', among as many of its 50 people as can have it."""
    assert count.people is not None
    assert count.of
    share = count.people / count.of
    for people in range(AUTHORS_PEOPLE, 0, -1):
        made = [each for each in range(people + 1) if printed.low <= 100 * each / people <= printed.high]
        if made:
            nearest = min(made, key=lambda each: abs(each / people - share))
            return fisher(count.people, count.of, nearest, people)
    raise AssertionError(printed)


def has_kind(person: Person, kind: str) -> bool:
    """Return whether a person named a GPU of this kind."""
    return bool(person.chosen.get(f"{kind}_gen", frozenset()) - {NOT_SURE, NONE_AVAILABLE})


def more_data_center(answers: Answers) -> Compared | None:
    """Return by how many percent more people have data center GPUs than desktop or workstation GPUs, with the interval
    of a ratio of paired shares by its logarithm; None where a file does not ask for all three kinds."""
    if not all(f"{kind}_gen" in answers.columns for kind in KINDS):
        return None
    data_center = [has_kind(person, "data_center") for person in answers.people]
    others = [has_kind(person, "desktop") or has_kind(person, "workstation") for person in answers.people]
    unlike = sum(one != other for one, other in zip(data_center, others, strict=True))
    count = answers.count(sum(data_center), len(answers.people))
    second, discordant = answers.rounded(sum(others)), answers.rounded(unlike)
    paper = _printed("survey/more_data_center")
    value, note, chance = None, "", None
    if count.people and second and discordant:
        assert count.of
        variance, ratio = discordant / (count.people * second), log(count.people / second)
        half = Z * sqrt(variance)
        value = Interval(ratio, ratio - half, ratio + half).mapped(lambda each: 100 * (exp(each) - 1))
        note = f"{count.people} have data center GPUs, {second} desktop or workstation GPUs"
        nearest = min(max(value.value, paper.low), paper.high)
        apart = abs(ratio - log(1 + nearest / 100))
        # The paper's variance is that of the answers, for its number of people.
        deviation = sqrt(variance * (1 + count.of / AUTHORS_PEOPLE))
        chance = erfc(apart / deviation / sqrt(2))
    what = "more have data center GPUs than desktop or workstation GPUs"
    return Compared("survey-data-center", what, count, value, paper, f"{paper.value:g} % more", note, chance)


@dataclass(frozen=True)
class Counted:
    """A row of the output: a share of the paper's, or a choice of figure 1 or 8."""

    part: str
    question: str
    choice: str
    count: Count
    share: Compared | None = None

    @property
    def value(self) -> Interval | None:
        return self.share.value if self.share else self.count.share


@dataclass(frozen=True)
class Counts:
    """A panel of figure 1 or 8: how many of these people made each choice of its questions."""

    title: str
    of: int | str
    rows: Sequence[Counted]


_PANELS = {
    "role": "Role",
    "areas": "Research area",
    "uses": "Use of GPUs",
    "satisfaction": "Satisfaction (1: cannot run most experiments, 5: no trouble)",
    "cloud_budget": "Cloud budget a month",
    **{
        f"{kind}_{what}": f"{kind.replace('_', ' ').capitalize()} GPUs: {title}"
        for kind in KINDS
        for what, title in (("gen", "generation"), ("mem", "largest memory"))
    },
    "gpu_link": "Links within machines",
    "node_link": "Links between machines",
}


def figure_8(answers: Answers) -> list[Counts]:
    """Return figure 8's panels of the questions that the answers' files ask; choices may be in groups."""
    return [_breakdown(answers, column) for column in _PANELS if column in answers.columns]


def _breakdown(answers: Answers, column: str) -> Counts:
    question = questions()[column]
    asked = [person.chosen[column] for person in answers.people if person.chosen.get(column)]
    groups = _groups(question)
    names = list(dict.fromkeys(groups.values()))
    made = [{groups[choice] for choice in chosen} for chosen in asked]
    people = [sum(name in groups for groups in made) for name in names]
    if names[-1] == OTHER and not answers.rounded(people[-1]) and not question.other:
        names, people = names[:-1], people[:-1]  # it is no choice
    rows = [
        Counted("figure 8", column, name, answers.count(number, len(asked)))
        for name, number in zip(names, people, strict=True)
    ]
    return Counts(_PANELS[column], shown(answers.rounded(len(asked))), rows)


def _groups(question: Question) -> dict[str, str]:
    """Return the group of each choice, in the order of a panel: of generations and networks the first word, as in the
    paper's figure."""
    if question.id == "cloud_budget":
        return {name: name for name in (*BUDGETS, OTHER)}
    groups = {choice.text: choice.text for choice in question.choices}
    if question.id.endswith("_gen"):
        groups = {text: text if text in (NOT_SURE, NONE_AVAILABLE) else generation(text) for text in groups}
    elif question.id == "satisfaction":
        groups = {text: text[1:2] for text in groups}
    elif question.id == "uses":
        groups = {choice.text: choice.short for choice in question.choices}
    elif question.id == "node_link":
        groups = {text: re.sub(r"^(Ethernet|Infiniband)\b.*", r"\1", text) for text in groups}
    return groups | {OTHER: OTHER}


def generation(choice: str) -> str:
    """Return the generation that a choice of GPUs names: its first word."""
    return choice.split(" ")[0].strip("[]")


def figure_1(answers: Answers) -> list[Counts]:
    """Return figure 1, of data center GPUs, then of desktop and workstation GPUs: of those who filled in all rows, for
    how long at most they may use so many GPUs. Its questions are a kind and a number of GPUs."""
    order = ("data_center", "desktop", "workstation")
    return [
        _availability(answers, kind) for kind in order if any(f"{kind}_{gpus}" in answers.columns for gpus in COUNTS)
    ]


def durations(person: Person, kind: str) -> dict[int, str] | None:
    """Return for how long at most a person may use so many GPUs of a kind, as chosen; None for a row left blank, as in
    the paper's figure. Who has none available has none of any number."""
    if person.has(f"{kind}_gen", NONE_AVAILABLE) or person.has(f"{kind}_mem", NONE_AVAILABLE):
        return dict.fromkeys(COUNTS, NOT_AVAILABLE)
    found = {gpus: next(iter(sorted(person.chosen.get(f"{kind}_{gpus}", ()))), "") for gpus in COUNTS}
    return found if all(found.values()) else None


def _availability(answers: Answers, kind: str) -> Counts:
    filled = [found for person in answers.people if (found := durations(person, kind)) is not None]
    rows = []
    for gpus in COUNTS:
        for name in (NOT_AVAILABLE, *DURATIONS, OTHER):
            people = sum(found[gpus] == name for found in filled)
            if name != OTHER or answers.rounded(people):
                rows.append(Counted("figure 1", f"{kind}_{gpus}", name, answers.count(people, len(filled))))
    title = f"{kind.replace('_', ' ').capitalize()} GPUs"
    return Counts(title, shown(answers.rounded(len(filled))), rows)


def most_gpus(answers: Answers, kinds: Sequence[str], share: float, at_least: str) -> tuple[int, Count] | None:
    """Return the largest number of GPUs of these kinds that this share of people may use for `at_least` so long, and
    who may; 0 GPUs where no number has it, None where that may be fewer than 5 people."""
    long_enough = DURATIONS[DURATIONS.index(at_least) :]
    filled = [[found for kind in kinds if (found := durations(person, kind)) is not None] for person in answers.people]
    asked = [found for found in filled if found]
    best = 0, answers.count(0, len(asked))
    if not best[1].of or share * best[1].of < (1 if answers.exact else BASE):
        return None
    for gpus in COUNTS:
        able = answers.count(sum(any(each[gpus] in long_enough for each in found) for found in asked), len(asked))
        if (able.people or 0) >= share * best[1].of:
            best = gpus, able
    return best


def counted(answers: Answers) -> list[Counted]:
    """Return all of it, the shares first."""
    found = [Counted("share", each.claim, each.what, each.count, each) for each in compared(answers)]
    return found + [row for panel in (*figure_1(answers), *figure_8(answers)) for row in panel.rows]


def _percent(take: Callable[[Interval], float]) -> Callable[[Counted], float | None]:
    return lambda row: None if row.value is None else round(take(row.value), 3)


def _yes_text(differs: bool | None, _: Counted) -> str | None:
    return None if differs is None else yes(differs)


COLUMNS = [
    Column("part", lambda row: row.part),
    Column("question", lambda row: row.question),
    Column("choice", lambda row: row.choice, "share"),
    Column("people", lambda row: shown(row.count.people), "people", lambda _, row: row.count.text),
    Column("of", lambda row: shown(row.count.of)),
    Column(
        "percent",
        _percent(lambda value: value.value),
        "percent",
        lambda it, row: row.value and f"{row.value.value:.0f}",
    ),
    Column(
        "low",
        _percent(lambda value: value.low),
        "95 % interval",
        lambda _, row: row.value and f"{row.value.low:.0f} to {row.value.high:.0f}",
    ),
    Column("high", _percent(lambda value: value.high)),
    Column("paper", lambda row: row.share and row.share.paper_text, "paper"),
    Column("differs", lambda row: row.share and row.share.differs, "differs", _yes_text),
    Column("note", lambda row: (row.share and row.share.note) or None),
]
