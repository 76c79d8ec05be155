"""Claims about the survey, checked on people's answers."""

from __future__ import annotations

from pathlib import Path

from .. import command
from ..formats import Interval, counted, listing
from ..survey.answers import AUTHORS_PEOPLE, Answers
from ..survey.counts import BASE
from ..survey.questions import KINDS
from ..survey.shares import HIGHER_END, TYPICAL, Compared, compared, most_gpus
from .claim import Missing, Settled, listed, surveys
from .working import SourceRow, Working

WITHOUT_ANSWERS = (
    "needs the survey's answers, artifacts/survey.csv in artifacts.tar of the authors' release v1.0.0: "
    f"{command()} claims --survey survey.csv"
)
Found = Working | Missing | Settled
_OTHERS = "it is about the paper's own people, and these are others"


def without_answers(id: str) -> Missing:
    """Return why a claim is not settled without answers, and whether its share can be one of the 50 people."""
    claim = next(claim for claim in listed() if claim.id == id)
    possible = {round(100 * people / AUTHORS_PEOPLE) for people in range(AUTHORS_PEOPLE + 1)}
    reason = WITHOUT_ANSWERS
    if claim.unit == "%" and claim.published.isdecimal() and int(claim.published) not in possible:
        share = f"no whole number of its {AUTHORS_PEOPLE} respondents is {claim.published} %"
        reason += f"; {share}: fewer answered this question"
    return Missing(reason)


def _named(answers: Answers) -> str:
    """Return the files, for a reason."""
    return listing(answers.named())


@surveys("survey-phd-students")
@surveys("survey-no-cloud-budget")
@surveys("survey-unsatisfied")
@surveys("survey-no-multi-node")
@surveys("survey-data-center")
@surveys("survey-analysis")
@surveys("survey-pre-training")
@surveys("survey-h100")
@surveys("survey-inter-gpu")
@surveys("survey-ethernet")
@surveys("survey-infiniband")
def share(answers: Answers, id: str) -> Found:
    """Return the share of the authors' people, which is to round to the printed one; of other people whether the test
    beside the paper's finds it different."""
    found = _compared(answers, id)
    if isinstance(found, Missing):
        return found
    [each] = found
    working = _working(answers, each)
    if answers.authors:
        return working.with_note(f"of {_named(answers)}")
    return Settled(
        "differs" if each.differs else "holds", f"{each.text}, {_within(each)}; of {_named(answers)}", working
    )


@surveys("survey-fine-tuning", settles=True)
def uses(answers: Answers, id: str) -> Found:
    """Check that each of three uses has a share within the printed range."""
    found = _compared(answers, id)
    if isinstance(found, Missing):
        return found
    workings = [_working(answers, each) for each in found]
    lowest = min(workings, key=lambda working: working.value.value).after(*workings)
    differing = [each for each in found if each.differs]
    none = f"all {len(found)} uses are within it" if answers.authors else f"none of {len(found)} uses differs from it"
    said = "; ".join(each.text for each in differing) or none
    return Settled("differs" if differing else "holds", f"{said}; of {_named(answers)}", lowest)


@surveys("survey-respondents", settles=True)
def respondents(answers: Answers, id: str) -> Found:
    """Count the people of the authors' file, which leaves their institutions out."""
    if not answers.authors:
        return Missing(_OTHERS)
    return Settled("holds", f"the institutions are not in the file; of {_named(answers)}", _people(answers))


@surveys("review-survey", settles=True)
def reviewed(answers: Answers, id: str) -> Found:
    """Check the number of people and the share without a budget for cloud compute."""
    if not answers.authors:
        return Missing(_OTHERS)
    found = _compared(answers, "survey-no-cloud-budget")
    if isinstance(found, Missing):
        return found
    [each] = found
    working = _people(answers).after(_working(answers, each))
    said = f"{each.text}; institutions and weeks are not in the file"
    return Settled("differs" if each.differs else "holds", f"{said}; of {_named(answers)}", working)


@surveys("survey-availability", settles=True)
def availability(answers: Answers, id: str) -> Found:
    """Check how many data center GPUs half of the people may use for days, and a quarter for days and for weeks."""
    asked = (("Days", TYPICAL, (4, 4)), ("Weeks", HIGHER_END, (4, 4)), ("Days", HIGHER_END, (8, 16)))
    return _available(answers, ("data_center",), asked)


@surveys("survey-academic-hardware", settles=True)
@surveys("review-hardware", settles=True)
def academic_hardware(answers: Answers, id: str) -> Found:
    """Check how many GPUs of any kind half of the people may use for days, and a quarter for weeks."""
    return _available(answers, KINDS, (("Days", TYPICAL, (1, 8)), ("Weeks", HIGHER_END, (1, 8))))


def _available(
    answers: Answers, kinds: tuple[str, ...], asked: tuple[tuple[str, float, tuple[int, int]], ...]
) -> Found:
    said, holds, workings = list[str](), True, list[Working]()
    for long, part, (least, most) in asked:
        found = most_gpus(answers, kinds, part, long)
        if found is None:
            return Missing(f"too few people say for how long they may use GPUs to show a share; of {_named(answers)}")
        gpus, able = found
        holds &= least <= gpus <= most
        who = "half" if part == TYPICAL else "a quarter"
        what = f"at least {who} of the people may use {counted(gpus, 'GPU')} for {long.lower()}"
        said.append(what)
        workings.append(Working.read(gpus, SourceRow(_file(answers), f"{what} or longer", able.text, _named(answers))))
    reason = f"{'; '.join(said)}; read so, typical is half of the people, and some a quarter; of {_named(answers)}"
    return Settled("holds" if holds else "differs", reason, workings[0].after(*workings))


def _compared(answers: Answers, id: str) -> list[Compared] | Missing:
    """Return the answers' shares that a claim is about, or why there are none to show."""
    found = [each for each in compared(answers) if each.claim == id]
    if not found:
        return Missing(f"no column asks for it; of {_named(answers)}")
    if few := next((each for each in found if each.value is None), None):
        return Missing(f"{few.what}: fewer than {BASE} people, of whom no share is shown; of {_named(answers)}")
    return found


def _working(answers: Answers, each: Compared) -> Working:
    """Return a share, in percent, with the count that it is of."""
    assert each.value is not None
    row = SourceRow(_file(answers), each.what, each.note or each.count.text, _named(answers))
    step = f"{each.note or each.count.text}: {each.value.value:.2f} %"
    return Working(Interval.exact(each.value.value), (row,), (step,))


def _people(answers: Answers) -> Working:
    people = len(answers.people)
    return Working.read(people, SourceRow(_file(answers), "rows", f"{people} people", _named(answers)))


def _file(answers: Answers) -> str:
    return ", ".join(Path(source.name).name for source in answers.sources)


def _within(each: Compared) -> str:
    assert each.value is not None
    return f"95 % interval {each.value.low:.0f} to {each.value.high:.0f} %"
