"""Claims about the survey, checked on people's answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from .. import command
from ..formats import Interval, counted, listing
from ..survey.counts import BASE, Answers
from ..survey.questions import AUTHORS_PEOPLE, KINDS
from ..survey.shares import HIGHER_END, SHARES, TYPICAL, Compared, compared, most_gpus
from .working import Missing, Settled, SourceRow, Working

WITHOUT_ANSWERS = (
    "needs the survey's answers, artifacts/survey.csv in artifacts.tar of the authors' release v1.0.0: "
    f"{command()} claims --survey survey.csv"
)
_DAYS, _WEEKS = "Days", "Weeks"


def surveyed(id: str, published: str, unit: str, answers: Answers | None) -> Working | Settled:
    """Return what answers say about a claim. Raises Missing where they say nothing, or there are none: then also
    whether the published share can be one of the 50 people."""
    if answers is not None:
        return SURVEYED[id](answers, id)
    reason = WITHOUT_ANSWERS
    possible = {round(100 * people / AUTHORS_PEOPLE) for people in range(AUTHORS_PEOPLE + 1)}
    if unit == "%" and published.isdecimal() and int(published) not in possible:
        share = f"no whole number of its {AUTHORS_PEOPLE} respondents is {published} %"
        reason += f"; {share}: fewer answered this question"
    raise Missing(reason)


def _share(answers: Answers, id: str) -> Working | Settled:
    """Return the share of the authors' people, which is to round to the printed one; of other people whether the test
    beside the paper's finds it different."""
    [each] = _compared(answers, id)
    working = _working(answers, each)
    if answers.authors:
        return working.with_note(f"of {_named(answers)}")
    assert each.value is not None
    within = f"95 % interval {each.value.low:.0f} to {each.value.high:.0f} %"
    return Settled(not each.differs, f"{each.text}, {within}; of {_named(answers)}", working)


def _uses(answers: Answers, id: str) -> Settled:
    """Check that each of three uses has a share within the printed range."""
    found = _compared(answers, id)
    workings = [_working(answers, each) for each in found]
    lowest = min(workings, key=lambda working: working.value.value).after(*workings)
    differing = [each.text for each in found if each.differs]
    none = f"all {len(found)} uses are within it" if answers.authors else f"none of {len(found)} uses differs from it"
    return Settled(not differing, f"{'; '.join(differing) or none}; of {_named(answers)}", lowest)


def _respondents(answers: Answers, id: str) -> Settled:
    """Count the people of the authors' file, which leaves their institutions out."""
    people = _people(answers)
    return Settled(True, f"the institutions are not in the file; of {_named(answers)}", people)


def _reviewed(answers: Answers, id: str) -> Settled:
    """Check the number of people and the share without a budget for cloud compute."""
    people = _people(answers)
    [each] = _compared(answers, "survey-no-cloud-budget")
    reason = f"{each.text}; institutions and weeks are not in the file; of {_named(answers)}"
    return Settled(not each.differs, reason, people.after(_working(answers, each)))


def _available(
    answers: Answers, id: str, kinds: tuple[str, ...], asked: tuple[tuple[str, float, int, int], ...]
) -> Settled:
    """Check how many GPUs of these kinds a part of the people may use: for how long, the part, and the printed
    range."""
    findings, holds, workings = list[str](), True, list[Working]()
    for long, part, least, most in asked:
        found = most_gpus(answers, kinds, part, long)
        if found is None:
            raise Missing(f"too few people say for how long they may use GPUs to show a share; of {_named(answers)}")
        gpus, able = found
        holds &= least <= gpus <= most
        who = "half" if part == TYPICAL else "a quarter"
        what = f"at least {who} of the people may use {counted(gpus, 'GPU')} for {long.lower()}"
        findings.append(what)
        workings.append(Working.read(gpus, SourceRow(_file(answers), f"{what} or longer", able.text, _named(answers))))
    reason = f"{'; '.join(findings)}; read so, typical is half of the people, and some a quarter; of {_named(answers)}"
    return Settled(holds, reason, workings[0].after(*workings))


def _compared(answers: Answers, id: str) -> list[Compared]:
    """Return the answers' shares that a claim is about. Raises Missing where there are none to show."""
    found = [each for each in compared(answers) if each.claim == id]
    if not found:
        raise Missing(f"no column asks for it; of {_named(answers)}")
    if few := next((each for each in found if each.value is None), None):
        raise Missing(f"{few.what}: fewer than {BASE} people, of whom no share is shown; of {_named(answers)}")
    return found


def _working(answers: Answers, each: Compared) -> Working:
    """Return a share, in percent, with the count that it is of."""
    assert each.value is not None
    of = each.note or each.count.text
    row = SourceRow(_file(answers), each.what, of, _named(answers))
    return Working(Interval.exact(each.value.value), (row,), (f"{of}: {each.value.value:.2f} %",))


def _people(answers: Answers) -> Working:
    """Return how many people the authors' file has. Raises Missing for the answers of others."""
    if not answers.authors:
        raise Missing("it is about the paper's own people, and these are others")
    people = len(answers.people)
    return Working.read(people, SourceRow(_file(answers), "rows", f"{people} people", _named(answers)))


def _named(answers: Answers) -> str:
    return listing(answers.named())


def _file(answers: Answers) -> str:
    return ", ".join(Path(source.name).name for source in answers.sources)


_academic = partial(_available, kinds=KINDS, asked=((_DAYS, TYPICAL, 1, 8), (_WEEKS, HIGHER_END, 1, 8)))
_data_center = partial(
    _available,
    kinds=("data_center",),
    asked=((_DAYS, TYPICAL, 4, 4), (_WEEKS, HIGHER_END, 4, 4), (_DAYS, HIGHER_END, 8, 16)),
)
# The claims whose published is no single number: their functions give the verdict.
SETTLED: dict[str, Callable[[Answers, str], Settled]] = {
    "survey-fine-tuning": _uses,
    "survey-respondents": _respondents,
    "survey-availability": _data_center,
    "survey-academic-hardware": _academic,
    "review-survey": _reviewed,
    "review-hardware": _academic,
}
SURVEYED: dict[str, Callable[[Answers, str], Working | Settled]] = {
    **{share.claim: _share for share in SHARES},
    "survey-data-center": _share,
    **SETTLED,
}
