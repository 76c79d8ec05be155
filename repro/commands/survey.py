"""`repro survey`: the survey's questions, people's answers as counts, and who of them can train what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import command, models
from ..console import UserError, markdown, say
from ..formats import FOR_MACHINES, Format, counted, path, render
from ..money.amounts import deadline_text
from ..money.days import DaysAsked
from ..options import Output, argument, flag, given, option
from ..predict.traces import Stack
from ..printout import data, output, people, screen
from ..printout import shown as shown_rows
from ..record import By
from ..survey import shares, training
from ..survey.allocations import LASTS
from ..survey.answers import read
from ..survey.counts import BASE, FEW, Answers, shown
from ..survey.questions import AUTHORS_PEOPLE, form, listed, questions
from ..survey.shares import Compared, compared
from .custom_models import models_option
from .day_options import by_option, measured_days, more_days, stack_option

_HEADLINE = "pythia-1b"  # the model of the headline, where it is among the models
_MOST_PROBLEMS = 30  # lines on what was left out
_EXACT = "counts are exact, as --exact asks: people may be recognised by them, so show them to nobody else"
_TRAINING = ("models", "measured")  # options of what people can train


@dataclass(frozen=True, kw_only=True)
class Asked(Output):
    answers: tuple[Path, ...] = argument(
        "a form's export as CSV, or the authors' artifacts/survey.csv, or artifacts.tar with it; several files "
        "are one survey",
        "ANSWERS.csv",
        path,
        nargs="*",
    )
    questions: bool = flag("print the questions and their choices, to ask them again")
    train: bool = flag(
        "print who can train which model with the GPUs that they may use; without answers: what the paper's "
        "academic hardware can train"
    )
    exact: bool = flag(f"count to one person, not to the nearest {BASE}: people may be recognised")
    out: Path | None = option("also write survey.html, a page with the figures, into this folder", "DIR", path)
    by: By = by_option()
    stack: Stack = stack_option("today")
    measured: tuple[Path | None, ...] = more_days()
    models: str | None = models_option("recipes to train, by id (default: all nine)")


def main(asked: Asked) -> str:
    _check(asked)
    return _questions(asked.format) if asked.questions else _counts(asked)


def _counts(asked: Asked) -> str:
    """Return what was asked of people's answers, or of the paper's academic hardware without any."""
    wanted = models.listed(asked.models, models.find_traced)
    days = DaysAsked(asked.by, asked.stack, *measured_days(asked.measured, asked.by))
    if not asked.answers:
        rows = training.papers_rows(wanted, days)
        table = training.papers_table(rows)
        notes = [
            "A GPU's column has the days with all methods, on the best number of them: csv and json also have those "
            "naive and with the free lunch, and where each is from.",
            *_training_notes(days),
        ]
        return output(training.papers_sentence(table), rows, table, notes, asked.format)
    answers = read_answers(asked.answers, asked.exact)
    reached = training.reach(answers, wanted, days) if asked.out or asked.train else []
    if asked.out:
        say(_page(answers, reached, wanted, days, asked.out))
    if asked.train:
        first, change = _headlines(reached, wanted)
        notes = [change, _not_known(answers), _rounding(answers)]
        return screen(first, training.COLUMNS, reached, notes, asked.format, asked.all)
    notes = [_people(answers), _judged(answers), _rounding(answers)]
    counts = shares.counted(answers)
    seen = shown_rows(shares.COLUMNS, [row for row in counts if row.share])
    answer = _differing(compared(answers))
    return output(answer, data(shares.COLUMNS, counts), seen, notes, asked.format, asked.all)


def read_answers(files: Sequence[Path], exact: bool = False) -> Answers:
    """Read answers, and print what was left out. Raise UserError for too few people to show any count of."""
    answers = read(files, exact)
    for problem in answers.problems[:_MOST_PROBLEMS]:
        say(problem)
    if len(answers.problems) > _MOST_PROBLEMS:
        say(f"and {counted(len(answers.problems) - _MOST_PROBLEMS, 'more line')} such as these")
    if answers.rounded(len(answers.people)) is None:
        names = ", ".join(map(str, files))
        raise UserError(f"{names}: answers of {FEW} people, of whom nothing is shown; survey --exact shows it")
    if exact:
        say(f"warning: {_EXACT}")
    return answers


def _check(asked: Asked) -> None:
    """Raise UserError where nothing is asked, or an option changes nothing."""
    if not (asked.answers or asked.questions or asked.train):
        raise UserError(
            f"nothing to count: name ANSWERS.csv, or ask with --questions or --train; see {command()} survey --help"
        )
    if asked.questions and (asked.answers or asked.train or asked.out or asked.exact):
        raise UserError("--questions prints the form alone: leave answers, --train, --out and --exact out")
    if (useless := given(asked, _TRAINING)) and not (asked.train or asked.out):
        raise UserError(f"{useless[0]} is of what people can train: add --train")
    if not asked.answers and (asked.exact or asked.out):
        raise UserError(f"--{'exact' if asked.exact else 'out'} is of people's answers: name ANSWERS.csv")


def _questions(format: Format) -> str:
    if format in FOR_MACHINES:
        return render(form(), format)
    if format == "markdown":
        source = "The questions of the paper's Table 2 (Appendix A), with their choices; what came later is marked."
        return "\n".join(["# Survey on academic compute", "", source, "", *listed(markdown)])
    rows = [
        {"no.": each.number, "question": each.text, "answer": each.how, "choices": len(each.choices)}
        for each in questions().values()
    ]
    note = "--format markdown has the form with all choices, csv and json have its columns."
    return people(f"The paper's Table 2 (Appendix A) asks {len(rows)} questions.", rows, [note], format)


def _people(answers: Answers) -> str:
    """Return the sentence on who answered."""
    return f"{answers.number} people answered: {'; '.join(answers.named())}."


def _differing(found: Sequence[Compared]) -> str:
    """Return the sentence on which shares differ from the paper's."""
    held = [each for each in found if each.differs is not None]
    differing = [each.text for each in held if each.differs]
    if not held:
        return "No share of the paper can be compared."
    listed = f": {'; '.join(differing)}" if differing else ""
    verb = "differs" if len(differing) == 1 else "differ"
    return f"Of {counted(len(held), 'share')} that the paper prints, {len(differing)} {verb}{listed}."


