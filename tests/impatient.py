"""repro, with a node gone after seconds of silence, and without a page: python -m tests.impatient run ..."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from repro.cli import main
from repro.commands import driver
from repro.measure import mailbox
from repro.report.write import Written
from repro.run.run import Run
from repro.run.verdict import Verdict

write = driver._write


def write_without_page(run: Run, draw: bool) -> tuple[Written, Sequence[Verdict]]:
    return write(run, draw=False)  # drawing takes seconds


mailbox.SILENT = 8.0
driver._write = write_without_page

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
