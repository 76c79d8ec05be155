"""repro, with a node gone after seconds of silence, and with no more of the stack loaded than ViT and ConvNeXt take
with naive settings: python -m tests.support.soon_gone run ..."""

from __future__ import annotations

import sys
from functools import partialmethod

from repro.cli import main
from repro.measure import nodes
from repro.measure.launcher import ForkServer

VISION = ("torch.distributed", "timm.models.vision_transformer", "timm.models.convnext")

nodes.SILENT = 8.0
ForkServer.__init__ = partialmethod(ForkServer.__init__, modules=VISION)  # type: ignore[assignment]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