def _judged(answers: Answers) -> str:
    """Return a note on when a share differs from the paper's."""
    if answers.authors:
        return "A share differs where it does not round to what is printed."
    return (
        f"A share differs by Fisher's exact test beside the paper's {AUTHORS_PEOPLE} people, corrected over the shares "
        "by Holm: where all are of the same population, any differs in at most 5 % of surveys."
    )


def _rounding(answers: Answers) -> str:
    if not answers.exact:
        return (
            f"Counts are to the nearest {BASE}, and all else follows from these; {FEW} has no share (docs/survey.md)."
        )
    return "Counts are exact, as the file is the authors'." if answers.authors else f"{_EXACT[0].upper()}{_EXACT[1:]}."


def _headlines(found: Sequence[training.Reach], wanted: Sequence[str]) -> list[str]:
    """Return the sentences on the model of the headline."""
    first = found[wanted.index(_HEADLINE) if _HEADLINE in wanted else 0]
    return [training.headline(first), training.best_change(first)]


def _not_known(answers: Answers) -> str:
    left = shown(answers.rounded(training.not_known(answers)))
    return (
        f"Of {left} people the GPUs are not known, or no card of the catalogue stands for them (survey_cards.csv of "
        "expected/): they count as people who cannot train."
    )


def _page(
    answers: Answers,
    reached: Sequence[training.Reach],
    wanted: Sequence[str],
    asked: DaysAsked,
    folder: Path,
) -> str:
    """Write the page, and return the sentence that says where it is."""
    from ..report.blocks import Block, Bullets, Heading, Sentence, Table
    from ..report.survey import figures
    from ..report.write import write_survey

    found = compared(answers)
    headline, *sentences = _headlines(reached, wanted)
    blocks: list[Block] = [
        *map(Sentence, [*sentences, _people(answers), _differing(found)]),
        Heading("Who can train what", "training"),
        Table("who can train what", shown_rows(training.COLUMNS, reached)),
        Bullets(
            [
                _not_known(answers),
                *_training_notes(asked),
                "More by one change: people who cannot train it naively now, and could with the methods, with "
                "allocations one choice longer, or with twice the GPUs for as long.",
                _rounding(answers),
            ]
        ),
        Heading("The paper's shares, counted again", "shares", "Shares"),
        Table("shares", shown_rows(shares.COLUMNS, [row for row in shares.counted(answers) if row.share])),
        Bullets(
            [
                *(f"{each.what[0].upper()}{each.what[1:]}: {each.note}." for each in found if each.note),
                "A share is of those who answered its question. Its interval is Wilson's, of 95 %, for who else might "
                f"have answered. {_judged(answers)}",
                "Figure 1 counts who filled in every row, or has none of these GPUs, as the paper's does.",
                _rounding(answers),
            ]
        ),
        Heading("Figures", "figures"),
        *figures(answers, reached),
    ]
    return write_survey(headline, blocks, folder)


def _training_notes(asked: DaysAsked) -> list[str]:
    long = ", ".join(f'"{name}" {deadline_text(days)}' for name, days in LASTS.items())
    return [
        f"Allocations last: {long}.",
        f"{asked.text.removesuffix('.')}; those of a model of your own are on the installed stack.",
    ]
