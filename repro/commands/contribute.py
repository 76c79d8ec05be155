"""`repro contribute`: copy a results folder without names of people and machines, checked, for others to read."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from .. import files
from ..console import DATA, UserError, say
from ..formats import counted, path
from ..printout import output
from ..verify.cleaning import MADE_ANEW, Cleaned, cleaned


def options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Without --yes it shows what it would replace, and writes nothing."
    add = parser.add_argument
    add("folder", type=path, metavar="DIR", help="a run's results")
    add("--out", type=path, metavar="DIR", required=True, help="new folder for the copy, such as results/a100-lab")
    add("--name", action="append", metavar="WORD", help="also takes out this word; several times for several words")
    add("--yes", action="store_true", help="write the copy, and its row of index.csv beside it")
    add("--all", action="store_true", help="show all rows")


def main(given: argparse.Namespace) -> int:
    from ..run.reading import begun
    from ..verify import contribute

    if given.out.exists() and (not given.out.is_dir() or any(given.out.iterdir())):
        raise UserError(f"--out {given.out} is there already: name a new folder")
    if any(not word.strip() for word in given.name or ()):
        raise UserError("--name: expected a word, such as a name")
    contribute.listed(given.out.parent)  # an index.csv of something else is no place for a row
    before = begun(given.folder)
    if before.released:
        raise UserError(f"{given.folder} is the authors' archive, which is theirs to publish: name results of a run")
    found = cleaned(given.folder, given.name or (), before.environment)
    with tempfile.TemporaryDirectory() as place:
        after = contribute.read_again(Path(place, given.out.name), found.texts)
        contribute.refuse_changed(before, after, (each.found for each in found.changes))
        failed = contribute.check(after, _kept(given.folder))
    rows = [_row(each.file, each.found, each.becomes, each.times) for each in found.changes]
    rows += [_row(name, reason, "left out", 1) for name, reason in found.left_out]
    rows += [_row(name, text, f"look at it: {what}", 1) for name, what, text in found.doubtful]
    answer = (
        f"{counted(len(found.changes), 'name')} taken out of {counted(len(found.texts), 'file')}, "
        f"{len(found.left_out)} left out; {counted(len(found.doubtful), 'place')} for you to look at."
    )
    checked = "The check of raw times, physics and copies found"
    notes = [f"{checked}: {each}." for each in failed[:2]] or [f"{checked} nothing."]
    print(output(answer, rows, rows, notes, "text", given.all))
    if not given.yes:
        say(f"nothing was written: --yes writes {given.out}")
        return 0
    _write(given.out, found, failed)
    say(f"{given.out} can be shared once you have looked at what is listed; {contribute.INDEX} beside it has its row")
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
