"""Data flows one way, from recipes to reports: no module takes anything from what is built on it, and those that need
torch stand apart."""

from __future__ import annotations

from graphlib import TopologicalSorter

import pytest

from tests.modules import DEPTH, FILES, LAYERS, ROOT, UPWARD, loaded, part_of, room, taken

ON_TORCH = (
    "repro.measure",
    "repro.train.",
    "repro.predict.trace.",
    "repro.plan.child",
    "repro.plan.fake_cuda",
    "repro.plan.recorder",
    "repro.models.adversarial",
    "repro.models.objective",
)


def test_no_module_takes_from_what_is_built_on_it() -> None:
    graph = {module: taken(module) & FILES.keys() for module in FILES}
    graph = {module: {other for other in others if (module, other) not in UPWARD} for module, others in graph.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(FILES), "a CycleError names the circle"


def test_every_module_is_in_a_layer_and_takes_from_lower_ones_alone() -> None:
    assert {room(module) for module in FILES} == {*DEPTH, "repro"}
    upward = {
        (module, other)
        for module in FILES.keys() - {"repro"}  # its public names are imported when they are asked for
        for other in taken(module) & FILES.keys() - {"repro"}
        if room(module) != room(other) and DEPTH[room(module)] <= DEPTH[room(other)]
    }
    assert upward - UPWARD == set()


@pytest.mark.parametrize("module", ["repro.run.run", "repro.run.reading"])
def test_a_run_loads_nothing_that_is_built_on_it(module: str) -> None:
    above = {name for names in LAYERS[DEPTH["repro.run"] + 1 :] for name in names}
    assert {room(each) for each in loaded(module, late=True)} & above == set()
    assert len(loaded(module)) <= 40


def test_the_survey_loads_no_more_than_its_counts_and_predictions_need() -> None:
    assert not {each for each in loaded("repro.commands.survey") if room(each) in ("repro.report", "repro.claims")}
    assert len(loaded("repro.commands.survey")) <= 82


def test_what_neither_measures_nor_traces_imports_no_torch() -> None:
    apart = {module for module in FILES if not module.startswith(ON_TORCH)}
    assert {module: found for module in apart if (found := _on_torch(module, set()))} == {}


def test_the_page_on_the_code_is_short_and_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert len(page.splitlines()) <= 40
    folders = {path.parent for path in (ROOT / "repro").glob("*/__init__.py")} - {ROOT / "repro" / "models"}
    assert [folder.name for folder in folders if f"`repro/{folder.name}/`" not in page] == []


def test_every_module_belongs_to_a_part_whose_lines_are_counted() -> None:
    assert [path for path in FILES.values() if not part_of(str(path.relative_to(ROOT)))] == []


def test_the_models_of_the_top_level_are_those_of_the_package() -> None:
    assert (ROOT / "repro" / "models").resolve() == ROOT / "models"


def _on_torch(module: str, seen: set[str]) -> str:
    """The module by which this one comes to import torch as it is imported itself; nothing where it does not."""
    seen.add(module)
    others = taken(module, late=False)
    if "torch" in {name.partition(".")[0] for name in others}:
        return module
    return next(filter(None, (_on_torch(other, seen) for other in sorted(others & FILES.keys() - seen))), "")
