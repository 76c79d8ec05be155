"""Fit the costs of decoders as polynomials of their dimensions, to traces of small ones on the installed stack, and
write them to repro/predict/traces/decoders.json. Takes half an hour.

python -m tools.decoders
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from scipy.optimize import nnls

from repro.models import configured, shipped
from repro.models.custom import CustomModel
from repro.models.decoders import FAMILIES, Dimensions
from repro.models.recipe import Text
from repro.models.specification import Fields, of_popular
from repro.predict.decoders import FILE, MONOMIALS, monomials
from repro.predict.trace.trace import stack, trace
from repro.predict.traces import VARIANTS, Block, Trace, Variant

SAMPLES = 32  # more than there are monomials
SEED = 1


def _sampled(chosen: random.Random, family: str) -> Dimensions:
    """Return random small dimensions, in no fixed proportion to each other."""
    keys = FAMILIES[family].keys
    size, heads = chosen.choice((32, 64, 128)), chosen.choice((2, 3, 4, 6, 8, 12))
    kv = chosen.choice([n for n in range(1, heads + 1) if heads % n == 0]) if "keys" in keys else heads
    width = heads * (16 * chosen.randint(2, 16) if "head" in keys else size)
    feed, words = 64 * chosen.randint(4, 60), 64 * chosen.randint(500, 2400)  # more words than tokens, as usual
    return Dimensions(2, width, heads, kv, feed, words, size, 64 * chosen.randint(2, 16))


def _traced(base: CustomModel, family: str, asked: Dimensions, tied: bool, variant: Variant) -> Trace:
    """Return the trace of a decoder with these dimensions, otherwise as `base`."""
    assert base.paper.config is not None
    config = base.paper.config | FAMILIES[family].config(asked) | {"tie_word_embeddings": tied, "pad_token_id": None}
    described = replace(base.paper, config=config, text=Text(asked.sequence, asked.vocabulary))
    with configured.quietly():
        return trace(replace(base, paper=described).recipe("paper"), variant)


def _fitted(family: str, tied: bool) -> dict[str, Any]:
    """Return the polynomials of a family: by variant, part and cost, the coefficients of its monomials, of the fixed
    cost and of each example's."""
    base = shipped.description(of_popular(FAMILIES[family].like, Fields()))
    assert base is not None
    chosen = random.Random(SEED)
    asked = [_sampled(chosen, family) for _ in range(SAMPLES)]
    table = np.array([monomials(each) for each in asked])
    scale = table.max(axis=0)
    found: dict[str, Any] = {}
    for variant in VARIANTS:
        traces = [_traced(base, family, each, tied, variant) for each in asked]
        for part, name in enumerate(("rest", "layer")):
            if {len(each.parts) for each in traces} != {2}:
                raise SystemExit(f"{family}: its layers are not all alike")
            blocks = [each.parts[part] for each in traces]
            for key in sorted({key for block in blocks for key in block.costs}):
                lines = _lines(blocks, key)
                if key == "body":  # what the layers' backward pass needs beside what is saved, the largest of several
                    worst, coefficients = _largest(table / scale, lines + _lines(blocks, "saved"))
                    coefficients -= _solved(table / scale, _lines(blocks, "saved"))[1]
                else:
                    worst, coefficients = _solved(table / scale, lines)
                if worst > 0.005:
                    print(f"{family} {variant} {name} {key}: {worst:.1%} off", file=sys.stderr)
                kept = {
                    monomial: [float(f"{number:.9g}") for number in row / size]
                    for monomial, row, size in zip(MONOMIALS, coefficients, scale, strict=True)
                    if any(row)
                }
                found.setdefault(variant, {}).setdefault(name, {})[key] = kept
    return found


def _lines(blocks: list[Block], key: str) -> Any:
    return np.array([[block.cost(key).fixed, block.cost(key).per_example] for block in blocks])


def _largest(table: Any, lines: Any) -> tuple[float, Any]:
    """Return coefficients, none below 0, of monomials of which a largest one may be made, and the largest error."""
    found = np.zeros((table.shape[1], lines.shape[1]))
    worst = 0.0
    for column, names in enumerate((("h", "hq", "hf", "hv"), ("sh", "sq", "sk", "sf", "sv", "ssa"))):
        kept = [MONOMIALS.index(name) for name in names]
        wanted = np.maximum(lines[:, column], 0)
        if wanted.any():
            weights = 1 / np.maximum(wanted, wanted.max() * 1e-2)
            found[kept, column], _ = nnls(table[:, kept] * weights[:, None], wanted * weights)
            worst = max(worst, float(np.abs((table @ found[:, column] - wanted) * weights).max()))
    return worst, found


def _solved(table: Any, lines: Any) -> tuple[float, Any]:
    """Return the least-squares coefficients, those that contribute nothing as 0, and the largest relative error."""
    found = np.zeros((table.shape[1], lines.shape[1]))
    worst = 0.0
    for column in range(lines.shape[1]):
        wanted = lines[:, column]
        if not wanted.any():
            continue
        weights = 1 / np.maximum(np.abs(wanted), np.abs(wanted).max() * 1e-6)
        kept = np.arange(table.shape[1])
        for _ in range(4):  # without what contributes less than a millionth, fit again
            solution = np.linalg.lstsq(table[:, kept] * weights[:, None], wanted * weights, rcond=1e-12)[0]
            share = np.abs(table[:, kept] * solution * weights[:, None]).max(axis=0)
            if (share > 1e-6).all():
                break
            kept = kept[share > 1e-6]
        found[kept, column] = solution
        worst = max(worst, float(np.abs((table[:, kept] @ solution - wanted) * weights).max()))
    return worst, found


def _families() -> Iterator[tuple[str, bool]]:
    for name, family in FAMILIES.items():
        for tied in family.tied:
            yield name, tied


if __name__ == "__main__":
    found: dict[str, Any] = defaultdict(dict)
    for family, tied in _families():
        print(family, "tied" if tied else "untied", file=sys.stderr, flush=True)
        found[family]["tied" if tied else "untied"] = _fitted(family, tied)
    FILE.write_text(json.dumps({"stack": asdict(stack()), "families": found}, separators=(",", ":")) + "\n")
