"""`repro contribute`: copy a results folder without names of people and machines, checked, for others to read."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import files
from ..console import DATA, UserError, say
from ..formats import counted, path
from ..options import Options, argument, flag, option, several
from ..printout import output
from ..verify.cleaning import MADE_ANEW, Cleaned, cleaned


def _word(text: str, option: str) -> str:
    if not text.strip():
        raise UserError(f"{option}: expected a word, such as a name")
    return text


@dataclass(frozen=True, kw_only=True)
class Asked(Options):
    epilog = "Without --yes it shows what it would replace, and writes nothing."
    folder: Path = argument("a run's results", "DIR", path)
    out: Path = option("new folder for the copy, such as results/a100-lab", "DIR", path, required=True)
    name: tuple[str, ...] = several("also takes out this word; several times for several words", "WORD", _word)
    yes: bool = flag("write the copy, and its row of index.csv beside it")
    all: bool = flag("show all rows")


def main(asked: Asked) -> int:
    from ..run.reading import begun
    from ..verify import contribute

    if asked.out.exists() and (not asked.out.is_dir() or any(asked.out.iterdir())):
        raise UserError(f"--out {asked.out} is there already: name a new folder")
    contribute.listed(asked.out.parent)  # an index.csv of something else is no place for a row
    before = begun(asked.folder)
    if before.released:
        raise UserError(f"{asked.folder} is the authors' archive, which is theirs to publish: name results of a run")
    found = cleaned(asked.folder, asked.name, before.environment)
    with tempfile.TemporaryDirectory() as place:
        after = contribute.read_again(Path(place, asked.out.name), found.texts)
        contribute.refuse_changed(before, after, (each.found for each in found.changes))
        failed = contribute.check(after, _kept(asked.folder))
    rows = [_row(each.file, each.found, each.becomes, each.times) for each in found.changes]
    rows += [_row(name, reason, "left out", 1) for name, reason in found.left_out]
    rows += [_row(name, text, f"look at it: {what}", 1) for name, what, text in found.doubtful]
    answer = (
        f"{counted(len(found.changes), 'name')} taken out of {counted(len(found.texts), 'file')}, "
        f"{len(found.left_out)} left out; {counted(len(found.doubtful), 'place')} for you to look at."
    )
    checked = "The check of raw times, physics and copies found"
    notes = [f"{checked}: {each}." for each in failed[:2]] or [f"{checked} nothing."]
    print(output(answer, rows, rows, notes, "text", asked.all))
    if not asked.yes:
        say(f"nothing was written: --yes writes {asked.out}")
        return 0
    _write(asked.out, found, failed)
    say(f"{asked.out} can be shared once you have looked at what is listed; {contribute.INDEX} beside it has its row")
    return 0


def _row(file: str, what: str, becomes: str, times: int) -> dict[str, Any]:
    return {"file": file, "what": what, "becomes": becomes, "times": times}


def _kept(folder: Path) -> list[Path]:
    """Return the folders of results that came with this checkout, without this one."""
    return [each.parent for each in sorted(DATA.glob("results/**/trials.jsonl")) if not each.parent.samefile(folder)]


def _write(out: Path, found: Cleaned, failed: list[str]) -> None:
    """Write the copy, its report and README, and its row of index.csv."""
    from ..report.sections import compose
    from ..report.write import write
    from ..verify import contribute

    reading = contribute.read_again(out, found.texts)
    report = compose(reading)
    write(report, out)
    row = contribute.entry(reading, report.certificate, failed)
    files.replace(out / "README.md", contribute.readme(row, failed, len(found.doubtful)))
    for made in out.iterdir():
        if made.name in MADE_ANEW:  # it names this machine's folders
            text = made.read_text(encoding="utf-8")
            if len(out.parts) > 1:  # a name alone may be a word of the report
                text = text.replace(str(out), f"results/{out.name}")
            files.replace(made, found.cleaner.clean(text))
    contribute.add(row, out.parent)
