"""`repro settings`: list the paper's search space of settings."""

from __future__ import annotations

import argparse

from ..formats import add_format, render, yes
from ..paper.settings import NAIVE, search_space


def options(parser: argparse.ArgumentParser) -> None:
    add_format(parser)


def main(given: argparse.Namespace) -> int:
    alone = set(search_space(1))
    rows = [
        {
            "settings": settings.id,
            "free_lunch": yes(settings.free_lunch),
            "checkpointing": yes(settings.checkpointing),
            "sharding": settings.sharding,
            "offloading": yes(settings.offloading),
            "on_1_gpu": yes(settings == NAIVE or settings in alone),
        }
        for settings in [NAIVE, *search_space(2)]
    ]
    print(render(rows, given.format, headings={"on_1_gpu": "on 1 GPU"}))
    return 0
