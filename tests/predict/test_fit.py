"""The fit of the time model, a maintainer's tool: what is shipped is what it finds, without what a fold holds out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from repro import datafile
from repro.predict.constants import CANDIDATES, PAPERS
from repro.predict.fits import EVERYTHING, FILE, Fits
from repro.predict.observations import folds, observations, trials
from tools import fit

SEEN = [*observations(), *trials()]
SHIPPED = datafile.read(FILE, Fits).fitted


@pytest.fixture(scope="module")
def misses() -> fit.Misses:
    return fit.Misses(SEEN)


def test_every_fold_leaves_out_some_and_fits_at_most_seven_numbers() -> None:
    assert list(SHIPPED) == [EVERYTHING, *folds(SEEN)]
    assert len(SEEN) == 231 + 13
    for name, numbers in SHIPPED.items():
        assert set(numbers) <= {*CANDIDATES, PAPERS}
        assert PAPERS in numbers
        assert len(numbers) <= 7
        assert name == EVERYTHING or 0 < sum(each.belongs(name) for each in SEEN) < len(SEEN)


@pytest.mark.slow
@pytest.mark.parametrize("held_out", ["vit", "A6000"])
def test_a_fold_fitted_again_is_the_one_that_is_shipped(misses: fit.Misses, held_out: str) -> None:
    found = fit.fit(misses, held_out)
    assert found.keys() == SHIPPED[held_out].keys()
    for name, value in found.items():
        assert value == pytest.approx(SHIPPED[held_out][name], rel=1e-3)


@pytest.mark.slow
def test_what_a_fold_holds_out_changes_nothing_of_its_fit(misses: fit.Misses) -> None:
    doubled = fit.Misses([replace(each, days=2 * each.days) if each.belongs("vit") else each for each in SEEN])
    kept = np.array([not each.belongs("vit") for each in SEEN])
    assert fit.chosen(doubled, kept) == fit.chosen(misses, kept)


def test_the_rate_that_explains_what_is_held_out_is_chosen() -> None:
    """Days twice as long as predicted where HBM's memory traffic takes most of the time."""
    seen = [each for each in SEEN if each.recipe.id in ("roberta", "pythia-160m") and each.cell]
    made = fit.Misses(seen)
    slow = made.of(fit._START | {"eager_hbm": 0.3})
    made.__dict__["start"] = made.start - slow  # as if these were the printed days
    assert "eager_hbm" in fit.chosen(made, np.ones(len(seen), dtype=bool))
