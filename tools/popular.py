"""Describe the popular models on the installed stack, in models/configurations/described, and trace those whose costs
are not computed (repro/predict/decoders.py), in repro/predict/traces/popular. Takes half an hour.

python -m tools.popular
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

from repro import files
from repro.models import configured, popular, shipped
from repro.models.custom import CustomModel
from repro.models.specification import Fields, of_popular
from repro.predict.decoders import decoder_of
from repro.predict.descriptions import POPULAR
from repro.predict.traces import Trace, save


def _models() -> Iterator[tuple[str, CustomModel]]:
    from repro.predict.trace.custom import describe

    for id in popular.listed():
        print(id, file=sys.stderr, flush=True)
        yield id, describe(of_popular(id, Fields()))[0]


def _traces(found: dict[str, CustomModel]) -> Iterator[Trace]:
    from repro.predict.trace.trace import trace, variants

    for id, model in found.items():
        recipe = model.recipe("paper")
        if decoder_of(model) is not None:
            continue
        with configured.quietly():
            for variant in variants(recipe):
                print(id, variant, file=sys.stderr, flush=True)
                yield replace(trace(recipe, variant), recipe=id)


if __name__ == "__main__":
    found = dict(_models())
    lines = (f"{json.dumps(id)}:{json.dumps(asdict(replace(model.paper, config=None)))}" for id, model in found.items())
    files.replace(shipped.DESCRIBED, "{\n" + ",\n".join(lines) + "\n}\n")
    print(save(_traces(found), POPULAR))
