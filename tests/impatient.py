"""repro, with a node gone after seconds of silence, without a page, and with no more of the stack loaded than ViT and
ConvNeXt take with naive settings: python -m tests.impatient run ..."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partialmethod

from repro.cli import main
from repro.commands import driver
from repro.measure import nodes
from repro.measure.launcher import ForkServer
from repro.report.write import Written
from repro.run.run import Run
from repro.run.verdict import Verdict

VISION = ("torch.distributed", "timm.models.vision_transformer", "timm.models.convnext")
write = driver._write


def write_without_page(run: Run, draw: bool) -> tuple[Written, Sequence[Verdict]]:
    return write(run, draw=False)  # drawing takes seconds


nodes.SILENT = 8.0
ForkServer.__init__ = partialmethod(ForkServer.__init__, modules=VISION)  # type: ignore[assignment]
driver._write = write_without_page

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
